"""Pairs that every partition contains: a job that must be paired and has one possible partner left takes it.

Law: what is left holds a best partition of all if and only if it, with these pairs, is one; no cost is looked at.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def forced_pairs(i: Ints, j: Ints, must: NDArray[np.bool_]) -> tuple[Ints, Ints, NDArray[np.bool_]] | None:
    """Ends of the forced pairs, and bool[e] of the edges i → j that remain open; None when no partition exists.

    `must` bool[n]: jobs that may not stay alone. Not every impossible problem is found out.
    """
    n = len(must)
    left, due = np.arange(len(i)), must.copy()
    chosen = []
    while True:
        degree = np.bincount(i[left], minlength=n) + np.bincount(j[left], minlength=n)
        if (due & (degree == 0)).any():
            return None
        leaf = due & (degree == 1)
        forced = left[leaf[i[left]] | leaf[j[left]]]
        if not len(forced):
            break
        chosen.append(forced)
        ends = np.concatenate([i[forced], j[forced]])
        gone = np.zeros(n, dtype=bool)
        gone[ends] = True
        if int(gone.sum()) < len(ends):  # two jobs with one possible partner, the same
            return None
        due &= ~gone
        left = left[~(gone[i[left]] | gone[j[left]])]
    pairs = np.concatenate([np.zeros(0, dtype=np.int64), *chosen])
    if _odd(i[left], j[left], due, must):
        return None
    remaining = np.zeros(len(i), dtype=bool)
    remaining[left] = True
    return i[pairs], j[pairs], remaining


def _odd(i: Ints, j: Ints, due: NDArray[np.bool_], must: NDArray[np.bool_]) -> bool:
    """Whether an odd number of jobs, all of which must be paired, can only be paired among themselves."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(must)
    graph = csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    parts, part = connected_components(graph, directed=False)
    odd = np.bincount(part, due, parts) % 2 == 1
    return bool((odd & (np.bincount(part, ~must, parts) == 0)).any())
