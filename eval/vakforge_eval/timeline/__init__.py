"""The vocabulary of both halves: instants, values, events, records, the compiled scenario."""
