"""Least-cost matching of a sparse graph, exact, in whole numbers: Edmonds' blossom algorithm, component by component.

Pairing i and j instead of leaving both alone saves solo_i + solo_j - cost_ij, so the cheapest partition is a matching
of most weight. At most m devices means at least n - m pairs: a price per device is raised until few enough are used
(Eisner & Severance's parametric search). The least cost is convex in the number of devices; where two matchings tie
at the critical price, swapping alternating components of one into the other yields exactly m devices.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.forced_pairs import forced_pairs

NEARBY, WIDER = 12, 16  # halvings of the charge that the first step beside it takes, and times it that the next does
UNITS = 2**40  # whole steps in the largest cost: rustworkx wants integer weights and adds them in 128 bits

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseProblem:
    """Edges i < j with what pairing saves, in whole units. `must[i]`: job i may not stay alone (solo units 0)."""

    n: int
    i: Ints  # int64[e]
    j: Ints  # int64[e]
    saving: Ints  # int64[e], units
    must: NDArray[np.bool_]
    component: Ints  # int64[e]
    scale: float  # units in a cost of one
    forced: tuple[Ints, Ints] | None  # pairs that every partition contains, not among the edges; None: there is none

    @classmethod
    def of(cls, i: Ints, j: Ints, cost: NDArray[np.float64], solo: NDArray[np.float64]) -> "SparseProblem":
        """From finite costs float64[e] and solo costs float64[n], inf where a job must be paired."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        n, must = len(solo), np.isinf(solo)
        forced = forced_pairs(i, j, must)
        if forced is not None:
            i, j, cost = i[forced[2]], j[forced[2]], cost[forced[2]]
        free = np.where(must, 0.0, solo)
        top = max(np.abs(cost).max(initial=0.0), np.abs(free).max(initial=0.0))
        scale = UNITS / top if top > 0 else 1.0
        units = np.rint(free * scale).astype(np.int64)
        saving = units[i] + units[j] - np.rint(cost * scale).astype(np.int64)
        graph = csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
        part = connected_components(graph, directed=False)[1][i].astype(np.int64)
        order = np.argsort(part, kind="stable")
        return cls(
            n=n,
            i=i[order],
            j=j[order],
            saving=saving[order],
            must=must,
            component=part[order],
            scale=scale,
            forced=None if forced is None else forced[:2],
        )

    def solve(self, price: int = 0, per: int = 1, *, most_pairs: bool = False) -> Ints | None:
        """mate int64[n] of least cost + price / per for each device; None when a job that must pair cannot."""
        if self.forced is None:
            return None
        mate = np.arange(self.n)
        one, other = self.forced
        mate[one], mate[other] = other, one
        starts = np.flatnonzero(np.diff(self.component, prepend=-1))
        sizes = np.diff(starts, append=len(self.i))
        lone = starts[sizes == 1]  # two jobs and their only edge: most components of a priced problem
        due = self.must[self.i[lone]] | self.must[self.j[lone]]
        worth = lone[due | most_pairs | (self.saving[lone].astype(np.float64) * per + price > 0)]
        mate[self.i[worth]], mate[self.j[worth]] = self.j[worth], self.i[worth]
        for first, size in zip(starts[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
            part = slice(first, first + size)
            weight = [saving * per + price for saving in self.saving[part].tolist()]
            for a, b in _component(self.i[part], self.j[part], weight, self.must, most_pairs=most_pairs):
                mate[a], mate[b] = b, a
        return None if (self.must & (mate == np.arange(self.n))).any() else mate

    def within(self, most: int, charge: float = 0.0) -> Ints | None:
        """The cheapest partition on at most `most` devices; None if none.

        `charge`: what every solo cost holds too much, a price that keeps partitions near `most` devices cheap.
        """
        many = self.solve(-round(2.0 * charge * self.scale))
        if many is None or devices(many) <= most:
            return many
        few: Ints | None = None
        step = max(1, round(2.0 * charge * self.scale) >> NEARBY)
        price = -round(2.0 * charge * self.scale)
        while price < 0 and few is None:  # the charge is near the price that is looked for: so is the other side of it
            price, step = min(0, price + step), step * WIDER
            trial = self.solve(price)
            if trial is None:
                raise AssertionError("a partition existed a moment ago")
            if devices(trial) > most:
                many = trial
            else:
                few = trial
        if few is None:
            few = self.solve(most_pairs=True)
        if few is None or devices(few) > most:
            return None
        while devices(few) != most:
            # The price at which both cost the same. If nothing is cheaper there, both are optimal at it.
            per = devices(many) - devices(few)
            price = self._saved(many) - self._saved(few)
            best = self.solve(price, per)
            if best is None:
                raise AssertionError("a partition existed a moment ago")
            if self._value(best, price, per) == self._value(many, price, per):
                return _swap(many, few, most)
            if devices(best) > most:
                many = best
            else:
                few = best
        return few

    def _saved(self, mate: Ints) -> int:
        """Whole units that `mate` saves against everybody alone, but for the forced pairs."""
        return sum(self.saving[mate[self.i] == self.j].tolist())

    def _value(self, mate: Ints, price: int, per: int) -> int:
        """What a partition saves at a price: what `solve` makes as large as it can."""
        return self._saved(mate) * per + price * (self.n - devices(mate))


def devices(mate: Ints) -> int:
    """Groups of a partition: pairs and jobs alone."""
    return len(mate) - int((mate > np.arange(len(mate))).sum())


def _component(
    i: Ints, j: Ints, weight: list[int], must: NDArray[np.bool_], *, most_pairs: bool
) -> list[tuple[int, int]]:
    """Matched pairs of most weight; jobs that must be paired first, then, with `most_pairs`, the number of pairs."""
    jobs, local = np.unique(np.concatenate([i, j]), return_inverse=True)
    if must[jobs].any():
        bonus = 1 + 2 * len(jobs) * max(map(abs, weight))
        weight = [w + bonus * d for w, d in zip(weight, (must[i].astype(int) + must[j]).tolist(), strict=True)]
    import rustworkx

    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(jobs)))
    edges = zip(local[: len(i)].tolist(), local[len(i) :].tolist(), weight, strict=True)
    graph.extend_from_weighted_edge_list([edge for edge in edges if most_pairs or edge[2] > 0])
    matched = rustworkx.max_weight_matching(graph, max_cardinality=most_pairs, weight_fn=int)
    return [(int(jobs[a]), int(jobs[b])) for a, b in matched]


def _swap(many: Ints, few: Ints, most: int) -> Ints:
    """Take alternating components of `few` into `many`, each of which saves a device, until `most` devices are used.

    Both are optimal at one price, so every component of their difference is worth nothing there.
    """
    mate, seen = many.copy(), np.zeros(len(many), dtype=bool)
    for start in range(len(many)):
        if devices(mate) == most:
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
        if devices(trial) < devices(mate):
            mate = trial
    return mate
