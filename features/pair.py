"""The pair encoder: victim columns, neighbour columns, and how the two contend.

Law 1: elementwise in float64, one cast to float32, no sum over an axis: the same bytes in any memory layout.
Law 2: swapping victim and neighbour swaps the two column blocks.
Missing facts stay NaN.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from features import job
from features.spec import fingerprint
from interfere.errors import InvalidInputError
from interfere.records import JobProfile

CONTENTION = (
    "busy_frac_sum",
    "busy_frac_excess",  # what the two want beyond one whole device
    "busy_frac_product",
    "fair_share_log_slowdown",  # the victim's busy share stretched by the neighbour's presence: log(1 + b_v·b_n)
    "log_step_time_ratio",
    "log_busy_stretch_ratio",
    "log_idle_to_busy_ratio",  # does the neighbour's burst fit the victim's pause?
    "log_memory_sum_mib",
    "peak_bandwidth_frac_sum",
    "peak_bandwidth_frac_excess",
    "peak_flops_frac_sum",
    "memory_device_frac_sum",
    "gpu_util_sum",
    "gpu_util_excess",
    "gpu_util_product",
    "memory_util_sum",
    "memory_util_excess",
    "sm_active_excess",
    "dram_active_excess",
    "log_static_step_ratio",
    "static_busy_product",
    "roofline_log_slowdown",  # log(max(1, what both want of the busiest resource)): the analytic prior
)


class Encoder:
    """Implements `interfere.protocols.PairEncoder`."""

    def __init__(self, *, only: frozenset[str] | None = None) -> None:
        """`only` these job columns are read, the others are absent: what a poorer source would give."""
        self._hidden = [k for k, name in enumerate(job.COLUMNS) if only is not None and name not in only]

    @cached_property
    def job_names(self) -> tuple[str, ...]:
        """Names of the F job columns."""
        return job.COLUMNS

    @cached_property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the f = 2F + 22 pair columns."""
        return (
            *(f"victim_{name}" for name in job.COLUMNS),
            *(f"neighbour_{name}" for name in job.COLUMNS),
            *CONTENTION,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash over version and all names."""
        return fingerprint(self.pair_names)

    def encode_jobs(self, profiles: Sequence[JobProfile], device_type: str, mode: str) -> NDArray[np.float32]:
        """float32[n, F]."""
        rows = [job.encode(profile, device_type, mode) for profile in profiles]
        encoded = np.array(rows, dtype=np.float32).reshape(len(rows), len(job.COLUMNS))
        encoded[:, self._hidden] = np.nan
        return encoded

    def encode_pairs(self, victims: NDArray[np.float32], neighbours: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[p, f] from float32[p, F] twice. Raises InvalidInputError on other shapes."""
        width = len(job.COLUMNS)
        if victims.shape != neighbours.shape or victims.ndim != 2 or victims.shape[1] != width:
            raise InvalidInputError(
                "victims and neighbours must both be float32[p, F]",
                value=f"{victims.shape} and {neighbours.shape}, F = {width}",
                remedy="encode both with encode_jobs of this encoder",
            )
        out = np.empty((len(victims), 2 * width + len(CONTENTION)), dtype=np.float32)
        out[:, :width], out[:, width : 2 * width] = victims, neighbours
        for k, column in enumerate(_contention(victims, neighbours)):
            out[:, 2 * width + k] = column
        return out


def _contention(victims: NDArray[np.float32], neighbours: NDArray[np.float32]) -> tuple[NDArray[np.float64], ...]:
    """Columns of `CONTENTION`, each float64[p]."""

    def pick(rows: NDArray[np.float32], name: str) -> NDArray[np.float64]:
        return rows[:, job.COLUMNS.index(name)].astype(np.float64)

    def both(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return pick(victims, name), pick(neighbours, name)

    busy_v, busy_n = both("busy_frac")
    step_v, step_n = both("log_step_time_s")
    stretch_v, stretch_n = both("log_busy_mean_s")
    memory_v, memory_n = both("log_memory_peak_mib")
    bandwidth_v, bandwidth_n = both("peak_bandwidth_frac")
    flops_v, flops_n = both("peak_flops_frac")
    held_v, held_n = both("memory_peak_device_frac")
    util_v, util_n = both("gpu_util_frac")
    memory_util_v, memory_util_n = both("memory_util_frac")
    active_v, active_n = both("sm_active_frac")
    dram_v, dram_n = both("dram_active_frac")
    static_v, static_n = both("log_static_step_time_s")
    needed_v, needed_n = both("static_busy_frac")
    wanted = np.fmax(np.fmax(bandwidth_v + bandwidth_n, flops_v + flops_n), needed_v + needed_n)
    return (
        busy_v + busy_n,
        np.maximum(0.0, busy_v + busy_n - 1.0),
        busy_v * busy_n,
        np.log1p(busy_v * busy_n),
        step_v - step_n,
        stretch_v - stretch_n,
        pick(victims, "log_idle_mean_s") - stretch_n,
        np.log1p(np.expm1(memory_v) + np.expm1(memory_n)),
        bandwidth_v + bandwidth_n,
        np.maximum(0.0, bandwidth_v + bandwidth_n - 1.0),
        flops_v + flops_n,
        held_v + held_n,
        util_v + util_n,
        np.maximum(0.0, util_v + util_n - 1.0),
        util_v * util_n,
        memory_util_v + memory_util_n,
        np.maximum(0.0, memory_util_v + memory_util_n - 1.0),
        np.maximum(0.0, active_v + active_n - 1.0),
        np.maximum(0.0, dram_v + dram_n - 1.0),
        static_v - static_n,
        needed_v * needed_n,
        np.log(np.maximum(1.0, wanted)),
    )
