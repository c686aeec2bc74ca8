"""Least-cost matching of a sparse graph, exact and in whole numbers, by Edmonds' blossom algorithm.

Pairing i and j instead of running both solo saves solo_i + solo_j - cost_ij, so the cheapest partition is a matching of
maximum weight, found separately in every connected component. At most m devices means at least n - m pairs: a price per
device (Lagrange multiplier) is raised until few enough devices are used (Eisner & Severance's parametric search). The
least cost is convex in the number of devices; where two matchings tie at the critical price, swapping alternating
components of one into the other yields exactly m devices.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.forced_pairs import forced_pairs

# The search for the price starts beside the hint: first step hint / 2^12, and 16 times the last step after that.
FIRST_STEP_HALVINGS, STEP_GROWTH = 12, 16
MAX_COST_UNITS = 2**48  # whole units in the largest cost: rustworkx wants integer weights and adds them in 128 bits

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseProblem:
    """A graph of jobs: edges i < j with what pairing saves, in whole units."""

    n: int
    i: Ints  # int64[e]
    j: Ints  # int64[e]
    saving: Ints  # int64[e], units
    must_pair: NDArray[np.bool_]  # bool[n]: jobs that may not run solo (their solo cost counts as 0 units)
    component: Ints  # int64[e]: connected component of the edge, ascending
    scale: float  # units in a cost of one, a power of two: whole costs stay exact where they can
    error: float  # the most by which rounding to units moves the cost of any partition
    forced: tuple[Ints, Ints] | None  # pairs that every partition contains, not among the edges; None: no partition

    @classmethod
    def of(cls, i: Ints, j: Ints, cost: NDArray[np.float64], solo: NDArray[np.float64]) -> "SparseProblem":
        """Build the problem from finite costs float64[e] and solo costs float64[n], inf where a job must be paired."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        n, must_pair = len(solo), np.isinf(solo)
        forced = forced_pairs(i, j, must_pair)
        if forced is not None:
            i, j, cost = i[forced[2]], j[forced[2]], cost[forced[2]]
        solo = np.where(must_pair, 0.0, solo)
        max_cost = max(np.abs(cost).max(initial=0.0), np.abs(solo).max(initial=0.0))
        scale = float(2.0 ** np.floor(np.log2(MAX_COST_UNITS / max_cost))) if max_cost > 0 else 1.0
        solo_units, cost_units = np.rint(solo * scale), np.rint(cost * scale)
        moved = max(
            np.abs(solo * scale - solo_units).max(initial=0.0), np.abs(cost * scale - cost_units).max(initial=0.0)
        )
        units = solo_units.astype(np.int64)
        saving = units[i] + units[j] - cost_units.astype(np.int64)
        graph = csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
        component = connected_components(graph, directed=False)[1][i].astype(np.int64)
        order = np.argsort(component, kind="stable")
        return cls(
            n=n,
            i=i[order],
            j=j[order],
            saving=saving[order],
            must_pair=must_pair,
            component=component[order],
            scale=scale,
            error=float(n * moved / scale),
            forced=None if forced is None else forced[:2],
        )

    def solve(self, price: int = 0, per: int = 1, *, max_cardinality: bool = False) -> Ints | None:
        """mate int64[n] of the cheapest partition; None when a job that must be paired cannot be.

        Every device costs `price` / `per` units more. `max_cardinality`: as many pairs as possible, then least cost.
        """
        if self.forced is None:
            return None
        mate = np.arange(self.n)
        first, second = self.forced
        mate[first], mate[second] = second, first
        starts = np.flatnonzero(np.diff(self.component, prepend=-1))
        sizes = np.diff(starts, append=len(self.i))
        # 1. Components of two jobs and one edge, which are most of a priced problem: decided all at once.
        single = starts[sizes == 1]
        required = self.must_pair[self.i[single]] | self.must_pair[self.j[single]]
        saves = self.saving[single].astype(np.float64) * per + price > 0
        taken = single[required | max_cardinality | saves]
        mate[self.i[taken]], mate[self.j[taken]] = self.j[taken], self.i[taken]
        # 2. All others one by one, by the blossom algorithm.
        for start, size in zip(starts[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
            edges = slice(start, start + size)
            weight = [saving * per + price for saving in self.saving[edges].tolist()]
            pairs = _match_component(
                self.i[edges], self.j[edges], weight, self.must_pair, max_cardinality=max_cardinality
            )
            for a, b in pairs:
                mate[a], mate[b] = b, a
        return None if (self.must_pair & (mate == np.arange(self.n))).any() else mate

    def solve_within(self, max_devices: int, solo_price: float = 0.0) -> Ints | None:
        """mate int64[n] of the cheapest partition on at most `max_devices` devices; None when there is none.

        `solo_price`: a charge that the solo costs of this problem already contain. It is taken off again; the price
        per device is looked for near it.
        """
        hint = -round(2.0 * solo_price * self.scale)
        many = self.solve(hint)
        if many is None or count_devices(many) <= max_devices:
            return many
        # 1. Raise the price until a partition uses few enough devices: `many` uses too many, `few` does not.
        few: Ints | None = None
        step = max(1, round(2.0 * solo_price * self.scale) >> FIRST_STEP_HALVINGS)
        price = hint
        while price < 0 and few is None:
            price, step = min(0, price + step), step * STEP_GROWTH
            trial = self.solve(price)
            if trial is None:
                raise AssertionError("a partition existed a moment ago")
            if count_devices(trial) > max_devices:
                many = trial
            else:
                few = trial
        if few is None:
            few = self.solve(max_cardinality=True)
        if few is None or count_devices(few) > max_devices:
            return None
        # 2. Close the bracket: at the price where both cost the same, either something is cheaper or both are optimal.
        while count_devices(few) != max_devices:
            per = count_devices(many) - count_devices(few)
            price = self._units_saved(many) - self._units_saved(few)
            best = self.solve(price, per)
            if best is None:
                raise AssertionError("a partition existed a moment ago")
            if self._value(best, price, per) == self._value(many, price, per):
                return _interpolate(many, few, max_devices)
            if count_devices(best) > max_devices:
                many = best
            else:
                few = best
        return few

    def _units_saved(self, mate: Ints) -> int:
        """Whole units that the pairs of `mate`, without the forced ones, save against everybody running solo."""
        return sum(self.saving[mate[self.i] == self.j].tolist())

    def _value(self, mate: Ints, price: int, per: int) -> int:
        """Savings of a partition at a price per device: the quantity that `solve` maximises."""
        return self._units_saved(mate) * per + price * (self.n - count_devices(mate))


def count_devices(mate: Ints) -> int:
    """Devices that a partition uses: its pairs and its solo jobs."""
    return len(mate) - int((mate > np.arange(len(mate))).sum())


def _match_component(
    i: Ints, j: Ints, weight: list[int], must_pair: NDArray[np.bool_], *, max_cardinality: bool
) -> list[tuple[int, int]]:
    """Pairs of one component: jobs that must be paired first, then (`max_cardinality`) most pairs, then most weight."""
    jobs, local = np.unique(np.concatenate([i, j]), return_inverse=True)
    if must_pair[jobs].any():
        bonus = 1 + 2 * len(jobs) * max(map(abs, weight))
        required_ends = (must_pair[i].astype(int) + must_pair[j]).tolist()
        weight = [w + bonus * ends for w, ends in zip(weight, required_ends, strict=True)]
    import rustworkx

    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(jobs)))
    edges = zip(local[: len(i)].tolist(), local[len(i) :].tolist(), weight, strict=True)
    graph.extend_from_weighted_edge_list([edge for edge in edges if max_cardinality or edge[2] > 0])
    matched = rustworkx.max_weight_matching(graph, max_cardinality=max_cardinality, weight_fn=int)
    return [(int(jobs[a]), int(jobs[b])) for a, b in matched]


def _interpolate(many: Ints, few: Ints, max_devices: int) -> Ints:
    """A partition on exactly `max_devices` devices, between two that are optimal at one price per device.

    Alternating components of `few` that save a device are swapped into `many`, one at a time: at that price every
    component of their difference is worth nothing, so the cost stays optimal.
    """
    mate, seen = many.copy(), np.zeros(len(many), dtype=bool)
    for start in range(len(many)):
        if count_devices(mate) == max_devices:
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
        if count_devices(trial) < count_devices(mate):
            mate = trial
    return mate
