"""Re-pairing: running and waiting jobs on the devices of one class, moves paid for, as a placement problem.

n jobs, m interchangeable devices with two places each. A running job has a home: the device that it is on. Jobs run
alone or in pairs; a group stays on the home of one of its members or takes any device whose residents all leave it.
A column of the master problem is a group at a place: its value is what the group is worth a second, less what those of
its members pay that are not at home there. A job in no column waits; a running one that waits is stopped, and pays.

Maximise Σ value of the chosen columns - Σ cost of the stopped jobs, such that every job is in at most one column (a
running job that must not be stopped in exactly one), every home is used by at most one, and at most m are chosen.
In the placement problem every home is a host with a supply of one; the devices that are vacated or empty are another.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.matching.problem import NOBODY, WAITS, Level, Placement, PlacementProblem
from interfere.matching.search import solve_levels
from interfere.time_budget import UNLIMITED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ELSEWHERE = -1  # place of a group on a device that no member is on


@dataclass(frozen=True, kw_only=True)
class RematchingProblem:
    """What groups are worth and what changes cost, all in one unit a second, as weighted speed."""

    home: Ints  # int64[n] in 0 … m - 1, at most two jobs on each; WAITS for a job that waits
    alone: Floats  # float64[n]: of a job without a partner; -inf: must not run so
    pair: Floats  # float64[n, n], symmetric: of two jobs beside each other; -inf: must not share; diagonal not read
    move: Floats  # float64[n, n] ≥ 0: what i pays to run beside j on another device, alone where i = j; inf: must not
    stop: Floats  # float64[n] ≥ 0: what a running job pays to wait; inf: must not; not read of jobs that wait
    devices: int  # m

    @property
    def n(self) -> int:
        """Number of jobs."""
        return len(self.home)

    @cached_property
    def runs(self) -> NDArray[np.bool_]:
        """bool[n]: does the job run now?"""
        return np.asarray(self.home != WAITS)

    @cached_property
    def relocation(self) -> Floats:
        """float64[n, n]: `move` of running jobs; jobs that wait start anywhere for nothing."""
        return np.where(self.runs[:, None], self.move, 0.0)

    @cached_property
    def partner(self) -> Ints:
        """int64[n]: the job on the same device now, itself where there is none."""
        partner = np.arange(self.n)
        resident: dict[int, int] = {}
        for i in np.flatnonzero(self.runs).tolist():
            other = resident.setdefault(int(self.home[i]), i)
            if other != i:
                partner[i], partner[other] = other, i
        return partner

    def stop_cost(self, i: int) -> float:
        """What it costs that a job waits from now on."""
        return float(self.stop[i]) if self.runs[i] else 0.0

    def current(self) -> "Arrangement":
        """Everything as it is now."""
        return Arrangement(mate=np.where(self.runs, self.partner, WAITS), place=self.home.copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Who runs beside whom and where. `place` is a home or, for groups that take a vacated or empty device, ELSEWHERE;
    `mate` of a job that waits is WAITS."""

    mate: Ints  # int64[n]: partner, itself when alone, WAITS when waiting
    place: Ints  # int64[n]

    def groups(self) -> Iterator[tuple[int, int, int]]:
        """(i, j, place) of each group, i = j for a job alone."""
        for i, j in enumerate(self.mate.tolist()):
            if j != WAITS and i <= j:
                yield i, j, int(self.place[i])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rematching:
    """An arrangement with its value, and a bound that no arrangement exceeds (inf: none is known)."""

    arrangement: Arrangement
    value: float
    upper_bound: float


def group_value(problem: RematchingProblem, i: int, j: int, place: int) -> float:
    """What a group at a place is worth, less what its members pay to get there; -inf where it must not be."""
    worth = float(problem.alone[i] if i == j else problem.pair[i, j])
    for member, other in {(i, j), (j, i)}:
        if problem.home[member] != place or place == ELSEWHERE:
            worth -= float(problem.relocation[member, other])
    return worth


def value_of(problem: RematchingProblem, arrangement: Arrangement) -> float:
    """The value of an arrangement; -inf where it is not allowed. Independent of how it was found."""
    groups = list(arrangement.groups())
    taken = [place for _, _, place in groups if place != ELSEWHERE]
    if len(groups) > problem.devices or len(set(taken)) < len(taken):
        return -np.inf
    value = sum(group_value(problem, *group) for group in groups)
    return value - sum(problem.stop_cost(i) for i in np.flatnonzero(arrangement.mate == WAITS).tolist())


def rematch(problem: RematchingProblem) -> Rematching:
    """The best arrangement, and a bound that proves it; the present arrangement where none is better."""
    present = problem.current()
    value = value_of(problem, present)
    members, place, worth = _columns(problem)
    if not problem.n:
        return Rematching(arrangement=present, value=value, upper_bound=value)
    placement_problem, level = _placement_problem(problem, members, place, worth)
    start = _placement_of(problem, present, members, place)
    solution = solve_levels(placement_problem, (level,), start, budget=UNLIMITED)
    found = _arrangement_of(problem, solution.placement, members, place)
    best = value_of(problem, found)
    bound = max(-solution.lower_bounds[0], best)
    if best <= value:
        return Rematching(arrangement=present, value=value, upper_bound=max(bound, value))
    return Rematching(arrangement=found, value=best, upper_bound=bound)


def _columns(problem: RematchingProblem) -> tuple[Ints, Ints, Floats]:
    """Every allowed group at every place: int64[c, 2] members (NOBODY beside a job alone), int64[c] place, value.

    A place is a home of a member, or ELSEWHERE; a job that starts beside a running one takes its home or ELSEWHERE.
    """
    n, home, shift = problem.n, problem.home, problem.relocation
    i, j = np.triu_indices(n, 1)
    allowed = np.isfinite(problem.pair[i, j])
    i, j = i[allowed], j[allowed]
    worth, pays_i, pays_j = problem.pair[i, j], shift[i, j], shift[j, i]
    jobs, nobody = np.arange(n), np.full(n, NOBODY)
    runs = np.flatnonzero(problem.runs)
    together = problem.runs[i] & (home[i] == home[j])
    at_i, at_j = np.flatnonzero(problem.runs[i]), np.flatnonzero(problem.runs[j] & ~together)
    parts = [
        (jobs, nobody, np.full(n, ELSEWHERE), problem.alone - np.diagonal(shift)),
        (runs, nobody[runs], home[runs], problem.alone[runs]),
        (i, j, np.full(len(i), ELSEWHERE), worth - pays_i - pays_j),
        (i[at_i], j[at_i], home[i[at_i]], (worth - np.where(together, 0.0, pays_j))[at_i]),
        (i[at_j], j[at_j], home[j[at_j]], (worth - pays_i)[at_j]),
    ]
    first, second, place, value = (np.concatenate([part[k] for part in parts]) for k in range(4))
    kept = np.isfinite(value)
    return np.column_stack([first, second])[kept], place[kept], value[kept]


def _placement_problem(
    problem: RematchingProblem, members: Ints, place: Ints, worth: Floats
) -> tuple[PlacementProblem, Level]:
    """The jobs, homes and columns as a placement problem whose only level is the negative value."""
    n, m = problem.n, problem.devices
    waiting = np.full((n, 2), NOBODY, dtype=np.int64)
    waiting[:, 0] = np.arange(n)
    may_wait = ~problem.runs | np.isfinite(problem.stop)
    stop = np.where(problem.runs & np.isfinite(problem.stop), problem.stop, 0.0)
    return PlacementProblem(
        demand=np.ones(n, dtype=np.int64),
        supply=np.append(np.ones(m, dtype=np.int64), m),
        is_empty=np.ones(m + 1, dtype=bool),
        max_devices=m,
        members=np.concatenate([waiting, members]),
        host=np.concatenate([np.full(n, WAITS), np.where(place == ELSEWHERE, m, place)]),
        takes=np.append(np.zeros(n, dtype=np.int64), np.ones(len(place), dtype=np.int64)),
        allowed=np.append(may_wait, np.ones(len(place), dtype=bool)),
    ), Level(cost=np.concatenate([stop, -worth]))


def _placement_of(problem: RematchingProblem, arrangement: Arrangement, members: Ints, place: Ints) -> Placement:
    """An arrangement as a placement; every group of it is a column."""
    keys = zip(*members.T.tolist(), place.tolist(), strict=True)
    column_of = {key: k for k, key in enumerate(keys)}
    chosen = [problem.n + column_of[i, NOBODY if i == j else j, at] for i, j, at in arrangement.groups()]
    chosen += np.flatnonzero(arrangement.mate == WAITS).tolist()
    return Placement(column=np.array(sorted(chosen), dtype=np.int64), count=np.ones(len(chosen), dtype=np.int64))


def _arrangement_of(problem: RematchingProblem, placement: Placement, members: Ints, place: Ints) -> Arrangement:
    """A placement as an arrangement."""
    chosen = placement.column[placement.column >= problem.n] - problem.n
    mate, at = np.full(problem.n, WAITS), np.full(problem.n, ELSEWHERE)
    first, second = members[chosen].T
    second = np.where(second == NOBODY, first, second)
    mate[first], mate[second] = second, first
    at[first] = at[second] = place[chosen]
    return Arrangement(mate=mate, place=at)
