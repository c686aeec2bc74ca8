"""What a decision minimises, level by level: every group of jobs that may start as a column, and what it costs.

    1. Σ start weight of the waiting jobs, of each priority from the highest;
    2. the objective: for one that weighs jobs, Σ costs of the jobs of each priority from the highest; else Σ costs of
       all; for a min-max objective the largest cost of a job, then Σ costs with no job above it.

Where the objective prices waiting, what it costs to wait is part of the objective, and the weight that waits comes
after it. A level is as small as it can be among the placements that are best at all levels before it: nothing of a
lower priority is weighed against a higher one. A resident's added cost counts at its own priority, what a group as a
whole costs, such as the price of a pair past the soft cap, at the highest priority of its members.

From a placement of classes to jobs on devices: of interchangeable jobs those that come first in the queue start; of
interchangeable devices the first are taken, sets for gangs before single devices, the largest sizes first. Law: a set
of devices spans no more nodes than it must. Ties are broken by submission: of jobs that could take each other's place
at the same cost, the earlier starts. Law: no level's value changes by that.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Floats,
    GroupLookup,
    Ints,
    Level,
    Placement,
    PlacementProblem,
)
from interfere.policy.costs.candidates import Candidates, Host, HostPlace
from interfere.policy.costs.group_costs import PairCosts
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.device_class import DeviceClass
from interfere.records import Device, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionProblem:
    """The groups of all sizes of jobs as one problem, and the levels to solve it by."""

    candidates: tuple[Candidates, ...]  # of each size of jobs
    first_class: tuple[int, ...]  # of the classes of all sizes, the first of each
    hosts: tuple[Host, ...]
    problem: PlacementProblem
    block_of_class: Ints  # int64[k]: the size of jobs of each class, as a place in `candidates`
    levels: tuple[Level, ...]  # that are sums, in the order in which they are minimised; those of waiting first
    total_cost: Level
    largest: Floats  # float64[c]: the largest cost of a job in each group; -inf for waiting
    floor: float  # the largest cost of a resident as it runs now; -inf without residents
    is_min_max: bool  # is the largest cost of a job minimised, not the sum?
    _partners: dict[int, list[list[Job]]] = field(default_factory=dict, repr=False)  # by the identity of the table

    @property
    def waiting_levels(self) -> tuple[Level, ...]:
        """The levels of jobs that wait."""
        return tuple(level for level in self.levels if level.is_waiting)

    @property
    def cost_levels(self) -> tuple[Level, ...]:
        """The levels of what groups cost."""
        return self.levels[len(self.waiting_levels) :]

    def pair_tables(self, candidates: Candidates) -> list[PairCosts]:
        """The pair tables of jobs of one size: on empty devices with several seats, then with residents."""
        empty = [table for name, table in candidates.pair_tables.items() if name.seats > 1]
        beside = (host.resident_pairs for host in candidates.hosts)
        return [*empty, *{id(table): table for table in beside if table is not None}.values()]

    def partners(self, candidates: Candidates, table: PairCosts) -> Sequence[Sequence[Job]]:
        """The jobs for which each column of a table of pairs stands, pending or running."""
        if not table.running:
            return candidates.job_classes
        if id(table) not in self._partners:
            jobs: list[list[Job]] = [[] for _ in table.columns]
            for host in candidates.hosts:
                for place in host.places if host.resident_pairs is table else ():
                    for column, resident in zip(host.residents, place.residents, strict=True):
                        jobs[column].append(resident)
            self._partners[id(table)] = jobs
        return self._partners[id(table)]

    def block(self, columns: Ints) -> Ints:
        """int64[n]: the size of jobs of some columns, as a place in `candidates`."""
        return np.asarray(self.block_of_class[self.problem.members[columns, 0]])

    def table_of(self, column: int) -> GroupTable:
        """The table that a column's group was priced with."""
        host = self.hosts[int(self.problem.host[column])]
        return host.table or self.candidates[self._block_of(column)].tables[host.device_class]

    def slowdowns_of(self, column: int) -> tuple[float, ...]:
        """The predicted median slowdown of each member of a column's group, residents last."""
        costs = self.table_of(column).evaluate(np.array([self._classes_of(column)]), self._residents_of(column))
        return tuple(float(of_member[0]) for of_member in costs.slowdown)

    def interval_of(self, column: int, place: int) -> tuple[float, float]:
        """The 5 % and 95 % quantile of the slowdown of one member of a column's group."""
        return self.table_of(column).interval(self._classes_of(column), self._residents_of(column), place)

    def pair_of(self, column: int) -> tuple[PairCosts, int, int]:
        """The table of pairs that prices a group of two, and its row and column there."""
        table, classes, residents = self.table_of(column), self._classes_of(column), self._residents_of(column)
        if residents:
            assert table.resident_pairs is not None
            return table.resident_pairs, classes[0], residents[0]
        return table.pending_pairs, classes[0], classes[1]

    def _block_of(self, column: int) -> int:
        """The size of jobs of a column, as a place in `candidates`."""
        return int(self.block_of_class[self.problem.members[column, 0]])

    def _classes_of(self, column: int) -> list[int]:
        """Return the job classes of a column's group, numbered among the classes of that gang size."""
        first = self.first_class[self._block_of(column)]
        return [job - first for job in self.problem.members[column].tolist() if job != NOBODY]

    def _residents_of(self, column: int) -> tuple[int, ...]:
        """Return the indices, among the residents of its table, of the residents that a column's group joins."""
        return self.hosts[int(self.problem.host[column])].residents


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGroup:
    """Pending jobs that start together on the same devices, beside the residents of these devices."""

    column: int  # of the decision's problem
    jobs: tuple[Job, ...]
    classes: tuple[int, ...]  # of each job, among the job classes of its size
    size: int  # devices that each job takes
    devices: tuple[Device, ...]
    device_class: DeviceClass
    residents: tuple[Job, ...] = ()

    @property
    def members(self) -> tuple[Job, ...]:
        """All jobs that will share the devices, residents last."""
        return (*self.jobs, *self.residents)


def start_groups(decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> list[StartGroup]:
    """The starts of a placement as jobs on devices; `queue`: the pending jobs in order."""
    position = {job.id: k for k, job in enumerate(queue)}
    free: dict[DeviceClass, list[Device]] = {}
    for host in decision.hosts:
        if not host.places:
            empty = [list(each.empty_devices.get(host.device_class, ())) for each in decision.candidates]
            free[host.device_class] = max(empty, key=len)
    groups: list[StartGroup] = []
    for block in sorted(range(len(decision.candidates)), key=lambda b: -decision.candidates[b].size):
        groups += _groups_of_block(decision, placement, block, free, position)
    return groups


def _groups_of_block(
    decision: DecisionProblem,
    placement: Placement,
    block: int,
    free: dict[DeviceClass, list[Device]],
    position: Mapping[str, int],
) -> list[StartGroup]:
    """The groups of the jobs of one size; the empty devices that they take leave `free`."""
    problem, candidates = decision.problem, decision.candidates[block]
    first, waiting = decision.first_class[block], [deque(members) for members in candidates.job_classes]
    at = (decision.block(placement.column) == block) & (problem.host[placement.column] != WAITS)
    starts = [
        (tuple(job - first for job in problem.members[column].tolist() if job != NOBODY), column, count)
        for column, count in zip(placement.column[at].tolist(), placement.count[at].tolist(), strict=True)
    ]
    # 1. Members of each class start in the order of the queue, alone before beside others.
    starts.sort(key=lambda start: (len(start[0]), bool(not problem.is_empty[problem.host[start[1]]]), start[0]))
    jobs_of = [
        (column, tuple(waiting[i].popleft() for i in classes), classes)
        for classes, column, count in starts
        for _ in range(count)
    ]
    jobs_of.sort(key=lambda start: min(position[job.id] for job in start[1]))
    # 2. Devices and seats, in the order of the first job of each group.
    needed: dict[DeviceClass, int] = {}
    for column, _, _ in jobs_of:
        host = int(problem.host[column])
        if problem.is_empty[host]:
            name = decision.hosts[host].device_class
            needed[name] = needed.get(name, 0) + 1
    sets = {name: deque(device_sets(free[name], candidates.size, count)) for name, count in needed.items()}
    for name, taken in sets.items():
        ids = {device.id for devices in taken for device in devices}
        free[name] = [device for device in free[name] if device.id not in ids]
    seats: dict[int, deque[HostPlace]] = {}
    groups = []
    for column, jobs, classes in jobs_of:
        host = int(problem.host[column])
        there = decision.hosts[host]
        if not there.places:
            place = HostPlace(devices=sets[there.device_class].popleft(), residents=())
        else:
            place = seats.setdefault(host, deque(there.places)).popleft()
        groups.append(
            StartGroup(
                column=column,
                jobs=jobs,
                classes=classes,
                size=candidates.size,
                devices=place.devices,
                device_class=there.device_class,
                residents=place.residents,
            )
        )
    return groups


def device_sets(empty: Sequence[Device], size: int, max_sets: int) -> list[tuple[Device, ...]]:
    """At most `max_sets` sets of `size` of these devices, which are of one class.

    Each set spans as few nodes as possible: it takes the node with the fewest free devices that holds it whole; where
    none does, the nodes with the most free devices first, and then the node with the fewest that holds what is missing.
    """
    if size == 1:
        return [(device,) for device in empty[:max_sets]]
    free_by_node: dict[str, list[Device]] = {}
    for device in empty:
        free_by_node.setdefault(device.node, []).append(device)
    sets = []
    for _ in range(min(max_sets, len(empty) // size)):
        members: list[Device] = []
        while len(members) < size:
            missing = size - len(members)
            sufficient = [node for node, free in free_by_node.items() if len(free) >= missing]
            if sufficient:
                node = min(sufficient, key=lambda name: len(free_by_node[name]))
            else:
                node = max(free_by_node, key=lambda name: len(free_by_node[name]))
            members += free_by_node[node][:missing]
            free_by_node[node] = free_by_node[node][missing:]
            if not free_by_node[node]:
                del free_by_node[node]
        sets.append(tuple(members))
    return sets


EQUAL = 1e-12  # relative: the same sum in another order


def in_queue_order(decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> Placement:
    """The placement in which no job waits that could take the place of a later one for nothing."""
    if not (decision.problem.host[placement.column] == WAITS).any():
        return placement
    exchange = _Exchange(decision, placement, queue)
    while exchange.exchange_one():
        pass
    return exchange.placement()


class _Exchange:
    """A placement in which waiting and started jobs change places; jobs are told by their class of the problem."""

    def __init__(self, decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> None:
        self._decision, self._problem = decision, decision.problem
        self._lookup = GroupLookup.of_columns(decision.problem)
        self._counts = Counter(dict(zip(placement.column.tolist(), placement.count.tolist(), strict=True)))
        self._position = {job.id: k for k, job in enumerate(queue)}
        self._members = [members for candidates in decision.candidates for members in candidates.job_classes]
        self._started = [len(members) for members in self._members]
        self._alike: dict[tuple[int, float], list[int]] = defaultdict(list)  # of one priority and start weight
        weights = [float(weight) for candidates in decision.candidates for weight in candidates.start_weight]
        for k, members in enumerate(self._members):
            self._alike[members[0].priority, weights[k]].append(k)
        self._columns_of: dict[int, set[int]] = defaultdict(set)
        for column, count in self._counts.items():
            if self._problem.host[column] == WAITS:
                self._started[int(self._problem.members[column, 0])] -= count
            else:
                self._register(column)
        self._waiting = {k for k, started in enumerate(self._started) if started < len(self._members[k])}

    def placement(self) -> Placement:
        """The placement after the exchanges so far."""
        kept = sorted((column, count) for column, count in self._counts.items() if count)
        column, count = np.array(kept, dtype=np.int64).reshape(-1, 2).T
        return Placement(column=column, count=count)

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

    def _first_waiting(self, k: int) -> int:
        return self._position[self._members[k][self._started[k]].id]

    def _last_started(self, k: int) -> int:
        return self._position[self._members[k][self._started[k] - 1].id]

    def _register(self, column: int) -> None:
        """Remember that a column of several jobs is taken."""
        for job in self._jobs(column):
            self._columns_of[job].add(column)

    def _jobs(self, column: int) -> list[int]:
        return [job for job in self._problem.members[column].tolist() if job != NOBODY]

    def _exchange(self, late: int, early: int) -> bool:
        """Let a job of one class start in place of one of another where that costs nothing."""
        for column in sorted(self._columns_of[late]):
            new = self._replaced(column, late, early)
            if new is None:
                continue
            self._counts[column] -= 1
            self._counts[new] += 1
            self._counts[early] -= 1  # the first columns are those of waiting, in the order of the classes
            self._counts[late] += 1
            if not self._counts[column]:
                for job in self._jobs(column):
                    self._columns_of[job].discard(column)
            self._register(new)
            self._started[early] += 1
            self._started[late] -= 1
            self._waiting.add(late)
            if self._started[early] == len(self._members[early]):
                self._waiting.discard(early)
            return True
        return False

    def _replaced(self, column: int, late: int, early: int) -> int | None:
        """The column with one job of another class in it; None where that is not allowed or costs more."""
        problem, jobs = self._problem, self._jobs(column)
        jobs.remove(late)
        new = self._lookup.find_group(int(problem.host[column]), [*jobs, early])
        if new < 0 or problem.takes[new] > problem.takes[column]:
            return None
        pairs = zip(self._costs(new), self._costs(column), strict=True)
        return new if all(cost <= old + EQUAL * abs(old) for cost, old in pairs) else None

    def _costs(self, column: int) -> Iterator[float]:
        """Yield the cost of a column at each cost level, and for min-max the largest cost of a job in it."""
        for level in self._decision.cost_levels:
            yield float(level.cost[column])
        if self._decision.is_min_max:
            yield float(self._decision.largest[column])
