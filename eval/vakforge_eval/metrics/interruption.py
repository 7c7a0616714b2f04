"""What an agent makes of an interruption, and whether it stops for what is none."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from vakforge_eval.metrics import declare
from vakforge_eval.metrics.latency import ttfa_heard
from vakforge_eval.metrics.reaction import Fate
from vakforge_eval.metrics.spec import AS_HEARD, EventMetric, MetricSpec
from vakforge_eval.metrics.view import EventView, TurnView
from vakforge_eval.timeline.events import ToolCall
from vakforge_eval.timeline.script import StepKind
from vakforge_eval.timeline.values import Censored, Measured, MetricValue, Rate, Reason, Undefined

__all__ = [
    "DISTURBANCE_METRICS",
    "RESPONSE_METRICS",
    "Relevance",
    "false_alarm",
    "false_interruption",
    "false_interruption_noise",
    "false_interruption_side_talk",
    "interruption_response",
    "mentions",
    "relevance",
    "relevant_reply",
    "stutter_gap",
    "void_events",
]

Relevance = Literal["relevant", "irrelevant", "unchecked"]


def interruption_response(view: TurnView) -> MetricValue:
    """Time from the end of an interruption to the answer to it, as heard (s).

    **Anchor**: user_end of the barge-in -> the first audible sample of its turn's reply in the
    playout model. The rest of the interrupted speech is no reply.

    Returns
    -------
    MetricValue
        Censored for a no-reply. Undefined: not_applicable if the turn is no barge-in, agent_silent
        and anchor_missed if it was void, indeterminate if it may have been; stop_ambiguous, or
        indeterminate where errors alone leave it open, where nothing tells the reply from the rest
        of the interrupted speech; noise_too_high, not_audible, corrupt_audio, call_failed.
    """
    reaction = view.reaction
    if reaction is None:
        return Undefined(Reason.NOT_APPLICABLE)
    if reaction.void is not None:
        return Undefined(reaction.void)
    if reaction.fate is Fate.AMBIGUOUS:
        return Undefined(Reason.STOP_AMBIGUOUS)
    first, rest = view.turn.first_reply, reaction.last
    if reaction.fate is Fate.INDETERMINATE and rest is not None and rest.response_id is None:
        return Undefined(Reason.INDETERMINATE)
    if first is None or rest is None or first.segment.start.when.at >= rest.end.when.at:
        return ttfa_heard(view)
    # Without response ids what the agent had still to say looks like a reply.
    replies = (s for s in view.turn.reply if s.start.when.at >= rest.end.when.at)
    reply = next(replies, None)
    if reply is None or reply.start.when.at > view.turn.deadline:
        return Censored(view.watched_s)
    if reply.start_fault is not None:
        return Undefined(reply.start_fault)
    return Measured.between(view.turn.end, reply.start)


def relevance(view: TurnView) -> Relevance | None:
    """Return whether the reply to a barge-in is one to what was said, by the script.

    It is relevant if it holds one of the script's words, or if the expected tool was called in the
    turn. None if the turn is no barge-in, was void or got no reply; unchecked if the script names
    nothing to check by, or the protocol shows no text of the reply.
    """
    if view.reaction is None or view.reaction.void is not None:
        return None
    steps = [utterance.step for utterance in view.turn.utterances]
    words = [word for step in steps for word in step.relevant_words]
    expected = [step.expect_tool for step in steps if step.expect_tool is not None]
    tools = {tool.name for tool in expected if tool.name}
    if tools & _called(view):
        return "relevant"
    text = view.reply_text
    if not (view.turn.reply or view.turn.unheard or text):
        return None
    if mentions(text, words):
        return "relevant"
    is_checked = (bool(words) and bool(text)) or (
        not words and bool(tools) and view.timeline.capabilities.tools
    )
    return "irrelevant" if is_checked else "unchecked"


def _called(view: TurnView) -> set[str]:
    turn = view.turn
    return {
        event.name
        for event in view.timeline.events
        if isinstance(event, ToolCall) and turn.start.at <= event.at.at < turn.closes
    }


def mentions(text: str, words: Iterable[str]) -> bool:
    """Whether one of the words, or phrases, stands in the text, as whole words.

    Case and punctuation make no difference; letters keep their marks (``é`` is not ``e``).
    """
    spoken = f" {_plain(text)} "
    return any(plain and f" {plain} " in spoken for plain in map(_plain, words))


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Marks (M) are parts of letters: in Devanagari they are the vowels.
    kept = (c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    return " ".join("".join(kept).split())


def relevant_reply(view: TurnView) -> MetricValue | Rate:
    """Share of replies to barge-ins that are replies to what was said.

    **Anchor**: the text of the turn's reply and its tool calls -> the words and the tool that the
    script names.

    Returns
    -------
    Rate
        Hits and replies that could be checked. Undefined, and outside of the total: not_applicable
        if the turn is no barge-in, was void or got no reply, or the script names nothing;
        no_text if the reply shows none.
    """
    found = relevance(view)
    if found in ("relevant", "irrelevant"):
        return Rate(int(found == "relevant"), 1)
    has_words = any(u.step.relevant_words for u in view.turn.utterances)
    is_mute = found == "unchecked" and has_words
    return Undefined(Reason.NO_TEXT if is_mute else Reason.NOT_APPLICABLE)


def _stopped(view: EventView, kind: StepKind) -> MetricValue | Rate:
    """Return whether an event of `kind` stopped the agent, or why that is not known."""
    if view.kind is not kind:
        return Undefined(Reason.NOT_APPLICABLE)
    if not view.timeline.capabilities.barge_in:
        return Undefined(Reason.HALF_DUPLEX)
    gate, reaction = view.call.hearing.gate, view.reaction
    if isinstance(gate, Undefined):
        return gate
    if reaction.void is not None:
        return Undefined(reaction.void)
    match reaction.fate:
        case Fate.HELD:
            return Rate(0, 1)
        case Fate.AMBIGUOUS:
            return Undefined(Reason.STOP_AMBIGUOUS)
        case Fate.INDETERMINATE:
            return Undefined(Reason.INDETERMINATE)
        case Fate.UNCONFIRMED:
            return Undefined(Reason.CUT_OFF)
    if reaction.last is not None and reaction.last.end_fault is not None:
        return Undefined(reaction.last.end_fault)
    return Rate(int(reaction.fate is not Fate.STUTTERED), 1)


def false_interruption(view: EventView) -> MetricValue | Rate:
    """Share of backchannels ("mhm") that made the agent stop.

    **Anchor**: user_start -> silence of the agent within 1.0 s, as heard, without the same response
    going on within 3.0 s of it. A new response is a stop; a stutter is none, and has its gap.

    Returns
    -------
    Rate
        Hits and events that met audible speech and were decided. Undefined, and outside of the
        total: not_applicable to other events, half_duplex; agent_silent, anchor_missed and
        natural_end (the reply was over within the 1.0 s by itself), which are void; indeterminate
        where an error interval straddles a limit; stop_ambiguous without response ids where the
        agent went on and nothing tells of a cut; cut_off where watching ended before;
        noise_too_high, corrupt_audio.
    """
    return _stopped(view, StepKind.BACKCHANNEL)


def false_interruption_noise(view: EventView) -> MetricValue | Rate:
    """Share of noises that made the agent stop.

    **Anchor**: as `false_interruption`.

    Returns
    -------
    Rate
        Hits and decided events. Undefined: as `false_interruption`.
    """
    return _stopped(view, StepKind.NOISE)


def false_interruption_side_talk(view: EventView) -> MetricValue | Rate:
    """Share of words to somebody else that made the agent stop.

    **Anchor**: as `false_interruption`.

    Returns
    -------
    Rate
        Hits and decided events. Undefined: as `false_interruption`.
    """
    return _stopped(view, StepKind.SIDE_TALK)


def false_alarm(view: EventView) -> MetricValue | Rate:
    """Share of shams after which the agent seems to have stopped: the instrument's own error.

    A sham waits for the same moment as a backchannel and plays nothing, so what seems to stop the
    agent is a pause of its own or a mistake of the detector.

    **Anchor**: as `false_interruption`, from the planned moment.

    Returns
    -------
    Rate
        Hits and decided shams. Undefined: as `false_interruption`.
    """
    return _stopped(view, StepKind.SHAM)


def stutter_gap(view: EventView) -> MetricValue:
    """How long an agent that was disturbed fell silent before it went on (s).

    **Anchor**: its silence within 1.0 s of the disturbance -> the same response heard again within
    3.0 s of that.

    Returns
    -------
    MetricValue
        Undefined: not_applicable to shams and where the agent did not stutter, half_duplex,
        corrupt_audio.
    """
    reaction = view.reaction
    if view.kind is StepKind.SHAM or reaction.fate is not Fate.STUTTERED:
        return Undefined(Reason.NOT_APPLICABLE)
    if not view.timeline.capabilities.barge_in:
        return Undefined(Reason.HALF_DUPLEX)
    silence, resumed, last = reaction.silence, reaction.resumed, reaction.last
    if silence is None or resumed is None or last is None:
        return Undefined(Reason.NOT_APPLICABLE)
    following = next(s for s in view.call.hearing.segments if s.start is resumed)
    fault = last.end_fault or following.start_fault
    return Measured.between(silence, resumed) if fault is None else Undefined(fault)


def void_events(view: EventView) -> MetricValue | Rate:
    """Share of events that show nothing, because they did not surely meet speech that goes on.

    **Anchor**: user_start -> the agent's speech as heard at that moment and 1.0 s on; also void is
    one whose anchor was heard live > 100 ms from where it is found off line.

    Returns
    -------
    Rate
        Hits and all events. Undefined: noise_too_high.
    """
    gate = view.call.hearing.gate
    return gate if isinstance(gate, Undefined) else Rate(int(view.reaction.void is not None), 1)


_SCRIPT = "the script's words and tools, against text and tool calls"


def _false_metric(function: EventMetric, what: str) -> MetricSpec:
    """Return a share of false interruptions, which an agent that is deaf would improve."""
    spec = _event_share(function, what, "missed_interruption")
    return replace(spec, control="false_alarm")


def _event_share(function: EventMetric, what: str, *bought_by: str) -> MetricSpec:
    """Return a share of the utterances that open no turn."""
    return MetricSpec(
        unit="rate",
        better="lower",
        span=(what, "hits / total"),
        detector=AS_HEARD,
        group="duplex",
        on_event=function,
        bought_by=bought_by,
    )


RESPONSE_METRICS = declare.titled(
    "Interruption response",
    replace(
        declare.first_of(
            interruption_response, f"{declare.FIRST_AUDIBLE} of the reply, as heard", AS_HEARD
        ),
        span=("user_end of a barge-in", f"{declare.FIRST_AUDIBLE} of the reply, as heard"),
        group="duplex",
        bought_by=(*declare.REPLIES, "relevant_reply"),
        is_sliced=True,
    ),
    declare.barge_ins(
        relevant_reply, "replies to what was said, of those checked", "higher", _SCRIPT
    ),
)

DISTURBANCE_METRICS = (
    *declare.titled(
        "False interruptions",
        declare.sliced(
            _false_metric(false_interruption, "backchannels that stopped the agent within 1.0 s")
        ),
        declare.detail(
            _false_metric(false_interruption_noise, "noises that stopped the agent within 1.0 s")
        ),
        declare.detail(
            _false_metric(
                false_interruption_side_talk,
                "words to others that stopped the agent within 1.0 s",
            )
        ),
        declare.detail(
            _event_share(false_alarm, "shams after which the agent seems to have stopped")
        ),
        declare.void(_event_share(void_events, "events that met no speech that goes on for sure")),
    ),
    *declare.titled(
        "Stutters",
        MetricSpec(
            unit="s",
            better="lower",
            span=("silence within 1.0 s of a disturbance", "the same response goes on"),
            detector=AS_HEARD,
            group="duplex",
            on_event=stutter_gap,
            bought_by=declare.FALSE_INTERRUPTIONS,
            is_headline=False,
        ),
    ),
)
