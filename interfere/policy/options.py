"""All that may happen to the pending jobs: what each choice would cost and which rules allow it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs import DeviceClass, PairCosts, Resolve, pair_costs, peak_bytes
from interfere.policy.objectives import OBJECTIVES
from interfere.protocols import Predictor
from interfere.records import ActionKind, Device, Job, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All that may happen to n pending jobs: empty devices by class, and residents with a free seat."""

    pending: tuple[Job, ...]
    empty: tuple[Device, ...]  # at most as many are taken as `take`
    empty_class: tuple[DeviceClass, ...]  # of each empty device
    take: int
    seats: tuple[Device, ...]  # devices with exactly one resident
    alone: dict[DeviceClass, NDArray[np.bool_]]  # bool[n]: may run alone on an empty device of that class
    together: dict[DeviceClass, PairCosts]  # pending x pending on an empty device of that class
    beside: dict[DeviceClass, tuple[PairCosts, list[int]]]  # pending x residents; columns index `seats`
    seat_place: tuple[tuple[PairCosts, int], ...]  # of each seat: its costs and its column there
    alone_cost: NDArray[np.float64]  # float64[n], of each job alone
    bytes: NDArray[np.float64]  # float64[n], peak memory

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

    def alone_anywhere(self) -> NDArray[np.bool_]:
        """bool[n]."""
        anywhere = np.zeros(len(self.pending), dtype=bool)
        for allowed in self.alone.values():
            anywhere |= allowed
        return anywhere


def survey(snapshot: Snapshot, predictor: Predictor, resolve: Resolve) -> Options:
    """Costs and permissions of everything that may happen."""
    limits, pending = snapshot.limits, snapshot.pending
    objective = OBJECTIVES[snapshot.objective]
    empty = tuple(d for d in snapshot.devices if not d.residents)
    seats = tuple(d for d in snapshot.devices if len(d.residents) == 1)
    take = len(empty) if limits.max_devices is None else min(limits.max_devices, len(empty))
    alone, together, beside = {}, {}, {}
    empty_class = tuple(map(DeviceClass.of, empty))
    for where in dict.fromkeys(empty_class):
        held = np.array([peak_bytes(job, resolve(job, where.type)) for job in pending])
        fits = ~(held > where.memory_bytes) if where.memory_bytes >= 0 else np.ones(len(pending), dtype=bool)
        alone[where] = fits & (ActionKind.START_ALONE in limits.allowed)
        together[where] = pair_costs(pending, pending, where, predictor, resolve, limits, objective)
    columns_of: dict[DeviceClass, list[int]] = {}
    for k, device in enumerate(seats):
        columns_of.setdefault(DeviceClass.of(device), []).append(k)
    place: dict[int, tuple[PairCosts, int]] = {}
    for where, columns in columns_of.items():
        costs = pair_costs(
            pending,
            [seats[k].residents[0] for k in columns],
            where,
            predictor,
            resolve,
            limits,
            objective,
            running=True,
        )
        beside[where] = (costs, columns)
        place |= {k: (costs, column) for column, k in enumerate(columns)}
    types = dict.fromkeys(d.type for d in snapshot.devices)
    known = [[peak_bytes(job, resolve(job, kind)) for kind in types] for job in pending]
    return Options(
        pending=pending, empty=empty, empty_class=empty_class, take=take, seats=seats, alone=alone, together=together,
        beside=beside, seat_place=tuple(place[k] for k in range(len(seats))),
        alone_cost=objective.alone(pending), bytes=np.array([np.fmax.reduce(row) for row in known], dtype=np.float64),
    )  # fmt: skip
