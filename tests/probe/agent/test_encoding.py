"""What each message of a coder that looks ahead holds."""

from __future__ import annotations

import numpy as np
import pytest

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.encoding import Behind, make_encoder
from vakforge_probe.agent.player import AudioSent
from vakforge_probe.agent.voice import Encoder

AT = Instant.exact(0)


def parts(behind: Behind, *messages: tuple[str | None, int, int]) -> list[list[tuple[object, ...]]]:
    return [
        [(p.tag, p.first, p.n) for p in behind.parts(AudioSent(AT, tag, first, n))]
        for tag, first, n in messages
    ]


def test_without_look_ahead_a_message_holds_what_it_says() -> None:
    assert parts(Behind(0, 0, is_stream=True), ("a", 0, 5), (None, 0, 5)) == [
        [("a", 0, 5)], [(None, 0, 5)],
    ]  # fmt: skip


def test_the_first_of_the_stream_is_left_out_even_over_several_messages() -> None:
    assert parts(Behind(7, 7, is_stream=True), (None, 0, 5), (None, 0, 5), (None, 0, 5)) == [
        [], [(None, 2, 3)], [(None, 0, 5)],
    ]  # fmt: skip


def test_where_nothing_is_left_out_the_first_of_the_stream_counts() -> None:
    assert parts(Behind(7, 0, is_stream=True), (None, 0, 5), ("a", 0, 5), (None, 0, 9)) == [
        [(None, 0, 5)], [("a", 0, 5)], [("a", 5, 7), (None, 7, 2)],
    ]  # fmt: skip


def test_what_is_left_of_a_broken_off_response_comes_with_what_follows() -> None:
    sent = ((None, 0, 9), ("a", 0, 5), ("a", 5, 5), (None, 0, 5), (None, 0, 5), (None, 0, 5))
    assert parts(Behind(7, 7, is_stream=True), *sent) == [
        [(None, 7, 2)], [("a", 0, 5)], [("a", 5, 5)], [("a", 10, 5)],
        [("a", 15, 2), (None, 2, 3)], [(None, 0, 5)],
    ]  # fmt: skip
    assert parts(Behind(2, 2, is_stream=True), ("a", 0, 5), ("b", 0, 5), ("b", 5, 5)) == [
        [("a", 2, 3)], [("a", 5, 2), ("b", 2, 3)], [("b", 5, 5)],
    ]  # fmt: skip


def test_between_turns_what_is_left_counts_for_nothing() -> None:
    assert parts(Behind(2, 2, is_stream=False), ("a", 0, 5), ("b", 0, 5)) == [
        [("a", 2, 3)], [("b", 0, 5)],
    ]  # fmt: skip


def test_plain_codecs_have_the_plain_encoder() -> None:
    assert type(make_encoder("pcmu", 8000)) is Encoder


@pytest.mark.parametrize("codec", ["ogg_opus", "opus"])
@pytest.mark.parametrize(("size", "n", "behind"), [
    (1, 240, 120), (240, 240, 120), (500, 480, 312), (960, 960, 312), (9600, 2880, 312),
])  # fmt: skip
def test_voice_in_opus_comes_by_frames_and_lies_where_it_says(
    codec: str, size: int, n: int, behind: int
) -> None:
    pytest.importorskip("av")
    from vakforge_eval.signal.opus import OggOpusDecoder, OpusDecoder

    voice = make_encoder(codec, 48_000)
    decode = (OggOpusDecoder() if codec == "ogg_opus" else OpusDecoder()).feed
    assert (voice.chunk(size), voice.behind, voice.is_stateful) == (n, behind, True)
    pcm = np.zeros(12_000, np.int16)
    pcm[5000:7000] = (9000 * np.sin(np.arange(2000) * 0.3)).astype(np.int16)
    closed = voice.closed(pcm)
    assert len(closed) % voice.n_in(n) == 0
    assert voice.n_out(len(closed) - len(pcm)) >= behind
    frames = closed.reshape(-1, voice.n_in(n))
    messages = [voice.encode(frame) for frame in frames]
    heard = np.concatenate([decode(message) for message in messages])
    # A stream's head says what to leave out; a line of packets has none.
    assert voice.n_skipped == (behind if codec == "ogg_opus" else 0)
    assert len(heard) == n * len(messages) - voice.n_skipped
    (span,) = voice.spans([(5000, 7000)])
    # What is left out is heard no more, so all else is earlier by just that.
    loud = np.flatnonzero(np.abs(heard.astype(int)) > 3000) + voice.n_skipped
    assert abs(int(loud[0]) - span[0]) <= 48 * 3
    assert abs(int(loud[-1]) + 1 - span[1]) <= 48 * 3
