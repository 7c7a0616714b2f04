"""Wire formats: bytes or JSON in, typed events out; no socket, clock or file."""
