"""``python -m vakforge_probe``."""

from vakforge_probe.cli.app import main

main()
