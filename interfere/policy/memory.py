"""What jobs hold in device memory, and why two do not fit.

Two fit when the sum of their peaks is at most capacity · (1 - headroom), and, where a misfit risk is given, when the
predicted probability that they do not fit is at most that; it knows the memory that profiles measured, not what a job
says of itself. Where nobody knows a peak, the peak that a static trace expects stands in, else the working set. Alone a
job may use all of a device. Memory that nobody knows forbids nothing.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.records import NAN, Job, JobProfile, Limits

GIB = float(2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Memory that a job holds, NaN where unknown."""

    bytes: float
    what: str = ""  # where it is not a peak that somebody measured

    def __str__(self) -> str:
        return f"{self.bytes / GIB:.3g} GiB" + (f" ({self.what})" if self.what else "")


def demand(job: Job, profile: JobProfile | None) -> Demand:
    """The job's own word before its profile's; a measured peak before an expected one before the working set."""
    known = [
        Demand(bytes=job.memory_peak_bytes),
        Demand(bytes=profile.memory_peak_bytes if profile else NAN),
        Demand(bytes=job.memory_working_set_bytes, what="working set"),
        Demand(bytes=profile.static_memory_peak_bytes if profile else NAN, what="static trace"),
        Demand(bytes=profile.memory_working_set_bytes if profile else NAN, what="working set"),
    ]
    return next((one for one in known if not math.isnan(one.bytes)), known[0])


def too_large(one: Demand, memory_bytes: float) -> str:
    """Why a job does not fit a device even alone; empty when it does. No capacity (NaN, or below 0) forbids nothing."""
    if 0 <= memory_bytes < one.bytes:
        return f"memory: {one} > {memory_bytes / GIB:.3g} GiB"
    return ""


def room_bytes(memory_bytes: float, limits: Limits) -> float:
    """What two jobs may hold together."""
    return memory_bytes * (1.0 - limits.memory_headroom)


def do_not_fit(one: Demand, other: Demand, fits: float, memory_bytes: float, limits: Limits) -> str:
    """Why two do not fit; empty when they do. `fits` is the predicted probability, NaN where unknown."""
    if 0 <= room_bytes(memory_bytes, limits) < one.bytes + other.bytes:
        room = f"{room_bytes(memory_bytes, limits) / GIB:.3g} GiB"
        if limits.memory_headroom:
            room += f" ({memory_bytes / GIB:.3g} GiB less {limits.memory_headroom:.3g} of it as headroom)"
        return f"memory: {one} + {other} > {room}"
    if 1.0 - fits > limits.misfit_risk:
        return (
            f"misfit risk: {1.0 - fits:.2g} > {limits.misfit_risk:g} that both do not fit {memory_bytes / GIB:.3g} GiB"
        )
    return ""


def misfits(
    rows: NDArray[np.float64],
    columns: NDArray[np.float64],
    fits: NDArray[np.float64],
    memory_bytes: float,
    limits: Limits,
) -> NDArray[np.bool_]:
    """bool[r, c]: `do_not_fit` of all; `rows` and `columns` are bytes, `fits` probabilities."""
    if memory_bytes < 0:
        return np.zeros((len(rows), len(columns)), dtype=bool)
    over = rows[:, None] + columns[None, :] > room_bytes(memory_bytes, limits)
    return np.asarray(over | (1.0 - fits > limits.misfit_risk))
