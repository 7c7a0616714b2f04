"""The one error of this package; it stands alone so that naming it loads nothing else."""

from __future__ import annotations

__all__ = ["CaptureError"]


class CaptureError(Exception):
    """A capture cannot be read: torn, of another version, damaged, or beyond a bound."""
