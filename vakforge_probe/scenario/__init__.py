"""What the scripted user says and when: grammar, bounded loading, compiling, directing."""
