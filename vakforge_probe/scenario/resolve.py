"""Steps with their default anchors filled in, numbered in the order in which they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vakforge_probe.scenario.anchors import Anchor, default_anchor
from vakforge_probe.scenario.grammar import BaseStep, BranchStep, Scenario, Step, When
from vakforge_probe.scenario.yaml_tree import Path, dotted

__all__ = ["Arm", "Fork", "Item", "Place", "places", "resolve"]


@dataclass(frozen=True, slots=True)
class Place:
    """A step in its place."""

    index: int
    where: Path
    step: BaseStep
    anchor: Anchor

    @property
    def path(self) -> str:
        """Its place as people write it: ``steps[2].branch[0].then[1]``."""
        return dotted(self.where)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of a fork."""

    where: Path
    when: When
    then: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch in its place."""

    where: Path
    arms: tuple[Arm, ...]

    @property
    def path(self) -> str:
        """Its place as people write it."""
        return dotted((*self.where, "branch"))


Item = Place | Fork


def resolve(scenario: Scenario) -> tuple[Item, ...]:
    """Return the scenario's steps as a tree."""
    return _Resolver().sequence(scenario.steps, ("steps",), opening=True)


def places(items: tuple[Item, ...]) -> Iterator[Place]:
    """Yield all steps of a tree in order of their index."""
    for item in items:
        if isinstance(item, Place):
            yield item
        else:
            for arm in item.arms:
                yield from places(arm.then)


class _Resolver:
    def __init__(self) -> None:
        self._n_steps = 0

    def sequence(self, steps: list[Step], where: Path, *, opening: bool) -> tuple[Item, ...]:
        """Return the steps at `where`; `opening` says whether nothing precedes them in the call."""
        out: list[Item] = []
        for i, step in enumerate(steps):
            here = (*where, i)
            if isinstance(step, BranchStep):
                out.append(self._fork(step, here, opening=opening))
            else:
                anchor = step.at or default_anchor(step.KIND, is_opening=opening)
                out.append(Place(self._n_steps, here, step, anchor))
                self._n_steps += 1
            opening = False
        return tuple(out)

    def _fork(self, step: BranchStep, where: Path, *, opening: bool) -> Fork:
        arms = []
        for i, arm in enumerate(step.branch):
            here = (*where, "branch", i)
            then = self.sequence(arm.then, (*here, "then"), opening=opening)
            arms.append(Arm(here, arm.when, then))
        return Fork(where, tuple(arms))
