"""The scenario grammar, strict: what a suite or scenario file may say.

A file is a **suite** (``schema: 1`` and a list of ``scenarios``) or one **scenario**. A **step** is
a mapping with exactly one key that says what the user does, and what goes with it::

    - say: I would like to book a table.
      clip: en/booking_request
      relevant: [table, when]
    - barge_in: null                    # null: the clip's own text
      clip: en/booking_stop
      at: 600 ms after agent onset
      expect: stop within 0.7 s         # or a list: see `expect`

``pause`` is silence of a fixed length; ``wait`` lasts until its anchor, at most its duration. A
``sham`` plays nothing: it is the control of what a real disturbance does. See `anchors` for ``at``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    Tag,
    TypeAdapter,
    model_validator,
)
from pydantic_core import PydanticCustomError

from vakforge_eval.timeline.instant import NS_PER_S
from vakforge_eval.timeline.script import Entity as ScriptEntity
from vakforge_eval.timeline.script import StepKind
from vakforge_probe.scenario.anchors import TOOL_NAME, AnchorField
from vakforge_probe.scenario.expect import ExpectationsField
from vakforge_probe.scenario.units import Duration
from vakforge_probe.text import nearest

__all__ = [
    "STEP_KEYS",
    "Arm",
    "Background",
    "BranchStep",
    "Budgets",
    "Entity",
    "ExpectTool",
    "Gap",
    "PlayedStep",
    "Scenario",
    "ScenarioFile",
    "ScenarioRef",
    "Shared",
    "Step",
    "Suite",
    "TakingStep",
    "Tool",
    "When",
    "scenario_schema",
]


class Strict(BaseModel):
    """Base of the grammar: no unknown key, no coercion, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, data: object) -> object:
        """Refuse an unknown key by itself, so that the error can name the nearest right one."""
        if isinstance(data, dict):
            known = [f.alias or name for name, f in cls.model_fields.items()]
            for key in data:
                if key not in known:
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key",
                        {"key": key, "nearest": nearest(key, known, least=0.5)},
                    )
        return data


def _distinct(items: list[str]) -> list[str]:
    twice = sorted({i for i in items if items.count(i) > 1})
    if twice:
        raise ValueError(f"named twice: {', '.join(twice)}")
    return items


Line = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
LongText = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Locale = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Z][a-z]{3})?(-[A-Z]{2})?$")]
LanguageTag = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
ToolName = Annotated[str, StringConstraints(pattern=f"^{TOOL_NAME}$")]
ClipId = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Words = Annotated[list[Line], Field(min_length=1, max_length=50)]


class Language(Strict):
    """Languages of the user's side."""

    primary: LanguageTag
    mix: list[LanguageTag] = []


class Entity(Strict):
    """An entity of the step's text, as in the vakforge manifest."""

    type: Line
    text: Line
    normalized: Line | None = None

    def to_script(self) -> ScriptEntity:
        """Return the compiled form."""
        return ScriptEntity(type=self.type, text=self.text, normalized=self.normalized)


class ExpectTool(Strict):
    """The tool call that a step should lead to, with vakforge's class of it."""

    name: ToolName | None = None
    arguments: dict[str, JsonValue] = {}
    tool_class: Literal["tool_match", "tool_miss", "non_tool", "tool_result_speak"] = Field(
        "tool_match", alias="class"
    )

    @model_validator(mode="after")
    def _named_when_called(self) -> ExpectTool:
        if self.name is None and self.tool_class in ("tool_match", "tool_result_speak"):
            raise ValueError(f"class {self.tool_class} needs the tool's name")
        return self


class Tool(Strict):
    """A tool that the agent may call, with its scripted result and how long it takes."""

    name: ToolName
    description: str = Field("", max_length=2000)
    parameters: dict[str, JsonValue] = {}
    result: JsonValue = None
    delay: Duration = 0


class Budgets(Strict):
    """How long things may take, in ns: a call, a reply, and the agent's first word."""

    call: Duration = 120 * NS_PER_S
    reply: Duration = 10 * NS_PER_S
    greeting: Duration = 3 * NS_PER_S


class Gap(Strict):
    """A pause inside a turn."""

    pause: Duration


class BaseStep(Strict):
    """What all acts have in common."""

    KIND: ClassVar[StepKind]
    at: AnchorField | None = None
    expect: ExpectationsField = []

    @property
    def value(self) -> Any:
        """What stands behind the kind's key."""
        return getattr(self, self.KIND.value)


class PlayedStep(BaseStep):
    """A step that plays one clip, or several with pauses between."""

    clip: ClipId | None = None
    parts: list[ClipId | Gap] | None = Field(None, min_length=3, max_length=21)
    lang: LanguageTag | None = None
    level: float = Field(0.0, ge=-60, le=20)
    """Gain in dB."""

    @model_validator(mode="after")
    def _clip_or_parts(self) -> PlayedStep:
        if (self.clip is None) == (self.parts is None):
            raise ValueError("needs either a clip or parts")
        for i, part in enumerate(self.parts or ()):
            if isinstance(part, Gap) != bool(i % 2) or len(self.parts or ()) % 2 == 0:
                raise ValueError("parts are clips with one pause between each two")
        return self

    @property
    def sequence(self) -> tuple[str | Gap, ...]:
        """Clips and pauses in order."""
        return tuple(self.parts) if self.parts is not None else (self.clip or "",)


class TakingStep(BaseStep):
    """A step that takes the floor, so that a reply is due."""

    entities: list[Entity] = []
    expect_tool: ExpectTool | None = None
    relevant: list[Line] = []
    """Words of which a relevant reply holds at least one."""
    reply_within: Duration | None = None


class SayStep(TakingStep, PlayedStep):
    """The user speaks when the agent has finished."""

    KIND = StepKind.SAY
    say: Line | None


class CorrectionStep(TakingStep, PlayedStep):
    """The user corrects what was just said."""

    KIND = StepKind.CORRECTION
    correction: Line | None


class BargeInStep(TakingStep, PlayedStep):
    """The user takes the floor while the agent speaks; its clip lasts at least 1.5 s."""

    KIND = StepKind.BARGE_IN
    barge_in: Line | None


class BackchannelStep(PlayedStep):
    """A short listener's signal that does not claim the floor."""

    KIND = StepKind.BACKCHANNEL
    backchannel: Line | None


class NoiseStep(PlayedStep):
    """A noise on the user's line."""

    KIND = StepKind.NOISE
    noise: Line | None


class SideTalkStep(PlayedStep):
    """Speech that is not meant for the agent."""

    KIND = StepKind.SIDE_TALK
    side_talk: Line | None


class ShamStep(BaseStep):
    """Nothing is played."""

    KIND = StepKind.SHAM
    sham: Line | None


class PauseStep(BaseStep):
    """The user is silent for a fixed time."""

    KIND = StepKind.PAUSE
    pause: Duration


class WaitStep(BaseStep):
    """The user waits for the anchor, at most so long."""

    KIND = StepKind.WAIT
    wait: Duration


class DtmfStep(TakingStep):
    """The user presses keys."""

    KIND = StepKind.DTMF
    dtmf: Annotated[str, StringConstraints(pattern=r"^[0-9A-D*#]{1,32}$")]
    level: float = Field(0.0, ge=-60, le=6)


class HangUpStep(BaseStep):
    """The user hangs up."""

    KIND = StepKind.HANG_UP
    hang_up: Line | None


class When(Strict):
    """A branch's condition, exactly one of these."""

    agent_said: Words | None = None
    """The agent's text holds one of these words or phrases since the user's last turn."""
    tool_called: ToolName | None = None
    """The agent called this tool since the user's last turn."""
    timeout: Duration | None = None
    """So long after the previous step nothing else came true."""
    otherwise: Literal[True] | None = None
    """The reply is over (or none came in time) and nothing else came true."""

    @model_validator(mode="after")
    def _exactly_one(self) -> When:
        if len(self.model_fields_set) != 1 or None in self.model_dump(exclude_unset=True).values():
            raise ValueError("needs exactly one of: agent_said, tool_called, timeout, otherwise")
        return self


class Arm(Strict):
    """One way that a branch can go."""

    when: When
    then: list[Step] = Field(max_length=100)


class BranchStep(Strict):
    """Takes the first way whose condition comes true."""

    branch: list[Arm] = Field(min_length=1, max_length=20)


_STEPS: dict[str, type[BaseStep] | type[BranchStep]] = {
    **{
        cls.KIND.value: cls
        for cls in (
            SayStep,
            CorrectionStep,
            BargeInStep,
            BackchannelStep,
            NoiseStep,
            SideTalkStep,
            ShamStep,
            PauseStep,
            WaitStep,
            DtmfStep,
            HangUpStep,
        )
    },
    "branch": BranchStep,
}
STEP_KEYS = tuple(_STEPS)
"""The keys of which a step has exactly one."""


def _kind_of(data: object) -> str | None:
    """Return the one kind key of a raw step, or None (which the union reports)."""
    if isinstance(data, dict):
        found = [key for key in STEP_KEYS if key in data]
        return found[0] if len(found) == 1 else None
    return None


Step = Annotated[
    Annotated[SayStep, Tag("say")]
    | Annotated[CorrectionStep, Tag("correction")]
    | Annotated[BargeInStep, Tag("barge_in")]
    | Annotated[BackchannelStep, Tag("backchannel")]
    | Annotated[NoiseStep, Tag("noise")]
    | Annotated[SideTalkStep, Tag("side_talk")]
    | Annotated[ShamStep, Tag("sham")]
    | Annotated[PauseStep, Tag("pause")]
    | Annotated[WaitStep, Tag("wait")]
    | Annotated[DtmfStep, Tag("dtmf")]
    | Annotated[HangUpStep, Tag("hang_up")]
    | Annotated[BranchStep, Tag("branch")],
    Discriminator(
        _kind_of,
        custom_error_type="step_kind",
        custom_error_message=f"a step has exactly one of: {', '.join(STEP_KEYS)}",
    ),
]
Arm.model_rebuild()


class Background(Strict):
    """What lies under the whole call on the user's line: a clip that plays over and over."""

    clip: ClipId
    level: float = Field(0.0, ge=-60, le=40)
    """Gain in dB."""


class Shared(Strict):
    """What a suite may give as ``defaults`` for all of its scenarios."""

    locale: Locale | None = None
    language: Language | None = None
    condition: Literal["studio", "clean", "phone", "noisy"] = "clean"
    background: Background | None = None
    source: Literal["real", "synthetic", "public"] = "synthetic"
    speaker: Line | None = None
    domain: Line | None = None
    system_prompt: LongText | None = None
    tools: list[Tool] = Field([], max_length=64)
    persona: list[Line] = []
    user_dictionary: list[Line] = []
    repeats: int | None = Field(None, ge=1, le=10_000)
    seed: int | None = Field(None, ge=0, lt=2**63)
    budgets: Budgets = Budgets()


class Scenario(Shared):
    """One scripted call."""

    id: Name
    title: str = Field("", max_length=200)
    conversation_id: Line | None = None
    checklist: Annotated[list[Line], AfterValidator(_distinct)] = []
    steps: list[Step] = Field(min_length=1, max_length=500)

    def with_defaults(self, defaults: Shared) -> Scenario:
        """Return this scenario with what it leaves unsaid taken from `defaults`."""
        unsaid = defaults.model_fields_set - self.model_fields_set
        return self.model_copy(update={name: getattr(defaults, name) for name in unsaid})


class ScenarioFile(Scenario):
    """A scenario in a file of its own."""

    version: Literal[1] = Field(alias="schema")
    clips: Line | None = None


class ScenarioRef(Strict):
    """A scenario that lies in another file, relative to the suite's folder."""

    file: Line


def _scenario_or_ref(data: object) -> str:
    return "file" if isinstance(data, dict) and "file" in data else "scenario"


class Suite(Strict):
    """A list of scenarios."""

    version: Literal[1] = Field(alias="schema")
    title: str = Field("", max_length=200)
    clips: Line | None = None
    """Folder of the suite's own clips, relative to its file (default: ``clips``)."""
    defaults: Shared = Shared()
    repeats: int = Field(1, ge=1, le=10_000)
    seed: int = Field(0, ge=0, lt=2**63)
    scenarios: list[
        Annotated[
            Annotated[Scenario, Tag("scenario")] | Annotated[ScenarioRef, Tag("file")],
            Discriminator(_scenario_or_ref),
        ]
    ] = Field(min_length=1, max_length=1000)


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of suite and scenario files."""
    adapter: TypeAdapter[Suite | ScenarioFile] = TypeAdapter(Suite | ScenarioFile)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vakforge-probe scenario suite, version 1",
        **adapter.json_schema(by_alias=True),
    }
