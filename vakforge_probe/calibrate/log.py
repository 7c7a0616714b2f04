"""The reference agent's truth log, as far as what is measured is compared with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from vakforge_eval.capture import strict_json
from vakforge_probe.agent.overlaps import Outcome, Voice
from vakforge_probe.errors import ConfigError

__all__ = ["EventLine", "OverlapLine", "Truth", "TruthValue", "TurnLine", "read_truth"]


_L = TypeVar("_L")

SLACK_PER_S = 1000
"""1 ms: less than lies between any two utterances."""


class TruthValue(BaseModel, frozen=True):
    """A time by the agent's account, with the error of that account (s)."""

    value: float
    lo: float
    hi: float


class _Line(BaseModel, frozen=True):
    connection: str


class _Stated(_Line, frozen=True):
    """A line that states times; `microphone` holds them, null where they do not exist."""

    microphone: dict[str, TruthValue | None]
    marks_late_ns: dict[str, int]

    def late_ns(self) -> int:
        """Return how late the agent was with what the line stands on, or how wide its error is."""
        stated = (time for time in self.times() if time is not None)
        widths = (round((time.hi - time.lo) * 1e9) for time in stated)
        return max([*self.marks_late_ns.values(), *widths], default=0)

    def times(self) -> Iterable[TruthValue | None]:
        """Return all times of the line."""
        return self.microphone.values()


class TurnLine(_Stated, frozen=True):
    """What the agent says of a turn that it took."""

    user_end_sample: int
    rule: str


class EventLine(_Stated, frozen=True):
    """What the agent says of an utterance: what it did to the agent's speech.

    `response` is what was heard when it began; `outcome` is None where the agent cannot tell.
    """

    start_sample: int
    response: str | None
    outcome: Outcome | None
    rule: str | None
    gap_s: TruthValue | None

    def times(self) -> Iterable[TruthValue | None]:
        """Return all times of the line."""
        return (*self.microphone.values(), self.gap_s)


class OverlapLine(_Line, frozen=True):
    """How long both or anybody talked, and how badly the agent knows it (s).

    `begin` and `end` are the bounds of the moments (ns) between which the caller's stream ran.
    """

    overlap_s: float
    agent_overlap_s: float
    speech_s: float
    total_s: float
    error_s: float
    begin: tuple[int, int]
    end: tuple[int, int]


class _HeardLine(_Line, frozen=True):
    response: str
    spans: tuple[tuple[int, int], ...]
    is_whole: bool
    is_open: bool


class _StartedLine(_Line, frozen=True):
    rate_hz: int | None = None


class _ConnectedLine(_Line, frozen=True):
    behaviour: dict[str, object] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Truth:
    """The agent's account of all calls, by label of the call.

    Attributes
    ----------
    turns
        By label and stream position at which the user's words ended.
    events
        All utterances, by label and stream position at which they began.
    heard
        When each response was heard.
    overlaps
        How long both talked.
    heard_hz
        Rate at which the agent counts what it hears, by label; that of the stream where it is none.
    """

    turns: dict[tuple[str, int], TurnLine] = field(default_factory=dict)
    events: dict[tuple[str, int], EventLine] = field(default_factory=dict)
    heard: dict[str, list[Voice]] = field(default_factory=dict)
    overlaps: dict[str, OverlapLine] = field(default_factory=dict)
    heard_hz: dict[str, int] = field(default_factory=dict)

    def turn_at(self, label: str, sample: int, rate_hz: int) -> TurnLine | None:
        """Return the turn whose words ended at `sample` of the stream as it was made."""
        return self._at(self.turns, label, sample, rate_hz)

    def event_at(self, label: str, sample: int, rate_hz: int) -> EventLine | None:
        """Return the utterance that began at `sample` of the stream as it was made."""
        return self._at(self.events, label, sample, rate_hz)

    def _at(
        self, known: dict[tuple[str, int], _L], label: str, sample: int, rate_hz: int
    ) -> _L | None:
        heard_hz = self.heard_hz.get(label, rate_hz)
        place = sample * heard_hz // rate_hz
        # Exact, where the agent heard the very samples; a codec may shift what it makes of them.
        slack = 0 if heard_hz == rate_hz else heard_hz // SLACK_PER_S
        near = (n for n in range(place - slack, place + slack + 1) if (label, n) in known)
        best = min(near, key=lambda n: abs(n - place), default=None)
        return None if best is None else known[label, best]


class _Reader:
    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.truth = Truth()

    def take(self, obj: dict[str, object]) -> None:
        """Take one line in; those of calls without a label are left out."""
        if obj["type"] == "connected":
            connected = _ConnectedLine.model_validate(obj)
            self.labels[connected.connection] = str(connected.behaviour.get("label", ""))
            return
        read = _READERS.get(str(obj["type"]))
        if read is None:
            return
        line = read.model_validate(obj)
        label = self.labels[line.connection]
        if label:
            self._keep(label, line)

    def _keep(self, label: str, line: _Line) -> None:
        match line:
            case TurnLine():
                self.truth.turns[label, line.user_end_sample] = line
            case EventLine():
                self.truth.events[label, line.start_sample] = line
            case _StartedLine(rate_hz=int(rate_hz)):
                self.truth.heard_hz[label] = rate_hz
            case OverlapLine():
                self.truth.overlaps[label] = line
            case _HeardLine(response=name, spans=spans, is_whole=is_whole, is_open=is_open):
                voice = Voice(name, spans, is_whole, is_open)
                self.truth.heard.setdefault(label, []).append(voice)


_READERS: dict[str, type[_Line]] = {
    "turn": TurnLine,
    "event": EventLine,
    "heard": _HeardLine,
    "overlap": OverlapLine,
    "stream_started": _StartedLine,
}


def read_truth(path: Path) -> Truth:
    """Return what a truth log says of its labelled calls.

    Raises
    ------
    ConfigError
        If a line is not one of a truth log, or two connections carry one label.
    """
    reader = _Reader()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                reader.take(strict_json.loads(line))
            except (ValueError, KeyError, TypeError, ValidationError):
                raise ConfigError("not a truth log", file=str(path), line=number) from None
    named = [label for label in reader.labels.values() if label]
    if len(set(named)) < len(named):
        raise ConfigError("two connections carry one label", file=str(path))
    return reader.truth
