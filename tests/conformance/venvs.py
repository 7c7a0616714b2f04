"""Venvs of other people's programs, made once and kept in a folder."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["python_of", "version_of"]


def python_of(folder: Path, installs: Iterable[Sequence[str]]) -> Path:
    """Return the Python of the venv in `folder`, which is made if it is not whole.

    Parameters
    ----------
    installs
        Arguments of each ``pip install``, in order.
    """
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        print(f"installing in {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        for arguments in installs:
            subprocess.run([python, "-m", "pip", "install", "-q", *arguments], check=True)
        whole.touch()
    return python


def version_of(python: Path, package: str) -> str:
    """Return the version of `package` that `python` has."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return found.stdout.strip()
