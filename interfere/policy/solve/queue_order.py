"""Ties are broken by submission: of jobs that could take each other's place at the same cost, the earlier starts.

Law: no level's value changes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from interfere.matching.master.problem import BlockCosts, ColumnKind, Placement
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.greedy import Key, as_placement
from interfere.records import Job

EQUAL = 1e-12  # relative: the same sum in another order


def in_queue_order(decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> Placement:
    """The placement in which no job waits that could take the place of a later one for nothing."""
    exchange = _Exchange(decision, placement, queue)
    while exchange.exchange_one():
        pass
    return as_placement(exchange.counts)


JobClass = tuple[int, int]  # block and class


class _Exchange:
    """A placement in which waiting and started jobs change places."""

    def __init__(self, decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> None:
        self._decision = decision
        columns = placement.columns
        keys = zip(
            columns.block.tolist(),
            map(ColumnKind, columns.kind.tolist()),
            columns.resource.tolist(),
            columns.i.tolist(),
            columns.j.tolist(),
            strict=True,
        )
        self.counts: Counter[Key] = Counter(dict(zip(keys, placement.count.tolist(), strict=True)))
        self._position = {job.id: k for k, job in enumerate(queue)}
        self._started: dict[JobClass, int] = {}
        self._members: dict[JobClass, tuple[Job, ...]] = {}
        self._alike: dict[tuple[int, float], list[JobClass]] = defaultdict(list)  # of one priority and start weight
        for b, candidates in enumerate(decision.candidates):
            for i, members in enumerate(candidates.job_classes):
                self._started[b, i], self._members[b, i] = len(members), members
                self._alike[members[0].priority, float(candidates.start_weight[i])].append((b, i))
        self._columns_of: dict[JobClass, set[Key]] = defaultdict(set)
        for key, count in self.counts.items():
            if key[1] is ColumnKind.WAIT:
                self._started[key[0], key[3]] -= count
            elif count:
                self._columns_of[key[0], key[3]].add(key)
                self._columns_of[key[0], key[4]].add(key)
        self._waiting = {k for k, started in self._started.items() if started < len(self._members[k])}

    def exchange_one(self) -> bool:
        """Let the earliest waiting job that can start in place of a later one; False where there is none."""
        for classes in self._alike.values():
            waiting = [k for k in classes if k in self._waiting]
            running = [(self._last_started(k), k) for k in classes if self._started[k]] if waiting else []
            running.sort(reverse=True)
            for first, early in sorted((self._first_waiting(k), k) for k in waiting):
                for last, late in running:
                    if last < first:
                        break
                    if late != early and self._exchange(late, early):
                        return True
        return False

    def _first_waiting(self, k: JobClass) -> int:
        return self._position[self._members[k][self._started[k]].id]

    def _last_started(self, k: JobClass) -> int:
        return self._position[self._members[k][self._started[k] - 1].id]

    def _exchange(self, late: JobClass, early: JobClass) -> bool:
        """Let a job of one class start in place of one of another where that costs nothing."""
        for key in sorted(self._columns_of[late]):
            new = self._replaced(key, late, early)
            if new is None:
                continue
            self.counts[key] -= 1
            self.counts[new] += 1
            self.counts[early[0], ColumnKind.WAIT, 0, early[1], early[1]] -= 1
            self.counts[late[0], ColumnKind.WAIT, 0, late[1], late[1]] += 1
            if not self.counts[key]:
                self._columns_of[key[0], key[3]].discard(key)
                self._columns_of[key[0], key[4]].discard(key)
            self._columns_of[new[0], new[3]].add(new)
            self._columns_of[new[0], new[4]].add(new)
            self._started[early] += 1
            self._started[late] -= 1
            self._waiting.add(late)
            if self._started[early] == len(self._members[early]):
                self._waiting.discard(early)
            return True
        return False

    def _replaced(self, key: Key, late: JobClass, early: JobClass) -> Key | None:
        """The column with one job of another class in it; None where that is not allowed or costs more."""
        b, kind, resource, i, j = key
        block = self._decision.problem.blocks[early[0]]
        if early[0] != b and (kind is not ColumnKind.SOLO or block.size > self._decision.problem.blocks[b].size):
            return None
        new: Key
        if kind is ColumnKind.PAIR:
            other = j if i == late[1] else i
            new = (b, kind, resource, min(early[1], other), max(early[1], other))
            allowed = block.pair_allowed[resource, new[3], new[4]]
        elif kind is ColumnKind.SOLO:
            new = (early[0], kind, resource, early[1], early[1])
            allowed = block.solo_allowed[resource, early[1]]
        else:
            new = (b, kind, resource, early[1], early[1])
            allowed = block.seat_allowed[early[1], resource]
        if not allowed:
            return None
        pairs = zip(self._costs(new), self._costs(key), strict=True)
        return new if all(cost <= old + EQUAL * max(1.0, abs(old)) for cost, old in pairs) else None

    def _costs(self, key: Key) -> Iterator[float]:
        """What a column costs at each cost level, then its largest cost of a job."""
        for level in self._decision.cost_levels:
            yield _cost(level.costs[key[0]], key)
        yield _cost(self._decision.max_job_costs[key[0]], key)


def _cost(costs: BlockCosts, key: Key) -> float:
    _, kind, resource, i, j = key
    if kind is ColumnKind.SOLO:
        return float(costs.solo[resource, i])
    if kind is ColumnKind.PAIR:
        return float(costs.pair[resource, i, j])
    return float(costs.seat[i, resource])
