"""Where the jobs of a group run in each sharing mode: on which core, and whether one yields to the others.

- timeslice: all on one core, at equal priority;
- priority: both on one core; the first job at normal priority, the second under SCHED_IDLE, which runs only while the
  first wants nothing (Linux sched(7));
- spatial: each on a core of its own; caches and memory bandwidth are shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interfere.errors import InvalidInputError, UnfitError
from interfere.profiling import affinity
from interfere.sharing_modes import CPU_MODES, SharingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How one worker process runs."""

    core: int
    yields: bool = False  # runs only while no other process of the core wants to


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the jobs of a group run: `seats[k]` is the placement of the k-th job, the last one that of all further."""

    mode: SharingMode
    seats: tuple[Placement, ...]

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores that are measured."""
        return tuple(sorted({seat.core for seat in self.seats}))

    @property
    def ordered(self) -> bool:
        """Whether it matters which job comes first: it is the important one."""
        return self.mode.properties.orders_jobs

    def placement(self, instance: int) -> Placement:
        """The placement of one instance of a workload: that of the seat it takes."""
        return self.seats[min(instance, len(self.seats) - 1)]

    def instances(self, members: Sequence[str]) -> tuple[int, ...]:
        """For each job of a group, which instance of its workload runs: placements are for the life of a process.

        Where all seats are alike, the copies of a workload are counted; else each seat has an instance of its own.
        """
        if len(self.seats) > 1:
            return tuple(range(len(members)))
        return tuple(members[:k].count(name) for k, name in enumerate(members))


def choose_layout(mode: SharingMode, core: int | None) -> Layout:
    """The layout of a mode on `core`, or on the idlest one for None. Raises UnfitError where cores are missing."""
    if mode not in CPU_MODES:
        raise InvalidInputError(
            f"mode {mode} is not measured on CPU cores", value=mode, remedy=f"one of {', '.join(CPU_MODES)}"
        )
    chosen = affinity.pick_core(core)
    if mode.properties.orders_jobs:
        return Layout(mode=mode, seats=(Placement(core=chosen), Placement(core=chosen, yields=True)))
    if mode.properties.cpu_cores == 1:
        return Layout(mode=mode, seats=(Placement(core=chosen),))
    others = [other for other in affinity.allowed_cores() if other != chosen]
    if not others:
        raise UnfitError(
            f"mode {mode} needs two cores", value=f"allowed: {chosen}", remedy="allow this process a second core"
        )
    second = affinity.pick_core(others[0])
    return Layout(mode=mode, seats=(Placement(core=chosen), Placement(core=second)))
