"""Data that is shipped beside the code: from the wheel, or from a source tree."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

__all__ = ["shipped_text"]


def shipped_text(name: str) -> str:
    """Return the text of a data file.

    Parameters
    ----------
    name
        Its path below the folder that holds the package in a source tree, with ``/``; a wheel
        holds it at the same path below the package's ``data``.

    Raises
    ------
    FileNotFoundError
        If the installation is incomplete.
    """
    package = resources.files("vakforge_eval")
    shipped = package / "data" / name
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    return (Path(str(package)).parent / name).read_text(encoding="utf-8")
