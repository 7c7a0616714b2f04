"""Timelines from captures drawn by hand: 8 kHz, frames of 160 samples = 20 ms."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.format import CaptureBounds
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.call import CallTimeline, Flush
from vakforge_eval.timeline.events import Interrupt, Ready, TextDelta
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.records import Flags

from .conftest import MS, Book, header_of, script_of

BEGUN = 1000 * MS


def built(book: Book, tmp_path: Path, bounds: CaptureBounds | None = None) -> CallTimeline:
    return build_timeline(Capture.open(book.write(tmp_path / "call"), bounds))


def stream(book: Book, n: int, **at: dict[str, Any]) -> None:
    """`n` frames, each sent when due; `at` changes single ones, as in ``f3={"late": 5}``."""
    for k in range(n):
        book.frame(BEGUN + 20 * k * MS, **at.get(f"f{k}", {}))


def fire(book: Book, step: int, start_sample: int | None, due: int = 0) -> None:
    book.event(
        "step", step=step, anchor="", live=None, confirmed=None, due=due,
        start_sample=start_sample, sent=None,
    )  # fmt: skip


SAY = {"kind": "say", "n_samples": 800, "voiced": [(40, 360), (480, 761)], "pauses": [(360, 480)]}


def test_user_start_and_end_follow_the_microphone_model(tmp_path: Path) -> None:
    book = Book(script=script_of(SAY))
    stream(book, 20, f2={"late": 2 * MS, "took": 1 * MS}, f7={"late": 3 * MS})
    fire(book, 0, 320)
    (said,) = built(book, tmp_path).utterances
    # First voiced sample: 320 + 40 = 360 = frame 2, offset 40: spoken 120 samples = 15 ms before
    # that frame was sent, between 1042 and 1043 ms.
    assert said.start == Instant(1027 * MS, 1028 * MS, 1027_500_000)
    # One past the last: 320 + 761 = 1081; sample 1080 is in frame 6 at offset 120, so its end is
    # 39 samples = 4.875 ms before frame 6 was sent, at 1120 ms.
    assert said.end == Instant.exact(1115_125_000)
    assert [(a.at, b.at) for a, b in said.pauses] == [(1055 * MS + 10 * MS, 1080 * MS)]
    assert said.voiced[0] == (said.start, Instant.exact(1065 * MS))
    assert said.voiced[1][1] == said.end
    assert said.step.kind == "say"


def test_span_that_ends_with_a_frame_ends_when_that_frame_is_sent(tmp_path: Path) -> None:
    book = Book(script=script_of({"kind": "say", "n_samples": 160, "voiced": [(0, 160)]}))
    stream(book, 3)
    fire(book, 0, 160)
    (said,) = built(book, tmp_path).utterances
    assert (said.start.at, said.end.at) == (1000 * MS, 1020 * MS)


def test_lateness_and_faults_count_only_in_frames_that_carry_speech(tmp_path: Path) -> None:
    book = Book(script=script_of(SAY))
    noisy = {"late": 50 * MS, "flags": Flags.BACK_PRESSURE | Flags.REANCHORED}
    stream(book, 20, f1=noisy, f4={"late": 7 * MS}, f5={"late": 3 * MS}, f7=noisy)
    fire(book, 0, 320)
    (said,) = built(book, tmp_path).utterances
    assert said.late_ns == 7 * MS
    assert not said.is_reanchored
    assert not said.has_back_pressure


@pytest.mark.parametrize("frame", [2, 4, 6])
@pytest.mark.parametrize("flag", [Flags.BACK_PRESSURE, Flags.REANCHORED])
def test_fault_in_a_frame_that_carries_speech_marks_the_utterance(
    tmp_path: Path, frame: int, flag: Flags
) -> None:
    book = Book(script=script_of(SAY))
    stream(book, 20, **{f"f{frame}": {"flags": flag}})
    fire(book, 0, 320)
    (said,) = built(book, tmp_path).utterances
    assert said.has_back_pressure == (flag is Flags.BACK_PRESSURE)
    assert said.is_reanchored == (flag is Flags.REANCHORED)


def test_only_audio_frames_are_the_stream(tmp_path: Path) -> None:
    book = Book(script=script_of(SAY))
    book.message(0, b"hello", before=1)
    stream(book, 2)
    book.message(0, b"tool result", before=2)
    book.message(1, b"agent", before=3)
    book.frame(BEGUN + 40 * MS)
    timeline = built(book, tmp_path)
    assert timeline.stream["seq"].tolist() == [1, 2, 4]
    assert timeline.frame_ns == 20 * MS


def test_step_without_voiced_spans_is_voiced_whole_and_a_silent_one_is_no_utterance(
    tmp_path: Path,
) -> None:
    book = Book(script=script_of({"kind": "noise", "n_samples": 160}, {"kind": "pause"}))
    stream(book, 5)
    fire(book, 0, 160)
    fire(book, 1, None)
    (noise,) = built(book, tmp_path).utterances
    assert (noise.start.at, noise.end.at) == (1000 * MS, 1020 * MS)


def test_sham_is_at_its_planned_moment(tmp_path: Path) -> None:
    book = Book(script=script_of({"kind": "sham"}))
    stream(book, 2)
    fire(book, 0, 5000, due=1234 * MS)
    (sham,) = built(book, tmp_path).utterances
    assert (sham.start, sham.end, sham.voiced) == (
        Instant.exact(1234 * MS),
        Instant.exact(1234 * MS),
        (),
    )


def test_call_that_ends_inside_an_utterance_keeps_what_was_spoken(tmp_path: Path) -> None:
    book = Book(script=script_of(SAY, {**SAY, "kind": "barge_in"}))
    stream(book, 4)
    fire(book, 0, 320)
    fire(book, 1, 640)
    (said,) = built(book, tmp_path).utterances
    # The stream ends with sample 640, inside the first voiced span.
    assert (said.start.at, said.end.at) == (1025 * MS, 1060 * MS)


def chunk(book: Book, payload: bytes, at: int, **event: Any) -> None:
    fields = {
        "response_id": "r",
        "item_id": "i",
        "codec": "pcm_s16le",
        "rate_hz": 8000,
        "transfer": "json_base64",
        "locator": "/delta",
    }
    flags = Flags.BINARY if event.get("transfer") == "binary" else Flags.NONE
    seq = book.message(1, payload, before=at, lo=at - 1, flags=int(flags))
    book.event("audio_chunk", lo=at - 1, hi=at, **{"seq": seq, **fields, **event})


def delta(data: bytes) -> bytes:
    return json.dumps({"delta": base64.b64encode(data).decode()}).encode()


def samples(timeline: CallTimeline) -> list[list[int]]:
    return [audio.pcm.tolist() for audio in timeline.audio]


def test_audio_is_decoded_from_the_recorded_messages(tmp_path: Path) -> None:
    book = Book()
    pcm = np.arange(-3, 3, dtype="<i2").tobytes()
    chunk(book, delta(pcm), 10)
    chunk(book, b"head" + pcm, 20, transfer="binary", locator="4", response_id=None)
    chunk(book, json.dumps({"a/b": [0, {"~": base64.b64encode(b"\xff\xd5").decode()}]}).encode(),
          30, locator="/a~1b/1/~0", codec="pcmu", rate_hz=16000)  # fmt: skip
    timeline = built(book, tmp_path)
    assert samples(timeline) == [[-3, -2, -1, 0, 1, 2], [-3, -2, -1, 0, 1, 2], [0, 716]]
    assert [a.arrival for a in timeline.audio] == [Instant.arrival(t - 1, t) for t in (10, 20, 30)]
    assert [a.rate_hz for a in timeline.audio] == [8000, 8000, 16000]
    assert [a.response_id for a in timeline.audio] == ["r", None, "r"]
    assert [a.seq for a in timeline.audio] == [0, 1, 2]
    assert not any(a.is_corrupt for a in timeline.audio)


def test_several_chunks_in_one_message_are_all_found(tmp_path: Path) -> None:
    book = Book()
    parts = [base64.b64encode(bytes([i, 0])).decode() for i in range(3)]
    seq = book.message(1, json.dumps({"parts": parts}).encode())
    for i in range(3):
        book.event(
            "audio_chunk", lo=0, hi=0, seq=seq, response_id="r", item_id=None, codec="pcm_s16le",
            rate_hz=8000, transfer="json_base64", locator=f"/parts/{i}",
        )  # fmt: skip
    assert samples(built(book, tmp_path)) == [[0], [1], [2]]


def test_odd_bytes_are_carried_over_within_a_response_only(tmp_path: Path) -> None:
    book = Book()
    chunk(book, delta(b"\x01\x00\x02"), 10)
    chunk(book, delta(b"\x07\x00"), 20, response_id="other")
    chunk(book, delta(b"\x00\x03\x00"), 30)
    timeline = built(book, tmp_path)
    assert samples(timeline) == [[1], [7], [2, 3]]
    assert not any(a.is_corrupt for a in timeline.audio)


def test_response_that_ends_inside_a_sample_marks_its_last_chunk(tmp_path: Path) -> None:
    book = Book()
    chunk(book, delta(b"\x01\x00"), 10)
    chunk(book, delta(b"\x02\x00\x03"), 20)
    assert [a.is_corrupt for a in built(book, tmp_path).audio] == [False, True]


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        (b'{"delta":"AA A="}', {}),
        (b'{"delta":"AAA"}', {}),
        (b'{"delta":17}', {}),
        (b'{"delta":["AAAA"]}', {}),
        (b'{"other":"AAAA"}', {}),
        (b'{"delta":NaN}', {}),
        (b"not json", {}),
        (b"\xff\xfe", {}),
        (delta(b"\1\0"), {"locator": "/delta/0"}),
        (delta(b"\1\0"), {"codec": "opus"}),
        (delta(b"\1\0"), {"rate_hz": 0}),
        (delta(b"\1\0"), {"rate_hz": -8000}),
        (delta(b"\1\0"), {"rate_hz": 10**9}),
        (delta(b"\1\0"), {"transfer": "carrier pigeon"}),
        (delta(b"\1\0"), {"seq": 99}),
        (delta(b"\1\0"), {"seq": -1}),
        (delta(b"\1\0"), {"seq": None}),
        (b"\1\0", {"transfer": "binary", "locator": "x"}),
        (b"\1\0", {"transfer": "binary", "locator": "-2"}),
    ],
)
def test_audio_that_cannot_be_decoded_is_marked_and_the_rest_stands(
    tmp_path: Path, payload: bytes, event: dict[str, Any]
) -> None:
    book = Book()
    chunk(book, delta(b"\1\0"), 10)
    chunk(book, payload, 20, **event)
    chunk(book, delta(b"\2\0"), 30)
    timeline = built(book, tmp_path)
    assert samples(timeline) == [[1], [], [2]]
    assert [a.is_corrupt for a in timeline.audio] == [False, True, False]
    assert [a.duration_ns for a in timeline.audio] == [125_000, 0, 125_000]


def test_floats_that_are_no_numbers_mark_their_chunk(tmp_path: Path) -> None:
    book = Book()
    for value in (0.5, float("nan"), 0.25):
        chunk(book, delta(np.array([value], "<f4").tobytes()), 10, codec="float32le")
    timeline = built(book, tmp_path)
    assert samples(timeline) == [[16384], [0], [8192]]
    assert [a.is_corrupt for a in timeline.audio] == [False, True, False]


def test_more_audio_than_the_bound_is_refused(tmp_path: Path) -> None:
    book = Book()
    chunk(book, delta(bytes(2 * 8000)), 10)
    chunk(book, delta(bytes(4)), 20)
    with pytest.raises(CaptureError, match="more than 1 s of agent audio"):
        built(book, tmp_path, CaptureBounds(audio_s=1.0))


def test_journal_that_points_at_the_same_audio_over_and_over_is_refused(tmp_path: Path) -> None:
    book = Book()
    chunk(book, delta(bytes(2000)), 10)
    for _ in range(10):
        book.event(
            "audio_chunk", lo=0, hi=0, seq=0, response_id="r", item_id=None, codec="pcm_s16le",
            rate_hz=8000, transfer="json_base64", locator="/delta",
        )  # fmt: skip
    with pytest.raises(CaptureError, match="more audio than there is"):
        built(book, tmp_path)


def test_damaged_message_is_an_error_not_a_number(tmp_path: Path) -> None:
    book = Book()
    chunk(book, delta(b"\1\0"), 10)
    book.wires[1] = book.wires[1].replace(b"delta", b"DELTA")
    with pytest.raises(CaptureError, match="CRC"):
        built(book, tmp_path)


def test_journal_lines_become_the_timeline(tmp_path: Path) -> None:
    book = Book()
    book.event("phase", name="connect", start=1, end=5)
    book.event("ready", lo=7, hi=9, seq=None, session={"a": 1})
    book.event("text_delta", lo=10, hi=11, seq=0, response_id="r", item_id=None, text="hi")
    book.event("interrupt", lo=12, hi=12, seq=0, response_id="r")
    book.event("flush", lo=12, hi=13, response_id="r", item_id="i", played_ms=20)
    book.event("flush", lo=14, hi=14, response_id=None, item_id=None, played_ms=None)
    book.event("sent", what="cancel", seq=3, before=1, after=2)
    book.event(
        "sent", what="tool_result", seq=4, before=20, after=22, call_id="c", name="book",
        delay_s=1,
    )  # fmt: skip
    book.event("sent", what="commit", seq=5, before=30, after=32)
    book.event("failure", kind="timeout", phase="call", message="m")
    book.event("self", cpu_s=0.5, wall_s=2.0)
    book.event("call_ended", at=99, reason="failure")
    timeline = built(book, tmp_path)
    assert timeline.phases == {"connect": (1, 5)}
    assert timeline.ready == Instant.arrival(7, 9)
    assert [type(e) for e in timeline.events] == [Ready, TextDelta, Interrupt]
    assert timeline.flushes == (
        Flush(Instant.arrival(12, 13), "r", 0),
        Flush(Instant.exact(14), None, 0),
    )
    (result,) = timeline.tool_results
    assert (result.call_id, result.name, result.at, result.delay_s) == (
        "c", "book", Instant(20, 22, 21), 1.0,
    )  # fmt: skip
    assert timeline.commits == (Instant(30, 32, 31),)
    assert timeline.failure == {"kind": "timeout", "phase": "call", "message": "m"}
    assert timeline.ended == Instant.exact(99)
    assert timeline.probe == {
        "cpu_s": 0.5,
        "wall_s": 2.0,
        "recovered": False,
        "truncated": False,
    }
    assert len(timeline.journal) == 12


def test_torn_call_ends_with_the_last_stamp(tmp_path: Path) -> None:
    book = Book(header=header_of(clock={"monotonic_ns": 5}))
    (tmp_path / "a").mkdir()
    assert built(book, tmp_path / "a").ended == Instant.exact(5)
    book.message(1, b"x", before=70, after=80, lo=60, hi=75)
    (tmp_path / "b").mkdir()
    assert built(book, tmp_path / "b").ended == Instant.exact(80)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ({"type": "text_delta", "lo": 1, "hi": 2, "seq": 0, "text": 5}, "text is of the wrong"),
        ({"type": "text_delta", "lo": 1, "hi": 2, "seq": 0, "colour": 5}, "does not have"),
        ({"type": "text_delta", "lo": 2, "hi": 1, "seq": 0}, "hi must be not before lo"),
        ({"type": "text_delta", "lo": 1.0, "hi": 2, "seq": 0}, "lo must be an integer"),
        ({"type": "text_delta", "hi": 2, "seq": 0}, "lo must be an integer"),
        ({"type": "text_delta", "lo": 1, "hi": 2, "seq": True}, "seq must be an integer"),
        ({"type": "text_delta", "lo": 1, "hi": 1 << 63, "seq": 0}, "hi must be an integer"),
        ({"type": "truncated", "lo": 1, "hi": 2, "seq": 0, "audio_end_ms": "9"}, "audio_end_ms"),
        ({"type": "fault", "lo": 1, "hi": 2, "seq": 0, "is_fatal": 1}, "is_fatal"),
        ({"type": "closed", "lo": 1, "hi": 2, "seq": 0, "code": True}, "code"),
        ({"type": "ready", "lo": 1, "hi": 2, "seq": 0, "session": []}, "session"),
        ({"type": "step", "step": 7, "start_sample": 0, "due": 0}, "not in the scenario"),
        ({"type": "step", "step": -1, "start_sample": 0, "due": 0}, "not in the scenario"),
        ({"type": "step_skipped", "step": 7, "reason": "x"}, "not in the scenario"),
        ({"type": "step_skipped", "step": -1, "reason": "x"}, "not in the scenario"),
        ({"type": "step", "step": "0", "start_sample": 0, "due": 0}, "step must be"),
        *(
            ({"type": "step", "step": 0, "start_sample": 0, "due": 0, "live": live}, "live must be")
            for live in (1.0, "1", True, 1 << 63, list[int]())
        ),
        ({"type": "phase", "name": "tls", "start": 2, "end": 1}, "end must be not before start"),
        ({"type": "flush", "lo": 1, "hi": 2, "response_id": 5}, "response_id must be a text"),
        ({"type": "call_ended", "at": None}, "at must be"),
        ({"type": "sent", "what": "tool_result", "before": 1, "after": 2}, "call_id"),
        ({"type": "sent", "what": "commit", "before": "1", "after": 2}, "before must be"),
        ({"type": "failure", "kind": "x"}, "phase"),
    ],
)
def test_wrong_journal_field_is_named_with_its_line(
    tmp_path: Path, line: dict[str, Any], match: str
) -> None:
    book = Book()
    book.event("note")
    book.event(**{"type_": line.pop("type"), **line})
    with pytest.raises(CaptureError, match=match):
        built(book, tmp_path)


def test_step_cannot_be_fired_twice(tmp_path: Path) -> None:
    book = Book(script=script_of(SAY))
    stream(book, 10)
    fire(book, 0, 0)
    fire(book, 0, 0)
    with pytest.raises(CaptureError, match="came twice"):
        built(book, tmp_path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"call_id": 5}, "call_id"),
        ({"system": None}, "system"),
        ({"capabilities": {"telepathy": True}}, "capabilities"),
        ({"capabilities": {"tools": 1}}, "capabilities"),
        ({"capabilities": []}, "capabilities"),
        ({"user_audio": None}, "user_audio"),
        ({"user_audio": {"rate_hz": 0, "frame_samples": 160}}, "rate"),
        ({"user_audio": {"rate_hz": 8000, "frame_samples": 0}}, "frame"),
        ({"user_audio": {"rate_hz": 8000, "frame_samples": 10**9}}, "frame"),
        ({"user_audio": {"rate_hz": 16000, "frame_samples": 320}}, "differ"),
        ({"clock": {}}, "monotonic_ns"),
    ],
)
def test_wrong_header_field_is_named(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    with pytest.raises(CaptureError, match=match):
        built(Book(header=header_of(**change)), tmp_path)
