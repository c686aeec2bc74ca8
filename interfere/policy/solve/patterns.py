"""Which groups may start on a device class: listed job by job, or as patterns of kinds where groups are too many.

A rule that forbids a group for its pairs, its memory or its caps forbids every larger one, so groups grow from those
that are possible. Where there are too many of a size the cheapest few of each job are grown on.

Jobs of one kind are told apart by no rule, and differ in what slowdown costs. With 40 workloads and a weight of its own
for each of 300 jobs there are 330 million groups of four, but 120,000 patterns. They are made where groups of jobs are
too many to list, and where a job's cost is linear in its slowdown.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.matching.patterns import NO_KIND, PatternCosts, Patterns
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.job_classes import JobKeys
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
        number: dict[Hashable, int] = {}
        jobs: list[Job] = []
        for job in candidates.pending:
            if keys.of(job) not in number:
                number[keys.of(job)] = len(number)
                jobs.append(job)
        of_class = np.array([number[keys.of(job)] for job in candidates.pending], dtype=np.int64)
        demand = np.bincount(of_class, weights=candidates.counts, minlength=len(jobs)).astype(np.int64)
        return cls(first=first, of_class=of_class, jobs=tuple(jobs), demand=demand)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PatternPart:
    """Patterns of one size on one host."""

    members: Ints  # int64[g, m], kinds of all job sizes
    excess: Floats  # float64[g, m]
    added: Floats  # float64[r, g]
    resident_priority: tuple[int, ...]  # r
    domain: int
    host: int
    takes: int


@dataclass(kw_only=True)
class PatternBuilder:
    """Collects the patterns of one decision, host by host."""

    classes: int  # of pending jobs of all sizes
    _parts: list[_PatternPart] = field(default_factory=list)
    _lines: list[tuple[int, Floats, Floats]] = field(default_factory=list)  # of each domain: first class, base, slope
    _groups: tuple[Ints, ...] = ()
    _domain: tuple[JobKinds, GroupTable] | None = None  # the kinds on the present device class, and their table

    def begin_domain(self, kinds: JobKinds, of_classes: GroupTable, largest: int, first_class: int) -> None:
        """List the groups of kinds on one device class. `of_classes`: the table of the job classes."""
        k = len(kinds.jobs)
        table = GroupTable(kinds.jobs, of_classes.residents, of_classes.device_class, of_classes.context)
        self._domain = kinds, table
        listed = list_groups(
            kinds.demand,
            table.pair_allowed[:k, :k],
            largest,
            MAX_PLACES,
            table.is_possible,
            lambda groups: np.zeros(len(groups)),
        )
        assert listed.listed_size == largest, "the caller counts the groups first"
        self._groups = listed.of_size
        self._lines.append((first_class, *of_classes.costs_by_excess()))

    def add(self, *, residents: Sequence[int], host: int, takes: int, room: int) -> None:
        """Add the patterns of a host: groups that, with its residents, have two or more jobs."""
        assert self._domain is not None
        kinds, table = self._domain
        joins = table.may_join(residents)
        priority = tuple(table.residents[place].priority for place in residents)
        for every in self._groups[:room]:
            members = every[np.all(joins[every], axis=1)]
            size = members.shape[1]
            if size + len(residents) < 2 or not len(members):
                continue
            costs = table.evaluate(members, residents, pairs_allowed=True)
            keep = costs.allowed
            self._parts.append(
                _PatternPart(
                    members=members[keep] + kinds.first,
                    excess=costs.slowdown[:size, keep].T - 1.0,
                    added=costs.cost[size:, keep],
                    resident_priority=priority,
                    domain=len(self._lines) - 1,
                    host=host,
                    takes=takes,
                )
            )

    def patterns(self, kinds: Sequence[JobKinds], demand: Ints) -> Patterns:
        """All patterns. `demand` int64[k]: jobs of each class."""
        parts, width = self._parts, max((part.members.shape[1] for part in self._parts), default=1)
        sizes = [len(part.members) for part in parts]
        members = np.full((sum(sizes), width), NO_KIND, dtype=np.int64, order="F")  # read place by place
        excess = np.zeros((sum(sizes), width), order="F")
        at = 0
        for part, size in zip(parts, sizes, strict=True):
            members[at : at + size, : part.members.shape[1]] = part.members
            excess[at : at + size, : part.members.shape[1]] = part.excess
            at += size
        return Patterns(
            kind=np.concatenate([each.first + each.of_class for each in kinds]),
            demand=demand,
            members=members,
            excess=excess,
            domain=np.repeat(np.array([part.domain for part in parts], dtype=np.int64), sizes),
            host=np.repeat(np.array([part.host for part in parts], dtype=np.int64), sizes),
            takes=np.repeat(np.array([part.takes for part in parts], dtype=np.int64), sizes),
        )

    def costs(self, jobs: Sequence[Job], priority: int | None) -> PatternCosts:
        """What groups cost the jobs of one priority, or all. `jobs`: one for each class."""
        counts = np.array([priority in (None, job.priority) for job in jobs], dtype=np.float64)
        base, slope = np.zeros((len(self._lines), self.classes)), np.zeros((len(self._lines), self.classes))
        for domain, (first, of_base, of_slope) in enumerate(self._lines):
            at = slice(first, first + len(of_base))
            base[domain, at], slope[domain, at] = counts[at] * of_base, counts[at] * of_slope
        added = [
            sum(
                (cost for cost, of in zip(part.added, part.resident_priority, strict=True) if priority in (None, of)),
                np.zeros(len(part.members)),
            )
            for part in self._parts
        ]
        return PatternCosts(base=base, slope=slope, added=np.concatenate([np.zeros(0), *added]))

    def least_cost(self, costs: PatternCosts) -> float:
        """A lower bound on what a group costs; 0 without any."""
        least = min((float(part.excess.min(initial=0.0)) for part in self._parts), default=0.0)
        of_job = float((costs.base + costs.slope * least).min(initial=0.0))
        places = max((part.members.shape[1] for part in self._parts), default=1)
        return of_job * places + float(costs.added.min(initial=0.0))

    def no_costs(self) -> PatternCosts:
        """Costs of 0: what groups cost at the level of waiting."""
        nothing = np.zeros((len(self._lines), self.classes))
        return PatternCosts(base=nothing, slope=nothing, added=np.zeros(sum(len(part.members) for part in self._parts)))


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
