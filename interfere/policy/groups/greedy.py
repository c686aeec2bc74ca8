"""The greedy baseline in groups: each job in the order of the queue takes the cheapest place that is left."""

from collections.abc import Sequence

import numpy as np

from interfere.matching.group_master.problem import NOBODY, WAITS, Bools, GroupPlacement, Ints
from interfere.matching.master.problem import ColumnKind, Placement
from interfere.policy.groups.pattern_greedy import place_greedily_in_patterns
from interfere.policy.groups.problem import GroupDecision
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import Job


def place_greedily(decision: GroupDecision, queue: Sequence[Job]) -> tuple[GroupDecision, GroupPlacement]:
    """Each job takes empty devices while there are any, else the seat beside others that adds the least cost.

    Also returns the decision with the columns of the placement.
    """
    class_of = {
        job.id: first + i
        for candidates, first in zip(decision.candidates, decision.first_class, strict=True)
        for i, members in enumerate(candidates.job_classes)
        for job in members
    }
    classes = [class_of[job.id] for job in queue]
    if decision.problem.patterns is not None:
        return place_greedily_in_patterns(decision, classes)
    search = _GreedySearch(decision)
    for job in classes:
        search.place(job)
    return decision, GroupPlacement.of_counts(search.counts)


def place_around_pairs(decision: GroupDecision, pairs: DecisionProblem, placement: Placement) -> GroupPlacement:
    """The starts of a placement of pairs of the same candidates, and every other job where it adds the least cost."""
    search, columns = _GreedySearch(decision), placement.columns
    empty = {host.device_class: k for k, host in enumerate(decision.hosts) if host.places is None}
    beside = {
        place.residents[0].id: k
        for k, host in enumerate(decision.hosts)
        if host.places is not None and len(host.residents) == 1
        for place in host.places.places
    }
    left = [[len(members) for members in each.job_classes] for each in decision.candidates]
    for b, kind, resource, i, j, count in zip(
        columns.block.tolist(),
        columns.kind.tolist(),
        columns.resource.tolist(),
        columns.i.tolist(),
        columns.j.tolist(),
        placement.count.tolist(),
        strict=True,
    ):
        if kind == ColumnKind.WAIT:
            continue
        if kind == ColumnKind.SEAT:
            host = beside.get(decision.candidates[b].seat_classes[resource][0].resident.id, -1)
        else:
            host = empty.get(pairs.device_classes[resource], -1)
        jobs = (i, j) if kind == ColumnKind.PAIR else (i,)
        for _ in range(count if host >= 0 else 0):
            if search.start(host, [decision.first_class[b] + job for job in jobs]):
                for job in jobs:
                    left[b][job] -= 1
    for b, each in enumerate(decision.candidates):
        for i, members in enumerate(each.job_classes):
            for _ in members[: left[b][i]]:
                search.place(decision.first_class[b] + i)
    return GroupPlacement.of_counts(search.counts)


def waiting_jobs(decision: GroupDecision, placement: GroupPlacement) -> int:
    """How many jobs of a placement wait."""
    return int(placement.count[decision.problem.host[placement.column] == WAITS].sum())


class _GreedySearch:
    """What is left after the jobs so far. Columns are found by a sum of random numbers, one for each job and host."""

    def __init__(self, decision: GroupDecision) -> None:
        problem = decision.problem
        self._problem, self._cost = problem, decision.total_cost.cost
        rng = np.random.default_rng(0)
        self._job_key, self._host_key = (
            rng.integers(-(2**40), 2**40, n) for n in (len(problem.demand), len(problem.supply))
        )
        placed = np.flatnonzero((problem.host != WAITS) & problem.allowed)
        keys = np.append(self._job_key, 0)[problem.members[placed]].sum(axis=1) + self._host_key[problem.host[placed]]
        order = np.argsort(keys)
        self._keys, self._columns = keys[order], placed[order]
        self.counts = np.zeros(len(problem.host), dtype=np.int64)
        self._supply, self._devices = problem.supply.copy(), problem.max_devices
        # Hosts with room: the key of the group there so far, its column (-1: none yet), how many such there are.
        beside = np.flatnonzero(~problem.is_empty)
        self._open_key = self._host_key[beside]
        self._open_column = np.full(len(beside), -1, dtype=np.int64)
        self._open_count = self._supply[beside].copy()

    def start(self, host: int, jobs: Sequence[int]) -> bool:
        """Start a group on an untouched host, where it may and one is left."""
        key = self._host_key[host] + self._job_key[list(jobs)].sum()
        column = int(self._find(np.array([key]))[0])
        takes = int(self._problem.takes[column])
        if column < 0 or takes > self._supply[host]:
            return False
        if self._problem.is_empty[host]:
            if takes > self._devices:
                return False
            self._devices -= takes
        else:
            at = int(np.flatnonzero(self._open_key == self._host_key[host])[0])
            if self._open_count[at] == 0:
                return False
            self._open_count[at] -= 1
        self._supply[host] -= takes
        self.counts[column] += 1
        self._open(int(key), column)
        return True

    def place(self, job: int) -> None:
        """Place one job of a class."""
        # 1. Empty devices of the first class that allows it.
        for host in np.flatnonzero(self._problem.is_empty & (self._supply > 0)).tolist():
            column = self._find(self._host_key[[host]] + self._job_key[job])[0]
            if column < 0:
                continue
            takes = int(self._problem.takes[column])
            if takes <= min(int(self._supply[host]), self._devices):
                self._supply[host] -= takes
                self._devices -= takes
                self.counts[column] += 1
                self._open(int(self._host_key[host] + self._job_key[job]), column)
                return
        # 2. Beside others, where it adds least.
        columns = self._find(self._open_key + self._job_key[job])
        before = np.where(self._open_column >= 0, self._cost[self._open_column], 0.0)
        added = np.where((columns >= 0) & (self._open_count > 0), self._cost[np.maximum(columns, 0)] - before, np.inf)
        best = int(np.argmin(added)) if len(added) else -1
        if best < 0 or not np.isfinite(added[best]):
            self.counts[job] += 1  # the first columns are those that wait, in the order of the classes
            return
        column, old = int(columns[best]), int(self._open_column[best])
        self._open_count[best] -= 1
        if old >= 0:
            self.counts[old] -= 1
        self.counts[column] += 1
        self._open(int(self._open_key[best] + self._job_key[job]), column)

    def _open(self, key: int, column: int) -> None:
        """One more host with this group."""
        at = np.flatnonzero(self._open_key == key)
        if len(at):
            self._open_count[at[0]] += 1
            return
        self._open_key = np.append(self._open_key, key)
        self._open_column = np.append(self._open_column, column)
        self._open_count = np.append(self._open_count, 1)

    def _find(self, keys: Ints) -> Ints:
        """int64[n]: the column of each key; -1 where there is none."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: Bools = self._keys[at] == keys
        return np.where(found, self._columns[at], NOBODY)
