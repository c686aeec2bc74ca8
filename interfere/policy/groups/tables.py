"""Groups on one device class: predicted slowdowns of every member, what the group costs, and whether rules allow it.

A member's slowdown is composed from its pairs (`interfere.predict.groups`). A group is allowed where every pair of it
with a pending job is, where its memory fits, where no member passes its caps beside all the others, and where together
they get more done than one after the other. Laws: no member costs less in a larger group that contains this one; a
group of two is what `pair_costs` says of the pair.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from interfere.predict.groups import group_log_distance, group_slowdown, pair_excess
from interfere.records import Job, Rule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
INTERVAL_QUANTILE = 0.95  # that the intervals of predictions end at


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """g groups of at most m pending jobs beside r residents."""

    slowdown: Floats  # float64[g, m + r]: median of each member, residents last; NaN where there is none
    cost: Floats  # float64[g, m + r]: of each pending job, and what each resident costs more; 0 where there is none
    largest: Floats  # float64[g]: the largest cost of a job, residents as a whole
    allowed: Bools  # bool[g]: no rule forbids it, joint throughput included
    possible: Bools  # bool[g]: no rule forbids it that forbids every larger group too


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
    def _interval_of_pairs(self) -> tuple[Floats, Floats]:
        """float64[n, n] each: the 5 % and 95 % quantile."""
        return self._predicted(1 - INTERVAL_QUANTILE), self._predicted(INTERVAL_QUANTILE)

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

    def evaluate(self, members: Ints, residents: Sequence[int] = ()) -> GroupCosts:
        """`members` int64[g, m]: classes of pending jobs, -1 for none; `residents`: places among the residents.

        Every group has two members at least, its residents counted.
        """
        beside = np.broadcast_to(self._k + np.array(residents, dtype=np.int64), (len(members), len(residents)))
        group = np.concatenate([members, beside], axis=1)
        m = members.shape[1]
        slowdown = self._slowdowns(group)
        possible = self._pairs_allowed(group, m) & self.fits(group) & self._within_caps(group, slowdown)
        alone = self._slowdowns(beside[:1]) if residents else np.zeros((1, 0))
        rate, constant = self._rate, self._constant
        stretch = np.append(rate * self._times, np.nan)[group] * slowdown
        cost = np.append(constant, np.nan)[group] + stretch
        cost[:, :m] += np.append(rate * self._losses, np.nan)[members]
        largest = np.fmax.reduce(cost, axis=1)
        if residents:
            cost[:, m:] = stretch[:, m:] - (rate * self._times)[beside] * alone
        known = ~np.isnan(np.where(group >= 0, cost, 0.0)).any(axis=1)
        possible &= known
        return GroupCosts(
            slowdown=slowdown,
            cost=np.where(group >= 0, cost, 0.0),
            largest=largest,
            allowed=possible & self._pays(slowdown),
            possible=possible,
        )

    def interval(self, group: Sequence[int], member: int) -> tuple[float, float]:
        """The 5 % and 95 % quantile of the slowdown of one member of a group, residents counted from k on."""
        index = np.array([group], dtype=np.int64)
        median = float(self._slowdowns(index)[0, member])
        distances = [float(self._distance(index, ends, 1.0)[0, member]) for ends in self._interval_of_pairs]
        return median * math.exp(-distances[0]), median * math.exp(distances[1])

    # --- one property each ------------------------------------------------------------------------------------------

    def _others(self, group: Ints) -> Iterator[tuple[int, int, Bools]]:
        """(place of a member, place of another, bool[g]: are both there?)."""
        there = group >= 0
        for a in range(group.shape[1]):
            for b in range(group.shape[1]):
                if a != b:
                    yield a, b, there[:, a] & there[:, b]

    def _slowdowns(self, group: Ints) -> Floats:
        beside = self.slowdown
        excess = pair_excess(beside)
        total = np.zeros(group.shape)
        single = np.ones(group.shape)
        for a, b, both in self._others(group):
            total[:, a] += np.where(both, excess[group[:, a], group[:, b]], 0.0)
            single[:, a] = np.where(both, beside[group[:, a], group[:, b]], single[:, a])
        company = (group >= 0).sum(axis=1)[:, None] - 1
        slowdown = np.where(company < 2, single, group_slowdown(total, np.maximum(company, 1)))
        return np.where(group >= 0, slowdown, np.nan)

    def _pairs_allowed(self, group: Ints, m: int) -> Bools:
        allowed = np.ones(len(group), dtype=bool)
        for a, b, both in self._others(group):
            if a < m:
                allowed &= ~both | self.pair_allowed[group[:, a], group[:, b]]
        return allowed

    def fits(self, group: Ints) -> Bools:
        """Do grants and peaks, or with oversubscription working sets, fit together?"""
        memory, limits = self.device_class.memory, self._context.limits
        if memory.memory_bytes < 0:
            return np.ones(len(group), dtype=bool)
        demands = self.jobs.demands
        oversubscribed = memory.oversubscription_ratio > 1
        needed = np.nan_to_num([d.working_set_bytes if oversubscribed else d.needed_bytes for d in demands])
        fits = np.append(needed, 0.0)[group].sum(axis=1) <= memory.shared_bytes(limits)
        if memory.grants_memory:
            granules = np.array([memory.granules_for(demand) for demand in demands], dtype=np.int64)
            fits &= np.append(granules, 0)[group].sum(axis=1) <= memory.granules
        return np.asarray(fits)

    def _within_caps(self, group: Ints, slowdown: Floats) -> Bools:
        """Is nobody slowed down past a cap beside all the others, at the quantile 1 - risk?"""
        if not self.capped:
            return np.ones(len(group), dtype=bool)
        upper = self._upper(group, slowdown)
        cap = np.full(group.shape, np.inf)
        for a, b, both in self._others(group):
            cap[:, a] = np.where(both, np.minimum(cap[:, a], self._caps[group[:, a], group[:, b]]), cap[:, a])
        return np.asarray(~(upper > np.fmin(cap, self._time_caps(group, upper))).any(axis=1))

    def _time_caps(self, group: Ints, upper: Floats) -> Floats:
        """float64[g, m]: what deadlines, or a device that closes, leave; NaN for no cap.

        They are kept beside company that stays as long as the longest member of it could.
        """
        if not self._timed:
            return np.full(group.shape, np.nan)
        stays_s = np.zeros(group.shape)
        alone_s = np.nan_to_num(np.array([runtime.pessimistic_s for runtime in self.jobs.runtimes]), nan=np.inf)
        for a, b, both in self._others(group):
            longer = np.maximum(stays_s[:, a], alone_s[group[:, b]] * upper[:, b])
            stays_s[:, a] = np.where(both, longer, stays_s[:, a])
        pessimistic_s, limit_s = (
            np.append([getattr(runtime, name) for runtime in self.jobs.runtimes], np.nan)[group]
            for name in ("pessimistic_s", "time_limit_s")
        )
        return tolerable_slowdown(pessimistic_s, limit_s + TICK_S, stays_s)

    def cap_rule_of_all(self) -> Rule | None:
        """The cap that somebody would pass beside all jobs of the table, with its numbers; None where none would."""
        if not self.capped:
            return None
        group = np.arange(self._n, dtype=np.int64)[None, :]
        upper = self._upper(group, self._slowdowns(group))
        jobs, limits = self.jobs, self._context.limits
        spread = np.ones(self._n)
        caps = SlowdownCapRule(
            jobs=jobs.jobs,
            partners=jobs.jobs,
            profiles=jobs.profiles,
            runtimes=jobs.runtimes,
            caps=SlowdownCaps.of(jobs.jobs, jobs.profiles, jobs.jobs, limits),
            time_cap=self._time_caps(group, upper)[0][:, None] * spread,
            upper=upper[0][:, None] * spread,
            risk=limits.slowdown.risk,
            caps_columns=False,
        )
        past = caps.mask & ~np.eye(self._n, dtype=bool)
        return caps.rule(*(int(place) for place in np.argwhere(past)[0])) if past.any() else None

    def _upper(self, group: Ints, slowdown: Floats) -> Floats:
        """float64[g, m]: the quantile 1 - risk of each slowdown; of two members that of the pair."""
        level = 1 - self._context.limits.slowdown.risk
        scale = NormalDist().inv_cdf(level) / NormalDist().inv_cdf(INTERVAL_QUANTILE)
        widened = slowdown * np.exp(self._distance(group, self._upper_of_pairs, scale))
        pair = np.full(group.shape, np.nan)
        for a, b, both in self._others(group):
            pair[:, a] = np.where(both, self._upper_of_pairs[group[:, a], group[:, b]], pair[:, a])
        company = (group >= 0).sum(axis=1)[:, None] - 1
        return np.where(company < 2, pair, widened)

    def _distance(self, group: Ints, ends: Floats, scale: float) -> Floats:
        """float64[g, m]: of the logarithm of each slowdown to the end of its interval; `ends` those of the pairs."""
        with np.errstate(invalid="ignore"):
            squared = np.log(ends / self.slowdown) ** 2
        total = np.zeros(group.shape)
        for a, b, both in self._others(group):
            total[:, a] += np.where(both, squared[group[:, a], group[:, b]], 0.0)
        company = (group >= 0).sum(axis=1)[:, None] - 1
        return group_log_distance(total, np.maximum(company, 1), scale)

    def _pays(self, slowdown: Floats) -> Bools:
        """Do they get more done than one after the other?"""
        least = self._context.limits.slowdown.min_joint_throughput
        if least == 0:
            return np.ones(len(slowdown), dtype=bool)
        return np.asarray(np.nansum(1.0 / slowdown, axis=1) > least)

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
