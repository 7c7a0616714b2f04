from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.capture.errors import CaptureError
from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.recover import recover

from .conftest import Book


@pytest.mark.parametrize("suffix", ["", ".partial"])
def test_complete_capture_has_nothing_to_recover(filled: Book, tmp_path: Path, suffix: str) -> None:
    path = filled.write(tmp_path / "call")
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    found = recover(tmp_path / ("call" + suffix))
    assert (found.path, found.was_torn) == (path, False)
    assert "nothing to recover" in str(found)
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before


@pytest.mark.parametrize("name", ["frames.bin", "user.wire", "agent.wire", "events.jsonl"])
def test_file_torn_at_any_byte_is_cut_to_its_whole_prefix(
    filled: Book, tmp_path: Path, name: str
) -> None:
    whole = filled.files()[name]
    for size in range(len(whole) + 1):
        partial = filled.write(tmp_path / f"{size}", complete=False)
        (partial / name).write_bytes(whole[:size])
        found = recover(partial)
        capture = Capture.open(found.path)
        assert capture.is_recovered
        assert capture.verify() == []
        if name == "events.jsonl":
            assert len(capture.frames) == 6
            assert len(capture.journal) == whole[:size].count(b"\n") == found.n_events
        else:
            assert len(capture.journal) == 3
            assert len(capture.frames) == found.n_messages
            for i, record in enumerate(capture.frames):
                assert record["seq"] == i // 2
                capture.payload(record)
        if name == "frames.bin":
            assert len(capture.frames) == size // 64


@settings(deadline=None)
@given(st.sampled_from(["frames.bin", "user.wire", "agent.wire", "events.jsonl"]), st.data())
def test_damage_anywhere_is_cut_off_with_all_that_follows(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    book = Book()
    for i in range(4):
        book.message(i % 2, b"payload %d" % i)
        book.event("note", i=i)
    damaged = bytearray(book.files()[name])
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    partial = book.write(tmp_path_factory.mktemp("t") / "call", complete=False)
    (partial / name).write_bytes(damaged)
    found = recover(partial)
    capture = Capture.open(found.path)
    assert capture.verify() == []
    payloads = [capture.payload(record) for record in capture.frames]
    assert payloads == [b"payload %d" % i for i in range(len(payloads))]
    assert [o["i"] for o in capture.journal] == list(range(len(capture.journal)))
    assert len(payloads) < 4 or len(capture.journal) < 4


def test_recovering_twice_changes_nothing(filled: Book, tmp_path: Path) -> None:
    filled.write(tmp_path / "call", complete=False, changed={"frames.bin": filled.frames[:-1]})
    assert recover(tmp_path / "call").n_messages == 5
    assert not recover(tmp_path / "call").was_torn


def test_capture_killed_between_index_and_rename_is_only_renamed(
    filled: Book, tmp_path: Path
) -> None:
    path = filled.write(tmp_path / "call")
    os.rename(path, tmp_path / "call.partial")
    assert recover(tmp_path / "call").was_torn
    assert not Capture.open(path).is_recovered
    assert Capture.open(path).verify() == []


def test_capture_killed_before_its_files_were_made_is_an_empty_call(
    filled: Book, tmp_path: Path
) -> None:
    partial = filled.write(tmp_path / "call", complete=False)
    for name in ("frames.bin", "user.wire", "agent.wire", "events.jsonl"):
        (partial / name).unlink()
    assert recover(partial).n_messages == 0


@pytest.mark.parametrize("name", ["header.json", "scenario.json"])
@pytest.mark.parametrize("content", [None, b"", b'{"a":'])
def test_capture_without_its_header_cannot_be_recovered_and_is_left_alone(
    filled: Book, tmp_path: Path, name: str, content: bytes | None
) -> None:
    partial = filled.write(tmp_path / "call", complete=False)
    if content is None:
        (partial / name).unlink()
    else:
        (partial / name).write_bytes(content)
    with pytest.raises(CaptureError, match=name):
        recover(partial)
    assert (partial / "frames.bin").read_bytes() == filled.frames


def test_no_capture_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no capture"):
        recover(tmp_path / "call")


def test_capture_still_being_written_is_left_alone(filled: Book, tmp_path: Path) -> None:
    partial = filled.write(tmp_path / "call", complete=False)
    with open(partial / "frames.bin", "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with pytest.raises(CaptureError, match="still being written"):
            recover(partial)
    assert recover(partial).n_messages == 6


def test_link_out_of_the_folder_is_never_cut(filled: Book, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"do not cut me")
    partial = filled.write(tmp_path / "call", complete=False)
    (partial / "user.wire").unlink()
    (partial / "user.wire").symlink_to(precious)
    with pytest.raises(CaptureError, match=r"user\.wire"):
        recover(partial)
    assert precious.read_bytes() == b"do not cut me"
