"""From a loaded scenario to what a call needs: script, audio, and the flow of its steps."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vakforge_eval.timeline.call import Capabilities
from vakforge_eval.timeline.instant import ns_to_s, samples_to_ns
from vakforge_eval.timeline.script import (
    ExpectedToolCall,
    Language,
    Script,
    ScriptStep,
    ToolSpec,
)
from vakforge_probe.scenario.ahead import CODED_AHEAD, NOTHING_AHEAD, Ahead, coded_ahead
from vakforge_probe.scenario.assemble import StepAudio
from vakforge_probe.scenario.checks import (
    check_protocol,
    reply_within,
    scenario_background,
    step_audio,
    step_text,
)
from vakforge_probe.scenario.clips import Clip
from vakforge_probe.scenario.flow import Act, Choice, Condition, Flow, Node, Way
from vakforge_probe.scenario.grammar import (
    Background,
    DtmfStep,
    ExpectTool,
    PauseStep,
    PlayedStep,
    TakingStep,
    WaitStep,
    When,
)
from vakforge_probe.scenario.loaded import LoadedScenario
from vakforge_probe.scenario.resolve import Fork, Item, Place, places, resolve

__all__ = ["Compiled", "compile_scenario"]

Pcm = npt.NDArray[np.int16]

_NO_STIMULUS: Any = {"content_hash": True, "steps": {"__all__": {"expect"}}}
"""What of a script the target can neither hear nor be told."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A scenario made ready for one protocol's audio format.

    Attributes
    ----------
    script
        Written into the capture; scoring needs nothing else of the scenario.
    pcm
        Audio of each step by index: int16, shape (n_samples,); None for what plays nothing.
    background
        One round of what lies under the whole call, int16; None for nothing.
    flow
        What the director walks.
    clips
        ``{"id", "licence", "source", "sha256"}`` of every clip that may be played.
    ahead
        Frames that are coded already; where there are any, clips begin with a frame.
    """

    script: Script
    pcm: tuple[Pcm | None, ...]
    flow: Flow
    clips: tuple[dict[str, str], ...]
    background: Pcm | None = None
    ahead: Ahead = NOTHING_AHEAD

    def phase_ns(self, seed: int) -> int:
        """Return where in a frame's duration the stream begins, in ns; the same for one seed.

        Without it every utterance of a scenario would start on the frame grid, and an error of
        the instrument's that depends on the phase would never be seen.
        """
        frame_ns = samples_to_ns(self.script.frame_samples, self.script.rate_hz)
        digest = hashlib.sha256(f"{self.script.content_hash}:{seed}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % frame_ns


def compile_scenario(
    loaded: LoadedScenario,
    *,
    rate_hz: int,
    frame_samples: int,
    capabilities: Capabilities,
    codec: str | None = None,
) -> Compiled:
    """Return `loaded` made ready for audio of `rate_hz` in frames of `frame_samples`.

    With `codec` frames are coded ahead, where that is worth it.

    Raises
    ------
    ConfigError
        If a clip cannot be used, or the protocol cannot show what an anchor needs.
    """
    items = resolve(loaded.scenario)
    check_protocol(loaded, items, capabilities)
    audio = {p.index: step_audio(loaded, p, rate_hz) for p in places(items)}
    background = scenario_background(loaded, rate_hz)
    heard = [one for one in (*audio.values(), background) if one is not None]
    clips = {c.id: c for one in heard for c in one.clips}
    steps = [_script_step(loaded, p, audio[p.index]) for p in places(items)]
    flow = _flow(loaded, items, audio, rate_hz, capabilities)
    script = _script(loaded, steps, rate_hz, frame_samples)
    content_hash = _content_hash(script, flow, clips, _levels(items), loaded.scenario.background)
    return Compiled(
        script=script.model_copy(update={"content_hash": content_hash}),
        pcm=tuple(None if one is None else one.pcm for one in audio.values()),
        flow=flow,
        clips=tuple(
            {"id": c.id, "licence": c.licence, "source": c.source, "sha256": c.sha256}
            for _, c in sorted(clips.items())
        ),
        background=None if background is None else background.pcm,
        ahead=(
            coded_ahead(
                (one.pcm for one in audio.values() if one is not None), rate_hz, frame_samples
            )
            if codec == CODED_AHEAD and background is None
            else NOTHING_AHEAD
        ),
    )


def _script(
    loaded: LoadedScenario, steps: list[ScriptStep], rate_hz: int, frame_samples: int
) -> Script:
    scenario = loaded.scenario
    assert scenario.locale is not None  # noqa: S101 - checked when it was loaded
    assert scenario.language is not None  # noqa: S101 - checked when it was loaded
    return Script(
        id=scenario.id,
        content_hash="",
        title=scenario.title,
        locale=scenario.locale,
        language=Language(primary=scenario.language.primary, mix=scenario.language.mix),
        condition=scenario.condition,
        source=scenario.source,
        speaker=scenario.speaker,
        conversation_id=scenario.conversation_id,
        domain=scenario.domain,
        system_prompt=scenario.system_prompt,
        tools=[
            ToolSpec(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters,
                result=tool.result,
                delay_s=ns_to_s(tool.delay),
            )
            for tool in scenario.tools
        ],
        checklist=scenario.checklist,
        persona=scenario.persona,
        user_dictionary=scenario.user_dictionary,
        rate_hz=rate_hz,
        frame_samples=frame_samples,
        steps=steps,
        max_call_s=ns_to_s(scenario.budgets.call),
    )


def _script_step(loaded: LoadedScenario, place: Place, audio: StepAudio | None) -> ScriptStep:
    step = place.step
    facts: dict[str, Any] = {}
    if audio is not None:
        facts |= {
            "n_samples": len(audio.pcm),
            "voiced": list(audio.voiced),
            "pauses": list(audio.pauses),
            "clips": [clip.id for clip in audio.clips],
        }
    if isinstance(step, PlayedStep) and audio is not None:
        facts |= {"text": step_text(step, audio), "lang": step.lang or audio.clips[0].lang}
    if isinstance(step, DtmfStep):
        facts["text"] = step.dtmf
    if isinstance(step, TakingStep):
        facts |= {
            "entities": [entity.to_script() for entity in step.entities],
            "expect_tool": _expected(step.expect_tool),
            "relevant_words": step.relevant,
        }
    return ScriptStep(
        index=place.index,
        kind=step.KIND,
        path=place.path,
        anchor=place.anchor.text,
        expect=step.expect,
        reply_within_s=ns_to_s(reply_within(loaded, place)),
        **facts,
    )


def _expected(tool: ExpectTool | None) -> ExpectedToolCall | None:
    if tool is None:
        return None
    return ExpectedToolCall(
        name=tool.name or "", arguments=tool.arguments, tool_class=tool.tool_class
    )


def _flow(
    loaded: LoadedScenario,
    items: tuple[Item, ...],
    audio: dict[int, StepAudio | None],
    rate_hz: int,
    can: Capabilities,
) -> Flow:
    def nodes(items: tuple[Item, ...]) -> tuple[Node, ...]:
        return tuple(choice(i) if isinstance(i, Fork) else act(i) for i in items)

    def choice(fork: Fork) -> Choice:
        ways = tuple(Way(_condition(arm.when), nodes(arm.then)) for arm in fork.arms)
        return Choice(fork.path, ways)

    def act(place: Place) -> Act:
        return _act(loaded, place, audio[place.index], rate_hz)

    scenario = loaded.scenario
    return Flow(
        nodes=nodes(items),
        call_ns=scenario.budgets.call,
        greeting_ns=scenario.budgets.greeting,
        tool_delays_ns={tool.name: tool.delay for tool in scenario.tools},
        tells_response_end=can.response_end,
    )


def _act(loaded: LoadedScenario, place: Place, audio: StepAudio | None, rate_hz: int) -> Act:
    step = place.step
    limit = step.value if isinstance(step, PauseStep | WaitStep) else 0
    start, end = (0, 0) if audio is None else audio.speech
    return Act(
        step=place.index,
        kind=step.KIND,
        anchor=place.anchor,
        reply_within_ns=reply_within(loaded, place),
        lead_ns=samples_to_ns(start, rate_hz),
        speech_ns=samples_to_ns(end, rate_hz) - samples_to_ns(start, rate_hz),
        limit_ns=limit,
    )


def _condition(when: When) -> Condition:
    return Condition(
        said=tuple(when.agent_said or ()), tool=when.tool_called, timeout_ns=when.timeout
    )


def _levels(items: tuple[Item, ...]) -> list[float]:
    return [getattr(place.step, "level", 0.0) for place in places(items)]


def _content_hash(
    script: Script,
    flow: Flow,
    clips: dict[str, Clip],
    levels: list[float],
    background: Background | None,
) -> str:
    """Return the SHA-256 of all that the target could hear or be told: same stimulus, same hash."""
    stimulus: dict[str, Any] = {
        "script": script.model_dump(mode="json", exclude=_NO_STIMULUS),
        "flow": asdict(flow),
        "levels": levels,
        "clips": {c.id: c.sha256 for c in clips.values()},
    }
    if background is not None:
        stimulus["background"] = background.model_dump(mode="json")
    text = json.dumps(stimulus, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
