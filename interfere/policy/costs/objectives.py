"""Objectives as data: at stretch x a job costs f_i(x) = constant_i + rate_i · x, with rate_i ≥ 0.

The stretch x = τ s is a job's time on its device and beside its neighbour over its time alone on its fastest device
type: s is the predicted slowdown and τ_it = T_it / min_u T_iu, with solo step times T on the device types u of the
snapshot (1 where T is unknown). `remaining_s` and `attained_s` are seconds on that fastest type.
A min-sum objective adds f over the jobs that start, and rate τ (s - 1) of every resident that gets a neighbour. A
min-max (bottleneck) objective takes the largest f over the jobs that start and the residents (s = 1 without neighbour).
Law: a job's cost never falls as its slowdown rises. Pure arrays; no matching here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.extensions import ExtensionKind, find_extension
from interfere.records import Job, JobProfile, ObjectiveKind, Snapshot

Floats = NDArray[np.float64]
Coefficient = Callable[[Sequence[Job]], Floats]
"""Jobs -> float64[n], one coefficient a job."""

# A job may lose a thousand times its own length for one deadline more: more than MAX_SLOWDOWN for each of ten others.
TIME_LOST_WEIGHT = 1e-3
HOUR_S = 3600.0


class Aggregate(StrEnum):
    """How the costs of jobs become the value of a plan."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedObjective:
    """What the end of a job costs in a plan over time; a deadline that is missed comes before all ends."""

    rate: Callable[[Floats, Floats], Floats]  # (weight, own time in seconds) -> what one second more costs each job
    from_submission: bool = True  # whether time counts from the submission of a job; else from now


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective: two coefficients a job, how costs are aggregated, prices of events, and what ends are worth."""

    constant: Coefficient  # what a job costs whatever its stretch
    rate: Coefficient  # what one more unit of stretch costs
    aggregate: Aggregate = Aggregate.SUM
    required_fields: tuple[str, ...] = ()  # that every job must send
    soft_cap_price: float = 0.0  # of a pair in which a job exceeds the soft cap, times the probability of that
    deadline_miss_price: float = 0.0  # of a job that misses its deadline, times its weight and the probability of that
    counts_ends: bool = False  # whether a job costs its end, with smaller slowdowns once others of its group have ended
    by_priority: bool = False  # whether costs of jobs of higher priority come before all others
    planned: "PlannedObjective | None" = None  # what ends cost in a plan over time; None: this moment alone counts
    money_price: float = 0.0  # of one unit of money that occupied devices cost
    energy_price: float = 0.0  # of one joule that occupied devices take

    @property
    def is_min_max(self) -> bool:
        """Whether the largest cost of a job is minimised, not their sum."""
        return self.aggregate is Aggregate.MAX

    @property
    def prices_occupancy(self) -> bool:
        """Whether the time for which jobs occupy a device costs something, whatever they do in it."""
        return self.money_price > 0 or self.energy_price > 0

    def occupancy_price(self, price_per_hour: float, power_w: float) -> float:
        """What one second costs for which jobs occupy a device of this price and power."""
        return self.money_price * price_per_hour / HOUR_S + self.energy_price * power_w


def weights(jobs: Sequence[Job]) -> Floats:
    """float64[n]: the weight of each job; priorities are levels (`solve.decision_problem`), not factors."""
    return np.array([job.weight for job in jobs], dtype=np.float64)


def _negative(coefficient: Coefficient) -> Coefficient:
    return lambda jobs: -coefficient(jobs)


def _zero(jobs: Sequence[Job]) -> Floats:
    return np.zeros(len(jobs))


def _one(jobs: Sequence[Job]) -> Floats:
    return np.ones(len(jobs))


def _remaining_s(jobs: Sequence[Job]) -> Floats:
    return np.array([job.remaining_s for job in jobs], dtype=np.float64)


def _solo_total_s(jobs: Sequence[Job]) -> Floats:
    """a_i + r_i: service attained and remaining."""
    return np.array([job.attained_s + job.remaining_s for job in jobs], dtype=np.float64)


def _elapsed_share(jobs: Sequence[Job]) -> Floats:
    return np.array([job.elapsed_s for job in jobs], dtype=np.float64) / _solo_total_s(jobs)


def _remaining_share(jobs: Sequence[Job]) -> Floats:
    return _remaining_s(jobs) / _solo_total_s(jobs)


def _time_lost_weight(jobs: Sequence[Job]) -> Floats:
    return TIME_LOST_WEIGHT * weights(jobs)


# f_i(x) = w_i (x - 1), w the `weights`: time lost to sharing and to a slower device, in units of the job's own time.
WEIGHTED_EXCESS = Objective(constant=_negative(weights), rate=weights, by_priority=True)
# The same at one moment. Over time it divides by the square root of a job's own time: half way between completion time,
# in which long jobs count most, and ρ (time ÷ own time), in which short ones do.
AUTO = replace(WEIGHTED_EXCESS, planned=PlannedObjective(rate=lambda weight, own_s: weight / np.sqrt(own_s)))
# f_i(x) = x: every job counts the same, whatever its weight.
TOTAL_SLOWDOWN = Objective(constant=_zero, rate=_one)
ENDS_FROM_NOW = PlannedObjective(rate=lambda weight, _: np.ones_like(weight), from_submission=False)
# f_i(x) = r_i x with remaining seconds r: when each job that runs completes. The plan over time
# (`interfere.policy.schedule`) prices the jobs that wait.
COMPLETION_TIME = Objective(
    constant=_zero, rate=_remaining_s, required_fields=("remaining_s",), counts_ends=True, planned=ENDS_FROM_NOW
)
# max r_i x_i: when the last of the jobs that run completes.
MAKESPAN = replace(COMPLETION_TIME, aggregate=Aggregate.MAX, counts_ends=False)
# max (e_i + r_i x_i) / (a_i + r_i): time from submission to completion, shared over alone, with seconds e since
# submission, a of service attained, r remaining. The ρ of Themis (Mahajan et al., NSDI 2020, section 4.1), against a
# whole device of the job's own rather than 1/n of the cluster.
FINISH_TIME_FAIRNESS = Objective(
    constant=_elapsed_share,
    rate=_remaining_share,
    aggregate=Aggregate.MAX,
    required_fields=("remaining_s", "elapsed_s", "attained_s"),
    planned=PlannedObjective(rate=lambda _, own_s: 1.0 / own_s),
)
# Σ over pairs P(a job of it exceeds the soft cap): how many pairs are expected to; jobs themselves cost nothing. As a
# term of large weight beside another objective: first the fewest such pairs, then the smallest value of the other.
PAIRS_PAST_CAP = Objective(constant=_zero, rate=_zero, soft_cap_price=1.0)
# Σ w_i (P(i misses its deadline) + TIME_LOST_WEIGHT (x_i - 1)): expected misses of the jobs that run, then time lost.
DEADLINE_MISSES = Objective(
    constant=_negative(_time_lost_weight),
    rate=_time_lost_weight,
    deadline_miss_price=1.0,
    by_priority=True,
    planned=PlannedObjective(rate=lambda weight, own_s: TIME_LOST_WEIGHT * weight / own_s),
)
# Σ over devices that jobs start on, price · time until the last job on it ends: expected money for the remaining work.
# A pair pays for its device once; beside a resident only the time by which the device is occupied longer counts.
COST = Objective(constant=_zero, rate=_zero, money_price=1.0, required_fields=("remaining_s",))
# The same with power in place of price: expected joules.
ENERGY = Objective(constant=_zero, rate=_zero, energy_price=1.0, required_fields=("remaining_s",))

OBJECTIVES: dict[ObjectiveKind, Objective] = {
    ObjectiveKind.AUTO: AUTO,
    ObjectiveKind.WEIGHTED_EXCESS: WEIGHTED_EXCESS,
    ObjectiveKind.TOTAL_SLOWDOWN: TOTAL_SLOWDOWN,
    ObjectiveKind.COMPLETION_TIME: COMPLETION_TIME,
    ObjectiveKind.MAKESPAN: MAKESPAN,
    ObjectiveKind.FINISH_TIME_FAIRNESS: FINISH_TIME_FAIRNESS,
    ObjectiveKind.PAIRS_PAST_CAP: PAIRS_PAST_CAP,
    ObjectiveKind.DEADLINE_MISSES: DEADLINE_MISSES,
    ObjectiveKind.COST: COST,
    ObjectiveKind.ENERGY: ENERGY,
}


def named_objective(name: str) -> Objective | None:
    """Return the objective of another package, by its name or `package:Object`; None for "".

    Raises InvalidInputError for an unknown name and for what is no objective, UnfitError where it cannot be loaded.
    """
    if not name:
        return None
    found = find_extension(ExtensionKind.OBJECTIVE, name)
    if not isinstance(found, Objective):
        remedy = "name an Objective of interfere.policy.costs.objectives"
        raise InvalidInputError("no objective", value=f"{name}: {type(found).__name__}", remedy=remedy)
    return found


def weighted_sum(terms: Sequence[tuple[float, Objective]]) -> Objective:
    """f_i(x) = Σ_k λ_k f_ik(x) of min-sum objectives; λ carries the units."""

    def total(coefficients: Sequence[tuple[float, Coefficient]]) -> Coefficient:
        return lambda jobs: np.asarray(
            np.sum([share * coefficient(jobs) for share, coefficient in coefficients], axis=0)
        )

    return Objective(
        constant=total([(share, term.constant) for share, term in terms]),
        rate=total([(share, term.rate) for share, term in terms]),
        required_fields=tuple(dict.fromkeys(name for _, term in terms for name in term.required_fields)),
        soft_cap_price=sum(share * term.soft_cap_price for share, term in terms),
        deadline_miss_price=sum(share * term.deadline_miss_price for share, term in terms),
        by_priority=any(term.by_priority for _, term in terms),
        money_price=sum(share * term.money_price for share, term in terms),
        energy_price=sum(share * term.energy_price for share, term in terms),
    )


def objective_of(snapshot: Snapshot) -> Objective:
    """Return the weighted sum of the snapshot's objective terms, or without terms the objective that the snapshot
    names."""
    if snapshot.objective_terms:
        return weighted_sum([(term.weight, OBJECTIVES[term.kind]) for term in snapshot.objective_terms])
    return OBJECTIVES[snapshot.objective]


def relative_times(profiles: Sequence[Sequence[JobProfile | None]], types: Sequence[str]) -> Floats:
    """float64[n, t] ≥ 1: τ of n jobs from their profiles on t device types (`profiles` is n × t)."""
    times = np.array(
        [
            [
                profile.step_time_s if profile is not None and profile.device_type == device_type else np.nan
                for profile, device_type in zip(row, types, strict=True)
            ]
            for row in profiles
        ],
        dtype=np.float64,
    ).reshape(len(profiles), len(types))
    fastest = np.fmin.reduce(times, axis=1, keepdims=True)
    return np.asarray(np.nan_to_num(times / fastest, nan=1.0))
