"""From a placement of classes to jobs on devices: which member of a class starts, and on which device.

Of interchangeable jobs those that come first in the queue start; of interchangeable devices the first are taken, sets
for gangs before single devices, the largest sizes first, so that they span few nodes.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.matching.master.problem import ColumnKind, Placement
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.job_classes import Seat
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.gangs import device_sets
from interfere.records import Device, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGroup:
    """Pending jobs that start together on the same devices, beside their resident if they have one."""

    jobs: tuple[Job, ...]  # one or two
    classes: tuple[int, ...]  # their places among the job classes of their size
    size: int
    devices: tuple[Device, ...]
    device_class: DeviceClass
    resident: Job | None = None
    table: PairCosts | None = None  # None where the job starts alone
    pair: tuple[int, int] = (0, 0)  # row and column in the table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One column of a placement, for one of its jobs."""

    kind: ColumnKind
    resource: int
    i: int
    j: int


def start_groups(decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> list[StartGroup]:
    """The starts of a placement as jobs on devices; `queue`: the pending jobs in order."""
    position = {job.id: k for k, job in enumerate(queue)}
    free = {name: list(_devices_of(decision, name)) for name in decision.device_classes}
    groups: list[StartGroup] = []
    by_size = sorted(range(len(decision.candidates)), key=lambda b: -decision.candidates[b].size)
    for b in by_size:
        groups += _groups_of_block(decision, placement, b, free, position)
    return groups


def _devices_of(decision: DecisionProblem, name: DeviceClass) -> Sequence[Device]:
    return max((each.empty_devices.get(name, ()) for each in decision.candidates), key=len)


def _groups_of_block(
    decision: DecisionProblem,
    placement: Placement,
    b: int,
    free: dict[DeviceClass, list[Device]],
    position: Mapping[str, int],
) -> list[StartGroup]:
    candidates, columns = decision.candidates[b], placement.columns
    at = np.flatnonzero((columns.block == b) & (columns.kind != ColumnKind.WAIT))
    starts = [
        (_Column(kind=ColumnKind(kind), resource=resource, i=i, j=j), count)
        for kind, resource, i, j, count in zip(
            columns.kind[at].tolist(),
            columns.resource[at].tolist(),
            columns.i[at].tolist(),
            columns.j[at].tolist(),
            placement.count[at].tolist(),
            strict=True,
        )
    ]
    # 1. Members of each class start in the order of the queue, alone before beside others.
    waiting = [deque(members) for members in candidates.job_classes]
    starts.sort(key=lambda start: (start[0].kind, start[0].i, start[0].j, start[0].resource))
    jobs_of: list[tuple[_Column, tuple[Job, ...], tuple[int, ...]]] = []
    for column, count in starts:
        classes = (column.i, column.j) if column.kind is ColumnKind.PAIR else (column.i,)
        jobs_of += [(column, tuple(waiting[i].popleft() for i in classes), classes) for _ in range(count)]
    jobs_of.sort(key=lambda start: min(position[job.id] for job in start[1]))
    # 2. Devices and seats, in the order of the first job of each group.
    needed: dict[DeviceClass, int] = {}
    for column, _, _ in jobs_of:
        if column.kind is not ColumnKind.SEAT:
            name = decision.device_classes[column.resource]
            needed[name] = needed.get(name, 0) + 1
    sets = {name: deque(device_sets(free[name], candidates.size, count)) for name, count in needed.items()}
    for name, taken in sets.items():
        ids = {device.id for devices in taken for device in devices}
        free[name] = [device for device in free[name] if device.id not in ids]
    seats = [deque(members) for members in candidates.seat_classes]
    return [
        _seat_group(candidates, column, jobs, classes, seats[column.resource].popleft())
        if column.kind is ColumnKind.SEAT
        else _device_group(candidates, decision, column, jobs, classes, sets)
        for column, jobs, classes in jobs_of
    ]


def _seat_group(
    candidates: Candidates, column: _Column, jobs: tuple[Job, ...], classes: tuple[int, ...], seat: Seat
) -> StartGroup:
    table, table_column = candidates.seat_columns[column.resource]
    return StartGroup(
        jobs=jobs,
        classes=classes,
        size=candidates.size,
        devices=seat.devices,
        device_class=seat.device_class,
        resident=seat.resident,
        table=table,
        pair=(column.i, table_column),
    )


def _device_group(
    candidates: Candidates,
    decision: DecisionProblem,
    column: _Column,
    jobs: tuple[Job, ...],
    classes: tuple[int, ...],
    sets: dict[DeviceClass, "deque[tuple[Device, ...]]"],
) -> StartGroup:
    name = decision.device_classes[column.resource]
    return StartGroup(
        jobs=jobs,
        classes=classes,
        size=candidates.size,
        devices=sets[name].popleft(),
        device_class=name,
        table=candidates.pair_tables[name] if len(jobs) == 2 else None,
        pair=(column.i, column.j),
    )
