"""Shared offline scoring core: opens captures and computes every number.

It never dials anything and never imports `vakforge_probe`; importing it leaves asyncio unloaded.
"""

__version__ = "0.1.0"
