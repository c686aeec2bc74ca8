"""Groups on one device class: predicted slowdowns of every member, what the group costs, and whether rules allow it.

A member's slowdown is composed from its pairs (`slowdowns`). A group is allowed where every pair of it
with a pending job is, where its memory fits, where no member passes its caps beside all the others, and where together
they get more done than one after the other. Law: a group of two is what `pair_costs` says of the pair.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.pair_costs import PairCosts, pair_costs
from interfere.policy.device_class import DeviceClass
from interfere.policy.groups.slowdowns import GroupSlowdowns, ordered_pairs
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import TICK_S, relative_checkpoint_losses, tolerable_slowdown
from interfere.policy.rules.slowdown_caps import SlowdownCapRule, SlowdownCaps
from interfere.records import Job, Rule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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
        self.device_class, self.context = device_class, context
        self._k, self._n = len(pending), len(pending) + len(residents)
        people = (*pending, *residents)
        times = context.relative_times_on(device_class.type, people)
        timed = math.isfinite(device_class.open_s) or any(not math.isnan(job.deadline_s) for job in people)
        self.jobs = JobsOnClass.of(people, device_class, context, times, timed=timed)
        self.slowdowns = GroupSlowdowns(self.jobs, self._k, context)
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
    def _caps(self) -> Floats:
        """float64[n, n]: the tightest cap of each job against each that does not depend on time; inf without any."""
        jobs, limits = self.jobs, self.context.limits
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
        slowdown = self.slowdowns.of_groups(group)
        possible = self._fits(group) & self._within_caps(group, slowdown)
        if not pairs_allowed:
            for a, b in ordered_pairs(len(group)):
                possible &= self.pair_allowed[group[a], group[b]]
        stretch = (self._rate * self._times)[group] * slowdown
        cost = self._constant[group] + stretch
        cost[:m] += (self._rate * self._losses)[group[:m]]
        largest = cost.max(axis=0)
        if residents:
            alone = self.slowdowns.of_groups(group[m:, :1]) if len(residents) > 1 else np.ones((1, 1))
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
            possible &= self._within_caps(group, self.slowdowns.of_groups(group))
        return possible

    def costs_by_excess(self) -> tuple[Floats, Floats]:
        """float64[k] each: what each class of pending jobs costs at a slowdown of 1, and one unit of slowdown more."""
        k, slope = self._k, self._rate * self._times
        return (self._constant + slope + self._rate * self._losses)[:k], slope[:k]

    def least_costs(self, residents: Sequence[int], priority: int | None) -> tuple[Floats, Floats]:
        """float64[k] and float64[k, k]: what pending jobs of a priority cost at least beside residents, and each pair.

        Slowdowns of a group are never less than the sum of its pairs. A pair that may not share costs inf.
        """
        k, rate = self._k, self._rate * self._times
        counts = np.array([priority in (None, job.priority) for job in self.jobs.jobs[:k]], dtype=np.float64)
        beside = np.nan_to_num(self.slowdowns.excess[:k, [k + place for place in residents]]).sum(axis=1)
        alone = self._constant[:k] + rate[:k] * (1.0 + beside) + self._rate[:k] * self._losses[:k]
        if priority not in self._least_of_pairs:
            pair = (counts * rate[:k])[:, None] * np.nan_to_num(self.slowdowns.excess[:k, :k])
            self._least_of_pairs[priority] = np.where(self.pair_allowed[:k, :k], pair + pair.T, np.inf)
        return counts * alone, self._least_of_pairs[priority]

    def interval(self, members: Sequence[int], residents: Sequence[int], place: int) -> tuple[float, float]:
        """The 5 % and 95 % quantile of the slowdown of one member of a group, in the order of `evaluate`."""
        group = self._groups(np.array([members], dtype=np.int64), residents)
        median = float(self.slowdowns.of_groups(group)[place, 0])
        distances = [
            float(self.slowdowns.log_distance(group, pairs, 1.0)[place, 0])
            for pairs in self.slowdowns.interval_distances
        ]
        return median * math.exp(-distances[0]), median * math.exp(distances[1])

    def _groups(self, members: Ints, residents: Sequence[int]) -> Ints:
        """int64[m + r, g]: everybody of each group."""
        beside = self._k + np.array(residents, dtype=np.int64)
        return np.concatenate([members.T, np.broadcast_to(beside[:, None], (len(beside), len(members)))])

    # --- one property each ------------------------------------------------------------------------------------------

    def _fits(self, group: Ints) -> Bools:
        """Do grants and peaks, or with oversubscription working sets, fit together?"""
        memory, limits = self.device_class.memory, self.context.limits
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
        upper = self.slowdowns.upper(group, slowdown)
        cap = np.full(group.shape, np.inf)
        for a, b in ordered_pairs(len(group)):
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
        for a, b in ordered_pairs(len(group)):
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
        upper = self.slowdowns.upper(group, self.slowdowns.of_groups(group))
        jobs, limits = self.jobs, self.context.limits
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

    def _pays(self, slowdown: Floats) -> Bools:
        """Do they get more done than one after the other?"""
        least = self.context.limits.slowdown.min_joint_throughput
        if least == 0:
            return np.ones(slowdown.shape[1], dtype=bool)
        return np.asarray((1.0 / slowdown).sum(axis=0) > least)

    @cached_property
    def _rate(self) -> Floats:
        return self.context.objective.rate(self.jobs.jobs)

    @cached_property
    def _constant(self) -> Floats:
        return self.context.objective.constant(self.jobs.jobs)

    @cached_property
    def _losses(self) -> Floats:
        """float64[n]: what the closing of the device costs each pending job, as a share of what remains."""
        return relative_checkpoint_losses(self.jobs.jobs, self.jobs.runtimes)
