"""The candidates of one decision: every start that may be chosen, what it would cost, and which rules allow it.

Jobs of one size, the number of devices that each takes, are candidates together: only they can share. To all of them a
set of devices of one class counts as one. Interchangeable jobs and residents are classes (`job_classes`): tables have
one row for each class.

Where the plan may choose the sharing mode of empty devices, each pair costs what it costs under its best mode. Every
empty device takes the mode of the pair that starts there, so the best plan under these costs is the best of all plans
and modes together. Law: a pair is forbidden where it is forbidden under every mode; the rule is then that of the
device's own mode. Of equal costs the device's own mode is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.company_lengths import company_lengths
from interfere.policy.costs.group_costs import costs_alone
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.job_classes import JobKeys, Seat, job_classes, seat_classes
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import PairRule, PairRules, RuleGroup
from interfere.policy.rules.runtime import start_weights
from interfere.policy.slowdowns import slowdowns_among_residents
from interfere.policy.solve.hosts import has_groups
from interfere.records import ActionKind, Device, Job, Rule
from interfere.sharing_modes import SharingMode

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One or two pending jobs that start together on an empty device, or one beside a resident, by their classes."""

    members: tuple[int, ...]  # classes of pending jobs
    device_class: DeviceClass | None = None  # None: beside a resident
    seat: int = -1  # class of free seats; -1: on an empty device


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Every start of the pending jobs of one size: alone or in pairs on empty devices, by class, and on free seats.

    k classes of pending jobs, in the order of the queue of their first members, and r classes of free seats.
    """

    size: int  # devices that each job takes
    job_classes: tuple[tuple[Job, ...], ...]  # k, the members of each in the order of the queue
    start_weight: Floats  # float64[k]: which jobs start first (`rules.runtime.start_weights`)
    empty_devices: Mapping[DeviceClass, tuple[Device, ...]]
    max_new_devices: int  # at most so many empty devices are taken, by jobs of all sizes
    solo_cost: Mapping[DeviceClass, Floats]  # float64[k]: cost alone on such devices; inf: not allowed
    pair_tables: Mapping[DeviceClass, PairCosts]  # k × k on empty devices of that class
    seat_classes: tuple[tuple[Seat, ...], ...]  # r
    resident_tables: Mapping[DeviceClass, tuple[PairCosts, list[int]]]  # k × residents; columns index `seat_classes`
    seat_columns: tuple[tuple[PairCosts, int], ...]  # of each seat class: its cost table and its column there
    is_min_max: bool  # is the largest cost of a job minimised, not the sum?
    by_priority: bool  # do costs of jobs of higher priority come before all others?
    resident_floor: float  # largest cost of a resident as it runs now, where that counts; -inf without residents

    @property
    def pending(self) -> tuple[Job, ...]:
        """The first member of each class, which stands for it."""
        return tuple(members[0] for members in self.job_classes)

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64[k]: jobs of each class."""
        return np.array([len(members) for members in self.job_classes], dtype=np.int64)

    @property
    def seats(self) -> NDArray[np.int64]:
        """int64[r]: free seats of each class."""
        return np.array([len(members) for members in self.seat_classes], dtype=np.int64)

    def sets(self, device_class: DeviceClass) -> int:
        """How many jobs, or pairs of jobs, the empty devices of a class can take."""
        return len(self.empty_devices.get(device_class, ())) // self.size

    def class_of(self, job_id: str) -> int:
        """The class of a pending job. Raises ValueError for another."""
        return next(i for i, members in enumerate(self.job_classes) if any(job.id == job_id for job in members))

    def best_solo_cost(self) -> Floats:
        """float64[k]: cost alone on the best class of empty devices; inf where no class allows it."""
        return np.asarray(np.minimum.reduce([np.full(len(self.job_classes), np.inf), *self.solo_cost.values()]))

    def tables(self) -> list[PairCosts]:
        """The cost tables of pairs on empty devices, then those of residents."""
        return [*self.pair_tables.values(), *(table for table, _ in self.resident_tables.values())]

    def seats_of(self, table: PairCosts) -> list[int]:
        """The seat class of each column of a table of residents."""
        return next(columns for each, columns in self.resident_tables.values() if each is table)

    def pairs_beside(self, device_class: DeviceClass, residents: Sequence[Job]) -> PairCosts | None:
        """The table of the pending jobs beside exactly these residents of a device class; None where it is another."""
        table, columns = self.resident_tables.get(device_class, (None, []))
        known = [self.seat_classes[k][0].resident.id for k in columns]
        return table if table is not None and known == [job.id for job in residents] else None

    def partner_ids(self, table: PairCosts, j: int) -> list[str]:
        """The jobs for which column j of a table stands, pending or running."""
        if not table.running:
            return [job.id for job in self.job_classes[j]]
        return [seat.resident.id for seat in self.seat_classes[self.seats_of(table)[j]]]

    def cost_of(self, start: Start) -> tuple[float, float]:
        """Return what a start adds to the sum of costs, and the largest cost of a job in it."""
        i, j = start.members[0], start.members[-1]
        if start.device_class is None:
            table, column = self.seat_columns[start.seat]
            return float(table.cost[i, column]), float(table.max_job_cost[i, column])
        if len(start.members) == 1:
            solo_cost = float(self.solo_cost[start.device_class][i])
            return solo_cost, solo_cost
        table = self.pair_tables[start.device_class]
        return float(table.cost[i, j]), float(table.max_job_cost[i, j])


def find_candidates(context: PlanningContext, size: int = 1, *, by_start_weight: bool = True) -> Candidates:
    """Costs and permissions of every start of the context's pending jobs that take `size` devices.

    `by_start_weight`: whether jobs of different start weight are of different classes. Where no job has to wait, who
    would wait first says nothing, and there are fewer classes without: ageing makes eight of one.
    """
    snapshot = company_lengths(context.snapshot, context.custom_objective, context.custom_rules).snapshot
    keys = JobKeys(snapshot, context.custom_objective, context.custom_rules)
    context = context_of_size(context.subproblem(snapshot), size)
    limits = context.limits
    # 1. Classes of pending jobs, empty devices and free seats.
    queue = [job for job in snapshot.pending if job.gpus == size]
    ranks = (
        start_weights(queue, context.now_s, limits.timing.ageing_s).tolist() if by_start_weight else [0.0] * len(queue)
    )
    classes = job_classes(queue, ranks, keys)
    pending = [members[0] for members in classes]
    empty_devices: dict[DeviceClass, list[Device]] = {}
    for device in snapshot.devices:
        if not device.residents:
            empty_devices.setdefault(context.device_class(device), []).append(device)
    empty = {device_class: tuple(members) for device_class, members in empty_devices.items() if len(members) >= size}
    seats = seat_classes(context, size, keys)
    max_devices = limits.max_devices
    n_empty = sum(map(len, empty_devices.values()))
    # 2. Pending jobs on empty devices: in pairs, then alone.
    pair_tables = {device_class: _table_on_empty_devices(pending, device_class, context) for device_class in empty}
    solo_cost = {device_class: _solo_cost(pending, table, context) for device_class, table in pair_tables.items()}
    # 3. Pending jobs beside residents.
    resident_tables, seat_columns = _resident_tables(pending, seats, context)
    return Candidates(
        size=size,
        job_classes=classes,
        start_weight=start_weights(pending, context.now_s, limits.timing.ageing_s),
        empty_devices=empty,
        max_new_devices=n_empty if max_devices is None else min(max_devices, n_empty),
        solo_cost=solo_cost,
        pair_tables=pair_tables,
        seat_classes=seats,
        resident_tables=resident_tables,
        seat_columns=seat_columns,
        is_min_max=context.objective.is_min_max,
        by_priority=context.objective.by_priority,
        resident_floor=resident_floor(context),
    )


def _table_on_empty_devices(pending: Sequence[Job], device_class: DeviceClass, context: PlanningContext) -> PairCosts:
    """Costs of pending jobs among themselves, under the best of the sharing modes that the plan may choose."""
    classes = (replace(device_class, mode=mode) for mode in modes_to_compare(device_class, context))
    return under_best_modes([GroupTable(pending, (), each, context).pending_pairs for each in classes])


def context_of_size(context: PlanningContext, size: int) -> PlanningContext:
    """The context in which jobs on more devices than may be shared share none."""
    limits = context.limits
    if limits.most_shared_gpus is None or size <= limits.most_shared_gpus:
        return context
    limits = replace(limits, allowed=limits.allowed - {ActionKind.START_SHARED})
    return context.subproblem(replace(context.snapshot, limits=limits))


def _solo_cost(pending: Sequence[Job], table: PairCosts, context: PlanningContext) -> Floats:
    """Return float64[k]: the cost of each class of jobs alone on a device of the table's class; inf where a rule
    forbids it."""
    allowed = np.array([table.rows.solo_rule(i) is None for i in range(len(pending))], dtype=bool)
    allowed &= ActionKind.START_ALONE in context.limits.allowed
    return np.where(allowed, costs_alone(table.rows, context), np.inf)


def _resident_tables(
    pending: Sequence[Job], seats: Sequence[Sequence[Seat]], context: PlanningContext
) -> tuple[dict[DeviceClass, tuple[PairCosts, list[int]]], tuple[tuple[PairCosts, int], ...]]:
    """Cost tables of pending jobs beside residents by device class, and each seat class's table and column."""
    seats_of: dict[DeviceClass, list[int]] = {}
    for k, members in enumerate(seats):
        seats_of.setdefault(members[0].device_class, []).append(k)
    tables: dict[DeviceClass, tuple[PairCosts, list[int]]] = {}
    seat_columns: dict[int, tuple[PairCosts, int]] = {}
    for device_class, columns in seats_of.items():
        table = GroupTable(pending, [seats[k][0].resident for k in columns], device_class, context).resident_pairs
        assert table is not None
        tables[device_class] = (table, columns)
        seat_columns |= {k: (table, column) for column, k in enumerate(columns)}
    return tables, tuple(seat_columns[k] for k in range(len(seats)))


def resident_floor(context: PlanningContext) -> float:
    """Return the largest cost of a resident as it runs now in a min-max objective; -inf without residents.

    On devices of two seats a neighbour that a resident has already is left aside.
    """
    if not context.objective.is_min_max:
        return -np.inf
    residents = [(device, job) for device in context.snapshot.devices for job in device.residents]
    slowdown_of = slowdowns_among_residents(residents, context) if has_groups(context.snapshot) else {}
    jobs_on: dict[str, list[Job]] = {}
    for device, job in residents:
        jobs_on.setdefault(device.type, []).append(job)
    floor = -np.inf
    for device_type, jobs in jobs_on.items():
        slowdowns = np.nan_to_num([slowdown_of.get(job.id, 1.0) for job in jobs], nan=1.0)
        times = context.relative_times_on(device_type, jobs) * slowdowns
        costs = context.objective.constant(jobs) + context.objective.rate(jobs) * times
        floor = max(floor, float(costs.max(initial=-np.inf)))
    return floor


Bools = NDArray[np.bool_]


def modes_to_compare(device_class: DeviceClass, context: PlanningContext) -> tuple[SharingMode, ...]:
    """The mode of the devices, then those that the limits let the plan choose and the model knows for their type."""
    limits = context.limits
    known = [
        mode
        for mode in sorted(limits.choosable_modes - {device_class.mode})
        if limits.allow_extrapolation or not context.predictor.knows(device_class.type, mode)
    ]
    return (device_class.mode, *known)


def under_best_modes(tables: Sequence[PairCosts]) -> PairCosts:
    """Return a table that holds each pair under its cheapest sharing mode.

    `tables` has a table for each mode; the present mode of the devices comes first.
    """
    first = tables[0]
    if len(tables) == 1:
        return first
    best = np.argmin(np.stack([table.cost for table in tables]), axis=0)

    def chosen(arrays: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.asarray(np.take_along_axis(np.stack(arrays), best[None], axis=0)[0])

    cost = chosen([table.cost for table in tables])
    allowed = np.isfinite(cost)
    return replace(
        first,
        row_slowdown=chosen([table.row_slowdown for table in tables]),
        column_slowdown=chosen([table.column_slowdown for table in tables]),
        cost=cost,
        row_cost=chosen([table.row_cost for table in tables]),
        column_cost=chosen([table.column_cost for table in tables]),
        max_job_cost=chosen([table.max_job_cost for table in tables]),
        rules=PairRules(rules=tuple(_Unless(rule_of_mode=rule, allowed=allowed) for rule in first.rules.rules)),
        modes=tuple(table.device_class.mode for table in tables),
        mode_index=best,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unless:
    """A rule of one mode on the pairs that no mode allows."""

    rule_of_mode: PairRule
    allowed: Bools  # bool[r, c]: under some mode

    @property
    def mask(self) -> Bools:
        """bool[r, c]: does the rule forbid the pair?"""
        return self.rule_of_mode.mask & ~self.allowed

    def rule(self, row: int, column: int) -> Rule:
        """The rule with its numbers for a pair that it forbids."""
        return self.rule_of_mode.rule(row, column)

    def groups(self, row: int, columns: Sequence[int]) -> Sequence[RuleGroup]:
        """Return the group under which each forbidden pair of one row job is reported."""
        return self.rule_of_mode.groups(row, columns)
