"""Pairs that every partition contains: a job that must be paired and has only one possible partner gets that partner.

Law: a partition of the remaining jobs is cheapest if and only if, together with these pairs, it is cheapest for all
jobs; costs play no part.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def forced_pairs(i: Ints, j: Ints, must_pair: NDArray[np.bool_]) -> tuple[Ints, Ints, NDArray[np.bool_]] | None:
    """Both ends of the forced pairs, and bool[e]: the edges i → j still open; None when no partition exists.

    `must_pair` bool[n]: jobs that may not run solo. Some impossible problems pass unnoticed.
    """
    n = len(must_pair)
    open_edges, unpaired = np.arange(len(i)), must_pair.copy()
    chosen = []
    while True:
        degree = np.bincount(i[open_edges], minlength=n) + np.bincount(j[open_edges], minlength=n)
        if (unpaired & (degree == 0)).any():
            return None
        leaf = unpaired & (degree == 1)
        forced = open_edges[leaf[i[open_edges]] | leaf[j[open_edges]]]
        if not len(forced):
            break
        chosen.append(forced)
        ends = np.concatenate([i[forced], j[forced]])
        paired = np.zeros(n, dtype=bool)
        paired[ends] = True
        if int(paired.sum()) < len(ends):  # two jobs whose only possible partner is the same
            return None
        unpaired &= ~paired
        open_edges = open_edges[~(paired[i[open_edges]] | paired[j[open_edges]])]
    pairs = np.concatenate([np.zeros(0, dtype=np.int64), *chosen])
    if _has_odd_component(i[open_edges], j[open_edges], unpaired, must_pair):
        return None
    remaining = np.zeros(len(i), dtype=bool)
    remaining[open_edges] = True
    return i[pairs], j[pairs], remaining


def _has_odd_component(i: Ints, j: Ints, unpaired: NDArray[np.bool_], must_pair: NDArray[np.bool_]) -> bool:
    """Is there a connected component with an odd number of jobs, all of which must be paired?"""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(must_pair)
    graph = csr_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    count, component = connected_components(graph, directed=False)
    odd = np.bincount(component, unpaired, count) % 2 == 1
    return bool((odd & (np.bincount(component, ~must_pair, count) == 0)).any())
