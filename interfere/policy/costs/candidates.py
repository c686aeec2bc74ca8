"""All that may happen to the pending jobs: what each choice would cost and which rules allow it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.miss_probability import misses_alone
from interfere.policy.costs.objectives import weights
from interfere.policy.costs.pair_costs import PairCosts, pair_costs
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import too_large
from interfere.policy.rules.runtime import lost_times, slowdowns_to_miss, start_weights
from interfere.records import ActionKind, Device, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One or two pending jobs that start together on an empty device, or one beside a resident."""

    members: tuple[int, ...]
    device: int = -1  # place among the empty devices
    seat: int = -1  # place among the residents with a free seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All that may happen to n pending jobs: empty devices by class, and residents with a free seat."""

    pending: tuple[Job, ...]
    empty: tuple[Device, ...]  # at most as many are taken as `take`
    empty_class: tuple[DeviceClass, ...]  # of each empty device
    take: int
    seats: tuple[Device, ...]  # devices with exactly one resident, which is on no other device
    seat_class: tuple[DeviceClass, ...]  # of each seat
    alone: Mapping[DeviceClass, NDArray[np.float64]]  # float64[n]: cost alone on such a device; inf: may not
    together: Mapping[DeviceClass, PairCosts]  # pending x pending on an empty device of that class
    beside: Mapping[DeviceClass, tuple[PairCosts, list[int]]]  # pending x residents; columns index `seats`
    seat_place: tuple[tuple[PairCosts, int], ...]  # of each seat: its costs and its column there
    weight: NDArray[np.float64]  # float64[n]: who starts first (`stay.start_weights`)
    worst: bool  # is the largest cost of a job minimised, not the sum?
    floor: float  # largest cost of a resident that nobody joins; -inf without any

    def together_best(self) -> NDArray[np.float64]:
        """float64[n, n]: cost of two pending jobs on the best class of empty devices."""
        best = np.full((len(self.pending), len(self.pending)), np.inf)
        for costs in self.together.values():
            np.minimum(best, costs.cost, out=best)
        return best

    def beside_all(self) -> NDArray[np.float64]:
        """float64[n, seats]."""
        cost = np.full((len(self.pending), len(self.seats)), np.inf)
        for costs, columns in self.beside.values():
            cost[:, columns] = costs.cost
        return cost

    def alone_best(self) -> NDArray[np.float64]:
        """float64[n]: cost alone on the best class of empty devices; inf where none may."""
        return np.asarray(np.minimum.reduce([np.full(len(self.pending), np.inf), *self.alone.values()]))

    def cost_of(self, start: Start) -> tuple[float, float]:
        """What a start adds to the sum, and the largest cost of a job in it."""
        i, j = start.members[0], start.members[-1]
        if start.seat >= 0:
            costs, column = self.seat_place[start.seat]
            return float(costs.cost[i, column]), float(costs.worst[i, column])
        where = self.empty_class[start.device]
        if i == j:
            alone = float(self.alone[where][i])
            return alone, alone
        return float(self.together[where].cost[i, j]), float(self.together[where].worst[i, j])

    def up_to(self, most: float) -> "Options":
        """Without what would cost one job more than `most`."""

        def fair(costs: PairCosts) -> PairCosts:
            return replace(costs, cost=np.where(costs.worst <= most, costs.cost, np.inf))

        beside = {where: (fair(costs), columns) for where, (costs, columns) in self.beside.items()}
        return replace(
            self,
            alone={where: np.where(cost <= most, cost, np.inf) for where, cost in self.alone.items()},
            together={where: fair(costs) for where, costs in self.together.items()},
            beside=beside,
        )


def survey(context: PlanningContext) -> Options:
    """Costs and permissions of everything that may happen."""
    snapshot, objective, types = context.snapshot, context.objective, context.device_types
    limits, pending, now_s = snapshot.limits, snapshot.pending, snapshot.now_s
    times = dict(zip(types, context.relative_times(pending).T, strict=True))
    empty = tuple(d for d in snapshot.devices if not d.residents)
    seats = tuple(d for d in snapshot.devices if len(d.residents) == 1 and d.residents[0].gpus == 1)
    take = len(empty) if limits.max_devices is None else min(limits.max_devices, len(empty))
    alone, together, beside = {}, {}, {}
    empty_class = tuple(DeviceClass.of(device, now_s) for device in empty)
    for where in dict.fromkeys(empty_class):
        fits = np.array([not too_large(context.demand(job, where), where.room) for job in pending], dtype=bool)
        fits &= ActionKind.START_ALONE in limits.allowed
        together[where] = pair_costs(
            pending,
            pending,
            where,
            context,
            row_times=times[where.type],
            column_times=times[where.type],
        ).either_way()
        fits &= np.array([not together[where].kept_out(i) for i in range(len(pending))], dtype=bool)
        stretch = times[where.type] + lost_times(pending, together[where].row_stays)
        cost = objective.constant(pending) + objective.rate(pending) * stretch
        if objective.misses:
            cases = slowdowns_to_miss(pending, times[where.type], now_s)
            cost += objective.misses * weights(pending) * misses_alone(cases)
        alone[where] = np.where(fits, cost, np.inf)
    running = [(r, d.type) for d in snapshot.devices for r in d.residents]
    running_times = _times_here(running, context)
    floor = objective.constant([job for job, _ in running])
    floor += objective.rate([job for job, _ in running]) * running_times
    time_of = {job.id: time for (job, _), time in zip(running, running_times.tolist(), strict=True)}
    columns_of: dict[DeviceClass, list[int]] = {}
    for k, device in enumerate(seats):
        columns_of.setdefault(DeviceClass.of(device, now_s), []).append(k)
    place: dict[int, tuple[PairCosts, int]] = {}
    for where, columns in columns_of.items():
        residents = [seats[k].residents[0] for k in columns]
        costs = pair_costs(
            pending,
            residents,
            where,
            context,
            row_times=times[where.type],
            column_times=np.array([time_of[job.id] for job in residents]),
            running=True,
        )
        beside[where] = (costs, columns)
        place |= {k: (costs, column) for column, k in enumerate(columns)}
    return Options(
        pending=pending,
        empty=empty,
        empty_class=empty_class,
        take=take,
        seats=seats,
        alone=alone,
        together=together,
        beside=beside,
        seat_place=tuple(place[k] for k in range(len(seats))),
        weight=start_weights(pending, now_s),
        seat_class=tuple(DeviceClass.of(device, now_s) for device in seats),
        worst=objective.worst,
        floor=float(floor.max(initial=-np.inf)),
    )


def _times_here(running: Sequence[tuple[Job, str]], context: PlanningContext) -> NDArray[np.float64]:
    """float64[r]: τ of residents where they are."""
    types = context.device_types
    if len(types) == 1:
        return np.ones(len(running))
    times = context.relative_times([job for job, _ in running])
    return times[np.arange(len(running)), [types.index(kind) for _, kind in running]]
