"""Rounding of a linear solution: some columns are fixed, and the residual problem of the other jobs is solved.

Without patterns an integer program solves the residual problem. With patterns groups of large value are fixed, and the
linear program of the residual problem has other dual prices, at which other groups are best, so columns are generated
for it too. This repeats until few jobs are left, which an integer program places. Jobs that it leaves join the groups
in which they add the least cost.
"""

from dataclasses import replace

import numpy as np

from interfere.matching.formulation import BEST_PER_JOB, Formulation, PatternSearch, best_of_each
from interfere.matching.patterns import NO_KIND, PatternCosts, Patterns
from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Bools,
    Floats,
    GroupLookup,
    Ints,
    Level,
    Placement,
    PlacementProblem,
    Prices,
    reduced_costs,
)
from interfere.matching.programs import LinearProgram, Restriction, solve_integer_program
from interfere.time_budget import TimeBudget

MAX_COLUMNS, MAX_NODES = 1_000, 20  # of the residual integer program: columns, and nodes of its search tree
MAX_RANKED = 100_000  # columns of least reduced cost among which the best of each host and job are looked for
LARGE_SHARE = 0.5  # fractional part from which a column is fixed in full


def best_columns(problem: PlacementProblem, reduced: Floats, limit: float, per_class: int = BEST_PER_JOB) -> Ints:
    """Return columns of reduced cost below `limit`: the best few of each host and `per_class` of each job class."""
    negative = np.flatnonzero(reduced < limit)
    if len(negative) > MAX_RANKED:
        negative = negative[np.argpartition(reduced[negative], MAX_RANKED)[:MAX_RANKED]]
    order = negative[np.argsort(reduced[negative], kind="stable")]
    return np.asarray(order[best_of_each(problem.host[order], problem.members[order], per_class)])


def with_largest_shares(problem: PlacementProblem, kept: Ints, columns: Ints, x: Floats) -> Ints:
    """Return int64[c]: the fixed counts, plus one for columns of large fractional part in `x` if supply allows."""
    counts = kept.copy()
    part = x - np.floor(x + 1e-6)
    for place in np.argsort(-part, kind="stable")[: max(1, int((part >= LARGE_SHARE).sum()))].tolist():
        counts[columns[place]] += 1
        rest, _ = residual_problem(problem, counts, Restriction.none(problem))
        if min(rest.demand.min(), rest.supply.min(), rest.max_devices) < 0:
            counts[columns[place]] -= 1
    return counts


def residual_problem(
    problem: PlacementProblem, kept: Ints, restriction: Restriction
) -> tuple[PlacementProblem, tuple[tuple[Level, float], ...]]:
    """Return the problem left after fixing column counts `kept`, and the limits on level sums that remain."""
    column = np.flatnonzero(kept)
    count = kept[column]
    demand, supply = problem.demand.copy(), problem.supply.copy()
    members = problem.members[column]
    at = members != NOBODY
    np.subtract.at(demand, members[at], np.broadcast_to(count[:, None], members.shape)[at])
    placed = problem.host[column] != WAITS
    taken = (count * problem.takes[column])[placed]
    np.subtract.at(supply, problem.host[column][placed], taken)
    on_empty = int(taken[problem.is_empty[problem.host[column][placed]]].sum())
    limits = tuple((level, value - float(level.cost[column] @ count)) for level, value in restriction.limits)
    return replace(problem, demand=demand, supply=supply, max_devices=problem.max_devices - on_empty), limits


def possible_columns(problem: PlacementProblem) -> Bools:
    """Return bool[c]: whether enough supply is left for each column; jobs of equal class are counted once."""
    left = np.append(problem.demand > 0, True)[problem.members].all(axis=1)
    host = np.append(problem.supply, np.iinfo(np.int64).max)[problem.host]
    limit = np.where(np.append(problem.is_empty, False)[problem.host], problem.max_devices, np.iinfo(np.int64).max)
    return np.asarray(left & (problem.takes <= np.minimum(host, limit)))


def rounded_columns(
    problem: PlacementProblem,
    level: Level,
    restriction: Restriction,
    columns: Ints,
    x: Floats,
    reduced: Floats,
    *,
    scale: float,
    budget: TimeBudget,
) -> Placement | None:
    """Return the integer part of a linear solution `x`, completed by an integer program over the residual problem.

    `reduced` float64[c]: the reduced cost of every column, inf for forbidden ones. None where no placement was found.
    """
    kept = np.zeros(len(problem.host), dtype=np.int64)
    kept[columns] = np.floor(x + 1e-6).astype(np.int64)
    residual, limits = residual_problem(problem, kept, restriction)
    possible = possible_columns(residual)
    near, used = np.flatnonzero(possible & np.isfinite(reduced)), columns[x > 1e-9]
    near = near[np.argsort(reduced[near], kind="stable")[:MAX_COLUMNS]]
    waits = np.flatnonzero((problem.host == WAITS) & restriction.allowed)
    placement, _ = solve_integer_program(
        residual,
        level,
        replace(restriction, limits=limits),
        np.unique(np.concatenate([near, used[possible[used]], waits])),
        scale=scale,
        budget=budget,
        start=Placement.of_counts(np.zeros(0, dtype=np.int64)),
        max_nodes=MAX_NODES,
    )
    if placement is None:
        return None
    kept[placement.column] += placement.count
    return Placement.of_counts(kept)


WAITING_COST = 10.0  # of a job that waits, beside the mean cost of a job
FEW_JOBS = 40  # at most this many jobs are placed by the integer program
MAX_PROGRAMS = 12  # linear programs over residual problems
ROUNDS = 4  # of pricing in each
NEAR_COLUMNS = 1_500  # of each, and of the integer program: those of least reduced cost
MAX_NODES = 20  # of the integer program's search tree
UNAVAILABLE = 10.0  # times the magnitude of the sum: price of a job or host that a group may not take


class PatternRounding:
    """The rounding heuristic of one level."""

    def __init__(
        self,
        formulation: Formulation,
        place: int,
        search: PatternSearch,
        restriction: Restriction,
        budget: TimeBudget,
        *,
        magnitude: float,
        scale: float,
    ) -> None:
        """`magnitude` > 0 is the scale of the level's sum; `scale` divides costs before they reach the solver."""
        self._formulation, self._place, self._search = formulation, place, search
        self._restriction, self._budget, self._scale = restriction, budget, scale
        self._waiting_cost = WAITING_COST * magnitude / int(formulation.problem.demand.sum())
        self._taken = UNAVAILABLE * magnitude

    def placement(self, columns: Ints, x: Floats, prices: Prices) -> Placement | None:
        """Return a placement rounded from the linear solution `x` over `columns`; None where none was found."""
        kept = np.zeros(len(self._formulation.problem.host), dtype=np.int64)
        for _ in range(MAX_PROGRAMS):
            # 1. Whole groups, and those with large shares.
            kept = self._as_long(kept)
            kept[columns] += np.floor(x + 1e-6).astype(np.int64)
            kept = with_largest_shares(self._formulation.problem, kept, columns, x)
            residual, limits = residual_problem(self._formulation.problem, kept, self._restriction)
            if not residual.demand.any():
                return Placement.of_counts(kept)
            if int(residual.demand.sum()) <= FEW_JOBS or self._budget.expired:
                break
            # 2. The linear program over the rest.
            program = self._solved(residual, limits, prices)
            if program is None:
                break
            columns, x, prices = program
        # 3. The integer program over the last jobs.
        self._add_groups(residual, prices, of_all=True)
        residual, restriction = self._extended(residual, limits)
        level, waits = self._level, residual.host == WAITS
        joins = not restriction.allowed[waits].any()  # unplaced jobs join a group
        if joins:
            level = replace(level, cost=np.where(waits, self._waiting_cost, level.cost))
            restriction = replace(restriction, allowed=restriction.allowed | waits)
            self._restriction = replace(self._restriction, allowed=restriction.allowed)
        placement, _ = solve_integer_program(
            residual,
            level,
            restriction,
            self._near(residual, prices),
            scale=self._scale,
            budget=self._budget,
            start=Placement.of_counts(np.zeros(0, dtype=np.int64)),
            max_nodes=MAX_NODES,
        )
        kept = self._as_long(kept)
        if placement is not None:
            kept[placement.column] += placement.count
        elif not restriction.limits and restriction.allowed[waits].all():  # all who are left wait, or join
            kept[waits] += residual.demand[residual.members[waits, 0]]
        else:
            return None
        if not joins:
            return Placement.of_counts(kept)
        groups, waiting = groups_of(self._formulation, kept)
        costs = self._level.patterns
        assert costs is not None
        return placement_of_groups(self._formulation, costs, groups, waiting)

    def _solved(
        self, residual: PlacementProblem, limits: tuple[tuple[Level, float], ...], prices: Prices
    ) -> tuple[Ints, Floats, Prices] | None:
        """Return columns, solution and prices of the residual linear program; None where it was not solved."""
        self._add_groups(residual, prices)
        residual, restriction = self._extended(residual, limits)
        program = LinearProgram(residual, self._level, restriction, scale=self._scale)
        program.add(self._near(residual, prices))
        solved = None
        for _ in range(ROUNDS):
            linear = program.solve(self._budget)
            if linear is None:
                break
            solved = program.columns, linear.x, linear.prices
            found = self._search.add_near(self._masked(residual, linear.prices), self._restriction, 0.0)
            residual, restriction = self._extended(residual, limits)
            program.extend(residual, self._level, restriction)
            if program.add(found[possible_columns(residual)[found]]) == 0 or self._budget.expired:
                break
        return solved

    @property
    def _level(self) -> Level:
        return self._formulation.levels[self._place]

    def _extended(
        self, residual: PlacementProblem, limits: tuple[tuple[Level, float], ...]
    ) -> tuple[PlacementProblem, Restriction]:
        """Return the residual problem with the columns generated since it was made, and its restriction."""
        levels = self._formulation.levels
        self._restriction = self._restriction.extended(levels)
        problem = replace(
            self._formulation.problem,
            demand=residual.demand,
            supply=residual.supply,
            max_devices=residual.max_devices,
        )
        values = zip(self._restriction.places, limits, strict=True)
        return problem, replace(self._restriction, limits=tuple((levels[at], value) for at, (_, value) in values))

    def _add_groups(self, residual: PlacementProblem, prices: Prices, *, of_all: bool = False) -> None:
        """Add columns for the best groups of the residual problem at the given prices."""
        masked = self._masked(residual, prices)
        self._search.add_near(masked, self._restriction, self._taken / 2, of_all=of_all)
        self._restriction = self._restriction.extended(self._formulation.levels)

    def _masked(self, residual: PlacementProblem, prices: Prices) -> Prices:
        """Return prices at which no group uses a job or host that the residual problem lacks."""
        return replace(
            prices,
            jobs=np.where(residual.demand > 0, prices.jobs, -self._taken),
            hosts=np.where(residual.supply > 0, prices.hosts, -self._taken),
        )

    def _near(self, residual: PlacementProblem, prices: Prices) -> Ints:
        """Return the columns that may be used: those of least reduced cost, and all waiting columns."""
        problem, restriction = self._formulation.problem, self._restriction
        reduced = reduced_costs(problem, self._level.cost, prices, restriction.levels)
        possible = possible_columns(residual) & restriction.allowed
        waits = np.flatnonzero((problem.host == WAITS) & possible)
        near = np.flatnonzero(possible)
        return np.union1d(near[np.argsort(reduced[near], kind="stable")[:NEAR_COLUMNS]], waits)

    def _as_long(self, counts: Ints) -> Ints:
        """Return the counts padded with zeros for columns generated since."""
        return np.concatenate([counts, np.zeros(len(self._formulation.problem.host) - len(counts), dtype=np.int64)])


Group = tuple[int, int, list[int]]  # its pattern, -1 of a job alone on a device; its host; job classes by place


def insert_jobs(
    formulation: Formulation,
    costs: PatternCosts,
    groups: list[Group],
    waiting: list[int],
) -> bool:
    """Add each waiting job to the group where it adds the least cost, in place; return False where a job fits none."""
    patterns = formulation.problem.patterns
    assert patterns is not None
    lookup, width = GroupLookup.of_patterns(patterns, len(formulation.problem.supply)), patterns.members.shape[1]
    for job in waiting:
        keys = np.array(
            [lookup.host_key[host] + lookup.kind_key[patterns.kind[jobs]].sum() for _, host, jobs in groups]
        )
        rows = lookup.find(keys + lookup.kind_key[patterns.kind[job]]) if len(groups) else np.zeros(0, dtype=np.int64)
        best, least = -1, np.inf
        for k in np.flatnonzero(rows >= 0).tolist():
            row, _, jobs = groups[k]
            before = _cost(costs, patterns, row, jobs, width) if row >= 0 else 0.0
            added = _cost(costs, patterns, int(rows[k]), [*jobs, job], width) - before
            if added < least:
                best, least = k, added
        if best < 0:
            return False
        groups[best] = int(rows[best]), groups[best][1], _by_kind(patterns, [*groups[best][2], job])
    return True


def groups_of(formulation: Formulation, counts: Ints) -> tuple[list[Group], list[int]]:
    """Return the groups of a placement and the classes of its waiting jobs; `counts` gives the use of each column."""
    problem, rows = formulation.problem, formulation.pattern_of_columns()
    patterns = problem.patterns
    assert patterns is not None
    lookup = GroupLookup.of_patterns(patterns, len(problem.supply))
    groups: list[Group] = []
    waiting: list[int] = []
    for column in np.flatnonzero(counts).tolist():
        row, host = int(rows[column]), int(problem.host[column])
        jobs = [job for job in problem.members[column].tolist() if job != NOBODY]
        if row >= 0:
            jobs = formulation.places_of(column)
        elif host != WAITS and (len(jobs) > 1 or not problem.is_empty[host]):  # a group found elsewhere
            jobs = _by_kind(patterns, jobs)
            row = lookup.find_group(host, patterns.kind[jobs])
        for _ in range(int(counts[column])):
            if host == WAITS:
                waiting += jobs
            else:
                groups.append((row, host, list(jobs)))
    return groups, waiting


def placement_of_groups(
    formulation: Formulation, costs: PatternCosts, groups: list[Group], waiting: list[int]
) -> Placement | None:
    """Return a placement of the groups with all waiting jobs inserted; jobs of large slope get places of small excess.

    Returns None where a waiting job fits in no group, or where a job left alone has no column.
    """
    if not insert_jobs(formulation, costs, groups, waiting):
        return None
    _sort(formulation, costs, groups)
    problem = formulation.problem
    hosts_and_jobs = zip(problem.host.tolist(), problem.members[:, 0].tolist(), strict=True)
    single = problem.members[:, 1:].max(axis=1, initial=NOBODY) == NOBODY
    alone = {place: column for column, place in enumerate(hosts_and_jobs) if single[column]}
    found = _add(formulation, [group for group in groups if group[0] >= 0])
    found += [alone.get((host, own[0]), -1) for row, host, own in groups if row < 0]
    if -1 in found:
        return None
    columns, counts = np.unique(np.array(found, dtype=np.int64), return_counts=True)
    return Placement(column=columns, count=counts)


def _sort(formulation: Formulation, costs: PatternCosts, groups: list[Group]) -> None:
    """Reassign the jobs of each kind and domain among the places in the order of their slopes, in place."""
    patterns, slope = formulation.problem.patterns, costs.slope
    assert patterns is not None
    places: dict[tuple[int, int], list[tuple[float, int, int]]] = {}  # domain and kind -> excess, group, place
    for k, (row, _, jobs) in enumerate(groups):
        for a, job in enumerate(jobs if row >= 0 else ()):
            key = int(patterns.domain[row]), int(patterns.kind[job])
            places.setdefault(key, []).append((float(patterns.excess[row, a]), k, a))
    for (domain, _), of_kind in places.items():
        jobs = sorted((groups[k][2][a] for _, k, a in of_kind), key=lambda job: -float(slope[domain, job]))
        for (_, k, a), job in zip(sorted(of_kind), jobs, strict=True):
            groups[k][2][a] = job


def _add(formulation: Formulation, groups: list[Group]) -> list[int]:
    if not groups:
        return []
    patterns = formulation.problem.patterns
    assert patterns is not None
    classes = np.full((len(groups), patterns.members.shape[1]), NOBODY, dtype=np.int64)
    for k, (_, _, jobs) in enumerate(groups):
        classes[k, : len(jobs)] = jobs
    columns: list[int] = formulation.add_groups(np.array([row for row, _, _ in groups]), classes).tolist()
    return columns


def _by_kind(patterns: Patterns, jobs: list[int]) -> list[int]:
    return sorted(jobs, key=lambda job: int(patterns.kind[job]))


def _cost(costs: PatternCosts, patterns: Patterns, row: int, jobs: list[int], width: int) -> float:
    classes = np.full((1, width), NOBODY, dtype=np.int64)
    classes[0, : len(jobs)] = _by_kind(patterns, jobs)
    assert (patterns.members[row] != NO_KIND).sum() == len(jobs)
    return float(costs.of_groups(patterns, np.array([row]), classes)[0])
