"""The candidates of one decision: every start that may be chosen, what it would cost, and which rules allow it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.miss_probability import solo_miss_probabilities
from interfere.policy.costs.objectives import weights
from interfere.policy.costs.occupancy import solo_occupancy_costs
from interfere.policy.costs.pair_costs import PairCosts, pair_costs
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.runtime import relative_checkpoint_losses, slowdowns_to_miss, start_weights
from interfere.records import ActionKind, Device, Job

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One or two pending jobs that start together on an empty device, or one beside a resident."""

    members: tuple[int, ...]  # places among the pending jobs
    device: int = -1  # place among the empty devices; -1: beside a resident
    seat: int = -1  # place among the free seats; -1: on an empty device


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Every start of n pending jobs: alone or in pairs on empty devices, by device class, and on free seats.

    A free seat is a device with exactly one resident, which is on no other device.
    """

    pending: tuple[Job, ...]
    start_weight: Floats  # float64[n]: which jobs start first (`rules.runtime.start_weights`)
    empty_devices: tuple[Device, ...]
    empty_classes: tuple[DeviceClass, ...]  # of each empty device
    max_new_devices: int  # at most so many empty devices are taken
    solo_cost: Mapping[DeviceClass, Floats]  # float64[n]: cost alone on such a device; inf: not allowed
    pair_tables: Mapping[DeviceClass, PairCosts]  # pending × pending on an empty device of that class
    seats: tuple[Device, ...]  # devices with a free seat
    seat_classes: tuple[DeviceClass, ...]  # of each seat
    resident_tables: Mapping[DeviceClass, tuple[PairCosts, list[int]]]  # pending × residents; columns index `seats`
    seat_columns: tuple[tuple[PairCosts, int], ...]  # of each seat: its cost table and its column there
    is_min_max: bool  # is the largest cost of a job minimised, not the sum?
    resident_floor: float  # largest cost of a resident without neighbour; -inf without residents

    def best_pair_cost(self) -> Floats:
        """float64[n, n]: cost of two pending jobs together on the best class of empty devices."""
        best = np.full((len(self.pending), len(self.pending)), np.inf)
        for table in self.pair_tables.values():
            np.minimum(best, table.cost, out=best)
        return best

    def seat_cost(self) -> Floats:
        """float64[n, seats]: cost that a pending job adds on a free seat."""
        cost = np.full((len(self.pending), len(self.seats)), np.inf)
        for table, columns in self.resident_tables.values():
            cost[:, columns] = table.cost
        return cost

    def best_solo_cost(self) -> Floats:
        """float64[n]: cost alone on the best class of empty devices; inf where no class allows it."""
        return np.asarray(np.minimum.reduce([np.full(len(self.pending), np.inf), *self.solo_cost.values()]))

    def cost_of(self, start: Start) -> tuple[float, float]:
        """What a start adds to the sum, and the largest cost of a job in it."""
        i, j = start.members[0], start.members[-1]
        if start.seat >= 0:
            table, column = self.seat_columns[start.seat]
            return float(table.cost[i, column]), float(table.max_job_cost[i, column])
        device_class = self.empty_classes[start.device]
        if i == j:
            solo_cost = float(self.solo_cost[device_class][i])
            return solo_cost, solo_cost
        table = self.pair_tables[device_class]
        return float(table.cost[i, j]), float(table.max_job_cost[i, j])

    def capped_at(self, threshold: float) -> "Candidates":
        """Without the starts in which a job costs more than the threshold."""

        def capped(table: PairCosts) -> PairCosts:
            return replace(table, cost=np.where(table.max_job_cost <= threshold, table.cost, np.inf))

        return replace(
            self,
            solo_cost={
                device_class: np.where(cost <= threshold, cost, np.inf) for device_class, cost in self.solo_cost.items()
            },
            pair_tables={device_class: capped(table) for device_class, table in self.pair_tables.items()},
            resident_tables={
                device_class: (capped(table), columns)
                for device_class, (table, columns) in self.resident_tables.items()
            },
        )


def find_candidates(context: PlanningContext) -> Candidates:
    """Costs and permissions of every start of the context's snapshot."""
    snapshot = context.snapshot
    empty_devices = tuple(device for device in snapshot.devices if not device.residents)
    seats = tuple(d for d in snapshot.devices if len(d.residents) == 1 and d.residents[0].gpus == 1)
    empty_classes = tuple(DeviceClass.of(device, context.now_s) for device in empty_devices)
    seat_classes = tuple(DeviceClass.of(device, context.now_s) for device in seats)
    max_devices = context.limits.max_devices
    # 1. τ of every pending job on every device type, and of every resident where it runs.
    times = dict(zip(context.device_types, context.relative_times(snapshot.pending).T, strict=True))
    residents = [(job, device.type) for device in snapshot.devices for job in device.residents]
    resident_times = _times_where_running(residents, context)
    # 2. Pending jobs on empty devices: in pairs, then alone.
    pair_tables = {
        device_class: pair_costs(
            snapshot.pending,
            snapshot.pending,
            device_class,
            context,
            row_times=times[device_class.type],
            column_times=times[device_class.type],
        ).symmetric()
        for device_class in dict.fromkeys(empty_classes)
    }
    solo_cost = {
        device_class: _solo_cost(table, times[device_class.type], context)
        for device_class, table in pair_tables.items()
    }
    # 3. Pending jobs beside residents.
    resident_tables, seat_columns = _resident_tables(seats, seat_classes, times, residents, resident_times, context)
    return Candidates(
        pending=snapshot.pending,
        start_weight=start_weights(snapshot.pending, context.now_s, context.limits.timing.ageing_s),
        empty_devices=empty_devices,
        empty_classes=empty_classes,
        max_new_devices=len(empty_devices) if max_devices is None else min(max_devices, len(empty_devices)),
        solo_cost=solo_cost,
        pair_tables=pair_tables,
        seats=seats,
        seat_classes=seat_classes,
        resident_tables=resident_tables,
        seat_columns=seat_columns,
        is_min_max=context.objective.is_min_max,
        resident_floor=_resident_floor([job for job, _ in residents], resident_times, context),
    )


def _solo_cost(table: PairCosts, times: Floats, context: PlanningContext) -> Floats:
    """float64[n]: cost of each pending job alone on a device of the table's class; inf where it may not start."""
    pending, objective = context.snapshot.pending, context.objective
    allowed = np.array([table.rows.solo_rule(i) is None for i in range(len(pending))], dtype=bool)
    allowed &= ActionKind.START_ALONE in context.limits.allowed
    stretch = times + relative_checkpoint_losses(pending, table.rows.runtimes)
    cost = objective.constant(pending) + objective.rate(pending) * stretch
    if objective.deadline_miss_price:
        limits = slowdowns_to_miss(pending, times, context.now_s)
        cost += objective.deadline_miss_price * weights(pending) * solo_miss_probabilities(limits)
    return np.where(allowed, cost + solo_occupancy_costs(table, objective), np.inf)


def _resident_tables(
    seats: Sequence[Device],
    seat_classes: Sequence[DeviceClass],
    times: Mapping[str, Floats],
    residents: Sequence[tuple[Job, str]],
    resident_times: Floats,
    context: PlanningContext,
) -> tuple[dict[DeviceClass, tuple[PairCosts, list[int]]], tuple[tuple[PairCosts, int], ...]]:
    """Cost tables of pending jobs beside residents by device class, and each seat's table and column."""
    time_of = {job.id: time for (job, _), time in zip(residents, resident_times.tolist(), strict=True)}
    seats_of: dict[DeviceClass, list[int]] = {}
    for k, device_class in enumerate(seat_classes):
        seats_of.setdefault(device_class, []).append(k)
    tables: dict[DeviceClass, tuple[PairCosts, list[int]]] = {}
    seat_columns: dict[int, tuple[PairCosts, int]] = {}
    for device_class, columns in seats_of.items():
        jobs = [seats[k].residents[0] for k in columns]
        table = pair_costs(
            context.snapshot.pending,
            jobs,
            device_class,
            context,
            row_times=times[device_class.type],
            column_times=np.array([time_of[job.id] for job in jobs]),
            running=True,
        )
        tables[device_class] = (table, columns)
        seat_columns |= {k: (table, column) for column, k in enumerate(columns)}
    return tables, tuple(seat_columns[k] for k in range(len(seats)))


def _resident_floor(residents: Sequence[Job], times: Floats, context: PlanningContext) -> float:
    """Largest cost of a resident without neighbour; -inf without residents."""
    costs = context.objective.constant(residents) + context.objective.rate(residents) * times
    return float(costs.max(initial=-np.inf))


def _times_where_running(residents: Sequence[tuple[Job, str]], context: PlanningContext) -> Floats:
    """float64[r]: τ of residents on the device type where they run."""
    types = context.device_types
    if len(types) == 1:
        return np.ones(len(residents))
    times = context.relative_times([job for job, _ in residents])
    return times[np.arange(len(residents)), [types.index(device_type) for _, device_type in residents]]
