"""The pair encoder: the columns of the victim, those of the neighbour, and columns of how the two contend.

Law 1: elementwise in float64, one cast to float32, no sum over an axis: the same bytes in any memory layout.
Law 2: swapping victim and neighbour swaps the two column blocks.
Missing facts stay NaN.

The encoder's fingerprint ties a model to the version and column names of the encoder that it was fitted with. A
column's name carries its unit or scale (`log_` natural logarithm, `_frac` share in [0, 1], `_s` seconds). Whoever
changes the meaning of a column raises `VERSION`.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.features import job
from interfere.records import JobProfile
from interfere.sharing_modes import SharingMode

VERSION = 2
# Columns of how two jobs contend, each a sum, excess (of the sum above 1), product or difference (victim's minus
# neighbour's) of a job column, or a formula of its own in `_contention`.
_CONTENTION: tuple[tuple[str, str, str], ...] = (
    ("busy_frac_sum", "sum", "busy_frac"),
    ("busy_frac_excess", "excess", "busy_frac"),  # demand of both beyond one whole device
    ("busy_frac_product", "product", "busy_frac"),
    ("fair_share_log_slowdown", "", ""),  # the victim's busy share stretched by the neighbour's presence
    ("log_step_time_ratio", "difference", "log_step_time_s"),
    ("log_busy_stretch_ratio", "difference", "log_busy_mean_s"),
    ("log_idle_to_busy_ratio", "", ""),  # below 0 where the neighbour's burst is longer than the victim's pause
    ("log_memory_sum_mib", "", ""),
    ("peak_bandwidth_frac_sum", "sum", "peak_bandwidth_frac"),
    ("peak_bandwidth_frac_excess", "excess", "peak_bandwidth_frac"),
    ("peak_flops_frac_sum", "sum", "peak_flops_frac"),
    ("memory_device_frac_sum", "sum", "memory_peak_device_frac"),
    ("gpu_util_sum", "sum", "gpu_util_frac"),
    ("gpu_util_excess", "excess", "gpu_util_frac"),
    ("gpu_util_product", "product", "gpu_util_frac"),
    ("memory_util_sum", "sum", "memory_util_frac"),
    ("memory_util_excess", "excess", "memory_util_frac"),
    ("sm_active_excess", "excess", "sm_active_frac"),
    ("dram_active_excess", "excess", "dram_active_frac"),
    ("log_static_step_ratio", "difference", "log_static_step_time_s"),
    ("static_busy_product", "product", "static_busy_frac"),
    ("roofline_log_slowdown", "", ""),  # log(max(1, demand of both on the busiest resource)): the analytic prior
)
CONTENTION_COLUMNS = tuple(name for name, _, _ in _CONTENTION)
# The job columns that contention is computed from, and the place of each in what `_contending_facts` returns.
_CONTENDING_COLUMNS = (
    *dict.fromkeys(fact for _, _, fact in _CONTENTION if fact),
    *("log_idle_mean_s", "log_memory_peak_mib"),
)
_BUSY, _IDLE, _BURST, _MEMORY, _BANDWIDTH, _FLOPS, _STATIC_BUSY = (
    _CONTENDING_COLUMNS.index(name)
    for name in (
        *("busy_frac", "log_idle_mean_s", "log_busy_mean_s", "log_memory_peak_mib"),
        *("peak_bandwidth_frac", "peak_flops_frac", "static_busy_frac"),
    )
)
_TERMS = tuple((name, how, _CONTENDING_COLUMNS.index(fact) if fact else -1) for name, how, fact in _CONTENTION)
_INDICES = np.array([job.COLUMNS.index(name) for name in _CONTENDING_COLUMNS])


def fingerprint(column_names: Sequence[str]) -> str:
    """Return 16 hexadecimal digits: a hash over the encoder's version and the column names in their order."""
    return hashlib.sha256("\n".join([f"interfere-features-{VERSION}", *column_names]).encode()).hexdigest()[:16]


class FeatureEncoder:
    """The encoder of jobs and pairs; implements `interfere.protocols.PairEncoder`.

    `visible_columns` limits the job columns that are filled; all others are NaN, as a source with fewer facts gives.
    """

    def __init__(self, *, visible_columns: frozenset[str] | None = None) -> None:
        self._hidden_columns = [
            k for k, name in enumerate(job.COLUMNS) if visible_columns is not None and name not in visible_columns
        ]

    @cached_property
    def job_names(self) -> tuple[str, ...]:
        """The names of the F columns of a job."""
        return job.COLUMNS

    @cached_property
    def pair_names(self) -> tuple[str, ...]:
        """The names of the f = 2F + 22 columns of a pair."""
        return (
            *(f"victim_{name}" for name in job.COLUMNS),
            *(f"neighbour_{name}" for name in job.COLUMNS),
            *CONTENTION_COLUMNS,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash over the encoder's version and the names of all pair columns."""
        return fingerprint(self.pair_names)

    def encode_jobs(self, profiles: Sequence[JobProfile], device_type: str, mode: SharingMode) -> NDArray[np.float32]:
        """Encode n profiles as if they ran on this device type and mode: float32[n, F]."""
        rows = [job.encode(profile, device_type, mode) for profile in profiles]
        encoded = np.array(rows, dtype=np.float32).reshape(len(rows), len(job.COLUMNS))
        encoded[:, self._hidden_columns] = np.nan
        return encoded

    def encode_pairs(self, victims: NDArray[np.float32], neighbours: NDArray[np.float32]) -> NDArray[np.float32]:
        """Encode p ordered pairs of encoded victims and neighbours, each float32[p, F], as float32[p, f].

        Raises InvalidInputError for other shapes.
        """
        width = len(job.COLUMNS)
        if victims.shape != neighbours.shape or victims.ndim != 2 or victims.shape[1] != width:
            raise InvalidInputError(
                "victims and neighbours must both be float32[p, F]",
                value=f"{victims.shape} and {neighbours.shape}, F = {width}",
                remedy="encode both with encode_jobs of this encoder",
            )
        out = np.empty((len(victims), 2 * width + len(CONTENTION_COLUMNS)), dtype=np.float32)
        out[:, :width], out[:, width : 2 * width] = victims, neighbours
        out[:, 2 * width :] = _contention(victims, neighbours).T
        return out


def _contending_facts(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return float64[c, p]: the c columns of p jobs from which contention is computed; each column is contiguous."""
    return np.asarray(rows.T[_INDICES].astype(np.float64, order="C"))


def _contention(victims: NDArray[np.float32], neighbours: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return float64[22, p]: the values of `CONTENTION_COLUMNS` for p ordered pairs."""
    victim, neighbour = _contending_facts(victims), _contending_facts(neighbours)
    total, product = victim + neighbour, victim * neighbour
    combined = {"sum": total, "product": product, "difference": victim - neighbour}
    combined["excess"] = np.maximum(0.0, total - 1.0)
    busiest_demand = np.fmax(np.fmax(total[_BANDWIDTH], total[_FLOPS]), total[_STATIC_BUSY])
    formulas = {
        "fair_share_log_slowdown": np.log1p(product[_BUSY]),
        "log_idle_to_busy_ratio": victim[_IDLE] - neighbour[_BURST],
        "log_memory_sum_mib": np.log1p(np.expm1(victim[_MEMORY]) + np.expm1(neighbour[_MEMORY])),
        "roofline_log_slowdown": np.log(np.maximum(1.0, busiest_demand)),
    }
    return np.array([combined[how][place] if how else formulas[name] for name, how, place in _TERMS])
