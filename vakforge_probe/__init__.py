"""Live half: dials an endpoint, plays the scripted user, stamps everything and records.

It computes no number; `vakforge_eval` does.
"""

__version__ = "0.1.0"
