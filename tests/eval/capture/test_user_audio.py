"""The user's stream is read from the recorded messages, and what cannot be read is named."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.records import Direction, Kind

from .conftest import FRAME, MS, Book, header_of

SOUND = np.arange(1, 5 * FRAME + 1, dtype="<i2")


def message(k: int, n: int = FRAME) -> bytes:
    audio = base64.b64encode(SOUND[k * FRAME :][:n].tobytes()).decode()
    return json.dumps({"type": "append", "audio": audio}).encode()


def sent(book: Book, tmp_path: Path, changed: dict[int, bytes] | None = None) -> CallTimeline:
    """Return a call of five frames, of which some had another message."""
    for k in range(5):
        payload = (changed or {}).get(k, message(k))
        book.message(Direction.USER, payload, before=20 * k * MS, kind=Kind.AUDIO)
    return build_timeline(Capture.open(book.write(tmp_path / "call")))


def read(timeline: CallTimeline, start: int, stop: int) -> tuple[list[int], list[tuple[int, int]]]:
    assert timeline.sent_pcm is not None
    assert timeline.sent_gaps is not None
    return timeline.sent_pcm(start, stop).tolist(), timeline.sent_gaps(start, stop)


def test_samples_are_read_across_frames_and_nothing_is_beside_the_stream(
    book: Book, tmp_path: Path
) -> None:
    timeline = sent(book, tmp_path)
    assert read(timeline, 150, 350) == (SOUND[150:350].tolist(), [])
    assert read(timeline, -2, 2) == ([0, 0, 1, 2], [])
    assert read(timeline, 798, 802) == ([799, 800, 0, 0], [])
    assert read(timeline, 5, 5) == ([], [])


@pytest.mark.parametrize(
    "wrong",
    [{"codec": "opus"}, {"codec": None}, {"locator": "/sound"}, {"locator": "/type"},
     {"transfer": "smoke"}],
    ids=str,
)  # fmt: skip
def test_a_stream_in_a_form_that_is_not_known_is_one_gap(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    header = header_of()
    header["user_audio"] |= wrong
    pcm, gaps = read(sent(Book(header=header), tmp_path), 0, 5 * FRAME)
    assert not any(pcm)
    assert sum(hi - lo for lo, hi in gaps) == 5 * FRAME


@pytest.mark.parametrize(
    ("damaged", "first"),
    [(b"{}", 0), (b"{", 0), (b'{"audio": "A"}', 0), (message(2, 100), 100)],
    ids=["empty", "torn", "no base64", "short"],
)
def test_a_damaged_frame_is_a_gap_and_the_others_are_read(
    book: Book, tmp_path: Path, damaged: bytes, first: int
) -> None:
    pcm, gaps = read(sent(book, tmp_path, {2: damaged}), 0, 5 * FRAME)
    lo, hi = 2 * FRAME + first, 3 * FRAME
    assert gaps == [(lo, hi)]
    assert pcm == [0 if lo <= k < hi else int(x) for k, x in enumerate(SOUND)]


def test_a_message_that_changed_since_is_a_gap(book: Book, tmp_path: Path) -> None:
    for k in range(5):
        book.message(Direction.USER, message(k), before=20 * k * MS, kind=Kind.AUDIO)
    whole = message(1)
    book.wires[0] = book.wires[0].replace(whole, whole.replace(b"append", b"APPEND"))
    timeline = build_timeline(Capture.open(book.write(tmp_path / "call")))
    assert read(timeline, 0, 5 * FRAME)[1] == [(FRAME, 2 * FRAME)]
    assert read(timeline, FRAME + 10, FRAME + 20)[1] == [(FRAME + 10, FRAME + 20)]
    assert read(timeline, 0, FRAME)[1] == []


def spoken() -> npt.NDArray[np.int16]:
    """Return 2 s of noise that begins and ends hard, in whole frames at 24 kHz."""
    pcm = np.zeros(48_000, np.float64)
    noise = np.random.default_rng(3).standard_normal(28_000)
    # Speech is louder in the low, and so is this.
    pcm[10_001:38_001] = 3000 * np.convolve(noise, np.hanning(24), "same") / 3
    return pcm.astype(np.int16)


def sent_opus(
    tmp_path: Path, codec: str, pcm: npt.NDArray[np.int16], changed: dict[int, bytes]
) -> CallTimeline:
    pytest.importorskip("av")
    from vakforge_eval.signal.opus import OggOpusEncoder, OpusEncoder

    encoder = (OggOpusEncoder if codec == "ogg_opus" else OpusEncoder)(24_000, bit_rate=96_000)
    header = header_of()
    header["user_audio"] = {"codec": codec, "rate_hz": 24_000, "frame_samples": 480,
                            "transfer": "binary", "locator": "1"}  # fmt: skip
    book = Book(header=header)
    book.script = book.script.model_copy(update={"rate_hz": 24_000, "frame_samples": 480})
    for k, frame in enumerate(pcm.reshape(-1, 480)):
        payload = changed.get(k, b"\1" + encoder.encode(frame))
        book.message(Direction.USER, payload, before=20 * k * MS, kind=Kind.AUDIO)
    return build_timeline(Capture.open(book.write(tmp_path / "call")))


def lag(a: npt.NDArray[np.int16], b: npt.NDArray[np.int16]) -> int:
    product = np.correlate(a.astype(np.float64), b[50:-50].astype(np.float64), "valid")
    return int(np.argmax(product)) - 50


@pytest.mark.parametrize("codec", ["opus", "ogg_opus"])
def test_frames_that_build_on_each_other_hold_the_samples_that_were_put_in(
    tmp_path: Path, codec: str
) -> None:
    pcm = spoken()
    timeline = sent_opus(tmp_path, codec, pcm, {})
    assert timeline.sent_pcm is not None
    assert timeline.sent_gaps is not None
    # Asked for from the middle first: the order of asking is nothing to the decoder.
    for a, b in ((20_000, 30_000), (8_000, 40_000)):
        heard = timeline.sent_pcm(a, b)
        # The codec's high-pass turns the phase of what is low.
        assert abs(lag(heard, pcm[a:b])) <= 1
    look_ahead = 312 // 2
    assert timeline.sent_gaps(0, 48_000) == [(48_000 - look_ahead, 48_000)]
    assert len(timeline.sent_pcm(0, 50_000)) == 50_000


@pytest.mark.parametrize("codec", ["opus", "ogg_opus"])
@pytest.mark.parametrize("damaged", [b"", b"\1", b"\1OggS", b"\1" + b"\xff" * 40])
def test_after_a_damaged_frame_all_others_keep_their_place(
    tmp_path: Path, codec: str, damaged: bytes
) -> None:
    pcm = spoken()
    timeline = sent_opus(tmp_path, codec, pcm, {30: damaged})
    assert timeline.sent_pcm is not None
    assert timeline.sent_gaps is not None
    assert timeline.sent_gaps(0, 40_000) == [(30 * 480, 31 * 480)]
    heard = timeline.sent_pcm(20_000, 30_000)
    assert abs(lag(heard, pcm[20_000:30_000])) <= 1
