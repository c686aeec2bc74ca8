"""Every group that may start, of the pending jobs of all sizes, as the columns or the patterns of one problem."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Cutoff,
    Floats,
    Ints,
    Level,
    PairBound,
    PlacementProblem,
)
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Host, JobKeys, company_lengths, find_candidates, resident_floor
from interfere.policy.costs.group_costs import GroupCosts
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.patterns import (
    LISTING_UNITS,
    MAX_PLACES,
    NO_PRIORITY,
    GroupColumns,
    GroupList,
    JobKinds,
    is_linear,
    least_cost,
    list_groups,
    padded,
    pattern_costs,
    patterns_of,
    use_patterns,
)
from interfere.records.cluster import DEFAULT_SEATS
from interfere.time_budget import UNLIMITED

MAX_LISTED_JOBS = 600_000  # members of all groups listed for one device class: 150,000 groups of four
SHARE_OF_LISTING = 0.4  # of the budget: after it devices with residents get one job more each
MAX_JOBS_OF_COLUMNS = 4_400_000  # members of all columns, empty places counted: 1,100,000 groups of four


def decision_problem(context: PlanningContext, *, by_start_weight: bool) -> DecisionProblem:
    """Every group that may start, of the pending jobs of all sizes."""
    snapshot = company_lengths(context.snapshot, context.custom_objective, context.custom_rules).snapshot
    builder = _Builder(context.subproblem(snapshot), by_start_weight=by_start_weight)
    return builder.decision()


class _Builder:
    def __init__(self, context: PlanningContext, *, by_start_weight: bool) -> None:
        self._context = context
        sizes = sorted({job.gpus for job in context.snapshot.pending})
        keys = JobKeys(context.snapshot, context.custom_objective, context.custom_rules)
        self.candidates = tuple(find_candidates(context, size, keys, by_start_weight=by_start_weight) for size in sizes)
        counts = [len(each.job_classes) for each in self.candidates]
        self.first_class = np.concatenate([[0], np.cumsum(counts)])[:-1].tolist()
        self.pending = [job for each in self.candidates for job in each.pending]
        self._empty = tuple(dict.fromkeys(name for each in self.candidates for name in each.empty_devices))
        self.hosts: list[Host] = [Host(device_class=name) for name in self._empty]
        self.supply = [max(len(each.empty_devices.get(name, ())) for each in self.candidates) for name in self._empty]
        self.cutoffs: list[Cutoff] = []
        self._block_of_cut: list[int] = []
        self._budget = context.budget.share(SHARE_OF_LISTING)
        self._columns_left = MAX_JOBS_OF_COLUMNS // max(
            device.seats or DEFAULT_SEATS for device in context.snapshot.devices
        )
        # Patterns of kinds where groups of jobs are too many: of each domain its first class, base and slope of costs.
        self._lines: list[tuple[int, Floats, Floats]] = []
        self.parts: list[GroupColumns] = []  # as columns
        self.of_kinds: list[GroupColumns] = []  # as patterns
        first_kind = 0
        self._kinds: list[JobKinds] = []
        for each in self.candidates:
            self._kinds.append(JobKinds.of(each, context, first_kind))
            first_kind += len(self._kinds[-1].jobs)
        rooms = [
            [host.room for host in each.hosts] + [name.seats for name in each.empty_devices] for each in self.candidates
        ]
        several = max((room for of_size in rooms for room in of_size), default=0) > DEFAULT_SEATS
        linear = several and is_linear(context.objective)
        self._uses_patterns = linear and use_patterns(self.candidates, self._kinds, rooms, MAX_LISTED_JOBS)

    def decision(self) -> DecisionProblem:
        for block in range(len(self.candidates)):
            for part in self._parts(block):
                (self.parts if part.domain < 0 else self.of_kinds).append(part)
        demand, k = np.concatenate([each.counts for each in self.candidates]), len(self.pending)
        patterns = patterns_of(self.of_kinds, self._kinds, demand) if self._uses_patterns else None
        width = max((part.members.shape[1] for part in self.parts), default=1)
        width = width if patterns is None else max(width, patterns.members.shape[1])
        members = [np.arange(k)[:, None], *(part.members + self.first_class[part.block] for part in self.parts)]
        problem = PlacementProblem(
            demand=demand,
            supply=np.array(self.supply, dtype=np.int64),
            is_empty=np.arange(len(self.supply)) < len(self._empty),
            max_devices=max((each.max_new_devices for each in self.candidates), default=0),
            members=padded(members, width, NOBODY),
            host=self._stacked(WAITS, lambda part: np.full(len(part.members), part.host)).astype(np.int64),
            takes=self._stacked(0, lambda part: np.full(len(part.members), part.takes)).astype(np.int64),
            allowed=np.ones(k + sum(len(part.members) for part in self.parts), dtype=bool),
            cutoffs=tuple(self.cutoffs),
            patterns=patterns,
        )
        blocks = np.concatenate([np.full(len(each.job_classes), b) for b, each in enumerate(self.candidates)])
        return self._with_levels(problem, blocks)

    def _stacked(self, waiting: float, of_part: Callable[[GroupColumns], NDArray[Any]]) -> NDArray[Any]:
        """The values of waiting, then those of each part."""
        return np.concatenate([np.full(len(self.pending), waiting), *map(of_part, self.parts)])

    def _with_levels(self, problem: PlacementProblem, blocks: Ints) -> DecisionProblem:
        context, k = self._context, len(self.pending)
        weight = np.concatenate([each.start_weight for each in self.candidates])
        priority = np.array([job.priority for job in self.pending], dtype=np.int64)
        free = self._bounds(NO_PRIORITY)
        none = pattern_costs(self.of_kinds, self._lines, self.pending, NO_PRIORITY) if self._uses_patterns else None
        levels = []
        for p in sorted(set(priority.tolist()), reverse=True):
            cost = np.zeros(len(problem.host))
            cost[:k] = np.where(priority == p, weight, 0.0)
            levels.append(Level(cost=cost, bounds=free, floor=0.0, is_waiting=True, patterns=none, priority=p))
        groups: tuple[int | None, ...] = (None,)
        if context.objective.by_priority:
            residents = [job.priority for host in self.hosts if host.places for job in host.places[0].residents]
            groups = tuple(sorted({*priority.tolist(), *residents}, reverse=True))
        cost_levels = [
            replace(self._cost_level(problem, group if len(groups) > 1 else None), priority=group) for group in groups
        ]
        return DecisionProblem(
            candidates=self.candidates,
            first_class=tuple(self.first_class),
            hosts=tuple(self.hosts),
            problem=problem,
            block_of_class=blocks.astype(np.int64),
            levels=(*levels, *cost_levels),
            total_cost=cost_levels[0] if len(groups) == 1 else self._cost_level(problem, None),
            largest=np.concatenate([np.full(k, -np.inf), *(part.costs.largest for part in self.parts)]),
            floor=resident_floor(context),
            is_min_max=context.objective.is_min_max,
        )

    def _cost_level(self, problem: PlacementProblem, priority: int | None) -> Level:
        """Return the level that sums the costs of the pending jobs of one priority, and the costs that they add to
        residents. Without a priority all pending jobs count."""
        cost = self._stacked(0.0, lambda part: part.cost(priority))
        bounds, costs = self._bounds(priority), None
        floor = _least_sum(problem, cost, bounds)
        if problem.patterns is not None:
            costs = pattern_costs(self.of_kinds, self._lines, self.pending, priority)
            floor += int(problem.demand.sum()) * min(0.0, least_cost(problem.patterns, costs))
        return Level(cost=cost, bounds=bounds, floor=floor, patterns=costs)

    def _bounds(self, priority: int | None) -> tuple[PairBound, ...]:
        """What groups of each cutoff cost the pending jobs of a priority at least."""
        bounds = []
        for cut, block in zip(self.cutoffs, self._block_of_cut, strict=True):
            host, candidates = self.hosts[cut.host], self.candidates[block]
            alone, pair = candidates.tables[host.device_class].least_costs(host.residents, priority)
            classes = self.first_class[block] + np.arange(len(candidates.pending), dtype=np.int64)
            bounds.append(PairBound(classes=classes, alone=alone, pair=pair))
        return tuple(bounds)

    # --- the groups of one size of jobs -----------------------------------------------------------------------------

    def _parts(self, block: int) -> Iterator[GroupColumns]:
        candidates, total = self.candidates[block], int(self.candidates[block].counts.sum())
        for name, table in candidates.tables.items():
            hosts = [host for host in candidates.hosts if host.table is table]
            rooms = [host.room for host in hosts]
            rooms += [name.seats] if name in candidates.empty_devices else []
            shared, groups = self._listed(block, table, max(rooms))
            if name in candidates.empty_devices:
                at, host = np.flatnonzero(np.isfinite(table.solo_cost)), self._empty.index(name)
                yield self._columns(block, table, host, at[:, None], _alone(table.solo_cost[at]))
                yield from self._on_host(block, shared, groups, host, (), min(name.seats, total))
            for each in hosts:
                self.hosts.append(each)
                self.supply.append(len(each.places))
                room = min(each.room, total)
                yield from self._on_host(block, shared, groups, len(self.hosts) - 1, each.residents, room)

    def _columns(
        self,
        block: int,
        table: GroupTable,
        host: int,
        members: Ints,
        costs: GroupCosts,
        residents: Sequence[int] = (),
        domain: int = -1,
    ) -> GroupColumns:
        """The groups that no rule forbids. `residents`: places of the host's in those of the table."""
        return GroupColumns(
            block=block,
            host=host,
            takes=1 if residents else self.candidates[block].size,
            members=members[costs.allowed],
            costs=costs if costs.allowed.all() else costs.at(costs.allowed),
            priority=np.array([job.priority for job in self.candidates[block].pending], dtype=np.int64),
            resident_priority=tuple(table.residents[place].priority for place in residents),
            domain=domain,
        )

    def _listed(self, block: int, table: GroupTable, largest: int) -> tuple[GroupTable, GroupList]:
        """The groups of pending jobs that may share a device of a class, and the table of costs that they refer to.

        Of patterns it has the kinds of jobs in place of the classes, and their costs are lines of a domain of its own.
        """
        candidates, kinds = self.candidates[block], self._kinds[block]
        demand, most, budget = candidates.counts, MAX_LISTED_JOBS, self._budget
        if self._uses_patterns:
            self._lines.append((self.first_class[block], *table.costs_by_excess()))
            table = GroupTable(kinds.jobs, table.residents, table.device_class, table.context)
            demand, most, budget = kinds.demand, largest * MAX_PLACES, UNLIMITED
        largest = min(largest, int(demand.sum()))
        k = len(demand)

        def cost(groups: Ints) -> Floats:
            return np.asarray(sum(table.evaluate(groups, pairs_allowed=True).cost))

        allowed = table.pair_allowed[:k, :k] if largest > 1 else np.ones((k, k), dtype=bool)
        return table, list_groups(demand, allowed, largest, most // largest, table.is_possible, cost, budget)

    def _on_host(
        self, block: int, table: GroupTable, groups: GroupList, host: int, residents: Sequence[int], room: int
    ) -> Iterator[GroupColumns]:
        """Groups of two or more jobs on a host, its residents counted; more jobs than one beside residents only while
        the budget lasts, where they are columns."""
        joins, listed, domain = table.may_join(residents), groups.listed_size, len(self._lines) - 1
        for size, every in enumerate(groups.up_to(room), start=1):
            if size + len(residents) < 2:
                continue
            members = every[np.all(joins[every], axis=1)] if residents else every
            if not self._uses_patterns:
                if residents and size > 1 and (len(members) > self._columns_left or self._budget.expired):
                    listed = min(listed, size - 1)
                    break
                self._budget.spend(LISTING_UNITS * members.size * (size + len(residents)))
                self._columns_left -= len(members)
            costs = table.evaluate(members, residents, pairs_allowed=True)
            yield self._columns(block, table, host, members, costs, residents, domain)
        if listed < room:
            takes = 1 if residents else self.candidates[block].size
            self._block_of_cut.append(block)
            self.cutoffs.append(Cutoff(host=host, takes=takes, listed_size=listed, largest_size=room))


def _alone(solo_cost: Floats) -> GroupCosts:
    """The costs of jobs alone on an empty device."""
    allowed = np.ones(len(solo_cost), dtype=bool)
    return GroupCosts(
        slowdown=[np.ones(len(solo_cost))],
        paged=[np.ones(len(solo_cost))],
        cost=[solo_cost],
        shared=np.zeros(()),
        largest=solo_cost,
        allowed=allowed,
    )


def _least_sum(problem: PlacementProblem, cost: Floats, bounds: Sequence[PairBound]) -> float:
    """A finite lower bound on what any placement costs: of each job the least share of a group's cost; at most 0.

    A group's cost is shared equally by its jobs. `bounds`: what groups that are no columns cost at least.
    """
    share = cost / problem.size
    least = np.zeros(len(problem.demand) + 1)  # the last is for NOBODY
    if share.min(initial=0.0) < 0.0:
        for members in problem.members.T:
            np.minimum.at(least, members, np.where(problem.allowed, share, 0.0))
    for cut, bound in zip(problem.cutoffs, bounds, strict=True):
        pairs = np.minimum(np.where(np.isfinite(bound.pair), bound.pair, 0.0).min(axis=1, initial=0.0), 0.0)
        np.minimum.at(least, bound.classes, bound.alone + (cut.largest_size - 1) / 2 * pairs)
    return float(problem.demand @ least[:-1])
