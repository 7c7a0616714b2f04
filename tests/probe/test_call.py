"""One call on virtual time: what it sends, records and says of its end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from vakforge_eval.capture.build import build_timeline
from vakforge_eval.capture.reader import Capture
from vakforge_eval.timeline.events import Event, ToolCall
from vakforge_eval.timeline.records import Direction, Flags, Kind
from vakforge_probe import conversation
from vakforge_probe.call import Call, CallOutcome, CallPlan
from vakforge_probe.errors import (
    CaptureFault,
    ConfigError,
    TargetClosed,
    TargetRefused,
    TargetTimeout,
)
from vakforge_probe.limits import Limits
from vakforge_probe.net.virtual import VirtualLoop, run

MS = 1_000_000
S = 1_000_000_000
QUESTION = "en/order_delivery_date"


def user_audio(capture: Capture) -> Any:
    frames = capture.frames
    return frames[(frames["direction"] == Direction.USER) & (frames["kind"] == Kind.AUDIO)]


def test_a_call_goes_through_its_phases_and_hangs_up_as_scripted(
    with_agent: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    outcome = with_agent(playing(one_question))
    assert (outcome.reason, outcome.failure, outcome.recorder_problem) == ("hang_up", None, None)
    phases = [line["name"] for line in journal(outcome.capture, "phase")]
    assert phases == ["resolve", "connect", "handshake", "ready"]
    (ended,) = journal(outcome.capture, "call_ended")
    assert ended["reason"] == "hang_up"
    (closed,) = journal(outcome.capture, "closed")
    assert closed["by"] == "probe"
    assert journal(outcome.capture, "failure") == []
    assert Capture.open(outcome.capture).header["stamp_source"] == "virtual"


def test_the_same_call_on_virtual_time_is_the_same_to_the_byte(
    with_agent: Any, plan: Any, one_question: Any, tmp_path: Path
) -> None:
    def record() -> dict[str, bytes]:
        async def play(url: str) -> CallOutcome:
            return await Call(plan(url, one_question)).run()

        folder = with_agent(play, jitter_ms=15.0).capture
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        folder.rename(tmp_path / f"kept-{len(list(tmp_path.iterdir()))}")
        return files

    first, second = record(), record()
    for name in ("frames.bin", "user.wire", "agent.wire", "events.jsonl", "scenario.json"):
        assert first[name] == second[name], name


def test_a_step_is_spoken_at_the_moment_that_the_journal_says(
    with_agent: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    outcome = with_agent(playing(one_question))
    step = journal(outcome.capture, "step")[0]
    (utterance,) = build_timeline(Capture.open(outcome.capture)).utterances
    lead = utterance.step.voiced[0][0] * S // 24_000
    assert abs(utterance.start.at - step["due"] - lead) < 0.05 * MS
    started = journal(outcome.capture, "stream_started")[0]
    assert utterance.start.at - (started["due"] - 20 * MS) == pytest.approx(0.2 * S, abs=0.05 * MS)


def test_the_model_is_asked_for_in_the_url_and_in_the_session(
    with_target: Any, playing: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        assert peer.connection.request.path == "/?model=small"
        await peer.open_session()
        await peer.connection.close()

    _, peer = with_target(target, playing(one_question, model="small"))
    assert peer.got[0]["session"]["model"] == "small"


# -- the conversation -------------------------------------------------------------------------


def test_a_target_without_turn_detection_gets_each_turn_committed_at_its_end(
    with_target: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.open_session(turn_detection=None)
        await peer.take("input_audio_buffer.commit")
        await peer.take("response.create")
        await peer.say("response.created", response={"id": "r"})
        await peer.audio(400)
        await peer.say("response.done", response={"id": "r", "status": "completed"})
        await peer.listen()

    outcome, peer = with_target(target, playing(one_question))
    assert outcome.reason == "hang_up"
    (commit,) = journal(outcome.capture, "sent", "commit")
    step = journal(outcome.capture, "step")[0]
    capture = Capture.open(outcome.capture)
    audio = user_audio(capture)
    last = (step["start_sample"] + capture.script.steps[0].voiced[-1][1] - 1) // 480
    assert audio["after"][last] <= commit["before"] < audio["before"][last + 1]
    assert sum(m["type"] == "input_audio_buffer.commit" for m in peer.got) == 1


def test_nothing_is_committed_where_the_target_detects_turns_itself(
    with_agent: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    outcome = with_agent(playing(one_question))
    assert journal(outcome.capture, "sent", "commit") == []


TOOLS = [
    {
        "name": "get_order_status",
        "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}},
        "result": {"status": "on the way"},
        "delay": "735 ms",
    }
]


def calling(name: str, n: int = 1) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """A target that calls a tool, or several at once, and then answers."""

    async def target(peer: Any) -> None:
        await peer.open_session()
        await peer.take("input_audio_buffer.append")
        await peer.say("response.created", response={"id": "c"})
        calls = [
            {"id": f"f{i}", "type": "function_call", "call_id": f"c{i}", "name": name,
             "arguments": "{}"}
            for i in range(n)
        ]  # fmt: skip
        for item in calls:
            await peer.say("response.output_item.done", response_id="c", item=item)
        await peer.say(
            "response.done", response={"id": "c", "status": "completed", "output": calls}
        )
        for _ in calls:
            await peer.take("conversation.item.create")
        await peer.take("response.create")
        await peer.say("response.created", response={"id": "r"})
        await peer.audio(400)
        await peer.say("response.done", response={"id": "r", "status": "completed"})
        await peer.listen()

    return target


def test_a_tool_is_answered_from_the_script_after_its_delay(
    with_target: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    outcome, peer = with_target(
        calling("get_order_status"), playing({**one_question, "tools": TOOLS})
    )
    (called,) = journal(outcome.capture, "tool_call")
    (answered,) = journal(outcome.capture, "sent", "tool_result")
    assert answered["before"] - called["hi"] == 735 * MS
    assert (answered["name"], answered["delay_s"]) == ("get_order_status", 0.735)
    (item,) = [m["item"] for m in peer.got if m["type"] == "conversation.item.create"]
    assert json.loads(item["output"]) == {"status": "on the way"}
    assert item["call_id"] == "c0"


def test_a_tool_that_the_scenario_does_not_know_is_refused_and_the_call_goes_on(
    with_target: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    outcome, peer = with_target(
        calling("launch_rockets"), playing({**one_question, "tools": TOOLS})
    )
    assert (outcome.reason, outcome.failure) == ("hang_up", None)
    (item,) = [m["item"] for m in peer.got if m["type"] == "conversation.item.create"]
    assert json.loads(item["output"]) == {"error": "unknown tool"}
    (answered,) = journal(outcome.capture, "sent", "tool_result")
    assert answered["delay_s"] == 0.0


def test_several_tool_calls_get_one_request_for_an_answer(
    with_target: Any, playing: Any, one_question: Any
) -> None:
    _, peer = with_target(
        calling("get_order_status", n=3), playing({**one_question, "tools": TOOLS})
    )
    assert sum(m["type"] == "response.create" for m in peer.got) == 1


def test_an_answer_asked_for_while_a_response_runs_waits_for_its_end(
    with_target: Any, playing: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.open_session()
        await peer.take("input_audio_buffer.append")
        await peer.say("response.created", response={"id": "filler"})
        item = {"id": "f", "type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}
        await peer.say("response.output_item.done", response_id="filler", item=item)
        await peer.take("conversation.item.create")
        before = len(peer.got)
        for _ in range(20):
            await peer.take("input_audio_buffer.append")
        assert all(m["type"] != "response.create" for m in peer.got[before:])
        await peer.say("response.done", response={"id": "filler", "status": "completed"})
        await peer.take("response.create")
        await peer.listen()

    _, peer = with_target(target, playing(one_question))
    assert sum(m["type"] == "response.create" for m in peer.got) == 1


def test_a_tool_result_that_is_due_after_the_end_is_not_sent(
    with_target: Any, playing: Any, journal: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.open_session()
        await peer.take("input_audio_buffer.append")
        item = {"id": "f", "type": "function_call", "call_id": "c", "name": "get_order_status",
                "arguments": "{}"}  # fmt: skip
        await peer.say("response.output_item.done", response_id="r", item=item)
        await peer.listen()

    scenario = {
        "id": "short",
        "tools": TOOLS,
        "steps": [{"hang_up": None, "at": "0.5 s"}],
    }
    outcome, peer = with_target(target, playing(scenario))
    assert outcome.reason == "hang_up"
    assert len(journal(outcome.capture, "tool_call")) == 1
    assert journal(outcome.capture, "sent", "tool_result") == []
    assert all(m["type"] != "conversation.item.create" for m in peer.got)


@pytest.mark.parametrize("pacing", ["paced", "x10", "burst"])
def test_what_a_flush_cuts_is_truncated_to_what_was_heard(
    with_agent: Any, playing: Any, journal: Any, truth: Any, pacing: str
) -> None:
    scenario = {
        "id": "interrupted",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"barge_in": None, "clip": "en/booking_stop", "at": "1.2 s after agent onset"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }
    outcome = with_agent(playing(scenario), pacing=pacing, say="long_1", chunk="60ms")
    assert outcome.failure is None
    flush = journal(outcome.capture, "flush")[0]
    first = next(
        line for line in truth("sent") if line["kind"] == "audio" and line["response"] is not None
    )
    assert flush["played_ms"] == (flush["hi"] - first["before"]) // MS
    cut = truth("truncated")[0]
    assert cut["audio_end_ms"] == flush["played_ms"]
    assert cut["item"] == flush["item_id"]
    (sent,) = journal(outcome.capture, "sent", "truncate")
    assert sent["item_id"] == flush["item_id"]
    assert sent["before"] == flush["hi"]


def test_a_reply_that_had_ended_before_the_user_speaks_is_not_truncated(
    with_agent: Any, playing: Any, journal: Any
) -> None:
    scenario = {
        "id": "polite",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"say": None, "clip": QUESTION, "at": "300 ms after agent end"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }
    outcome = with_agent(playing(scenario), say="short_ok")
    assert journal(outcome.capture, "flush") == []
    assert journal(outcome.capture, "sent", "truncate") == []


def test_audio_that_comes_before_the_session_is_ready_is_recorded_and_heard(
    with_target: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.say("response.created", response={"id": "r"})
        await peer.audio(300)
        await peer.say("response.done", response={"id": "r", "status": "completed"})
        await peer.open_session()
        await peer.listen()

    scenario = {
        "id": "greeted",
        "budgets": {"greeting": "1 s", "reply": "1 s"},
        "steps": [
            {"say": None, "clip": QUESTION, "at": "100 ms after greeting"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }
    outcome, _ = with_target(target, playing(scenario))
    assert len(journal(outcome.capture, "audio_chunk")) == 1
    greeted = build_timeline(Capture.open(outcome.capture))
    assert len(greeted.audio) == 1
    # It was heard before the stream began, so that the user's turn is due at once.
    step = journal(outcome.capture, "step")[0]
    started = journal(outcome.capture, "stream_started")[0]
    assert step["live"] is not None
    assert step["due"] - started["due"] < 2 * S


# -- how it ends ------------------------------------------------------------------------------


def test_the_budget_ends_a_call_to_the_nanosecond(
    with_agent: Any, playing: Any, journal: Any
) -> None:
    scenario = {
        "id": "endless",
        "budgets": {"call": "3 s", "reply": "2 s"},
        "steps": [
            {"say": None, "clip": QUESTION, "at": "0.2 s"},
            {"say": None, "clip": QUESTION, "at": "8 s"},
        ],
    }
    outcome = with_agent(playing(scenario))
    assert (outcome.reason, outcome.failure) == ("budget", None)
    (ended,) = journal(outcome.capture, "call_ended")
    (started,) = journal(outcome.capture, "stream_started")
    # Counted from the first sample as spoken, which is a frame before the first frame is due.
    assert ended["at"] == started["due"] - started["frame_ns"] + 3 * S


@pytest.mark.parametrize(("knob", "code"), [("close_at", 1000), ("abort_at", 1006)])
def test_a_target_that_goes_away_in_the_call_is_a_failure_with_its_phase(
    with_agent: Any, playing: Any, journal: Any, one_question: Any, knob: str, code: int
) -> None:
    outcome = with_agent(playing(one_question), **{knob: 1.0})
    assert isinstance(outcome.failure, TargetClosed)
    assert (outcome.failure.phase, outcome.reason) == ("call", "target_closed")
    (failure,) = journal(outcome.capture, "failure")
    assert (failure["kind"], failure["phase"]) == ("closed", "call")
    (closed,) = journal(outcome.capture, "closed")
    assert (closed["by"], closed["code"]) == ("target", code)


def test_nothing_that_comes_after_the_end_is_part_of_the_call(
    with_target: Any, plan: Any, journal: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.open_session()
        while True:
            await peer.audio(20)
            await asyncio.sleep(0.02)

    async def play(url: str) -> CallOutcome:
        call = Call(plan(url, one_question, limits=Limits(close_s=0.5)))
        running = asyncio.ensure_future(call.run())
        await asyncio.sleep(1.0)
        call.stop()
        return await running

    outcome, _ = with_target(target, play)
    (ended,) = journal(outcome.capture, "call_ended")
    assert ended["reason"] == "stopped"
    frames = Capture.open(outcome.capture).frames
    assert max(int(frames["hi"].max()), int(frames["after"].max())) <= ended["at"]


def test_a_session_that_never_comes_is_a_time_out_in_ready(
    with_target: Any, playing: Any, journal: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.listen()

    outcome, _ = with_target(target, playing(one_question, limits=Limits(ready_s=2.0)))
    assert isinstance(outcome.failure, TargetTimeout)
    assert outcome.failure.phase == "ready"
    assert [line["name"] for line in journal(outcome.capture, "phase")][-1] == "handshake"
    assert journal(outcome.capture, "stream_started") == []


def test_a_closed_port_is_a_refusal_and_leaves_a_readable_capture(
    playing: Any, journal: Any, one_question: Any
) -> None:
    outcome = run(playing(one_question)("ws://127.0.0.1:1/"))
    assert isinstance(outcome.failure, TargetRefused)
    (failure,) = journal(outcome.capture, "failure")
    assert (failure["kind"], failure["phase"]) == ("refused", "connect")


def test_a_target_that_cannot_be_dialled_leaves_nothing_on_the_disk(
    playing: Any, one_question: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        run(playing(one_question, ca=tmp_path / "missing.pem")("wss://127.0.0.1:1/"))
    assert not (tmp_path / "calls").exists()


def test_a_folder_that_is_taken_is_a_fault_before_anything_is_dialled(
    with_target: Any, plan: Any, one_question: Any
) -> None:
    async def play(url: str) -> None:
        taken = plan(url, one_question)
        taken.folder.mkdir(parents=True)
        with pytest.raises(CaptureFault, match="exists already"):
            Call(taken)

    with pytest.raises(IndexError):  # nobody ever connected
        with_target(None, play)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 1.5])
def test_a_stop_closes_connection_and_capture_at_any_moment(
    with_agent: Any, plan: Any, journal: Any, one_question: Any, after_s: float
) -> None:
    async def play(url: str) -> CallOutcome:
        call = Call(plan(url, one_question))
        running = asyncio.ensure_future(call.run())
        await asyncio.sleep(after_s)
        call.stop()
        call.stop("done")
        return await running

    outcome = with_agent(play)
    assert (outcome.reason, outcome.failure) == ("stopped", None)
    (ended,) = journal(outcome.capture, "call_ended")
    assert ended["reason"] == "stopped"


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_stop_does_not_wait_for_a_target_that_does_not_answer(
    plan: Any, journal: Any, one_question: Any, is_cancelled: bool
) -> None:
    async def main(port: int) -> tuple[Path, float]:
        chosen: CallPlan = plan(f"ws://127.0.0.1:{port}/", one_question)
        call = Call(chosen)
        running = asyncio.ensure_future(call.run())
        await asyncio.sleep(0.5)
        call.stop()
        if is_cancelled:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            outcome = await running
            assert (outcome.reason, outcome.failure) == ("stopped", None)
        return chosen.folder, asyncio.get_running_loop().time()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        folder, took_s = run(main(listener.getsockname()[1]))
    assert took_s == 0.5
    assert [line["name"] for line in journal(folder, "phase")] == ["resolve", "connect"]
    assert journal(folder, "call_ended")[0]["reason"] == "stopped"


@pytest.mark.parametrize("after_s", [0.0, 1.5])
@pytest.mark.parametrize("n_times", [1, 3])
def test_a_cancelled_call_closes_its_capture_before_it_lets_go(
    with_agent: Any, plan: Any, journal: Any, one_question: Any, after_s: float, n_times: int
) -> None:
    async def play(url: str) -> Path:
        chosen: CallPlan = plan(url, one_question)
        running = asyncio.ensure_future(Call(chosen).run())
        await asyncio.sleep(after_s)
        for _ in range(n_times):
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running
        return chosen.folder

    (ended,) = journal(with_agent(play), "call_ended")
    assert ended["reason"] == "stopped"


def test_a_bug_in_a_callback_is_raised_once_the_capture_is_closed(
    with_agent: Any, plan: Any, journal: Any, one_question: Any
) -> None:
    def refuse(event: Event) -> None:
        raise ZeroDivisionError("my bug")

    async def play(url: str) -> Path:
        chosen: CallPlan = plan(url, one_question)
        with pytest.raises(ZeroDivisionError, match="my bug"):
            await Call(chosen, on_event=refuse).run()
        return chosen.folder

    (failure,) = journal(with_agent(play), "failure")
    assert (failure["kind"], failure["phase"]) == ("probe_fault", "call")
    assert "ZeroDivisionError: my bug" in failure["message"]


def test_a_bug_in_a_timer_ends_the_call_instead_of_hanging_it(
    with_target: Any,
    plan: Any,
    journal: Any,
    one_question: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(tool: object) -> str:
        raise ZeroDivisionError("in a timer")

    monkeypatch.setattr(conversation, "_output_of", broken)

    async def play(url: str) -> Path:
        chosen: CallPlan = plan(url, {**one_question, "tools": TOOLS})
        with pytest.raises(ZeroDivisionError, match="in a timer"):
            await Call(chosen).run()
        return chosen.folder

    folder, _ = with_target(calling("get_order_status"), play)
    (called,) = journal(folder, "tool_call")
    (ended,) = journal(folder, "call_ended")
    assert ended["at"] - called["hi"] == 735 * MS


def test_events_are_handed_out_as_they_arrive(
    with_target: Any, plan: Any, one_question: Any
) -> None:
    told: list[Event] = []

    async def play(url: str) -> CallOutcome:
        chosen: CallPlan = plan(url, {**one_question, "tools": TOOLS})
        return await Call(chosen, on_event=told.append).run()

    with_target(calling("get_order_status"), play)
    assert told[0].TYPE == "ready"
    assert sum(isinstance(event, ToolCall) for event in told) == 1


def test_a_recorder_that_stops_is_told_and_the_call_goes_on(
    with_agent: Any, plan: Any, one_question: Any
) -> None:
    async def play(url: str) -> CallOutcome:
        call = Call(plan(url, one_question))
        call._writer._stop("the disk is full")
        return await call.run()

    outcome = with_agent(play)
    assert (outcome.reason, outcome.failure) == ("hang_up", None)
    assert "the disk is full" in outcome.recorder_problem
    assert Capture.open(outcome.capture).is_truncated


def test_the_probe_falls_behind_and_says_so(
    with_agent: Any, plan: Any, journal: Any, one_question: Any
) -> None:
    async def play(url: str) -> CallOutcome:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(1.0, loop.advance, 95 * MS)
        return await Call(plan(url, one_question)).run()

    outcome = with_agent(play)
    (moved,) = journal(outcome.capture, "reanchor")
    audio = user_audio(Capture.open(outcome.capture))
    flagged = audio["flags"] & Flags.REANCHORED != 0
    assert flagged.sum() == 1
    late = audio["before"] - audio["due"]
    assert int(late.max()) == moved["late_ns"] > 10 * MS
    steps = audio["due"][1:] - audio["due"][:-1]
    assert sorted(set(steps.tolist())) == [20 * MS, (1 + moved["shift_frames"]) * 20 * MS]
    (utterance,) = build_timeline(Capture.open(outcome.capture)).utterances
    assert utterance.is_reanchored


def test_a_step_after_a_stall_is_still_spoken_when_its_anchor_says(
    with_agent: Any, plan: Any, journal: Any
) -> None:
    scenario = {
        "id": "later",
        "steps": [
            {"say": None, "clip": QUESTION, "at": "3.0071 s"},
            {"hang_up": None, "at": "100 ms after agent end"},
        ],
    }

    async def play(url: str) -> CallOutcome:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(1.0, loop.advance, 95 * MS)
        return await Call(plan(url, scenario)).run()

    outcome = with_agent(play)
    assert len(journal(outcome.capture, "reanchor")) == 1
    step = journal(outcome.capture, "step")[0]
    (utterance,) = build_timeline(Capture.open(outcome.capture)).utterances
    lead = utterance.step.voiced[0][0] * S // 24_000
    assert abs(utterance.start.at - step["due"] - lead) < 0.05 * MS
    assert not utterance.is_reanchored


# -- secrets ----------------------------------------------------------------------------------

CANARY = "canary-1f0e9d8c7b6a"


@pytest.mark.parametrize("ending", ["error", "fault", "close", "hang_up"])
def test_no_byte_of_a_secret_is_kept_wherever_the_target_echoes_it(
    with_target: Any,
    playing: Any,
    one_question: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    ending: str,
) -> None:
    async def target(peer: Any) -> None:
        assert peer.connection.request.headers["Authorization"] == f"Bearer {CANARY}"
        await peer.say("session.created", session={"instructions": f"key {CANARY}"})
        await peer.take("session.update")
        if ending == "error":
            error = {"type": "auth", "code": CANARY, "message": f"bad key {CANARY}"}
            await peer.say("error", error=error)
        elif ending == "fault":
            await peer.connection.send(f'{{"type": "{CANARY}", oops')
        await peer.say("session.updated", session={"type": "realtime"})
        await peer.say(f"vendor.{CANARY}", note=CANARY)
        await peer.say(
            "response.output_audio_transcript.delta", response_id="r", item_id=CANARY, delta=CANARY
        )
        if ending == "close":
            await peer.connection.close(4001, f"revoked {CANARY}")
        await peer.listen()

    facts = {"headers": {"Authorization": f"Bearer {CANARY}"}, "secrets": (CANARY,)}
    outcome, _ = with_target(target, playing(one_question, limits=Limits(close_s=0.2), **facts))
    assert (outcome.failure is None) == (ending == "hang_up")
    said = capfd.readouterr()
    for text in (repr(outcome), str(outcome.failure), repr(outcome.failure), said.out, said.err):
        assert CANARY not in text
    files = [path for path in outcome.capture.rglob("*") if path.is_file()]
    assert len(files) == 7
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path.name
    assert b"*" * len(CANARY) in (outcome.capture / "agent.wire").read_bytes()


def test_a_bug_that_quotes_a_secret_does_not_write_it(
    with_agent: Any, plan: Any, journal: Any, one_question: Any
) -> None:
    def refuse(event: Event) -> None:
        raise ValueError(f"while sending {CANARY}")

    async def play(url: str) -> Path:
        chosen: CallPlan = plan(url, one_question, secrets=(CANARY,))
        with pytest.raises(ValueError, match="while sending"):
            await Call(chosen, on_event=refuse).run()
        return chosen.folder

    (failure,) = journal(with_agent(play), "failure")
    assert CANARY not in failure["message"]


def test_a_target_of_another_dialect_is_told_by_its_name(
    with_target: Any, playing: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.connection.send('{"type":"Welcome","request_id":"r"}')
        await peer.listen()

    outcome, _ = with_target(target, playing(one_question))
    assert outcome.failure.kind == "protocol_error"
    assert "seems to speak deepgram-agent, not openai-realtime" in str(outcome.failure)


def test_a_breach_in_the_words_of_another_dialect_names_it(
    with_target: Any, playing: Any, one_question: Any
) -> None:
    async def target(peer: Any) -> None:
        await peer.connection.send('{"serverContent":{"turnComplete":true}}')
        await peer.listen()

    outcome, _ = with_target(target, playing(one_question))
    assert outcome.failure.kind == "protocol_error"
    assert "seems to speak gemini-live" in str(outcome.failure)
