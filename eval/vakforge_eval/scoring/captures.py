"""Scores straight from capture folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.metrics.view import CallView
from vakforge_eval.scoring.score import score_calls
from vakforge_eval.scoring.scores import ScoreSet

__all__ = ["score_captures"]


def score_captures(folders: Iterable[Path], system: str | None = None) -> ScoreSet:
    """Return the scores of one system's captures; see `score_calls`.

    Raises
    ------
    Exception
        What `Capture.open` and `build_timeline` raise for a folder that cannot be read.
    """
    calls = (CallView(build_timeline(Capture.open(folder))) for folder in folders)
    return score_calls(calls, system)
