"""What a decision minimises: job i at stretch x costs f_i(x) = constant_i + rate_i x, rate ≥ 0.

The stretch x = τ s is its time here and in company over its time alone on its fastest device type: s the predicted
slowdown, τ_it = T_it / min_u T_iu with solo step times T on the device types u of the snapshot (1 where T is unknown).
`remaining_s` and `attained_s` are seconds on that fastest type. Objectives that add: Σ f over jobs that start, plus
rate τ (s - 1) of every resident that somebody joins. Objectives of the worst: max f over jobs that start and residents
(s = 1 for those nobody joins). Law: a job's cost never falls as its slowdown rises. Pure arrays; no matching here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.records import Job, JobProfile, ObjectiveKind, Snapshot

Floats = NDArray[np.float64]

# A job outweighs nine of the level below. Five levels span 10^4, so that sums over thousands of jobs keep eight digits
# of the least of them in the 2^46 steps that the matching counts in.
PRIORITY_FACTOR = 10.0
# A job may lose a thousand times its own length for one deadline more: more than MAX_SLOWDOWN for each of ten others.
LOST = 1e-3


def _remaining(jobs: Sequence[Job]) -> Floats:
    return np.array([job.remaining_s for job in jobs], dtype=np.float64)


class Objective(Protocol):
    """The two coefficients of every job's cost."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields that every job must send."""

    @property
    def worst(self) -> bool:
        """Is the largest cost of a job minimised, not their sum?"""

    @property
    def past_cap(self) -> float:
        """What a pair costs in which a job passes the soft cap of the limits, times the chance of that."""

    @property
    def misses(self) -> float:
        """What a job costs that misses its deadline, times its weight and the chance of that."""

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """float64[n], what a job costs whatever its stretch."""

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """float64[n], what one more unit of stretch costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedExcess:
    """f_i(x) = w_i (x - 1), w the `weights`: time lost to sharing and to a slower device, in units of its own time."""

    needs: ClassVar[tuple[str, ...]] = ()
    worst: ClassVar[bool] = False
    past_cap: ClassVar[float] = 0.0
    misses: ClassVar[float] = 0.0

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """-w_i."""
        return -self.rate(jobs)

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """w_i."""
        return weights(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalSlowdown:
    """f_i(x) = x: every job counts the same, whatever its weight."""

    needs: ClassVar[tuple[str, ...]] = ()
    worst: ClassVar[bool] = False
    past_cap: ClassVar[float] = 0.0
    misses: ClassVar[float] = 0.0

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """Zeros."""
        return np.zeros(len(jobs))

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """Ones."""
        return np.ones(len(jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTime:
    """f_i(x) = r_i x, remaining seconds r: the sum is n times the average time to completion of who runs."""

    needs: ClassVar[tuple[str, ...]] = ("remaining_s",)
    worst: ClassVar[bool] = False
    past_cap: ClassVar[float] = 0.0
    misses: ClassVar[float] = 0.0

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """Zeros."""
        return np.zeros(len(jobs))

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """r_i."""
        return _remaining(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Makespan:
    """max r_i x_i: when the last of those who run is done."""

    needs: ClassVar[tuple[str, ...]] = ("remaining_s",)
    worst: ClassVar[bool] = True
    past_cap: ClassVar[float] = 0.0
    misses: ClassVar[float] = 0.0

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """Zeros."""
        return np.zeros(len(jobs))

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """r_i."""
        return _remaining(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishTimeFairness:
    """max (e_i + r_i x_i) / (a_i + r_i): time from submission to the end, shared over alone.

    Seconds e since submission, a of service attained, r remaining. The ρ of Themis (Mahajan et al., NSDI 2020, section
    4.1), against a whole device of the job's own rather than 1/n of the cluster.
    """

    needs: ClassVar[tuple[str, ...]] = ("remaining_s", "elapsed_s", "attained_s")
    worst: ClassVar[bool] = True
    past_cap: ClassVar[float] = 0.0
    misses: ClassVar[float] = 0.0

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """e_i / (a_i + r_i)."""
        return np.array([job.elapsed_s for job in jobs], dtype=np.float64) / _whole(jobs)

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """r_i / (a_i + r_i)."""
        return np.array([job.remaining_s for job in jobs], dtype=np.float64) / _whole(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsPastCap:
    """Σ over pairs P(a job of it passes the soft cap): how many pairs are expected to. Jobs themselves cost nothing.

    As a term of large weight beside another objective: first the fewest such pairs, then the least of the other.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    worst: ClassVar[bool] = False
    past_cap: ClassVar[float] = 1.0
    misses: ClassVar[float] = 0.0

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """Zeros."""
        return np.zeros(len(jobs))

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """Zeros."""
        return np.zeros(len(jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineMisses:
    """Σ w_i (P(i misses its deadline) + LOST (x_i - 1)): expected misses of who runs, then time lost by everybody."""

    needs: ClassVar[tuple[str, ...]] = ()
    worst: ClassVar[bool] = False
    past_cap: ClassVar[float] = 0.0
    misses: ClassVar[float] = 1.0

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """-LOST w_i."""
        return -self.rate(jobs)

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """LOST w_i."""
        return LOST * weights(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSum:
    """f_i(x) = Σ_k λ_k f_ik(x) of objectives that add; λ carries the units."""

    worst: ClassVar[bool] = False
    terms: tuple[tuple[float, Objective], ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """What any of them needs."""
        return tuple(dict.fromkeys(name for _, objective in self.terms for name in objective.needs))

    @property
    def past_cap(self) -> float:
        """Σ_k λ_k past_cap_k."""
        return sum(share * one.past_cap for share, one in self.terms)

    @property
    def misses(self) -> float:
        """Σ_k λ_k misses_k."""
        return sum(share * one.misses for share, one in self.terms)

    def constant(self, jobs: Sequence[Job]) -> Floats:
        """Σ_k λ_k constant_ik."""
        return np.asarray(np.sum([share * one.constant(jobs) for share, one in self.terms], axis=0))

    def rate(self, jobs: Sequence[Job]) -> Floats:
        """Σ_k λ_k rate_ik."""
        return np.asarray(np.sum([share * one.rate(jobs) for share, one in self.terms], axis=0))


OBJECTIVES: dict[ObjectiveKind, Objective] = {
    ObjectiveKind.WEIGHTED_EXCESS: WeightedExcess(),
    ObjectiveKind.TOTAL_SLOWDOWN: TotalSlowdown(),
    ObjectiveKind.COMPLETION_TIME: CompletionTime(),
    ObjectiveKind.MAKESPAN: Makespan(),
    ObjectiveKind.FINISH_TIME_FAIRNESS: FinishTimeFairness(),
    ObjectiveKind.PAIRS_PAST_CAP: PairsPastCap(),
    ObjectiveKind.DEADLINE_MISSES: DeadlineMisses(),
}


def weights(jobs: Sequence[Job]) -> Floats:
    """float64[n], weight · 10^priority: in the weighted excess, and in who starts first whatever the objective."""
    return np.array([job.weight * PRIORITY_FACTOR**job.priority for job in jobs], dtype=np.float64)


def objective_of(snapshot: Snapshot) -> Objective:
    """The weighted sum of its terms where it has any, else the one it names."""
    if snapshot.objective_terms:
        return WeightedSum(terms=tuple((term.weight, OBJECTIVES[term.kind]) for term in snapshot.objective_terms))
    return OBJECTIVES[snapshot.objective]


def relative_times(profiles: Sequence[Sequence[JobProfile | None]], types: Sequence[str]) -> Floats:
    """float64[n, t] ≥ 1: τ of n jobs from their profiles on t device types (`profiles` is n × t)."""
    times = np.array(
        [
            [
                one.step_time_s if one is not None and one.device_type == kind else np.nan
                for one, kind in zip(row, types, strict=True)
            ]
            for row in profiles
        ],
        dtype=np.float64,
    ).reshape(len(profiles), len(types))
    fastest = np.fmin.reduce(times, axis=1, keepdims=True)
    return np.asarray(np.nan_to_num(times / fastest, nan=1.0))


def _whole(jobs: Sequence[Job]) -> Floats:
    """a_i + r_i."""
    return np.array([job.attained_s + job.remaining_s for job in jobs], dtype=np.float64)
