"""What groups of jobs cost in the objective on one device class: of each member, and of the group as a whole.

A member costs f(τ s) at its predicted slowdown s in the group, alone s = 1; see `objectives` for f and τ. A group as a
whole costs the price of its devices, money or energy by the second until its last member ends, and that of a soft cap
which somebody may exceed. Who shares a device pays for it once, and a gang pays for each of its devices. Of jobs that
run already only what newcomers add counts. Pure arrays; no rule is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.objectives import weights
from interfere.policy.costs.paging import PagedSlowdowns, with_paging
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.group_rules import Bools, Floats, Group, GroupRules
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import relative_checkpoint_losses, remaining_cases_s, tolerable_slowdown
from interfere.policy.slowdowns import GroupSlowdowns, probability_of_any
from interfere.records import Job
from interfere.sharing_modes import SharingMode

Index = tuple[NDArray[np.int64], ...] | NDArray[np.int64] | Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCosts:
    """Groups of one shape [...], each of m pending jobs beside r residents: predictions, costs, and whether rules allow
    them."""

    slowdown: Sequence[Floats]  # float64[...] each: the median of each of the m + r members, residents last
    paged: Sequence[Floats]  # float64[...] each: the same with the price of paging, by which costs are counted
    cost: Sequence[Floats]  # float64[...] each: of each pending job, and what each resident costs more than before
    shared: Floats  # of groups as a whole beside their members: of devices, or of a soft cap; broadcasts to [...]
    largest: Floats  # float64[...]: the largest cost of a member without misses, residents as a whole
    allowed: Bools  # bool[...]: no rule forbids it
    rules: GroupRules = field(default_factory=GroupRules)

    def at(self, index: Index) -> "GroupCosts":
        """Return the costs of some of the groups, without their rules."""
        shape = self.largest.shape
        return GroupCosts(
            slowdown=[np.broadcast_to(each, shape)[index] for each in self.slowdown],
            paged=[np.broadcast_to(each, shape)[index] for each in self.paged],
            cost=[np.broadcast_to(each, shape)[index] for each in self.cost],
            shared=np.broadcast_to(self.shared, shape)[index],
            largest=self.largest[index],
            allowed=self.allowed[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCosts(GroupCosts):
    """The pairs of r row jobs, which are pending, and c column jobs on one device class: groups of the shape [r, c].

    Law: the total cost is infinite exactly where a rule forbids the pair.
    """

    jobs: JobsOnClass  # the row jobs first
    rows: tuple[Job, ...]
    columns: tuple[Job, ...]
    running: bool  # whether the columns are residents; else they are the row jobs
    total: Floats  # float64[r, c], of the pair, beside a resident what is added; inf where a rule forbids it
    modes: tuple[SharingMode, ...] = ()  # among which the plan chose; empty where the devices keep theirs
    mode_index: NDArray[np.int64] | None = None  # int64[r, c], of the chosen one

    @property
    def device_class(self) -> DeviceClass:
        """The class of the devices."""
        return self.jobs.device_class

    def mode(self, row: int, column: int) -> SharingMode:
        """The sharing mode under which the pair is predicted."""
        return self.device_class.mode if self.mode_index is None else self.modes[int(self.mode_index[row, column])]


def under_best_modes(tables: Sequence[PairCosts]) -> PairCosts:
    """Return a table that holds each pair under its cheapest sharing mode.

    `tables` has a table for each mode; the present mode of the devices comes first.
    """
    first = tables[0]
    if len(tables) == 1:
        return first
    best = np.argmin(np.stack([table.total for table in tables]), axis=0)

    def chosen(arrays: Sequence[Floats]) -> Floats:
        stacked = np.stack([np.broadcast_to(each, best.shape) for each in arrays])
        return np.asarray(np.take_along_axis(stacked, best[None], axis=0)[0])

    total = chosen([table.total for table in tables])
    forbidden = ~np.isfinite(total)
    return replace(
        first,
        slowdown=[chosen([table.slowdown[side] for table in tables]) for side in (0, 1)],
        paged=[chosen([table.paged[side] for table in tables]) for side in (0, 1)],
        cost=[chosen([table.cost[side] for table in tables]) for side in (0, 1)],
        shared=chosen([table.shared for table in tables]),
        largest=chosen([table.largest for table in tables]),
        allowed=~forbidden,
        rules=GroupRules(rules=tuple(replace(rule, mask=rule.mask & forbidden) for rule in first.rules.rules)),
        total=total,
        modes=tuple(table.device_class.mode for table in tables),
        mode_index=best,
    )


class GroupCostModel:
    """Costs of groups of jobs on one device class; the first members are pending, the last ones run already."""

    def __init__(self, slowdowns: GroupSlowdowns, context: PlanningContext) -> None:
        self._slowdowns, self._context, self._jobs = PagedSlowdowns.of(slowdowns), context, slowdowns.jobs

    def evaluate(self, group: Group, slowdown: Sequence[Floats], newcomers: int) -> GroupCosts:
        """Return the costs of groups at these slowdowns of their members, of which the first `newcomers` start now.

        The price of paging is added to the slowdowns. Allowed are all of which a cost is known.
        """
        predicted, slowdown = slowdown, with_paging(self._slowdowns, group, slowdown)
        costs = self._of_members(group, slowdown)
        costs[:newcomers] = [
            cost + (self.rate * self.losses)[member] for cost, member in zip(costs, group[:newcomers], strict=False)
        ]
        largest = costs[0]
        for cost in costs[1:]:
            largest = np.maximum(largest, cost)
        shared, residents = self._shared(group, slowdown), group[newcomers:]
        misses = self._costs_of_misses(group, slowdown)
        if residents:
            slowdown_before = self._slowdowns.of_groups(residents)
            before = self._of_members(residents, slowdown_before)
            costs[newcomers:] = [cost - own for cost, own in zip(costs[newcomers:], before, strict=True)]
            missed_before = self._costs_of_misses(residents, slowdown_before)
            misses[newcomers:] = [
                np.maximum(0.0, miss - own) for miss, own in zip(misses[newcomers:], missed_before, strict=True)
            ]
            shared = shared - self._occupancy(residents)
        added = [cost + miss for cost, miss in zip(costs, misses, strict=True)]
        return GroupCosts(
            slowdown=predicted,
            paged=slowdown,
            cost=added,
            shared=np.asarray(shared),
            largest=largest,
            allowed=~np.isnan(largest),
        )

    def _of_members(self, group: Group, slowdown: Sequence[Floats]) -> list[Floats]:
        """float64[...] each: what every member costs at its slowdown in the group, misses of deadlines aside."""
        objective, alone = self._context.objective, self.rate * self._jobs.relative_times
        if objective.counts_ends:
            stretched = self._slowdowns.ends_s(group, alone)
        else:
            stretched = [alone[member] * own for member, own in zip(group, slowdown, strict=True)]
        return [self.constant[member] + cost for member, cost in zip(group, stretched, strict=True)]

    def _costs_of_misses(self, group: Group, slowdown: Sequence[Floats]) -> list[Floats | float]:
        """Return, for each member, the expected cost of missing its deadline: float64[...], or 0 without deadlines."""
        price = self._context.objective.deadline_miss_price
        if not price or np.isnan(self._deadline_in_s).all():
            return [0.0] * len(group)
        of_job, misses = price * weights(self._jobs.jobs), self._miss_probabilities(group, slowdown)
        return [of_job[member] * miss for member, miss in zip(group, misses, strict=True)]

    def _miss_probabilities(self, group: Group, slowdown: Sequence[Floats]) -> list[Floats]:
        """float64[...] each: probability that a member misses its deadline beside the others until the last is gone."""
        alone_s = np.nan_to_num(self._jobs.alone_s, nan=np.inf)
        runs_s = [alone_s[member] * own for member, own in zip(group, slowdown, strict=True)]
        cases = [remaining_s * self._jobs.relative_times for remaining_s in remaining_cases_s(self._jobs.jobs)]
        limits = []
        for a, member in enumerate(group):
            others_s: Floats | float = 0.0
            for b, run_s in enumerate(runs_s):
                others_s = np.maximum(others_s, run_s) if a != b else others_s
            limits.append([tolerable_slowdown(case[member], self._deadline_in_s[member], others_s) for case in cases])
        return self._slowdowns.exceedances(group, slowdown, limits)

    def _shared(self, group: Group, slowdown: Sequence[Floats]) -> Floats | float:
        """Return the price of the occupied devices plus the price of exceeding a soft cap: float64[...], or 0 without
        prices."""
        price, cap = self._context.objective.soft_cap_price, self._context.limits.slowdown.soft_cap
        if not price or len(group) < 2:
            return self._occupancy(group)
        past = self._slowdowns.exceedances(group, slowdown, [[np.float64(cap)]] * len(group))
        return price * probability_of_any(past) + self._occupancy(group)

    def _occupancy(self, group: Group) -> Floats | float:
        """float64[...] or 0: the price of the devices until the last member has ended."""
        objective, device_class = self._context.objective, self._jobs.device_class
        if not objective.prices_occupancy:
            return 0.0
        occupied_s, *others_s = self._slowdowns.ends_s(group, self._jobs.alone_s)
        for end_s in others_s:
            occupied_s = np.maximum(occupied_s, end_s)
        gpus = np.array([job.gpus for job in self._jobs.jobs], dtype=np.float64)
        price = objective.occupancy_price(device_class.price_per_hour, device_class.power_w)
        return np.asarray(price * gpus[group[0]] * occupied_s)

    @cached_property
    def rate(self) -> Floats:
        """float64[n]: what one more unit of stretch costs."""
        return self._context.objective.rate(self._jobs.jobs)

    @cached_property
    def constant(self) -> Floats:
        """float64[n]: what each job costs whatever its stretch."""
        return self._context.objective.constant(self._jobs.jobs)

    @cached_property
    def losses(self) -> Floats:
        """Return float64[n]: the checkpoint cost that the closing of the device causes each job, relative to its
        remaining time."""
        return relative_checkpoint_losses(self._jobs.jobs, self._jobs.runtimes)

    @cached_property
    def _deadline_in_s(self) -> Floats:
        return np.array([job.deadline_s - self._context.now_s for job in self._jobs.jobs], dtype=np.float64)
