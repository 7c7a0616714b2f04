"""An agent that streams its silence too: what is heard when the player drops some of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vakforge_eval.metrics.hearing import PLAYOUT, hear
from vakforge_eval.metrics.transport import underruns
from vakforge_eval.metrics.view import CallView
from vakforge_eval.scoring.compare import summarise
from vakforge_eval.scoring.score import score_calls
from vakforge_eval.scoring.scores import playout_text
from vakforge_eval.signal.playout import Fifo, Live
from vakforge_eval.timeline.values import Measured


def streaming(new_call: Any, **capabilities: bool) -> Any:
    """A call in which 40 ms of silence and a word come at once behind 400 ms of another word."""
    call = new_call(continuous_stream=True, **capabilities)
    call.say(1000, 2000)
    for k in range(40):
        call.audio_at(20 * k, call.hush(20), None)
    for _ in range(20):
        call.audio_at(2500, call.tone(20), None)
    call.audio_at(2500, np.concatenate([call.hush(40), call.tone(20)]), None)
    for _ in range(14):
        call.audio_at(2500, call.tone(20), None)
    return call.build()


def test_a_word_behind_dropped_silence_is_heard_and_arrives_where_it_is(new_call: Any) -> None:
    timeline = streaming(new_call)
    hearing = hear(timeline)
    assert hearing.playout == Live.text
    (segment,) = hearing.segments
    ms = [(e.when.at - timeline.ready.at) / 1e6 for e in (segment.start, segment.end)]
    assert ms == pytest.approx([2500, 3200], abs=0.5)
    assert len(segment.messages) == 35
    piece = next(piece for piece in hearing.placed if piece.first)
    assert (piece.first, piece.n_played) == (40 * 24, 20 * 24)
    assert piece.arrival.at == piece.audio.arrival.at + 40_000_000


def test_every_message_belongs_to_its_response_once_heard_or_dropped(new_call: Any) -> None:
    timeline = streaming(new_call)
    messages = hear(timeline).responses[None].messages
    assert [id(m) for m in messages] == [id(m) for m in timeline.audio]


def test_dropped_silence_is_no_underrun(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    call.say(100, 200)
    for at, audio in ((1000, call.tone(200)), (1000, call.hush(500)), (1000, call.tone(200))):
        call.audio_at(at, audio, None)
    assert underruns(CallView(call.build())) == Measured(0.0)


def test_speech_over_digital_silence_is_no_noise(new_call: Any) -> None:
    """Of blocks that are not silent the quietest would be speech itself."""
    hearing = hear(streaming(new_call))
    assert hearing.floor_dbfs is None
    assert len(hearing.segments) == 1


def test_noise_too_loud_to_measure_over_is_not_dropped_either(new_call: Any) -> None:
    call = new_call(continuous_stream=True)
    call.say(100, 200)
    call.audio_at(0, call.noise(3000, -20), None)
    call.audio_at(0, call.noise(1000, -20), None)
    hearing = hear(call.build())
    assert hearing.segments == ()
    assert sum(piece.n_played for piece in hearing.placed) == 4 * call.rate_hz


def test_every_number_as_heard_tells_the_model_that_was_really_used(new_call: Any) -> None:
    def scores(*, is_stream: bool, system: str) -> Any:
        call = new_call(continuous_stream=is_stream)
        call.say(1000, 2000)
        call.reply(2500, call.tone(500), response_id=None)
        return score_calls([CallView(call.build(system=system))])

    turns, stream = scores(is_stream=False, system="base"), scores(is_stream=True, system="tuned")
    assert playout_text(turns) == Fifo.text
    assert playout_text(stream) == Live.text
    assert playout_text(turns, stream) == f"base: {Fifo.text} | tuned: {Live.text}"
    for sets in ((None, stream), (turns, stream)):
        rows = {row["metric"]: row["detector"] for row in summarise(*sets)}
        assert Live.text in rows["ttfa_heard"]
        assert (Fifo.text in rows["ttfa_heard"]) is (sets[0] is not None)
        assert not any(PLAYOUT in text for text in rows.values())
