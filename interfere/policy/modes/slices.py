"""Slowdowns of jobs that each get a MIG slice of their own, derived from what was measured of each alone in slices.

    slowdown in a slice = step time alone in the slice ÷ step time alone on the whole device

Slices share neither multiprocessors nor memory, so nobody else matters. A size between two that were measured lies
between their step times (a larger slice is never slower); beyond those measured nothing is said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations

import numpy as np

from interfere.devices.mig import MIG_COMPUTE_SLICES, mig_memory_eighths, mig_slice_name
from interfere.policy.modes.questions import JobToAdvise, slowdown_scenarios
from interfere.records import NAN

# 5-95 % range of the logarithm of one measured step time: ParvaGPU's latency against batch ÷ throughput of the same
# row, 1,747 rows, lies in [0.963, 1.031].
STEP_TIME_ERROR = 0.035
_EIGHTHS, _SLICES = 8, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSlowdown:
    """The slowdown of a job in a slice of its own."""

    slice_type: str
    median: float
    lower: float
    upper: float
    measured: bool  # was the job measured in a slice of this size? Else it lies between two that were


def slice_types(gpu: str) -> dict[int, str]:
    """Device type of each size of a slice of a GPU; empty for a GPU whose slices are not known."""
    try:
        return {size: mig_slice_name(gpu, size) for size in MIG_COMPUTE_SLICES}
    except KeyError:
        return {}


def partitions(jobs: int) -> Iterator[tuple[int, ...]]:
    """Sizes of slices, ascending, that a GPU can be divided into so that each of the jobs gets one."""
    if jobs > _SLICES:
        return
    for sizes in combinations_with_replacement(MIG_COMPUTE_SLICES, jobs):
        if sum(sizes) <= _SLICES and sum(map(mig_memory_eighths, sizes)) <= _EIGHTHS:
            yield sizes


def even_partition(jobs: int) -> tuple[int, ...]:
    """The partition whose smallest slice is largest, then the next; empty where a GPU has too few slices."""
    return max(partitions(jobs), default=())


def slice_slowdown(job: JobToAdvise, gpu: str, size: int) -> SliceSlowdown | None:
    """The slowdown of a job in a slice; None where it is not known or the job does not fit."""
    names = slice_types(gpu)
    times = {
        each: job.slice_profiles[name].step_time_s
        for each, name in names.items()
        if name in job.slice_profiles and job.slice_profiles[name].step_time_s > 0
    }
    alone_s = job.step_time_s if job.step_time_s > 0 else NAN
    below, above = max((s for s in times if s <= size), default=0), min((s for s in times if s >= size), default=0)
    if np.isnan(alone_s) or not (below and above):
        return None
    least, most = times[above] / alone_s, times[below] / alone_s
    least, most = min(least, most), max(least, most)
    error = float(np.exp(STEP_TIME_ERROR))
    return SliceSlowdown(
        slice_type=names[size],
        median=float(np.sqrt(least * most)),
        lower=least / error,
        upper=most * error,
        measured=below == above,
    )


def best_assignment(jobs: Sequence[JobToAdvise], gpu: str) -> tuple[SliceSlowdown, ...] | None:
    """A slice for every job, of all partitions that with the highest throughput within the latency targets.

    None where no partition is known of every job.
    """
    table = {(k, size): slice_slowdown(job, gpu, size) for k, job in enumerate(jobs) for size in MIG_COMPUTE_SLICES}
    value = {key: _value(jobs[key[0]], found) for key, found in table.items() if found is not None}
    best: tuple[float, tuple[SliceSlowdown, ...]] | None = None
    for sizes in partitions(len(jobs)):
        for order in set(permutations(sizes)):
            if all((k, size) in value for k, size in enumerate(order)):
                total = sum(value[k, size] for k, size in enumerate(order))
                if best is None or total > best[0]:
                    chosen = tuple(found for k, size in enumerate(order) if (found := table[k, size]))
                    best = (total, chosen)
    return best[1] if best else None


def _value(job: JobToAdvise, found: SliceSlowdown) -> float:
    """Expected speed of a job in a slice, nothing where it breaks its latency target."""
    slowdowns = slowdown_scenarios(found.median, found.lower, found.upper)
    return float(np.mean(np.where(slowdowns <= job.slowdown_cap, 1 / slowdowns, 0.0)))
