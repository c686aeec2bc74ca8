"""A good matching quickly, nothing proved: each job takes its best free partner, then pairs of pairs swap partners."""

import time

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 2_000_000  # pairs of pairs that one block compares: four arrays of 16 MB


def rough_matching(cost: Floats, solo: Floats, y: Floats) -> Ints:
    """mate int64[n]: dearest jobs first, each takes whom it can have cheapest at prices `y`, or stays alone."""
    n = len(cost)
    mate, price = np.arange(n), y.copy()
    alone_extra = solo - y
    free = np.ones(n, dtype=bool)
    for i in np.argsort(-y, kind="stable").tolist():
        if not free[i]:
            continue
        free[i], price[i] = False, -np.inf  # a taken partner costs infinitely much
        reduced = cost[i] - price
        j = int(np.argmin(reduced))
        if np.isfinite(reduced[j]) and reduced[j] - y[i] < alone_extra[i]:
            mate[i], mate[j] = j, i
            free[j], price[j] = False, -np.inf
    return mate


def joined(cost: Floats, solo: Floats, mate: Ints, most: int) -> Ints:
    """Pairs more of those alone, cheapest first, until `most` devices do; as near to it as this way leads.

    Two alone become a pair; where none of these may, a pair takes two alone apart and each of it one of them.
    """
    mate = mate.copy()
    me = np.arange(len(mate))
    surplus = len(mate) - int((mate > me).sum()) - most
    if surplus <= 0:
        return mate
    alone = np.flatnonzero(mate == me)
    extra = cost[np.ix_(alone, alone)] - solo[alone, None] - solo[alone]
    extra[np.tril_indices(len(alone))] = np.inf
    cheap = np.flatnonzero(np.isfinite(extra))
    for place in cheap[np.argsort(extra.ravel()[cheap], kind="stable")].tolist():
        row, column = divmod(place, len(alone))
        i, j = alone[row], alone[column]
        if mate[i] == i and mate[j] == j:
            mate[i], mate[j] = j, i
            surplus -= 1
            if not surplus:
                return mate
    while surplus and (better := _parted(cost, solo, mate)) is not None:
        mate, surplus = better, surplus - 1
    return mate


def _parted(cost: Floats, solo: Floats, mate: Ints) -> Ints | None:
    """The cheapest way to make two pairs of one pair and two alone; None without any."""
    me = np.arange(len(mate))
    alone, one = np.flatnonzero(mate == me), np.flatnonzero(mate > me)
    if len(alone) < 2 or not len(one):
        return None
    ahead, back = cost[np.ix_(one, alone)] - solo[alone], cost[np.ix_(mate[one], alone)] - solo[alone]
    two = np.argpartition(ahead, 1, axis=1)[:, :2], np.argpartition(back, 1, axis=1)[:, :2]
    rows = np.arange(len(one))
    best = np.inf
    found: tuple[int, int, int] | None = None
    for p in (0, 1):
        for q in (0, 1):
            first, second = two[0][:, p], two[1][:, q]
            total: Floats = np.where(
                first == second, np.inf, ahead[rows, first] + back[rows, second] - cost[one, mate[one]]
            )
            at = int(total.argmin())
            if total[at] < best:
                best, found = float(total[at]), (int(one[at]), int(alone[first[at]]), int(alone[second[at]]))
    if found is None:
        return None
    i, a, b = found
    j = int(mate[i])
    mate = mate.copy()
    mate[i], mate[a], mate[j], mate[b] = a, i, b, j
    return mate


def swapped(cost: Floats, mate: Ints, deadline_s: float) -> Ints:
    """2-opt: pairs (a, b), (c, d) become (a, c), (b, d) or (a, d), (b, c) while that is cheaper and time is left."""
    mate = mate.copy()
    while time.perf_counter() < deadline_s:
        a = np.flatnonzero(mate > np.arange(len(mate)))
        b = mate[a]
        gain, other, crossed = _best_swaps(cost, a, b, deadline_s)
        touched = np.zeros(len(a), dtype=bool)
        done = 0
        for p in np.argsort(-gain, kind="stable").tolist():
            q = int(other[p])
            if gain[p] <= 1e-9 * max(1.0, abs(float(cost[a[p], b[p]]))):
                break
            if touched[p] or touched[q]:
                continue
            touched[p] = touched[q] = True
            done += 1
            one, two = (b[q], a[q]) if crossed[p] else (a[q], b[q])
            mate[a[p]], mate[one] = one, a[p]
            mate[b[p]], mate[two] = two, b[p]
        if not done:
            break
    return mate


def _best_swaps(cost: Floats, a: Ints, b: Ints, deadline_s: float) -> tuple[Floats, Ints, NDArray[np.bool_]]:
    """For each pair: what its best swap gains, with which pair, and whether a goes to the other's b."""
    m = len(a)
    gain, other, crossed = np.zeros(m), np.zeros(m, dtype=np.int64), np.zeros(m, dtype=bool)
    now = cost[a, b]
    height = max(1, BLOCK // max(1, m))
    for first in range(0, m, height):
        if time.perf_counter() > deadline_s:
            break
        rows = slice(first, min(m, first + height))
        straight = cost[a[rows]][:, a] + cost[b[rows]][:, b]
        across = cost[a[rows]][:, b] + cost[b[rows]][:, a]
        better = now[rows, None] + now - np.minimum(straight, across)
        better[np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop)] = -np.inf
        q = better.argmax(axis=1)
        at = np.arange(len(q))
        gain[rows], other[rows], crossed[rows] = better[at, q], q, across[at, q] < straight[at, q]
    return gain, other, crossed
