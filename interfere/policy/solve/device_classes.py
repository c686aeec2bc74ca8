"""Empty devices of several classes: which group starts on which class, as an integer program.

One variable for each candidate start: a job alone on a class, two on a class, one beside a resident, or waiting. Each
job is in exactly one start; each class and each seat is used at most as often as there are devices. With all starts as
variables the answer is exact; of more than `MAX_VARIABLES` only the cheapest few of each job are kept, and nothing is
proved.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.device_class import DeviceClass
from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_VARIABLES = 4_000  # 30 jobs on two classes beside 60 residents: HiGHS takes 0.1 s
KEPT_PER_JOB = 8  # partners and seats that each job may choose from where there are more variables
TIME_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerProgramPlacement:
    """The chosen starts, and whether nothing cheaper is possible."""

    starts: tuple[Start, ...]
    lower_bound: float  # -inf where nothing is proved
    is_optimal: bool


def place_by_integer_program(
    candidates: Candidates, penalties: Floats, budget: TimeBudget = UNLIMITED
) -> IntegerProgramPlacement | None:
    """The cheapest starts at waiting penalties float64[n]; None when the budget did not suffice for any."""
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_array

    # 1. Variables: every candidate start.
    variables = _StartVariables.of(candidates, penalties)
    is_complete = len(variables.cost) <= MAX_VARIABLES
    if not is_complete:
        variables = variables.cheapest()
    # 2. Constraints: each job once; each class, each seat and the device limit at most as often as they are there.
    n, classes, seats = len(candidates.pending), list(candidates.pair_tables), len(candidates.seats)
    rows, columns = variables.incidence(n, len(classes), seats)
    n_rows, n_variables = n + len(classes) + seats + 1, len(variables.cost)
    usage = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n_rows, n_variables))
    class_size = Counter(candidates.empty_classes)
    upper = np.array(
        [*[1] * n, *[class_size[device_class] for device_class in classes], *[1] * seats, candidates.max_new_devices]
    )
    lower = np.concatenate([np.ones(n), np.full(n_rows - n, -np.inf)])
    # 3. Solve.
    scale = max(1.0, float(np.abs(variables.cost).max(initial=0.0)))
    solution = milp(
        variables.cost / scale,
        integrality=np.ones(n_variables),
        constraints=[LinearConstraint(usage, lower, upper)],
        bounds=(0, 1),
        options={"time_limit": min(TIME_LIMIT_S, budget.remaining_s), "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        return None
    chosen = np.flatnonzero(np.rint(solution.x) > 0)
    return IntegerProgramPlacement(
        starts=_starts_on_devices(candidates, variables, chosen, classes),
        lower_bound=float(solution.mip_dual_bound) * scale if is_complete else -np.inf,
        is_optimal=is_complete and solution.status == 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartVariables:
    """v candidate starts, int64[v] each but the cost; first == second for one job, -1 where there is no class or
    seat."""

    first: Ints
    second: Ints
    device_class: Ints
    seat: Ints
    cost: Floats

    @classmethod
    def of(cls, candidates: Candidates, penalties: Floats) -> "_StartVariables":
        n = len(candidates.pending)
        jobs, none = np.arange(n), np.full(n, -1)
        parts: list[tuple[Ints, Ints, Ints, Ints, Floats]] = [(jobs, jobs, none, none, penalties)]  # waiting
        for k, (device_class, table) in enumerate(candidates.pair_tables.items()):
            solo_cost = candidates.solo_cost[device_class]
            pair_first, pair_second = np.nonzero(np.triu(np.isfinite(table.cost), 1))
            solo = np.flatnonzero(np.isfinite(solo_cost))
            first, second = np.concatenate([pair_first, solo]), np.concatenate([pair_second, solo])
            cost = np.concatenate([table.cost[pair_first, pair_second], solo_cost[solo]])
            parts.append((first, second, np.full(len(first), k), np.full(len(first), -1), cost))
        seat_cost = candidates.seat_cost()
        job, seat = np.nonzero(np.isfinite(seat_cost))
        parts.append((job, job, np.full(len(job), -1), seat, seat_cost[job, seat]))
        first, second, device_class_index, seats, costs = (np.concatenate([p[k] for p in parts]) for k in range(5))
        return cls(first=first, second=second, device_class=device_class_index, seat=seats, cost=costs)

    def incidence(self, n: int, classes: int, seats: int) -> tuple[Ints, Ints]:
        """Row and column of every one in the constraint matrix: jobs, classes, seats, then the device limit."""
        variable = np.arange(len(self.cost))
        is_pair, on_empty, on_seat = self.first != self.second, self.device_class >= 0, self.seat >= 0
        rows = [self.first, self.second[is_pair], n + self.device_class[on_empty]]
        rows += [n + classes + self.seat[on_seat], np.full(int(on_empty.sum()), n + classes + seats)]
        columns = [variable, variable[is_pair], variable[on_empty], variable[on_seat], variable[on_empty]]
        return np.concatenate(rows), np.concatenate(columns)

    def cheapest(self) -> "_StartVariables":
        """Waiting and alone, and of the others the `KEPT_PER_JOB` cheapest of each job on each class and on seats."""
        without_neighbour = (self.first == self.second) & (self.seat < 0)
        keep = without_neighbour.copy()
        by_cost = np.argsort(self.cost, kind="stable")
        groups = int(self.device_class.max(initial=-1)) + 2
        for jobs in (self.first, self.second):
            shared = by_cost[~without_neighbour[by_cost]]
            key = jobs[shared] * groups + self.device_class[shared] + 1
            by_key = np.argsort(key, kind="stable")
            sorted_key = key[by_key]
            rank = np.arange(len(key)) - np.searchsorted(sorted_key, sorted_key)
            keep[shared[by_key[rank < KEPT_PER_JOB]]] = True
        names = ("first", "second", "device_class", "seat", "cost")
        return _StartVariables(**{name: getattr(self, name)[keep] for name in names})


def _starts_on_devices(
    candidates: Candidates, variables: _StartVariables, chosen: Ints, classes: list[DeviceClass]
) -> tuple[Start, ...]:
    """The chosen starts, each on a device of its class."""
    free_devices = {
        device_class: [k for k, each in enumerate(candidates.empty_classes) if each == device_class][::-1]
        for device_class in classes
    }
    starts = []
    for variable in chosen.tolist():
        i, j = int(variables.first[variable]), int(variables.second[variable])
        members = (i,) if i == j else (i, j)
        if variables.seat[variable] >= 0:
            starts.append(Start(members=members, seat=int(variables.seat[variable])))
        elif variables.device_class[variable] >= 0:
            device_class = classes[variables.device_class[variable]]
            starts.append(Start(members=members, device=free_devices[device_class].pop()))
    return tuple(starts)
