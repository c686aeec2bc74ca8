"""A good matching fast, with nothing proved: greedy first, then pairs exchange partners (2-opt)."""

import numpy as np
from numpy.typing import NDArray

from interfere.time_budget import TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK_CELLS = 2_000_000  # pairs of pairs that one block compares: four arrays of 16 MB


def greedy_matching(cost: Floats, solo: Floats, y: Floats) -> Ints:
    """mate int64[n]: in order of falling price y, each job takes its cheapest free partner or runs solo."""
    n = len(cost)
    mate, price = np.arange(n), y.copy()
    solo_excess = solo - y
    free = np.ones(n, dtype=bool)
    for i in np.argsort(-y, kind="stable").tolist():
        if not free[i]:
            continue
        free[i], price[i] = False, -np.inf  # a taken partner costs infinitely much
        reduced = cost[i] - price
        j = int(np.argmin(reduced))
        if np.isfinite(reduced[j]) and reduced[j] - y[i] < solo_excess[i]:
            mate[i], mate[j] = j, i
            free[j], price[j] = False, -np.inf
    return mate


def reduce_devices(cost: Floats, solo: Floats, mate: Ints, max_devices: int) -> Ints:
    """Pair up solo jobs, cheapest first, until `max_devices` devices suffice; may end above that.

    Two solo jobs become a pair; where none may, a pair is split and each of its jobs takes a solo job as partner.
    """
    mate = mate.copy()
    jobs = np.arange(len(mate))
    surplus = len(mate) - int((mate > jobs).sum()) - max_devices
    if surplus <= 0:
        return mate
    solo_jobs = np.flatnonzero(mate == jobs)
    added = cost[np.ix_(solo_jobs, solo_jobs)] - solo[solo_jobs, None] - solo[solo_jobs]
    added[np.tril_indices(len(solo_jobs))] = np.inf
    allowed = np.flatnonzero(np.isfinite(added))
    for cell in allowed[np.argsort(added.ravel()[allowed], kind="stable")].tolist():
        row, column = divmod(cell, len(solo_jobs))
        i, j = solo_jobs[row], solo_jobs[column]
        if mate[i] == i and mate[j] == j:
            mate[i], mate[j] = j, i
            surplus -= 1
            if not surplus:
                return mate
    while surplus and (fewer := _split_cheapest_pair(cost, solo, mate)) is not None:
        mate, surplus = fewer, surplus - 1
    return mate


def _split_cheapest_pair(cost: Floats, solo: Floats, mate: Ints) -> Ints | None:
    """The cheapest way to make two pairs of one pair and two solo jobs; None when there is none."""
    jobs = np.arange(len(mate))
    solo_jobs, left = np.flatnonzero(mate == jobs), np.flatnonzero(mate > jobs)
    if len(solo_jobs) < 2 or not len(left):
        return None
    # The two best solo partners of either job of every pair suffice: one of them is left when both want the same.
    with_left = cost[np.ix_(left, solo_jobs)] - solo[solo_jobs]
    with_right = cost[np.ix_(mate[left], solo_jobs)] - solo[solo_jobs]
    of_left, of_right = (np.argpartition(added, 1, axis=1)[:, :2] for added in (with_left, with_right))
    rows = np.arange(len(left))
    best = np.inf
    split: tuple[int, int, int] | None = None
    for p in (0, 1):
        for q in (0, 1):
            first, second = of_left[:, p], of_right[:, q]
            total: Floats = np.where(
                first == second, np.inf, with_left[rows, first] + with_right[rows, second] - cost[left, mate[left]]
            )
            k = int(total.argmin())
            if total[k] < best:
                best, split = float(total[k]), (int(left[k]), int(solo_jobs[first[k]]), int(solo_jobs[second[k]]))
    if split is None:
        return None
    i, a, b = split
    j = int(mate[i])
    mate = mate.copy()
    mate[i], mate[a], mate[j], mate[b] = a, i, b, j
    return mate


def improve_by_swaps(cost: Floats, mate: Ints, budget: TimeBudget) -> Ints:
    """2-opt: pairs (a, b), (c, d) become (a, c), (b, d) or (a, d), (b, c) while that is cheaper and time remains."""
    mate = mate.copy()
    while not budget.expired:
        a = np.flatnonzero(mate > np.arange(len(mate)))
        b = mate[a]
        gain, partner_pair, crossed = _best_swaps(cost, a, b, budget)
        touched = np.zeros(len(a), dtype=bool)
        swaps = 0
        for p in np.argsort(-gain, kind="stable").tolist():
            q = int(partner_pair[p])
            if gain[p] <= 1e-9 * max(1.0, abs(float(cost[a[p], b[p]]))):
                break
            if touched[p] or touched[q]:
                continue
            touched[p] = touched[q] = True
            swaps += 1
            mate_of_a, mate_of_b = (b[q], a[q]) if crossed[p] else (a[q], b[q])
            mate[a[p]], mate[mate_of_a] = mate_of_a, a[p]
            mate[b[p]], mate[mate_of_b] = mate_of_b, b[p]
        if not swaps:
            break
    return mate


def _best_swaps(cost: Floats, a: Ints, b: Ints, budget: TimeBudget) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """Of each pair (a, b): the gain of its best swap, with which pair, and whether a then goes to that pair's b."""
    m = len(a)
    gain, partner_pair, crossed = np.zeros(m), np.zeros(m, dtype=np.int64), np.zeros(m, dtype=bool)
    now = cost[a, b]
    height = max(1, BLOCK_CELLS // max(1, m))
    for first in range(0, m, height):
        if budget.expired:
            break
        rows = slice(first, min(m, first + height))
        straight = cost[a[rows]][:, a] + cost[b[rows]][:, b]
        across = cost[a[rows]][:, b] + cost[b[rows]][:, a]
        gains = now[rows, None] + now - np.minimum(straight, across)
        gains[np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop)] = -np.inf
        q = gains.argmax(axis=1)
        k = np.arange(len(q))
        gain[rows], partner_pair[rows], crossed[rows] = gains[k, q], q, across[k, q] < straight[k, q]
    return gain, partner_pair, crossed
