"""Which groups may start on a device class: listed job by job, or as patterns of kinds where groups are too many.

A rule that forbids a group for its pairs, its memory or its caps forbids every larger one, so groups grow from those
that are possible. Where there are too many of a size the cheapest few of each job are grown on.

Jobs of one kind are told apart by no rule, and differ in what slowdown costs. With 40 workloads and a weight of its own
for each of 300 jobs there are 330 million groups of four, but 120,000 patterns. They are made where groups of jobs are
too many to list, and where a job's cost is linear in its slowdown.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.matching.patterns import NO_KIND, PatternCosts, Patterns
from interfere.policy.context import PlanningContext, numbered
from interfere.policy.costs.candidates import Candidates, JobKeys
from interfere.policy.costs.group_costs import GroupCosts
from interfere.policy.costs.objectives import Objective
from interfere.records import Job
from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MAX_CELLS = 30_000_000  # extensions looked at for one size
MAX_GROWN = 200_000  # groups looked at for one size where not all are
GROWN_PER_JOB = 4  # of the groups that are too many to list all, those of least cost for each of their jobs
KEPT_PER_JOB = 12
LISTING_UNITS = 0.3  # work units of each pair of a group's members
Possible = Callable[[Ints], Bools]
"""Groups int64[g, m], every pair of which may share -> bool[g], is it possible?"""
Cost = Callable[[Ints], Floats]
"""Groups int64[g, m] -> float64[g]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """The groups of each size."""

    of_size: tuple[Ints, ...]  # int64[g, m] of m = 1, 2, …, each sorted
    listed_size: int  # groups up to this size are all there

    def up_to(self, size: int) -> tuple[Ints, ...]:
        """The groups of at most this size."""
        return self.of_size[:size]


def list_groups(
    demand: Ints,
    pair_allowed: Bools,
    largest: int,
    max_groups: int,
    possible: Possible,
    cost: Cost,
    budget: TimeBudget = UNLIMITED,
) -> GroupList:
    """The groups of at most `largest` jobs of k classes with int64[k] `demand`; bool[k, k] `pair_allowed`.

    Groups of sizes that are not listed in full grow while the budget lasts.
    """
    k = len(demand)
    groups = [np.arange(k, dtype=np.int64)[:, None]]
    listed = total = 0
    while listed + 1 <= largest:
        last = groups[-1]
        listed, total = listed + 1, total + len(last)
        if listed == largest or not len(last):
            return GroupList(of_size=tuple(groups), listed_size=largest)
        most = MAX_CELLS if listed == 1 else max_groups - total  # pairs are always listed
        extended = _extended(last, demand, pair_allowed, most)
        if extended is None:
            break
        groups.append(extended if listed == 1 else extended[possible(extended)])
    costs = cost(groups[-1]) if listed > 1 else np.zeros(k)
    frontier = _spread(groups[-1][_best_per_job(groups[-1], costs, GROWN_PER_JOB)], k)
    for _ in range(listed, largest):
        grown = _grown(frontier, demand, pair_allowed)
        budget.spend(LISTING_UNITS * grown.size * grown.shape[1])
        if not len(grown) or budget.expired:
            break
        grown = grown[possible(grown)]
        costs = cost(grown)
        groups.append(grown[_best_per_job(grown, costs, KEPT_PER_JOB)])
        frontier = _spread(grown[_best_per_job(grown, costs, GROWN_PER_JOB)], k)
    return GroupList(of_size=tuple(groups), listed_size=listed)


def _extended(groups: Ints, demand: Ints, pair_allowed: Bools, most: int) -> Ints | None:
    """Return every group extended by one job of its last class or a later class; None where the extended groups exceed
    `most`."""
    if len(groups) * len(demand) > MAX_CELLS:
        return None
    may_join = _may_join(groups, demand, pair_allowed)
    may_join &= np.arange(len(demand)) >= groups[:, -1:]
    if int(may_join.sum()) > most:
        return None
    row, job = np.nonzero(may_join)
    return np.column_stack([groups[row], job])


def _spread(groups: Ints, k: int) -> Ints:
    """As many of the groups as can be extended by each of k classes, evenly chosen."""
    most = max(1, MAX_GROWN // k)
    return groups if len(groups) <= most else groups[np.linspace(0, len(groups) - 1, most).astype(np.int64)]


def _grown(groups: Ints, demand: Ints, pair_allowed: Bools) -> Ints:
    """Some groups with one more job of any class."""
    row, job = np.nonzero(_may_join(groups, demand, pair_allowed))
    return np.unique(np.sort(np.column_stack([groups[row], job]), axis=1), axis=0)


def _may_join(groups: Ints, demand: Ints, pair_allowed: Bools) -> Bools:
    """bool[g, k]: is there one more job of the class, and may it share with all of the group?"""
    may_join = np.ones((len(groups), len(demand)), dtype=bool)
    taken = np.zeros((len(groups), len(demand)), dtype=np.int16)
    rows = np.arange(len(groups))
    for column in groups.T:
        may_join &= pair_allowed[column]
        taken[rows, column] += 1
    return may_join & (taken < demand)


def _best_per_job(groups: Ints, cost: Floats, most: int) -> Ints:
    """Places of the cheapest few groups of each job."""
    order = np.argsort(cost, kind="stable")
    best = np.zeros(len(groups), dtype=bool)
    for column in groups[order].T:
        by_job = np.argsort(column, kind="stable")
        first = np.searchsorted(column[by_job], column[by_job], side="left")
        best[order[by_job[np.arange(len(column)) - first < most]]] = True
    return np.flatnonzero(best)


MAX_PLACES = 6_000_000  # of all patterns: 0.5 s


def is_linear(objective: Objective) -> bool:
    """Return whether a job's cost in a group is an affine function of its slowdown, whatever the other members are."""
    priced = objective.counts_ends or objective.prices_occupancy or objective.is_min_max
    return not priced and not objective.deadline_miss_price and not objective.soft_cap_price


def group_count(classes: int, largest: int) -> int:
    """How many groups of at most `largest` jobs there are of some classes, equal ones allowed."""
    return sum(math.comb(classes + size - 1, size) for size in range(1, largest + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKinds:
    """The kinds of the job classes of one size."""

    first: int  # of the kinds of all sizes
    of_class: Ints  # int64[k], from 0
    jobs: tuple[Job, ...]  # one for each kind
    demand: Ints  # int64[kinds]

    @classmethod
    def of(cls, candidates: Candidates, context: PlanningContext, first: int) -> "JobKinds":
        """The kinds in the order of the classes."""
        keys = JobKeys(context.snapshot, custom_rules=context.custom_rules, rules_only=True)
        kind_of, places = numbered(map(keys.of, candidates.pending))
        of_class = np.array(kind_of, dtype=np.int64)
        demand = np.bincount(of_class, weights=candidates.counts, minlength=len(places)).astype(np.int64)
        return cls(first=first, of_class=of_class, jobs=tuple(candidates.pending[k] for k in places), demand=demand)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupColumns:
    """The groups of m jobs that may start on one host, as columns or as patterns; all jobs take as many devices."""

    block: int
    host: int
    takes: int
    members: Ints  # int64[g, m]: classes of pending jobs; of patterns their kinds
    costs: GroupCosts  # of m pending jobs beside r residents
    priority: Ints  # int64 of each class of pending jobs
    resident_priority: tuple[int, ...]  # r
    domain: int  # of patterns: which lines the costs of its jobs are

    def cost(self, priority: int | None) -> Floats:
        """float64[g]: what each group costs the jobs of one priority; all jobs where `priority` is None.

        What belongs to no single member counts at the highest priority of the members.
        """
        if priority is None:
            return np.asarray(sum(self.costs.cost) + self.costs.shared)
        of_jobs, total = self.priority[self.members.T], np.zeros(len(self.members))
        for cost, of in zip(self.costs.cost, (*of_jobs, *self.resident_priority), strict=True):
            total = total + np.where(of == priority, cost, 0.0)
        highest = np.maximum(of_jobs.max(axis=0), max(self.resident_priority, default=int(self.priority.min())))
        return np.asarray(total + np.where(highest == priority, self.costs.shared, 0.0))

    def added(self, priority: int | None) -> Floats:
        """float64[g]: what each group adds to the costs of the residents of one priority, or of all."""
        total = np.zeros(len(self.members))
        for cost, of in zip(self.costs.cost[self.members.shape[1] :], self.resident_priority, strict=True):
            total = total + cost if priority in (None, of) else total
        return total


def padded(blocks: Sequence[NDArray[Any]], width: int, fill: float) -> NDArray[Any]:
    """The rows of all blocks, each filled up to a width; they are read column by column."""
    rows = np.full((sum(map(len, blocks)), width), fill, dtype=np.asarray(fill).dtype, order="F")
    ends = np.cumsum([0, *map(len, blocks)]).tolist()
    for block, (first, last) in zip(blocks, pairwise(ends), strict=True):
        rows[first:last, : block.shape[1]] = block
    return rows


NO_PRIORITY = -(2**63)  # of no job: what groups cost at the level of waiting


def patterns_of(parts: Sequence[GroupColumns], kinds: Sequence[JobKinds], demand: Ints) -> Patterns:
    """All patterns. `kinds`: of each size of jobs; `demand` int64[k]: jobs of each class."""
    width, sizes = max((part.members.shape[1] for part in parts), default=1), [len(part.members) for part in parts]
    excess = [np.column_stack(part.costs.paged[: part.members.shape[1]]) - 1.0 for part in parts]
    domain, host, takes = (
        np.repeat(np.array([getattr(part, name) for part in parts], dtype=np.int64), sizes)
        for name in ("domain", "host", "takes")
    )
    return Patterns(
        kind=np.concatenate([each.first + each.of_class for each in kinds]),
        demand=demand,
        members=padded([part.members + kinds[part.block].first for part in parts], width, NO_KIND),
        excess=padded(excess, width, 0.0),
        domain=domain,
        host=host,
        takes=takes,
    )


def pattern_costs(
    parts: Sequence[GroupColumns],
    lines: Sequence[tuple[int, Floats, Floats]],
    jobs: Sequence[Job],
    priority: int | None,
) -> PatternCosts:
    """What groups cost the jobs of one priority, or all. `lines`: of each domain its first class, and of its classes
    the costs without excess and for one unit of excess; `jobs`: one for each class."""
    counts = np.array([priority in (None, job.priority) for job in jobs], dtype=np.float64)
    base, slope = np.zeros((len(lines), len(jobs))), np.zeros((len(lines), len(jobs)))
    for domain, (first, of_base, of_slope) in enumerate(lines):
        at = slice(first, first + len(of_base))
        base[domain, at], slope[domain, at] = counts[at] * of_base, counts[at] * of_slope
    added = np.concatenate([np.zeros(0), *(part.added(priority) for part in parts)])
    return PatternCosts(base=base, slope=slope, added=added)


def least_cost(patterns: Patterns, costs: PatternCosts) -> float:
    """A lower bound on what a group costs; 0 without any."""
    of_job = float((costs.base + costs.slope * float(patterns.excess.min(initial=0.0))).min(initial=0.0))
    places = int(patterns.members.shape[1])
    return of_job * places + float(costs.added.min(initial=0.0))


def use_patterns(
    candidates: Sequence[Candidates],
    kinds: Sequence[JobKinds],
    rooms: Sequence[Sequence[int]],
    most_groups: int,
) -> bool:
    """Whether groups of job classes are too many to list, and patterns are not.

    `rooms`: of each job size, the jobs that each host has room for; `most_groups`: members of groups to list.
    """
    places = listed = 0
    for each, of_size, on_hosts in zip(candidates, kinds, rooms, strict=True):
        total = int(each.counts.sum())
        for room in on_hosts:
            largest = min(room, total)
            places += largest * group_count(len(of_size.jobs), largest)
            listed += largest * group_count(len(each.pending), largest)
    return listed > most_groups and places <= MAX_PLACES and places < listed
