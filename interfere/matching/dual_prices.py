"""Dual prices of the fractional matching: one per job, together they prove a lower bound on every matching.

For a symmetric cost the fractional matching is half an assignment of rows to columns, with twice the solo cost on the
diagonal. It is solved by column generation:
1. A third of the jobs, drawn at random and solved by the same function, get almost the right prices; every other job
   gets what its cheapest partner among them leaves.
2. The cheapest edges at these prices are solved as a sparse assignment.
3. All pairs are priced at its duals; pairs of negative reduced cost (violations) join the edges, until there is none.

Law 1: at every moment Σ y - ½ Σ_i (worst violation in row i) is a lower bound on every matching.
Law 2: costs are whole numbers and prices multiples of ½, so that all sums are exact. With rounding errors, the row
reduction of SciPy's sparse assignment may never end.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.records import OddSet
from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Jobs up to which SciPy's dense assignment takes about 50 ms; the sparse one takes half, or minutes where many tie.
MAX_DENSE_JOBS = 500
MIN_SAMPLE_JOBS = 300
SAMPLE_DIVISOR = 3  # one job in three prices the others
NEAREST_EDGES, RANDOM_EDGES = 10, 2  # first edges per job: the cheapest at the first prices, and random ones
EDGES_OF_CHANGED_ROW = 60  # edges that a changed row gets: no other edge supports its price yet
MAX_PRICING_ROUNDS = 60  # 1-4 are usual
MAX_NEW_EDGES = 6  # per job in one round: beyond that only the worst violations are added
VIOLATION_DIVISOR = 20  # a price that more than one in twenty pairs violates belongs to a changed row too
# A row has changed when less than this share of its old edges are near their price (0.75 on average by definition).
MIN_NEAR_SHARE = 0.35
BLOCK_CELLS = 262_144  # cells of one priced block: 2 MB stay in the cache, a third faster than 32 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class DualPrices:
    """Prices with y[i] + y[j] ≤ matrix[i, j], except for violations that `bound` accounts for."""

    y: Floats  # float64[n]
    bound: float  # Σ y - ½ Σ_i (worst violation in row i)
    optimal: bool  # is it the optimum of the fractional problem?
    odd_sets: tuple[OddSet, ...] = ()  # whose pairs cost more: `bound` and reduced costs contain their prices
    solo_jobs: int = 0  # jobs that the fractional optimum runs solo
    edges: Ints | None = None  # row · n + column of the edges that were needed: a similar problem starts from them


def solve_dual_prices(
    matrix: Floats,
    *,
    similar: DualPrices | None = None,
    same_pairs: DualPrices | None = None,
    budget: TimeBudget = UNLIMITED,
) -> DualPrices | None:
    """Optimal dual prices of a matching problem; None when it is infeasible.

    `matrix` float64[n, n] of whole numbers, symmetric, +inf where forbidden, its diagonal twice the solo cost.
    `similar`: prices of a problem that differs in some rows; `same_pairs`: of one that differs only in its diagonal.
    Once the budget has expired, the prices so far are returned.
    """
    n = len(matrix)
    if n <= MAX_DENSE_JOBS:
        return _solve_dense(matrix)
    if same_pairs is not None and same_pairs.edges is not None:
        return _solve_by_pricing(matrix, same_pairs.y, same_pairs.edges, np.zeros(n, dtype=bool), budget)
    if similar is not None and similar.edges is not None:
        return _solve_by_pricing(matrix, *_repair_warm_start(matrix, similar.y, similar.edges), budget)
    y = prices_from_sample(matrix, budget)
    if budget.expired:
        return DualPrices(y=y, bound=dual_bound(matrix, y), optimal=False)
    return _solve_by_pricing(matrix, y, _initial_edges(matrix, y), np.ones(n, dtype=bool), budget)


def dual_bound(matrix: Floats, y: Floats) -> float:
    """Σ y - ½ Σ_i (worst violation in row i)."""
    return float(y.sum() + sum(np.minimum(block.min(axis=1), 0.0).sum() for _, block in reduced_blocks(matrix, y)) / 2)


def reduced_blocks(matrix: Floats, y: Floats, rows: Ints | None = None) -> Iterator[tuple[slice, Floats]]:
    """Yield (slice of the rows, their reduced costs float64[h, n]); every block is overwritten by the next one."""
    n, count = len(matrix), len(matrix) if rows is None else len(rows)
    height = min(count, max(1, BLOCK_CELLS // max(1, n)))
    buffer = np.empty((height, n))
    for first in range(0, count, height or 1):
        part = slice(first, min(count, first + height))
        block = buffer[: part.stop - first]
        if rows is None or count == n:
            np.subtract(matrix[part], y[part, None], out=block)
        else:
            np.take(matrix, rows[part], axis=0, out=block, mode="clip")  # any other mode copies once more
            block -= y[rows[part], None]
        block -= y
        yield part, block


def _solve_dense(matrix: Floats) -> DualPrices | None:
    from scipy.optimize import linear_sum_assignment

    try:
        column = linear_sum_assignment(matrix)[1].astype(np.int64)
    except ValueError:  # how SciPy reports infeasibility: the input itself was checked before
        return None
    n = len(matrix)
    matched, row_of = matrix[np.arange(n), column], np.argsort(column)
    v = np.zeros(n)
    active = np.arange(n)
    for _ in range(2 * n + 2):  # Bellman-Ford: an optimal assignment has no negative cycle
        if not len(active):
            break
        rows = row_of[active]
        reach = (matrix[rows] + (v[active] - matched[rows])[:, None]).min(axis=0)
        active = np.nonzero(reach < v)[0]
        v[active] = reach[active]
    y = (matched - v[column] + v) / 2
    return DualPrices(y=y, bound=dual_bound(matrix, y), optimal=True, solo_jobs=int((column == np.arange(n)).sum()))


def prices_from_sample(matrix: Floats, budget: TimeBudget) -> Floats:
    """float64[n]: dual prices of a third of the jobs; the others get what their cheapest partner among them leaves."""
    n = len(matrix)
    sampled = np.sort(np.random.default_rng(n).permutation(n)[: max(MIN_SAMPLE_JOBS, n // SAMPLE_DIVISOR)])
    sample_prices = solve_dual_prices(matrix[np.ix_(sampled, sampled)], budget=budget)
    if sample_prices is None:  # the sample has no matching of its own: half of each job's cheapest cost
        return _whole_or_zero(matrix.min(axis=1) / 2)
    y = np.empty(n)
    for first in range(0, n, height := max(1, BLOCK_CELLS // len(sampled))):
        rows = slice(first, first + height)
        y[rows] = (matrix[rows][:, sampled] - sample_prices.y).min(axis=1)
    y[sampled] = sample_prices.y
    return _whole_or_zero(y)


def _repair_warm_start(matrix: Floats, old_prices: Floats, edges: Ints) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """Adapt old prices and edges to a problem in which some rows changed.

    Returns the prices, the edges, and bool[n]: rows with possible violations outside these edges. A row counts as
    changed when most of its edges are no longer near their price: it takes the price of its fourth cheapest edge, and
    its cheapest edges are added.
    """
    n, y = len(matrix), np.floor(2.0 * old_prices) / 2.0
    i, j = np.divmod(edges, n)
    distance = np.abs(matrix[i, j] - y[i] - y[j])
    near = (
        distance <= np.quantile(distance[np.isfinite(distance)], 0.75) if np.isfinite(distance).any() else distance < 0
    )
    near_share = np.bincount(i, near, n) / np.maximum(1, np.bincount(i, minlength=n))
    changed = near_share < MIN_NEAR_SHARE
    y[changed] = _fourth_cheapest(matrix, y, np.flatnonzero(changed))
    _, counts, i, j = _violations(matrix, y, np.arange(n))
    unknown, overpriced = counts > MAX_NEW_EDGES, counts > n // VIOLATION_DIVISOR
    y[overpriced] = _fourth_cheapest(matrix, y, np.flatnonzero(overpriced))
    repriced = np.flatnonzero(changed | overpriced)
    if len(repriced):
        cheapest = np.argpartition(matrix[repriced] - y, EDGES_OF_CHANGED_ROW, axis=1)[:, :EDGES_OF_CHANGED_ROW]
        i, j = np.concatenate([i, np.repeat(repriced, EDGES_OF_CHANGED_ROW)]), np.concatenate([j, cheapest.ravel()])
    edges = _with_edges(edges, i, j, n)
    i, j = np.divmod(edges, n)
    return y, edges[np.isfinite(matrix[i, j])], unknown | overpriced


def _fourth_cheapest(matrix: Floats, y: Floats, rows: Ints) -> Floats:
    """Price of each of these rows at which its fourth cheapest edge has reduced cost 0; else the old price."""
    if not len(rows):
        return y[rows]
    fourth = np.partition(matrix[rows] - y, 3, axis=1)[:, 3]
    return np.where(np.isfinite(fourth), fourth, y[rows])


def _whole_or_zero(y: Floats) -> Floats:
    """Round down; 0 for a job without any edge, which the assignment will find infeasible."""
    return np.floor(np.where(np.isfinite(y), y, 0.0))


def _solve_by_pricing(
    matrix: Floats, y: Floats, edges: Ints, unknown: NDArray[np.bool_], budget: TimeBudget
) -> DualPrices | None:
    """Optimal prices from nearly optimal ones by column generation; None when infeasible.

    `edges`: the first edges; `unknown` bool[n]: rows in which other edges may violate `y`.
    """
    n = len(matrix)
    best = DualPrices(y=y, bound=-np.inf, optimal=False)
    for _ in range(MAX_PRICING_ROUNDS):
        solved = _solve_sparse(matrix, edges, y)
        if solved is None:
            assignment = _any_assignment(matrix)
            if assignment is None:
                return None
            edges = _with_edges(edges, np.arange(n), assignment, n)
            continue
        before, (y, solo_jobs) = y, solved
        # Violations can only lie in the unknown rows and in rows whose price rose.
        rows = np.flatnonzero(unknown | (y > before))
        worst_violation, counts, i, j = _violations(matrix, y, rows)
        supported = y
        if len(rows) < n:  # otherwise every edge is seen from both ends, which share its violation
            supported = y.copy()
            supported[rows] += worst_violation
        bound = float(supported.sum()) + (float(worst_violation.sum()) / 2 if len(rows) == n else 0.0)
        best = max(best, DualPrices(y=supported, bound=bound, optimal=False), key=lambda prices: prices.bound)
        if not len(i):
            return DualPrices(y=y, bound=bound, optimal=True, solo_jobs=solo_jobs, edges=edges)
        if budget.expired:
            return best
        unknown = np.zeros(n, dtype=bool)
        unknown[rows[counts > MAX_NEW_EDGES]] = True
        edges = _with_edges(edges, i, j, n)
    return best


def _violations(matrix: Floats, y: Floats, rows: Ints) -> tuple[Floats, Ints, Ints, Ints]:
    """Worst violation and number of violations of each row, and both ends of the worst `MAX_NEW_EDGES` + 1 of each."""
    worst_violation, counts = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    ends = [(rows[:0], rows[:0])]
    for part, block in reduced_blocks(matrix, y, rows):
        worst_violation[part] = np.minimum(block.min(axis=1), 0.0)
        violated = np.flatnonzero(worst_violation[part] < 0)
        violating = block[violated]
        negative = violating < 0
        counts[part][violated] = np.count_nonzero(negative, axis=1)
        limit = np.partition(violating, MAX_NEW_EDGES, axis=1)[:, MAX_NEW_EDGES]
        i, j = np.nonzero(negative & (violating <= limit[:, None]))
        ends.append((rows[part][violated[i]], j))
    return worst_violation, counts, np.concatenate([i for i, _ in ends]), np.concatenate([j for _, j in ends])


def _initial_edges(matrix: Floats, y: Floats) -> Ints:
    """Sorted row · n + column of the first edges, in both directions, and of the diagonal."""
    n = len(matrix)
    nearest = []
    for rows, block in reduced_blocks(matrix, y):
        columns = np.argpartition(block, NEAREST_EDGES, axis=1)[:, :NEAREST_EDGES]
        nearest.append((np.repeat(np.arange(rows.start, rows.stop), NEAREST_EDGES), columns.ravel()))
    rng = np.random.default_rng(n)
    random_row, random_column = np.repeat(np.arange(n), RANDOM_EDGES), rng.integers(0, n, n * RANDOM_EDGES)
    i = np.concatenate([*(rows for rows, _ in nearest), random_row, np.arange(n)])
    j = np.concatenate([*(columns for _, columns in nearest), random_column, np.arange(n)])
    finite = np.isfinite(matrix[i, j])
    return _with_edges(np.zeros(0, dtype=np.int64), i[finite], j[finite], n)


def _with_edges(edges: Ints, i: Ints, j: Ints, n: int) -> Ints:
    """`edges` and the edges (i, j) in both directions, as sorted row · n + column."""
    wanted = np.unique(np.concatenate([i * n + j, j * n + i]))
    place = np.searchsorted(edges, wanted)
    missing = np.append(edges, -1)[place] != wanted
    return np.insert(edges, place[missing], wanted[missing])


def _solve_sparse(matrix: Floats, edges: Ints, y: Floats) -> tuple[Floats, int] | None:
    """Symmetric duals of the assignment over `edges`, and the number of solo jobs; None when there is no assignment."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    n = len(matrix)
    y = np.floor(y)
    rows, columns = np.divmod(edges, n)
    values = matrix[rows, columns]
    weights = values - y[rows] - y[columns]  # the same optimum, with small numbers and a short search
    starts = np.searchsorted(rows, np.arange(n + 1))
    if (np.diff(starts) == 0).any():
        return None
    weights -= np.minimum.reduceat(weights, starts[:-1])[
        rows
    ]  # every row has an edge at zero, so no price is far too high
    weights += 1.0 - weights.min(initial=0.0)  # SciPy would take a stored zero for no edge
    try:
        column = min_weight_full_bipartite_matching(csr_array((weights, columns, starts), shape=(n, n)))[1]
    except ValueError:
        return None
    matched = matrix[np.arange(n), column]
    v = _potentials(rows, columns, values - matched[rows], starts, np.argsort(column), y)
    return (matched - v[column] + v) / 2, int((column == np.arange(n)).sum())


def _potentials(rows: Ints, columns: Ints, length: Floats, starts: Ints, row_of: Ints, first: Floats) -> Floats:
    """Largest v ≤ `first` with v[j] ≤ v[σ(i)] + length of every edge i → j, σ being the assignment (Bellman-Ford).

    Only a column whose price fell can lower another one.
    """
    v = first.copy()
    partner = np.empty_like(row_of)
    partner[row_of] = np.arange(len(row_of))
    reach = np.full(len(v), np.inf)
    np.minimum.at(reach, columns, length + v[partner[rows]])
    fell = np.flatnonzero(reach < v)
    for _ in range(2 * len(v) + 2):
        if not len(fell):
            break
        v[fell] = reach[fell]
        sources = row_of[fell]
        count = starts[sources + 1] - starts[sources]
        edges = np.arange(count.sum()) + np.repeat(starts[sources] - np.cumsum(count) + count, count)
        target, offer = columns[edges], length[edges] + np.repeat(v[fell], count)
        lower = offer < v[target]
        target, offer = target[lower], offer[lower]
        reach[target] = np.inf
        np.minimum.at(reach, target, offer)
        fell = np.unique(target)
    return v


def _any_assignment(matrix: Floats) -> Ints | None:
    """Any assignment over finite cells; None when there is none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    column = maximum_bipartite_matching(csr_array(np.isfinite(matrix)), perm_type="column")
    return None if (column < 0).any() else column.astype(np.int64)
