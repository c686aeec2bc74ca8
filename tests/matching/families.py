"""Random costs that matching is measured on."""

import numpy as np


def real(n: int, seed: int) -> np.ndarray:
    """Weighted excess of jobs of 40 kinds: low rank, many want the same light partners, with noise. The hard family."""
    r = np.random.default_rng(seed)
    k = r.integers(0, 40, n)
    pressure, sensitivity = r.random((40, 4))[k], r.random((40, 4))[k]
    w = r.choice([1, 2, 4], n)
    total = pressure.sum(1)
    excess = sensitivity @ pressure.T + np.maximum(0, total[:, None] + total[None, :] - 2) * 0.3
    c = w[:, None] * excess * np.exp(r.normal(0, 0.1, (n, n)))
    c = c + c.T
    np.fill_diagonal(c, np.inf)
    return c


def any_costs(n: int, seed: int) -> np.ndarray:
    """Uniform on [0, 1], symmetric."""
    c = np.triu(np.random.default_rng(seed).random((n, n)), 1)
    c = c + c.T
    np.fill_diagonal(c, np.inf)
    return c


def some_changed(cost: np.ndarray, other: np.ndarray, seed: int, share: float = 0.01) -> np.ndarray:
    """`cost` with the costs of some jobs taken from `other`."""
    n = len(cost)
    jobs = np.random.default_rng(seed).choice(n, max(1, round(share * n)), replace=False)
    changed = cost.copy()
    changed[jobs], changed[:, jobs] = other[jobs], other[jobs].T
    changed[np.ix_(jobs, jobs)] = other[np.ix_(jobs, jobs)]
    return changed


def few_classes(n: int, kinds: int, seed: int) -> np.ndarray:
    """n jobs of some classes, equal within a class, as in a cluster that runs the same few workloads."""
    r = np.random.default_rng(seed)
    kind, table = r.integers(0, kinds, n), r.random((kinds, kinds)) * 2
    c = (table + table.T)[np.ix_(kind, kind)]
    np.fill_diagonal(c, np.inf)
    return c


def plane(n: int, seed: int) -> np.ndarray:
    """Distances of n random points in a square: many near-ties, and odd cycles everywhere in the fractional optimum."""
    points = np.random.default_rng(seed).random((n, 2))
    c = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    np.fill_diagonal(c, np.inf)
    return c
