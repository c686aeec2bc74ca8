"""Predicted slowdowns: of groups on one device class as arrays, and of single pairs and of residents by job id.

Those of pairs are the model's, those of larger groups are composed of their pairs. A group is a sequence of int64
arrays, the places of its members among n jobs: k pending ones first, then the residents. The arrays broadcast to the
shape [...] of all groups; no array mixes pending jobs and residents.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext, numbered
from interfere.policy.rules.group_rules import Group
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import pair_ends_s
from interfere.predict.groups import (
    MAX_COPIES,
    CopyShares,
    GroupComposition,
    composed_slowdown,
    composition_of,
    copy_shares,
    pair_excess,
    slowdowns_in_shares,
    smaller_slices,
)
from interfere.records import NAN, ActionKind, Device, Job, JobProfile, MatrixBatch, MatrixPrediction, PairBatch
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
INTERVAL_QUANTILE = 0.95  # that the intervals of predictions end at
MEDIAN = 0.5
LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # those that intervals are stored at
# Standard deviations of a normal law from its median to its 95 % quantile, and to each of the predicted quantiles.
QUANTILE_95_Z = NormalDist().inv_cdf(INTERVAL_QUANTILE)
Z_OF_LEVELS = [NormalDist().inv_cdf(level) for level in LEVELS]


class GroupSlowdowns:
    """Slowdowns of the members of groups of pending jobs and residents; each distinct profile is asked about once."""

    def __init__(self, jobs: JobsOnClass, pending: int, context: PlanningContext) -> None:
        """`pending`: how many of the jobs are pending."""
        self.jobs, self.context, self.pending = jobs, context, pending
        places = [_distinct(jobs.profiles[:pending]), _distinct(jobs.profiles[pending:])]
        self._profiles = [profiles for profiles, _ in places]
        self._profile_of = np.array([place for _, of_side in places for place in of_side], dtype=np.int64)
        self._tables: dict[tuple[str, float, int, int], Floats] = {}

    # --- pairs ------------------------------------------------------------------------------------------------------

    @cached_property
    def unknown_domain(self) -> str:
        """Why the model cannot predict for this device type and sharing mode; empty where it can."""
        device_class = self.jobs.device_class
        extrapolate = self.context.limits.allow_extrapolation
        return "" if extrapolate else self.context.predictor.knows(device_class.type, device_class.mode)

    def of_pair(self, member: Ints, other: Ints, level: float = MEDIAN) -> Floats:
        """float64[...]: a quantile of the slowdown of each member beside another; NaN where nothing is predicted."""
        return self._looked_up("slowdown", level, member, other)

    def excess(self, member: Ints, other: Ints) -> Floats:
        """float64[...]: what each other adds to the slowdown of a member."""
        return self._looked_up("excess", MEDIAN, member, other)

    def fit_probability(self, member: Ints, other: Ints) -> Floats:
        """float64[...]: probability that both fit the memory of the device; NaN where no misfit risk is set."""
        return self._looked_up("fit", MEDIAN, member, other)

    def _looked_up(self, kind: str, level: float, member: Ints, other: Ints) -> Floats:
        """The values of a table of profiles for each member beside each other."""
        sides = (
            int(member.size > 0 and member.flat[0] >= self.pending),
            int(other.size > 0 and other.flat[0] >= self.pending),
        )
        key = (kind, level, *sides)
        if key not in self._tables:
            self._tables[key] = self._table(kind, level, *sides)
        return np.asarray(self._tables[key][self._profile_of[member], self._profile_of[other]])

    def _table(self, kind: str, level: float, side: int, other_side: int) -> Floats:
        """Return float64[p + 1, q + 1]: a value for each profile of one side beside each profile of the other.

        NaN in the last row and column stands for jobs without a profile.
        """
        table = np.full((len(self._profiles[side]) + 1, len(self._profiles[other_side]) + 1), np.nan)
        first, second = sorted((side, other_side))
        answer = self._answer(level, first, second)
        if answer is None:
            return table
        swapped = side > other_side
        if kind == "fit":
            if answer.feasibility is not None and not math.isnan(self.context.limits.memory.misfit_risk):
                fit = answer.feasibility if side != other_side else np.minimum(answer.feasibility, answer.feasibility.T)
                table[:-1, :-1] = fit.T if swapped else fit
            return table
        table[:-1, :-1] = answer.neighbour_slowdown.T if swapped else answer.victim_slowdown
        if kind == "excess":
            return pair_excess(table)
        if kind == "distance":  # squared distance of the logarithm from the median
            with np.errstate(invalid="ignore"):
                return np.asarray(np.log(table / self._table("slowdown", MEDIAN, side, other_side)) ** 2)
        return table

    def _answer(self, level: float, side: int, other_side: int) -> MatrixPrediction | None:
        """The prediction of each profile of one side beside each of the other; None where the model says nothing."""
        context, victims, neighbours = self.context, self._profiles[side], self._profiles[other_side]
        may_predict = not self.unknown_domain and ActionKind.START_SHARED in context.limits.allowed
        if not victims or not neighbours or not may_predict:
            return None
        device_class = self.jobs.device_class
        memory = device_class.memory
        batch = MatrixBatch(
            victims=victims,
            neighbours=neighbours,
            device_type=device_class.type,
            mode=device_class.mode,
            device_memory_bytes=memory.allocatable_bytes if memory.memory_bytes >= 0 else NAN,
            allow_extrapolation=context.limits.allow_extrapolation,
        )
        return context.predict_matrix(batch, level)

    @cached_property
    def latencies(self) -> "GroupSlowdowns | None":
        """The slowdowns of the p99 of the same jobs' latencies; None where no model predicts them."""
        context, predictor = self.context, self.context.latency_predictor
        if predictor is None:
            return None
        return GroupSlowdowns(self.jobs, self.pending, replace(context, predictor=predictor, _predictions={}))

    def latency_upper_s(self, group: Group, upper: Sequence[Floats]) -> list[tuple[Floats, Bools]]:
        """For each member the quantile 1 - risk of the latency of a request beside all others, float64[...] in seconds,
        and whether it is that of the p99, bool[...]. No job is expected to be faster beside others than alone.

        It is where a model predicts the p99 of a service whose p99 alone is known. Beside several others that is slowed
        down by the product of what each does: nobody measured more. Else it is a mean: `upper`, the same quantile of
        the slowdown of a step, times the time of a step.
        """
        level = 1 - self.context.limits.slowdown.risk
        step_s, p99_s = (
            np.array([np.nan if profile is None else getattr(profile, name) for profile in self.jobs.profiles])
            for name in ("step_time_s", "latency_p99_s")
        )
        found = []
        for place, member in enumerate(group):
            mean_s = np.maximum(upper[place], 1.0) * step_s[member]
            p99_upper_s = np.full(mean_s.shape, np.nan)
            if self.latencies is not None and np.isfinite(p99_s[member]).any():
                others = [other for k, other in enumerate(group) if k != place]
                slowdowns = [self.latencies.of_pair(member, other, level) for other in others]
                product = np.prod(np.broadcast_arrays(*slowdowns), axis=0)
                p99_upper_s = np.maximum(product, 1.0) * p99_s[member]
            is_p99 = np.isfinite(p99_upper_s)
            found.append((np.where(is_p99, p99_upper_s, mean_s), is_p99))
        return found

    # --- groups -----------------------------------------------------------------------------------------------------

    def of_groups(self, group: Group, present: Sequence[Bools] | None = None, count: int = 0) -> list[Floats]:
        """float64[...] each: the predicted median of every member.

        `present` bool[...] each: which members have not ended yet, where `count` of each group have not.
        """
        count = len(group) if present is None else count
        if count == 1:
            return [np.ones(np.shape(member)) for member in group]
        if count == 2:
            return self._sums(group, self.of_pair, present)
        excess, copies = self._sums(group, self.excess, present), self._copies(group, present, count)
        return [
            self._composition.slowdown(total, count - 1, shares) for total, shares in zip(excess, copies, strict=True)
        ]

    def upper(self, group: Group, slowdown: Sequence[Floats]) -> list[Floats]:
        """float64[...] each: the quantile 1 - risk of each slowdown; a group of two has the quantile of its pair."""
        level = 1 - self.context.limits.slowdown.risk
        if len(group) == 2:
            return self._sums(group, lambda member, other: self.of_pair(member, other, level))
        distances = self._log_distances(group, level, NormalDist().inv_cdf(level) / QUANTILE_95_Z)
        return [median * np.exp(distance) for median, distance in zip(slowdown, distances, strict=True)]

    def intervals(self, group: Group) -> list[tuple[Floats, Floats]]:
        """float64[...] each: the 5 % and 95 % quantile of the slowdown of every member."""
        lower, upper = (self._log_distances(group, level, 1.0) for level in (1 - INTERVAL_QUANTILE, INTERVAL_QUANTILE))
        return [
            (median * np.exp(-below), median * np.exp(above))
            for median, below, above in zip(self.of_groups(group), lower, upper, strict=True)
        ]

    def exceedances(
        self, group: Group, slowdown: Sequence[Floats], limits: Sequence[Sequence[Floats | float]]
    ) -> list[Floats]:
        """float64[...] each: probability that the slowdown of a member passes its limit.

        `limits`, of each member: the limit in each of several equally likely cases, NaN for none. Of two members the
        quantiles of the model decide; of more the logarithm is taken as normal.
        """
        smallest = np.finfo(np.float64).tiny  # any slowdown exceeds a limit that has passed
        cases = [[np.fmax(np.nan_to_num(case, nan=np.inf), smallest) for case in of_member] for of_member in limits]
        if len(group) == 1:
            return [np.mean([slowdown[0] > case for case in cases[0]], axis=0)]
        if len(group) == 2:
            quantiles = [
                np.stack([self.of_pair(member, other, level) for level in LEVELS])
                for member, other in zip(group, reversed(group), strict=True)
            ]
        else:
            distances = self._log_distances(group, INTERVAL_QUANTILE, 1.0)
            quantiles = [
                np.stack([median * np.exp(z / QUANTILE_95_Z * distance) for z in Z_OF_LEVELS])
                for median, distance in zip(slowdown, distances, strict=True)
            ]
        return [
            np.asarray(np.mean([exceedance(of_member, case) for case in of_cases], axis=0))
            for of_member, of_cases in zip(quantiles, cases, strict=True)
        ]

    def ends_s(self, group: Group, alone_s: Floats) -> list[Floats]:
        """Return float64[...] for each member: the time at which it ends.

        After each end the others go on at the slowdowns of the smaller group.

        `alone_s` float64[n]: how long each job would take alone.
        """
        if len(group) == 1:
            return [alone_s[group[0]]]
        if len(group) == 2:
            return pair_ends_s(*(alone_s[member] for member in group), *self.of_groups(group))
        left_s = np.stack(np.broadcast_arrays(*(alone_s[member] for member in group)))
        present, end_s, now_s = np.ones(left_s.shape, dtype=bool), np.empty(left_s.shape), np.zeros(left_s.shape[1:])
        for count in range(len(group), 0, -1):
            slowdown = np.stack(np.broadcast_arrays(*self.of_groups(group, list(present), count)))
            due_s = np.where(present, left_s * slowdown, np.inf)
            first = np.argmin(due_s, axis=0)[None]
            step_s = np.take_along_axis(due_s, first, axis=0)[0]
            now_s = now_s + step_s
            np.put_along_axis(end_s, first, now_s[None], axis=0)
            np.put_along_axis(present, first, np.False_, axis=0)
            left_s = np.maximum(left_s - step_s / slowdown, 0.0)
        return list(end_s)

    def _log_distances(self, group: Group, level: float, scale: float) -> list[Floats]:
        """Return float64[...] for each member: the log distance from its median slowdown to the end of its interval.

        `level`: of the quantiles of pairs that are composed; `scale`: its distance ÷ that of the 95 % quantile.
        """
        squared = self._sums(group, partial(self._looked_up, "distance", level))
        copies = self._copies(group, None, len(group))
        return [
            self._composition.log_distance(total, len(group) - 1, scale, shares)
            for total, shares in zip(squared, copies, strict=True)
        ]

    def _sums(
        self, group: Group, of_pair: Callable[[Ints, Ints], Floats], present: Sequence[Bools] | None = None
    ) -> list[Floats]:
        """Return float64[...] for each member of a group: the sum over the other members of a value of the pair."""
        totals = []
        for a, member in enumerate(group):
            total: Floats | float = 0.0
            for b, other in enumerate(group):
                if a != b:
                    value = of_pair(member, other)
                    total = total + (value if present is None else np.where(present[b], value, 0.0))
            totals.append(np.asarray(total))
        return totals

    @cached_property
    def _composition(self) -> GroupComposition:
        return composition_of(self.context.predictor, self.jobs.device_class.type, self.jobs.device_class.mode)

    @cached_property
    def _in_shares(self) -> Floats | None:
        """float64[n, 1 + MAX_COPIES]: slowdown of each job in a share of the device, by its copies; None if unknown."""
        if not smaller_slices(self.jobs.device_class.type):
            return None
        jobs, context = self.jobs, self.context
        slowdowns = [
            np.full(1 + MAX_COPIES, np.nan)
            if profile is None
            else slowdowns_in_shares(profile, partial(context.profile_of_workload, profile.workload))
            for profile in jobs.profiles
        ]
        return np.array(slowdowns) if np.isfinite(slowdowns).any() else None

    @cached_property
    def _workload(self) -> Ints:
        """int64[n]: a number for each workload."""
        return np.array(numbered(job.workload for job in self.jobs.jobs)[0], dtype=np.int64)

    def _copies(self, group: Group, present: Sequence[Bools] | None, count: int) -> Sequence[CopyShares | None]:
        """Return what was measured of copies of each member's workload on this device class; None without such
        measurements."""
        if self._in_shares is None:
            return [None] * len(group)
        copies = self._sums(
            group, lambda member, other: 1.0 * (self._workload[member] == self._workload[other]), present
        )
        return [
            CopyShares(self._in_shares[member, np.minimum(equal, MAX_COPIES).astype(np.int64)], equal == count - 1)
            for member, equal in zip(group, copies, strict=True)
        ]


def _distinct(profiles: Sequence[JobProfile | None]) -> tuple[tuple[JobProfile, ...], list[int]]:
    """The distinct profiles, and for each job its place among them; -1 where it has none."""
    distinct = {id(profile): profile for profile in profiles if profile is not None}
    place_of = {name: place for place, name in enumerate(distinct)}
    return tuple(distinct.values()), [place_of.get(id(profile), -1) for profile in profiles]


# A hard cap at a risk only divides pairs into allowed and forbidden: where too few are allowed for all jobs to start it
# says nothing about the rest. Medians alone say too little too: on Gavel's V100 with 30 % of the pairs hidden, plans by
# the model's medians held 27, 37 and 37 % of the pairs past 1.5 (three hidden sets), by this probability 25, 26 and
# 25 %, where 24 % was the best possible; on P100 neither is better: 8, 14 and 17 % by medians, 10, 15 and 15 % by
# probability (tests/bench/test_caps.py, "model").
def probability_of_any(probabilities: Sequence[Floats]) -> Floats:
    """Return float64[...]: 1 - Π (1 - P), the probability that at least one of several independent events happens."""
    none = 1.0 - probabilities[0]
    for probability in probabilities[1:]:
        none = none * (1.0 - probability)
    return np.asarray(1.0 - none)


def exceedance(slowdowns: Floats, cap: float | Floats) -> Floats:
    """float64[...]: P(s > cap) from quantiles float64[levels, ...] at `LEVELS`, linear in log s between levels.

    Certain beyond the first and the last level.
    """
    log_slowdowns, log_cap = np.log(slowdowns), np.log(cap)
    below = np.where(log_slowdowns[0] <= log_cap, LEVELS[0], 0.0)
    for k in range(len(LEVELS) - 1):
        width = np.maximum(log_slowdowns[k + 1] - log_slowdowns[k], 1e-12)
        below += np.clip((log_cap - log_slowdowns[k]) / width, 0.0, 1.0) * (LEVELS[k + 1] - LEVELS[k])
    return np.asarray(np.where(log_slowdowns[-1] <= log_cap, 0.0, 1.0 - below))


DEPARTURES = (ActionKind.MOVE, ActionKind.PREEMPT, ActionKind.END)  # actions after which a resident has left its device
SlowdownOfJob = Mapping[str, float]
"""Predicted slowdown of each job beside its co-located jobs, by job id; a job without a prediction is absent."""


class PairSlowdown(NamedTuple):
    """The predicted slowdown of a job beside one other job; NaN where the model abstains."""

    median: float
    lower: float  # 5 % quantile
    upper: float  # 95 % quantile


Residents = Sequence[tuple[Device, Job]]
Domain = tuple[str, SharingMode]
"""(device type, sharing mode)"""


def predicted_pairs(
    pairs_on: Mapping[Domain, Sequence[tuple[Job, Job]]], context: PlanningContext
) -> dict[tuple[str, str], PairSlowdown]:
    """Return the slowdown of the first job of each pair beside the second one, by their ids; the first domain counts.

    Each pair of kinds of jobs is asked about once. Absent are pairs without a profile, and those on unknown domains.
    """
    predictor, extrapolate = context.predictor, context.limits.allow_extrapolation
    found: dict[tuple[str, str], PairSlowdown] = {}
    for (device_type, mode), pairs in pairs_on.items():
        if predictor.knows(device_type, mode) and not extrapolate:
            continue
        kinds = {(job.workload, job.profile_id): job for pair in pairs for job in pair}
        profiles = {
            kind: profile for kind, job in kinds.items() if (profile := context.profile(job, device_type)) is not None
        }
        place = {kind: k for k, kind in enumerate(profiles)}
        of_pairs = [((job.workload, job.profile_id), (other.workload, other.profile_id)) for job, other in pairs]
        asked = list(dict.fromkeys(pair for pair in of_pairs if pair[0] in place and pair[1] in place))
        if not asked:
            continue
        answer = predictor.predict_pairs(
            PairBatch(
                jobs=tuple(profiles.values()),
                victim=np.array([place[victim] for victim, _ in asked], dtype=np.int64),
                neighbour=np.array([place[neighbour] for _, neighbour in asked], dtype=np.int64),
                device_type=device_type,
                mode=mode,
                allow_extrapolation=extrapolate,
            )
        )
        columns = answer.median.tolist(), answer.lower.tolist(), answer.upper.tolist()
        of_kinds = dict(zip(asked, map(PairSlowdown._make, zip(*columns, strict=True)), strict=True))
        here = {
            (job.id, other.id): of_kinds[kinds_of_pair]
            for (job, other), kinds_of_pair in zip(pairs, of_pairs, strict=True)
            if kinds_of_pair in of_kinds
        }
        found = here | found
    return found


def resident_pairs(residents: Residents, context: PlanningContext) -> dict[tuple[str, str], float]:
    """(job id, neighbour id) -> predicted median slowdown of each resident beside each other one on its device.

    Absent where nothing is predicted.
    """
    pairs_on: dict[Domain, list[tuple[Job, Job]]] = {}
    for device, job in residents:
        if len(device.residents) > 1:
            pairs = pairs_on.setdefault((device.type, device.mode or DEFAULT_MODE), [])
            pairs += [(job, other) for other in device.residents if other.id != job.id]
    predicted = predicted_pairs(pairs_on, context)
    return {ids: pair.median for ids, pair in predicted.items() if not math.isnan(pair.median)}


def slowdowns_among_residents(residents: Residents, context: PlanningContext) -> dict[str, float]:
    """Return each resident's slowdown beside its present neighbours, composed from predictions, by job id."""
    of_pairs = resident_pairs(residents, context)
    slowdown_of: dict[str, float] = {}
    for device, job in residents:
        beside = [other for other in device.residents if (job.id, other.id) in of_pairs]
        medians = [of_pairs[job.id, other.id] for other in beside]
        if len(medians) == 1:
            slowdown_of[job.id] = medians[0]
        elif medians:
            composition = composition_of(context.predictor, device.type, device.mode or DEFAULT_MODE)
            profiles = [context.profile(each, device.type) for each in (job, *beside)]
            shares = copy_shares([list(filter(None, profiles))], context.profile_of_workload)
            slowdown_of[job.id] = composed_slowdown(medians, composition, shares)
    return slowdown_of


def all_residents(context: PlanningContext) -> list[tuple[Device, Job]]:
    """Return every running job with each device that it runs on."""
    return [(device, job) for device in context.snapshot.devices for job in device.residents]
