"""The command line: each command parses, calls one function and maps errors to exit codes."""
