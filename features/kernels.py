"""What a job runs: the mix, size and concentration of its kernels (operators, on a CPU), weighted by time."""

import math
from functools import lru_cache

from features.spec import log1p, log_s, mean, quantile, ratio
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
            "elementwise",
            "add",
            "mul",
            "div",
            "sub",
            "relu",
            "gelu",
            "tanh",
            "sigmoid",
            "exp",
            "fill",
            "threshold",
            "dropout",
            "silu",
            "swish",
            "where",
            "sqrt",
            "pow",
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


@lru_cache(maxsize=10_000)  # names repeat, over jobs above all
def family(name: str) -> str:
    """Family of a kernel or operator name; `other` when no spelling is known."""
    lower = name.lower()
    return next((fam for fam, marks in FAMILIES if any(mark in lower for mark in marks)), "other")


def encode(profile: JobProfile) -> tuple[float, ...]:
    """Values of `COLUMNS`; all NaN without a kernel table."""
    if not profile.kernels:
        return (math.nan,) * len(COLUMNS)
    weight_s = [k.mean_s * k.count for k in profile.kernels]
    total_s = math.fsum(weight_s)
    launches = math.fsum(k.count for k in profile.kernels)
    ordered = sorted(weight_s, reverse=True)
    of_family: dict[str, list[float]] = {}
    for kernel, weight in zip(profile.kernels, weight_s, strict=True):
        of_family.setdefault(family(kernel.name), []).append(weight)
    shares = [ratio(math.fsum(of_family.get(fam, ())), total_s) for fam, _ in FAMILIES]
    return (
        *shares,
        ratio(ordered[0], total_s),
        ratio(math.fsum(ordered[:5]), total_s),
        log1p(float(len(profile.kernels))),
        log1p(launches),
        log1p(ratio(launches, profile.step_time_s)),
        log_s(ratio(total_s, launches)),
        log_s(_spread(profile.kernels, ratio(total_s, launches), launches)),
        *(log_s(quantile(sorted(k.mean_s for k in profile.kernels), q)) for q in (0.1, 0.5, 0.9, 0.99)),
        _cv(profile.kernels),
        log_s(_gap(profile.kernels)),
    )


def _spread(kernels: tuple[KernelStat, ...], mean_s: float, launches: float) -> float:
    return math.sqrt(ratio(math.fsum(k.count * (k.mean_s - mean_s) ** 2 for k in kernels), launches))


def _cv(kernels: tuple[KernelStat, ...]) -> float:
    known = [k for k in kernels if k.mean_s > 0 and not math.isnan(k.sd_s)]
    return ratio(math.fsum(k.count * k.sd_s for k in known), math.fsum(k.count * k.mean_s for k in known))


def _gap(kernels: tuple[KernelStat, ...]) -> float:
    return mean([k.gap_s for k in kernels if not math.isnan(k.gap_s)])
