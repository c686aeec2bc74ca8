"""A price for every job that proves a lower bound: duals of the fractional matching, found as an assignment problem.

For a symmetric cost the fractional matching is half an assignment of rows to columns, staying alone being twice the
solo cost on the diagonal. A third of the jobs, drawn at random and solved by the same function, already prices them
almost right; the others take what those prices leave them. The cheapest edges at these prices are solved as a sparse
assignment, all pairs are priced at its duals, and those below zero are added until there is none.

Law 1: at every moment Σ y - ½ Σ_i (worst violation in row i) is a lower bound on every matching.
Law 2: costs are whole numbers and prices halves of them, so that all sums are exact. With rounding errors in them, the
row reduction of SciPy's sparse assignment can go on for ever.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Jobs up to which SciPy's dense assignment takes about 50 ms; the sparse one takes half, or minutes where many tie.
DENSE = 500
LEAST_SAMPLE = 300
SHARE = 3  # one in so many jobs prices the others
NEAREST, RANDOM = 10, 2  # candidate edges a job: cheapest at the first prices, and any
JOINING = 60  # candidate edges of a row that changed: nothing else bears on its price yet
ROUNDS = 60  # pricing rounds; 1-4 are usual
MANY = 6  # new edges a job in one round: past it only the worst are taken
MANY_VIOLATIONS = 20  # a price that is too high for more than one in so many others has changed too
STILL_NEAR = 0.35  # share of its old edges near their price: 0.75 on average, by the choice of what is near
BLOCK = 262_144  # cells of one priced block: 2 MB stay in the cache, a third faster than 32 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """y[i] + y[j] ≤ matrix[i, j] but for violations that `bound` has paid for."""

    y: Floats  # float64[n]
    bound: float  # Σ y - ½ Σ_i (worst violation in row i)
    done: bool  # the optimum of the fractional problem
    alone: int = 0  # jobs that the fractional optimum leaves alone
    keys: Ints | None = None  # the edges that were needed: where a similar problem may start


def price(
    matrix: Floats, *, start: Prices | None = None, known: Prices | None = None, deadline_s: float = np.inf
) -> Prices | None:
    """Duals of `matrix` float64[n, n] of whole numbers, symmetric, +inf where forbidden, diagonal 2·solo; None when
    infeasible.

    `start`: prices of a problem of which some rows differ; `known`: of one whose diagonal alone differs. Past
    `deadline_s` (perf_counter) the prices so far come back.
    """
    n = len(matrix)
    if n <= DENSE:
        return _dense(matrix)
    if known is not None and known.keys is not None:
        return _by_candidates(matrix, known.y, known.keys, np.zeros(n, dtype=bool), deadline_s)
    if start is not None and start.keys is not None:
        return _by_candidates(matrix, *_carried(matrix, start.y, start.keys), deadline_s)
    y = extended(matrix, deadline_s)
    if time.perf_counter() > deadline_s:
        return Prices(y=y, bound=bound_of(matrix, y), done=False)
    return _by_candidates(matrix, y, _cheapest(matrix, y), np.ones(n, dtype=bool), deadline_s)


def bound_of(matrix: Floats, y: Floats) -> float:
    """Σ y - ½ Σ_i (worst violation in row i)."""
    return float(y.sum() + sum(np.minimum(block.min(axis=1), 0.0).sum() for _, block in reduced_blocks(matrix, y)) / 2)


def reduced_blocks(matrix: Floats, y: Floats, rows: Ints | None = None) -> Iterator[tuple[slice, Floats]]:
    """(which of the rows, their reduced costs against all columns); each block is overwritten by the next."""
    n, count = len(matrix), len(matrix) if rows is None else len(rows)
    height = min(count, max(1, BLOCK // max(1, n)))
    buffer = np.empty((height, n))
    for first in range(0, count, height or 1):
        at = slice(first, min(count, first + height))
        block = buffer[: at.stop - first]
        if rows is None or count == n:
            np.subtract(matrix[at], y[at, None], out=block)
        else:
            np.take(matrix, rows[at], axis=0, out=block, mode="clip")  # any other mode copies once more
            block -= y[rows[at], None]
        block -= y
        yield at, block


def _dense(matrix: Floats) -> Prices | None:
    from scipy.optimize import linear_sum_assignment

    try:
        column = linear_sum_assignment(matrix)[1].astype(np.int64)
    except ValueError:  # SciPy's word for infeasible: the input was checked at the door
        return None
    n = len(matrix)
    matched, row_of = matrix[np.arange(n), column], np.argsort(column)
    v = np.zeros(n)
    active = np.arange(n)
    for _ in range(2 * n + 2):  # Bellman and Ford: an optimal assignment has no negative cycle
        if not len(active):
            break
        rows = row_of[active]
        reach = (matrix[rows] + (v[active] - matched[rows])[:, None]).min(axis=0)
        active = np.nonzero(reach < v)[0]
        v[active] = reach[active]
    y = (matched - v[column] + v) / 2
    return Prices(y=y, bound=bound_of(matrix, y), done=True, alone=int((column == np.arange(n)).sum()))


def extended(matrix: Floats, deadline_s: float) -> Floats:
    """Prices of a third of the jobs, and what these leave to the others."""
    n = len(matrix)
    some = np.sort(np.random.default_rng(n).permutation(n)[: max(LEAST_SAMPLE, n // SHARE)])
    found = price(matrix[np.ix_(some, some)], deadline_s=deadline_s)
    if found is None:  # the sample cannot be matched among itself: halve what is cheapest for each
        return _finite(matrix.min(axis=1) / 2)
    y = np.empty(n)
    for first in range(0, n, height := max(1, BLOCK // len(some))):
        rows = slice(first, first + height)
        y[rows] = (matrix[rows][:, some] - found.y).min(axis=1)
    y[some] = found.y
    return _finite(y)


def _carried(matrix: Floats, start: Floats, keys: Ints) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """Old prices and edges, put right in the rows that changed, and the rows with violations that no edge tells of.

    A row has changed most of whose edges are no longer near their price: it takes the price of its fourth cheapest
    edge, and its cheapest edges join.
    """
    n, y = len(matrix), np.floor(2.0 * start) / 2.0
    i, j = np.divmod(keys, n)
    off = np.abs(matrix[i, j] - y[i] - y[j])
    near = off <= np.quantile(off[np.isfinite(off)], 0.75) if np.isfinite(off).any() else off < 0
    share = np.bincount(i, near, n) / np.maximum(1, np.bincount(i, minlength=n))
    changed = share < STILL_NEAR
    y[changed] = _fourth(matrix, y, np.flatnonzero(changed))
    _, counts, i, j = _violations(matrix, y, np.arange(n))
    unknown, late = counts > MANY, counts > n // MANY_VIOLATIONS
    y[late] = _fourth(matrix, y, np.flatnonzero(late))
    joining = np.flatnonzero(changed | late)
    if len(joining):
        cheap = np.argpartition(matrix[joining] - y, JOINING, axis=1)[:, :JOINING]
        i, j = np.concatenate([i, np.repeat(joining, JOINING)]), np.concatenate([j, cheap.ravel()])
    keys = _with(keys, i, j, n)
    i, j = np.divmod(keys, n)
    return y, keys[np.isfinite(matrix[i, j])], unknown | late


def _fourth(matrix: Floats, y: Floats, rows: Ints) -> Floats:
    """What the fourth cheapest edge leaves to each of some rows; the old price where there is none."""
    if not len(rows):
        return y[rows]
    fourth = np.partition(matrix[rows] - y, 3, axis=1)[:, 3]
    return np.where(np.isfinite(fourth), fourth, y[rows])


def _finite(y: Floats) -> Floats:
    """A job without any edge is found out by the assignment; until then its price is 0."""
    return np.floor(np.where(np.isfinite(y), y, 0.0))


def _by_candidates(
    matrix: Floats, y: Floats, keys: Ints, unknown: NDArray[np.bool_], deadline_s: float
) -> Prices | None:
    """Optimal prices from near ones and some edges. `unknown` bool[n]: rows in which others may violate `y`."""
    n = len(matrix)
    best = Prices(y=y, bound=-np.inf, done=False)
    for _ in range(ROUNDS):
        solved = _sparse(matrix, keys, y)
        if solved is None:
            whole = _any_assignment(matrix)
            if whole is None:
                return None
            keys = _with(keys, np.arange(n), whole, n)
            continue
        before, (y, alone) = y, solved
        # No other edge violates these prices than those of the unknown rows, and those of which one end rose.
        rows = np.flatnonzero(unknown | (y > before))
        worst, counts, i, j = _violations(matrix, y, rows)
        supported = y
        if len(rows) < n:  # else each edge is met from both its ends, which share what it lacks
            supported = y.copy()
            supported[rows] += worst
        bound = float(supported.sum()) + (float(worst.sum()) / 2 if len(rows) == n else 0.0)
        best = max(best, Prices(y=supported, bound=bound, done=False), key=lambda prices: prices.bound)
        if not len(i):
            return Prices(y=y, bound=bound, done=True, alone=alone, keys=keys)
        if time.perf_counter() > deadline_s:
            return best
        unknown = np.zeros(n, dtype=bool)
        unknown[rows[counts > MANY]] = True
        keys = _with(keys, i, j, n)
    return best


def _violations(matrix: Floats, y: Floats, rows: Ints) -> tuple[Floats, Ints, Ints, Ints]:
    """Of each of some rows its worst violation and how many it has; and both ends of the `MANY` + 1 worst a row."""
    worst, counts = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    ends = [(rows[:0], rows[:0])]
    for at, block in reduced_blocks(matrix, y, rows):
        worst[at] = np.minimum(block.min(axis=1), 0.0)
        low = np.flatnonzero(worst[at] < 0)
        part = block[low]
        negative = part < 0
        counts[at][low] = np.count_nonzero(negative, axis=1)
        limit = np.partition(part, MANY, axis=1)[:, MANY]
        i, j = np.nonzero(negative & (part <= limit[:, None]))
        ends.append((rows[at][low[i]], j))
    return worst, counts, np.concatenate([i for i, _ in ends]), np.concatenate([j for _, j in ends])


def _cheapest(matrix: Floats, y: Floats) -> Ints:
    """Sorted keys row · n + column of the first candidate edges, both directions and the diagonal."""
    n = len(matrix)
    near = []
    for rows, block in reduced_blocks(matrix, y):
        columns = np.argpartition(block, NEAREST, axis=1)[:, :NEAREST]
        near.append((np.repeat(np.arange(rows.start, rows.stop), NEAREST), columns.ravel()))
    rng = np.random.default_rng(n)
    any_row, any_column = np.repeat(np.arange(n), RANDOM), rng.integers(0, n, n * RANDOM)
    i = np.concatenate([*(rows for rows, _ in near), any_row, np.arange(n)])
    j = np.concatenate([*(columns for _, columns in near), any_column, np.arange(n)])
    finite = np.isfinite(matrix[i, j])
    return _with(np.zeros(0, dtype=np.int64), i[finite], j[finite], n)


def _with(keys: Ints, i: Ints, j: Ints, n: int) -> Ints:
    """Sorted keys with these edges, both directions."""
    fresh = np.unique(np.concatenate([i * n + j, j * n + i]))
    at = np.searchsorted(keys, fresh)
    new = np.append(keys, -1)[at] != fresh
    return np.insert(keys, at[new], fresh[new])


def _sparse(matrix: Floats, keys: Ints, y: Floats) -> tuple[Floats, int] | None:
    """Symmetric duals of the assignment over some edges, and jobs on its diagonal; None where there is none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    n = len(matrix)
    y = np.floor(y)
    rows, columns = np.divmod(keys, n)
    values = matrix[rows, columns]
    weights = values - y[rows] - y[columns]  # the same optimum; small numbers, and a search that stays near
    starts = np.searchsorted(rows, np.arange(n + 1))
    if (np.diff(starts) == 0).any():
        return None
    weights -= np.minimum.reduceat(weights, starts[:-1])[
        rows
    ]  # every row has an edge at zero: no price is far too high
    weights += 1.0 - weights.min(initial=0.0)  # a stored zero would be no edge
    try:
        column = min_weight_full_bipartite_matching(csr_array((weights, columns, starts), shape=(n, n)))[1]
    except ValueError:
        return None
    matched = matrix[np.arange(n), column]
    v = _potentials(rows, columns, values - matched[rows], starts, np.argsort(column), y)
    return (matched - v[column] + v) / 2, int((column == np.arange(n)).sum())


def _potentials(rows: Ints, columns: Ints, length: Floats, starts: Ints, row_of: Ints, first: Floats) -> Floats:
    """Largest v ≤ `first` with v[j] ≤ v[σ(i)] + length of every edge i → j, σ the assignment (Bellman and Ford).

    Only columns whose price fell can lower another.
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
    """Some assignment over finite cells; None where there is none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    column = maximum_bipartite_matching(csr_array(np.isfinite(matrix)), perm_type="column")
    return None if (column < 0).any() else column.astype(np.int64)
