"""The re-pairing problem as arrays: running and waiting jobs on the devices of one class, and what moving costs.

n jobs, m interchangeable devices with two places each. A running job has a home: the device that it is on. Jobs run
alone or in pairs; a group stays on the home of one of its members or takes any device whose residents all leave it.
A column of the master problem is a group at a place: its value is what the group is worth a second, less what those of
its members pay that are not at home there. A job in no column waits; a running one that waits is stopped, and pays.

Maximise Σ value of the chosen columns - Σ cost of the stopped jobs, such that every job is in at most one column (a
running job that must not be stopped in exactly one), every home is used by at most one, and at most m are chosen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WAITS = -1  # home of a job that waits
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
