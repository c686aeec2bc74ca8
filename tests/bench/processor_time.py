"""Processor time of servers, and calls to several of them in turn.

`/proc/PID/stat` counts in hundredths of a second, in which a server answers thirty calls; the clock of a process counts
in nanoseconds.
"""

import ctypes
import os
import time
from collections.abc import Callable, Mapping

import numpy as np
import psutil
from numpy.typing import NDArray

_libc = ctypes.CDLL(None, use_errno=True)


def process_cpu_s(pid: int) -> float:
    """Return the processor time of a process, by its clock (clock_getcpuclockid(3)). Raises OSError."""
    clock = ctypes.c_int()
    if error := _libc.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(error, os.strerror(error))
    return time.clock_gettime(clock.value)


def tree_cpu_s(pid: int) -> float:
    """Return the processor time of a process and of all running processes that it started, directly or not."""
    return process_cpu_s(pid) + sum(process_cpu_s(each.pid) for each in psutil.Process(pid).children(recursive=True))


def server_cpu_s(
    calls: Mapping[str, tuple[int, Callable[[], object]]], *, rounds: int, calls_of_round: int
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Return by name the server's processor time of a call, float64[rounds], and the time that each call took,
    float64[rounds * calls_of_round].

    `calls`: by name, the process of a server and a call to it. The servers take turns, so that what else the machine
    does meets all of them.
    """
    cpu_s = {name: np.empty(rounds) for name in calls}
    wall_s = {name: np.empty((rounds, calls_of_round)) for name in calls}
    for k in range(rounds):
        for name, (pid, call) in calls.items():
            call()
            before_s = tree_cpu_s(pid)
            for i in range(calls_of_round):
                start_s = time.perf_counter()
                call()
                wall_s[name][k, i] = time.perf_counter() - start_s
            cpu_s[name][k] = (tree_cpu_s(pid) - before_s) / calls_of_round
    return cpu_s, {name: values.ravel() for name, values in wall_s.items()}


def quiet_s(cpu_s: NDArray[np.float64]) -> float:
    """Return the processor time of a call in a quiet round: the tenth of the rounds that is exceeded by the others.

    Where others work on the machine a call takes up to twice the processor time of itself, because caches and cores
    are shared; this quantile repeats within 3 % where the median does within 20 %.
    """
    return float(np.quantile(cpu_s, 0.1))
