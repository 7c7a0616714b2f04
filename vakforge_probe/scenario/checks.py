"""What cannot work is refused before anything is dialled: impossible anchors and expectations.

`check_scenario` needs no protocol and runs when a file is loaded; `check_protocol` runs when the
scenario is compiled for one.
"""

from __future__ import annotations

from collections.abc import Iterable

from jsonschema import Draft202012Validator, SchemaError

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.instant import NS_PER_MS, NS_PER_S, ns_to_s, samples_to_ns
from vakforge_eval.timeline.script import FLOOR_TAKING_KINDS, Expectation, StepKind
from vakforge_probe.errors import ConfigError
from vakforge_probe.scenario.anchors import AnchorKind
from vakforge_probe.scenario.assemble import (
    StepAudio,
    assemble,
    background_audio,
    key_tones,
)
from vakforge_probe.scenario.dtmf import tones
from vakforge_probe.scenario.expect import KINDS_OF
from vakforge_probe.scenario.grammar import (
    DtmfStep,
    PauseStep,
    PlayedStep,
    TakingStep,
)
from vakforge_probe.scenario.loaded import LoadedScenario
from vakforge_probe.scenario.resolve import Fork, Item, Place, places, resolve
from vakforge_probe.scenario.yaml_tree import Path
from vakforge_probe.text import nearest

__all__ = [
    "check_protocol",
    "check_scenario",
    "reply_within",
    "scenario_background",
    "step_audio",
    "step_text",
]

MIN_BARGE_IN_NS = 1_500 * NS_PER_MS
"""Shorter ones cannot be told from a backchannel, and end before a stop could be confirmed."""

MIN_END_OFFSET_NS = 400 * NS_PER_MS
"""Without a told end, only 350 ms of silence says that the agent has finished."""

_NEEDS_BARGE_IN = frozenset({"stop", "hold"})
_CHECK_RATE_HZ = 24_000
_SILENT_KINDS = frozenset({StepKind.PAUSE, StepKind.WAIT, StepKind.HANG_UP})
_WORDED_KINDS = FLOOR_TAKING_KINDS - {StepKind.DTMF} | {StepKind.BACKCHANNEL, StepKind.SIDE_TALK}


def check_scenario(loaded: LoadedScenario) -> None:
    """Refuse what can be seen to be wrong without knowing the protocol.

    Raises
    ------
    ConfigError
        Naming file, line and key.
    """
    _check_facts(loaded)
    _check_tools(loaded)
    scenario_background(loaded, _CHECK_RATE_HZ)
    items = resolve(loaded.scenario)
    for place in places(items):
        _check_step(loaded, place)
    _Order(loaded).check(items, _Situation())
    _check_forks(loaded, items)


def check_protocol(loaded: LoadedScenario, items: tuple[Item, ...], can: Capabilities) -> None:
    """Refuse anchors and expectations that a protocol cannot show.

    Raises
    ------
    ConfigError
        Naming file, line and key.
    """
    for place in places(items):
        anchor, kind = place.anchor, place.step.KIND
        early = anchor.kind.is_agent_end and anchor.offset_ns < MIN_END_OFFSET_NS
        if early and not can.response_end and kind not in _SILENT_KINDS:
            raise _anchor_error(
                loaded,
                place,
                "needs at least 400 ms: this protocol does not tell the end of a response",
            )
        if anchor.kind is AnchorKind.TOOL and not can.tools:
            raise _anchor_error(loaded, place, "cannot happen: this protocol has no tool calls")
        if anchor.offset_ns < 0 and can.continuous_stream:
            raise _anchor_error(
                loaded,
                place,
                "cannot be met: a continuous stream does not tell an end before it is heard",
            )
        _check_shown(loaded, place, can)
        if not can.barge_in and _talks_over(place):
            raise _anchor_error(
                loaded,
                place,
                "is while the agent speaks: this protocol is half duplex and does not listen then",
            )


def _talks_over(place: Place) -> bool:
    """Whether a step is meant to fall into the agent's speech."""
    anchor, kind = place.anchor, place.step.KIND
    is_inside = anchor.kind is AnchorKind.ONSET or (
        anchor.kind.is_agent_end and anchor.offset_ns < 0
    )
    return kind is StepKind.BARGE_IN or (is_inside and kind not in _SILENT_KINDS)


def _check_shown(loaded: LoadedScenario, place: Place, can: Capabilities) -> None:
    for expectation in place.step.expect:
        if expectation.kind in _NEEDS_BARGE_IN and not can.barge_in:
            why = "cannot be shown: this protocol is half duplex"
        elif expectation.kind == "stop" and can.manual_commit:
            why = "cannot be shown: a push-to-talk caller stops the agent itself"
        elif expectation.kind == "mentions" and not (can.text_before_audio or can.transcripts):
            why = "cannot be shown: this protocol does not tell what the agent says"
        else:
            continue
        raise _expect_error(loaded, place, expectation, why)


def scenario_background(loaded: LoadedScenario, rate_hz: int) -> StepAudio | None:
    """Return one round of what lies under the call, or None if nothing does.

    Raises
    ------
    ConfigError
        If the clip cannot be used.
    """
    background = loaded.scenario.background
    if background is None:
        return None
    try:
        return background_audio(background, loaded.library, rate_hz)
    except ConfigError as error:
        raise _clip_error(loaded, ("background", "clip"), error) from error
    except ValueError as error:
        where: Path = ("background", "level")
        raise loaded.error(where, str(error), value=background.level) from error


def step_audio(loaded: LoadedScenario, place: Place, rate_hz: int) -> StepAudio | None:
    """Return what a step plays, or None if it plays nothing.

    Raises
    ------
    ConfigError
        If a clip cannot be used.
    """
    step = place.step
    try:
        if isinstance(step, PlayedStep):
            return assemble(step, loaded.library, rate_hz)
        if isinstance(step, DtmfStep):
            return key_tones(step, rate_hz)
    except ConfigError as error:
        path = (*place.where, *_clip_key(step, error.value))
        raise _clip_error(loaded, path, error) from error
    except ValueError as error:
        level = getattr(step, "level", None)
        raise loaded.error((*place.where, "level"), str(error), value=level) from error
    return None


def reply_within(loaded: LoadedScenario, place: Place) -> int:
    """Return how long a reply to this step is waited for (ns): its own limit or the scenario's."""
    own = place.step.reply_within if isinstance(place.step, TakingStep) else None
    return loaded.scenario.budgets.reply if own is None else own


def step_text(step: PlayedStep, audio: StepAudio) -> str:
    """Return what is said: the step's own text, else that of its clips."""
    said = step.value
    return said if said is not None else " ".join(c.text for c in audio.clips if c.text)


def _clip_error(loaded: LoadedScenario, where: Path, error: ConfigError) -> ConfigError:
    is_missing = error.message == "no such clip"
    near = nearest(error.value, loaded.library.ids()) if is_missing else None
    return loaded.error(where, error.message, value=error.value, nearest=near)


def _clip_key(step: object, clip_id: object) -> Path:
    if isinstance(step, PlayedStep) and step.parts is not None:
        return ("parts", next(i for i, part in enumerate(step.parts) if part == clip_id))
    return ("clip",)


def _check_facts(loaded: LoadedScenario) -> None:
    for key in ("locale", "language"):
        if getattr(loaded.scenario, key) is None:
            raise loaded.error((key,), "is missing, here and in the defaults")
    budgets = loaded.scenario.budgets
    for name in ("call", "reply", "greeting"):
        if getattr(budgets, name) == 0:
            raise loaded.error(("budgets", name), "must be longer than nothing")


def _check_tools(loaded: LoadedScenario) -> None:
    seen: set[str] = set()
    for i, tool in enumerate(loaded.scenario.tools):
        if tool.name in seen:
            raise loaded.error(("tools", i, "name"), "another tool has this name", value=tool.name)
        seen.add(tool.name)
        if tool.parameters:
            where: Path = ("tools", i, "parameters")
            try:
                Draft202012Validator.check_schema(tool.parameters)
            except SchemaError as error:
                raise loaded.error(where, f"is no JSON Schema: {error.message}") from error
            if tool.parameters.get("type") != "object":
                raise loaded.error(where, "must be a JSON Schema of type object")


def _check_step(loaded: LoadedScenario, place: Place) -> None:
    step, anchor = place.step, place.anchor
    if anchor.tool is not None:
        _check_declared(loaded, (*place.where, "at"), anchor.tool)
    if step.KIND is StepKind.BARGE_IN and anchor.kind.is_agent_end and anchor.offset_ns >= 0:
        raise _anchor_error(loaded, place, "is no barge-in: the agent has finished by then")
    _check_expected(loaded, place)
    if isinstance(step, PauseStep) and step.pause == 0:
        raise loaded.error((*place.where, "pause"), "must be longer than nothing")
    if isinstance(step, TakingStep):
        _check_expected_tool(loaded, place, step)
    if isinstance(step, PlayedStep):
        _check_played(loaded, place, step)


def _check_expected(loaded: LoadedScenario, place: Place) -> None:
    kind, anchor = place.step.KIND, place.anchor
    waited_s = ns_to_s(reply_within(loaded, place))
    for expectation in place.step.expect:
        kinds = KINDS_OF[expectation.kind]
        if kind not in kinds:
            why = f"cannot be shown by {kind}: it goes with {', '.join(sorted(kinds))}"
            raise _expect_error(loaded, place, expectation, why)
        if expectation.kind == "hold" and anchor.kind.is_agent_end and anchor.offset_ns >= 0:
            raise _expect_error(
                loaded, place, expectation, "cannot be shown: the agent has finished by then"
            )
        if expectation.kind == "reply" and (expectation.within_s or 0.0) > waited_s:
            raise _expect_error(
                loaded, place, expectation, "is more than the reply is waited for at all"
            )
        if expectation.kind == "stop" and expectation.within_s is not None:
            watched_s = ns_to_s(_speech_ns(loaded, place)) + waited_s
            if expectation.within_s > watched_s:
                why = "is more than the step's words and the wait for a reply to them take"
                raise _expect_error(loaded, place, expectation, why)


def _speech_ns(loaded: LoadedScenario, place: Place) -> int:
    """Return how long a step's words or noise take, from the first to the last that is heard."""
    audio = step_audio(loaded, place, _CHECK_RATE_HZ)
    assert audio is not None  # noqa: S101 - a step that plays something has audio or has raised
    start, end = audio.speech
    return samples_to_ns(end - start, _CHECK_RATE_HZ)


def _check_expected_tool(loaded: LoadedScenario, place: Place, step: TakingStep) -> None:
    expected = step.expect_tool
    if expected is not None and expected.name is not None and expected.tool_class != "tool_miss":
        _check_declared(loaded, (*place.where, "expect_tool", "name"), expected.name)


def _check_played(loaded: LoadedScenario, place: Place, step: PlayedStep) -> None:
    audio = step_audio(loaded, place, _CHECK_RATE_HZ)
    assert audio is not None  # noqa: S101 - a played step has audio or has raised
    if step.KIND is StepKind.BARGE_IN:
        speech_ns = _speech_ns(loaded, place)
        if speech_ns < MIN_BARGE_IN_NS:
            raise loaded.error(
                (*place.where, *_clip_key(step, step.sequence[0])),
                f"a barge-in must last 1.5 s or more; this one speaks {speech_ns / NS_PER_S:.2f} s",
                value=" + ".join(clip.id for clip in audio.clips),
            )
    text = step_text(step, audio)
    if step.KIND in _WORDED_KINDS and not text:
        raise loaded.error(
            (*place.where, step.KIND.value), "needs a text: neither step nor clip has one"
        )
    if isinstance(step, TakingStep):
        for i, entity in enumerate(step.entities):
            if entity.text not in text:
                raise loaded.error(
                    (*place.where, "entities", i, "text"),
                    "does not stand in the step's text",
                    value=entity.text,
                )


def _check_declared(loaded: LoadedScenario, where: Path, name: str) -> None:
    known = [tool.name for tool in loaded.scenario.tools]
    if name not in known:
        near = nearest(name, known)
        raise loaded.error(where, "no such tool is declared", value=name, nearest=near)


def _check_forks(loaded: LoadedScenario, items: Iterable[Item]) -> None:
    for item in items:
        if isinstance(item, Place):
            continue
        whens = [arm.when for arm in item.arms]
        if not any(when.timeout is not None or when.otherwise for when in whens):
            raise loaded.error(
                (*item.where, "branch"), "could wait for ever: it needs a timeout or an otherwise"
            )
        for arm in item.arms:
            if arm.when.tool_called is not None:
                _check_declared(loaded, (*arm.where, "when", "tool_called"), arm.when.tool_called)
            _check_forks(loaded, arm.then)


def _expect_error(
    loaded: LoadedScenario, place: Place, expectation: Expectation, message: str
) -> ConfigError:
    where: Path = (*place.where, "expect", place.step.expect.index(expectation))
    if (*loaded.path, *where) not in loaded.source.lines:
        where = where[:-1]  # it is written as one text, not as a list
    return loaded.error(where, message, value=expectation.text)


def _anchor_error(loaded: LoadedScenario, place: Place, message: str) -> ConfigError:
    return loaded.error((*place.where, "at"), message, value=place.anchor.text)


class _Situation:
    """What is known when a step's turn comes: the earliest moment, and what preceded it."""

    def __init__(self, earliest_ns: int = 0, *, floor_taken: bool = False) -> None:
        self.earliest_ns = earliest_ns
        self.floor_taken = floor_taken
        self.is_opening = earliest_ns == 0 and not floor_taken
        self.hung_up = False

    def copy(self) -> _Situation:
        """Return a copy that an arm of a branch may change."""
        other = _Situation(self.earliest_ns, floor_taken=self.floor_taken)
        other.is_opening, other.hung_up = self.is_opening, self.hung_up
        return other


class _Order:
    """Refuses what contradicts the order of the steps."""

    def __init__(self, loaded: LoadedScenario) -> None:
        self._loaded = loaded

    def check(self, items: Iterable[Item], now: _Situation) -> None:
        """Walk one sequence of steps, moving `now` along."""
        for item in items:
            if now.hung_up:
                raise self._loaded.error(item.where, "comes after the user has hung up")
            if isinstance(item, Fork):
                self._fork(item, now)
            else:
                self._place(item, now)
            now.is_opening = False

    def _fork(self, fork: Fork, now: _Situation) -> None:
        ends = []
        for arm in fork.arms:
            end = now.copy()
            self.check(arm.then, end)
            ends.append(end)
        now.earliest_ns = min(end.earliest_ns for end in ends)
        now.floor_taken = any(end.floor_taken for end in ends)
        now.hung_up = all(end.hung_up for end in ends)

    def _place(self, place: Place, now: _Situation) -> None:
        anchor, kind = place.anchor, place.step.KIND
        if anchor.kind is AnchorKind.PREVIOUS and now.is_opening:
            raise _anchor_error(self._loaded, place, "nothing precedes the first step")
        if anchor.kind is AnchorKind.GREETING and now.floor_taken:
            raise _anchor_error(self._loaded, place, "the greeting is past: the user has spoken")
        if anchor.kind is AnchorKind.STREAM:
            if anchor.offset_ns < now.earliest_ns:
                raise _anchor_error(
                    self._loaded,
                    place,
                    "goes backwards: the step before it has not ended by then, "
                    f"but at {now.earliest_ns / NS_PER_S:.2f} s at the earliest",
                )
            now.earliest_ns = anchor.offset_ns
        elif anchor.kind is AnchorKind.PREVIOUS:
            now.earliest_ns += anchor.offset_ns
        now.earliest_ns += self._least_ns(place)
        now.floor_taken = now.floor_taken or kind in FLOOR_TAKING_KINDS
        now.hung_up = kind is StepKind.HANG_UP

    def _least_ns(self, place: Place) -> int:
        """Return how long a step lasts at least."""
        step = place.step
        if isinstance(step, PauseStep):
            return step.pause
        if isinstance(step, DtmfStep):
            return samples_to_ns(len(tones(step.dtmf, _CHECK_RATE_HZ)[0]), _CHECK_RATE_HZ)
        if isinstance(step, PlayedStep):
            return _speech_ns(self._loaded, place)
        return 0
