"""Least-cost general matching, alone allowed, on at most `max_devices` devices: exact, by Edmonds' blossom algorithm.

Pairing i and j instead of leaving both alone saves solo_i + solo_j - cost_ij, so the cheapest partition is a matching
of most weight. At most m devices means at least n - m pairs: a price per device is raised until few enough are used
(Eisner & Severance's parametric search). The least cost is convex in the number of devices; where two matchings tie
at the critical price, swapping alternating components of one into the other yields exactly m devices.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.records import Matching, check_costs, cost_of, infeasible
from interfere.records import SolveStatus

UNITS = 2**40  # whole steps in the largest finite cost: rustworkx wants integer weights and adds them in 128 bits


def match_pairs(
    cost: NDArray[np.float64], solo: NDArray[np.float64] | None = None, *, max_devices: int | None = None
) -> Matching:
    """Cheapest partition of n jobs into pairs and, where `solo` is finite, jobs alone.

    `cost` float64[n, n], its diagonal ignored; `solo` float64[n], or None when nobody may stay alone. Raises
    InvalidInputError on NaN, asymmetry or wrong shapes; the status is INFEASIBLE when no such partition exists.
    """
    cost = np.asarray(cost, dtype=np.float64)
    n = len(cost)
    alone = np.full(n, np.inf) if solo is None else np.asarray(solo, dtype=np.float64)
    check_costs(cost, alone)
    problem = _Problem.of(cost, alone)
    mate = problem.solve(0, 1)
    if mate is not None and max_devices is not None and _devices(mate) > max_devices:
        mate = _within(problem, mate, max_devices)
    if mate is None:
        return infeasible(n)
    total = cost_of(mate, cost, alone)
    return Matching(mate=mate, cost=total, lower_bound=total, status=SolveStatus.OPTIMAL)


def _devices(mate: NDArray[np.int64]) -> int:
    """Groups of a partition: pairs and jobs alone."""
    return len(mate) - int((mate > np.arange(len(mate))).sum())


@dataclass(frozen=True, slots=True)
class _Problem:
    """Costs in whole units. `must[i]`: job i may not stay alone (its solo units are 0 then)."""

    n: int
    rows: list[int]
    columns: list[int]
    saving: list[int]  # solo_i + solo_j - cost_ij
    must: NDArray[np.bool_]

    @classmethod
    def of(cls, cost: NDArray[np.float64], solo: NDArray[np.float64]) -> "_Problem":
        rows, columns = np.nonzero(np.triu(np.isfinite(cost), 1))
        values, must = cost[rows, columns], np.isinf(solo)
        free = np.where(must, 0.0, solo)
        top = max(np.abs(values).max(initial=0.0), np.abs(free).max(initial=0.0))
        scale = UNITS / top if top > 0 else 1.0
        pair_units = np.rint(values * scale).astype(np.int64)
        free_units = np.rint(free * scale).astype(np.int64)
        saving = free_units[rows] + free_units[columns] - pair_units
        return cls(n=len(cost), rows=rows.tolist(), columns=columns.tolist(), saving=saving.tolist(), must=must)

    def solve(self, price: int, per: int, *, most_pairs: bool = False) -> NDArray[np.int64] | None:
        """mate int64[n] of least cost + price / per for each device; None when a job that must pair cannot."""
        import rustworkx

        weight = [saving * per + price for saving in self.saving]
        if self.must.any():
            bonus = 1 + 2 * sum(sorted((abs(w) for w in weight), reverse=True)[: self.n])
            due = self.must.astype(int).tolist()
            weight = [w + bonus * (due[i] + due[j]) for w, i, j in zip(weight, self.rows, self.columns, strict=True)]
        graph = rustworkx.PyGraph(multigraph=False)
        graph.add_nodes_from(range(self.n))
        graph.extend_from_weighted_edge_list(
            [edge for edge in zip(self.rows, self.columns, weight, strict=True) if most_pairs or edge[2] > 0]
        )
        mate = np.arange(self.n)
        for i, j in rustworkx.max_weight_matching(graph, max_cardinality=most_pairs, weight_fn=int):
            mate[i], mate[j] = j, i
        return None if (self.must & (mate == np.arange(self.n))).any() else mate

    def total_saving(self, mate: NDArray[np.int64]) -> int:
        """Whole units that `mate` saves against everybody alone."""
        place = mate.tolist()
        return sum(s for i, j, s in zip(self.rows, self.columns, self.saving, strict=True) if place[i] == j)


def _within(problem: _Problem, many: NDArray[np.int64], max_devices: int) -> NDArray[np.int64] | None:
    """The cheapest partition on exactly `max_devices` devices, given the cheapest one, which uses more."""
    few = problem.solve(0, 1, most_pairs=True)
    if few is None or _devices(few) > max_devices:
        return None
    while _devices(few) != max_devices:
        # The price at which both cost the same. If nothing is cheaper there, both are optimal at it.
        per = _devices(many) - _devices(few)
        price = problem.total_saving(many) - problem.total_saving(few)
        best = problem.solve(price, per)
        if best is None:
            raise AssertionError("a partition existed a moment ago")
        if _value(problem, best, price, per) == _value(problem, many, price, per):
            return _swap(many, few, max_devices)
        if _devices(best) > max_devices:
            many = best
        else:
            few = best
    return few


def _value(problem: _Problem, mate: NDArray[np.int64], price: int, per: int) -> int:
    """What a partition saves at a price: what `solve` makes as large as it can."""
    return problem.total_saving(mate) * per + price * (problem.n - _devices(mate))


def _swap(many: NDArray[np.int64], few: NDArray[np.int64], devices: int) -> NDArray[np.int64]:
    """Take alternating components of `few` into `many`, each of which saves a device, until `devices` are used.

    Both are optimal at one price, so every component of their difference is worth nothing there.
    """
    mate, seen = many.copy(), np.zeros(len(many), dtype=bool)
    for start in range(len(many)):
        if _devices(mate) == devices:
            break
        component, stack = [], [start]
        while stack:
            i = stack.pop()
            if not seen[i]:
                seen[i] = True
                component.append(i)
                stack += [int(many[i]), int(few[i])]
        trial = mate.copy()
        trial[component] = few[component]
        if _devices(trial) < _devices(mate):
            mate = trial
    return mate
