"""Captures on disk: format, reading, recovery, and the timeline built from one."""
