"""Who talks when: overlap, floor transfers, shares of talk.

Talk of the agent is what is heard of it (`Hearing.sounds`), talk of the user the voiced parts of
what it says; on both sides silence below 200 ms is part of talk, as in the human reference. Time
counts as long as the user's stream runs, silence included: from its first sample to its last.

Every edge has an error, so talk is read three times: as estimated, with every stretch as short as
its errors allow and with every stretch as long. Silence is joined in each reading by itself, so
each reading lies inside of the longer one and the truth between the outer two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from vakforge_eval.metrics import declare
from vakforge_eval.metrics.hearing import PLAYOUT
from vakforge_eval.metrics.segments import Segment
from vakforge_eval.metrics.spans import Stretch, clipped, common, joined, length
from vakforge_eval.metrics.spec import AS_HEARD, Better, CallMetric, MetricSpec
from vakforge_eval.metrics.turns import Role
from vakforge_eval.metrics.view import CallView, TurnView
from vakforge_eval.timeline.call import CallTimeline
from vakforge_eval.timeline.instant import NS_PER_MS, Edge
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Measured, MetricValue, Reason, Undefined

__all__ = [
    "FLOOR_METRICS",
    "TALK_GAP_NS",
    "TALK_KINDS",
    "agent_interruptions",
    "agent_overlap_rate",
    "floor_transfer_offset",
    "overlap_rate",
    "overlap_share_of_speech",
    "reprompts",
    "talk_ratio",
    "user_talk",
]

TALK_GAP_NS = 200 * NS_PER_MS
"""A shorter silence is part of talk: the rule of the human reference for turn-taking."""
TALK_KINDS = frozenset(
    {
        StepKind.SAY,
        StepKind.CORRECTION,
        StepKind.BARGE_IN,
        StepKind.BACKCHANNEL,
        StepKind.SIDE_TALK,
    }
)
"""Steps in which the user speaks; noise and keys are no speech."""


def user_talk(timeline: CallTimeline) -> list[tuple[Edge, Edge]]:
    """Return begin and end of the voiced parts of all that the user says, nothing joined."""
    return [
        (Edge(begin), Edge(end))
        for utterance in timeline.utterances
        if utterance.kind in TALK_KINDS
        for begin, end in utterance.voiced
    ]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Talk of both in one reading of the edges, and the time watched (ns)."""

    user: list[Stretch]
    agent: list[Stretch]
    total: int

    @property
    def overlap(self) -> int:
        return sum(ns for _, _, ns in common(self.agent, self.user))

    @property
    def speech(self) -> int:
        return length(joined([*self.user, *self.agent]))


_Place = Callable[[Edge], int]
_Ends = tuple[float, float]


def _watched(timeline: CallTimeline) -> tuple[Edge, Edge] | None:
    """Return begin and end of the user's stream as spoken, None if nothing was sent."""
    begin = timeline.spoken(0)
    end = timeline.spoken(timeline.frame_ns * len(timeline.stream) / NS_PER_MS)
    return None if begin is None or end is None else (Edge(begin), Edge(end))


def _read(view: CallView, watched: tuple[Edge, Edge], begins: _Place, ends: _Place) -> _Reading:
    begin, end = begins(watched[0]), ends(watched[1])

    def talk(pairs: Iterable[tuple[Edge, Edge]]) -> list[Stretch]:
        placed = joined(((begins(a), ends(b)) for a, b in pairs), TALK_GAP_NS)
        return clipped(placed, begin, end)

    user, agent = talk(user_talk(view.timeline)), talk(view.hearing.sounds)
    return _Reading(user, agent, max(0, end - begin))


def _at(edge: Edge) -> int:
    return edge.when.at


def _stamped_first(edge: Edge) -> int:
    return edge.when.lo


def _stamped_last(edge: Edge) -> int:
    return edge.when.hi


def _first(edge: Edge) -> int:
    return edge.when.lo - edge.detect_minus


def _last(edge: Edge) -> int:
    return edge.when.hi + edge.detect_plus


def _measure(view: CallView, share: Callable[[_Reading, _Reading], _Ends]) -> MetricValue:
    """Return a share with its worst-case error.

    Parameters
    ----------
    share
        ``(shortest, longest) -> (least, most)``; of one reading taken twice it gives its value
        twice.
    """
    why, watched = _unknown(view), _watched(view.timeline)
    if why is not None or watched is None:
        return why or Undefined(Reason.NOT_APPLICABLE)
    reading = _read(view, watched, _at, _at)
    if not reading.user:
        return Undefined(Reason.NOT_APPLICABLE)
    value, _ = share(reading, reading)
    stamped = share(
        _read(view, watched, _stamped_last, _stamped_first),
        _read(view, watched, _stamped_first, _stamped_last),
    )
    whole = share(_read(view, watched, _last, _first), _read(view, watched, _first, _last))
    return Measured(
        value,
        u=(value - stamped[0], stamped[1] - value),
        u_detect=(stamped[0] - whole[0], whole[1] - stamped[1]),
    )


def _unknown(view: CallView) -> Undefined | None:
    """Return why nothing can be said of the agent's talk in a call."""
    hearing = view.hearing
    if view.timeline.ready is None:
        return Undefined(Reason.CALL_FAILED)
    if isinstance(hearing.gate, Undefined):
        return hearing.gate
    if not any(len(piece.audio.pcm) or piece.audio.is_corrupt for piece in hearing.placed):
        return Undefined(Reason.NO_AUDIO)
    # Talk may be missing wherever audio is, not only at the edges that were found.
    if any(piece.audio.is_corrupt for piece in hearing.placed):
        return Undefined(Reason.CORRUPT_AUDIO)
    if any(s.is_start_echo or s.is_end_echo for s in hearing.segments):
        return Undefined(Reason.ECHO)
    return None if hearing.sounds else Undefined(Reason.NOT_AUDIBLE)


def _part(of: int, whole: int) -> float:
    """Return a share of at most 1; it may be all of what may have no length."""
    return min(1.0, of / whole) if whole > 0 else 1.0


def overlap_rate(view: CallView) -> MetricValue:
    """Share of the call in which both talk at once.

    **Anchor**: first -> last sample of the user's stream, which is silence where it says nothing;
    talk of the agent as heard, of the user as spoken (noise and keys are none), silence below
    200 ms joined on both sides.

    Returns
    -------
    MetricValue
        In [0, 1]. Undefined: no_audio if the agent sent none, not_audible, noise_too_high,
        corrupt_audio, echo where the caller's own was not told from the agent's speech,
        not_applicable if the user said nothing, call_failed.
    """
    return _measure(
        view,
        lambda least, most: (_part(least.overlap, most.total), _part(most.overlap, least.total)),
    )


def overlap_share_of_speech(view: CallView) -> MetricValue:
    """Share of the time with any speech in which both talk at once.

    **Anchor**: as `overlap_rate`; the whole is the time in which at least one of them talks.

    Returns
    -------
    MetricValue
        In [0, 1]. Undefined: as `overlap_rate`.
    """
    return _measure(
        view,
        lambda least, most: (_part(least.overlap, most.speech), _part(most.overlap, least.speech)),
    )


def agent_overlap_rate(view: CallView) -> MetricValue:
    """Share of the call in which the agent talks over a user who was talking when it began.

    **Anchor**: as `overlap_rate`; of two stretches of talk that overlap the agent's began later.
    An agent that does not stop for a barge-in has no part in it: there the user began.

    Returns
    -------
    MetricValue
        In [0, 1]. Undefined: as `overlap_rate`.
    """
    return _measure(view, _begun_by_agent)


def _begun_by_agent(least: _Reading, most: _Reading) -> _Ends:
    """Return the least and the most of the call that is overlap begun by the agent.

    Talk at a moment began between the start of the long stretch and that of the short one around
    it. So the agent surely began later where even its long stretch starts inside of the user's
    short one, and may have unless even its short stretch starts before the user's long one.
    """
    starts = [begin for begin, _ in most.agent]
    surely = sum(
        ns
        for agent, user, ns in common(least.agent, least.user)
        if starts[bisect_right(starts, agent[0]) - 1] > user[0]
    )
    not_at_all = sum(
        ns for agent, user, ns in common(least.agent, most.user) if agent[0] <= user[0]
    )
    return _part(surely, most.total), _part(most.overlap - not_at_all, least.total)


def talk_ratio(view: CallView) -> MetricValue:
    """Agent's share of all talk: its time / (its time + the user's).

    **Anchor**: as `overlap_rate`; time in which both talk counts for both.

    Returns
    -------
    MetricValue
        In [0, 1]; 0.5 if both talk alike. Undefined: as `overlap_rate`.
    """
    return _measure(view, _agent_share)


def _agent_share(least: _Reading, most: _Reading) -> _Ends:
    short, long = length(least.agent), length(most.agent)
    return (
        _part(short, short + length(most.user)),
        _part(long, long + length(least.user)),
    )


def floor_transfer_offset(view: TurnView) -> MetricValue:
    """From the end of the user's speech to the begin of the agent's reply, signed (s).

    **Anchor**: user_end -> the reply's first audible sample as heard. Negative where the agent
    began before the user had ended; such turns belong to it as much as late ones.

    Returns
    -------
    MetricValue
        Undefined: not_applicable where the floor did not pass to the agent within the turn's
        budget, echo, corrupt_audio, noise_too_high, not_audible, call_failed, stop_ambiguous.
    """
    first = view.anchors.first_heard if view.has_reply else None
    if first is None:
        why = view.missing(audible=True)
        return why if isinstance(why, Undefined) else Undefined(Reason.NOT_APPLICABLE)
    return Measured.between(view.anchors.user_end, first)


def reprompts(view: CallView) -> MetricValue:
    """How often the agent spoke up though it owed the user nothing ("are you still there?").

    **Anchor**: > 3.0 s after the agent's last word, with no response and no tool call pending.
    Segments of one response are one reprompt.

    Returns
    -------
    MetricValue
        A count. Undefined: no_audio, not_audible, noise_too_high, corrupt_audio, echo,
        call_failed.
    """
    turns = view.turns.turns
    return _count(
        view, (h.segment for t in turns for h in t.segments if h.role is Role.UNSOLICITED)
    )


def agent_interruptions(view: CallView) -> MetricValue:
    """How often the agent took the floor while the user had it.

    **Anchor**: replies that begin before user_end, in a scripted pause or over the user's voice.
    A backchannel of the agent is no interruption; segments of one response are one.

    Returns
    -------
    MetricValue
        A count. Undefined: no_audio, not_audible, noise_too_high, corrupt_audio, echo,
        call_failed, stop_ambiguous where one may be the rest of what the user spoke into.
    """
    early = [h for t in view.turns.turns for h in t.segments if h.is_early]
    if any(h.is_untold for h in early):
        return _unknown(view) or Undefined(Reason.STOP_AMBIGUOUS)
    return _count(view, (h.segment for h in early))


def _count(view: CallView, segments: Iterable[Segment]) -> MetricValue:
    """Return how many responses the segments belong to; one without an id stands for itself."""
    why = _unknown(view)
    if why is not None:
        return why
    return Measured(float(len({s.response_id or s.start for s in segments})))


_TALK_HEARD = (
    f"agent: gate as for its segments, playout model {PLAYOUT}; user: voiced samples of the clips; "
    "gaps < 200 ms joined"
)


def _talk_metric(function: CallMetric, whole: str, better: Better = None) -> MetricSpec:
    """Return a share of who talks when; a mute agent overlaps nobody."""
    span = ("begin of the user's stream", f"its end; {whole}")
    spec = declare.of_call(function, "share", better, span, _TALK_HEARD, "duplex")
    return replace(spec, bought_by=("no_reply_rate",))


def _count_metric(function: CallMetric, what: str) -> MetricSpec:
    """Return how often the agent did something in a call."""
    span = ("first turn of the user", f"end of watching; {what}")
    return declare.of_call(function, "count", "lower", span, AS_HEARD, "duplex")


FLOOR_METRICS = declare.titled(
    "Overlap and floor",
    _talk_metric(overlap_rate, "both talk / total time"),
    declare.detail(_talk_metric(overlap_share_of_speech, "both talk / anybody talks")),
    declare.detail(
        _talk_metric(agent_overlap_rate, "both talk, the agent began last / total time", "lower")
    ),
    declare.detail(_talk_metric(talk_ratio, "agent's talk / all talk")),
    MetricSpec(
        unit="s",
        # Neither end of it is good: people answer 0.1 s after, and now and then before the end.
        better=None,
        span=("user_end", f"{declare.FIRST_AUDIBLE} of the reply, as heard, signed"),
        detector=AS_HEARD,
        group="duplex",
        on_turn=floor_transfer_offset,
        is_headline=False,
    ),
    declare.detail(_count_metric(reprompts, "the agent spoke up unasked")),
    declare.detail(_count_metric(agent_interruptions, "replies begun before user_end")),
)
