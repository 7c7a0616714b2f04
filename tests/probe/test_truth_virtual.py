"""Every latency of every turn against the reference agent's truth, on virtual time.

There the machine has no part in it: what is wrong here is wrong in an algorithm, of the probe or
of the agent's own account. Nothing is tried twice and nothing is allowed for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from vakforge_eval.timeline.values import Censored, Flag, Measured
from vakforge_probe.agent import listener
from vakforge_probe.calibrate import LATENCIES, Row, compare
from vakforge_probe.net.virtual import VirtualLoop

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

MS = 1_000_000
Measure = Callable[..., list[Row]]

Scenario = dict[str, Any]

DEFAULTS = {
    "locale": "en-US",
    "language": {"primary": "en"},
    "budgets": {"call": "60 s", "reply": "4 s", "greeting": "1 s"},
}


def says(clip: str, at: str, kind: str = "say") -> dict[str, Any]:
    return {kind: None, "clip": clip, "at": at}


def hangs_up(at: str) -> dict[str, Any]:
    return {"hang_up": None, "at": at}


QUESTION = "en/order_delivery_date"
THREE_TURNS: Scenario = {
    "id": "three-turns",
    "steps": [
        says(QUESTION, "0.2073 s"),
        {
            "say": None,
            "parts": ["en/booking_think_1", {"pause": "290 ms"}, QUESTION],
            "at": "613.7 ms after agent end",
        },
        says(QUESTION, "457.9 ms after agent end"),
        hangs_up("500 ms after agent end"),
    ],
}
GIVEN_TIME: Scenario = {
    "id": "given-time",
    "steps": [says(QUESTION, "0.2073 s"), says(QUESTION, "7.0119 s"), hangs_up("13 s")],
}
AFTER_GREETING: Scenario = {
    "id": "after-greeting",
    "steps": [says(QUESTION, "507.3 ms after greeting"), hangs_up("11 s")],
}
WITH_TOOL: Scenario = {
    "id": "with-tool",
    "tools": [
        {
            "name": "get_order_status",
            "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}},
            "result": {"status": "on the way"},
            "delay": "400 ms",
        }
    ],
    "steps": [
        says("en/order_number", "0.2 s"),
        says("en/order_number_fixed", "611.3 ms after agent end", "correction"),
        hangs_up("500 ms after agent end"),
    ],
}


@dataclass(frozen=True)
class Case:
    """What the agent is set to, and how far off each latency may be (s)."""

    name: str
    bound: float
    knobs: dict[str, object]
    scenario: Scenario = field(default_factory=lambda: THREE_TURNS)
    n_turns: int = 3


def clean(name: str, **knobs: object) -> Case:
    return Case(name, 0.001, knobs)


CONTINUOUS = {"stream": "continuous"}
TOGETHER = {"leading_silence": 0.15, "segments": 2, "text_lead_ms": 100, "stall": 0.3}
CASES = [
    *(
        clean(f"{delay} s, {pacing}", reply_delay=delay, pacing=pacing)
        for delay in (0.2, 0.5, 1.2)
        for pacing in ("paced", "x10", "burst")
    ),
    clean("150 ms of silence first", leading_silence=0.15),
    clean("300 ms of silence first", leading_silence=0.3),
    clean("300 ms of silence first, burst", leading_silence=0.3, pacing="burst"),
    clean("reply at -35 dBFS", level_dbfs=-35),
    clean("agent's clock too fast", skew_ppm=5000),
    clean("agent's clock too slow", skew_ppm=-5000),
    clean("odd bytes", chunk="961b"),
    clean("7 ms chunks", chunk="7ms"),
    clean("chunks off every grid, burst", chunk="333", pacing="burst", leading_silence=0.15),
    clean("300 ms chunks", chunk="300ms"),
    clean("text before audio", text_lead_ms=120),
    clean("text after audio", text_lead_ms=-300),
    clean("several segments", segments=3, segment_gap=0.6),
    clean("segments that are one stretch", segments=2, segment_gap=0.2),
    clean("agent stalls at once", stall=0.3, stall_at=0),
    clean("agent stalls", stall=0.3, stall_at=0.2),
    clean("agent stalls for longer than a pause", stall=0.6, stall_at=0.5),
    clean("early talk", early_talk=0.4, say=None),
    clean("early talk that is over early", early_talk=0.4),
    clean("continuous stream", **CONTINUOUS),
    clean("every voice", say=None),
    Case("filler and tool", 0.001, {"filler": True, "say": None}, WITH_TOOL, 2),
    Case("tool without filler", 0.001, {"say": None}, WITH_TOOL, 2),
    Case("no reply", 0.001, {"no_reply": 1, "greeting": True}, AFTER_GREETING, 1),
    Case("no reply every other turn", 0.001, {"no_reply": 2}, GIVEN_TIME, 2),
    Case("jitter", 0.010, {"jitter_ms": 60}),
    Case("jitter, burst", 0.010, {"jitter_ms": 60, "pacing": "burst"}),
    Case("jitter, continuous", 0.010, {"jitter_ms": 60, **CONTINUOUS}),
    Case("noise at -50 dBFS", 0.020, {"noise_dbfs": -50, **CONTINUOUS}),
    Case("noise at -40 dBFS", 0.020, {"noise_dbfs": -40, **CONTINUOUS}),
    Case("other noise at -40 dBFS", 0.020, {"noise_dbfs": -40, "seed": 1, **CONTINUOUS}),
    Case("noise inside replies only", 0.020, {"noise_dbfs": -50}),
    Case("quiet reply in noise", 0.020, {"noise_dbfs": -50, "level_dbfs": -35, **CONTINUOUS}),
    clean("together", level_dbfs=-35, skew_ppm=5000, chunk="961b", **TOGETHER),
    clean("together, burst", pacing="burst", chunk="333", skew_ppm=-5000, **TOGETHER),
    clean("together, early", early_talk=0.3, level_dbfs=-35, pacing="x10", **TOGETHER),
    Case("together with jitter", 0.010, {"jitter_ms": 60, "level_dbfs": -35, **TOGETHER}),
    Case("echo in turns", 0.020, {"echo_db": -10, "echo_delay": 0.3, "reply_delay": 0.2}),
    Case("echo", 0.020, {"echo_db": -20, **CONTINUOUS}),
    Case("echo with jitter, clock too fast", 0.020,
         {"echo_db": -20, "jitter_ms": 60, "skew_ppm": 5000, "reply_delay": 0.2, **CONTINUOUS}),
    Case("echo in noise", 0.020, {"echo_db": -20, "noise_dbfs": -50, **CONTINUOUS}),
    Case("together with noise", 0.020,
         {"noise_dbfs": -40, "jitter_ms": 60, "skew_ppm": -5000, **TOGETHER, **CONTINUOUS}),
]  # fmt: skip


@pytest.fixture
def measure(with_truth: Callable[..., Any]) -> Measure:
    """Return a runner of one call of each scenario, all at once, with an agent that is set so."""

    def go(
        knobs: dict[str, object],
        *scenarios: Scenario,
        before: Callable[[VirtualLoop], object] = lambda loop: None,
        protocol: str = "openai-realtime",
    ) -> list[Row]:
        knobs = {"greeting": False, "say": "short_ok", **knobs}
        stated = {key: value for key, value in knobs.items() if value is not None}
        targets = {"agent": (stated, protocol)}
        return compare(*with_truth(targets, scenarios, before, defaults=DEFAULTS))

    return go


def judged(rows: Sequence[Row], bound: float) -> None:
    """Each statement about each turn is true, and each value that exists was measured."""
    wrong = [
        row
        for row in rows
        if not (
            row.counts
            and row.covered is not False
            and (row.truth is None or (row.error is not None and abs(row.error) <= bound))
        )
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_latency_of_every_turn_is_within_its_bound(measure: Measure, case: Case) -> None:
    rows = measure(case.knobs, case.scenario)
    assert len(rows) == case.n_turns * len(LATENCIES)
    judged(rows, case.bound)


LIVE = {**CONTINUOUS, "playout": "live"}
STREAMS = [
    clean("alone", **LIVE),
    clean("clock too fast", skew_ppm=5000, **LIVE),
    clean("clock too slow", skew_ppm=-5000, **LIVE),
    clean("stalls of 2 s in speech", stall=2.0, stall_at=0.2, **LIVE),
    clean("stalls of 2 s before speech", stall=2.0, stall_at=0, **LIVE),
    Case("jitter", 0.010, {"jitter_ms": 60, **LIVE}),
    Case("noise at -50 dBFS", 0.020, {"noise_dbfs": -50, **LIVE}),
    Case("noise at -40 dBFS, skew, stalls", 0.020,
         {"noise_dbfs": -40, "skew_ppm": 5000, "stall": 2.0, "stall_at": 0.2, **LIVE}),
]  # fmt: skip


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_every_latency_on_a_stream_that_never_pauses_is_within_its_bound(
    measure: Measure, case: Case
) -> None:
    rows = measure(case.knobs, case.scenario, protocol="openai-realtime/continuous")
    assert len(rows) == case.n_turns * len(LATENCIES)
    # There the first audio of a reply is its first audible sample, which has a row of its own.
    left_out = {"ttfa"}
    if "stall" in case.knobs:
        # A stall spoils the end of the reply that it falls into, and nothing of the next one: the
        # player shortens pauses between words too, which the agent's account takes for its voice.
        left_out |= {"total_response"}
    judged([row for row in rows if row.metric not in left_out], case.bound)


@pytest.mark.parametrize("knobs", [
    {"noise_dbfs": -45, "leading_silence": 0.8},
    {"noise_dbfs": -52, "leading_silence": 0.15, "pacing": "burst", "chunk": "333"},
    {"noise_dbfs": -45, "leading_silence": 0.1, "segments": 2, "stall": 0.3, "stall_at": 0},
    {"level_dbfs": -40, "leading_silence": 0.3, "chunk": "961b", "stall": 0.3, "stall_at": 0.1},
], ids=["noise", "burst of noise", "stalled noise", "edge in two messages"])  # fmt: skip
def test_what_cannot_be_told_exactly_lies_within_what_is_stated(
    measure: Measure, knobs: dict[str, object]
) -> None:
    rows = measure(knobs, THREE_TURNS)
    assert not [row for row in rows if not row.counts or row.covered is not True]


@pytest.mark.parametrize("delay", [0.2, 0.5, 1.2])
def test_the_agent_keeps_the_delay_that_it_is_set_to(measure: Measure, delay: float) -> None:
    rows = measure({"reply_delay": delay}, THREE_TURNS)
    first = [row for row in rows if row.metric == "ttfa_heard"]
    assert [row.truth and row.truth.value for row in first] == [pytest.approx(delay, abs=1e-6)] * 3


def test_a_turn_without_reply_is_censored_at_its_budget(measure: Measure) -> None:
    rows = measure({"no_reply": 2}, GIVEN_TIME)
    answered = [isinstance(row.measured, Measured) for row in rows]
    assert answered == [True] * len(LATENCIES) + [False] * len(LATENCIES)
    assert {row.measured for row in rows[len(LATENCIES) :]} == {Censored(4.0)}


PHASES_MS = [0, 2.7, 5.4, 8.1, 10.8, 13.5, 16.2, 18.9]


@pytest.mark.parametrize("knobs", [{}, {"pacing": "burst"}, {"noise_dbfs": -40, **CONTINUOUS}],
                         ids=["paced", "burst", "noise"])  # fmt: skip
def test_latencies_do_not_depend_on_the_phase_of_the_frame_grid(
    measure: Measure, knobs: dict[str, object]
) -> None:
    calls = [
        {
            "id": f"phase-{i}",
            "steps": [
                says(QUESTION, f"{200 + phase:.1f} ms"),
                hangs_up("500 ms after agent end"),
            ],
        }
        for i, phase in enumerate(PHASES_MS)
    ]
    rows = measure(knobs, *calls)
    assert len(rows) == len(PHASES_MS) * len(LATENCIES)
    judged(rows, 0.020 if knobs.get("noise_dbfs") else 0.001)
    for metric in LATENCIES:
        mine = [row for row in rows if row.metric == metric]
        errors = [row.error for row in mine if row.error is not None]
        assert max(errors) - min(errors) < 0.002
        if "stream" not in knobs:
            # In a continuous stream the reply itself waits for the agent's own grid.
            values = [row.measured.value for row in mine if isinstance(row.measured, Measured)]
            assert max(values) - min(values) < 0.002


def _spoilt(rows: Sequence[Row]) -> list[int]:
    return sorted({row.turn for row in rows if not row.valid})


def _true_or_spoilt(rows: Sequence[Row], turn: int, bound: float = 0.001) -> None:
    """All turns but `turn` are unharmed; that one is out, or right within what it states."""
    judged([row for row in rows if row.turn != turn], bound)
    for row in rows:
        if row.turn == turn:
            assert row.is_matched
            assert row.covered is not False, row


@pytest.mark.parametrize("pacing", ["paced", "x10", "burst"])
@pytest.mark.parametrize("after", [1, 2, 20, 45])
def test_a_stall_with_audio_under_way_spoils_that_turn_alone(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, pacing: str, after: int
) -> None:
    send_now, n_sent = listener.AgentConnection.send_now, 0

    def send_and_stall(self: listener.AgentConnection, text: str) -> None:
        nonlocal n_sent
        send_now(self, text)
        n_sent += "output_audio.delta" in text
        if n_sent == after and "output_audio.delta" in text:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.advance(300 * MS)

    monkeypatch.setattr(listener.AgentConnection, "send_now", send_and_stall)
    rows = measure({"pacing": pacing}, THREE_TURNS)
    _true_or_spoilt(rows, 0)
    assert _spoilt(rows) == [0]
    assert all(Flag.PROBE_STALLED in row.flags for row in rows if row.turn == 0)


FIRST_USER_END_MS = 207 + 34164 / 24
"""Of `GIVEN_TIME`, in the stream."""


@pytest.mark.parametrize("knobs", [{}, {"pacing": "burst"}, {"noise_dbfs": -50, **CONTINUOUS}],
                         ids=["paced", "burst", "noise"])  # fmt: skip
@pytest.mark.parametrize("offset_ms", [-900, -150, 50, 350, 510, 700, 1395])
def test_a_stall_spoils_at_most_the_turn_that_it_falls_into(
    measure: Measure, knobs: dict[str, object], offset_ms: int
) -> None:
    def stall_later(loop: VirtualLoop) -> None:
        at = round((FIRST_USER_END_MS + offset_ms) * MS)
        loop.call_at_ns(loop.now_ns + at, lambda: loop.advance(300 * MS))

    rows = measure(knobs, GIVEN_TIME, before=stall_later)
    _true_or_spoilt(rows, 0, 0.020 if knobs.get("noise_dbfs") else 0.001)
    if offset_ms < 0:
        assert all(Flag.INVALID_PACING in row.flags for row in rows if row.turn == 0)
