"""Workloads of a user, as `module:factory`."""

import time

from interfere.profiling import Pause, Step, Workload


def _spin(seconds: float, pause_s: float) -> Step:
    def step(pause: Pause) -> None:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        if pause_s:
            pause(pause_s)

    return step


BUSY = Workload(name="busy", description="spins 3 ms", build=lambda: _spin(0.003, 0.0))


def waiting() -> Workload:
    """A factory rather than a Workload."""
    return Workload(name="waiting", description="spins 1 ms, waits 4 ms", build=lambda: _spin(0.001, 0.004))


def slow() -> Workload:
    """Steps of 50 ms: longer than the profiler's windows."""
    return Workload(name="slow", description="spins 50 ms", build=lambda: _spin(0.05, 0.0))


def _fail() -> Step:
    raise RuntimeError("no such data set")


def failing() -> Workload:
    """Cannot be built."""
    return Workload(name="failing", description="raises", build=_fail)


def _die() -> Step:
    import os

    def step(pause: Pause) -> None:
        os._exit(9)

    return step


def dying() -> Workload:
    """Takes its process with it."""
    return Workload(name="dying", description="exits", build=_die)


def nothing() -> str:
    """Not a workload."""
    return "nothing"
