"""The candidates of one decision: pending jobs, empty devices, what each start costs there, and which rules allow it.

Jobs of one size, the number of devices that each takes, are candidates together: only they can share. To all of them a
set of devices of one class counts as one. Interchangeable jobs are classes (`job_classes`): tables have one row for
each class.

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
from interfere.policy.costs.job_classes import JobKeys, job_classes
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import PairRules
from interfere.policy.rules.runtime import start_weights
from interfere.policy.slowdowns import all_residents, slowdowns_among_residents
from interfere.policy.solve.hosts import has_groups
from interfere.records import ActionKind, Device, Job
from interfere.sharing_modes import SharingMode

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The pending jobs of one size as k classes, in the order of the queue of their first members, and what each costs
    on empty devices: alone and in pairs, by device class."""

    size: int  # devices that each job takes
    job_classes: tuple[tuple[Job, ...], ...]  # k, the members of each in the order of the queue
    start_weight: Floats  # float64[k]: which jobs start first (`rules.runtime.start_weights`)
    empty_devices: Mapping[DeviceClass, tuple[Device, ...]]
    max_new_devices: int  # at most so many empty devices are taken, by jobs of all sizes
    solo_cost: Mapping[DeviceClass, Floats]  # float64[k]: cost alone on such devices; inf: not allowed
    pair_tables: Mapping[DeviceClass, PairCosts]  # k × k on empty devices of that class

    @property
    def pending(self) -> tuple[Job, ...]:
        """The first member of each class, which stands for it."""
        return tuple(members[0] for members in self.job_classes)

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64[k]: jobs of each class."""
        return np.array([len(members) for members in self.job_classes], dtype=np.int64)

    def class_of(self, job_id: str) -> int:
        """The class of a pending job. Raises ValueError for another."""
        return next(i for i, members in enumerate(self.job_classes) if any(job.id == job_id for job in members))

    def best_solo_cost(self) -> Floats:
        """float64[k]: cost alone on the best class of empty devices; inf where no class allows it."""
        return np.asarray(np.minimum.reduce([np.full(len(self.job_classes), np.inf), *self.solo_cost.values()]))


def find_candidates(context: PlanningContext, size: int = 1, *, by_start_weight: bool = True) -> Candidates:
    """Costs and permissions of the context's pending jobs that take `size` devices, on empty devices.

    `by_start_weight`: whether jobs of different start weight are of different classes. Where no job has to wait, who
    would wait first says nothing, and there are fewer classes without: ageing makes eight of one.
    """
    snapshot = company_lengths(context.snapshot, context.custom_objective, context.custom_rules).snapshot
    keys = JobKeys(snapshot, context.custom_objective, context.custom_rules)
    context = context_of_size(context.subproblem(snapshot), size)
    limits = context.limits
    # 1. Classes of pending jobs, and empty devices.
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
    max_devices = limits.max_devices
    n_empty = sum(map(len, empty_devices.values()))
    # 2. Pending jobs on empty devices: in pairs, then alone.
    pair_tables = {device_class: _table_on_empty_devices(pending, device_class, context) for device_class in empty}
    solo_cost = {device_class: _solo_cost(pending, table, context) for device_class, table in pair_tables.items()}
    return Candidates(
        size=size,
        job_classes=classes,
        start_weight=start_weights(pending, context.now_s, limits.timing.ageing_s),
        empty_devices=empty,
        max_new_devices=n_empty if max_devices is None else min(max_devices, n_empty),
        solo_cost=solo_cost,
        pair_tables=pair_tables,
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


def resident_floor(context: PlanningContext) -> float:
    """Return the largest cost of a resident as it runs now in a min-max objective; -inf without residents.

    On devices of two seats a neighbour that a resident has already is left aside.
    """
    if not context.objective.is_min_max:
        return -np.inf
    residents = all_residents(context)
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
    forbidden = ~np.isfinite(cost)
    return replace(
        first,
        row_slowdown=chosen([table.row_slowdown for table in tables]),
        column_slowdown=chosen([table.column_slowdown for table in tables]),
        cost=cost,
        row_cost=chosen([table.row_cost for table in tables]),
        column_cost=chosen([table.column_cost for table in tables]),
        max_job_cost=chosen([table.max_job_cost for table in tables]),
        rules=PairRules(rules=tuple(replace(rule, mask=rule.mask & forbidden) for rule in first.rules.rules)),
        modes=tuple(table.device_class.mode for table in tables),
        mode_index=best,
    )
