"""What was measured beside what was true, and how well a set of such rows was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vakforge_eval.stats.percentiles import nearest_rank
from vakforge_eval.stats.rates import covers_at_least
from vakforge_eval.timeline.values import Censored, Flag, Measured, MetricValue, Rate
from vakforge_probe.calibrate.log import TruthValue

__all__ = ["AGENT_LATE_NS", "Row", "Summary", "summarize"]

AGENT_LATE_NS = 2_000_000
"""An agent that sent a message of interest later than this, or cannot tell better when it did, is
no witness of that turn."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one turn, event or call, as it was and as it was measured.

    Attributes
    ----------
    condition
        Name of the system, which is what the agent was set to.
    step
        Index of the script's step that opened the turn, or is the event; -1 for a whole call.
    is_matched
        Whether the agent knows of this turn.
    truth
        None where what the metric runs to did not happen.
    natural_end
        When the agent's speech came to its own end instead of being stopped.
    valid, flags
        The probe's own opinion of the turn.
    agent_late_ns
        How late the agent was with the messages that this turn's truth stands on, at worst, or
        how wide its account is, whichever is more.
    """

    metric: str
    condition: str
    call: str
    turn: int
    step: int
    is_matched: bool
    truth: TruthValue | None
    measured: MetricValue
    valid: bool
    flags: tuple[Flag, ...]
    agent_late_ns: int
    natural_end: TruthValue | None = None

    @property
    def is_agent_late(self) -> bool:
        """Whether the agent itself spoilt the turn."""
        return self.agent_late_ns > AGENT_LATE_NS

    @property
    def counts(self) -> bool:
        """Whether neither side spoilt the turn."""
        return self.is_matched and self.valid and not self.is_agent_late

    @property
    def error(self) -> float | None:
        """Measured minus true value (s); None unless both exist."""
        if self.truth is None or not isinstance(self.measured, Measured):
            return None
        return self.measured.value - self.truth.value

    @property
    def width(self) -> float | None:
        """Width of the stated interval (s); None where nothing was measured."""
        return self.measured.hi - self.measured.lo if isinstance(self.measured, Measured) else None

    @property
    def covered(self) -> bool | None:
        """Whether what was stated is true; None where nothing was stated.

        A measured value states an interval, which must meet that of the truth. A censored one
        states that nothing happened up to its bound, and that the agent still talked then.
        """
        match self.measured:
            case Measured() as found:
                if self.truth is None:
                    return False
                return found.lo <= self.truth.hi and self.truth.lo <= found.hi
            case Censored(bound):
                latest = self.truth or self.natural_end
                return latest is None or latest.hi >= bound
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Summary:
    """How well a class of conditions was measured; all times in s, None where nothing counted.

    Attributes
    ----------
    n_turns
        Turns that count. The next three are those that do not, each in one of them.
    measured
        Values measured, of those that happened.
    covered, covered_at_least
        Statements that were true, and the one-sided 95 % Clopper-Pearson bound of that share.
    """

    n_turns: int
    n_invalid: int
    n_agent_late: int
    n_unmatched: int
    measured: Rate
    error_p50: float | None
    error_p99: float | None
    error_max: float | None
    covered: Rate
    covered_at_least: float | None
    width_p50: float | None


def summarize(rows: Sequence[Row]) -> Summary:
    """Return how well `rows` were measured."""
    used = [row for row in rows if row.counts]
    errors = [abs(row.error) for row in used if row.error is not None]
    happened = [row for row in used if row.truth is not None]
    stated = [row.covered for row in used if row.covered is not None]
    covered = Rate(sum(stated), len(stated))
    n_matched = _n_turns(rows, lambda row: row.is_matched)
    n_valid = _n_turns(rows, lambda row: row.is_matched and row.valid)
    return Summary(
        n_turns=_n_turns(used, lambda row: True),
        n_invalid=n_matched - n_valid,
        n_agent_late=n_valid - _n_turns(used, lambda row: True),
        n_unmatched=_n_turns(rows, lambda row: True) - n_matched,
        measured=Rate(sum(row.error is not None for row in happened), len(happened)),
        error_p50=_rank(errors, 50),
        error_p99=_rank(errors, 99),
        error_max=max(errors, default=None),
        covered=covered,
        covered_at_least=covers_at_least(covered),
        width_p50=_rank([row.width for row in used if row.width is not None], 50),
    )


def _n_turns(rows: Iterable[Row], keep: Callable[[Row], bool]) -> int:
    return len({(row.call, row.turn, row.step) for row in rows if keep(row)})


def _rank(values: Sequence[float], percent: int) -> float | None:
    return nearest_rank(np.asarray(values), percent) if values else None
