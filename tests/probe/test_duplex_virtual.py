"""Interruptions, disturbances and overlap against the reference agent's truth, on virtual time.

A few events of each kind are in the usual run. All that is promised of 200 events is tested by::

    VAKFORGE_PROBE_EVENTS=200 python -m pytest tests/probe/test_duplex_virtual.py --timeout=0

which takes a quarter of an hour. Each pass has its own phases, words, noise and jitter.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from vakforge_eval.timeline.values import Censored, Flag, Measured, Reason, Undefined
from vakforge_probe.calibrate import Duplex, Row, Verdict, compare_duplex

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

N_EVENTS = int(os.environ.get("VAKFORGE_PROBE_EVENTS", "0"))
"""Events of each class; 0: one pass."""

QUESTION = "en/order_delivery_date"
STOPS = ("booking_confirm", "general_again", "booking_name", "general_more", "order_stop")
NODS = ("mm_hm", "uh_huh", "okay", "right")
DEFAULTS = {
    "locale": "en-US",
    "language": {"primary": "en"},
    "budgets": {"call": "900 s", "reply": "4 s", "greeting": "1 s"},
}
TURNS, STREAM = "openai-realtime", "openai-realtime/continuous"
LIVE: dict[str, object] = {"stream": "continuous", "playout": "live"}

Knobs = dict[str, object]
Scenario = dict[str, Any]


class Phases:
    """Moments and words that differ from pass to pass."""

    def __init__(self, number: int) -> None:
        self._n = number
        self._steps = itertools.count(number)

    def at(self, base_ms: float, spread_ms: float = 90.0) -> str:
        """Return a moment `base_ms` after something, later by up to `spread_ms`, off any grid."""
        share = next(self._steps) * 0.6180339887 % 1
        return f"{base_ms + share * spread_ms:.3f} ms"

    def of(self, names: Sequence[str], i: int) -> str:
        """Return a name of `names`."""
        return names[(self._n + i) % len(names)]


def says(clip: str, at: str, kind: str = "say") -> dict[str, Any]:
    return {kind: None, "clip": clip, "at": at}


def hangs_up(at: str) -> dict[str, Any]:
    return {"hang_up": None, "at": at}


def barges_in(n: int, p: Phases) -> Scenario:
    """`n` replies in a row interrupted, each by words that get the next."""
    steps = [says(QUESTION, p.at(200))]
    for i in range(n):
        at = f"{p.at(900)} after agent onset"
        steps.append(says(f"en/{p.of(STOPS, i)}", at, "barge_in"))
    return {"steps": [*steps, hangs_up("700 ms after agent onset")]}


def insists(n: int, p: Phases) -> Scenario:
    """One reply interrupted `n` times."""
    steps = [says(QUESTION, p.at(200))]
    for i in range(n):
        at = f"{p.at(1050)} after {'previous' if i else 'agent onset'}"
        steps.append(says(f"en/{p.of(STOPS, i)}", at, "barge_in"))
    return {"steps": [*steps, hangs_up("4.3 s after previous")]}


def cuts_in_late(n: int, p: Phases) -> Scenario:
    """`n` replies interrupted 1.5 s after they began."""
    steps = []
    for i in range(n):
        steps.append(says(QUESTION, f"{p.at(4100)} after previous" if i else p.at(200)))
        at = f"{p.at(1450)} after agent onset"
        steps.append(says(f"en/{p.of(STOPS, i)}", at, "barge_in"))
    return {"steps": [*steps, hangs_up("4.1 s after previous")]}


def nods(n: int, p: Phases) -> Scenario:
    """`n` replies with a backchannel into each."""
    steps = []
    for i in range(n):
        steps.append(says(QUESTION, f"{p.at(5100)} after previous" if i else p.at(200)))
        at = f"{p.at(900)} after agent onset"
        steps.append(says(f"backchannel/{p.of(NODS, i)}", at, "backchannel"))
    return {"steps": [*steps, hangs_up("5.1 s after previous")]}


def disturbs(n: int, p: Phases) -> Scenario:
    """One reply of 8 s or more with `n` events into it, every other one a sham."""
    steps: list[dict[str, Any]] = [says(QUESTION, p.at(200))]
    for i in range(n):
        at = f"{p.at(500)} after {'previous' if i else 'agent onset'}"
        match i % 4:
            case 0:
                steps.append(says(f"backchannel/{p.of(NODS, i)}", at, "backchannel"))
            case 2:
                steps.append(says("noise/cough", at, "noise"))
            case _:
                steps.append({"sham": None, "at": at})
    return {"steps": [*steps, hangs_up("4.3 s after previous")]}


@dataclass(frozen=True)
class Case:
    """A setting of the agent, and how far off each time may be (s)."""

    name: str
    knobs: Knobs
    bound: float = 0.001
    protocol: str = TURNS


@dataclass(frozen=True)
class Group:
    """Cases that are tested alike: what the user does in each call, and how many events that is."""

    scenario: Callable[[int, Phases], Scenario]
    n: int
    cases: tuple[Case, ...]
    is_class: bool = field(default=False)
    """Whether each case is a class of its own, of which so many events are wanted."""

    @property
    def passes(self) -> int:
        """How often the cases are run."""
        each = self.n if self.is_class else self.n * len(self.cases)
        return max(1, math.ceil(N_EVENTS / each))


def stream(name: str, knobs: Knobs, bound: float = 0.001) -> Case:
    return Case(name, {**LIVE, **knobs}, bound, STREAM)


HUM: Knobs = {"hum_dbfs": -24}
"""Without it what is said is not heard in every part, and its end in noise has no truth."""
SILENT: Knobs = {"interrupt_response": False}
HOLDS: Knobs = {"backchannel_words": 2, "reply_length": 8.0}
PAUSES: Knobs = {"stop_delay": "never", "segments": 14}
GROUPS = {
    "clean": Group(barges_in, 3, tuple(
        Case(f"{stop} s, {pacing}{', no flush' if silent else ''}",
             {"stop_delay": stop, "pacing": pacing,
              **({**SILENT, "reply_length": 2.5} if silent else {})})
        for stop in (0, 0.2, 0.8) for pacing in ("paced", "x10", "burst")
        for silent in (False, True)
    )),
    "streams": Group(barges_in, 3, (
        stream("continuous", {}),
        stream("continuous, odd chunks", {"chunk": "333"}),
        stream("too fast", {"skew_ppm": 5000}),
        stream("too slow", {"skew_ppm": -5000}),
        stream("one stall of 2 s in each reply", {"stall": 2.0, "stall_at": 0.3}),
        Case("turns, too fast", {"skew_ppm": 5000}),
    )),
    "jitter": Group(barges_in, 3, (
        Case("jitter, paced", {"jitter_ms": 60}, 0.010),
        Case("jitter, burst", {"jitter_ms": 60, "pacing": "burst"}, 0.010),
        Case("jitter, no flush", {"jitter_ms": 60, **SILENT, "reply_length": 2.5}, 0.010),
        stream("jitter, continuous", {"jitter_ms": 60}, 0.010),
    )),
    "noise": Group(barges_in, 3, (
        stream("noise at -50 dBFS", {"noise_dbfs": -50, **HUM}, 0.020),
        stream("noise at -40 dBFS", {"noise_dbfs": -40, **HUM}, 0.020),
        stream("noise at -40 dBFS, slow stop",
               {"noise_dbfs": -40, "stop_delay": 0.8, **HUM}, 0.020),
        Case("noise inside replies only", {"noise_dbfs": -50, **HUM}, 0.020),
        stream("noise at -40 dBFS over parts of words", {"noise_dbfs": -40}, math.inf),
    )),
    "echo": Group(barges_in, 3, (
        Case("echo in turns", {"echo_db": -20}, 0.020),
        stream("echo in a continuous stream", {"echo_db": -20}, 0.020),
    )),
    "never": Group(insists, 5, (
        Case("never stops", {"stop_delay": "never", "reply_length": 24.0}),
        Case("half duplex", {"half_duplex": True, "reply_length": 24.0}),
        Case("stops at the third time", {"stop_on": 3, "reply_length": 24.0}),
        Case("pauses of 0.3 s", {**PAUSES, "segment_gap": 0.3}),
        Case("pauses of 0.75 s", {**PAUSES, "segment_gap": 0.75}),
        Case("pauses of 1.2 s", {**PAUSES, "segment_gap": 1.2}),
        stream("pauses of 1.2 s, continuous", {**PAUSES, "segment_gap": 1.2}),
        stream("pauses of 1.2 s in noise",
               {**PAUSES, "segment_gap": 1.2, "noise_dbfs": -50}, 0.020),
        stream("pauses of 1.2 s with echo", {**PAUSES, "segment_gap": 1.2, "echo_db": -20}, 0.020),
    )),
    "ends": Group(cuts_in_late, 3, (
        Case("ends at once", {"stop_delay": 0.8, "reply_length": 1.65}),
        Case("ends before it would stop", {"stop_delay": 0.8, "reply_length": 2.1}),
        Case("ends before it would stop, burst",
             {"stop_delay": 0.8, "reply_length": 2.1, "pacing": "burst"}),
        Case("ends late", {"stop_delay": "never", "reply_length": 2.8}),
        stream("ends before it would stop, continuous",
               {"stop_delay": 0.8, "reply_length": 2.1, "noise_dbfs": -50}, 0.020),
    )),
    "backchannels": Group(nods, 3, (
        Case("holds", HOLDS),
        Case("stutters for 0.5 s", {**HOLDS, "on_backchannel": "pause", "resume_delay": 0.5}),
        Case("stutters for 2 s", {**HOLDS, "on_backchannel": "pause", "resume_delay": 2.0}),
        Case("stops", {**HOLDS, "on_backchannel": "stop"}),
        Case("stops, burst", {**HOLDS, "on_backchannel": "stop", "pacing": "burst"}),
        Case("restarts", {**HOLDS, "on_backchannel": "interrupt"}),
        stream("stutters in noise",
               {**HOLDS, "on_backchannel": "pause", "noise_dbfs": -50}, 0.020),
    )),
    "shams": Group(disturbs, 8, (
        Case("held, clean", HOLDS),
        Case("held, burst", {**HOLDS, "pacing": "burst"}),
        Case("held, jitter", {**HOLDS, "jitter_ms": 60}, 0.010),
        Case("held, echo", {**HOLDS, "echo_db": -20}, 0.020),
        stream("held, continuous", HOLDS),
        stream("held, noise at -50 dBFS", {**HOLDS, "noise_dbfs": -50}, 0.020),
        stream("held, noise at -40 dBFS", {**HOLDS, "noise_dbfs": -40}, 0.020),
    ), is_class=True),
}  # fmt: skip
RIGHT = {
    "holds": "held",
    "stutters for 0.5 s": "stuttered",
    "stutters for 2 s": "stuttered",
    "stops": "stopped",
    "stops, burst": "stopped",
    "restarts": "restarted",
    "stutters in noise": "stuttered",
}


@pytest.fixture(scope="module")
def measured(with_truth: Callable[..., Any]) -> Callable[[str], Duplex]:
    """Return what was compared of a group; its calls are made once."""
    known: dict[str, Duplex] = {}

    def passes(group: Group) -> Iterator[Duplex]:
        for number in range(group.passes):
            targets = {
                case.name: (
                    {"greeting": False, "say": "long_1", "seed": number, **case.knobs},
                    case.protocol,
                )
                for case in group.cases
            }
            scenario = {"id": f"pass-{number}", **group.scenario(group.n, Phases(number))}
            yield compare_duplex(*with_truth(targets, [scenario], defaults=DEFAULTS))

    def of(name: str) -> Duplex:
        if name not in known:
            parts = list(passes(GROUPS[name]))
            known[name] = Duplex(
                [row for part in parts for row in part.rows],
                [verdict for part in parts for verdict in part.verdicts],
            )
        return known[name]

    return of


def cases(*names: str) -> pytest.MarkDecorator:
    """Parametrize a test by the cases of groups; one worker has all of a group, for its calls."""
    params = [
        pytest.param(name, case, id=case.name, marks=pytest.mark.xdist_group(f"duplex {name}"))
        for name in names
        for case in GROUPS[name].cases
    ]
    return pytest.mark.parametrize(("name", "case"), params)


def of_case(found: Duplex, case: Case) -> tuple[list[Row], list[Verdict]]:
    rows = [row for row in found.rows if row.condition == case.name]
    verdicts = [verdict for verdict in found.verdicts if verdict.condition == case.name]
    assert rows
    assert verdicts
    return rows, verdicts


def wrong_rows(rows: Sequence[Row], bound: float) -> list[Row]:
    """Return rows that state what is not so, or do not state what is so within `bound`."""

    def is_right(row: Row) -> bool:
        if not row.counts or row.covered is False:
            return False
        if isinstance(row.measured, Censored) and row.natural_end is not None:
            early = row.natural_end.value - row.measured.bound
            # Watching ends with the user's next turn, which may be before the agent's end.
            return early <= bound or row.condition in UNTIL_NEXT_TURN
        if row.truth is None:
            return True
        if isinstance(row.measured, Undefined):
            return row.measured.reason is Reason.ECHO and Flag.ECHO in row.flags
        return row.error is not None and abs(row.error) <= bound

    return [row for row in rows if not is_right(row)]


UNTIL_NEXT_TURN = {case.name for case in GROUPS["never"].cases}


@cases("clean", "streams", "jitter", "noise", "echo")
def test_each_stop_and_each_answer_is_timed(measured: Any, name: str, case: Case) -> None:
    rows, verdicts = of_case(measured(name), case)
    assert not wrong_rows(rows, case.bound)
    assert not [verdict for verdict in verdicts if not (verdict.counts and verdict.is_right)]
    stops = [row for row in rows if row.metric == "stop_heard"]
    assert len(stops) == GROUPS[name].n * GROUPS[name].passes
    plays_out = "no flush" in case.name and ("x10" in case.name or "burst" in case.name)
    kind = Censored if plays_out else Measured
    told = [row for row in stops if not isinstance(row.measured, Undefined)]
    assert {type(row.measured) for row in told} == {kind}
    assert len(told) >= 0.5 * len(stops)


@cases("never", "ends")
def test_no_stop_is_reported_where_there_was_none(measured: Any, name: str, case: Case) -> None:
    rows, verdicts = of_case(measured(name), case)
    assert not wrong_rows(rows, case.bound)
    assert not [verdict for verdict in verdicts if not (verdict.counts and verdict.is_right)]
    found = Counter(verdict.found for verdict in verdicts)
    if case.name == "stops at the third time":
        assert found["stopped"] == GROUPS[name].passes
    else:
        assert not found["stopped"]
        metrics = ("stop_reaction", "stop_network", "stop_heard")
        assert not [row for row in rows
                    if row.metric in metrics and isinstance(row.measured, Measured)]  # fmt: skip


@cases("backchannels")
def test_what_a_backchannel_did_is_told_apart(measured: Any, name: str, case: Case) -> None:
    rows, verdicts = of_case(measured(name), case)
    assert not wrong_rows(rows, case.bound)
    told = {(verdict.truth, verdict.found, verdict.counts) for verdict in verdicts}
    assert told == {(RIGHT[case.name], RIGHT[case.name], True)}
    assert len(verdicts) == GROUPS[name].n * GROUPS[name].passes


@cases("shams")
def test_an_agent_that_holds_sets_off_no_alarm(measured: Any, name: str, case: Case) -> None:
    rows, verdicts = of_case(measured(name), case)
    assert not wrong_rows(rows, case.bound)
    kinds = Counter(str(verdict.kind) for verdict in verdicts)
    assert kinds["sham"] == GROUPS[name].n // 2 * GROUPS[name].passes
    assert not [verdict for verdict in verdicts if not (verdict.counts and verdict.is_right)]


def test_the_error_of_a_skewed_stream_does_not_grow(with_truth: Callable[..., Any]) -> None:
    """With all events asked for the call lasts 10 minutes."""
    n = 170 if N_EVENTS else 15
    targets = {
        str(ppm): ({"greeting": False, "say": "long_1", **LIVE, "skew_ppm": ppm}, STREAM)
        for ppm in (5000, -5000)
    }
    scenario = {"id": "long", **barges_in(n, Phases(0))}
    found = compare_duplex(*with_truth(targets, [scenario], defaults=DEFAULTS))
    shares = [row for row in found.rows if row.step < 0]
    assert not wrong_rows([row for row in found.rows if row.step >= 0], 0.001)
    # A share of the call is a sum over all that was talked over.
    assert not wrong_rows(shares, 0.0001 * n)
    assert len([row for row in found.rows if row.metric == "stop_heard"]) == 2 * n
