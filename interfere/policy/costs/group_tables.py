"""Groups on one device class: predicted slowdowns of every member, what the group costs, and whether rules allow it.

A group of two is what `pair_costs` says of the pair. In a larger group the slowdown of each member is composed from its
pairs (`group_slowdowns`). A larger group is allowed where every pair of it with a pending job is allowed, where its
memory fits, where no member passes its caps beside all the others, and where together its members get more done than
one after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_slowdowns import GroupSlowdowns, ordered_pairs
from interfere.policy.costs.miss_probability import LEVELS
from interfere.policy.costs.objectives import weights
from interfere.policy.costs.pair_costs import PairCosts, pair_costs
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.guest_ends_first import outlasts
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import (
    TICK_S,
    median_runtimes_s,
    relative_checkpoint_losses,
    slowdowns_to_miss,
    tolerable_slowdown,
)
from interfere.policy.rules.slowdown_caps import SlowdownCapRule, SlowdownCaps
from interfere.records import Job, Rule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Standard deviations of a normal law from its median to its 95 % quantile, and to each of the predicted quantiles.
QUANTILE_95_Z = NormalDist().inv_cdf(0.95)
Z_OF_LEVELS = [NormalDist().inv_cdf(level) for level in LEVELS]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """g groups of m pending jobs beside r residents."""

    slowdown: Floats  # float64[m + r, g]: median of each member, residents last
    cost: Floats  # float64[m + r, g]: of each pending job, and what each resident costs more
    shared: Floats  # float64[g]: what the group as a whole costs beside its members: a price of its devices, or a miss
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
        *,
        empty_pairs: PairCosts | None = None,
        resident_pairs: PairCosts | None = None,
    ) -> None:
        """`residents`: one job for each class of residents.

        `empty_pairs`: the costs of the pending jobs among themselves, and `resident_pairs` those of the pending jobs
        beside the residents, where the caller knows them already.
        """
        self.device_class, self.context = device_class, context
        self._k, self._n = len(pending), len(pending) + len(residents)
        self.members = (*pending, *residents)
        self._least_of_pairs: dict[int | None, Floats] = {}  # by priority
        self._given_pairs = empty_pairs, resident_pairs

    # --- what is known of single jobs -------------------------------------------------------------------------------

    @cached_property
    def _timed(self) -> bool:
        """Does a deadline or the closing of the device play a part?"""
        deadlines = any(not math.isnan(job.deadline_s) for job in self.members)
        return math.isfinite(self.device_class.open_s) or deadlines

    @cached_property
    def _times(self) -> Floats:
        """float64[n]: time of each job on the device type over its time on the fastest type."""
        return self.context.relative_times_on(self.device_class.type, self.members)

    @cached_property
    def jobs(self) -> JobsOnClass:
        """The pending jobs, then the residents, with what each needs on the device class."""
        return JobsOnClass.of(self.members, self.device_class, self.context, self._times, timed=self._timed)

    @cached_property
    def slowdowns(self) -> GroupSlowdowns:
        """The slowdowns of members of groups."""
        return GroupSlowdowns(self.jobs, self._k, self.context)

    @cached_property
    def pending_pairs(self) -> PairCosts:
        """The costs of the pending jobs among themselves, of each pair under the best sharing mode of the plan."""
        return self._given_pairs[0] or self._pairs_in_own_mode

    @cached_property
    def _pairs_in_own_mode(self) -> PairCosts:
        """The costs of the pending jobs among themselves under the sharing mode of the device class."""
        given = self._given_pairs[0]
        if given is not None and not given.modes:
            return given
        pending, times = self.members[: self._k], self._times[: self._k]
        return pair_costs(
            pending, pending, self.device_class, self.context, row_times=times, column_times=times
        ).symmetric()

    @cached_property
    def resident_pairs(self) -> PairCosts | None:
        """The costs of each pending job beside each resident; None without residents."""
        if self._given_pairs[1] is not None or self._k == self._n:
            return self._given_pairs[1]
        return pair_costs(
            self.members[: self._k],
            self.members[self._k :],
            self.device_class,
            self.context,
            row_times=self._times[: self._k],
            column_times=self._times[self._k :],
            running=True,
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

    def may_join(self, residents: Sequence[int]) -> Bools:
        """bool[k]: may each pending job share with each of these residents, taken one by one?"""
        if not residents:
            return np.ones(self._k, dtype=bool)
        assert self.resident_pairs is not None
        return np.asarray(np.isfinite(self.resident_pairs.cost[:, list(residents)]).all(axis=1))

    @cached_property
    def _pair_allowed_in_own_mode(self) -> Bools:
        """bool[n, n]: may two jobs of these classes share under the sharing mode of the device class?"""
        allowed, k = self.pair_allowed.copy(), self._k
        allowed[:k, :k] = np.isfinite(self._pairs_in_own_mode.cost)
        return allowed

    def _pairs_are_allowed(self, group: Ints) -> Bools:
        """bool[g]: may every pair of each group of three or more share? Such groups keep the mode of the devices."""
        possible = np.ones(group.shape[1], dtype=bool)
        for a, b in ordered_pairs(len(group)):
            possible &= self._pair_allowed_in_own_mode[group[a], group[b]]
        return possible

    @property
    def _chooses_mode(self) -> bool:
        """Does the plan choose the sharing mode of pairs on empty devices?"""
        return bool(self.pending_pairs.modes)

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
        if members.shape[1] + len(residents) == 2:
            return self._pair_costs(members, residents)
        m, group = members.shape[1], self._groups(members, residents)
        # 1. Which groups the rules of memory, caps and pairs allow.
        slowdown = self.slowdowns.of_groups(group)
        possible = self._fits(group) & self._within_caps(group, slowdown) & self._guests_end_first(group, slowdown, m)
        if not pairs_allowed or self._chooses_mode:
            possible &= self._pairs_are_allowed(group)
        # 2. What each member costs; of a resident what it costs more than beside those that run there already.
        cost = self._costs_of_members(group, slowdown)
        cost[:m] += (self._rate * self._losses)[group[:m]]
        largest = cost.max(axis=0)
        before = group[m:, :1]
        if residents:
            alone = self.slowdowns.of_groups(before) if len(residents) > 1 else np.ones((1, 1))
            cost[m:] -= self._costs_of_members(before, alone)
        possible &= ~np.isnan(largest)
        return GroupCosts(
            slowdown=slowdown,
            cost=cost,
            shared=self._shared_costs(group, slowdown, before),
            largest=largest,
            allowed=possible & self._pays(slowdown),
        )

    def _pair_costs(self, members: Ints, residents: Sequence[int]) -> GroupCosts:
        """The costs of groups of two, from the table of pairs; a group of one joins one resident."""
        table = self.resident_pairs if residents else self.pending_pairs
        assert table is not None
        row, column = members[:, 0], np.full(len(members), residents[0]) if residents else members[:, 1]
        cost = np.stack([table.row_cost[row, column], table.column_cost[row, column]])
        total = table.cost[row, column]
        return GroupCosts(
            slowdown=np.stack(
                [table.predictions.row_slowdown[row, column], table.predictions.column_slowdown[row, column]]
            ),
            cost=cost,
            shared=total - cost.sum(axis=0),
            largest=table.max_job_cost[row, column],
            allowed=np.isfinite(total),
        )

    def _costs_of_members(self, group: Ints, slowdown: Floats) -> Floats:
        """float64[m, g]: what each member costs in the objective at its slowdown in the group."""
        objective = self.context.objective
        if objective.counts_ends:
            return self._constant[group] + self._ends(group, self._rate * self._times)
        cost = self._constant[group] + (self._rate * self._times)[group] * slowdown
        if objective.deadline_miss_price and self._timed:
            weight = weights(self.members)[group]
            cost += objective.deadline_miss_price * weight * self._miss_probabilities(group, slowdown)
        return np.asarray(cost)

    def _ends(self, group: Ints, alone_s: Floats) -> Floats:
        """float64[m, g]: when each member ends, if those that are left go on at the slowdowns of a smaller group.

        `alone_s` float64[n]: how long each job would take alone.
        """
        size, count = group.shape
        columns = np.arange(count)
        place = np.broadcast_to(np.arange(size)[:, None], (size, count))
        left_s, end_s, now_s = alone_s[group], np.empty((size, count)), np.zeros(count)
        while True:
            slowdown = self.slowdowns.of_groups(group)
            first = np.argmin(left_s * slowdown, axis=0)
            step_s = (left_s * slowdown)[first, columns]
            now_s = now_s + step_s
            end_s[place[first, columns], columns] = now_s
            if len(group) == 1:
                return end_s
            left_s = np.maximum(left_s - step_s / slowdown, 0.0)
            stays = np.arange(len(group))[:, None] != first
            group, place, left_s = (
                values.T[stays.T].reshape(count, len(stays) - 1).T for values in (group, place, left_s)
            )

    def _shared_costs(self, group: Ints, slowdown: Floats, before: Ints) -> Floats:
        """float64[g]: the price of devices that are occupied until the last member ends, and that of a passed soft cap.

        `before` int64[r, 1]: the residents, whose own time on the devices is not counted.
        """
        objective, limits = self.context.objective, self.context.limits
        total = np.zeros(group.shape[1])
        if objective.soft_cap_price:
            within = 1.0 - self._exceedance(group, slowdown, np.full(group.shape, limits.slowdown.soft_cap))
            total += objective.soft_cap_price * (1.0 - within.prod(axis=0))
        if objective.prices_occupancy:
            alone_s = np.array([job.remaining_s for job in self.members], dtype=np.float64) * self._times
            occupied_s = self._ends(group, alone_s).max(axis=0)
            if len(before):
                occupied_s = occupied_s - self._ends(before, alone_s).max(axis=0)
            name = self.device_class
            price = objective.occupancy_price(name.price_per_hour, name.power_w)
            total += price * self.members[0].gpus * occupied_s
        return total

    def _miss_probabilities(self, group: Ints, slowdown: Floats) -> Floats:
        """float64[m, g]: probability that each member misses its deadline beside the others until the last is gone."""
        runs_s = median_runtimes_s(self.members, self._times)[group] * slowdown
        misses = np.zeros(group.shape)
        for a in range(len(group)):
            others_s = np.delete(runs_s, a, axis=0).max(axis=0, initial=0.0)
            for i in np.unique(group[a]).tolist():
                at = np.flatnonzero(group[a] == i)
                limits = slowdowns_to_miss([self.members[i]], self._times[[i]], self.context.now_s, others_s[None, at])
                cases = np.nan_to_num(limits[:, 0], nan=np.inf)
                misses[a, at] = np.mean([self._exceedance(group[:, at], slowdown[:, at], case)[a] for case in cases], 0)
        return misses

    def _exceedance(self, group: Ints, slowdown: Floats, limit: Floats) -> Floats:
        """float64[m, g]: probability that each slowdown passes its limit, as if its logarithm were normal.

        The probability is interpolated between the levels of the predicted quantiles, as that of a pair is. `limit`
        float64[m, g] or float64[g].
        """
        if len(group) == 1:
            return np.asarray((slowdown > limit).astype(np.float64))
        distance = self.slowdowns.log_distance(group, self.slowdowns.interval_distances[1], 1.0)
        with np.errstate(divide="ignore"):
            beyond = np.log(np.maximum(limit, 0.0)) - np.log(slowdown)
        deviations = beyond / np.maximum(distance / QUANTILE_95_Z, 1e-12)
        return 1.0 - np.interp(deviations, Z_OF_LEVELS, LEVELS, left=0.0, right=1.0)

    def _guests_end_first(self, group: Ints, slowdown: Floats, newcomers: int) -> Bools:
        """bool[g]: does every pending job of a group end before every resident, where the limits demand that?"""
        ends = np.ones(group.shape[1], dtype=bool)
        if not self.context.limits.guest_ends_first:
            return ends
        remaining_s = np.array([job.remaining_s for job in self.members], dtype=np.float64)
        runs_s = (remaining_s * self._times)[group] * slowdown
        for guest_s in runs_s[:newcomers]:
            for host_s in runs_s[newcomers:]:
                ends &= ~outlasts(guest_s, host_s)
        return ends

    def is_possible(self, members: Ints) -> Bools:
        """bool[g]: does each group fit the device's memory and keep all slowdown caps?

        No group has residents, and all pairs inside the groups are allowed.
        """
        group = self._groups(members, ())
        possible = self._fits(group)
        if self._chooses_mode:
            possible &= self._pairs_are_allowed(group)
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
        """int64[m + r, g]: the indices of all members of each group: its m jobs, then its r residents."""
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
