"""Re-pairing of running and waiting jobs on the devices of one class, as a placement problem that charges migrations.

There are n jobs and m interchangeable devices with two places each. A running job's home is its present device. Jobs
run alone or in pairs; a group runs on the home of a member, or on any device that is empty or vacated by its residents.
A column is a group at a place. Its value is the group's worth per second, minus the migration costs of members that are
not at home there. A job in no column waits. Maximise Σ value of the chosen columns, such that every job is in at most
one column, a running job in exactly one, each home is used at most once, and at most m columns are chosen.
In the placement problem every home is a host of supply one, and all vacated or empty devices form one more host.

From predicted slowdowns, a running job has the value weight · speed, where speed = 1 / slowdown. A move repeats
`checkpoint_s` of work, and `move_factor` (hysteresis) times that cost is spread over the expected duration of the new
pair: the shorter expected remaining time of the two jobs. So values and costs are both weighted speeds, and a move pays
only if the gain in speed over that duration exceeds the repeated work.
Law: a job that may not move stays on its device; a forbidden pair is never formed, but a running pair may stay.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.matching.problem import NOBODY, WAITS, Level, Placement, PlacementProblem
from interfere.matching.search import solve_levels
from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ELSEWHERE = -1  # place of a group on a device that no member is on


@dataclass(frozen=True, kw_only=True)
class RematchingProblem:
    """The values of groups and the costs of changes, all in weighted speed per second."""

    home: Ints  # int64[n] in 0 … m - 1, at most two jobs on each; WAITS for a job that waits
    alone: Floats  # float64[n]: of a job without a partner; -inf: must not run so
    pair: Floats  # float64[n, n], symmetric: of two jobs beside each other; -inf: must not share; diagonal not read
    move: Floats  # float64[n, n] ≥ 0: what i pays to run beside j on another device, alone where i = j; inf: must not
    devices: int  # m

    @property
    def n(self) -> int:
        """Return the number of jobs."""
        return len(self.home)

    @cached_property
    def runs(self) -> NDArray[np.bool_]:
        """Return bool[n]: whether each job runs now."""
        return np.asarray(self.home != WAITS)

    @cached_property
    def relocation(self) -> Floats:
        """Return float64[n, n]: the migration cost `move` of running jobs; waiting jobs start anywhere for free."""
        return np.where(self.runs[:, None], self.move, 0.0)

    @cached_property
    def partner(self) -> Ints:
        """Return int64[n]: the job now on the same device, or the job itself where it has no partner."""
        partner = np.arange(self.n)
        resident: dict[int, int] = {}
        for i in np.flatnonzero(self.runs).tolist():
            other = resident.setdefault(int(self.home[i]), i)
            if other != i:
                partner[i], partner[other] = other, i
        return partner

    def current(self) -> "Arrangement":
        """Return the present arrangement."""
        return Arrangement(mate=np.where(self.runs, self.partner, WAITS), place=self.home.copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The partner `mate` and the `place` of every job.

    A place is a home, or ELSEWHERE for a vacated or empty device; the mate of a waiting job is WAITS.
    """

    mate: Ints  # int64[n]: partner, itself when alone, WAITS when waiting
    place: Ints  # int64[n]

    def groups(self) -> Iterator[tuple[int, int, int]]:
        """Yield (i, j, place) for each group, where i = j for a job alone."""
        for i, j in enumerate(self.mate.tolist()):
            if j != WAITS and i <= j:
                yield i, j, int(self.place[i])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rematching:
    """An arrangement, its value, and an upper bound on the value of every arrangement (inf: no bound is known)."""

    arrangement: Arrangement
    value: float
    upper_bound: float


def group_value(problem: RematchingProblem, i: int, j: int, place: int) -> float:
    """Return the worth of a group at a place minus its members' migration costs; -inf for a forbidden group."""
    worth = float(problem.alone[i] if i == j else problem.pair[i, j])
    for member, other in {(i, j), (j, i)}:
        if problem.home[member] != place or place == ELSEWHERE:
            worth -= float(problem.relocation[member, other])
    return worth


def value_of(problem: RematchingProblem, arrangement: Arrangement) -> float:
    """Return the value of an arrangement, -inf where it is forbidden, independently of the search."""
    groups = list(arrangement.groups())
    taken = [place for _, _, place in groups if place != ELSEWHERE]
    if len(groups) > problem.devices or len(set(taken)) < len(taken):
        return -np.inf
    if (problem.runs & (arrangement.mate == WAITS)).any():
        return -np.inf
    return sum(group_value(problem, *group) for group in groups)


def rematch(problem: RematchingProblem, budget: TimeBudget = UNLIMITED, start: Arrangement | None = None) -> Rematching:
    """Return the best arrangement found and its upper bound; `start`, else the present, where none is better."""
    start = start or problem.current()
    value = value_of(problem, start)
    members, place, worth = _columns(problem)
    if not problem.n:
        return Rematching(arrangement=start, value=value, upper_bound=value)
    placement_problem, level = _placement_problem(problem, members, place, worth)
    placed = _placement_of(problem, start, members, place)
    solution = solve_levels(placement_problem, (level,), placed, budget=budget)
    found = _arrangement_of(problem, solution.placement, members, place)
    best = value_of(problem, found)
    bound = max(-solution.lower_bounds[0], best)
    if best <= value:
        return Rematching(arrangement=start, value=value, upper_bound=max(bound, value))
    return Rematching(arrangement=found, value=best, upper_bound=bound)


def _columns(problem: RematchingProblem) -> tuple[Ints, Ints, Floats]:
    """Return every allowed group at every place: members int64[c, 2] (NOBODY beside a job alone), place int64[c],
    value.

    A place is the home of a member, or ELSEWHERE; a job that starts beside a running one uses its home or ELSEWHERE.
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
    """Return the jobs, homes and columns as a placement problem whose only level is the negative value."""
    n, m = problem.n, problem.devices
    waiting = np.full((n, 2), NOBODY, dtype=np.int64)
    waiting[:, 0] = np.arange(n)
    return PlacementProblem(
        demand=np.ones(n, dtype=np.int64),
        supply=np.append(np.ones(m, dtype=np.int64), m),
        is_empty=np.ones(m + 1, dtype=bool),
        max_devices=m,
        members=np.concatenate([waiting, members]),
        host=np.concatenate([np.full(n, WAITS), np.where(place == ELSEWHERE, m, place)]),
        takes=np.append(np.zeros(n, dtype=np.int64), np.ones(len(place), dtype=np.int64)),
        allowed=np.append(~problem.runs, np.ones(len(place), dtype=bool)),
    ), Level(cost=np.concatenate([np.zeros(n), -worth]))


def _placement_of(problem: RematchingProblem, arrangement: Arrangement, members: Ints, place: Ints) -> Placement:
    """Return an arrangement as a placement; each of its groups must be a column."""
    keys = zip(*members.T.tolist(), place.tolist(), strict=True)
    column_of = {key: k for k, key in enumerate(keys)}
    chosen = [problem.n + column_of[i, NOBODY if i == j else j, at] for i, j, at in arrangement.groups()]
    chosen += np.flatnonzero(arrangement.mate == WAITS).tolist()
    return Placement(column=np.array(sorted(chosen), dtype=np.int64), count=np.ones(len(chosen), dtype=np.int64))


def _arrangement_of(problem: RematchingProblem, placement: Placement, members: Ints, place: Ints) -> Arrangement:
    """Return a placement as an arrangement."""
    chosen = placement.column[placement.column >= problem.n] - problem.n
    mate, at = np.full(problem.n, WAITS), np.full(problem.n, ELSEWHERE)
    first, second = members[chosen].T
    second = np.where(second == NOBODY, first, second)
    mate[first], mate[second] = second, first
    at[first] = at[second] = place[chosen]
    return Arrangement(mate=mate, place=at)


# --- one device class ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RematchableJobs:
    """n jobs of one device class, running or waiting."""

    home: Ints  # int64[n]: index of the job's device; WAITS for a waiting job
    weight: Floats  # float64[n] > 0
    expected_s: Floats  # float64[n] > 0: expected remaining time alone
    checkpoint_s: Floats  # float64[n]: seconds of work that a move repeats
    may_move: Bools  # bool[n]; ignored for waiting jobs


def rematching_problem(
    jobs: RematchableJobs, slowdown: Floats, allowed: Bools, *, devices: int, move_factor: float
) -> RematchingProblem:
    """Return the rematching problem on `devices` devices, devices with residents first.

    `slowdown` float64[n, n]: of i beside j, NaN where unknown; `allowed` bool[n, n], symmetric: whether the two jobs
    may be put on one device. Jobs that share a device already may stay together in any case.
    """
    shared_s = np.minimum(jobs.expected_s[:, None], jobs.expected_s[None, :])  # diagonal: a job alone
    speed = jobs.weight[:, None] / np.fmax(np.nan_to_num(slowdown, nan=1.0), 1.0)
    pair = speed + speed.T
    together = (jobs.home[:, None] == jobs.home[None, :]) & (jobs.home >= 0)[:, None]
    lost = move_factor * jobs.weight * jobs.checkpoint_s
    move = np.where(jobs.may_move[:, None], lost[:, None] / shared_s, np.inf)
    return RematchingProblem(
        home=jobs.home,
        alone=jobs.weight.astype(np.float64),
        pair=np.where((allowed & ~np.isnan(slowdown + slowdown.T)) | together, pair, -np.inf),
        move=move,
        devices=devices,
    )


def destinations(problem: RematchingProblem, arrangement: Arrangement, device_ids: Sequence[str]) -> dict[int, str]:
    """Return the device id of every job that starts or moves, in start order, once all leaving jobs have left.

    `device_ids`: the m devices in the order in which homes are numbered, devices with residents first. Groups without a
    home device get devices that no group keeps.
    """
    groups = list(arrangement.groups())
    taken = {place for _, _, place in groups}
    vacant = [device_id for k, device_id in enumerate(device_ids) if k not in taken]
    device_of: dict[int, str] = {}
    for i, j, place in groups:
        device_id = vacant.pop(0) if place == ELSEWHERE else device_ids[place]
        for member in dict.fromkeys((i, j)):
            if place == ELSEWHERE or problem.home[member] != place:
                device_of[member] = device_id
    return device_of
