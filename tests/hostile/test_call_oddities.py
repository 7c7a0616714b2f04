"""Targets that keep the format and mean nonsense: measured right or refused, never guessed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from vakforge_eval.metrics.hearing import hear
from vakforge_eval.signal.pcm import encode
from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_probe.errors import ExitCode

# --- order of messages -------------------------------------------------------------------------


async def _done_before_audio(peer: Any, name: str) -> None:
    await peer.say("response.created", response={"id": name})
    await peer.done(name)
    await asyncio.sleep(0.3)
    await peer.speak(0.5, name)


async def _audio_after_done(peer: Any, name: str) -> None:
    await peer.say("response.created", response={"id": name})
    await peer.speak(0.3, name)
    await peer.done(name)
    await peer.speak(0.3, name)


async def _never_created(peer: Any, name: str) -> None:
    await peer.speak(0.5, name)
    await peer.done(name)


async def _created_and_done_twice(peer: Any, name: str) -> None:
    for _ in range(2):
        await peer.say("response.created", response={"id": name})
    await peer.speak(0.5, name)
    for _ in range(2):
        await peer.done(name)
    await peer.done(f"{name}-unknown")


async def _ids_of_two_sessions(peer: Any, name: str) -> None:
    await peer.say("session.created", session={"id": "other", "type": "realtime"})
    await peer.say("response.created", response={"id": f"{name}-a"})
    await peer.say("response.created", response={"id": f"{name}-b"})
    await peer.audio(bytes(960), f"{name}-b", "item-1")
    await peer.speak(0.5, f"{name}-a", "item-1")
    await peer.say("response.output_audio.done", response_id=f"{name}-x", item_id="item-y")
    await peer.say("response.output_text.delta", response_id=f"{name}-x", delta="not mine")
    await peer.done(f"{name}-b")
    await peer.done(f"{name}-a")


async def _updates_in_between(peer: Any, name: str) -> None:
    await peer.say("session.updated", session={"type": "realtime"})
    await peer.answer(name)
    await peer.say("session.updated", session={})
    await peer.say("session.created", session={})


def test_answers_in_any_order_of_messages_are_measured(bench: Any) -> None:
    answers = (
        _done_before_audio,
        _audio_after_done,
        _never_created,
        _created_and_done_twice,
        _ids_of_two_sessions,
        _updates_in_between,
    )
    due: dict[str, list[float]] = {}

    def answering(answer: Any) -> Any:
        async def behave(peer: Any) -> None:
            await peer.open_session()
            mine = due.setdefault(answer.__name__, [])
            for turn in range(2):
                mine.append(await peer.spoken() + (answer is _done_before_audio) * 0.3)
                await answer(peer, f"r{turn}")
            await peer.listen()

        return behave

    judged = bench.judge_all({answer.__name__: answering(answer) for answer in answers})
    for name, one in judged.items():
        one.passed()
        assert one.measured("ttfa_audible") == pytest.approx(due[name], abs=1e-4), name


def test_loud_audio_that_belongs_to_no_response_is_noise_and_never_green(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        for _ in range(2):
            await peer.spoken()
            await peer.audio_without_ids(0.8)
        await peer.listen()

    judged = bench.judge(behave)
    assert judged.document["verdict"]["status"] == "nothing_measured"
    assert judged.exit_code in (ExitCode.TARGET, ExitCode.INVALID)
    for turn in judged.turns:
        assert turn["metrics"]["ttfa_heard"] == {"undefined": "noise_too_high"}


def test_audio_of_a_cancelled_response_is_never_heard(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        await peer.say("response.created", response={"id": "cut"})
        await peer.speak(3.0, "cut")
        await asyncio.sleep(0.5)
        await peer.done("cut", status="cancelled", status_details={"reason": "turn_detected"})
        for _ in range(20):
            await peer.speak(0.1, "cut")
            await asyncio.sleep(0.01)
        await peer.healthy(turns=1)
        await peer.listen()

    judged = bench.judge(behave)
    judged.passed()
    first, second = hear(judged.timeline).segments
    assert (first.response_id, second.response_id) == ("cut", "ok-0")
    assert first.duration_ns == pytest.approx(0.5 * NS_PER_S, abs=NS_PER_S // 1000)
    assert first.is_cut


def test_a_reply_that_the_target_takes_back_before_a_sample_was_heard_is_none(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        await peer.answer("taken back")
        await peer.say("input_audio_buffer.speech_started", audio_start_ms=7, item_id="ghost")
        await peer.healthy(turns=1)
        await peer.listen()

    judged = bench.judge(behave)
    judged.passed(n_replies=1)
    taken_back, answered = judged.turns
    assert taken_back["flags"] == ["no_reply"]
    assert taken_back["metrics"]["ttfa"] == {"censored": 2.0}
    assert answered["flags"] == []


def test_speech_that_only_the_target_heard_cuts_it_short_and_the_call_goes_on(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.say("input_audio_buffer.speech_started", audio_start_ms=0, item_id="ghost")
        await peer.say("input_audio_buffer.speech_stopped", audio_end_ms=0, item_id="ghost")
        for turn in range(2):
            await peer.spoken()
            await peer.say("response.created", response={"id": f"r{turn}"})
            await peer.speak(2.0, f"r{turn}", f"i{turn}")
            await asyncio.sleep(0.5)
            await peer.say("input_audio_buffer.speech_started", audio_start_ms=7, item_id="ghost")
            await peer.say("input_audio_buffer.speech_started", audio_start_ms=7, item_id="ghost")
            told = await peer.take("conversation.item.truncate")
            truncates.append((told["item_id"], told["audio_end_ms"]))
            await peer.done(f"r{turn}")
        await peer.listen()

    truncates: list[tuple[str, int]] = []
    judged = bench.judge(behave)
    judged.passed()
    assert len(judged.of("flush")) == 2
    assert [s.is_cut for s in hear(judged.timeline).segments] == [True, True]
    assert truncates == [("i0", 500), ("i1", 500)]


# --- numbers that no clock shows -----------------------------------------------------------------


OFFSETS = {"-1e308": -1e308, "-5": -5, "0": 0.0, "1e18": 1e18, "1e308": 1e308, "10^63": 10**63}


def claiming(value: float) -> Any:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        for turn in range(2):
            await peer.begun()
            await peer.say("input_audio_buffer.speech_started", audio_start_ms=value, item_id="u")
            await peer.spoken()
            await peer.say("input_audio_buffer.speech_stopped", audio_end_ms=value, item_id="u")
            await peer.say("conversation.item.truncated", audio_end_ms=value, item_id="u")
            await peer.answer(f"r{turn}")
        await peer.listen()

    return behave


def test_offsets_of_a_mad_clock_are_kept_and_measure_nothing(bench: Any) -> None:
    judged = bench.judge_all({name: claiming(value) for name, value in OFFSETS.items()})
    for name, one in judged.items():
        one.passed()
        assert len(one.measured("endpoint_delay")) == 2
        if name != "0":
            assert one.measured("endpoint_delay_claimed") == []


# --- audio formats ---------------------------------------------------------------------------


def output(form: object) -> dict[str, Any]:
    return {"audio": {"output": {"format": form}}}


FORMATS: dict[str, tuple[Any, str, int]] = {
    "mu-law": (output({"type": "audio/pcmu"}), "pcmu", 8000),
    "a-law": (output({"type": "audio/pcma"}), "pcma", 8000),
    "flat a-law": ({"type": None, "output_audio_format": "g711_alaw"}, "pcma", 8000),
    "16 kHz": (output({"type": "audio/pcm", "rate": 16000}), "pcm_s16le", 16000),
    "48 kHz": (output({"type": "audio/pcm", "rate": 48000}), "pcm_s16le", 48000),
    "8 kHz": (output({"type": "audio/pcm", "rate": 8000}), "pcm_s16le", 8000),
}


def tone(seconds: float, codec: str, rate_hz: int) -> bytes:
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    return encode((np.cos(2 * np.pi * 500 * t) * 9000).astype(np.int16), codec)


def length_of_reply(judged: Any) -> list[float]:
    ends, starts = judged.measured("total_response"), judged.measured("ttfa_heard")
    return [end - start for end, start in zip(ends, starts, strict=True)]


def test_audio_in_a_format_that_was_not_asked_for_is_decoded_as_what_it_is(bench: Any) -> None:
    def granting(session: Any, codec: str, rate_hz: int) -> Any:
        async def behave(peer: Any) -> None:
            await peer.open_session(**session)
            for turn in range(2):
                await peer.spoken()
                await peer.answer(f"r{turn}", tone(0.7, codec, rate_hz))
            await peer.listen()

        return behave

    judged = bench.judge_all({name: granting(*form) for name, form in FORMATS.items()})
    for name, one in judged.items():
        one.passed()
        assert length_of_reply(one) == pytest.approx([0.7, 0.7], abs=0.003), name
        rates = {chunk["rate_hz"] for chunk in one.of("audio_chunk")}
        assert rates == {FORMATS[name][2]}


REFUSED: dict[str, Any] = {
    "opus": output("opus"),
    "flat opus": {"type": None, "output_audio_format": "opus"},
    "pcm at 4 kHz": output({"type": "audio/pcm", "rate": 4000}),
    "pcm at a text": output({"type": "audio/pcm", "rate": "24000"}),
    "mu-law at 16 kHz": output({"type": "audio/pcmu", "rate": 16000}),
    "hears mu-law": {"audio": {"input": {"format": {"type": "audio/pcmu"}}}},
    "hears 16 kHz": {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}},
    "hears flat a-law": {"type": None, "input_audio_format": "g711_alaw"},
}


def test_a_session_in_which_one_side_would_hear_noise_is_refused_in_ready(bench: Any) -> None:
    def granting(session: Any) -> Any:
        async def behave(peer: Any) -> None:
            await peer.open_session(**session)
            await peer.listen()

        return behave

    judged = bench.judge_all({n: granting(s) for n, s in REFUSED.items()}, within_s=0.1)
    for one in judged.values():
        failure = one.failed("protocol_error", "ready")
        assert "audio" in failure.message


def test_a_rate_that_changes_in_mid_call_counts_from_there_on(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        await peer.say("response.created", response={"id": "a"})
        await peer.audio(tone(0.4, "pcm_s16le", 24000), "a")
        await peer.say("session.updated", session=output({"type": "audio/pcm", "rate": 8000}))
        await peer.audio(tone(0.4, "pcm_s16le", 8000), "a")
        await peer.say("session.updated", session=output({"type": "audio/pcmu"}))
        await peer.audio(tone(0.4, "pcmu", 8000), "a")
        await peer.done("a")
        await peer.spoken()
        await peer.answer("b", tone(0.5, "pcmu", 8000))
        await peer.listen()

    judged = bench.judge(behave)
    judged.passed()
    assert length_of_reply(judged) == pytest.approx([1.2, 0.5], abs=0.003)


def test_a_format_that_becomes_unknown_in_mid_call_ends_it(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.healthy(turns=1)
        await peer.spoken()
        await peer.say("session.updated", session=output("opus"))
        await peer.answer("noise")
        await peer.listen()

    judged = bench.judge(behave)
    judged.failed("protocol_error", "call")
    assert len(judged.of("audio_chunk")) == 1


# --- tool calls -----------------------------------------------------------------------------------


def calling(*calls: dict[str, Any], twice: bool = False) -> Any:
    """Return a target that calls tools in its first turn, waits for results and answers."""

    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        await peer.say("response.created", response={"id": "t"})
        for call in calls:
            if twice:
                await peer.say("response.function_call_arguments.done", **call)
        body = [{"type": "function_call", **call} for call in calls]
        await peer.done("t", output=body)
        await peer.take("response.create")
        await peer.answer("with result")
        await peer.healthy(turns=1)
        await peer.listen()

    return behave


def call(arguments: str = "{}", name: str = "look_up", call_id: str = "c") -> dict[str, Any]:
    return {"name": name, "call_id": call_id, "arguments": arguments}


TOOL_CALLS: dict[str, Any] = {
    "proper": calling(call()),
    "told twice": calling(call(), twice=True),
    "same id twice": calling(call(), call('{"again":true}')),
    "no JSON": calling(call("not json")),
    "empty": calling(call("")),
    "a list": calling(call("[1,2]")),
    "NaN": calling(call('{"x":NaN}')),
    "huge": calling(call(json.dumps({"x": "y" * 2_000_000}))),
    "deep": calling(call("[" * 50_000)),
    "hostile name": calling(call(name="../\x1b[31m<script>")),
    "hostile id": calling(call(call_id="\u202eid\n")),
    "unknown tool": calling(call(name="no_such_tool")),
    "many at once": calling(*(call(call_id=f"c{n}") for n in range(50))),
}


def test_tool_calls_of_any_kind_are_answered_once_and_the_call_goes_on(bench: Any) -> None:
    judged = bench.judge_all(TOOL_CALLS)
    for name, one in judged.items():
        one.passed()
        results = [line for line in one.of("sent") if line["what"] == "tool_result"]
        assert len(results) == (50 if name == "many at once" else 1), name
        assert "\x1b" not in "".join(one.texts.values())


def test_a_tool_call_in_every_response_without_end_meets_the_calls_budget(bench: Any) -> None:
    async def behave(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        for n in range(10_000):
            await peer.say("response.created", response={"id": f"t{n}"})
            await peer.done(f"t{n}", output=[{"type": "function_call", **call(call_id=f"c{n}")}])
            await peer.take("response.create")
            await asyncio.sleep(0.1)

    judged = bench.judge(behave)
    judged.failed("timeout", "first_audio")
