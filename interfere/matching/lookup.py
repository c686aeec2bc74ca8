"""The row of a group by a hash: the sum of a random number for its host and one for the kind of each of its jobs."""

from collections.abc import Sequence

import numpy as np

from interfere.matching.patterns import Patterns
from interfere.matching.problem import WAITS, Ints, PlacementProblem


class GroupLookup:
    """Finds groups among rows of members, int64[g, m], on hosts, int64[g]; a negative member is none."""

    def __init__(self, rows: Ints, members: Ints, host: Ints, *, kinds: int, hosts: int) -> None:
        """`rows` int64[g]: what is found; `kinds` and `hosts`: how many there are of each."""
        rng = np.random.default_rng(0)
        self.kind_key, self.host_key = (np.append(rng.integers(-(2**40), 2**40, n), 0) for n in (kinds, hosts))
        keys = self.host_key[host]
        for column in members.T:
            keys = keys + self.kind_key[column]
        order = np.argsort(keys)
        self._keys, self._rows = keys[order], rows[order]

    @classmethod
    def of_columns(cls, problem: PlacementProblem) -> "GroupLookup":
        """Return the lookup of the allowed columns that place jobs; each job class is a kind."""
        placed = np.flatnonzero((problem.host != WAITS) & problem.allowed)
        members, host = problem.members[placed], problem.host[placed]
        return cls(placed, members, host, kinds=len(problem.demand), hosts=len(problem.supply))

    @classmethod
    def of_patterns(cls, patterns: Patterns, hosts: int) -> "GroupLookup":
        """Return the lookup of all patterns by the kinds of their jobs."""
        kinds = int(patterns.kind.max(initial=-1)) + 1
        return cls(np.arange(len(patterns.host)), patterns.members, patterns.host, kinds=kinds, hosts=hosts)

    def find(self, keys: Ints) -> Ints:
        """Return int64[n]: the row of each sum of keys; -1 where there is none."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._rows[at], -1)

    def find_group(self, host: int, kinds: Sequence[int] | Ints) -> int:
        """Return the row of one group; -1 where there is none."""
        return int(self.find(self.host_key[[host]] + self.kind_key[list(kinds)].sum())[0])
