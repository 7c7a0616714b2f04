"""The ear and the scorer, beside each other: one playout, live and off line.

The ear learns its floor as the call goes on, the scorer knows it from the whole call, and both see
the same messages at the same times.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vakforge_eval.metrics.hearing import hear
from vakforge_eval.signal.gate import Gate
from vakforge_eval.signal.pcm import PcmDecoder, encode
from vakforge_eval.signal.playout import Fifo, Live, Placed, PlayoutModel, place
from vakforge_eval.timeline.call import AgentAudio, CallTimeline, Capabilities, Flush
from vakforge_eval.timeline.events import AudioChunk
from vakforge_eval.timeline.instant import NS_PER_MS as MS
from vakforge_eval.timeline.instant import Instant
from vakforge_eval.timeline.records import RECORD_DTYPE
from vakforge_eval.timeline.script import Language, Script
from vakforge_probe.ear import Ear, HeardEdge

# It runs code that others cover through whole calls, in which measuring that doubles the time.
pytestmark = pytest.mark.no_cover

RATE = 24_000
Pcm = npt.NDArray[np.int16]


def tone(ms: float) -> Pcm:
    n = round(ms * RATE / 1000)
    return np.where(np.arange(n) // 8 % 2, 8000, -8000).astype(np.int16)


def hiss(ms: float, dbfs: float | None, seed: int = 1) -> Pcm:
    """Noise, or digital silence."""
    n = round(ms * RATE / 1000)
    if dbfs is None:
        return np.zeros(n, np.int16)
    return np.rint(np.random.default_rng(seed).normal(0, 32768 * 10 ** (dbfs / 20), n)).astype(
        np.int16
    )


@dataclass
class Sent:
    """One message: when it comes (ms), what it is of, and its bytes."""

    at: float
    response: str | None
    item: str | None
    data: bytes

    def chunk(self) -> AudioChunk:
        return AudioChunk(
            at=Instant.exact(round(self.at * MS)),
            response_id=self.response,
            item_id=self.item,
            rate_hz=RATE,
            data=self.data,
        )


def decoded(messages: list[Sent]) -> list[AgentAudio]:
    decoders: dict[str | None, PcmDecoder] = {}
    audio = []
    for seq, m in enumerate(messages):
        decoder = decoders.setdefault(m.response, PcmDecoder("pcm_s16le"))
        at = Instant.exact(round(m.at * MS))
        audio.append(AgentAudio(at, decoder.feed(m.data), RATE, m.response, m.item, seq))
    return audio


# -- how far into an item a flush came --------------------------------------------------------


def played_ms(placed: list[Placed], item: str | None) -> float:
    """How far into `item` its last heard sample lies."""
    of_item = [p for p in placed if p.audio.item_id == item]
    sizes: dict[int, int] = {}
    for p in of_item:
        sizes.setdefault(p.audio.seq, len(p.audio.pcm))
    begins = dict(zip(sizes, itertools.accumulate([0, *sizes.values()]), strict=False))
    ends = [begins[p.audio.seq] + p.first + p.n_played for p in of_item if p.n_played]
    return max(ends, default=0) * 1000 / RATE


ITEMS = ("i", "j", "k")
pushes = st.lists(
    st.tuples(
        st.integers(0, 250),
        st.sampled_from(ITEMS),
        st.integers(2, 12_000),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=150)
@given(pushes, st.integers(0, 3000), st.booleans())
def test_the_ear_and_the_scorer_agree_on_what_was_played_of_an_item(
    parts: list[tuple[int, str, int, bool]], flush_at: int, is_continuous: bool
) -> None:
    """Several items in one response, odd bytes, gaps, a flush before, inside of and after."""
    ear = Ear(continuous=is_continuous)
    now, messages = 0.0, []
    # Of an item all comes before the next one begins.
    for gap, item, n_bytes, is_loud in sorted(parts, key=lambda p: ITEMS.index(p[1])):
        now += gap
        if now >= flush_at:
            break
        samples = tone(300) if is_loud else np.zeros(7200, np.int16)
        messages.append(Sent(now, "r", item, encode(samples, "pcm_s16le")[:n_bytes]))
    for m in messages:
        ear.hear(m.chunk(), round(m.at * MS))
    _, fact = ear.flush(flush_at * MS, "r")
    # Half a sample of one item is not the first half of another's.
    whole = [
        m
        for _, group in itertools.groupby(messages, key=lambda m: m.item)
        for m in _whole(list(group))
    ]
    flush = Flush(Instant.exact(flush_at * MS), "r")

    def model() -> PlayoutModel[AgentAudio]:
        return Live(Gate.at(-55)) if is_continuous else Fifo()

    placed = place(decoded(whole), [flush], model)
    is_cut = any(p.is_cut for p in placed)
    if fact is None:
        # The one id of a stream names no response, of which more could be lost.
        assert is_continuous
        assert not is_cut
        return
    assert (fact.played_ms is not None) == is_cut
    if fact.played_ms is not None:
        assert abs(played_ms(placed, fact.item_id) - fact.played_ms) <= 1
        received = sum(len(m.data) for m in messages if m.item == fact.item_id)
        assert 0 <= fact.played_ms <= received * 1000 // (2 * RATE)


def _whole(group: list[Sent]) -> list[Sent]:
    """Return the messages of an item with its last half sample left out."""
    if sum(len(m.data) for m in group) % 2:
        last = next(m for m in reversed(group) if m.data)
        last = Sent(last.at, last.response, last.item, last.data[:-1])
        group = [last if m.at == last.at and m.data[:-1] == last.data else m for m in group]
    return group


def test_silence_that_was_dropped_counts_once_and_only_when_it_is_past() -> None:
    """200 ms of speech, 400 of silence and 200 of speech, all at once on a stream."""
    pcm = np.concatenate([tone(200), hiss(400, None), tone(200)])
    for flush_at, expected in ((150, 150), (199, 199), (210, 610), (399, 799)):
        ear = Ear(continuous=True)
        for k in range(0, len(pcm), 480):
            ear.hear(Sent(0, "r", "j", encode(pcm[k : k + 480], "pcm_s16le")).chunk(), 0)
        _, fact = ear.flush(flush_at * MS, None)
        assert fact is not None
        assert (fact.item_id, fact.played_ms) == ("j", expected), flush_at


# -- edges ------------------------------------------------------------------------------------


def call_of(messages: list[Sent], ended_ms: float) -> CallTimeline:
    script = Script(
        id="s", content_hash="0", locale="en-US", language=Language(primary="en"),
        rate_hz=RATE, frame_samples=480, steps=[],
    )  # fmt: skip
    return CallTimeline(
        call_id="c", system="s", script=script, capabilities=Capabilities(continuous_stream=True),
        header={}, ready=Instant.exact(0), ended=Instant.exact(round(ended_ms * MS)), phases={},
        stream=np.zeros(0, dtype=RECORD_DTYPE), frame_ns=20 * MS, utterances=(),
        audio=tuple(decoded(messages)), events=(), flushes=(), tool_results=(),
    )  # fmt: skip


def streamed(
    pcm: Pcm, *, size: int = 480, ppm: float = 0, stall: tuple[float, float] = (0, 0)
) -> list[Sent]:
    """Messages of a stream whose clock is too fast; those of a stall come at its end."""
    data = encode(pcm, "pcm_s16le")
    messages = []
    for k in range(0, len(pcm), size):
        at = k / RATE * 1000 / (1 + ppm * 1e-6)
        if stall[0] <= at < stall[1]:
            at = stall[1]
        messages.append(Sent(at, None, None, data[2 * k : 2 * (k + size)]))
    return messages


def live_edges(messages: list[Sent]) -> list[HeardEdge]:
    ear, edges = Ear(continuous=True), []
    for m in messages:
        edges += ear.tick(round(m.at * MS))
        edges += ear.hear(m.chunk(), round(m.at * MS))
    return edges + ear.response_ended(None, round(messages[-1].at * MS))


def turns(n: int, speech_ms: int, pause_ms: int, noise_dbfs: float | None) -> Pcm:
    clean = np.concatenate(
        [hiss(2500, None), *[part for _ in range(n) for part in (tone(speech_ms),
                                                                 hiss(pause_ms, None))]]
    )  # fmt: skip
    return clean + hiss(len(clean) * 1000 / RATE, noise_dbfs)


IN_SPEECH = (3000, 5000)
"""Parts it in two."""


@pytest.mark.parametrize("noise_dbfs", [None, -60, -50, -40])
@pytest.mark.parametrize(
    "knobs",
    [{}, {"size": 1920}, {"size": 333}, {"ppm": 5000}, {"ppm": -5000},
     {"stall": IN_SPEECH}, {"stall": (6000, 8000)}, {"stall": (300, 800)}],
    ids=str,
)  # fmt: skip
def test_live_edges_on_a_stream_are_those_found_later(
    noise_dbfs: float | None, knobs: dict[str, Any]
) -> None:
    messages = streamed(turns(6, 1500, 2500, noise_dbfs), **knobs)
    segments = hear(call_of(messages, 40_000)).segments
    assert len(segments) == 6 + (knobs.get("stall") == IN_SPEECH)
    edges = [(e.kind, e.heard_ns) for e in live_edges(messages)]
    # Until it knows the noise, the ear takes it for speech.
    edges = edges[next(i for i, e in enumerate(edges) if e[1] > 2400 * MS and e[0] == "onset") :]
    found = [
        pair for s in segments for pair in (("onset", s.start.when.at), ("end", s.end.when.at))
    ]
    assert [kind for kind, _ in edges] == [kind for kind, _ in found]
    assert max(abs(a - b) for (_, a), (_, b) in zip(edges, found, strict=True)) <= 100 * MS


@pytest.mark.parametrize("noise_dbfs", [None, -50])
def test_a_stall_spoils_only_what_it_touched(noise_dbfs: float | None) -> None:
    pcm = turns(8, 1500, 2500, noise_dbfs)
    clean = hear(call_of(streamed(pcm), 50_000)).segments
    stalled = hear(call_of(streamed(pcm, stall=(5500, 7500)), 50_000)).segments
    assert len(stalled) == len(clean) == 8
    for k, (a, b) in enumerate(zip(clean, stalled, strict=True)):
        late = b.start.when.at - a.start.when.at, b.end.when.at - a.end.when.at
        if k < 1:
            assert late == (0, 0)
        elif k == 1:
            assert all(0 <= ns <= 2000 * MS for ns in late)
            assert late[1] >= 1000 * MS
        else:
            assert all(0 <= ns <= 75 * MS for ns in late), k


@pytest.mark.parametrize("ppm", [5000, -5000])
def test_an_edge_is_as_good_after_ten_minutes_as_at_the_beginning(ppm: float) -> None:
    """The agent's clock is off by 3 s in the end; what it says is heard as it comes."""
    n, speech, pause = 75, 3000, 5000
    pcm = turns(n, speech, pause, None)
    segments = hear(call_of(streamed(pcm, ppm=ppm, size=2400), 700_000)).segments
    assert len(segments) == n
    for k, segment in enumerate(segments):
        begins = (2500 + k * (speech + pause)) * MS / (1 + ppm * 1e-6)
        assert -1 * MS <= segment.start.when.at - begins <= 111 * MS, k
        assert abs(segment.end.when.at - segment.start.when.at - speech * MS) <= 16 * MS, k
