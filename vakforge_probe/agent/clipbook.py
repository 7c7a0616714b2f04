"""The clips in each form in which they may come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from vakforge_probe.agent.clips import Clip
from vakforge_probe.agent.matching import EXACT, ClipIndex, Matcher
from vakforge_probe.agent.tape import Tape

__all__ = ["OPUS", "ClipBook", "Index"]

OPUS = frozenset({"opus", "ogg_opus"})
"""Single packets, and a stream of them in Ogg pages."""


class Index(Protocol):
    """Known clips in one form.

    Attributes
    ----------
    behind
        By how many samples what is heard in this form is behind what was sent; see `Tape`.
    """

    behind: int

    def matcher(self, tape: Tape) -> Matcher:
        """Return what finds the clips on `tape`."""
        ...


class ClipBook:
    """Indexes of the same clips in each form in which they may come; made when first asked for."""

    def __init__(self, clips: Iterable[Clip]) -> None:
        self._clips = list(clips)
        self._known: dict[tuple[str, int], Index] = {}

    def index(self, codec: str, rate_hz: int) -> Index:
        """Return the index of a form; an empty one where clips do not come as they were sent."""
        form = (codec, rate_hz)
        if form not in self._known:
            self._known[form] = self._made(codec, rate_hz)
        return self._known[form]

    def _made(self, codec: str, rate_hz: int) -> Index:
        if codec in OPUS:
            # Loads FFmpeg, which only those who need it should wait for.
            from vakforge_probe.agent.lossy import LossyIndex

            return LossyIndex(clip.coded(codec, rate_hz) for clip in self._clips)
        clips = self._clips if codec in EXACT else ()
        return ClipIndex((clip.coded(codec, rate_hz) for clip in clips), rate_hz)
