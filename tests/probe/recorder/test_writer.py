from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.format import CaptureBounds
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.records import Flags, Kind
from vakforge_probe.errors import CaptureFault
from vakforge_probe.limits import Limits
from vakforge_probe.recorder.writer import CaptureWriter

PAYLOADS = [b"", b"one", b"{}" * 40_000, bytes(range(256))]


def record_some(writer: CaptureWriter, n: int = 4) -> None:
    for i in range(n):
        data = PAYLOADS[i % 4]
        assert writer.sent(Kind.AUDIO, Flags.NONE, 10 * i, 10 * i + 1, 10 * i + 2, data) == i
        assert writer.received(Flags.BINARY, 5, 6, 9, 7, 8, data[::-1]) == i
        writer.event({"type": "note", "i": i})


@pytest.mark.parametrize("inline", [True, False])
def test_what_was_recorded_is_read_back_in_order(make_writer: Any, inline: bool) -> None:
    writer = make_writer(inline=inline)
    record_some(writer)
    path = writer.finish()
    assert writer.problem is None
    capture = Capture.open(path)
    assert capture.verify() == []
    assert [o["i"] for o in capture.journal] == [0, 1, 2, 3]
    sent, received = capture.frames[::2], capture.frames[1::2]
    assert sent["seq"].tolist() == received["seq"].tolist() == [0, 1, 2, 3]
    assert [capture.payload(r) for r in sent] == PAYLOADS
    assert [capture.payload(r) for r in received] == [p[::-1] for p in PAYLOADS]
    assert sent[2][["due", "before", "after", "lo", "hi"]].item() == (20, 21, 22, 21, 22)
    assert received[0][["due", "before", "after", "lo", "hi"]].item() == (5, 6, 9, 7, 8)
    assert set(received["flags"].tolist()) == {int(Flags.BINARY)}
    assert not capture.is_recovered
    assert not capture.is_truncated


def test_folder_is_partial_until_finished_and_private(make_writer: Any, tmp_path: Path) -> None:
    writer = make_writer()
    partial = tmp_path / "call.partial"
    assert {p.name for p in partial.iterdir()} == {
        "header.json",
        "scenario.json",
        "frames.bin",
        "user.wire",
        "agent.wire",
        "events.jsonl",
    }
    assert partial.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in partial.iterdir()} == {0o600}
    assert writer.finish() == tmp_path / "call"
    assert not partial.exists()
    assert writer.finish() == tmp_path / "call"


def test_records_after_the_end_are_ignored(make_writer: Any) -> None:
    writer = make_writer()
    path = writer.finish()
    record_some(writer)
    assert Capture.open(path).verify() == []


def test_write_thread_writes_without_being_asked_and_ends_with_its_last_capture(
    make_writer: Any,
) -> None:
    writer = make_writer(inline=False)
    record_some(writer)
    _wait_until(lambda: writer.n_written == 8)
    threads = [t for t in threading.enumerate() if t.name.startswith("capture-")]
    assert len(threads) == 2
    writer.finish()
    for thread in threads:
        thread.join(10)
    assert not any(t.is_alive() for t in threads)


def test_captures_of_one_process_share_the_threads(make_writer: Any) -> None:
    writers = [make_writer(f"call{i}", inline=False) for i in range(5)]
    for writer in writers:
        record_some(writer)
    assert sum(t.name.startswith("capture-") for t in threading.enumerate()) == 2
    for writer in writers:
        assert Capture.open(writer.finish()).verify() == []


def test_existing_capture_is_never_overwritten(make_writer: Any, tmp_path: Path) -> None:
    make_writer().finish()
    with pytest.raises(CaptureFault, match="exists"):
        make_writer()
    (tmp_path / "other.partial").mkdir()
    with pytest.raises(CaptureFault, match="exists"):
        make_writer("other")


def test_nearly_full_disk_is_refused_before_the_call(make_writer: Any) -> None:
    with pytest.raises(CaptureFault, match="free"):
        make_writer(limits=Limits(min_free_bytes=1 << 62))


@pytest.fixture
def small_files() -> Iterator[int]:
    """The disk refuses any file beyond 64 KiB."""
    limit = 1 << 16
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("inline", [True, False])
def test_full_disk_ends_the_capture_not_the_call(
    make_writer: Any, small_files: int, inline: bool
) -> None:
    writer = make_writer(inline=inline)
    payload = b"x" * 996
    for i in range(200):
        assert writer.sent(Kind.AUDIO, Flags.NONE, i, i, i, payload) == i
        writer.event({"type": "note", "i": i})
    path = writer.finish()
    assert "capture stopped" in writer.problem
    capture = Capture.open(path)
    assert capture.is_truncated
    assert capture.verify() == []
    n = len(capture.frames)
    assert n <= small_files // 1000
    assert n == writer.n_written
    if inline:
        assert n == small_files // 1000


def test_disk_that_refuses_the_index_leaves_a_partial_and_says_so(
    make_writer: Any, tmp_path: Path
) -> None:
    writer = make_writer()
    record_some(writer)
    (tmp_path / "call").mkdir()
    (tmp_path / "call" / "in the way").touch()
    assert writer.finish() == tmp_path / "call.partial"
    assert "cannot complete" in writer.problem


def test_full_queue_ends_the_capture_and_keeps_what_was_queued(
    make_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = make_writer(inline=False, limits=Limits(min_free_bytes=0, max_message_bytes=1000))
    go = threading.Event()
    write = os.write

    def slow(fd: int, data: bytes) -> int:
        go.wait(30)
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow)
    for i in range(50):
        assert writer.sent(Kind.AUDIO, Flags.NONE, i, i, i, b"x" * 500) == i
    assert "queue is full" in writer.problem
    go.set()
    capture = Capture.open(writer.finish())
    assert capture.is_truncated
    assert capture.verify() == []
    assert 0 < len(capture.frames) < 50


def test_record_is_never_on_file_before_its_payload(
    make_writer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writer = make_writer()
    write = os.write
    seen: list[tuple[int, int]] = []

    def watched(fd: int, data: bytes) -> int:
        done = write(fd, data)
        folder = tmp_path / "call.partial"
        n_records = (folder / "frames.bin").stat().st_size // 64
        seen.append((n_records, (folder / "user.wire").stat().st_size))
        return done

    monkeypatch.setattr(os, "write", watched)
    for i in range(5):
        writer.sent(Kind.AUDIO, Flags.NONE, i, i, i, b"x" * 96)
    assert len(seen) == 10
    assert all(wire >= 100 * n for n, wire in seen)


def test_number_that_is_not_json_becomes_null_and_stops_nothing(make_writer: Any) -> None:
    writer = make_writer()
    writer.event({"type": "usage", "usage": {"n": float("inf"), "m": [float("nan"), 1]}})
    (obj,) = Capture.open(writer.finish()).journal
    assert obj["usage"] == {"n": None, "m": [None, 1]}


SECRET = 'sk-"quoted"-é'


@pytest.mark.parametrize("inline", [True, False])
def test_secrets_are_masked_in_every_file_at_the_same_length(
    make_writer: Any, inline: bool
) -> None:
    writer = make_writer(
        inline=inline,
        secrets=(SECRET, "sk-", "", "plain-secret"),
        header={"capture_version": 1, "note": f"uses {SECRET}"},
    )
    payloads = [
        f"echo {SECRET}!".encode(),
        b'{"a":"sk-\\"quoted\\"-\\u00e9"}',
        'b{"a":"sk-\\"quoted\\"-é"}'.encode(),
        b"plain-secretplain-secret",
    ]
    for payload in payloads:
        writer.received(Flags.NONE, 0, 0, 0, 0, 0, payload)
    writer.event({"type": "server_error", SECRET: ["x plain-secret", {"k": SECRET}]})
    path = writer.finish()
    capture = Capture.open(path)
    assert [len(capture.payload(r)) for r in capture.frames] == [len(p) for p in payloads]
    for file in path.iterdir():
        data = file.read_bytes()
        assert b"quoted" not in data
        assert b"plain-secret" not in data
        assert b"sk-" not in data
    assert capture.header["note"] == "uses " + "*" * len(SECRET)
    assert capture.verify() == []


def _wait_until(condition: Any) -> None:
    done = threading.Event()
    for _ in range(30_000):
        if condition():
            return
        done.wait(0.001)
    raise AssertionError("condition never came true")


@pytest.mark.parametrize(
    "bounds",
    [
        CaptureBounds(frames_bytes=64 * 5),
        CaptureBounds(wire_bytes=80_400),
        CaptureBounds(events_bytes=100),
        CaptureBounds(n_events=2),
        CaptureBounds(message_bytes=50_000),
        CaptureBounds(line_bytes=10),
    ],
)
def test_a_capture_never_grows_beyond_what_a_reader_opens(
    make_writer: Any, monkeypatch: pytest.MonkeyPatch, bounds: CaptureBounds
) -> None:
    monkeypatch.setattr(CaptureWriter, "_bounds", bounds)
    writer = make_writer()
    for _ in range(3):
        record_some_more(writer)
    assert writer.problem is not None
    assert "as long as a capture may be" in writer.problem
    capture = Capture.open(writer.finish(), bounds)
    assert capture.verify() == []
    assert capture.is_truncated


def record_some_more(writer: CaptureWriter) -> None:
    for data in PAYLOADS:
        writer.sent(Kind.AUDIO, Flags.NONE, 0, 1, 2, data)
        writer.received(Flags.BINARY, 5, 6, 9, 7, 8, data)
        writer.event({"type": "note"})
