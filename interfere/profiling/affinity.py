"""Chooses the core that is measured, and pins processes to it.

Where the system cannot pin a process (macOS, some containers) nothing is measured: the `cpu-core` device is one core
that jobs share, and figures of processes that move between cores do not describe it.
"""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from interfere.errors import UnfitError

SAMPLE_S = 0.3  # long enough for 30 ticks of the kernel's 10 ms accounting
REMEDY = "use a Linux host or container that allows sched_setaffinity, or work from the shipped table"


def allowed_cores() -> tuple[int, ...]:
    """Cores that this process may use. Raises UnfitError where the system cannot pin processes."""
    if not hasattr(os, "sched_getaffinity"):
        raise UnfitError("this system cannot pin a process to a core", value=platform.system(), remedy=REMEDY)
    return tuple(sorted(os.sched_getaffinity(0)))


def pick_core(core: int | None = None) -> int:
    """`core`, or the idlest allowed one for None, after a proof that this thread can be pinned to it.

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
    """Keep every thread of this process, and all threads it starts later, on one core.

    With `yields` they run only while no other process wants the core (SCHED_IDLE, see sched(7)).
    """
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # the thread ended meanwhile
            os.sched_setaffinity(int(thread), {core})
            if yields:
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))


@contextlib.contextmanager
def avoid_cores(*cores: int) -> Iterator[None]:
    """Keep the calling thread off the measured cores until the block ends, where the machine has others."""
    allowed = allowed_cores()
    other_cores = set(allowed) - set(cores)
    if other_cores:
        os.sched_setaffinity(0, other_cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def processor_name() -> str:
    """The processor's model as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith(("model name", "Hardware", "Model")):
                return line.partition(":")[2].strip()[:256] or "unknown processor"
    return platform.processor() or platform.machine() or "unknown processor"
