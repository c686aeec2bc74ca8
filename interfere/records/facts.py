"""Measured facts of jobs alone: kernels and profiles. No derived features."""

import hashlib
import json
import math

from interfere.records.checks import NAN, check, label_violations, number_violations, refused, text_violations
from interfere.records.documents import to_document
from interfere.records.record import optional_numbers, record


@record
class KernelStat:
    """One kernel identity (name, grid, block) of a job alone: FIKIT's SK and SG tables, one row.

    On a CPU the "kernels" are the operators of the profiler, without grid and block.

    >>> from interfere import KernelStat
    >>> KernelStat(name="gemm", mean_s=30e-6, count=10).gap_s
    nan
    """

    name: str
    mean_s: float  # SK: mean run time
    gap_s: float = NAN  # SG: mean idle time until the next kernel
    count: float = 1.0  # launches per step
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    sd_s: float = NAN  # spread of the run time between launches
    flops: float = NAN  # of one launch
    bytes: float = NAN  # device memory traffic of one launch
    sm_used: float = NAN  # multiprocessors that one launch fills
    occupancy_frac: float = NAN  # achieved warps over the most a multiprocessor holds
    compute_frac: float = NAN  # throughput of the busiest compute pipe over its peak
    memory_frac: float = NAN  # throughput of device memory over its peak
    compute_bound: float = NAN  # 1 compute-bound, 0 memory-bound, as classed by the profiler

    def __post_init__(self) -> None:
        bad = text_violations(self, "name") + number_violations(self, "mean_s", "count", nan=False)
        check(bad + number_violations(self, *_KERNEL_NUMBERS))


_KERNEL_NUMBERS = optional_numbers(KernelStat)
# Shares in [0, 1] that a monitoring system reports of a job alone.
COUNTERS = (
    "gpu_util_frac",
    "memory_util_frac",
    "sm_active_frac",
    "sm_occupancy_frac",
    "tensor_active_frac",
    "dram_active_frac",
)


@record(weakref_slot=True)  # caches must not keep profiles alive
class JobProfile:
    """The facts about one workload alone on one device type. It holds facts only, no derived features.

    >>> from interfere import JobProfile, KernelStat
    >>> kernels = (KernelStat(name="gemm", mean_s=30e-6, count=10), KernelStat(name="relu", mean_s=3e-6, count=20))
    >>> profile = JobProfile(workload="net", device_type="v100", step_time_s=1e-3, kernels=kernels)
    >>> profile.kernels[0]
    KernelStat(name='gemm', mean_s=3e-05, count=10)
    """

    workload: str
    device_type: str
    step_time_s: float  # mean time of one step (or request) alone; NaN where only the device was watched
    source: str = "user"  # cpu, cuda, static, gavel, ...
    step_time_sd_s: float = NAN  # between blocks
    busy_frac: float = NAN  # share of wall time on the device
    busy_s: tuple[float, ...] = ()  # consecutive busy stretches, a sample of the timeline
    idle_s: tuple[float, ...] = ()  # the idle stretch after each busy one
    flops_per_step: float = NAN
    bytes_per_step: float = NAN  # memory traffic, as declared or counted from operand shapes
    memory_peak_bytes: float = NAN
    memory_working_set_bytes: float = NAN
    kernels: tuple[KernelStat, ...] = ()
    memory_model_bytes: float = NAN  # parameters and buffers
    memory_activation_bytes: float = NAN  # most of them alive at once
    memory_gradient_bytes: float = NAN
    memory_optimizer_bytes: float = NAN
    static_step_time_s: float = NAN  # what a static trace expects on this device type, nothing run
    static_memory_peak_bytes: float = NAN  # the same trace's peak: without context and workspaces
    gpu_util_frac: float = NAN  # share of time in which any kernel ran (NVML utilization.gpu)
    memory_util_frac: float = NAN  # share of time in which device memory was read or written (NVML utilization.memory)
    sm_active_frac: float = NAN  # a warp resident, mean over time and multiprocessors (DCGM SM active)
    sm_occupancy_frac: float = NAN  # resident warps over the most possible (DCGM SM occupancy)
    tensor_active_frac: float = NAN  # tensor cores busy (DCGM tensor active)
    dram_active_frac: float = NAN  # device memory interface busy (DCGM DRAM active)
    power_w: float = NAN  # mean draw of the device
    family: str = ""  # the architecture, where the source names one: splits hold families out, no feature reads it
    measured_at_s: float = NAN  # unix time of the newest measurement in it; no feature reads it

    def __post_init__(self) -> None:
        bad = text_violations(self, "workload", "device_type", "source")
        bad += number_violations(self, "step_time_s", low=1e-9)
        bad += number_violations(self, *_PROFILE_NUMBERS) + label_violations(self, "family")
        for name in ("busy_s", "idle_s"):
            if not all(math.isfinite(v) and v >= 0 for v in getattr(self, name)):
                bad.append(refused(self, name, "must hold finite seconds ≥ 0", "drop it", value="a bad entry"))
        if len(self.busy_s) != len(self.idle_s):
            value, remedy = f"{len(self.idle_s)} ≠ {len(self.busy_s)}", "send one after each busy stretch (0 for none)"
            bad.append(refused(self, "idle_s", "must be as long as busy_s", remedy, value=value))
        check(bad)

    @property
    def expected_peak_bytes(self) -> float:
        """The measured peak, else the peak that a static trace expects, else NaN."""
        return self.static_memory_peak_bytes if math.isnan(self.memory_peak_bytes) else self.memory_peak_bytes

    @property
    def profile_id(self) -> str:
        """Hash of the facts that are known. Equal facts have equal ids, also under a later release with more kinds
        of facts."""
        facts = {name: fact for name, fact in to_document(self, present_only=True).items() if fact is not None}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


_PROFILE_NUMBERS = optional_numbers(JobProfile)
