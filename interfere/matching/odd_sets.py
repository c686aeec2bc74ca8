"""Prices of odd sets of jobs: what closes the gap where prices of jobs alone prove too little.

Of an odd set S of jobs at most (|S| - 1) / 2 pairs lie inside. The fractional matching breaks that rule wherever three
jobs are near each other (three halves of a pair); where costs are distances, that is everywhere. With a price w_S ≥ 0
on every pair inside S, the reduced cost of a pair is cost_ij - y_i - y_j + Σ_{S ∋ i, j} w_S, and

    Σ y - Σ_S w_S (|S| - 1) / 2 + ½ Σ_i (worst violation in row i)

bounds every matching (Edmonds 1965). The linear program over the cheapest edges is solved by HiGHS; the odd sets whose
rule its solution breaks are found among the connected components of the edges that it uses, and join it as rows
(Grötschel & Holland 1985), until few enough edges are left to decide between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from interfere.matching.dual_prices import DualPrices, reduced_blocks
from interfere.matching.records import OddSet
from interfere.time_budget import TimeBudget

if TYPE_CHECKING:
    import highspy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_ROUNDS = 200  # linear programs; 20-50 are usual at 1,000 jobs in a plane
ROUNDS_PER_PRICING = 8  # all pairs cost as much to price as so many rounds to solve
FEW_OPEN_EDGES = 10  # per job: the blossom algorithm takes no longer on these than some more rounds
THRESHOLDS = (1e-6, 0.2, 0.4, 0.6)  # of the values of edges that connect an odd set
VIOLATED = 1e-6  # pairs inside an odd set beyond what its rule allows
MAX_NEW_COLUMNS = 3  # edges per job in one pricing
TOLERANCE = 1e-9  # of HiGHS, in scaled units


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCharges:
    """What the prices of odd sets add to the reduced costs: sorted row · n + column, and how much."""

    cells: Ints
    charges: Floats

    @classmethod
    def of(cls, odd_sets: Sequence[OddSet], n: int) -> "SetCharges":
        """Of every ordered pair of two jobs inside a set, over all sets."""
        cells, charges = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for odd_set in odd_sets:
            members = odd_set.members
            inside = (members[:, None] * n + members)[~np.eye(len(members), dtype=bool)]
            cells.append(inside)
            charges.append(np.full(len(inside), odd_set.price))
        distinct, place = np.unique(np.concatenate(cells), return_inverse=True)
        total = np.zeros(len(distinct))
        np.add.at(total, place, np.concatenate(charges))
        return cls(cells=distinct, charges=total)

    def add_to(self, rows: slice, block: Floats) -> None:
        """Add the charges of some rows to their block of reduced costs float64[h, n]."""
        n = block.shape[1]
        first, last = np.searchsorted(self.cells, [rows.start * n, rows.stop * n])
        i, j = np.divmod(self.cells[first:last] - rows.start * n, n)
        block[i, j] += self.charges[first:last]


def charged_blocks(matrix: Floats, prices: DualPrices) -> Iterator[tuple[slice, Floats]]:
    """Like `reduced_blocks`, with the prices of odd sets."""
    charges = SetCharges.of(prices.odd_sets, len(matrix)) if prices.odd_sets else None
    for rows, block in reduced_blocks(matrix, prices.y):
        if charges is not None:
            charges.add_to(rows, block)
        yield rows, block


def price_odd_sets(
    matrix: Floats, prices: DualPrices, i: Ints, j: Ints, upper_bound: float, budget: TimeBudget
) -> DualPrices:
    """Prices of jobs and odd sets with a higher bound than those of jobs alone; the given ones where none is found.

    `matrix` float64[n, n] of whole numbers, its diagonal twice the solo cost; `i`, `j`: both ends of the edges to begin
    with, among which there must be a matching; `upper_bound`: the cost of one. Ends where few edges have a reduced cost
    that does not rule them out of every better matching.
    """
    search = _CuttingPlanes(matrix, prices, i, j, upper_bound)
    best = prices
    for number in range(1, MAX_ROUNDS + 1):
        if not search.solve():
            return best
        is_new = search.add_violated_sets()
        if is_new and number % ROUNDS_PER_PRICING and not budget.expired:
            continue
        priced, violations, open_edges = search.price_all_edges()
        best = max(best, priced, key=lambda each: each.bound)
        few = open_edges <= FEW_OPEN_EDGES * len(matrix)
        if few or budget.expired or not (search.add_edges(*violations) or is_new):
            return best
    return best


class _CuttingPlanes:
    """The linear program over some edges and some odd sets; costs are the reduced costs of the first prices."""

    def __init__(self, matrix: Floats, prices: DualPrices, i: Ints, j: Ints, upper_bound: float) -> None:
        self._matrix, self._first, self._upper_bound = matrix, prices, upper_bound
        n = len(matrix)
        self._unit = max(1.0, (upper_bound - prices.bound) / n)
        solo = np.flatnonzero(np.isfinite(matrix.diagonal()))
        self._sets: list[Ints] = []
        self._known: set[bytes] = set()
        self._i, self._j = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._edge_keys = np.zeros(0, dtype=np.int64)
        self._highs = _new_highs(n)
        self.add_edges(np.concatenate([i, solo]), np.concatenate([j, solo]))
        self._x = np.zeros(0)

    def solve(self) -> bool:
        """Solve the linear program; False where HiGHS finds no optimum."""
        from highspy import HighsModelStatus

        self._highs.run()
        if self._highs.getModelStatus() != HighsModelStatus.kOptimal:
            return False
        self._x = np.asarray(self._highs.getSolution().col_value, dtype=np.float64)
        return True

    def add_edges(self, i: Ints, j: Ints) -> int:
        """Add edges i ≤ j that are not there yet (i = j: the job runs solo); returns how many."""
        n = len(self._matrix)
        keys = np.setdiff1d(i * n + j, self._edge_keys)
        if not len(keys):
            return 0
        self._edge_keys = np.union1d(self._edge_keys, keys)
        i, j = np.divmod(keys, n)
        y, pair = self._first.y, i != j
        reduced = np.where(pair, self._matrix[i, j] - y[i] - y[j], self._matrix[i, i] / 2 - y[i])
        rows = np.stack([i, np.where(pair, j, -1)], axis=1)
        inside = np.zeros((len(keys), len(self._sets)), dtype=np.int64) - 1
        for k, members in enumerate(self._sets):
            both = np.isin(i, members) & np.isin(j, members) & pair
            inside[both, k] = n + k
        rows = np.concatenate([rows, inside], axis=1)
        used = rows >= 0
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))[:-1]]).astype(np.int32)
        c, index = len(keys), rows[used].astype(np.int32)
        self._highs.addCols(
            c, reduced / self._unit, np.zeros(c), np.full(c, np.inf), len(index), start, index, np.ones(len(index))
        )
        self._i, self._j = np.concatenate([self._i, i]), np.concatenate([self._j, j])
        return c

    def add_violated_sets(self) -> bool:
        """Add the rows of odd sets that the solution breaks; False where none was found."""
        found = [members for least in THRESHOLDS for members in self._violated_sets(least)]
        new = [members for members in found if members.tobytes() not in self._known]
        for members in new:
            if members.tobytes() in self._known:  # found at two thresholds
                continue
            self._known.add(members.tobytes())
            inside = np.zeros(len(self._matrix), dtype=bool)
            inside[members] = True
            at = np.flatnonzero(inside[self._i] & inside[self._j] & (self._i != self._j)).astype(np.int32)
            self._highs.addRow(-np.inf, (len(members) - 1) / 2, len(at), at, np.ones(len(at)))
            self._sets.append(members)
        return bool(new)

    def _violated_sets(self, least: float) -> Iterator[Ints]:
        """The odd components of the edges above a value in which the solution has too many pairs."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        n = len(self._matrix)
        at = np.flatnonzero((self._x > least) & (self._i != self._j))
        graph = csr_array((np.ones(len(at)), (self._i[at], self._j[at])), shape=(n, n))
        count, component = connected_components(graph, directed=False)
        size = np.bincount(component, minlength=count)
        inside = (component[self._i] == component[self._j]) & (self._i != self._j)
        pairs = np.bincount(component[self._i[inside]], self._x[inside], count)
        broken = (size % 2 == 1) & (size > 1) & (pairs > (size - 1) / 2 + VIOLATED)
        for number in np.flatnonzero(broken).tolist():
            yield np.flatnonzero(component == number)

    def price_all_edges(self) -> tuple[DualPrices, tuple[Ints, Ints], int]:
        """The prices of the solution with their bound; edges that violate them; how many edges are left open."""
        n = len(self._matrix)
        dual = np.asarray(self._highs.getSolution().row_dual, dtype=np.float64) * self._unit
        y = np.floor(self._first.y + dual[:n])
        # Rounded to whole numbers, like all prices, so that the sums below are exact.
        set_prices = np.ceil(np.maximum(0.0, -dual[n : n + len(self._sets)]))
        odd_sets = tuple(
            OddSet(members=members, price=float(price))
            for members, price in zip(self._sets, set_prices.tolist(), strict=False)
            if price > 0
        )
        prices = replace(self._first, y=y, odd_sets=odd_sets)
        bound = float(y.sum()) - sum(each.price * (len(each.members) // 2) for each in odd_sets)
        reach, open_edges = self._upper_bound - bound, 0
        ends = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
        for rows, block in charged_blocks(self._matrix, prices):
            least = np.minimum(block.min(axis=1), 0.0)
            bound += float(least.sum()) / 2
            open_edges += int(np.count_nonzero(block <= reach))
            violated = np.flatnonzero(least < -TOLERANCE * self._unit * n)
            if len(violated):
                columns = np.argpartition(block[violated], MAX_NEW_COLUMNS, axis=1)[:, :MAX_NEW_COLUMNS].ravel()
                i = np.repeat(violated, MAX_NEW_COLUMNS)
                negative = block[i, columns] < 0
                i, columns = i[negative] + rows.start, columns[negative]
                ends.append((np.minimum(i, columns), np.maximum(i, columns)))
        i, j = (np.concatenate([part[k] for part in ends]) for k in range(2))
        return replace(prices, bound=bound), (i, j), open_edges // 2


def _new_highs(n_rows: int) -> "highspy.Highs":
    """A linear program with a row for each job, which is covered exactly once."""
    import highspy

    highs = highspy.Highs()  # type: ignore[no-untyped-call]  # the bindings' own constructor has no types
    # The dual simplex goes on from the last basis once rows are added; presolve would throw it away.
    for name, value in (("output_flag", False), ("threads", 1), ("presolve", "off")):
        highs.setOptionValue(name, value)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        highs.setOptionValue(name, TOLERANCE)
    none = np.zeros(0, dtype=np.int32)
    highs.addRows(n_rows, np.ones(n_rows), np.ones(n_rows), 0, none, none, np.zeros(0))
    return highs
