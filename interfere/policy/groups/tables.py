"""Groups on one device class: predicted slowdowns of every member, what the group costs, and whether rules allow it.

A member's slowdown is composed from its pairs (`interfere.predict.groups`). A group is allowed where every pair of it
with a pending job is, where its memory fits, where no member passes its caps beside all the others, and where together
they get more done than one after the other. Law: a group of two is what `pair_costs` says of the pair.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.pair_costs import PairCosts, pair_costs
from interfere.policy.costs.pair_predictions import PairPredictor
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import TICK_S, relative_checkpoint_losses, tolerable_slowdown
from interfere.policy.rules.slowdown_caps import SlowdownCapRule, SlowdownCaps
from interfere.predict.groups import CopyShares, GroupComposition, composition_of, pair_excess
from interfere.predict.groups.device_shares import MAX_COPIES, slowdowns_in_shares, smaller_slices
from interfere.records import Job, Rule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
INTERVAL_QUANTILE = 0.95  # that the intervals of predictions end at


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """g groups of m pending jobs beside r residents."""

    slowdown: Floats  # float64[m + r, g]: median of each member, residents last
    cost: Floats  # float64[m + r, g]: of each pending job, and what each resident costs more
    largest: Floats  # float64[g]: the largest cost of a job, residents as a whole
    allowed: Bools  # bool[g]: no rule forbids it, joint throughput included


class GroupTable:
    """The pending jobs of one size, a class each, and the residents of one device class."""

    def __init__(
        self,
        pending: Sequence[Job],
        residents: Sequence[Job],
        device_class: DeviceClass,
        context: PlanningContext,
        empty_pairs: PairCosts | None = None,
    ) -> None:
        """`residents`: one for each class of them; `empty_pairs`: the pending jobs among themselves, where known."""
        self.device_class, self._context = device_class, context
        self._k, self._n = len(pending), len(pending) + len(residents)
        people = (*pending, *residents)
        times = context.relative_times_on(device_class.type, people)
        timed = math.isfinite(device_class.open_s) or any(not math.isnan(job.deadline_s) for job in people)
        self.jobs = JobsOnClass.of(people, device_class, context, times, timed=timed)
        self._timed = timed
        self._least_of_pairs: dict[int | None, Floats] = {}  # by priority
        self._times = times
        self.pending_pairs = (
            empty_pairs
            or pair_costs(
                pending, pending, device_class, context, row_times=times[: self._k], column_times=times[: self._k]
            ).symmetric()
        )
        self.resident_pairs = (
            pair_costs(
                pending,
                residents,
                device_class,
                context,
                row_times=times[: self._k],
                column_times=times[self._k :],
                running=True,
            )
            if residents
            else None
        )

    # --- what is known of pairs -------------------------------------------------------------------------------------

    @cached_property
    def pair_allowed(self) -> Bools:
        """bool[n, n]: may two jobs of these classes share? Residents do already."""
        allowed = np.ones((self._n, self._n), dtype=bool)
        k = self._k
        allowed[:k, :k] = np.isfinite(self.pending_pairs.cost)
        if self.resident_pairs is not None:
            allowed[:k, k:] = np.isfinite(self.resident_pairs.cost)
            allowed[k:, :k] = allowed[:k, k:].T
        return allowed

    @cached_property
    def slowdown(self) -> Floats:
        """float64[n, n]: predicted median of each job beside each."""
        return self._predicted(0.5)

    @cached_property
    def _upper_of_pairs(self) -> Floats:
        """float64[n, n]: the quantile 1 - risk."""
        return self._predicted(1 - self._context.limits.slowdown.risk)

    @cached_property
    def _interval_distances(self) -> tuple[Floats, Floats]:
        """float64[n, n] each: squared distances of logarithms from the median to the 5 % and 95 % quantile."""
        below, above = self._predicted(1 - INTERVAL_QUANTILE), self._predicted(INTERVAL_QUANTILE)
        return self._squared_distance(below), self._squared_distance(above)

    @cached_property
    def _cap_distances(self) -> Floats:
        """float64[n, n]: the same to the quantile 1 - risk."""
        return self._squared_distance(self._upper_of_pairs)

    def _squared_distance(self, ends: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.log(ends / self.slowdown) ** 2)

    def _predicted(self, level: float) -> Floats:
        """float64[n, n]: a quantile of the slowdowns of pairs; the questions are those of `pair_costs`."""
        pending = self.jobs.subset(range(self._k))
        residents = self.jobs.subset(range(self._k, self._n))
        found = np.full((self._n, self._n), np.nan)
        for rows, columns, first, second in (
            (pending, pending, 0, 0),
            (pending, residents, 0, self._k),
            (residents, residents, self._k, self._k),
        ):
            predictor = PairPredictor(rows=rows, columns=columns, context=self._context)
            if not rows.profiled.any() or not columns.profiled.any() or not predictor.may_predict:
                continue
            ahead, back = predictor.slowdown_quantile(level)
            i, j = np.flatnonzero(rows.profiled) + first, np.flatnonzero(columns.profiled) + second
            found[np.ix_(j, i)] = back.T
            found[np.ix_(i, j)] = ahead
        return found

    @cached_property
    def _caps(self) -> Floats:
        """float64[n, n]: the tightest cap of each job against each that does not depend on time; inf without any."""
        jobs, limits = self.jobs, self._context.limits
        tightest = SlowdownCaps.of(jobs.jobs, jobs.profiles, jobs.jobs, limits).tightest()
        return np.broadcast_to(tightest, (self._n, self._n))

    @cached_property
    def capped(self) -> bool:
        """May a cap bind?"""
        return self._timed or bool(np.isfinite(self._caps).any())

    # --- groups -----------------------------------------------------------------------------------------------------

    def evaluate(self, members: Ints, residents: Sequence[int] = (), *, pairs_allowed: bool = False) -> GroupCosts:
        """`members` int64[g, m]: classes of pending jobs; `residents`: places among the residents.

        Every group has two members at least, its residents counted. `pairs_allowed`: no rule forbids any pair of them.
        """
        m, group = members.shape[1], self._groups(members, residents)
        slowdown = self._slowdowns(group)
        possible = self._fits(group) & self._within_caps(group, slowdown)
        if not pairs_allowed:
            for a, b in _pairs(len(group)):
                possible &= self.pair_allowed[group[a], group[b]]
        stretch = (self._rate * self._times)[group] * slowdown
        cost = self._constant[group] + stretch
        cost[:m] += (self._rate * self._losses)[group[:m]]
        largest = cost.max(axis=0)
        if residents:
            alone = self._slowdowns(group[m:, :1]) if len(residents) > 1 else np.ones((1, 1))
            cost[m:] = stretch[m:] - (self._rate * self._times)[group[m:]] * alone
        possible &= ~np.isnan(largest)
        return GroupCosts(
            slowdown=slowdown,
            cost=cost,
            largest=largest,
            allowed=possible & self._pays(slowdown),
        )

    def is_possible(self, members: Ints) -> Bools:
        """bool[g]: is a group without residents, every pair of which is allowed, within memory and caps?"""
        group = self._groups(members, ())
        possible = self._fits(group)
        if self.capped:
            possible &= self._within_caps(group, self._slowdowns(group))
        return possible

    def least_costs(self, residents: Sequence[int], priority: int | None) -> tuple[Floats, Floats]:
        """float64[k] and float64[k, k]: what pending jobs of a priority cost at least beside residents, and each pair.

        Slowdowns of a group are never less than the sum of its pairs. A pair that may not share costs inf.
        """
        k, rate = self._k, self._rate * self._times
        counts = np.array([priority in (None, job.priority) for job in self.jobs.jobs[:k]], dtype=np.float64)
        beside = np.nan_to_num(self._excess[:k, [k + place for place in residents]]).sum(axis=1)
        alone = self._constant[:k] + rate[:k] * (1.0 + beside) + self._rate[:k] * self._losses[:k]
        if priority not in self._least_of_pairs:
            pair = (counts * rate[:k])[:, None] * np.nan_to_num(self._excess[:k, :k])
            self._least_of_pairs[priority] = np.where(self.pair_allowed[:k, :k], pair + pair.T, np.inf)
        return counts * alone, self._least_of_pairs[priority]

    def interval(self, members: Sequence[int], residents: Sequence[int], place: int) -> tuple[float, float]:
        """The 5 % and 95 % quantile of the slowdown of one member of a group, in the order of `evaluate`."""
        group = self._groups(np.array([members], dtype=np.int64), residents)
        median = float(self._slowdowns(group)[place, 0])
        distances = [float(self._distance(group, pairs, 1.0)[place, 0]) for pairs in self._interval_distances]
        return median * math.exp(-distances[0]), median * math.exp(distances[1])

    def _groups(self, members: Ints, residents: Sequence[int]) -> Ints:
        """int64[m + r, g]: everybody of each group."""
        beside = self._k + np.array(residents, dtype=np.int64)
        return np.concatenate([members.T, np.broadcast_to(beside[:, None], (len(beside), len(members)))])

    # --- one property each ------------------------------------------------------------------------------------------

    def _sums(self, group: Ints, of_pair: Floats) -> Floats:
        """float64[m, g]: Σ over all others of a value of each pair, float64[n, n]."""
        flat, total = of_pair.ravel(), np.zeros(group.shape)
        for a in range(len(group)):
            row = group[a] * self._n
            for b in range(len(group)):
                if a != b:
                    total[a] += flat[row + group[b]]
        return total

    def _slowdowns(self, group: Ints) -> Floats:
        if len(group) == 1:
            return np.ones(group.shape)
        if len(group) == 2:
            return self._sums(group, self.slowdown)
        return self._composition.slowdown(self._sums(group, self._excess), len(group) - 1, self._copies(group))

    @cached_property
    def _composition(self) -> GroupComposition:
        return composition_of(self._context.predictor, self.device_class.type, self.device_class.mode)

    @cached_property
    def _in_shares(self) -> Floats | None:
        """float64[n, 1 + MAX_COPIES]: slowdown of each job in a share of the device, by its copies; None if unknown."""
        if not smaller_slices(self.device_class.type):
            return None
        jobs, context = self.jobs, self._context
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
        number: dict[str, int] = {}
        return np.array([number.setdefault(job.workload, len(number)) for job in self.jobs.jobs], dtype=np.int64)

    def _copies(self, group: Ints) -> CopyShares | None:
        """What is known of each member beside copies of itself; None on most devices."""
        if self._in_shares is None:
            return None
        workload, count = self._workload[group], np.zeros(group.shape, dtype=np.int64)
        for a, b in _pairs(len(group)):
            count[a] += workload[a] == workload[b]
        return CopyShares(self._in_shares[group, np.minimum(count, MAX_COPIES)], count == len(group) - 1)

    @cached_property
    def _excess(self) -> Floats:
        return pair_excess(self.slowdown)

    def _fits(self, group: Ints) -> Bools:
        """Do grants and peaks, or with oversubscription working sets, fit together?"""
        memory, limits = self.device_class.memory, self._context.limits
        if memory.memory_bytes < 0:
            return np.ones(group.shape[1], dtype=bool)
        demands = self.jobs.demands
        oversubscribed = memory.oversubscription_ratio > 1
        needed = np.nan_to_num([d.working_set_bytes if oversubscribed else d.needed_bytes for d in demands])
        fits = needed[group].sum(axis=0) <= memory.shared_bytes(limits)
        if memory.grants_memory:
            granules = np.array([memory.granules_for(demand) for demand in demands], dtype=np.int64)
            fits &= granules[group].sum(axis=0) <= memory.granules
        return np.asarray(fits)

    def fits_all(self) -> bool:
        """Do all jobs of the table fit together?"""
        return bool(self._fits(np.arange(self._n, dtype=np.int64)[:, None])[0])

    def _within_caps(self, group: Ints, slowdown: Floats) -> Bools:
        """Is nobody slowed down past a cap beside all the others, at the quantile 1 - risk?"""
        if not self.capped:
            return np.ones(group.shape[1], dtype=bool)
        upper = self._upper(group, slowdown)
        cap = np.full(group.shape, np.inf)
        for a, b in _pairs(len(group)):
            np.minimum(cap[a], self._caps[group[a], group[b]], out=cap[a])
        return np.asarray(~(upper > np.fmin(cap, self._time_caps(group, upper))).any(axis=0))

    def _time_caps(self, group: Ints, upper: Floats) -> Floats:
        """float64[m, g]: what deadlines, or a device that closes, leave; NaN for no cap.

        They are kept beside company that stays as long as the longest member of it could.
        """
        if not self._timed:
            return np.full(group.shape, np.nan)
        stays_s = np.zeros(group.shape)
        alone_s = np.nan_to_num(np.array([runtime.pessimistic_s for runtime in self.jobs.runtimes]), nan=np.inf)
        for a, b in _pairs(len(group)):
            np.maximum(stays_s[a], alone_s[group[b]] * upper[b], out=stays_s[a])
        pessimistic_s, limit_s = (
            np.array([getattr(runtime, name) for runtime in self.jobs.runtimes])[group]
            for name in ("pessimistic_s", "time_limit_s")
        )
        return tolerable_slowdown(pessimistic_s, limit_s + TICK_S, stays_s)

    def cap_rule_of_all(self) -> Rule | None:
        """The cap that somebody would pass beside all jobs of the table, with its numbers; None where none would."""
        if not self.capped:
            return None
        group = np.arange(self._n, dtype=np.int64)[:, None]
        upper = self._upper(group, self._slowdowns(group))
        jobs, limits = self.jobs, self._context.limits
        spread = np.ones(self._n)
        caps = SlowdownCapRule(
            jobs=jobs.jobs,
            partners=jobs.jobs,
            profiles=jobs.profiles,
            runtimes=jobs.runtimes,
            caps=SlowdownCaps.of(jobs.jobs, jobs.profiles, jobs.jobs, limits),
            time_cap=self._time_caps(group, upper) * spread,
            upper=upper * spread,
            risk=limits.slowdown.risk,
            caps_columns=False,
        )
        past = caps.mask & ~np.eye(self._n, dtype=bool)
        return caps.rule(*(int(place) for place in np.argwhere(past)[0])) if past.any() else None

    def _upper(self, group: Ints, slowdown: Floats) -> Floats:
        """float64[m, g]: the quantile 1 - risk of each slowdown; of two members that of the pair."""
        if len(group) == 2:
            return self._sums(group, self._upper_of_pairs)
        level = 1 - self._context.limits.slowdown.risk
        scale = NormalDist().inv_cdf(level) / NormalDist().inv_cdf(INTERVAL_QUANTILE)
        return np.asarray(slowdown * np.exp(self._distance(group, self._cap_distances, scale)))

    def _distance(self, group: Ints, of_pairs: Floats, scale: float) -> Floats:
        """float64[m, g]: of the logarithm of each slowdown to the end of its interval, from those of pairs squared."""
        squared = self._sums(group, of_pairs)
        return self._composition.log_distance(squared, len(group) - 1, scale, self._copies(group))

    def _pays(self, slowdown: Floats) -> Bools:
        """Do they get more done than one after the other?"""
        least = self._context.limits.slowdown.min_joint_throughput
        if least == 0:
            return np.ones(slowdown.shape[1], dtype=bool)
        return np.asarray((1.0 / slowdown).sum(axis=0) > least)

    @cached_property
    def _rate(self) -> Floats:
        return self._context.objective.rate(self.jobs.jobs)

    @cached_property
    def _constant(self) -> Floats:
        return self._context.objective.constant(self.jobs.jobs)

    @cached_property
    def _losses(self) -> Floats:
        """float64[n]: what the closing of the device costs each pending job, as a share of what remains."""
        return relative_checkpoint_losses(self.jobs.jobs, self.jobs.runtimes)


def _pairs(size: int) -> list[tuple[int, int]]:
    """Places of every member and every other."""
    return [(a, b) for a in range(size) for b in range(size) if a != b]
