"""The row of one job: activity, kernels, occupancy, counters, memory, roofline on its device, sharing mode.

Every group of columns is a function from a profile and a device type to the values of the group's columns; a fact that
the profile lacks is NaN. On a GPU the busy and idle stretches of a job are kernel times and the gaps between kernels;
on one CPU core they are bursts and pauses. The roofline is that of Williams et al., CACM 2009; rates are over the whole
step, pauses included.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from interfere.devices import DeviceType, find_device_type
from interfere.records import COUNTERS, JobProfile, KernelStat
from interfere.sharing_modes import SharingMode

MIN_DURATION_S = 1e-6  # shorter stretches are scheduler noise; the floor also keeps logarithms finite
LONG_GAP_S = 100e-6  # a gap of this length has room for a kernel of another job
MIB, GIGA = float(2**20), 1e9
# First match wins; substrings of lower-case kernel and operator names as CUDA libraries and ATen spell them.
FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("memcpy", ("memcpy", "memset", "copy_", "::to", "contiguous", "clone", "::cat")),
    ("attention", ("attention", "flash", "fmha", "softmax")),
    ("rnn", ("lstm", "gru", "rnn")),
    ("conv", ("conv", "winograd", "implicit")),
    ("gemm", ("gemm", "::mm", "addmm", "bmm", "matmul", "linear", "cutlass", "cublas", "dot")),
    ("optimizer", ("adam", "sgd", "foreach", "addcdiv", "addcmul", "optimizer")),
    ("norm", ("norm",)),
    ("embedding", ("embedding", "gather", "index", "scatter", "take")),
    ("reduce", ("reduce", "sum", "mean", "max", "min", "sort", "topk", "cumsum")),
    (
        "elementwise",
        (
            *("elementwise", "add", "mul", "div", "sub", "relu", "gelu", "tanh", "sigmoid", "exp"),
            *("fill", "threshold", "dropout", "silu", "swish", "where", "sqrt", "pow"),
        ),
    ),
)

_ACTIVITY = (
    "log_step_time_s",
    "step_time_cv",
    "busy_frac",
    "log_busy_mean_s",
    "log_busy_p10_s",
    "log_busy_p50_s",
    "log_busy_p90_s",
    "log_busy_p99_s",
    "log_idle_mean_s",
    "log_idle_p50_s",
    "log_idle_p90_s",
    "log_idle_p99_s",
    "long_gap_frac",
    "log_stretches_per_s",
)
_KERNELS = (
    *(f"{family}_time_frac" for family, _ in FAMILIES),
    "top1_time_frac",
    "top5_time_frac",
    "log_distinct_kernels",
    "log_kernels_per_step",
    "log_launches_per_s",
    "log_kernel_mean_s",
    "log_kernel_sd_s",  # between kernels, by launches
    "log_kernel_p10_s",
    "log_kernel_p50_s",
    "log_kernel_p90_s",
    "log_kernel_p99_s",
    "kernel_cv",  # between launches of one kernel, weighted by time
    "log_kernel_gap_mean_s",
)
_OCCUPANCY = (
    "occupancy_time_frac",
    "sm_fill_time_frac",  # min(1, multiprocessors used / multiprocessors of the device)
    "compute_throughput_time_frac",
    "memory_throughput_time_frac",
    "compute_bound_time_frac",
)
_MEMORY = (
    "log_memory_peak_mib",
    "log_working_set_mib",
    "log_memory_model_mib",
    "log_memory_gradient_mib",
    "log_memory_optimizer_mib",
    "log_memory_activation_mib",
    "memory_peak_device_frac",
)
_ROOFLINE = (
    "log_gflop_per_s",
    "log_gbyte_per_s",
    "log_flop_per_byte",
    "peak_flops_frac",
    "peak_bandwidth_frac",
    "device_log_peak_gflop_per_s",
    "device_log_bandwidth_gbyte_per_s",
    "log_static_step_time_s",
    "log_step_over_static",  # measured step time ÷ the time that the operators need by the roofline
    "static_busy_frac",  # its reciprocal as a share, at most 1
)


def _activity(profile: JobProfile, _device: DeviceType) -> tuple[float, ...]:
    """Return how a job uses its device over time, in the order of `_ACTIVITY`; NaN where it has no timeline."""
    busy, idle = sorted(profile.busy_s), sorted(profile.idle_s)
    span_s = math.fsum(busy) + math.fsum(idle)
    busy_frac = profile.busy_frac
    if math.isnan(busy_frac) and span_s > 0:
        busy_frac = math.fsum(busy) / span_s
    long_gaps_s = math.fsum(gap_s for gap_s in idle if gap_s > LONG_GAP_S)
    return (
        log_s(profile.step_time_s),
        ratio(profile.step_time_sd_s, profile.step_time_s),
        busy_frac,
        log_s(mean(busy)),
        *(log_s(quantile(busy, q)) for q in (0.1, 0.5, 0.9, 0.99)),
        log_s(mean(idle)),
        *(log_s(quantile(idle, q)) for q in (0.5, 0.9, 0.99)),
        ratio(long_gaps_s, span_s),
        -log_s(ratio(span_s, float(len(busy)))),
    )


@lru_cache(maxsize=10_000)  # the same names recur in most jobs
def kernel_family(name: str) -> str:
    """Return the family of a kernel or operator by its name; `other` where the name matches no known spelling."""
    lower = name.lower()
    return next((family for family, spellings in FAMILIES if any(part in lower for part in spellings)), "other")


def _kernels(profile: JobProfile, _device: DeviceType) -> tuple[float, ...]:
    """Return mix, size and concentration of a job's kernels, in the order of `_KERNELS`; NaN without kernels."""
    if not profile.kernels:
        return (math.nan,) * len(_KERNELS)
    kernel_times_s = [k.mean_s * k.count for k in profile.kernels]
    total_s = math.fsum(kernel_times_s)
    launches = math.fsum(k.count for k in profile.kernels)
    descending_s = sorted(kernel_times_s, reverse=True)
    family_times_s: dict[str, list[float]] = {}
    for kernel, time_s in zip(profile.kernels, kernel_times_s, strict=True):
        family_times_s.setdefault(kernel_family(kernel.name), []).append(time_s)
    family_shares = [ratio(math.fsum(family_times_s.get(family, ())), total_s) for family, _ in FAMILIES]
    return (
        *family_shares,
        ratio(descending_s[0], total_s),
        ratio(math.fsum(descending_s[:5]), total_s),
        log1p(float(len(profile.kernels))),
        log1p(launches),
        log1p(ratio(launches, profile.step_time_s)),
        log_s(ratio(total_s, launches)),
        log_s(_duration_sd_s(profile.kernels, ratio(total_s, launches), launches)),
        *(log_s(quantile(sorted(k.mean_s for k in profile.kernels), q)) for q in (0.1, 0.5, 0.9, 0.99)),
        _launch_cv(profile.kernels),
        log_s(_mean_gap_s(profile.kernels)),
    )


def _duration_sd_s(kernels: tuple[KernelStat, ...], mean_s: float, launches: float) -> float:
    """Return the standard deviation of the kernels' mean durations, each weighted by its number of launches."""
    return math.sqrt(ratio(math.fsum(k.count * (k.mean_s - mean_s) ** 2 for k in kernels), launches))


def _launch_cv(kernels: tuple[KernelStat, ...]) -> float:
    """Return the coefficient of variation between launches of the same kernel, weighted by time."""
    repeated = [k for k in kernels if k.mean_s > 0 and not math.isnan(k.sd_s)]
    return ratio(math.fsum(k.count * k.sd_s for k in repeated), math.fsum(k.count * k.mean_s for k in repeated))


def _mean_gap_s(kernels: tuple[KernelStat, ...]) -> float:
    """Return the mean idle time after a kernel in seconds, over all kernels whose gap is known."""
    return mean([k.gap_s for k in kernels if not math.isnan(k.gap_s)])


def _occupancy(profile: JobProfile, device: DeviceType) -> tuple[float, ...]:
    """Return how far a job's kernels fill a device, in the order of `_OCCUPANCY`; NaN where no kernel has the fact."""
    return (
        _time_mean(profile, lambda k: k.occupancy_frac),
        _time_mean(
            profile, lambda k: min(1.0, ratio(k.sm_used, device.multiprocessors)) if k.sm_used >= 0 else math.nan
        ),
        _time_mean(profile, lambda k: k.compute_frac),
        _time_mean(profile, lambda k: k.memory_frac),
        _time_mean(profile, lambda k: k.compute_bound),
    )


def _time_mean(profile: JobProfile, fact: Callable[[KernelStat], float]) -> float:
    """Return the mean of a fact over the kernels that have it, weighted by the time spent in each."""
    weighted = [(k.mean_s * k.count, value) for k in profile.kernels if not math.isnan(value := fact(k))]
    return ratio(math.fsum(time_s * value for time_s, value in weighted), math.fsum(time_s for time_s, _ in weighted))


def _counters(profile: JobProfile, _device: DeviceType) -> tuple[float, ...]:
    """Return the monitoring counters of a job alone: utilisation shares and power."""
    return (*(getattr(profile, name) for name in COUNTERS), log1p(profile.power_w))


def _memory(profile: JobProfile, device: DeviceType) -> tuple[float, ...]:
    """Return the memory that a job holds, in the order of `_MEMORY`; NaN for sizes that its profile lacks."""
    peak_bytes = profile.expected_peak_bytes
    sizes_bytes = (
        peak_bytes,
        profile.memory_working_set_bytes,
        profile.memory_model_bytes,
        profile.memory_gradient_bytes,
        profile.memory_optimizer_bytes,
        profile.memory_activation_bytes,
    )
    return (
        *(log1p(size_bytes / MIB) for size_bytes in sizes_bytes),
        ratio(peak_bytes, device.memory_bytes),
    )


def _roofline(profile: JobProfile, device: DeviceType) -> tuple[float, ...]:
    """Return a job's rates and its shares of a device's peaks, in the order of `_ROOFLINE`."""
    flops_per_s = ratio(profile.flops_per_step, profile.step_time_s)
    bytes_per_s = ratio(profile.bytes_per_step, profile.step_time_s)
    return (
        log1p(flops_per_s / GIGA),
        log1p(bytes_per_s / GIGA),
        log1p(ratio(profile.flops_per_step, profile.bytes_per_step)),
        ratio(flops_per_s, device.peak_flops),
        ratio(bytes_per_s, device.memory_bandwidth_bytes_s),
        log1p(device.peak_flops / GIGA),
        log1p(device.memory_bandwidth_bytes_s / GIGA),
        log_s(profile.static_step_time_s),
        log_s(profile.step_time_s) - log_s(profile.static_step_time_s),
        min(1.0, busy) if (busy := ratio(profile.static_step_time_s, profile.step_time_s)) >= 0 else math.nan,
    )


Encoder = Callable[[JobProfile, DeviceType], tuple[float, ...]]
FACT_GROUPS: dict[str, tuple[tuple[str, ...], Encoder]] = {
    "activity": (_ACTIVITY, _activity),
    "kernels": (_KERNELS, _kernels),
    "occupancy": (_OCCUPANCY, _occupancy),
    "counters": ((*COUNTERS, "log_power_w"), _counters),
    "memory": (_MEMORY, _memory),
    "roofline": (_ROOFLINE, _roofline),
}
"""The groups of columns, in the order of the row: the names of the columns and the function that fills them."""
# The columns of sharing modes belong to the fingerprint, which models are trained with. A mode that was added later has
# zeros in all of them: a code of its own as long as there is one such mode, now `spatial`.
ENCODED_MODES = tuple(mode for mode in SharingMode if mode.properties.has_model_column)
_MODES = tuple(f"mode_{mode}" for mode in ENCODED_MODES)
COLUMNS: tuple[str, ...] = (*(name for names, _ in FACT_GROUPS.values() for name in names), *_MODES)
# Columns that a site can fill without profiling: step times and monitoring. No kernels, no FLOPs, no static trace.
UTILISATION_COLUMNS = frozenset(
    (
        *("log_step_time_s", "step_time_cv", "log_memory_peak_mib", "memory_peak_device_frac"),
        *FACT_GROUPS["counters"][0],
        *_MODES,
    )
)


def encode(profile: JobProfile, device_type: str, mode: SharingMode) -> NDArray[np.float32]:
    """Encode a profile as if it ran on this device type and mode: float32[F], the values of `COLUMNS`.

    All values are computed in float64 and cast once, at the end. Absent facts are NaN.
    """
    device = find_device_type(device_type)
    values = [value for _, encode_group in FACT_GROUPS.values() for value in encode_group(profile, device)]
    values += [float(mode == sharing_mode) for sharing_mode in ENCODED_MODES]
    return np.array(values, dtype=np.float64).astype(np.float32)


# --- numbers in which an absent fact (NaN) stays absent ---------------------------------------------------------------


def log_s(seconds: float) -> float:
    """Return the natural logarithm of a duration of at least `MIN_DURATION_S`; NaN stays NaN."""
    return math.log(max(seconds, MIN_DURATION_S)) if not math.isnan(seconds) else math.nan


def log1p(value: float) -> float:
    """Return log(1 + x) of a non-negative count or rate; NaN stays NaN."""
    return math.log1p(value) if not math.isnan(value) else math.nan


def mean(values: Sequence[float]) -> float:
    """Return the exactly rounded mean, independent of the order of the values; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return a quantile of ascending values by linear interpolation; NaN for no values."""
    if not ordered:
        return math.nan
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def ratio(numerator: float, denominator: float) -> float:
    """Return numerator / denominator; NaN where the denominator is 0 or either is NaN."""
    return numerator / denominator if denominator and not math.isnan(denominator) else math.nan
