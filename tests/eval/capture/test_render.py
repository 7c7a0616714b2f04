"""Stereo renderings of captures drawn by hand: 8 kHz, frames of 160 samples = 20 ms."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.render import render_stereo
from vakforge_eval.signal.playout import place
from vakforge_eval.timeline.records import Direction, Kind

from .conftest import MS, Book, header_of

BEGUN = 1000 * MS
Pcm = npt.NDArray[np.int16]


def audio_text(name: str, pcm: Pcm) -> bytes:
    return json.dumps({name: base64.b64encode(pcm.astype("<i2").tobytes()).decode()}).encode()


def speak(book: Book, k: int, pcm: Pcm, *, late: int = 0) -> None:
    sent = BEGUN + 20 * k * MS + late
    book.message(
        Direction.USER, audio_text("audio", pcm), before=sent, due=sent - late, kind=Kind.AUDIO
    )


def answer(book: Book, at: int, pcm: Pcm, rate_hz: int = 8000) -> None:
    seq = book.message(Direction.AGENT, audio_text("delta", pcm), before=at)
    book.event(
        "audio_chunk", lo=at, hi=at, seq=seq, response_id="r", item_id=None, codec="pcm_s16le",
        rate_hz=rate_hz, transfer="json_base64", locator="/delta",
    )  # fmt: skip


def rendered(book: Book, tmp_path: Path, begin: int, end: int) -> Pcm:
    capture = Capture.open(book.write(tmp_path / "call"))
    timeline = build_timeline(capture)
    placed = place(timeline.audio, timeline.flushes)
    pcm, rate_hz = render_stereo(capture, timeline, placed, begin, end)
    assert rate_hz == 8000
    return pcm


def ramp(n: int, start: int = 1) -> Pcm:
    return np.arange(start, start + n, dtype=np.int16)


def test_each_side_lies_where_it_was_spoken_and_heard(book: Book, tmp_path: Path) -> None:
    for k in range(4):
        speak(book, k, ramp(160, 1 + 160 * k))
    answer(book, BEGUN + 30 * MS, ramp(80, 5000))
    pcm = rendered(book, tmp_path, BEGUN - 20 * MS, BEGUN + 80 * MS)
    assert pcm.shape == (800, 2)
    # Frame 0 left at 1000 ms, so it was spoken from 980 ms on, the begin of the stretch.
    assert np.array_equal(pcm[:640, 0], ramp(640))
    assert not pcm[640:, 0].any()
    assert np.array_equal(pcm[400:480, 1], ramp(80, 5000))
    assert not pcm[:400, 1].any()


def test_the_jitter_of_sends_tears_nothing_and_a_moved_schedule_shows(
    book: Book, tmp_path: Path
) -> None:
    late = [0, 3, 0, 100, 100]
    for k, ms in enumerate(late):
        speak(book, k, ramp(160, 1 + 160 * k), late=ms * MS)
    pcm = rendered(book, tmp_path, BEGUN - 20 * MS, BEGUN + 200 * MS)
    assert np.array_equal(pcm[:480, 0], ramp(480))
    assert not pcm[480 : 480 + 800, 0].any()
    assert np.array_equal(pcm[480 + 800 : 480 + 800 + 320, 0], ramp(320, 481))


def test_agent_audio_at_another_rate_keeps_its_time(book: Book, tmp_path: Path) -> None:
    speak(book, 0, ramp(160))
    tone = (8000 * np.sin(np.arange(2400) * 2 * np.pi * 500 / 24000)).astype(np.int16)
    for part in range(5):
        answer(book, BEGUN + 20 * part * MS, tone[480 * part : 480 * (part + 1)], 24000)
    heard = rendered(book, tmp_path, BEGUN, BEGUN + 100 * MS)[:, 1]
    expected = 8000 * np.sin(np.arange(800) * 2 * np.pi * 500 / 8000)
    # The middle, away from the filter's own edges: no click where messages meet.
    assert np.abs(heard[50:750] - expected[50:750]).max() < 80


def test_a_frame_without_audio_where_the_header_says_is_refused(book: Book, tmp_path: Path) -> None:
    book.frame(BEGUN)
    with pytest.raises(CaptureError, match="not where the header says"):
        rendered(book, tmp_path, BEGUN - 20 * MS, BEGUN + 20 * MS)


@pytest.mark.parametrize("field", ["codec", "transfer", "locator"])
@pytest.mark.parametrize("value", [None, 5, "no such"])
def test_a_header_that_does_not_tell_the_form_of_the_users_audio_is_refused(
    tmp_path: Path, field: str, value: object
) -> None:
    header = header_of()
    header["user_audio"][field] = value
    book = Book(header=header)
    speak(book, 0, ramp(160))
    with pytest.raises(CaptureError, match=r"user_audio|header says"):
        rendered(book, tmp_path, BEGUN - 20 * MS, BEGUN + 20 * MS)
