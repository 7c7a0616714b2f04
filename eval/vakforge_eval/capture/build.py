"""From a capture to the timeline that every metric reads."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from vakforge_eval.capture.agent_audio import MAX_RATE_HZ, decode_audio
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.fields import Fields, event_of
from vakforge_eval.capture.format import EVENTS, HEADER
from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.user_audio import SentAudio
from vakforge_eval.capture.utterances import UserStream
from vakforge_eval.signal.gate import MIN_RATE_HZ
from vakforge_eval.timeline.call import (
    CallTimeline,
    Capabilities,
    Flush,
    SentResult,
    Skipped,
    Utterance,
)
from vakforge_eval.timeline.events import EVENT_TYPES, AudioChunk, Event, Ready
from vakforge_eval.timeline.instant import Instant, samples_to_ns
from vakforge_eval.timeline.records import Direction, Kind
from vakforge_eval.timeline.script import Script, ScriptStep

__all__ = ["build_timeline"]

_MAX_FRAME_S = 1.0


def build_timeline(capture: Capture) -> CallTimeline:
    """Return the call that `capture` recorded.

    A capture without its last lines (torn, recovered) is as good as any: the call then ended with
    the last thing that was stamped.

    Raises
    ------
    CaptureError
        If a field is missing or of the wrong type, a message is damaged, or a bound is exceeded.
    """
    header = Fields(capture.header, HEADER)
    book = _Journal(capture.journal)
    frames = capture.frames
    is_user_audio = (frames["direction"] == Direction.USER) & (frames["kind"] == Kind.AUDIO)
    stream = frames[is_user_audio]
    rate_hz, frame_samples = _user_audio(capture)
    events = tuple(event for event, _ in book.events)
    user = UserStream(stream, rate_hz, frame_samples)
    sent = SentAudio(capture, stream, frame_samples)
    return CallTimeline(
        call_id=header.text("call_id"),
        system=header.text("system"),
        script=capture.script,
        capabilities=_capabilities(capture.header.get("capabilities")),
        header=capture.header,
        ready=next((event.at for event in events if isinstance(event, Ready)), None),
        ended=book.ended() or _last_stamp(frames, events, capture.header),
        phases=book.phases(),
        stream=stream,
        frame_ns=samples_to_ns(frame_samples, rate_hz),
        utterances=book.utterances(capture.script, user),
        audio=decode_audio(
            capture, [(e, seq) for e, seq in book.events if isinstance(e, AudioChunk)]
        ),
        events=events,
        flushes=book.flushes(),
        tool_results=book.tool_results(),
        commits=book.commits(),
        skipped=book.skipped(capture.script),
        failure=book.failure(),
        probe={
            **book.self_facts(),
            "recovered": capture.is_recovered,
            "truncated": capture.is_truncated,
        },
        journal=capture.journal,
        sent_pcm=sent.samples,
        sent_gaps=sent.gaps,
    )


class _Journal:
    """The journal, sorted by what its lines tell."""

    def __init__(self, journal: tuple[dict[str, Any], ...]) -> None:
        self.events: list[tuple[Event, int | None]] = []
        self._lines: dict[str, list[tuple[dict[str, Any], Fields]]] = defaultdict(list)
        self._flushed_by: list[int | None] = []
        for number, obj in enumerate(journal, 1):
            where = f"{EVENTS}: line {number}"
            if obj["type"] in EVENT_TYPES:
                self.events.append(event_of(obj, where))
            else:
                self._lines[obj["type"]].append((obj, Fields(obj, where)))
            if obj["type"] == "flush":
                # It is written right behind the event that caused it.
                self._flushed_by.append(self.events[-1][1] if self.events else None)

    def ended(self) -> Instant | None:
        return next((Instant.exact(f.integer("at")) for _, f in self._lines["call_ended"]), None)

    def phases(self) -> dict[str, tuple[int, int]]:
        return {f.text("name"): f.span("start", "end") for _, f in self._lines["phase"]}

    def skipped(self, script: Script) -> tuple[Skipped, ...]:
        return tuple(
            Skipped(_step_of(script, fields.integer("step")), fields.text("reason"))
            for _, fields in self._lines["step_skipped"]
        )

    def utterances(self, script: Script, user: UserStream) -> tuple[Utterance, ...]:
        waiting = dict(enumerate(script.steps))
        found: list[Utterance | None] = []
        for _, fields in self._lines["step"]:
            number, start = fields.integer("step"), fields.optional_integer("start_sample")
            # Only the reactions look at it; one that is no time is refused here all the same.
            fields.optional_integer("live")
            if number not in waiting:
                raise CaptureError(f"{EVENTS}: step {number} is not in the scenario, or came twice")
            step = waiting.pop(number)
            if start is not None:
                found.append(user.utterance(step, start, fields.integer("due")))
        return tuple(utterance for utterance in found if utterance is not None)

    def flushes(self) -> tuple[Flush, ...]:
        return tuple(
            Flush(Instant.arrival(*f.span("lo", "hi")), f.optional_text("response_id"), seq)
            for (_, f), seq in zip(self._lines["flush"], self._flushed_by, strict=True)
        )

    def tool_results(self) -> tuple[SentResult, ...]:
        return tuple(
            SentResult(
                call_id=f.text("call_id"),
                name=f.text("name"),
                at=Instant.sending(*f.span("before", "after")),
                delay_s=f.number("delay_s"),
            )
            for _, f in self._lines["sent"]
            if f.text("what") == "tool_result"
        )

    def commits(self) -> tuple[Instant, ...]:
        return tuple(
            Instant.sending(*f.span("before", "after"))
            for _, f in self._lines["sent"]
            if f.text("what") == "commit"
        )

    def failure(self) -> dict[str, Any] | None:
        names = ("kind", "phase", "message")
        return next(
            ({name: f.text(name) for name in names} for _, f in self._lines["failure"]), None
        )

    def self_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for obj, _ in self._lines["self"]:
            facts |= {name: value for name, value in obj.items() if name != "type"}
        return facts


def _step_of(script: Script, number: int) -> ScriptStep:
    if not 0 <= number < len(script.steps):
        raise CaptureError(f"{EVENTS}: step {number} is not in the scenario")
    return script.steps[number]


def _user_audio(capture: Capture) -> tuple[int, int]:
    """Return rate and frame length of the user's stream, which the script shares."""
    audio = Fields(capture.header.get("user_audio"), f"{HEADER}: user_audio")
    rate_hz, frame_samples = audio.integer("rate_hz"), audio.integer("frame_samples")
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise CaptureError(f"{HEADER}: user_audio: no usable rate: {rate_hz} Hz")
    if not 0 < frame_samples <= _MAX_FRAME_S * rate_hz:
        raise CaptureError(f"{HEADER}: user_audio: no usable frame: {frame_samples} samples")
    script = capture.script
    if (script.rate_hz, script.frame_samples) != (rate_hz, frame_samples):
        raise CaptureError("scenario and user_audio differ in rate or frame length")
    return rate_hz, frame_samples


def _capabilities(obj: Any) -> Capabilities:
    if isinstance(obj, dict) and all(isinstance(value, bool) for value in obj.values()):
        try:
            return Capabilities.from_json(obj)
        except TypeError:
            pass
    raise CaptureError(f"{HEADER}: capabilities are not known truth values")


def _last_stamp(
    frames: npt.NDArray[np.void], events: tuple[Event, ...], header: dict[str, Any]
) -> Instant:
    clock = Fields(header.get("clock"), f"{HEADER}: clock")
    begun = clock.integer("monotonic_ns")
    stamped = int(np.max(frames["after"], initial=begun)), int(np.max(frames["hi"], initial=begun))
    return Instant.exact(max(*stamped, *(event.at.hi for event in events), begun))
