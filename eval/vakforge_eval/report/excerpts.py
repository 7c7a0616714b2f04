"""What a report's samples show and play: two lanes of speech, and the stretch of audio itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.render import render_stereo
from vakforge_eval.metrics.turns import Turn
from vakforge_eval.metrics.view import CallView
from vakforge_eval.timeline.instant import NS_PER_MS, ns_to_s

__all__ = ["Excerpts"]

_LEAD_NS = 500 * NS_PER_MS
_TAIL_NS = 700 * NS_PER_MS


class Excerpts:
    """Cuts the samples' stretches out of calls.

    Parameters
    ----------
    calls
        View and capture of each call, by system and call id.
    out
        Where the audio goes (``audio/*.flac`` in it); None: no audio.
    """

    def __init__(
        self,
        calls: Mapping[tuple[str, str], tuple[CallView, Capture]],
        out: Path | None,
    ) -> None:
        self._calls, self._out = calls, out

    def of(self, system: str, call: str, turn: int) -> dict[str, Any]:
        """Return ``{"timeline", "audio"}`` of a turn, for the report's sample."""
        view, capture = self._calls[system, call]
        shown = next(t for t in view.turns.turns if t.index == turn)
        begin_ns, end_ns = _stretch(shown)
        return {
            "timeline": _lanes(view, shown, begin_ns, end_ns),
            "audio": self._write(capture, view, f"{system}-{call}-{turn}", begin_ns, end_ns),
        }

    def _write(
        self, capture: Capture, view: CallView, name: str, begin_ns: int, end_ns: int
    ) -> str | None:
        if self._out is None:
            return None
        import soundfile

        link = f"audio/{re.sub(r'[^A-Za-z0-9_-]+', '_', name)[:120]}.flac"
        path = self._out / link
        path.parent.mkdir(parents=True, exist_ok=True)
        pcm, rate_hz = render_stereo(capture, view.timeline, view.hearing.placed, begin_ns, end_ns)
        soundfile.write(path, pcm, rate_hz, format="FLAC", subtype="PCM_16")
        return link


def _stretch(turn: Turn) -> tuple[int, int]:
    last = max((s.segment.end.when.at for s in turn.segments), default=turn.end.at)
    return turn.start.at - _LEAD_NS, max(last, turn.end.at) + _TAIL_NS


def _lanes(view: CallView, turn: Turn, begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Return who speaks when and the turn's first and last moments, in s from the begin."""

    def spans(found: list[tuple[int, int]]) -> list[list[float]]:
        return [
            [_s(max(a, begin_ns) - begin_ns), _s(min(b, end_ns) - begin_ns)]
            for a, b in sorted(found)
            if a < end_ns and b > begin_ns
        ]

    voiced = [(a.at, b.at) for u in view.timeline.utterances for a, b in u.voiced]
    heard = [(s.start.when.at, s.end.when.at) for s in view.hearing.segments]
    reply = turn.first_reply
    marks = [{"name": "user_end", "at": _s(turn.end.at - begin_ns)}]
    if reply is not None:
        marks.append({"name": "first audible", "at": _s(reply.segment.start.when.at - begin_ns)})
    reaction = next(v.reaction for v in view.turn_views if v.turn is turn)
    if reaction is not None and reaction.silence is not None:
        marks.append({"name": "agent silent", "at": _s(reaction.silence.when.at - begin_ns)})
    return {
        "duration": _s(end_ns - begin_ns),
        "user": spans(voiced),
        "agent": spans(heard),
        "marks": marks,
    }


def _s(ns: int) -> float:
    return round(ns_to_s(ns), 6)
