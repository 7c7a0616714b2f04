"""The agent's smaller parts: playout, outbox, voice, dialogue, clips, G.711."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent import g711
from vakforge_probe.agent.behaviour import Behaviour
from vakforge_probe.agent.clips import Clip, ClipStore
from vakforge_probe.agent.dialogue import Dialogue
from vakforge_probe.agent.outbox import Letter, Outbox
from vakforge_probe.agent.player import AudioSent, FlushSent, Playout
from vakforge_probe.agent.speaker import BurstSpeaker
from vakforge_probe.agent.tape import Tape
from vakforge_probe.agent.truth import Ledger
from vakforge_probe.agent.voice import Encoder, Noise, Speech, compose
from vakforge_probe.errors import ConfigError
from vakforge_probe.protocol.openai_server import OpenAIRealtimeServer, ServerOptions

MS = 1_000_000


def sent(tag: str | None, first: int, n: int) -> AudioSent:
    return AudioSent(Instant.exact(0), tag, first, n)


class TestPlayout:
    def test_burst_plays_on_and_a_gap_restarts_at_the_arrival(self) -> None:
        player = Playout(1000)
        for arrival, n in ((0, 20), (0, 20), (100 * MS, 20)):
            player.push(sent("r", 0, n), arrival)
        assert [p[1] for p in player.played] == [0, 20 * MS, 100 * MS]
        assert player.drained_at == 120 * MS

    def test_flush_cuts_what_plays_and_drops_the_queue(self) -> None:
        player = Playout(1000)
        for _ in range(3):
            player.push(sent("r", 0, 20), 0)
        player.flush(30 * MS)
        assert [(p[1], p[2]) for p in player.played] == [(0, 20 * MS), (20 * MS, 30 * MS)]
        assert player.drained_at == 30 * MS

    def test_late_audio_of_a_flushed_response_never_sounds_but_a_new_one_does(self) -> None:
        player = Playout(1000)
        player.push(sent("old", 0, 20), 0)
        player.flush(10 * MS)
        player.push(sent("old", 20, 20), 15 * MS)
        player.push(sent("new", 0, 20), 15 * MS)
        assert [p[0].tag for p in player.played] == ["old", "new"]

    def test_flush_of_an_empty_queue_changes_nothing(self) -> None:
        player = Playout(1000)
        player.push(sent("r", 0, 20), 0)
        player.flush(50 * MS)
        assert player.played[0][2] == 20 * MS
        assert player.drained_at == 20 * MS


class TestLivePlayout:
    """Samples below 100 of each response are background."""

    @pytest.fixture
    def player(self) -> Playout:
        return Playout(1000, lambda sent, a, b: sent.tag is None or b <= 100)

    def test_it_is_a_plain_one_while_little_waits(self, player: Playout) -> None:
        for k in range(4):
            player.push(sent(None, 0, 20), k * 20 * MS)
        player.push(sent(None, 0, 60), 80 * MS)
        assert player.drained_at == 140 * MS
        assert [p.start for p in player.played] == [0, 20 * MS, 40 * MS, 60 * MS, 80 * MS]

    def test_background_is_left_out_while_it_holds_more_than_60_ms(self, player: Playout) -> None:
        for _ in range(50):
            player.push(sent(None, 0, 20), 0)
        assert player.drained_at == 70 * MS

    def test_voice_is_never_left_out(self, player: Playout) -> None:
        for k in range(10):
            player.push(sent("r", 40 + k * 20, 20), 0)
        # 60 samples of background fill it, all 140 of the voice follow.
        assert player.drained_at == 200 * MS
        assert sum(p.stop - p.start for p in player.played) == 200 * MS

    def test_message_in_two_pieces_keeps_the_places_of_its_samples(self, player: Playout) -> None:
        player.push(sent(None, 0, 60), 0)
        player.push(sent("r", 60, 60), 0)
        assert [(p.first, p.start, p.stop) for p in player.played] == [
            (0, 0, 60 * MS), (60, 60 * MS, 70 * MS), (100, 70 * MS, 90 * MS),
        ]  # fmt: skip

    def test_blocks_are_those_of_the_stream_wherever_messages_end(self, player: Playout) -> None:
        player.push(sent("r", 100, 75), 0)
        # 75 ms wait: the block begun above goes on, two more are judged when they are whole.
        player.push(sent(None, 0, 12), 0)
        assert player.drained_at == 80 * MS
        player.push(sent("r", 175, 13), 0)
        assert player.drained_at == 100 * MS
        assert [(p.sent.tag, p.first) for p in player.played] == [("r", 100), (None, 0), ("r", 175)]

    def test_long_message_is_no_excess_by_itself(self, player: Playout) -> None:
        for k in range(5):
            player.push(sent(None, 0, 300), k * 300 * MS)
        assert player.drained_at == 1500 * MS

    def test_excess_is_gone_once_background_has_come(self, player: Playout) -> None:
        player.push(sent("r", 100, 1000), 0)
        for k in range(1, 100):
            player.push(sent(None, 0, 20), k * 20 * MS)
        assert player.drained_at - 99 * 20 * MS <= 80 * MS

    @given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from([None, "r"])), max_size=60))
    def test_it_never_plays_two_things_at_once(self, steps: list[tuple[int, str | None]]) -> None:
        player = Playout(1000, lambda sent, a, b: sent.tag is None or a % 40 < 20)
        now = first = 0
        for wait, tag in steps:
            now += wait * MS
            player.push(sent(tag, first, 20), now)
            first += 20
        for before, after in itertools.pairwise(player.played):
            assert before.start < before.stop <= after.start

    def test_flush_names_what_it_took_from(self) -> None:
        player = Playout(1000)
        player.push(sent("old", 0, 20), 0)
        player.push(sent(None, 0, 20), 0)
        player.push(sent("cut", 0, 20), 0)
        cause = FlushSent(Instant.exact(50 * MS), onset=7)
        player.flush(50 * MS, cause)
        player.push(sent("old", 20, 20), 60 * MS)
        assert player.cut == {"cut": cause, "old": cause}
        assert player.talks_until == player.drained_at == 50 * MS

    def test_background_after_a_response_is_no_talk(self) -> None:
        player = Playout(1000)
        player.push(sent("r", 0, 20), 0)
        player.push(sent(None, 0, 20), 20 * MS)
        assert (player.talks_until, player.drained_at) == (20 * MS, 40 * MS)


class FakeAlarm:
    """An alarm whose clock the test moves."""

    def __init__(self) -> None:
        self.now, self.waiting = 0, list[tuple[int, Any]]()

    def call_at(self, ns: int, callback: Any) -> Any:
        entry = (ns, callback)
        self.waiting.append(entry)

        class Handle:
            def cancel(_self) -> None:
                if entry in self.waiting:
                    self.waiting.remove(entry)

        return Handle()

    def run_to(self, until: int) -> None:
        while due := sorted((w for w in self.waiting if w[0] <= until), key=lambda w: w[0]):
            self.waiting.remove(due[0])
            self.now = max(self.now, due[0][0])
            due[0][1]()
        self.now = until


def outbox(**knobs: Any) -> tuple[Outbox, FakeAlarm, list[tuple[int, str]]]:
    alarm, out = FakeAlarm(), list[tuple[int, str]]()
    box = Outbox(alarm, lambda: alarm.now, lambda m: out.append((alarm.now, m)), lambda: 0, **knobs)  # type: ignore[arg-type]
    return box, alarm, out


def put(box: Outbox, at: int, name: str, tag: str | None = None, stall: int = 0) -> None:
    box.put(at, Letter(lambda: [name], tag, None, stall))


class TestOutbox:
    def test_letters_leave_at_their_moment_in_order(self) -> None:
        box, alarm, out = outbox()
        for at, name in ((30, "c"), (10, "a"), (10, "b")):
            put(box, at, name)
        alarm.run_to(100)
        assert out == [(10, "a"), (10, "b"), (30, "c")]

    @given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 99))
    def test_jitter_keeps_the_order_and_its_bound(self, moments: list[int], seed: int) -> None:
        box, alarm, out = outbox(jitter_ns=300, seed=seed)
        for i, at in enumerate(moments):
            put(box, at, str(i))
        alarm.run_to(5000)
        planned = sorted(range(len(moments)), key=lambda i: (moments[i], i))
        assert [int(m) for _, m in out] == planned
        for at, name in out:
            assert 0 <= at - moments[int(name)] <= 300

    def test_dropped_letters_never_leave_and_the_others_do(self) -> None:
        box, alarm, out = outbox()
        put(box, 10, "old", "a")
        put(box, 20, "kept", "b")
        assert box.drop("a") == 1
        alarm.run_to(100)
        assert out == [(20, "kept")]

    def test_moved_letters_leave_later(self) -> None:
        box, alarm, out = outbox()
        put(box, 10, "x", "a")
        put(box, 20, "y", "b")
        box.move("a", 50)
        alarm.run_to(100)
        assert out == [(20, "y"), (60, "x")]

    def test_stall_holds_all_that_follows(self) -> None:
        box, alarm, out = outbox()
        put(box, 10, "a", None, 100)
        put(box, 20, "b")
        put(box, 200, "c")
        alarm.run_to(300)
        assert out == [(110, "a"), (110, "b"), (200, "c")]

    def test_a_burst_is_not_late_by_its_own_length_but_a_stall_is(self) -> None:
        box, alarm, _ = outbox()
        late: list[int] = []

        def send(message: str | bytes) -> None:
            alarm.now += 5

        box._send = send
        for _ in range(3):
            box.put(10, Letter(lambda: ["x"], None, lambda p: late.append(p.late_ns)))
        box.put(100, Letter(lambda: ["y"], None, lambda p: late.append(p.late_ns)))
        alarm.run_to(50)
        alarm.now = 170
        alarm.run_to(200)
        assert late == [0, 0, 0, 70]

    @pytest.mark.parametrize("late", [0, 5000])
    def test_text_of_one_moment_with_a_burst_leaves_before_it_on_a_clock_that_runs(
        self, late: int
    ) -> None:
        box, alarm, out = outbox()
        alarm.now = 1000 + late

        def now_ns() -> int:
            alarm.now += 1
            return alarm.now

        tape = Tape(24000)
        speaker = BurstSpeaker(
            Behaviour(pacing="burst"),
            OpenAIRealtimeServer(ServerOptions(), model="m", tag="1"),
            box,
            Ledger(tape, 24000, lambda obj: None),
            tape,
            now_ns,
        )
        reply = speaker.begin("test")
        speech = Speech(np.ones(1440, np.int16), ((0, 1440),), "two words")
        speaker.say(reply, speech, 1000, lambda: speaker.end(reply))
        alarm.run_to(20_000)
        kinds = [json.loads(message)["type"] for _, message in out]
        text, audio = "response.output_audio_transcript.delta", "response.output_audio.delta"
        deltas = [kind for kind in kinds if kind in (text, audio)]
        assert deltas == [text, text, audio, audio, audio]
        assert kinds[-1] == "response.done"

    def test_nothing_leaves_after_the_close(self) -> None:
        box, alarm, out = outbox()
        put(box, 10, "a")
        box.close()
        alarm.run_to(100)
        box.say(["b"])
        assert out == []


def clip(n: int, seed: int = 1, name: str = "x") -> Clip:
    pcm = np.random.default_rng(seed).integers(-8000, 8000, n).astype(np.int16)
    return Clip(f"agent/{name}", f"text {name}", pcm, ((0, n),))


class TestVoice:
    def test_segments_have_the_set_gaps(self) -> None:
        knobs = Behaviour(segments=3, segment_gap=0.5, leading_silence=0.1)
        speech = compose(knobs, [clip(2400)], [clip(4800, 2)])
        assert speech.voiced == ((2400, 4800), (16800, 21600), (33600, 38400))
        assert not speech.pcm[:2400].any()
        assert not speech.pcm[4800:16800].any()

    @pytest.mark.parametrize("seconds", [0.05, 0.5, 1.0, 3.3])
    def test_reply_is_cut_or_stretched_to_its_length_with_a_hard_edge(self, seconds: float) -> None:
        speech = compose(Behaviour(reply_length=seconds), [clip(24000)], [clip(12000, 2)])
        assert abs(len(speech.pcm) - seconds * 24000) < 48
        last_ms = np.abs(speech.pcm[-24:].astype(int)).max()
        assert last_ms >= 0.25 * np.abs(speech.pcm.astype(int)).max()

    def test_noise_has_the_set_level_and_is_seeded(self) -> None:
        zeros = np.zeros(48000, dtype=np.int16)
        a, b = (Noise(-50, 1).under(zeros) for _ in range(2))
        assert np.array_equal(a, b)
        assert abs(20 * np.log10(a.astype(float).std() / 32768) + 50) < 0.2
        assert np.array_equal(Noise(None, 1).under(zeros), zeros)

    def test_hum_leaves_no_part_of_the_voice_quiet_and_nothing_outside(self) -> None:
        quiet = Clip("agent/x", "x", np.ones(4800, dtype=np.int16), ((0, 4800),))
        speech = compose(Behaviour(hum_dbfs=-24, segments=2, leading_silence=0.1), [quiet], [quiet])
        (a, b), (c, _) = speech.voiced
        assert not speech.pcm[:a].any()
        assert not speech.pcm[b:c].any()
        blocks = speech.pcm[a:b].astype(float).reshape(-1, 240)
        levels = 20 * np.log10(np.sqrt(np.mean(blocks**2, axis=1)) / 32768)
        assert np.all(np.abs(levels + 24) < 0.01)

    def test_telephone_formats_keep_the_number_of_samples(self) -> None:
        pcm = clip(2400).pcm
        assert len(Encoder("pcm_s16le", 24000).encode(pcm)) == 4800
        assert len(Encoder("pcm_s16le", 16000).encode(pcm)) == 3200
        assert len(Encoder("float32le", 48000).encode(pcm)) == 19200
        assert len(Encoder("pcmu", 8000).encode(pcm)) == 800
        assert len(Encoder("pcma", 8000).encode(pcm)) == 800


ORDER_TOOL = {"name": "get_order_status", "parameters": {"required": ["order_id"]}}
BOOK_TOOL = {"name": "book_table", "parameters": {"required": ["day", "time", "people"]}}


class TestDialogue:
    @pytest.fixture
    def dialogue(self, clips: Path) -> Dialogue:
        return Dialogue(ClipStore(clips), has_tools=True)

    def test_order_number_is_looked_up_and_again_after_a_correction(
        self, dialogue: Dialogue
    ) -> None:
        first = dialogue.reply("My order number is four seven one nine two.", [ORDER_TOOL])
        assert first.tool == ("get_order_status", '{"order_id": "47192"}')
        assert dialogue.after_tool('{"status":"ok"}').clips[0].id == "agent/order_status"
        second = dialogue.reply("No, sorry, I meant four seven one nine three.", [ORDER_TOOL])
        assert second.tool == ("get_order_status", '{"order_id": "47193"}')

    def test_booking_waits_until_all_that_the_tool_requires_is_known(
        self, dialogue: Dialogue
    ) -> None:
        first = dialogue.reply("I want a table for four on Monday evening.", [BOOK_TOOL])
        assert (first.rule, first.tool) == ("booking_incomplete", None)
        second = dialogue.reply("No, I meant Tuesday, at half past seven.", [BOOK_TOOL])
        assert second.tool is not None
        assert json.loads(second.tool[1]) == {"day": "Tuesday", "time": "19:30", "people": 4}

    @pytest.mark.parametrize("output", ['{"error":"unknown"}', "null"])
    def test_failed_tool_is_regretted(self, dialogue: Dialogue, output: str) -> None:
        dialogue.reply("order 471", [ORDER_TOOL])
        assert dialogue.after_tool(output).clips[0].id == "agent/sorry"

    def test_unknown_speech_and_unknown_texts_get_generic_answers_in_turn(
        self, dialogue: Dialogue
    ) -> None:
        moves = [dialogue.reply(text, []) for text in ("", "what time is it", "and now")]
        assert [m.rule for m in moves] == ["not_understood", "generic", "generic"]
        assert [m.clips[0].id for m in moves] == [f"agent/generic_{n}" for n in (1, 2, 1)]


class TestClips:
    @pytest.fixture
    def copy(self, clips: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(clips, tmp_path / "clips"))

    def test_missing_clip_is_named(self, copy: Path) -> None:
        (copy / "agent" / "filler.json").unlink()
        with pytest.raises(ConfigError, match="agent/filler"):
            Dialogue(ClipStore(copy), has_tools=True)

    def test_empty_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no clips"):
            ClipStore(tmp_path)

    @pytest.mark.parametrize(
        "change",
        [{"sha256": "0" * 64}, {"voiced": [[0, 10**9]]}, {"voiced": 5}, {"text": None, "id": None}],
    )
    def test_sidecar_that_does_not_fit_its_clip_is_refused(
        self, copy: Path, change: dict[str, Any]
    ) -> None:
        sidecar = copy / "agent" / "filler.json"
        meta = json.loads(sidecar.read_text())
        meta.update(change)
        sidecar.write_text(json.dumps({k: v for k, v in meta.items() if v is not None}))
        with pytest.raises(ConfigError, match="filler"):
            ClipStore(copy)


class TestTape:
    @pytest.fixture
    def tape(self) -> Tape:
        tape = Tape(1000)
        for k, at in enumerate((20, 40, 65)):
            tape.append(np.full(20, k + 1, dtype=np.int16), Instant.exact(at * MS))
        return tape

    def test_a_sample_is_placed_in_its_own_frame_in_both_models(self, tape: Tape) -> None:
        assert [i.at for i in tape.spoken_start(20)] == [20 * MS, 40 * MS]
        assert [i.at for i in tape.spoken_end(20)] == [20 * MS, 40 * MS]
        # Position 40 ends the second frame, and begins the third, which came 5 ms late.
        assert tape.spoken_end(40)[0].at == 40 * MS
        assert tape.spoken_start(40)[0].at == 45 * MS

    def test_what_was_not_received_has_no_time(self, tape: Tape) -> None:
        with pytest.raises(IndexError):
            tape.spoken_end(61)

    def test_expected_goes_on_at_the_streams_rate(self, tape: Tape) -> None:
        assert tape.expected(70) == 75 * MS
        assert tape.expected(60) == 65 * MS

    def test_slices_beyond_the_ends_are_silence(self, tape: Tape) -> None:
        assert tape.slice(-2, 2).tolist() == [0, 0, 1, 1]
        assert tape.slice(58, 62).tolist() == [3, 3, 0, 0]

    def test_memory_is_bounded_and_positions_stay_true(self) -> None:
        tape = Tape(1000)
        for k in range(200):
            tape.append(np.full(1000, k, dtype=np.int16), Instant.exact(k))
        assert tape.length == 200_000
        assert tape.slice(199_500, 199_502).tolist() == [199, 199]
        assert tape._pcm.nbytes < 500_000


@pytest.mark.parametrize("codec", ["pcmu", "pcma"])
def test_g711_agrees_with_the_probes_own_tables(codec: str) -> None:
    from vakforge_eval.signal.pcm import PcmDecoder
    from vakforge_eval.signal.pcm import encode as probes_encode

    codes = bytes(range(256))
    decoded = g711.decode(codes, codec)
    assert np.array_equal(decoded, PcmDecoder(codec).feed(codes))
    assert np.array_equal(g711.decode(g711.encode(decoded, codec), codec), decoded)
    every = np.arange(-32768, 32768).astype(np.int16)
    assert g711.encode(every, codec) == probes_encode(every, codec)


def test_g711_error_stays_within_half_a_step() -> None:
    pcm = np.arange(-32768, 32768, 7, dtype=np.int32).astype(np.int16)
    for codec in ("pcmu", "pcma"):
        error = np.abs(g711.decode(g711.encode(pcm, codec), codec).astype(int) - pcm)
        assert np.all(error <= np.maximum(np.abs(pcm.astype(int)) / 30 + 16, 1))
