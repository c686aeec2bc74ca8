"""The kernels of a job (operators, on a CPU): their mix, size and concentration, weighted by time."""

import math
from functools import lru_cache

from interfere.features.numeric import log1p, log_s, mean, quantile, ratio
from interfere.records import JobProfile, KernelStat

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

COLUMNS = (
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


@lru_cache(maxsize=10_000)  # the same names recur in most jobs
def kernel_family(name: str) -> str:
    """Return the family of a kernel or operator by its name; `other` where the name matches no known spelling."""
    lower = name.lower()
    return next((family for family, spellings in FAMILIES if any(part in lower for part in spellings)), "other")


def encode(profile: JobProfile) -> tuple[float, ...]:
    """Return mix, size and concentration of a job's kernels, in the order of `COLUMNS`; NaN without kernels."""
    if not profile.kernels:
        return (math.nan,) * len(COLUMNS)
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
