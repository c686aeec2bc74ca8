"""The greedy baseline: each job in the order of the queue takes the cheapest place that is left.

This is what a scheduler without matching would do; every plan states its cost beside the plan's own, and the search
starts from it.
"""

from collections import Counter

import numpy as np

from interfere.matching.master.problem import ColumnKind, Columns, Floats, Placement
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import Job

Key = tuple[int, ColumnKind, int, int, int]  # block, kind, resource, i, j


def place_greedily(problem: DecisionProblem, queue: tuple[Job, ...]) -> Placement:
    """Each job takes empty devices while there are any, else the place beside a job that adds the least cost."""
    search = _GreedySearch(problem)
    class_of = {
        job.id: (b, i)
        for b, candidates in enumerate(problem.candidates)
        for i, members in enumerate(candidates.job_classes)
        for job in members
    }
    for job in queue:
        search.place(*class_of[job.id])
    return search.placement()


def as_placement(counts: "Counter[Key]") -> Placement:
    """The placement with so many starts of each column."""
    kept = [(key, count) for key, count in counts.items() if count > 0]
    rows = np.array([key for key, _ in kept], dtype=np.int64).reshape(-1, 5)
    block, kind, resource, i, j = rows.T
    return Placement(
        columns=Columns(block=block, kind=kind, resource=resource, i=i, j=j),
        count=np.array([count for _, count in kept], dtype=np.int64),
    )


def waiting_jobs(placement: Placement) -> int:
    """How many jobs of a placement wait."""
    return int(placement.count[placement.columns.kind == ColumnKind.WAIT].sum())


class _GreedySearch:
    """What is left after the jobs so far."""

    def __init__(self, decision: DecisionProblem) -> None:
        problem = decision.problem
        self._blocks, self._costs = problem.blocks, decision.total_cost.costs
        self._capacity, self._devices = problem.capacity.copy(), problem.max_devices
        self._seat_cost: list[Floats] = []  # float64[k, r] of each block, inf where nothing is left
        self._join_cost: list[Floats] = []  # float64[k, t, k]: a job beside one of a class that was started alone
        self._seats, self._hosts = [], []
        for block, costs in zip(self._blocks, self._costs, strict=True):
            self._seats.append(block.seats.copy())
            self._seat_cost.append(np.where(block.seat_allowed & (block.seats > 0), costs.seat, np.inf))
            t, k = block.solo_allowed.shape
            self._join_cost.append(np.full((k, t, k), np.inf))
            self._hosts.append(np.zeros((t, k), dtype=np.int64))
        self._counts: Counter[Key] = Counter()

    def place(self, b: int, i: int) -> None:
        """Place one job of class i of block b."""
        block, costs = self._blocks[b], self._costs[b]
        # 1. Empty devices of the first class that allows the job.
        free = np.flatnonzero(block.solo_allowed[:, i] & (self._capacity >= block.size))
        if len(free) and self._devices >= block.size:
            t = int(free[0])
            self._capacity[t] -= block.size
            self._devices -= block.size
            self._counts[b, ColumnKind.SOLO, t, i, i] += 1
            self._hosts[b][t, i] += 1
            if self._hosts[b][t, i] == 1:
                allowed = block.pair_allowed[t, :, i]
                self._join_cost[b][:, t, i] = np.where(allowed, costs.pair[t, :, i] - costs.solo[t, i], np.inf)
            return
        # 2. Beside a resident or a job started before, whichever adds less.
        seat_cost, join_cost = self._seat_cost[b][i], self._join_cost[b][i]
        seat = int(np.argmin(seat_cost)) if len(seat_cost) else -1
        best_seat_cost = float(seat_cost[seat]) if seat >= 0 else np.inf
        t, host = divmod(int(np.argmin(join_cost)), join_cost.shape[1]) if join_cost.size else (0, 0)
        if join_cost.size and join_cost[t, host] < best_seat_cost:
            self._counts[b, ColumnKind.SOLO, t, host, host] -= 1
            self._counts[b, ColumnKind.PAIR, t, min(i, host), max(i, host)] += 1
            self._hosts[b][t, host] -= 1
            if self._hosts[b][t, host] == 0:
                self._join_cost[b][:, t, host] = np.inf
        elif np.isfinite(best_seat_cost):
            self._counts[b, ColumnKind.SEAT, seat, i, i] += 1
            self._seats[b][seat] -= 1
            if self._seats[b][seat] == 0:
                self._seat_cost[b][:, seat] = np.inf
        else:
            self._counts[b, ColumnKind.WAIT, 0, i, i] += 1

    def placement(self) -> Placement:
        """The starts so far."""
        return as_placement(self._counts)
