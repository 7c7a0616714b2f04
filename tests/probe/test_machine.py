"""The examination of this machine, and what it would say of worse ones."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from vakforge_probe import machine
from vakforge_probe.loopback import StampTrial, try_alarm, try_stamps
from vakforge_probe.machine import Finding, examine

Usage = namedtuple("Usage", "total used free")


def finding(name: str) -> Finding:
    return next(found for found in examine() if found.name == name)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that take no time."""
    monkeypatch.setattr(machine, "try_alarm", lambda: [50_000] * 100)
    monkeypatch.setattr(machine, "try_stamps", lambda: StampTrial(True, 100, 0, (20_000,) * 100))


def test_every_part_is_looked_at_and_told_in_one_line(quick: None) -> None:
    found = examine()
    assert [f.name for f in found] == [
        "machine", "clock", "pacing", "stamps", "disk", "voice detector", "sound devices",
        "transports", "libraries",
    ]  # fmt: skip
    for one in found:
        assert one.verdict in ("ok", "note")
        assert "\n" not in one.text
        assert one.to_json().keys() == {"name", "verdict", "text", "facts"}


def test_the_alarm_is_never_early() -> None:
    late = try_alarm()
    assert len(late) == 300
    assert late == sorted(late)
    assert late[0] >= 0


def test_arrivals_on_loopback_are_never_said_to_come_before_their_sending() -> None:
    trial = try_stamps()
    assert len(trial.widths) == 150
    assert trial.n_wrong == 0
    assert trial.widths[0] >= 0
    assert trial.has_kernel_stamps == (trial.n_own > 0)


def test_percentiles_of_the_trials_are_by_nearest_rank(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "try_alarm", lambda: list(range(1, 101)))
    facts = finding("pacing").facts
    assert facts == {"p50_ns": 50, "p99_ns": 99, "max_ns": 100, "n": 100}


def test_the_words_of_the_percentiles_are_in_their_order(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "try_alarm", lambda: [22_000] * 98 + [23_000, 24_000])
    assert "p50 0.022 ms, p99 0.023 ms, max 0.024 ms" in finding("pacing").text


def test_a_machine_too_busy_to_pace_a_call_is_bad(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "try_alarm", lambda: [50_000] * 90 + [15_000_000] * 10)
    found = finding("pacing")
    assert found.verdict == "bad"
    assert "too busy" in found.text


def test_a_single_late_frame_is_a_note(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "try_alarm", lambda: [50_000] * 299 + [15_000_000])
    assert finding("pacing").verdict == "note"


@pytest.mark.parametrize(
    ("trial", "verdict", "words"),
    [
        (StampTrial(True, 100, 0, (20_000,) * 100), "ok", "100 of 100 by kernel stamp"),
        (StampTrial(True, 10, 0, (900_000,) * 100), "note", "wider than they could be"),
        (StampTrial(False, 0, 0, (900_000,) * 100), "note", "this system gives none"),
        (StampTrial(True, 100, 1, (20_000,) * 100), "bad", "1 before their sending"),
        (StampTrial(True, 0, 0, ()), "bad", "no message arrived"),
    ],
)
def test_stamps_are_judged(
    quick: None, monkeypatch: pytest.MonkeyPatch, trial: StampTrial, verdict: str, words: str
) -> None:
    monkeypatch.setattr(machine, "try_stamps", lambda: trial)
    found = finding("stamps")
    assert found.verdict == verdict
    assert words in found.text


@pytest.mark.parametrize("error", [TimeoutError(), OSError("no loopback")])
def test_a_machine_without_loopback_is_bad_and_no_traceback(
    quick: None, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> StampTrial:
        raise error

    monkeypatch.setattr(machine, "try_stamps", fail)
    assert finding("stamps").verdict == "bad"


def test_a_full_disk_is_bad(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1, 1, 1000))
    found = finding("disk")
    assert found.verdict == "bad"
    assert found.facts == {"free_bytes": 1000}


class _Missing:
    """Makes an import fail as it does where something is not installed."""

    def __init__(self, name: str, error: Exception) -> None:
        self._name, self._error = name, error

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == self._name:
            raise self._error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("no"), "vakforge-probe[device]"),
        (OSError("PortAudio library not found"), "libportaudio2"),
    ],
)
def test_a_missing_sound_system_is_a_note_with_what_to_install(
    quick: None, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Missing("sounddevice", error), *sys.meta_path])
    found = finding("sound devices")
    assert found.verdict == "note"
    assert words in found.text


def test_sound_devices_are_counted_and_their_names_are_cleaned(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [
        {"name": "mic\x1b[31m", "max_input_channels": 1, "max_output_channels": 0},
        {"name": "speaker", "max_input_channels": 0, "max_output_channels": 2},
    ]
    fake = SimpleNamespace(query_devices=lambda: devices)
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    found = finding("sound devices")
    assert (found.verdict, found.text) == ("ok", "1 for input, 1 for output")
    assert found.facts == {"devices": ["mic", "speaker"]}


def test_a_sound_system_that_fails_is_a_note(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("PortAudio not initialized")

    monkeypatch.setitem(sys.modules, "sounddevice", SimpleNamespace(query_devices=fail))
    found = finding("sound devices")
    assert found.verdict == "note"
    assert "not initialized" in found.text


def test_a_missing_voice_detector_is_bad(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "webrtcvad", raising=False)
    blocker = _Missing("webrtcvad", ImportError("no"))
    monkeypatch.setattr(sys, "meta_path", [blocker, *sys.meta_path])
    assert finding("voice detector").verdict == "bad"


def test_a_missing_transport_is_a_note_that_says_what_to_install(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"numpy": "2.0", "livekit": None}
    monkeypatch.setattr(machine, "_version", lambda name: known.get(name, "1.0"))
    monkeypatch.setattr(
        machine, "_TRANSPORTS", (("numpy", "a", "A"), ("livekit", "livekit", "LiveKit"))
    )
    found = finding("transports")
    assert found.verdict == "note"
    assert found.text == (
        "A by numpy 2.0; LiveKit: optional, not installed: pip install 'vakforge-probe[livekit]'"
    )
    assert found.facts == known


def test_a_missing_library_is_named(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_LIBRARIES", ("numpy", "no-such-library-here"))
    found = finding("libraries")
    assert (found.verdict, found.text) == ("bad", "missing: no-such-library-here")
