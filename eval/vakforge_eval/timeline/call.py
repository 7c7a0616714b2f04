"""One call as the metrics see it: built from a capture, holds no opinion.

All samples of the user's stream are counted from the first frame; all times are ns of the probe's
monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.events import Event
from vakforge_eval.timeline.instant import NS_PER_MS, Instant, samples_to_ns
from vakforge_eval.timeline.script import Script, ScriptStep, StepKind

__all__ = [
    "AgentAudio",
    "CallTimeline",
    "Capabilities",
    "Flush",
    "SentResult",
    "Skipped",
    "Utterance",
]

Pcm = npt.NDArray[np.int16]
SentPcm = Callable[[int, int], Pcm]
SentGaps = Callable[[int, int], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the protocol lets one observe; a False here turns metrics Undefined with its reason."""

    server_vad_events: bool = False
    transcripts: bool = False
    text_before_audio: bool = False
    explicit_interrupt: bool = False
    response_ids: bool = False
    response_end: bool = False
    continuous_stream: bool = False
    barge_in: bool = True
    manual_commit: bool = False
    tools: bool = False
    dtmf: bool = False

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Capabilities:
        """Return the capabilities of a header; unknown names are refused."""
        return cls(**obj)


@dataclass(frozen=True, slots=True)
class Utterance:
    """A fired step that was (or, for a sham, could have been) heard by the agent.

    `start` and `end` are the first and last voiced sample in the microphone model. For a sham both
    are the planned moment. `late_ns` is the worst lateness of a frame that carries the utterance.
    """

    step: ScriptStep
    start: Instant
    end: Instant
    voiced: tuple[tuple[Instant, Instant], ...]
    pauses: tuple[tuple[Instant, Instant], ...]
    late_ns: int
    is_reanchored: bool
    has_back_pressure: bool

    @property
    def kind(self) -> StepKind:
        """The step's kind."""
        return self.step.kind


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step that was left out, since what it was to meet did not come: the `reason` says what."""

    step: ScriptStep
    reason: str


@dataclass(frozen=True, slots=True)
class AgentAudio:
    """One message of agent audio: mono int16 at its native rate, with its proven arrival.

    `is_corrupt` marks one that could not be decoded in whole: what could not is left out, or
    silent where its length is known.
    """

    arrival: Instant
    pcm: Pcm
    rate_hz: int
    response_id: str | None
    item_id: str | None
    seq: int
    is_corrupt: bool = False
    codec: str = "pcm_s16le"

    @property
    def duration_ns(self) -> int:
        """Duration of this message's audio (ns)."""
        return samples_to_ns(len(self.pcm), self.rate_hz)


@dataclass(frozen=True, slots=True)
class Flush:
    """When the heard queue was emptied, and for which response (None: all).

    `seq` is that of the message that said so, as in `AgentAudio.seq`: it tells what came before it
    where arrivals are not known well enough. None where no message did.
    """

    at: Instant
    response_id: str | None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class SentResult:
    """A tool result that the probe sent."""

    call_id: str
    name: str
    at: Instant
    delay_s: float


@dataclass(frozen=True, slots=True)
class CallTimeline:
    """All that was observed in one call.

    Attributes
    ----------
    phases
        Connection phases (webhook, resolve, connect, tls, handshake, ready) -> (start, end) in ns.
    stream
        Structured array of the user's audio frames (`records.RECORD_DTYPE`), in order.
    flushes
        What emptied the heard queue, in order.
    failure
        None, or the typed failure of the call: ``{"kind", "phase", "message"}``.
    skipped
        Steps that were left out, in order.
    commits
        When the probe itself told the server that the user was done.
    ended
        When watching ended; what had not come by then is censored there.
    sent_pcm
        ``(start, stop) -> int16``: samples of the user's stream as sent, at the script's rate;
        zeros outside of it and where it cannot be read. None where it is not known.
    sent_gaps
        ``(start, stop) -> [(lo, hi)]``: where in between samples were sent but cannot be read.
        None where all can be.
    """

    call_id: str
    system: str
    script: Script
    capabilities: Capabilities
    header: dict[str, Any]
    ready: Instant | None
    ended: Instant
    phases: dict[str, tuple[int, int]]
    stream: npt.NDArray[np.void]
    frame_ns: int
    utterances: tuple[Utterance, ...]
    audio: tuple[AgentAudio, ...]
    events: tuple[Event, ...]
    flushes: tuple[Flush, ...]
    tool_results: tuple[SentResult, ...]
    commits: tuple[Instant, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    failure: dict[str, Any] | None = None
    probe: dict[str, Any] = field(default_factory=dict)
    journal: tuple[dict[str, Any], ...] = ()
    sent_pcm: SentPcm | None = field(default=None, repr=False, compare=False)
    sent_gaps: SentGaps | None = field(default=None, repr=False, compare=False)

    def spoken(self, offset_ms: float) -> Instant | None:
        """Return when the sample at an offset into the user's stream had been spoken.

        It is the microphone model's moment of the end of the sample before it; None for an offset
        outside of what was sent.
        """
        # Compared in ms: a server may name a number that no float can be multiplied to.
        if not len(self.stream) or not 0 <= offset_ms <= self.frame_ns * len(self.stream) / 1e6:
            return None
        offset_ns = round(offset_ms * NS_PER_MS)
        # The sample before the offset is the last one spoken, so a whole frame ends in itself.
        frame = min(max(0, offset_ns - 1) // self.frame_ns, len(self.stream) - 1)
        record = self.stream[frame]
        sent = Instant.sending(int(record["before"]), int(record["after"]))
        return sent.shifted(offset_ns - (frame + 1) * self.frame_ns)
