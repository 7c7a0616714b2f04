"""A recorder that is killed at a random instant; what it had written must be readable."""

from __future__ import annotations

import mmap
import os
import random
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from vakforge_eval.capture.reader import Capture
from vakforge_eval.capture.recover import recover
from vakforge_eval.timeline.records import Direction

PROGRESS = struct.Struct("<qqq")
"""Messages recorded, messages that the recorder called written, worst wake-up delay (ns)."""

CHILD = """
import mmap, struct, sys, time
from pathlib import Path
from vakforge_eval.timeline.records import Flags, Kind
from vakforge_eval.timeline.script import Language, Script
from vakforge_probe.limits import Limits
from vakforge_probe.recorder.writer import CaptureWriter

script = Script(id="s", content_hash="0", locale="en-US", language=Language(primary="en"),
                rate_hz=24000, frame_samples=480, steps=[])
shared = mmap.mmap(int(sys.argv[2]), 24)
writer = CaptureWriter(Path(sys.argv[1]), {"capture_version": 1}, script, inline=False,
                       limits=Limits(min_free_bytes=0))
now = time.monotonic_ns
period, worst = 1_000_000, 0
due = now()
print("started", flush=True)
for i in range(1 << 30):
    due += period
    time.sleep(max(0, due - now()) / 1e9)
    at = now()
    worst = max(worst, at - due)
    due = max(due, at)
    payload = struct.pack("<q", i) * 120
    if i % 2:
        writer.received(Flags.NONE, at, at, at, at, at, payload)
    else:
        writer.sent(Kind.AUDIO, Flags.NONE, at, at, at, payload)
    writer.event({"type": "note", "i": i})
    shared[:] = struct.pack("<qqq", i + 1, writer.n_written, worst)
"""

SECONDS = random.Random(7)


@pytest.mark.parametrize("after_s", [SECONDS.uniform(0.0, 0.4) for _ in range(5)])
def test_kill_9_leaves_all_but_the_last_moment_without_a_hole(
    tmp_path: Path, after_s: float
) -> None:
    fd = os.memfd_create("progress")
    os.ftruncate(fd, PROGRESS.size)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "call"), str(fd)],
        stdout=subprocess.PIPE,
        pass_fds=[fd],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"started\n"
        # Nothing more is printed: this waits for the random moment, or for an early end.
        select.select([child.stdout], [], [], after_s)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        child.stdout.close()
    with mmap.mmap(fd, PROGRESS.size) as shared:
        n_recorded, n_written, worst_ns = PROGRESS.unpack(shared)
    os.close(fd)

    found = recover(tmp_path / "call")
    assert found.was_torn
    capture = Capture.open(found.path)
    assert capture.is_recovered
    assert capture.verify() == []
    n = len(capture.frames)
    numbers = [struct.unpack_from("<q", capture.payload(r))[0] for r in capture.frames]
    assert numbers == list(range(n))
    for direction in Direction:
        seqs = capture.frames["seq"][capture.frames["direction"] == direction]
        assert seqs.tolist() == list(range(len(seqs)))
    assert [o["i"] for o in capture.journal] == list(range(len(capture.journal)))
    # One may have been recorded, and even written, before it was reported.
    assert n_written <= n <= n_recorded + 1
    # One message a ms. A machine that let the child itself wait may let its write thread wait too.
    assert n_recorded - n <= 40 + 10 * worst_ns // 1_000_000
