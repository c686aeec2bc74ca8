"""First prices of many job classes: those of a problem in which classes of about equal costs are one.

The price of a job rises with what a unit of slowdown costs it, the slower the more: heavy jobs get the places of small
excess. Between classes of the coarse problem it is interpolated, beyond them it rises by the mean excess of places.
Bounds do not rest on it: they hold at any prices.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from interfere.matching.group_master.formulation import Formulation
from interfere.matching.group_master.insertion import insert_jobs
from interfere.matching.group_master.patterns import NO_KIND, PatternCosts
from interfere.matching.group_master.problem import (
    NOBODY,
    WAITS,
    Floats,
    GroupLevel,
    GroupPlacement,
    GroupPrices,
    GroupProblem,
    Ints,
)

CLASSES_PER_KIND = (1, 4)  # of the coarse problems, the coarsest first; one for half as many classes is no use
WAITING_COST = 10.0  # of a job that waits, beside the mean cost of a job: the coarse problem may always wait


class CoarseProblem:
    """One level of a problem with patterns, with a few classes for each kind."""

    def __init__(
        self,
        formulation: Formulation,
        place: int,
        allowed: NDArray[np.bool_],
        *,
        per_kind: int,
        waiting_cost: float,
    ) -> None:
        """`allowed` bool[c]: columns of one job that may be taken."""
        problem, level = formulation.problem, formulation.levels[place]
        assert problem.patterns is not None
        assert level.patterns is not None
        self._fine, self._fine_costs = problem, level.patterns
        self.class_of = _coarse_classes(problem, level.patterns, per_kind)
        demand = np.bincount(self.class_of, weights=problem.demand).astype(np.int64)
        share = problem.demand / demand[self.class_of]
        kind = np.zeros(len(demand), dtype=np.int64)
        kind[self.class_of] = problem.patterns.kind
        costs = PatternCosts(
            base=_summed(level.patterns.base * share, self.class_of),
            slope=_summed(level.patterns.slope * share, self.class_of),
            added=level.patterns.added,
        )
        patterns = replace(problem.patterns, kind=kind, demand=demand)
        # Columns of one job where every class of the coarse one has one; others are of no use here.
        single = np.flatnonzero(allowed & (problem.members[:, 0] != NOBODY) & (problem.size == 1))
        single = single[problem.is_empty[problem.host[single]] & (problem.host[single] != WAITS)]
        hosts = len(problem.supply)
        key = self.class_of[problem.members[single, 0]] * hosts + problem.host[single]
        distinct, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
        full = counts == np.bincount(self.class_of)[distinct // hosts]
        cost = np.bincount(inverse, weights=(level.cost[single] * share[problem.members[single, 0]]))
        k = len(demand)
        members = np.full((k + int(full.sum()), problem.members.shape[1]), NOBODY, dtype=np.int64)
        members[:k, 0], members[k:, 0] = np.arange(k), distinct[full] // hosts
        host = np.concatenate([np.full(k, WAITS), distinct[full] % hosts])
        takes_of_host = np.zeros(hosts, dtype=np.int64)
        takes_of_host[problem.host[single]] = problem.takes[single]
        self.level = GroupLevel(cost=np.concatenate([np.full(k, waiting_cost), cost[full]]), patterns=costs)
        self.problem = replace(
            problem,
            demand=demand,
            members=members,
            host=host,
            takes=np.concatenate([np.zeros(k, dtype=np.int64), takes_of_host[distinct[full] % hosts]]),
            allowed=np.ones(len(host), dtype=bool),
            patterns=patterns,
        )
        self.formulation = Formulation(self.problem, (self.level,), formulation.pricing.of_classes(patterns))

    def averaged(self, fine: GroupPrices) -> GroupPrices:
        """Prices of the fine problem as ones of this: the mean of the jobs of each class."""
        weights = self._fine.demand * fine.jobs
        return replace(fine, jobs=np.bincount(self.class_of, weights=weights) / self.problem.demand)

    def prices(self, coarse: GroupPrices, columns: Ints, x: Floats) -> GroupPrices:
        """The prices of the fine problem. `columns`, `x`: the solution of the coarse linear program."""
        patterns, costs = self._fine.patterns, self.formulation.levels[0].patterns
        assert patterns is not None
        assert costs is not None
        rise = self._mean_excess(columns, x)
        jobs = np.empty(len(self._fine.demand))
        for kind in range(len(rise)):
            fine = np.flatnonzero(patterns.kind == kind)
            points = np.unique(self.class_of[fine])
            slopes = costs.slope[:, points].max(axis=0)
            order = np.argsort(slopes)
            points, slopes = points[order], slopes[order]
            own = self._fine_costs.slope[:, fine].max(axis=0)
            above_base = coarse.jobs[points] - costs.base[:, points].max(axis=0)
            beyond = own - np.clip(own, slopes[0], slopes[-1])
            jobs[fine] = (
                np.interp(own, slopes, above_base) + beyond * rise[kind] + self._fine_costs.base[:, fine].max(axis=0)
            )
        return replace(coarse, jobs=jobs)

    def lifted(self, placement: GroupPlacement, formulation: Formulation) -> GroupPlacement | None:
        """A placement of the fine problem in the same patterns: jobs of large slope get the places of small excess.

        None where a job that waits there fits nowhere, or a job alone has no column.
        """
        problem, pattern_of = self.formulation.problem, self.formulation.pattern_of_columns()[placement.column]
        # 1. The jobs of each coarse class in turn, on the places of the columns.
        jobs = [list(np.repeat(at, self._fine.demand[at])) for at in map(self._members_of, range(len(problem.demand)))]
        groups: list[tuple[int, int, list[int]]] = []  # pattern, host, jobs
        waiting: list[int] = []
        columns_and_counts = placement.column.tolist(), placement.count.tolist()
        for column, count, row in zip(*columns_and_counts, pattern_of.tolist(), strict=True):
            classes = self.formulation.places_of(column) if row >= 0 else problem.members[column, :1].tolist()
            host = int(problem.host[column])
            for _ in range(count):
                taken = [int(jobs[c].pop()) for c in classes]
                if host == WAITS:
                    waiting += taken
                else:
                    groups.append((row, host, taken))
        if not insert_jobs(formulation, self._fine_costs, groups, waiting):
            return None
        # 2. Sorted by slope within each kind and domain.
        self._sort(groups)
        counts: dict[int, int] = {}
        hosts_and_jobs = zip(self._fine.host.tolist(), self._fine.members[:, 0].tolist(), strict=True)
        alone = {place: column for column, place in enumerate(hosts_and_jobs)}
        found = self._add([group for group in groups if group[0] >= 0], formulation)
        found += [alone.get((host, own[0]), -1) for row, host, own in groups if row < 0]
        for place in found:
            counts[place] = counts.get(place, 0) + 1
        if -1 in counts:
            return None
        columns = sorted(counts)
        return GroupPlacement(column=np.array(columns), count=np.array([counts[column] for column in columns]))

    def _members_of(self, coarse: int) -> Ints:
        return np.flatnonzero(self.class_of == coarse)

    def _sort(self, groups: list[tuple[int, int, list[int]]]) -> None:
        patterns, slope = self._fine.patterns, self._fine_costs.slope
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

    def _add(self, groups: list[tuple[int, int, list[int]]], formulation: Formulation) -> list[int]:
        if not groups:
            return []
        patterns = self._fine.patterns
        assert patterns is not None
        classes = np.full((len(groups), patterns.members.shape[1]), NOBODY, dtype=np.int64)
        for k, (_, _, jobs) in enumerate(groups):
            classes[k, : len(jobs)] = jobs
        columns: list[int] = formulation.add_groups(np.array([row for row, _, _ in groups]), classes).tolist()
        return columns

    def _mean_excess(self, columns: Ints, x: Floats) -> Floats:
        """float64[kinds]: of the places that jobs of each kind have in a solution."""
        patterns = self.problem.patterns
        assert patterns is not None
        kinds = int(patterns.kind.max(initial=-1)) + 1
        total, count = np.zeros(kinds), np.full(kinds, 1e-300)
        row = self.formulation.pattern_of_columns()[columns]
        used = np.flatnonzero((row >= 0) & (x > 0))
        for members, excess in zip(patterns.members[row[used]].T, patterns.excess[row[used]].T, strict=True):
            at = members != NO_KIND
            np.add.at(total, members[at], (excess * x[used])[at])
            np.add.at(count, members[at], x[used][at])
        return np.asarray(total / count)


def first_prices(problem: GroupProblem, level: GroupLevel, value: float) -> GroupPrices:
    """Prices as if all jobs had the same excess: that with which they would come to the value of a placement."""
    costs, hosts = level.patterns, len(problem.supply)
    assert costs is not None
    base, slope = costs.base.max(axis=0), costs.slope.max(axis=0)
    excess = (value - float(problem.demand @ base)) / max(float(problem.demand @ slope), 1e-300)
    return GroupPrices(jobs=base + slope * max(excess, 0.0), hosts=np.zeros(hosts), max_devices=0.0, limits=np.zeros(0))


def _coarse_classes(problem: GroupProblem, costs: PatternCosts, per_kind: int) -> Ints:
    """int64[k]: a class for those of a kind whose slopes are near: in intervals of equal width, without empty ones."""
    assert problem.patterns is not None
    kind, slope = problem.patterns.kind, costs.slope.max(axis=0)
    kinds = int(kind.max()) + 1
    low, high = np.full(kinds, np.inf), np.full(kinds, -np.inf)
    np.minimum.at(low, kind, slope)
    np.maximum.at(high, kind, slope)
    width = np.maximum(high - low, 1e-300)[kind]
    interval = np.minimum(((slope - low[kind]) / width * per_kind).astype(np.int64), per_kind - 1)
    return np.asarray(np.unique(kind * per_kind + interval, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def _summed(values: Floats, of: Ints) -> Floats:
    """float64[d, coarse]: Σ of the values of the classes of each."""
    return np.array([np.bincount(of, weights=row) for row in values])
