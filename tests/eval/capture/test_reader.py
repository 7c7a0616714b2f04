from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.format import CaptureBounds
from vakforge_eval.capture.reader import Capture

from .conftest import Book, header_of, line_of

NAMES = ["header.json", "scenario.json", "frames.bin", "user.wire", "agent.wire", "events.jsonl"]


def test_whole_capture_verifies(filled: Book, tmp_path: Path) -> None:
    capture = Capture.open(filled.write(tmp_path / "call"))
    assert capture.verify() == []
    assert [capture.payload(r) for r in capture.frames[1::2]] == [
        b"agent 0",
        b"agent 1",
        b"agent 2",
    ]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("header.json", "scenario.json")])
def test_damage_is_found_and_named_even_when_the_index_agrees(
    filled: Book, tmp_path: Path, name: str
) -> None:
    data = bytearray(filled.files()[name])
    data[len(data) // 2] ^= 1
    path = filled.write(tmp_path / "call")
    (path / name).write_bytes(data)
    problems = [str(p) for p in Capture.open(path).verify()]
    assert f"{name}: SHA-256 differs from the index" in problems
    fresh = filled.write(tmp_path / "agreeing", changed={name: bytes(data)})
    problems = [str(p) for p in Capture.open(fresh).verify()]
    assert any(p.startswith(f"{name}: holds only up to byte") for p in problems) or any(
        p.startswith("frames.bin: holds only up to byte") for p in problems
    )


def test_torn_capture_is_refused_with_the_way_out(filled: Book, tmp_path: Path) -> None:
    filled.write(tmp_path / "call", complete=False)
    for name in ("call", "call.partial"):
        with pytest.raises(CaptureError, match="recover"):
            Capture.open(tmp_path / name)
    with pytest.raises(CaptureError, match="no capture"):
        Capture.open(tmp_path / "other")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_version_is_refused_with_both_named(tmp_path: Path, version: Any) -> None:
    path = Book(header=header_of(capture_version=version)).write(tmp_path / "call")
    with pytest.raises(CaptureError, match=r"capture_version.*reads 1"):
        Capture.open(path)


@pytest.mark.parametrize("name", [*NAMES, "index.json"])
@pytest.mark.parametrize("kind", ["missing", "link", "fifo", "folder", "large"])
def test_file_that_is_not_a_small_regular_file_is_refused_at_once(
    filled: Book, tmp_path: Path, name: str, kind: str
) -> None:
    path = filled.write(tmp_path / "call")
    data = (path / name).read_bytes()
    (path / name).unlink()
    match kind:
        case "link":
            (tmp_path / "real").write_bytes(data)
            (path / name).symlink_to(tmp_path / "real")
        case "fifo":
            os.mkfifo(path / name)
        case "folder":
            (path / name).mkdir()
        case "large":
            (path / name).write_bytes(data + b" " * 2000)
    bounds = CaptureBounds(1000, 1000, 1000, 1000, 1000, 1000)

    def read_all() -> None:
        capture = Capture.open(path, bounds)
        for record in capture.frames:
            capture.payload(record)
        assert capture.journal

    with pytest.raises(CaptureError):
        read_all()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"capture_version": NaN}', b"\xff", b"[" * 100_000]
)
def test_header_that_is_no_strict_json_object_is_refused(
    filled: Book, tmp_path: Path, content: bytes
) -> None:
    path = filled.write(tmp_path / "call")
    (path / "header.json").write_bytes(content)
    with pytest.raises(CaptureError, match=r"header\.json"):
        Capture.open(path)


def test_script_error_names_the_field_and_not_its_content(filled: Book, tmp_path: Path) -> None:
    path = filled.write(tmp_path / "call")
    script = json.loads((path / "scenario.json").read_text())
    script["rate_hz"] = "\x1b[31mred"
    (path / "scenario.json").write_text(json.dumps(script))
    with pytest.raises(CaptureError, match=r"scenario\.json: rate_hz") as caught:
        Capture.open(path)
    assert "red" not in str(caught.value)


def test_endless_journal_is_refused(filled: Book, tmp_path: Path) -> None:
    path = filled.write(tmp_path / "call")
    with pytest.raises(CaptureError, match="more than 2 lines"):
        _ = Capture.open(path, CaptureBounds(n_events=2)).journal


def test_record_that_points_outside_of_its_file_is_refused(book: Book, tmp_path: Path) -> None:
    book.message(1, b"payload")
    path = book.write(tmp_path / "call", changed={"agent.wire": b"\x07\0\0\0pay"})
    capture = Capture.open(path)
    with pytest.raises(CaptureError, match="outside"):
        capture.payload(capture.frames[0])


mutations = st.tuples(
    st.sampled_from(NAMES), st.integers(0, 10_000), st.binary(min_size=1, max_size=8)
)


@settings(deadline=None, max_examples=150)
@given(st.lists(mutations, min_size=1, max_size=3))
def test_mutated_capture_is_read_or_refused_but_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, bytes]]
) -> None:
    book = Book()
    book.frame(0)
    seq = book.message(1, b'{"d":"AAAA"}')
    book.event(
        "audio_chunk",
        lo=1,
        hi=2,
        seq=seq,
        response_id="r",
        item_id=None,
        codec="pcm_s16le",
        rate_hz=8000,
        transfer="json_base64",
        locator="/d",
    )
    book.event("flush", lo=1, hi=2, response_id=None, item_id=None, played_ms=None)
    files = {name: bytearray(data) for name, data in book.files().items()}
    for name, at, data in changes:
        at %= len(files[name]) or 1
        files[name][at : at + len(data)] = data
    if any(name == "events.jsonl" for name, _, _ in changes):
        # With a right CRC, so that the change reaches the fields.
        lines = bytes(files["events.jsonl"]).split(b"\n")
        bodies = [line.split(b",", 2)[-1][:-1] for line in lines if line]
        files["events.jsonl"] = bytearray(b"".join(_signed(body) for body in bodies))
    path = book.write(
        tmp_path_factory.mktemp("m") / "call",
        changed={name: bytes(data) for name, data in files.items()},
    )
    with suppress(CaptureError):
        capture = Capture.open(path)
        capture.verify()
        build_timeline(capture)


def _signed(body: bytes) -> bytes:
    try:
        return line_of(json.loads(body))
    except ValueError:
        return b""
