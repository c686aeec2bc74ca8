"""What a decision minimises: every job i costs f_i(s) = alone_i + rate_i (s - 1) at slowdown s, a pair f_i + f_j.

A resident's own f(1) is paid whatever is decided, so beside it only rate (s - 1) counts.
Law: a job's cost never falls as its slowdown rises (rate ≥ 0). Pure arrays; no matching here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.records import Job, ObjectiveKind

Floats = NDArray[np.float64]


class Objective(Protocol):
    """The two coefficients of every job's cost."""

    def alone(self, jobs: Sequence[Job]) -> Floats:
        """float64[n], f(1)."""

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """float64[n], what one more unit of slowdown costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedExcess:
    """f_i(s) = w_i (s - 1), weights w: time lost to sharing."""

    def alone(self, jobs: Sequence[Job]) -> Floats:
        """Zeros: nothing is lost alone."""
        return np.zeros(len(jobs))

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """w_i."""
        return np.array([job.weight for job in jobs], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalSlowdown:
    """f_i(s) = s: every job counts the same, whatever its weight."""

    def alone(self, jobs: Sequence[Job]) -> Floats:
        """Ones."""
        return np.ones(len(jobs))

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """Ones."""
        return np.ones(len(jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTime:
    """f_i(s) = r_i s, remaining seconds r alone: the sum is n times the average time to completion of who runs."""

    def alone(self, jobs: Sequence[Job]) -> Floats:
        """r_i."""
        return np.array([job.remaining_s for job in jobs], dtype=np.float64)

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """r_i."""
        return self.alone(jobs)


OBJECTIVES: dict[ObjectiveKind, Objective] = {
    ObjectiveKind.WEIGHTED_EXCESS: WeightedExcess(),
    ObjectiveKind.TOTAL_SLOWDOWN: TotalSlowdown(),
    ObjectiveKind.COMPLETION_TIME: CompletionTime(),
}
