"""A disk that fails in mid-call: the call goes on, its capture ends early and says so, exit 4."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.seal import seal

ROOT = Path(__file__).parents[2]


async def well_behaved(peer: Any) -> None:
    await peer.open_session()
    await peer.healthy()
    await peer.listen()


def disk_of(n_bytes: int, code: int = errno.ENOSPC) -> Any:
    """Return an ``os.write`` to a disk that has room for `n_bytes` of the bad call."""
    write, left = os.write, n_bytes

    def limited(fd: int, data: Any) -> int:
        nonlocal left
        if "/bad.partial/" not in os.readlink(f"/proc/self/fd/{fd}"):
            return write(fd, data)
        if left == 0:
            raise OSError(code, os.strerror(code))
        n_written = write(fd, memoryview(data)[:left])
        left -= n_written
        return n_written

    return limited


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks files up in /proc")
@pytest.mark.parametrize("n_bytes", [0, 1, 40_000, 250_001])
def test_a_full_disk_in_mid_call_cuts_the_capture_and_not_the_call(
    bench: Any, monkeypatch: pytest.MonkeyPatch, n_bytes: int
) -> None:
    monkeypatch.setattr(os, "write", disk_of(n_bytes))
    judged = bench.judge(well_behaved)
    assert judged.outcome.failure is None
    assert judged.outcome.reason == "done"
    assert judged.took_s > 3.0
    assert judged.capture.is_truncated
    assert os.strerror(errno.ENOSPC) in judged.outcome.recorder_problem
    assert judged.exit_code == 4
    assert "No space left" in judged.texts["terminal"]
    assert judged.document["provenance"]["truncated_captures"] == 1
    for turn in judged.turns:  # what the disk did not take is not the target's silence
        assert "no_reply" not in turn["flags"]


def test_a_disk_that_takes_no_index_leaves_a_capture_to_recover_and_a_report_of_the_rest(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(partial: Path, **options: Any) -> Path:
        if partial.name == "bad.partial":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return seal(partial, **options)

    monkeypatch.setattr("vakforge_probe.recorder.writer.seal", full)
    bad, good = bench.run({"bad": well_behaved, "good": well_behaved})
    assert bad.capture.name == "bad.partial"
    assert "cannot complete" in (bad.recorder_problem or "")
    document, code, texts = bench.conclude([bad, good])
    assert code == 4
    assert {turn["call"] for turn in document["turns"]} == {"good"}
    assert "cannot complete" in texts["terminal"]
    assert Capture.open(good.capture).verify() == []


REAL = """
import asyncio, pathlib, resource, sys
sys.path[:0] = sys.argv[2:]
from conftest import Bench, Stage, compiled
from vakforge_probe.call import Call
from vakforge_probe.net.loop import new_event_loop

async def quick(peer):
    await peer.open_session()
    await asyncio.sleep(0.5)
    await peer.answer("r")
    await peer.listen()

async def main():
    stage = Stage()
    script = compiled(n_turns=1, n_clip=4_801, reply_s=0.5)
    bench = Bench(pathlib.Path(sys.argv[1]), compiled=script)
    url = await stage.target(quick)
    call = Call(bench.plan("real", url))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    outcome = await call.run()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await stage.close()
    assert stage.errors == []
    return outcome

with asyncio.Runner(loop_factory=new_event_loop) as runner:
    outcome = runner.run(main())
print(outcome.failure, outcome.reason, outcome.recorder_problem, outcome.capture, sep="|")
"""


def test_a_file_that_may_not_grow_cuts_the_capture_of_a_real_call(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parent), str(ROOT / "eval"), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(tmp_path), *paths],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    failure, reason, problem, path = done.stdout.strip().split("|")
    assert (failure, reason) == ("None", "done")
    assert "File too large" in problem
    capture = Capture.open(Path(path))
    assert capture.verify() == []
    assert capture.is_truncated
    assert len(capture.frames) > 0
    assert (capture.path / "user.wire").stat().st_size <= 60_000
