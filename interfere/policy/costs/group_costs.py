"""What groups of jobs cost in the objective on one device class: of each member, and of the group as a whole.

A member costs f(τ s) at its predicted slowdown s in the group, alone s = 1; see `objectives` for f and τ. A group as a
whole costs the price of its devices, money or energy by the second until its last member ends, and that of a soft cap
which somebody may exceed. Who shares a device pays for it once, and a gang pays for each of its devices. Of jobs that
run already only what newcomers add counts. Pure arrays; no rule is asked.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_slowdowns import GroupSlowdowns, probability_of_any
from interfere.policy.costs.objectives import weights
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.pair_rules import Group
from interfere.policy.rules.runtime import relative_checkpoint_losses, remaining_cases_s, tolerable_slowdown
from interfere.records import Device, Job

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """What groups cost: float64[...] each."""

    added: list[Floats]  # of each pending member, and what each resident costs more than before
    shared: Floats | float  # what the group as a whole costs beside its members
    largest: Floats  # the largest cost of a member without misses, residents as a whole


class GroupCostModel:
    """Costs of groups of jobs on one device class; the first members are pending, the last ones run already."""

    def __init__(self, slowdowns: GroupSlowdowns, context: PlanningContext) -> None:
        self._slowdowns, self._context, self._jobs = slowdowns, context, slowdowns.jobs

    def evaluate(self, group: Group, slowdown: Sequence[Floats], newcomers: int) -> GroupValue:
        """Return the costs of groups at these slowdowns of their members, of which the first `newcomers` start now."""
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
        return GroupValue(added=added, shared=shared, largest=largest)

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


def costs_alone(jobs: JobsOnClass, context: PlanningContext) -> Floats:
    """float64[n]: what each job costs that starts alone."""
    slowdowns, group = GroupSlowdowns(jobs, len(jobs.jobs), context), [np.arange(len(jobs.jobs))]
    value = GroupCostModel(slowdowns, context).evaluate(group, slowdowns.of_groups(group), newcomers=1)
    return np.asarray(value.added[0] + value.shared)


def cost_alone(job: Job, device: Device, context: PlanningContext) -> float:
    """What one job costs alone on a device of the snapshot."""
    device_class = context.device_class(device)
    times = context.relative_times_on(device_class.type, [job])
    return float(costs_alone(JobsOnClass.of([job], device_class, context, times, timed=True), context)[0])


def is_timed(jobs: Sequence[Job], closes_in_s: float) -> bool:
    """Whether a deadline or the closing of the device plays a part."""
    return math.isfinite(closes_in_s) or any(not math.isnan(job.deadline_s) for job in jobs)
