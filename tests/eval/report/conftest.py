"""A run as scoring hands it over: two systems, four scenarios, times drawn from a seed.

The last turn of each call barges in; a backchannel, a noise and a sham fall into the others.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vakforge_eval.metrics.claimed import Claimed
from vakforge_eval.metrics.expectations import Status, Verdict
from vakforge_eval.metrics.interruption import Relevance
from vakforge_eval.metrics.registry import METRICS, definitions
from vakforge_eval.report.document import build_document
from vakforge_eval.scoring.claims import claimed_part
from vakforge_eval.scoring.compare import breakdowns, summarise
from vakforge_eval.scoring.human import overlap_part
from vakforge_eval.scoring.rows import call_rows, turn_rows
from vakforge_eval.scoring.scores import CallScore, EventScore, ScoreSet, TurnScore
from vakforge_eval.timeline.values import (
    Censored,
    Flag,
    Measured,
    MetricValue,
    Rate,
    Reason,
    Undefined,
)

Row = dict[str, Any]
SYSTEMS = ("base", "tuned")
SCENARIOS = {
    "booking": ("en-US", "clean", "en"),
    "status check": ("en-GB", "phone", "en"),
    "order change": ("en-IN", "noisy", "en"),
    "पता बदलना": ("hi-Latn-IN", "clean", "hi"),
}
USER = {
    "booking": "I'd like to book a table for four, tomorrow at half past seven.",
    "status check": "Could you tell me where my parcel is? The number is 4471.",
    "order change": "Please change my order to two large pizzas, total is $24 | no more.",
    "पता बदलना": "मेरा पता बदलना है, naya address likh lijiye.",
}
AFTER_TTFT = {
    "ttft": 0.0,
    "ttfa": 0.05,
    "ttfa_audible": 0.13,
    "ttfa_heard": 0.14,
    "ttfs": 0.16,
    "total_response": 2.1,
    "endpoint_delay": -0.1,
}
N_REPEATS, N_TURNS = 3, 4
STOPS = {"base": 0.71, "tuned": 0.36}
RATES = {
    "backchannel": "false_interruption",
    "noise": "false_interruption_noise",
    "sham": "false_alarm",
}


def slices_of(scenario: str) -> dict[str, str]:
    locale, condition, language = SCENARIOS[scenario]
    return {
        "scenario": scenario,
        "locale": locale,
        "condition": condition,
        "language": language,
        "source": "synthetic",
        "anchor": "message",
    }


def values_of(first: float) -> dict[str, MetricValue]:
    """Return every turn metric: those after the first token measured, the rest with a reason."""
    found: dict[str, MetricValue] = {
        spec.name: Undefined(Reason.NOT_APPLICABLE) for spec in METRICS if spec.scope == "turn"
    }
    for name, after in AFTER_TTFT.items():
        found[name] = Measured(round(first + after, 9), (0.0002, 0.0002), (0.0005, 0.0))
    found["leading_silence"] = Measured(0.08, (0.0002, 0.0002))
    found["rtf"] = Measured(1.02)
    found["floor_transfer_offset"] = found["ttfa_heard"]
    return found


def barge_in(turn: TurnScore, number: int) -> TurnScore:
    """Return the turn as one that barges in: most stop, some end or talk on, one met silence."""
    first = round(STOPS[turn.system] + number / 100, 9)
    stops: dict[str, MetricValue] = {
        "stop_reaction": Measured(round(first - 0.12, 9), (0.0002, 0.0002)),
        "stop_network": Measured(round(first - 0.08, 9), (0.0002, 0.0002), (0.0004, 0.0)),
        "stop_heard": Measured(first, (0.0002, 0.0002), (0.0004, 0.0)),
    }
    answer: MetricValue = turn.metrics["ttfa_heard"]
    rates = {"missed_interruption": Rate(0, 1), "void_barge_ins": Rate(0, 1)}
    outcome, flags = "stopped", turn.flags
    status: Status = "pass"
    why = f"stopped after {1000 * first:.0f} ms"
    if turn.system == "base" and first > 0.8:
        status = "fail"
    if number in (3, 7):
        stops = dict.fromkeys(stops, Censored(0.2 + number / 100))
        outcome, status, why = "ended", "void", "the reply ended by itself"
    elif (turn.system, number) == ("base", 5):
        stops = dict.fromkeys(stops, Censored(11.5))
        outcome, flags = "never_stopped", (Flag.MISSED_INTERRUPTION,)
        rates["missed_interruption"] = Rate(1, 1)
        status, why = "fail", "still talking after 11500 ms"
    elif number == 9:
        stops = dict.fromkeys(stops, Undefined(Reason.AGENT_SILENT))
        answer = Undefined(Reason.AGENT_SILENT)
        outcome, flags = "silent", (Flag.VOID,)
        rates = {"void_barge_ins": Rate(1, 1)}
        status, why = "void", "agent silent"
    if outcome == "stopped":
        rates["relevant_reply"] = Rate(int(number != 1), 1)
    relevant: Relevance | None = None if outcome == "silent" else "unchecked"
    if "relevant_reply" in rates:
        relevant = "relevant" if rates["relevant_reply"].hits else "irrelevant"
    return replace(
        turn,
        kind="barge_in",
        flags=flags,
        metrics={
            **{name: value for name, value in turn.metrics.items() if name not in rates},
            **stops,
            "interruption_response": answer,
        },
        rates=rates,
        outcome=outcome,
        relevance=relevant,
        expectations=(Verdict("stop within 0.8 s", status, why),),
    )


def make_events(turns: list[TurnScore], number: int) -> list[EventScore]:
    """Return a call's background utterances: the base system stops at every third backchannel."""
    one = turns[0]
    events = []
    for place, (kind, name) in enumerate(RATES.items()):
        outcome = "held"
        flags: tuple[Flag, ...] = ()
        status: Status = "pass"
        values: dict[str, MetricValue] = {
            **{rate: Undefined(Reason.NOT_APPLICABLE) for rate in RATES.values() if rate != name},
            "stutter_gap": Undefined(Reason.NOT_APPLICABLE),
        }
        rates = {name: Rate(0, 1), "void_events": Rate(0, 1)}
        if kind == "backchannel" and one.system == "base" and number % 3 == 0:
            outcome, status, rates[name] = "stopped", "fail", Rate(1, 1)
        elif kind == "backchannel" and number % 3 == 1:
            outcome, flags = "stuttered", (Flag.STUTTER,)
            values["stutter_gap"] = Measured(round(0.4 + number / 50, 9), (0.0004, 0.0004))
        elif kind == "noise" and number == 4:
            outcome, flags, status = "ended", (Flag.VOID,), "void"
            values[name] = Undefined(Reason.NATURAL_END)
            rates = {"void_events": Rate(1, 1)}
        events.append(
            EventScore(
                system=one.system,
                call=one.call,
                scenario=one.scenario,
                cluster="",
                speaker=None,
                turn=place,
                step=10 + place,
                kind=kind,
                valid=True,
                flags=flags,
                values=values,
                rates=rates,
                outcome=outcome,
                slices=slices_of(one.scenario),
                user_text="" if kind == "sham" else "mhm",
                pair_key=(*one.pair_key[:3], 10 + place),
                expectations=(Verdict("hold", status, f"the agent {outcome}"),),
            )
        )
    return events


def make_turn(system: str, scenario: str, repeat: int, turn: int, first: float) -> TurnScore:
    flags: tuple[Flag, ...] = ()
    metrics = values_of(first)
    place = (system, scenario, repeat, turn)
    if place == ("base", "booking", 1, 1):
        flags = (Flag.NO_REPLY,)
        metrics |= {name: Censored(10.0) for name in AFTER_TTFT}
    if place == ("base", "order change", 1, 2):
        flags = (Flag.EARLY,)
        metrics |= {name: Measured(-0.18) for name in AFTER_TTFT if name.startswith("ttfa")}
        metrics["ttft"] = Undefined(Reason.NO_TEXT)
    if place == ("tuned", "status check", 0, 0):
        flags = (Flag.INVALID_PACING,)
    return TurnScore(
        system=system,
        call=f"{system}-{scenario.replace(' ', '-')}-{repeat}",
        scenario=scenario,
        cluster="",
        speaker=None,
        turn=turn,
        kind="say",
        valid=not any(flag.invalidates for flag in flags),
        flags=flags,
        metrics=metrics,
        slices={**slices_of(scenario), "endpointing": "server"},
        user_text=USER[scenario],
        agent_text=f"Sure, let me see. That is done for you now. ({system})",
        expected={"tools": [{"name": "save"}], "entities": [], "relevant_words": ["done"]},
        pair_key=(scenario, 1, repeat, turn),
    )


def make_call(turns: list[TurnScore], number: int) -> CallScore:
    one = turns[0]
    scenario, seed, repeat, _ = one.pair_key
    valid = [turn for turn in turns if turn.valid]
    early = sum(Flag.EARLY in turn.flags for turn in valid)
    missing = sum(Flag.NO_REPLY in turn.flags for turn in valid)
    return CallScore(
        system=one.system,
        call=one.call,
        scenario=scenario,
        script_hash=f"sha256:{len(scenario):02d}c4ca4238a0b923820dcc509a6f75849b",
        cluster="",
        speaker=None,
        valid=len(valid) == len(turns),
        failure=None,
        values={
            "setup": Measured(round(0.021 + number / 1000, 9), (0.0001, 0.0001)),
            "setup_tls": Undefined(Reason.NOT_APPLICABLE),
            "greeting_latency": Undefined(Reason.NO_GREETING),
            "send_lateness_p50": Measured(0.00006),
            "send_lateness_max": Measured(round(0.0019 + number / 10000, 9)),
            "clock_skew_ppm": Measured(-12.5, (3.0, 3.0)),
            "cpu_share": Measured(0.031),
            "loop_lag_max": Measured(0.0021),
            "overlap_rate": Measured(round(0.03 + number / 1000, 9), (0.001, 0.001)),
            "overlap_share_of_speech": Measured(round(0.04 + number / 1000, 9), (0.001, 0.001)),
            "agent_overlap_rate": Measured(round(0.01 + number / 1000, 9), (0.001, 0.001)),
            "talk_ratio": Measured(0.55, (0.01, 0.01)),
            "reprompts": Measured(0.0),
            "agent_interruptions": Measured(float(early)),
        },
        rates={
            "early_rate": Rate(early, len(valid)),
            "no_reply_rate": Rate(missing, len(valid)),
            "invalid_turns": Rate(len(turns) - len(valid), len(turns)),
            "failed_calls": Rate(0, 1),
            "frames_late": Rate(len(turns) - len(valid), 1500),
        },
        slices=slices_of(scenario),
        facts={"stamp_source": "kernel", "scheduling": {"policy": "SCHED_OTHER", "nice": 0}},
        pair_key=(scenario, seed, repeat, -1),
        claims=(Claimed("speech_stopped", Measured(1.31), Measured(1.0), Measured(0.31)),),
    )


def make_scores(system: str, scale: float) -> ScoreSet:
    rng = random.Random(7)
    turns: list[TurnScore] = []
    calls: list[CallScore] = []
    events: list[EventScore] = []
    for scenario in SCENARIOS:
        slow = 1.5 if scenario == "order change" and system == "tuned" else 1.0
        for repeat in range(N_REPEATS):
            held = [
                make_turn(
                    system,
                    scenario,
                    repeat,
                    turn,
                    round(slow * scale * rng.lognormvariate(-0.6, 0.22), 9),
                )
                for turn in range(N_TURNS)
            ]
            held[-1] = barge_in(held[-1], len(calls))
            turns += held
            events += make_events(held, len(calls))
            calls.append(make_call(held, len(calls)))
    return ScoreSet(system, tuple(turns), tuple(calls), definitions(), tuple(events))


@functools.cache
def scores_of(system: str) -> ScoreSet:
    return make_scores(system, {"base": 1.0, "tuned": 0.8}[system])


def make_sample(scenario: str, turn: int, first: float) -> Row:
    answers: Row = {
        system: {
            "call": f"{system}-{scenario}-0",
            "text": f"Sure, let me see. That is done for you now. ({system})",
            "audio": f"calls/{system}-{turn}/agent.wav" if turn == 0 else None,
            "flags": [],
            "metrics": {
                "ttfa_heard": Measured(round(delay, 9), (0.0002, 0.0002)).to_json(),
                "total_response": Measured(3.0, (0.0002, 0.0002)).to_json(),
            },
            "timeline": {
                "duration": 6.4,
                "user": [[0.0, 1.3], [1.7, 2.8]],
                "agent": [[round(2.8 + delay, 9), 4.4], [4.9, 5.8]],
                "marks": [
                    {"name": "user_end", "at": 2.8},
                    {"name": "ttfa_heard stop", "at": round(2.8 + delay, 9)},
                ],
            },
        }
        for system, delay in (("base", first), ("tuned", first - 0.12))
    }
    return {
        "scenario": scenario,
        "turn": turn,
        "kind": "say",
        "user_text": USER[scenario],
        "reference": "The agent confirms and repeats the number." if turn == 0 else None,
        "answers": answers,
    }


@functools.cache
def cached_inputs(systems: tuple[str, ...]) -> Row:
    base = scores_of("base") if len(systems) > 1 else None
    tuned = scores_of("tuned")
    sets = [scores_of(name) for name in systems]
    return {
        "systems": systems,
        "summary": summarise(base, tuned),
        "turns": [row for scores in sets for row in turn_rows(scores)],
        "calls": [row for scores in sets for row in call_rows(scores)],
        "provenance": {
            "manifest_hash": None,
            "config_hash": "sha256:5d41402abc4b2a76b9719d911017c592",
            "scripts": {name: f"sha256:{i:02d}c4ca4238a0b9" for i, name in enumerate(SCENARIOS)},
            "versions": {"vakforge-probe": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
            "judge": None,
            "seed": 1,
            "detector": "RMS over 10 ms, gate −55 dBFS, hysteresis 6 dB, run ≥ 30 ms",
            "playout": "fifo, buffer 0 ms",
        },
        "samples": [
            make_sample(name, turn, 0.55 + i / 50)
            for i, (name, turn) in enumerate((n, t) for n in SCENARIOS for t in (0, 1))
        ],
        "breakdowns": breakdowns(base, tuned),
        "overlap": overlap_part(sets),
        "claimed": claimed_part(sets),
        "hardware": {"tuned": {"gpu": "1 × L4 24 GB", "quantization": "int8", "batch_size": 4}},
        "verdict": {"status": "valid", "reasons": []},
    }


def make_inputs(systems: tuple[str, ...] = SYSTEMS) -> Row:
    return copy.deepcopy(cached_inputs(systems))


@pytest.fixture
def scores() -> tuple[ScoreSet, ScoreSet]:
    return scores_of("base"), scores_of("tuned")


@pytest.fixture(scope="session")
def run() -> Row:
    """Return the inputs to be shared: read only."""
    return cached_inputs(SYSTEMS)


@pytest.fixture
def inputs(run: Row) -> Row:
    return copy.deepcopy(run)


@pytest.fixture
def document(inputs: Row) -> Row:
    return build_document(**inputs)


@pytest.fixture
def single() -> Row:
    return build_document(**make_inputs(("tuned",)))


@pytest.fixture
def rebuild(inputs: Row) -> Callable[..., Row]:
    """Return a function that builds the document with some inputs replaced."""

    def build(**changed: Any) -> Row:
        return build_document(**{**inputs, **changed})

    return build


def tiny_document() -> Row:
    """Return a document small enough to be read: one metric, two turns a system."""
    values = {"base": (0.6, 0.64), "tuned": (0.48, 0.52)}
    turns = [
        {
            "system": system,
            "call": f"{system}-1",
            "scenario": "booking",
            "turn": turn,
            "kind": "say",
            "valid": True,
            "flags": [],
            "metrics": {"ttfa": {"value": v, "u": [0.0002, 0.0002], "u_detect": [0, 0]}},
        }
        for system, found in values.items()
        for turn, v in enumerate(found)
    ]
    row = {
        "metric": "ttfa",
        "unit": "s",
        "better": "lower",
        "definition": "ttfa/1",
        "start": "user_end",
        "stop": "first audio message",
        "detector": "arrival of the whole message",
        "systems": {
            system: {
                "n": 2,
                "clusters": 1,
                "n_early": 0,
                "n_no_reply": 0,
                "n_invalid": 0,
                "p50": found[0],
                "p50_ci": None,
                "p95": found[1],
                "p95_ci": None,
                "p95_label": "max",
                "bound": [round(found[0] - 0.0002, 9), round(found[0] + 0.0002, 9)],
                "ci_method": "none: one cluster",
                "low_n": True,
            }
            for system, found in values.items()
        },
        "delta": -0.12,
        "delta_bound": [-0.1204, -0.1196],
        "delta_ci": None,
        "resolution": "above resolution",
        "arrow": None,
        "arrow_withheld": "none: one cluster",
    }
    return build_document(
        SYSTEMS,
        [row],
        turns,
        [{"system": s, "call": f"{s}-1", "facts": {"stamp_source": "kernel"}} for s in SYSTEMS],
        {"seed": 1, "versions": {"vakforge-probe": "0.1.0"}},
    )


@pytest.fixture
def tiny() -> Row:
    return tiny_document()
