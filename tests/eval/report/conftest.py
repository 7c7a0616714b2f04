"""A run as scoring would hand it over: two systems, four scenarios, times drawn from a seed."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vakforge_eval.report.document import build_document

Row = dict[str, Any]
SYSTEMS = ("base", "tuned")
METRICS = {
    "ttft": ("user_end", "first text token"),
    "ttfa": ("user_end", "first audio message"),
    "ttfa_audible": ("user_end", "first audible sample, by arrival"),
    "ttfa_heard": ("user_end", "first audible sample, as heard"),
    "ttfs": ("user_end", "first ≥ 400 ms of speech, as heard"),
    "total_response": ("user_end", "last audible sample, as heard"),
}
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


def rank(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def make_turns() -> list[Row]:
    rng = random.Random(7)
    turns = []
    for system, scale in (("base", 1.0), ("tuned", 0.8)):
        for scenario, (locale, condition, language) in SCENARIOS.items():
            for repeat in range(3):
                for turn in range(4):
                    slow = 1.5 if scenario == "order change" and system == "tuned" else 1.0
                    first = round(slow * scale * rng.lognormvariate(-0.6, 0.22), 9)
                    row: Row = {
                        "system": system,
                        "call": f"{system}-{scenario.replace(' ', '-')}-{repeat}",
                        "scenario": scenario,
                        "turn": turn,
                        "kind": "say",
                        "valid": True,
                        "flags": [],
                        "slices": {
                            "scenario": scenario,
                            "locale": locale,
                            "condition": condition,
                            "language": language,
                            "source": "synthetic",
                        },
                        "metrics": {},
                    }
                    for i, name in enumerate(METRICS):
                        extra = (0.0, 0.05, 0.13, 0.14, 0.16, 2.1)[i]
                        row["metrics"][name] = {
                            "value": round(first + extra, 9),
                            "u": [0.0002, 0.0002],
                            "u_detect": [0.001, 0.0] if i >= 2 else [0, 0],
                        }
                    turns.append(row)
    never = turns[5]
    never["flags"], never["metrics"] = ["no_reply"], {n: {"censored": 10.0} for n in METRICS}
    early = turns[30]
    early["flags"] = ["early"]
    for name in ("ttfa", "ttfa_audible", "ttfa_heard", "ttfs"):
        early["metrics"][name]["value"] = -0.18
    early["metrics"]["ttft"] = {"undefined": "no_text"}
    spoilt = turns[60]
    spoilt["valid"], spoilt["flags"] = False, ["invalid_pacing"]
    return turns


def cell(turns: Sequence[Row], metric: str) -> Row:
    valid = [t for t in turns if t["valid"]]
    values = [m for t in valid if "value" in (m := t["metrics"][metric]) and m["value"] >= 0]
    numbers = [m["value"] for m in values]
    p50, p95 = rank(numbers, 0.5), rank(numbers, 0.95)
    few = len(numbers) < 20
    return {
        "n": len(numbers),
        "clusters": len({t["call"] for t in valid}),
        "n_early": sum("early" in t["flags"] for t in valid),
        "n_no_reply": sum("no_reply" in t["flags"] for t in valid),
        "n_invalid": len(turns) - len(valid),
        "p50": p50,
        "p50_ci": [round(p50 - 0.05, 9), round(p50 + 0.045, 9)],
        "p95": p95,
        "p95_ci": None if few else [round(p95 - 0.09, 9), round(p95 + 0.1, 9)],
        "p95_label": "max" if few else "p95",
        "bound": [round(p50 - 0.0002, 9), round(p50 + 0.0002, 9)],
        "ci_method": "t over clusters",
        "low_n": len(numbers) < 100,
    }


def summarise(turns: Sequence[Row], systems: Sequence[str]) -> list[Row]:
    rows = []
    for metric, (start, stop) in METRICS.items():
        cells = {s: cell([t for t in turns if t["system"] == s], metric) for s in systems}
        delta = None
        if len(systems) > 1:
            delta = round(cells["tuned"]["p50"] - cells["base"]["p50"], 9)
        rows.append(
            {
                "metric": metric,
                "unit": "s",
                "better": "lower",
                "definition": f"{metric}/1",
                "start": start,
                "stop": stop,
                "systems": cells,
                "delta": delta,
                "delta_ci": None
                if delta is None
                else [round(delta - 0.06, 9), round(delta + 0.05, 9)],
            }
        )
    rates = {s: [t for t in turns if t["system"] == s and t["valid"]] for s in systems}
    early: Row = {
        s: {
            "hits": (hits := sum("early" in t["flags"] for t in found)),
            "total": len(found),
            "value": round(hits / len(found), 9),
            "ci": [0.0, 0.08],
            "ci_method": "Wilson",
            "n": len(found),
            "clusters": len({t["call"] for t in found}),
            "low_n": len(found) < 100,
        }
        for s, found in rates.items()
    }
    delta = None
    if len(systems) > 1:
        delta = round(early["tuned"]["value"] - early["base"]["value"], 9)
    rows.append(
        {
            "metric": "early_rate",
            "unit": "rate",
            "better": "lower",
            "definition": "early_rate/1",
            "start": "turns",
            "stop": "replies that began before user_end",
            "systems": early,
            "delta": delta,
            "delta_ci": None if delta is None else [-0.06, 0.02],
        }
    )
    return rows


def make_calls(turns: Sequence[Row]) -> list[Row]:
    calls = []
    for i, name in enumerate(dict.fromkeys(t["call"] for t in turns)):
        first = next(t for t in turns if t["call"] == name)
        calls.append(
            {
                "system": first["system"],
                "call": name,
                "scenario": first["scenario"],
                "valid": True,
                "failure": None,
                "metrics": {"setup": {"value": 0.021 + i / 1000, "u": [0, 0], "u_detect": [0, 0]}},
                "transport": {
                    "stamp_source": "kernel",
                    "send_lateness_p50_s": 0.00006,
                    "send_lateness_max_s": 0.0019 + i / 10000,
                    "frames_late": 1 if i == 15 else 0,
                    "cpu_share": 0.031,
                    "loop_lag_max_s": 0.0021,
                    "clock_skew_ppm": -12.5,
                    "scheduling": "SCHED_OTHER",
                },
            }
        )
    return calls


def make_sample(scenario: str, turn: int, first: float) -> Row:
    answers: Row = {}
    for system, delay in (("base", first), ("tuned", first - 0.12)):
        answers[system] = {
            "call": f"{system}-{scenario}-0",
            "text": f"Sure, let me see. That is done for you now. ({system})",
            "audio": f"calls/{system}-{turn}/agent.wav" if turn == 0 else None,
            "flags": [],
            "metrics": {
                "ttfa_heard": {"value": round(delay, 9), "u": [0.0002, 0.0002], "u_detect": [0, 0]},
                "total_response": {"value": 3.0, "u": [0.0002, 0.0002], "u_detect": [0, 0]},
            },
            "timeline": {
                "duration": 6.4,
                "user": [[0.0, 1.3], [1.7, 2.8]],
                "agent": [[2.8 + delay, 4.4], [4.9, 5.8]],
                "marks": [
                    {"name": "user_end", "at": 2.8},
                    {"name": "ttfa_heard stop", "at": 2.8 + delay},
                ],
            },
        }
    return {
        "scenario": scenario,
        "turn": turn,
        "kind": "say",
        "user_text": USER[scenario],
        "reference": "The agent confirms and repeats the number." if turn == 0 else None,
        "answers": answers,
    }


def make_inputs(systems: Sequence[str] = SYSTEMS) -> Row:
    turns = [t for t in make_turns() if t["system"] in systems]
    breakdowns = []
    for by in ("scenario", "locale", "condition", "language", "source"):
        for value in sorted({t["slices"][by] for t in turns}):
            part = [t for t in turns if t["slices"][by] == value]
            breakdowns.append({"by": by, "value": value, "summary": summarise(part, systems)})
    return {
        "systems": systems,
        "summary": summarise(turns, systems),
        "turns": turns,
        "calls": make_calls(turns),
        "provenance": {
            "manifest_hash": None,
            "config_hash": "sha256:5d41402abc4b2a76b9719d911017c592",
            "scripts": {name: f"sha256:{i:02d}c4ca4238a0b9" for i, name in enumerate(SCENARIOS)},
            "versions": {"vakforge-probe": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
            "judge": None,
            "seed": 1,
            "detector": "RMS 10 ms, gate −55 dBFS, hysteresis 6 dB, run ≥ 30 ms",
            "playout": "fifo, buffer 0 ms",
        },
        "samples": [
            make_sample(name, turn, 0.55 + i / 50)
            for i, (name, turn) in enumerate((n, t) for n in SCENARIOS for t in (0, 1))
        ],
        "breakdowns": breakdowns,
        "hardware": {"tuned": {"gpu": "1 × L4 24 GB", "quantization": "int8", "batch_size": 4}},
        "verdict": {"status": "valid", "reasons": []},
    }


@functools.cache
def cached_inputs(systems: tuple[str, ...]) -> Row:
    return make_inputs(systems)


@pytest.fixture
def inputs() -> Row:
    return copy.deepcopy(cached_inputs(SYSTEMS))


@pytest.fixture
def document(inputs: Row) -> Row:
    return build_document(**inputs)


@pytest.fixture
def single() -> Row:
    return build_document(**copy.deepcopy(cached_inputs(("tuned",))))


@pytest.fixture
def tiny() -> Row:
    """A document small enough to be read: one metric, two turns a system."""
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
                "ci_method": "none: 1 cluster",
                "low_n": True,
            }
            for system, found in values.items()
        },
        "delta": -0.12,
        "delta_ci": None,
    }
    return build_document(
        SYSTEMS,
        [row],
        turns,
        [{"system": s, "call": f"{s}-1", "transport": {"stamp_source": "kernel"}} for s in SYSTEMS],
        {"seed": 1, "versions": {"vakforge-probe": "0.1.0"}},
    )


@pytest.fixture
def rebuild(inputs: Row) -> Callable[..., Row]:
    """Return a function that builds the document with some inputs replaced."""

    def build(**changed: Any) -> Row:
        return build_document(**{**copy.deepcopy(inputs), **changed})

    return build
