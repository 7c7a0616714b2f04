"""Words for people: strangers' text made safe to show, and the word that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from vakforge_eval.report.safe import clean_text as clean

__all__ = ["clean", "nearest"]


def nearest(word: object, known: Iterable[str], *, least: float = 0.6) -> str | None:
    """Return the one of `known` that is most like `word`.

    Parameters
    ----------
    least
        Likeness in [0, 1] below which a word is no help: None is returned then.
    """
    return next(iter(difflib.get_close_matches(str(word), list(known), 1, least)), None)
