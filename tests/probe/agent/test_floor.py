"""Turn-taking: barge-in, backchannels, tools, manual commit, what the client asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

MS = 1_000_000
S = 1_000_000_000
Converse = Callable[..., Any]
Stream = Callable[..., Any]

# en/hello ends at 0.1 + 1.0 s; its reply of 5 s begins at 1.6 s, the second clip at about 3 s.
TALK = {"reply_length": 5.0, "stop_delay": 0.2}


@pytest.fixture
def barge_in(stream_of: Stream) -> Any:
    return stream_of(0.1, "en/hello", 2.0, "en/stop", 8.0)


@pytest.fixture
def mm_hm(stream_of: Stream) -> Any:
    return stream_of(0.1, "en/hello", 2.0, "backchannel/mm", 8.0)


def onset_ns(out: Any, n: int = 1) -> int:
    return int(out.lines("utterance")[n]["user_start"]["microphone"][0])


def kinds(out: Any) -> list[str]:
    return [g.kind for g in out.caller.got]


def done(out: Any) -> list[tuple[str, str | None]]:
    responses = [g.message["response"] for g in out.caller.all("response.done")]
    return [(r["status"], (r["status_details"] or {}).get("reason")) for r in responses]


@pytest.mark.parametrize("delay", [0.05, 0.2, 0.8])
@pytest.mark.parametrize("pacing", ["paced", "x10", "burst"])
def test_agent_stops_the_set_delay_after_the_callers_onset(
    converse: Converse, barge_in: Any, delay: float, pacing: str
) -> None:
    out = converse(barge_in, **{**TALK, "stop_delay": delay, "pacing": pacing})
    started = out.caller.all("input_audio_buffer.speech_started")[1].at
    assert started - onset_ns(out) == round(delay * S)
    (flush,) = [f for f in out.lines("flush") if f["before"] > onset_ns(out)]
    assert flush["before"] == started
    if pacing == "paced":
        first = out.caller.first("response.done")
        assert first.at == started
        assert done(out)[0] == ("cancelled", "turn_detected")
        late = [at for at, _, tag in out.caller.audio
                if tag == first.message["response"]["id"] and at > started]  # fmt: skip
        assert late == []
    else:
        assert done(out)[0] == ("completed", None)
    first_turn, second_turn = out.turns
    cut = first_turn["microphone"]["total_response"]["value"]
    assert abs(first_turn["user_end"]["microphone"][0] + cut * S - started) < 100_000
    assert second_turn["microphone"]["ttfa"]["value"] == 0.5


def test_a_very_fast_stop_comes_as_soon_as_the_onset_is_known(
    converse: Converse, barge_in: Any
) -> None:
    out = converse(barge_in, **{**TALK, "stop_delay": 0.0})
    started = out.caller.all("input_audio_buffer.speech_started")[1].at
    assert 0 <= started - onset_ns(out) <= 40 * MS


def test_stop_messages_come_in_the_order_of_a_real_server(
    converse: Converse, barge_in: Any
) -> None:
    out = converse(barge_in, **TALK)
    names = kinds(out)
    started = [i for i, k in enumerate(names) if k == "input_audio_buffer.speech_started"][1]
    assert names[started + 1 : started + 7] == [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert names[started + 7 : started + 11] == [
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]


def test_agent_that_never_stops_goes_on_and_says_nothing_of_speech(
    converse: Converse, barge_in: Any
) -> None:
    out = converse(barge_in, **{**TALK, "stop_delay": "never"})
    assert len(out.caller.all("input_audio_buffer.speech_started")) == 1
    assert done(out) == [("completed", None)]
    assert [line["rule"] for line in out.lines("ignored")] == ["never_stops"]
    assert len(out.turns) == 1


def test_without_interrupt_response_no_flush_is_assumed(converse: Converse, barge_in: Any) -> None:
    out = converse(barge_in, **{**TALK, "interrupt_response": False, "pacing": "burst"})
    assert out.lines("flush") == []
    session = out.caller.first("session.created").message["session"]
    assert session["audio"]["input"]["turn_detection"]["interrupt_response"] is False


def test_natural_end_just_before_the_stop_is_no_cancel(converse: Converse, barge_in: Any) -> None:
    # The onset is at 3.14 s; the reply runs from 1.6 s to 3.3 s, the stop would be at 3.94 s.
    out = converse(barge_in, **{**TALK, "reply_length": 1.7, "stop_delay": 0.8})
    assert done(out)[0] == ("completed", None)
    assert len(out.turns) == 2
    stop = out.lines("stop")[0]
    assert stop["response"] is None


def test_short_interruption_over_before_the_stop_keeps_the_message_order(
    converse: Converse, mm_hm: Any
) -> None:
    out = converse(mm_hm, **{**TALK, "stop_delay": 1.5})
    names = [k for k in kinds(out) if "speech_" in k]
    prefix = "input_audio_buffer.speech_"
    assert names == [prefix + "started", prefix + "stopped"] * 2


def test_backchannel_is_held_through(converse: Converse, mm_hm: Any) -> None:
    out = converse(mm_hm, **TALK, backchannel_words=2)
    assert done(out) == [("completed", None)]
    assert len(out.caller.all("input_audio_buffer.speech_started")) == 1
    assert len(out.turns) == 1
    assert [u["clip"] for u in out.lines("utterance")] == ["en/hello", "backchannel/mm"]


def test_backchannel_can_be_told_by_its_length(converse: Converse, mm_hm: Any) -> None:
    assert len(converse(mm_hm, **TALK, backchannel_seconds=0.4).turns) == 1
    assert len(converse(mm_hm, **TALK, backchannel_seconds=0.2).turns) == 2


@pytest.mark.parametrize("gap", [0.5, 2.0])
def test_backchannel_that_pauses_resumes_the_same_reply_after_the_gap(
    converse: Converse, mm_hm: Any, gap: float
) -> None:
    out = converse(mm_hm, **TALK, backchannel_words=2, on_backchannel="pause", resume_delay=gap)
    assert done(out) == [("completed", None)]
    gaps = np.diff([at for at, _, _ in out.caller.audio])
    assert gaps.max() == round(gap * S) + 20 * MS
    paused = [at for at, _, _ in out.caller.audio][int(np.argmax(gaps))]
    assert 0 <= onset_ns(out) + 200 * MS - paused < 20 * MS


def test_backchannel_that_stops_is_not_answered(converse: Converse, mm_hm: Any) -> None:
    out = converse(mm_hm, **TALK, backchannel_words=2, on_backchannel="stop")
    assert done(out) == [("cancelled", "turn_detected")]
    assert len(out.turns) == 1


def test_backchannel_treated_as_barge_in_restarts_with_a_new_reply(
    converse: Converse, mm_hm: Any
) -> None:
    out = converse(mm_hm, **TALK, backchannel_words=2, on_backchannel="interrupt")
    assert done(out) == [("cancelled", "turn_detected"), ("completed", None)]


def test_unknown_short_sound_is_a_backchannel_once_it_stayed_short(
    converse: Converse, stream_of: Stream
) -> None:
    rng = np.random.default_rng(5)
    sound = rng.integers(-6000, 6000, 4800).astype(np.int16)
    stream = np.concatenate([stream_of(0.1, "en/hello", 2.0), sound, stream_of(6.0)])
    held = converse(stream, **TALK, backchannel_seconds=0.5)
    assert done(held) == [("completed", None)]
    assert held.lines("utterance")[1]["source"] == "energy"
    stopped = converse(stream, **TALK, backchannel_seconds=0.1)
    assert done(stopped)[0] == ("cancelled", "turn_detected")


def test_speaking_again_before_the_reply_takes_it_back_at_once(
    converse: Converse, stream_of: Stream
) -> None:
    stream = stream_of(0.1, "en/hello", 0.4, "en/stop", 4.0)
    out = converse(stream, reply_delay=1.0, endpoint_silence=0.2)
    assert done(out) == [("cancelled", "turn_detected"), ("completed", None)]
    started = out.caller.all("input_audio_buffer.speech_started")[1].at
    assert started - onset_ns(out) <= 40 * MS
    assert out.turns[0]["microphone"]["ttfa"] is None
    assert out.turns[1]["microphone"]["ttfa"]["value"] == 1.0


def test_utterances_closer_than_the_endpoint_silence_are_one_turn(
    converse: Converse, stream_of: Stream
) -> None:
    stream = stream_of(0.1, "en/hello", 0.3, "en/stop", 4.0)
    out = converse(stream, endpoint_silence=0.5, reply_delay=0.6)
    (turn,) = out.turns
    assert turn["clips"] == ["en/hello", "en/stop"]
    assert turn["microphone"]["ttfa"]["value"] == 0.6


def test_energy_endpointing_cuts_in_at_a_pause_inside_a_clip(
    converse: Converse, stream_of: Stream
) -> None:
    stream = stream_of(0.1, "en/order", 4.0)  # pauses 0.4 s inside
    knobs: dict[str, Any] = {"endpoint_silence": 0.2, "reply_delay": 0.25}
    assert len(converse(stream, **knobs).turns) == 1
    cut_in = converse(stream, **knobs, endpointing="energy")
    assert len(cut_in.turns) == 2
    assert cut_in.turns[0]["user_end_sample"] == 2400 + 14400


def test_noise_is_no_turn_that_gets_an_answer(converse: Converse, stream_of: Stream) -> None:
    out = converse(stream_of(0.2, "noise/door", 2.0))
    assert [t["rule"] for t in out.turns] == ["noise"]
    assert out.caller.audio == []


def test_own_backchannels_come_while_the_caller_speaks(
    converse: Converse, stream_of: Stream
) -> None:
    out = converse(stream_of(0.1, "en/stop", 3.0), own_backchannel=0.5)
    nods = [line for line in out.lines("reply") if line["rule"] == "backchannel"]
    assert len(nods) == 2  # the clip lasts 1.56 s, and a third nod would outlast it
    first = out.caller.audio[0][0]
    assert first - onset_ns(out, 0) == 500 * MS
    assert out.turns[0]["microphone"]["ttfa"]["value"] == 0.5


def test_greeting_comes_after_its_delay_and_belongs_to_no_turn(
    converse: Converse, stream_of: Stream
) -> None:
    out = converse(stream_of(2.0, "en/hello", 2.0), greeting=True, greeting_delay=0.4)
    first_frame = out.caller.sent[0][0]
    assert out.caller.audio[0][0] - first_frame == 400 * MS
    (turn,) = out.turns
    assert turn["microphone"]["ttfa"]["value"] == 0.5


TOOL = {
    "type": "function",
    "name": "get_order_status",
    "parameters": {"type": "object", "properties": {"order_id": {}}, "required": ["order_id"]},
}


def tool_call_script(stream: Any, delay_s: float) -> Any:
    async def script(caller: Any) -> None:
        await caller.send(type="session.update", session={"type": "realtime", "tools": [TOOL]})

        async def answer() -> None:
            call = (await caller.wait_for("response.function_call_arguments.done")).message
            await asyncio.sleep(delay_s)
            item = {"type": "function_call_output", "call_id": call["call_id"], "output": "{}"}
            await caller.send(type="conversation.item.create", item=item)
            await caller.send(type="response.create")

        answering = asyncio.create_task(answer())
        await caller.play(stream)
        await answering

    return script


@pytest.mark.parametrize("filler", [True, False])
def test_tool_is_called_and_its_result_is_told(
    converse: Converse, stream_of: Stream, filler: bool
) -> None:
    stream = stream_of(0.1, "en/order", 6.0)
    out = converse(tool_call_script(stream, 0.9), filler=filler, answer_delay=0.1)
    call = out.caller.first("response.function_call_arguments.done")
    assert call.message["name"] == "get_order_status"
    assert json.loads(call.message["arguments"]) == {"order_id": "47192"}
    (turn,) = out.turns
    assert turn["rule"] == "order_looked_up"
    assert len(turn["responses"]) == 2
    said = "".join(
        g.message["delta"] for g in out.caller.all("response.output_audio_transcript.delta")
    )
    assert said.endswith("said order_status now")
    assert ("said filler now" in said) is filler
    end = turn["user_end"]["microphone"][0]
    answer_at = next(at for at, _, tag in out.caller.audio if tag == turn["responses"][1])
    assert answer_at - call.at >= 1000 * MS
    first = 500 * MS if filler else answer_at - end
    assert abs(turn["microphone"]["ttfa"]["value"] * S - first) < 2


def test_without_tools_nothing_is_called(converse: Converse, stream_of: Stream) -> None:
    stream = stream_of(0.1, "en/order", 3.0)

    async def script(caller: Any) -> None:
        await caller.send(type="session.update", session={"type": "realtime", "tools": [TOOL]})
        await caller.play(stream)

    out = converse(script, tools=False)
    assert out.turns[0]["rule"] == "order_without_tool"
    assert out.caller.all("response.function_call_arguments.done") == []


def manual(caller: Any) -> Any:
    session = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    return caller.send(type="session.update", session=session)


def test_manual_commit_gets_its_reply_and_no_speech_events(
    converse: Converse, stream_of: Stream
) -> None:
    async def script(caller: Any) -> None:
        await manual(caller)
        await caller.play(stream_of(0.1, "en/hello"))
        await caller.send(type="input_audio_buffer.commit")
        await caller.send(type="response.create")
        await caller.play(stream_of(3.0))

    out = converse(script, reply_delay=0.5)
    assert not any("speech_" in k for k in kinds(out))
    (turn,) = out.turns
    assert turn["clips"] == ["en/hello"]
    assert turn["microphone"]["ttfa"]["value"] == 0.5


def test_manual_commit_is_refused_where_it_is_off(converse: Converse, stream_of: Stream) -> None:
    async def script(caller: Any) -> None:
        await manual(caller)
        await caller.play(stream_of(0.1, "en/hello", 2.0))

    out = converse(script, manual=False)
    assert out.caller.first("error").message["error"]["code"] == "invalid_value"
    assert len(out.turns) == 1


def test_client_can_cancel_and_gets_an_error_when_nothing_runs(
    converse: Converse, stream_of: Stream
) -> None:
    stream = stream_of(0.1, "en/hello", 4.0)

    async def script(caller: Any) -> None:
        await caller.send(type="response.cancel")

        async def cancel() -> None:
            await caller.wait_for("response.output_audio.delta")
            await asyncio.sleep(0.5)
            await caller.send(type="response.cancel")

        cancelling = asyncio.create_task(cancel())
        await caller.play(stream)
        await cancelling

    out = converse(script, **TALK)
    assert out.caller.first("error").message["error"]["code"] == "response_cancel_not_active"
    assert done(out) == [("cancelled", "client_cancelled")]


def test_truncate_is_confirmed_and_one_beyond_the_audio_is_refused(
    converse: Converse, stream_of: Stream
) -> None:
    async def script(caller: Any) -> None:
        await caller.play(stream_of(0.1, "en/hello", 4.0))
        item = caller.first("response.output_audio.delta").message["item_id"]
        for cut in (700, 1500, 1501):
            await caller.send(
                type="conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=cut
            )
        await caller.play(stream_of(0.1))

    out = converse(script)
    cuts = [g.message["audio_end_ms"] for g in out.caller.all("conversation.item.truncated")]
    assert cuts == [700, 1500]
    assert [line["audio_end_ms"] for line in out.lines("truncated")] == [700, 1500]
    assert len(out.caller.all("error")) == 1


def test_stop_in_a_continuous_stream_leaves_only_the_background(
    converse: Converse, barge_in: Any
) -> None:
    out = converse(barge_in, **TALK, stream="continuous", greeting_delay=0.0)
    stop = out.caller.all("input_audio_buffer.speech_started")[1].at
    assert stop - onset_ns(out) == 200 * MS
    after = [(at, tag) for at, _, tag in out.caller.audio if at > stop][:10]
    assert {tag for _, tag in after} == {None}
    assert done(out)[0] == ("cancelled", "turn_detected")
