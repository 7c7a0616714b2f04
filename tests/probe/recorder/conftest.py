from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.timeline.script import Language, Script
from vakforge_probe.limits import Limits
from vakforge_probe.recorder.writer import CaptureWriter

HEADER: dict[str, Any] = {"capture_version": 1, "call_id": "c1", "target": "alias"}

SCRIPT = Script(
    id="s",
    content_hash="0",
    locale="en-US",
    language=Language(primary="en"),
    rate_hz=24000,
    frame_samples=480,
    steps=[],
)

MakeWriter = Callable[..., CaptureWriter]


@pytest.fixture
def make_writer(tmp_path: Path) -> MakeWriter:
    def make(
        name: str = "call",
        *,
        inline: bool = True,
        limits: Limits | None = None,
        secrets: tuple[str, ...] = (),
        header: dict[str, Any] | None = None,
    ) -> CaptureWriter:
        return CaptureWriter(
            tmp_path / name,
            header or HEADER,
            SCRIPT,
            inline=inline,
            limits=limits or Limits(min_free_bytes=0),
            secrets=secrets,
        )

    return make
