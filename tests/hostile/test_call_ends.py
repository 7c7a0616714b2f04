"""Targets that leave, or never speak: what was measured before stays, the rest is never green."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from vakforge_eval.timeline.instant import NS_PER_S

CODES = [1000, 1001, 1011, 1013, 4000]


async def first_turn_then_begin_the_second(peer: Any) -> None:
    await peer.open_session()
    await peer.healthy(turns=1)
    await peer.spoken()
    await peer.say("response.created", response={"id": "half"})


def half_measured(judged: Any) -> None:
    """The first turn stands, the second one failed with the call."""
    first, second = judged.turns
    assert first["flags"] == []
    assert first["metrics"]["ttfa"]["value"] > 0
    assert "call_failed" in second["flags"]
    assert second["metrics"]["total_response"] == {"undefined": "call_failed"}


def leaving_with(code: int) -> Any:
    async def leave(peer: Any) -> None:
        await first_turn_then_begin_the_second(peer)
        await peer.speak(0.2, "half")
        await peer.connection.close(code, "so long")

    return leave


def test_a_goodbye_in_mid_reply_fails_the_call_and_keeps_what_was_measured(bench: Any) -> None:
    judged = bench.judge_all({f"{code}": leaving_with(code) for code in CODES})
    for code in CODES:
        one = judged[f"{code}"]
        assert f"code {code}" in one.failed("closed", "call").message
        half_measured(one)
        (closed,) = one.of("closed")
        assert (closed["code"], closed["reason"], closed["by"]) == (code, "so long", "target")


def breaking(tail: bytes | None) -> Any:
    async def leave(peer: Any) -> None:
        await first_turn_then_begin_the_second(peer)
        await peer.audio(bytes(960), "half")  # a reply may begin with silence
        await asyncio.sleep(0.05)
        if tail is None:
            peer.reset()
        else:
            peer.below(tail)
            peer.connection.transport.close()

    return leave


def test_a_connection_that_breaks_in_mid_reply_fails_the_call_with_1006(bench: Any) -> None:
    tails = {
        "no close frame": b"",
        "reset": None,
        "half a frame": b"\x82\x7e\x10",
        "half a message": b"\x01\x04half",
    }
    for judged in bench.judge_all({n: breaking(tail) for n, tail in tails.items()}).values():
        assert "1006" in judged.failed("closed", "call").message
        half_measured(judged)


def test_a_goodbye_while_a_tool_result_is_due_leaks_nothing(bench: Any) -> None:
    async def leave(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        await peer.say("response.created", response={"id": "t"})
        call = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"}
        await asyncio.gather(peer.done("t", output=[call]), peer.connection.close(1011, "crashed"))

    bench.judge(leave).failed("closed", "call")


def leaving_after(seconds: float) -> Any:
    async def leave(peer: Any) -> None:
        await peer.open_session()
        talking = asyncio.ensure_future(peer.healthy())
        await asyncio.sleep(seconds)
        talking.cancel()
        await peer.connection.close(1011, "restart")

    return leave


def test_a_goodbye_at_every_moment_of_a_call_is_a_failed_call(bench: Any) -> None:
    judged = bench.judge_all({f"{n}": leaving_after(n / 7) for n in range(20)})
    for one in judged.values():
        one.failed("closed", "call")


def test_a_target_that_leaves_after_the_last_answer_was_heard_took_nothing_away(
    bench: Any,
) -> None:
    async def leave(peer: Any) -> None:
        await peer.open_session()
        await peer.healthy()
        await peer.connection.close(1000, "bye")

    judged = bench.judge(leave)
    judged.failed("closed", "call")
    assert len(judged.measured()) == 2


def test_a_mute_target_is_a_timeout_in_first_audio_and_every_turn_is_censored(bench: Any) -> None:
    async def mute(peer: Any) -> None:
        await peer.open_session()
        await peer.listen()

    judged = bench.judge(mute)
    judged.failed("timeout", "first_audio")
    never_answered(judged)


def never_answered(judged: Any) -> None:
    assert judged.document["verdict"]["status"] == "nothing_measured"
    turns = judged.turns
    assert len(turns) == 2
    for turn in turns:
        assert turn["flags"] == ["no_reply"]
        assert turn["metrics"]["ttfa"] == {"censored": 2.0}
        assert turn["metrics"]["ttfa_heard"] == {"censored": 2.0}
    (ended,) = judged.of("call_ended")
    assert ended["reason"] == "failure"


async def _hears_and_says_nothing(peer: Any) -> None:
    await peer.open_session()
    while True:
        await peer.spoken()
        await peer.say("input_audio_buffer.speech_stopped", audio_end_ms=1, item_id="u")
        await peer.say("input_audio_buffer.committed", item_id="u")
        await peer.say("response.created", response={"id": "r"})
        await peer.done("r")


async def _writes_only(peer: Any) -> None:
    await peer.open_session()
    for turn in range(2):
        name = f"r{turn}"
        await peer.spoken()
        await peer.say("response.created", response={"id": name})
        await peer.say("response.output_text.delta", response_id=name, delta="In text only.")
        await peer.done(name)
    await peer.listen()


async def _sends_empty_audio(peer: Any) -> None:
    await peer.open_session()
    for turn in range(2):
        await peer.spoken()
        await peer.answer(f"r{turn}", pcm=b"")
    await peer.listen()


async def _fails_every_response(peer: Any) -> None:
    await peer.open_session()
    for turn in range(2):
        name = f"r{turn}"
        await peer.spoken()
        await peer.say("response.created", response={"id": name})
        await peer.done(name, status="failed", status_details={"reason": "rate_limit"})
    await peer.listen()


def test_a_target_that_gives_signs_of_life_but_no_audio_is_mute(bench: Any) -> None:
    behaviours = (
        _hears_and_says_nothing,
        _writes_only,
        _sends_empty_audio,
        _fails_every_response,
    )
    for judged in bench.judge_all({b.__name__: b for b in behaviours}).values():
        judged.failed("timeout", "first_audio")
        assert judged.measured("ttfa") == []
        assert judged.document["verdict"]["status"] == "nothing_measured"


def test_a_mute_target_that_keeps_the_line_busy_ends_with_the_calls_budget(bench: Any) -> None:
    async def busy(peer: Any) -> None:
        await peer.open_session()
        for n in range(10_000):
            await peer.say("response.created", response={"id": f"r{n}"})
            await asyncio.sleep(1.0)

    judged = bench.judge(busy)
    judged.failed("timeout", "first_audio")
    (started,) = judged.of("stream_started")
    (ended,) = judged.of("call_ended")
    assert ended["at"] - started["due"] == pytest.approx(9 * NS_PER_S, abs=NS_PER_S // 10)


def test_digital_silence_is_audio_that_nobody_hears(bench: Any) -> None:
    async def whisper(peer: Any) -> None:
        await peer.open_session()
        for turn in range(2):
            await peer.spoken()
            await peer.answer(f"r{turn}", pcm=bytes(24_000))
        await peer.listen()

    judged = bench.judge(whisper)
    assert judged.outcome.failure is None
    for turn in judged.turns:
        assert "not_audible" in turn["flags"]
        assert turn["metrics"]["ttfa_heard"] == {"undefined": "not_audible"}


def test_one_turn_without_an_answer_is_a_censored_turn_of_a_good_call(bench: Any) -> None:
    async def skip(peer: Any) -> None:
        await peer.open_session()
        await peer.spoken()
        await peer.healthy(turns=1)
        await peer.listen()

    judged = bench.judge(skip)
    judged.passed(n_replies=1)
    assert judged.turns[0]["metrics"]["ttfa"] == {"censored": 2.0}


def test_an_empty_message_ahead_of_the_audio_does_not_make_a_reply_early(bench: Any) -> None:
    async def feint(peer: Any) -> None:
        await peer.open_session()
        for turn in range(2):
            ago_s = await peer.spoken()
            await peer.say("response.created", response={"id": f"r{turn}"})
            await peer.audio(b"", f"r{turn}")
            await asyncio.sleep(0.8)
            await peer.speak(0.5, f"r{turn}")
            await peer.done(f"r{turn}")
            peer.due_ttfa.append(0.8 + ago_s)
        due.extend(peer.due_ttfa)
        await peer.listen()

    due: list[float] = []
    judged = bench.judge(feint)
    judged.passed()
    assert judged.measured() == pytest.approx(due, abs=2e-9)
