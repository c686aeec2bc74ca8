"""Chooses which groups of three or more a campaign measures, so that all jobs and all pairs are measured alike often.

Greedy balanced incomplete block design: of all groups, those come next that raise the sum of squares of the counts
least, where a job counts as often as it was chosen, and so does an unordered pair of jobs in a group, self pairs
included. Law: the groups are a pure function of workloads, size, number and seed.
"""

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement
from math import comb

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.records import WorkloadGroup

JOB_WEIGHT = 1.0  # of a job's count beside a pair's: of 16 jobs in 120 triples all counts then differ by at most one
MAX_CANDIDATES = 6_000  # groups that are compared in a step; of more, a random sample is


def balanced_groups(workloads: Sequence[str], *, size: int, count: int, seed: int) -> tuple[WorkloadGroup, ...]:
    """`count` distinct groups of `size` jobs; a job may take part several times. Raises InvalidInputError."""
    possible = comb(len(workloads) + size - 1, size)
    if size < 3:
        raise InvalidInputError("a group has three jobs or more", value=size, remedy="two jobs are a pair")
    if not 1 <= count <= possible:
        raise InvalidInputError(
            f"{len(workloads)} workloads make {possible} groups of {size}", value=count, remedy=f"1 to {possible}"
        )
    rng = np.random.default_rng((seed, size))
    taken: set[tuple[int, ...]] = set()
    job_counts = np.zeros(len(workloads))
    pair_counts = np.zeros((len(workloads), len(workloads)))  # of the unordered pair, in both cells
    chosen = []
    for _ in range(count):
        candidates = _candidates(len(workloads), size, taken, rng)
        cost = _increase(candidates, job_counts, pair_counts)
        members = tuple(int(k) for k in candidates[rng.choice(np.flatnonzero(cost <= cost.min() + 1e-9))])
        taken.add(members)
        for k in members:
            job_counts[k] += 1
        for first, second in combinations(members, 2):
            pair_counts[first, second] += 1
            pair_counts[second, first] = pair_counts[first, second]
        chosen.append(tuple(workloads[k] for k in members))
    return tuple(chosen)


def _candidates(jobs: int, size: int, taken: set[tuple[int, ...]], rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[c, size]: groups that are not taken, as sorted rows; all of them where they are not too many."""
    if comb(jobs + size - 1, size) <= MAX_CANDIDATES:
        rows = [row for row in combinations_with_replacement(range(jobs), size) if row not in taken]
    else:
        drawn = np.sort(rng.integers(0, jobs, size=(MAX_CANDIDATES, size)), axis=1)
        rows = [row for row in map(tuple, drawn.tolist()) if row not in taken]
    return np.array(rows, dtype=np.int64)


def _increase(
    groups: NDArray[np.int64], job_counts: NDArray[np.float64], pair_counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """float64[c]: how much each group would raise the weighted sum of squared counts."""
    jobs = len(job_counts)
    members = np.zeros((len(groups), jobs))
    np.add.at(members, (np.arange(len(groups))[:, None], groups), 1.0)
    cost = 2 * JOB_WEIGHT * members @ job_counts
    for first, second in combinations(range(groups.shape[1]), 2):
        a, b = groups[:, first], groups[:, second]
        # A pair that stands k times in the group adds (c + k)² - c² = k (2 c + k): once for each of its places here.
        times = np.where(a == b, members[np.arange(len(groups)), a] * (members[np.arange(len(groups)), a] - 1) / 2, 0.0)
        times = np.where(a == b, times, members[np.arange(len(groups)), a] * members[np.arange(len(groups)), b])
        cost += 2 * pair_counts[a, b] + times
    return np.asarray(cost)
