"""Which groups may start on a device class: all up to a size, grown job by job, and some of the larger ones.

A rule that forbids a group for its pairs, its memory or its caps forbids every larger one, so groups grow from those
that are possible. Where there are too many of a size the cheapest few of each job are grown on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MAX_CELLS = 30_000_000  # extensions looked at for one size
MAX_GROWN = 200_000  # groups looked at for one size where not all are
GROWN_PER_JOB = 4  # of the groups that are too many to list all, those of least cost for each of their jobs
KEPT_PER_JOB = 12
LISTING_UNITS = 0.3  # work units of each pair of a group's members
Possible = Callable[[Ints], Bools]
"""Groups int64[g, m], every pair of which may share -> bool[g], is it possible?"""
Cost = Callable[[Ints], Floats]
"""Groups int64[g, m] -> float64[g]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """The groups of each size."""

    of_size: tuple[Ints, ...]  # int64[g, m] of m = 1, 2, …, each sorted
    listed_size: int  # groups up to this size are all there

    def up_to(self, size: int) -> tuple[Ints, ...]:
        """The groups of at most this size."""
        return self.of_size[:size]


def list_groups(
    demand: Ints,
    pair_allowed: Bools,
    largest: int,
    max_groups: int,
    possible: Possible,
    cost: Cost,
    budget: TimeBudget = UNLIMITED,
) -> GroupList:
    """The groups of at most `largest` jobs of k classes with int64[k] `demand`; bool[k, k] `pair_allowed`.

    Groups of sizes that are not listed in full grow while the budget lasts.
    """
    k = len(demand)
    groups = [np.arange(k, dtype=np.int64)[:, None]]
    listed = total = 0
    while listed + 1 <= largest:
        last = groups[-1]
        listed, total = listed + 1, total + len(last)
        if listed == largest or not len(last):
            return GroupList(of_size=tuple(groups), listed_size=largest)
        most = MAX_CELLS if listed == 1 else max_groups - total  # pairs are always listed
        extended = _extended(last, demand, pair_allowed, most)
        if extended is None:
            break
        groups.append(extended if listed == 1 else extended[possible(extended)])
    costs = cost(groups[-1]) if listed > 1 else np.zeros(k)
    frontier = _spread(groups[-1][_best_per_job(groups[-1], costs, GROWN_PER_JOB)], k)
    for _ in range(listed, largest):
        grown = _grown(frontier, demand, pair_allowed)
        budget.spend(LISTING_UNITS * grown.size * grown.shape[1])
        if not len(grown) or budget.expired:
            break
        grown = grown[possible(grown)]
        costs = cost(grown)
        groups.append(grown[_best_per_job(grown, costs, KEPT_PER_JOB)])
        frontier = _spread(grown[_best_per_job(grown, costs, GROWN_PER_JOB)], k)
    return GroupList(of_size=tuple(groups), listed_size=listed)


def _extended(groups: Ints, demand: Ints, pair_allowed: Bools, most: int) -> Ints | None:
    """Return every group extended by one job of its last class or a later class; None where the extended groups exceed
    `most`."""
    if len(groups) * len(demand) > MAX_CELLS:
        return None
    may_join = _may_join(groups, demand, pair_allowed)
    may_join &= np.arange(len(demand)) >= groups[:, -1:]
    if int(may_join.sum()) > most:
        return None
    row, job = np.nonzero(may_join)
    return np.column_stack([groups[row], job])


def _spread(groups: Ints, k: int) -> Ints:
    """As many of the groups as can be extended by each of k classes, evenly chosen."""
    most = max(1, MAX_GROWN // k)
    return groups if len(groups) <= most else groups[np.linspace(0, len(groups) - 1, most).astype(np.int64)]


def _grown(groups: Ints, demand: Ints, pair_allowed: Bools) -> Ints:
    """Some groups with one more job of any class."""
    row, job = np.nonzero(_may_join(groups, demand, pair_allowed))
    return np.unique(np.sort(np.column_stack([groups[row], job]), axis=1), axis=0)


def _may_join(groups: Ints, demand: Ints, pair_allowed: Bools) -> Bools:
    """bool[g, k]: is there one more job of the class, and may it share with all of the group?"""
    may_join = np.ones((len(groups), len(demand)), dtype=bool)
    taken = np.zeros((len(groups), len(demand)), dtype=np.int16)
    rows = np.arange(len(groups))
    for column in groups.T:
        may_join &= pair_allowed[column]
        taken[rows, column] += 1
    return may_join & (taken < demand)


def _best_per_job(groups: Ints, cost: Floats, most: int) -> Ints:
    """Places of the cheapest few groups of each job."""
    order = np.argsort(cost, kind="stable")
    best = np.zeros(len(groups), dtype=bool)
    for column in groups[order].T:
        by_job = np.argsort(column, kind="stable")
        first = np.searchsorted(column[by_job], column[by_job], side="left")
        best[order[by_job[np.arange(len(column)) - first < most]]] = True
    return np.flatnonzero(best)
