"""Pure functions over a call's timeline; each returns a value with its error, or why there is none.

`registry.METRICS` names them all.
"""
