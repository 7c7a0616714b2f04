"""The truth log says what a caller on the same clock sees, to the nanosecond on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

MS = 1_000_000
S = 1_000_000_000
Converse = Callable[..., Any]
Stream = Callable[..., Any]

USER_END = 2400 + 24000
"""0.1 s of silence, then en/hello, voiced to its sample 24000."""


@pytest.fixture
def hello(stream_of: Stream) -> Any:
    return stream_of(0.1, "en/hello", 4.0)


def user_end_ns(out: Any, sample: int = USER_END) -> int:
    """Spoken time by the microphone model, from the caller's own record of its frames."""
    start = 0
    for at, n in out.caller.sent:
        if start < sample <= start + n:
            return int(at - (start + n - sample) * S // 24000)
        start += n
    raise AssertionError("never sent")


def heard_voice(out: Any, response_id: str | None = None) -> list[tuple[int, int]]:
    """When loud samples sounded, by a player of the caller's own (1 ms blocks would blur edges)."""
    spans: list[tuple[int, int]] = []
    playhead, odd = 0, b""
    for at, data, tag in out.caller.audio:
        data, odd = odd + data, b""
        if len(data) % 2:
            data, odd = data[:-1], data[-1:]
        pcm = np.frombuffer(data, dtype="<i2")
        start = max(at, playhead)
        playhead = start + round(len(pcm) * S / 24000)
        loud = np.flatnonzero(np.abs(pcm.astype(int)) > 0)
        if len(loud) and (response_id is None or tag == response_id):
            lo, hi = (start + round(int(i) * S / 24000) for i in (loud[0], loud[-1] + 1))
            spans.append((lo, hi))
    return spans


def seconds(turn: dict[str, Any], name: str) -> float:
    value = turn["microphone"][name]
    assert value["lo"] == value["hi"] == value["value"], "virtual time has no error"
    return float(value["value"])


@pytest.mark.parametrize("delay", [0.2, 0.5, 1.2])
@pytest.mark.parametrize("pacing", ["paced", "x10", "burst"])
def test_reply_comes_the_set_delay_after_the_last_voiced_sample(
    converse: Converse, hello: Any, delay: float, pacing: str
) -> None:
    out = converse(hello, reply_delay=delay, pacing=pacing)
    (turn,) = out.turns
    end = user_end_ns(out)
    assert turn["user_end_sample"] == USER_END
    assert turn["user_end"]["microphone"] == [end, end]
    assert out.caller.audio[0][0] - end == round(delay * S)
    assert seconds(turn, "ttfa") == delay
    assert turn["late_ns"] == 0


@pytest.mark.parametrize("phase", [0, 1, 77, 240, 479])
def test_delay_holds_at_every_phase_of_the_frame_grid(
    converse: Converse, stream_of: Stream, phase: int
) -> None:
    stream = np.concatenate([np.zeros(phase, dtype=np.int16), stream_of(0.1, "en/hello", 3.0)])
    out = converse(stream, reply_delay=0.3)
    (turn,) = out.turns
    assert abs(seconds(turn, "ttfa") - 0.3) < 1e-8
    assert turn["user_end_sample"] == USER_END + phase


@pytest.mark.parametrize("chunk", ["20ms", "480", "961b", "1b", "7ms", "300ms", "100000b"])
@pytest.mark.parametrize("pacing", ["paced", "burst"])
def test_truth_does_not_depend_on_the_chunk_size(
    converse: Converse, hello: Any, chunk: str, pacing: str
) -> None:
    lead, knobs = (0.02, {"reply_length": 0.05}) if chunk == "1b" else (0.15, {})
    out = converse(hello, chunk=chunk, pacing=pacing, leading_silence=lead, **knobs)
    (turn,) = out.turns
    end = user_end_ns(out)
    heard = heard_voice(out)
    assert abs(seconds(turn, "ttfa_heard") * S - (heard[0][0] - end)) <= 42_000
    assert abs(seconds(turn, "total_response") * S - (heard[-1][1] - end)) <= 42_000
    assert seconds(turn, "ttfa") == 0.5
    assert abs(seconds(turn, "ttfa_heard") - 0.5 - lead) <= 42e-6


@pytest.mark.parametrize("lead", [0.15, 0.3])
def test_leading_silence_parts_first_message_from_first_audible_sample(
    converse: Converse, hello: Any, lead: float
) -> None:
    out = converse(hello, leading_silence=lead, pacing="burst")
    (turn,) = out.turns
    assert seconds(turn, "ttfa") == 0.5
    assert abs(seconds(turn, "ttfa_heard") - 0.5 - lead) < 1e-6
    # All messages of a burst come together, so by arrival only the offset in the message counts.
    assert seconds(turn, "ttfa_audible") < 0.521


@pytest.mark.parametrize("knobs", [{"pacing": "burst"}, {"stream": "continuous"}])
def test_first_audible_sample_keeps_its_place_in_its_message(
    converse: Converse, hello: Any, knobs: dict[str, str]
) -> None:
    out = converse(hello, leading_silence=0.15, chunk="333", greeting_delay=0.0, **knobs)
    (turn,) = out.turns
    replies = [(at, data) for at, data, tag in out.caller.audio if tag is not None]
    place = 3600 // 333
    assert seconds(turn, "ttfa") * S == pytest.approx(replies[0][0] - user_end_ns(out), abs=2)
    expected = replies[place][0] + 3600 % 333 * S // 24000 - user_end_ns(out)
    assert seconds(turn, "ttfa_audible") * S == pytest.approx(expected, abs=2)


def test_a_short_sound_inside_the_callers_turn_is_no_reply(converse: Converse, hello: Any) -> None:
    # agent/backchannel lasts 0.2 s, en/hello ends 1 s after it began.
    (turn,) = converse(hello, early_talk=0.5, say="backchannel").turns
    assert turn["rule"] == "early"
    assert set(turn["microphone"].values()) == {None}
    (turn,) = converse(hello, early_talk=0.1, say="backchannel").turns
    assert seconds(turn, "ttfa_heard") == pytest.approx(-0.1, abs=1e-6)


def test_speech_stretch_skips_a_short_first_segment(converse: Converse, hello: Any) -> None:
    out = converse(
        hello, segments=2, segment_gap=0.6, say="backchannel", stop_delay="never", pacing="burst"
    )
    (turn,) = out.turns
    # agent/backchannel lasts 0.2 s, the second segment is a whole clip.
    assert abs(seconds(turn, "ttfs") - (0.5 + 0.2 + 0.6)) < 1e-6
    assert seconds(turn, "ttfa_heard") == 0.5


def test_short_gaps_are_joined_before_the_stretch_is_looked_for(
    converse: Converse, hello: Any
) -> None:
    out = converse(hello, segments=2, segment_gap=0.3, say="backchannel", pacing="burst")
    assert seconds(out.turns[0], "ttfs") == 0.5


def test_jitter_delays_messages_but_never_reorders_them(converse: Converse, hello: Any) -> None:
    out = converse(hello, jitter_ms=60, seed=3)
    (turn,) = out.turns
    first = out.caller.audio[0][0] - user_end_ns(out)
    assert 500 * MS <= first <= 560 * MS
    assert abs(seconds(turn, "ttfa") * S - first) < 2
    kinds = [g.kind for g in out.caller.got]
    assert kinds.index("response.created") < kinds.index("response.output_audio.delta")
    assert kinds[-1] == "response.done"
    whole = b"".join(data for _, data, _ in out.caller.audio)
    plain = b"".join(data for _, data, _ in converse(hello).caller.audio)
    assert whole == plain


def test_same_seed_gives_the_same_jitter(converse: Converse, hello: Any) -> None:
    arrivals = [
        [at - user_end_ns(out) for at, _, _ in out.caller.audio]
        for out in (converse(hello, jitter_ms=40, seed=s) for s in (1, 1, 2))
    ]
    assert arrivals[0] == arrivals[1] != arrivals[2]


def test_stall_holds_the_rest_back_and_then_bursts(converse: Converse, hello: Any) -> None:
    out = converse(hello, stall=0.7, stall_at=0.5)
    arrivals = [at for at, _, _ in out.caller.audio]
    gaps = np.diff(arrivals)
    assert gaps.max() == 720 * MS  # the chunk due 20 ms after the one before waits 0.7 s
    assert np.sum(gaps == 0) == 35  # and all that came due meanwhile comes with it
    (turn,) = out.turns
    assert abs(seconds(turn, "total_response") - (0.5 + 1.5 + 0.7)) < 1e-6
    assert turn["late_ns"] == 0, "a programmed stall is no lateness"


@pytest.mark.parametrize("ppm", [5000, -5000])
def test_skew_changes_the_pace_of_the_messages(converse: Converse, hello: Any, ppm: int) -> None:
    out = converse(hello, skew_ppm=ppm)
    arrivals = [at for at, _, _ in out.caller.audio]
    expected = (len(arrivals) - 1) * 20e-3 / (1 + ppm * 1e-6)
    assert abs((arrivals[-1] - arrivals[0]) / S - expected) < 1e-6
    (turn,) = out.turns
    heard = heard_voice(out)
    assert abs(seconds(turn, "total_response") * S - (heard[-1][1] - user_end_ns(out))) < 2000


def test_reply_at_a_lower_level_keeps_its_edges(converse: Converse, hello: Any) -> None:
    out = converse(hello, level_dbfs=-35)
    data = b"".join(d for _, d, _ in out.caller.audio)
    pcm = np.frombuffer(data, "<i2").astype(float)
    assert abs(20 * np.log10(np.sqrt(np.mean(pcm**2)) / 32768) + 35) < 0.05
    assert seconds(out.turns[0], "ttfa_heard") == 0.5


@pytest.mark.parametrize("dbfs", [-50, -40])
def test_comfort_noise_lies_under_the_voice_at_the_set_level(
    converse: Converse, hello: Any, dbfs: float
) -> None:
    out = converse(hello, noise_dbfs=dbfs, leading_silence=1.0)
    pcm = np.frombuffer(b"".join(d for _, d, _ in out.caller.audio), "<i2").astype(float)
    level = 20 * np.log10(np.sqrt(np.mean(pcm[:24000] ** 2)) / 32768)
    assert abs(level - dbfs) < 0.2
    assert seconds(out.turns[0], "ttfa_heard") == 1.5


@pytest.mark.parametrize(("lead", "expected"), [(150, 0.35), (0, 0.5), (-100, 0.6)])
def test_text_leads_the_audio_by_what_was_set(
    converse: Converse, hello: Any, lead: float, expected: float
) -> None:
    out = converse(hello, text_lead_ms=lead)
    first = out.caller.first("response.output_audio_transcript.delta").at - user_end_ns(out)
    assert first == round(expected * S)
    assert seconds(out.turns[0], "ttft") == expected
    assert seconds(out.turns[0], "ttfa") == 0.5


def test_early_talk_gives_a_negative_latency(converse: Converse, hello: Any) -> None:
    out = converse(hello, early_talk=0.4)
    (turn,) = out.turns
    assert seconds(turn, "ttfa") == -0.4
    assert turn["rule"] == "early"
    assert [g.kind for g in out.caller.got].count("response.created") == 1


def test_a_turn_without_reply_has_truths_that_do_not_exist(
    converse: Converse, stream_of: Stream
) -> None:
    out = converse(stream_of(0.1, "en/hello", 4.0, "en/hello", 4.0), no_reply=2)
    first, second = out.turns
    assert first["microphone"]["ttfa"] is not None
    assert second["rule"] == "no_reply"
    assert set(second["microphone"].values()) == {None}


def test_frame_start_model_is_one_frame_later(converse: Converse, hello: Any) -> None:
    (turn,) = converse(hello).turns
    mic, frame = turn["user_end"]["microphone"], turn["user_end"]["frame_start"]
    assert [b - a for a, b in zip(mic, frame, strict=True)] == [20 * MS, 20 * MS]
    assert (
        abs(turn["microphone"]["ttfa"]["value"] - turn["frame_start"]["ttfa"]["value"] - 0.02)
        < 1e-9
    )


def test_lateness_of_the_agent_itself_is_logged(converse: Converse, hello: Any) -> None:
    async def stalled(caller: Any) -> None:
        loop = caller.alarm._loop
        loop.call_later(2.0, loop.advance, 300 * MS)
        await caller.play(hello)

    (turn,) = converse(stalled).turns
    assert 250 * MS < turn["late_ns"] <= 300 * MS
    assert set(turn["marks_late_ns"]) == set(turn["microphone"])
    assert max(turn["marks_late_ns"].values()) == 0, "no mark stands on what was late"


def test_lateness_of_a_mark_is_that_of_its_message(converse: Converse, hello: Any) -> None:
    async def stalled(caller: Any) -> None:
        loop = caller.alarm._loop
        # The reply is due 0.5 s after the end of the clip, at 1.1 s of the stream.
        loop.call_later(1.55, loop.advance, 300 * MS)
        await caller.play(hello)

    (turn,) = converse(stalled, text_lead_ms=200).turns
    late = turn["marks_late_ns"]
    assert late.pop("ttft") == 0
    assert late.pop("total_response") == 0
    assert len(late) == 4
    assert all(200 * MS < ns <= 300 * MS for ns in late.values())


def test_continuous_stream_never_pauses_and_keeps_the_truth(converse: Converse, hello: Any) -> None:
    out = converse(hello, stream="continuous", noise_dbfs=-50, greeting_delay=0.0)
    arrivals = [at for at, _, _ in out.caller.audio]
    assert set(np.diff(arrivals)) == {20 * MS}
    ids = [tag for _, _, tag in out.caller.audio]
    assert ids[0] is None
    assert ids[-1] is None
    (turn,) = out.turns
    first = next(at for at, _, tag in out.caller.audio if tag is not None)
    assert abs(seconds(turn, "ttfa_heard") * S - (first - user_end_ns(out))) < 2
    assert seconds(turn, "ttfa") == seconds(turn, "ttfa_audible")
    assert 0.5 <= seconds(turn, "ttfa") < 0.52


def test_echo_is_the_callers_stream_later_and_quieter(
    converse: Converse, stream_of: Stream
) -> None:
    stream = stream_of(0.1, "en/hello", 2.0)
    out = converse(
        stream, stream="continuous", echo_db=-20, echo_delay=0.12, no_reply=1, greeting_delay=0.0
    )
    pcm = np.frombuffer(b"".join(d for _, d, _ in out.caller.audio), "<i2").astype(float)
    sent = stream.astype(float)
    n = len(pcm) + len(sent)
    size = 1 << (n - 1).bit_length()
    lags = np.fft.irfft(np.fft.rfft(pcm, size) * np.conj(np.fft.rfft(sent, size)), size)
    lag = int(np.argmax(lags[: len(pcm)]))
    gain = lags[lag] / np.sum(sent**2)
    assert abs(20 * np.log10(gain) + 20) < 0.5
    # The stream began with the first frame's arrival, 20 ms after that frame's first sample.
    started = out.caller.audio[0][0] - (out.caller.sent[0][0] - 20 * MS)
    assert abs(lag / 24000 + started / S - 0.12) < 0.021
