"""Jobs that a placement of patterns left waiting join the groups where they add the least cost."""

import numpy as np

from interfere.matching.group_master.formulation import Formulation
from interfere.matching.group_master.patterns import NO_KIND, PatternCosts, Patterns
from interfere.matching.group_master.problem import NOBODY, Ints


class PatternLookup:
    """The pattern of a host and kinds, by a sum of random numbers, one for each."""

    def __init__(self, patterns: Patterns, hosts: int) -> None:
        rng = np.random.default_rng(0)
        kinds = int(patterns.kind.max(initial=-1)) + 1
        self.kind_key, self.host_key = (np.append(rng.integers(-(2**40), 2**40, n), 0) for n in (kinds, hosts))
        keys = self.host_key[patterns.host]
        for column in patterns.members.T:
            keys = keys + self.kind_key[column]
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def find(self, keys: Ints) -> Ints:
        """int64[n]: the pattern of each key; -1 where there is none."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._order[at], -1)


def insert_jobs(
    formulation: Formulation,
    costs: PatternCosts,
    groups: list[tuple[int, int, list[int]]],
    waiting: list[int],
) -> bool:
    """Add each waiting job to one of the groups (pattern, host, job classes) in place; False where one fits nowhere.

    A job alone on a device has the pattern -1.
    """
    patterns = formulation.problem.patterns
    assert patterns is not None
    lookup, width = PatternLookup(patterns, len(formulation.problem.supply)), patterns.members.shape[1]
    for job in waiting:
        keys = np.array(
            [lookup.host_key[host] + lookup.kind_key[patterns.kind[jobs]].sum() for _, host, jobs in groups]
        )
        rows = lookup.find(keys + lookup.kind_key[patterns.kind[job]]) if len(groups) else np.zeros(0, dtype=np.int64)
        best, least = -1, np.inf
        for k in np.flatnonzero(rows >= 0).tolist():
            row, _, jobs = groups[k]
            before = _cost(costs, patterns, row, jobs, width) if row >= 0 else 0.0
            added = _cost(costs, patterns, int(rows[k]), [*jobs, job], width) - before
            if added < least:
                best, least = k, added
        if best < 0:
            return False
        groups[best] = int(rows[best]), groups[best][1], _by_kind(patterns, [*groups[best][2], job])
    return True


def _by_kind(patterns: Patterns, jobs: list[int]) -> list[int]:
    return sorted(jobs, key=lambda job: int(patterns.kind[job]))


def _cost(costs: PatternCosts, patterns: Patterns, row: int, jobs: list[int], width: int) -> float:
    classes = np.full((1, width), NOBODY, dtype=np.int64)
    classes[0, : len(jobs)] = _by_kind(patterns, jobs)
    assert (patterns.members[row] != NO_KIND).sum() == len(jobs)
    return float(costs.of_groups(patterns, np.array([row]), classes)[0])
