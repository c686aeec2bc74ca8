"""Chooses the cores that are measured, places the jobs of a group on them, and measures their clock.

Where the jobs of a group run in each sharing mode:

- timeslice: all on one core, at equal priority;
- priority: both on one core; the first job at normal priority, the second under SCHED_IDLE, which runs only while the
  first wants nothing (Linux sched(7));
- spatial: each on a core of its own; caches and memory bandwidth are shared.

Where the system cannot pin a process (macOS, some containers) nothing is measured: the `cpu-core` device is one core
that jobs share, and figures of processes that move between cores do not describe it.
"""

import contextlib
import hashlib
import math
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, UnfitError
from interfere.sharing_modes import CPU_MODES, SharingMode

MIN_FOREIGN = 0.05  # of a core: what uses less disturbs nobody
SAMPLE_S = 0.3  # long enough for 30 ticks of the kernel's 10 ms accounting
# 300 × about 11 µs. Hashing a cached buffer follows the clock and nothing else: two readings .2 s apart differ by .6 %
# (median) on an idle virtual machine; somebody on the sibling thread makes it 1.4 to 1.8 times as long.
SPINS, SPIN_BUFFER = 300, bytes(20_000)
REMEDY = "use a Linux host or container that allows sched_setaffinity, or work from the shipped table"


def allowed_cores() -> tuple[int, ...]:
    """Return the cores that this process may use. Raises UnfitError where the system cannot pin processes."""
    if not hasattr(os, "sched_getaffinity"):
        raise UnfitError("this system cannot pin a process to a core", value=platform.system(), remedy=REMEDY)
    return tuple(sorted(os.sched_getaffinity(0)))


def pick_core(core: int | None = None) -> int:
    """Return `core`, or the idlest allowed core where none is given, once this thread could be pinned to it.

    Raises UnfitError when the core is not allowed or the system refuses to pin.
    """
    allowed = allowed_cores()
    if core is not None and core not in allowed:
        raise UnfitError(
            f"this process may not use core {core}",
            value=f"allowed: {', '.join(map(str, allowed))}",
            remedy="choose one of those",
        )
    chosen = core if core is not None else _idlest(allowed)
    try:
        os.sched_setaffinity(0, {chosen})
        os.sched_setaffinity(0, allowed)
    except OSError as error:
        raise UnfitError("pinning to a core was refused", value=f"core {chosen}: {error}", remedy=REMEDY) from None
    return chosen


def _idlest(allowed: tuple[int, ...]) -> int:
    import psutil

    if len(allowed) == 1:
        return allowed[0]
    loads = psutil.cpu_percent(interval=SAMPLE_S, percpu=True)
    # Of equally idle cores the last one is taken: interrupts and other programs tend to run on the first.
    return min(allowed, key=lambda core: (round(loads[core] / 10) if core < len(loads) else 0, -core))


def pin_process(core: int, *, yields: bool = False) -> None:
    """Keep all threads of this process on one core, threads that start later included.

    With `yields` the threads run only while no other process wants the core (SCHED_IDLE, see sched(7)).
    """
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # the thread ended meanwhile
            os.sched_setaffinity(int(thread), {core})
            if yields:
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))


def spin_s() -> float:
    """Return the CPU seconds of a short piece of fixed work on this core: the median of its later repeats."""
    durations_s = []
    for _ in range(SPINS):
        start_s = time.thread_time()
        hashlib.sha256(SPIN_BUFFER).digest()
        durations_s.append(time.thread_time() - start_s)
    return statistics.median(durations_s[SPINS // 3 :])  # the first third wakes the core up


@contextlib.contextmanager
def avoid_cores(*cores: int) -> Iterator[None]:
    """Keep the calling thread off the measured cores in a `with` block, where the machine has other cores."""
    allowed = allowed_cores()
    other_cores = set(allowed) - set(cores)
    if other_cores:
        os.sched_setaffinity(0, other_cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def busiest_foreign_processes() -> list[str]:
    """Return the three processes that use most CPU time now, apart from this process and its descendants, in words."""
    import psutil

    own = {os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))}
    before = {process.pid: _cpu_s(process) for process in psutil.process_iter() if process.pid not in own}
    time.sleep(SAMPLE_S)
    foreign = []
    for process in psutil.process_iter(["name"]):
        cpu_frac = (_cpu_s(process) - before.get(process.pid, math.inf)) / SAMPLE_S
        if cpu_frac > MIN_FOREIGN:
            text = f"{process.info['name'] or '?'} (process {process.pid}, {cpu_frac:.0%} of a core)"
            foreign.append((cpu_frac, text))
    return [text for _, text in sorted(foreign, reverse=True)[:3]]


def _cpu_s(process: Any) -> float:
    import psutil

    try:
        times = process.cpu_times()
    except psutil.Error:  # it ended
        return 0.0
    return float(times.user + times.system)


def processor_name() -> str:
    """Return the processor's model as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith(("model name", "Hardware", "Model")):
                return line.partition(":")[2].strip()[:256] or "unknown processor"
    return platform.processor() or platform.machine() or "unknown processor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The core on which one worker process runs, and whether it yields to other processes."""

    core: int
    yields: bool = False  # runs only while no other process of the core wants to


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The cores of the jobs of a group: `seats[k]` is the place of the k-th job; the last seat serves all further
    jobs."""

    mode: SharingMode
    seats: tuple[Placement, ...]
    further_cores: tuple[int, ...] = ()  # of the ranks of a gang after the first, which sits as other jobs do

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores that jobs on one device share."""
        return tuple(sorted({seat.core for seat in self.seats}))

    @property
    def ordered(self) -> bool:
        """Whether the first job of a group is the important one, so that the order of the jobs matters."""
        return self.mode.properties.orders_jobs

    def placement(self, instance: int, rank: int = 0) -> Placement:
        """Return the placement of an instance of a workload: the seat with the number of the instance.

        A further rank of a gang has the core of its number, the same for all gangs.
        """
        if rank:
            return Placement(core=self.further_cores[rank - 1])
        return self.seats[min(instance, len(self.seats) - 1)]

    def instances(self, members: Sequence[str]) -> tuple[int, ...]:
        """Return for each job of a group the number of the instance of its workload that runs it.

        A process keeps its placement for life. Where all seats are alike, instances are numbered by copy of the
        workload; else each seat has an instance of its own.
        """
        if len(self.seats) > 1:
            return tuple(range(len(members)))
        return tuple(members[:k].count(name) for k, name in enumerate(members))


def choose_layout(mode: SharingMode, core: int | None, *, ranks: int = 1) -> Layout:
    """Return the layout of a sharing mode on `core`, or on the idlest core where none is given.

    `ranks` is the size of the largest gang, each rank of which needs a core. Raises UnfitError where cores are missing.
    """
    if mode not in CPU_MODES:
        raise InvalidInputError(
            f"mode {mode} is not measured on CPU cores", value=mode, remedy=f"one of {', '.join(CPU_MODES)}"
        )
    chosen = pick_core(core)
    if mode.properties.orders_jobs:
        return Layout(mode=mode, seats=(Placement(core=chosen), Placement(core=chosen, yields=True)))
    others = [other for other in allowed_cores() if other != chosen]
    if mode.properties.cpu_cores == 1:
        if len(others) < ranks - 1:
            raise UnfitError(
                f"a gang of {ranks} ranks needs {ranks} cores",
                value=f"allowed: {', '.join(map(str, allowed_cores()))}",
                remedy="allow this process more cores, or leave the gangs out",
            )
        further = tuple(map(pick_core, others[: ranks - 1]))
        return Layout(mode=mode, seats=(Placement(core=chosen),), further_cores=further)
    if not others:
        raise UnfitError(
            f"mode {mode} needs two cores", value=f"allowed: {chosen}", remedy="allow this process a second core"
        )
    second = pick_core(others[0])
    return Layout(mode=mode, seats=(Placement(core=chosen), Placement(core=second)))
