"""Measured slowdowns of a victim beside one or several neighbours, and the measurements behind them.

A profiler measures workloads alone, and blocks of pairs and groups. A block measures all jobs of a group alone and
together within a few seconds, in slices of a fraction of a second, so that slow changes of the machine affect both
sides of a slowdown equally. The fields of a block are the fields of a line in `raw/blocks.jsonl`.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from enum import StrEnum

from interfere.errors import Violation
from interfere.records.checks import (
    MAX_SLOWDOWN,
    METRICS,
    MIN_SLOWDOWN,
    NAN,
    check,
    is_name,
    label_violations,
    number_violations,
    refused,
    text_violations,
)
from interfere.records.documents import to_document
from interfere.records.record import optional_numbers, record
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, set_sharing_mode


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
    latency_p50_s: float = NAN  # of a service alone at its offered load, from arrival to answer; no feature reads it
    latency_p99_s: float = NAN
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


GANG_SUFFIX = "-gang"  # of the name of a workload that runs another one's step on two devices at once
IMPORTANT_VICTIM, IMPORTANT_NEIGHBOUR = IMPORTANT = ("victim", "neighbour")


class PairStatus(StrEnum):
    """The result of a measurement. `unstable` and `infeasible` rows are kept and never imputed."""

    OK = "ok"
    UNSTABLE = "unstable"
    INFEASIBLE = "infeasible"


@record
class PairMeasurement:
    """Measured slowdown of one victim beside one neighbour. A self pair is one row with both sides in `passes`."""

    victim: str
    neighbour: str
    device_type: str
    mode: SharingMode
    metric: str = "step_time_mean"
    slowdown: float = NAN  # geometric mean over passes; NaN unless status is ok
    lower: float = NAN  # 95 % interval of the mean
    upper: float = NAN
    passes: tuple[float, ...] = ()  # slowdown in each block of each pass
    status: PairStatus = PairStatus.OK
    reason: str = ""
    overlap_frac: float = NAN  # share of the victim's window in which the neighbour ran
    steal_frac: float = NAN  # share of wall time that third processes took
    source: str = "user"
    campaign: str = ""
    device_name: str = ""  # the very machine: processor or card
    measured_at_s: float = NAN  # unix time
    important: str = ""  # the job with priority: IMPORTANT_VICTIM or IMPORTANT_NEIGHBOUR; empty: neither

    def __post_init__(self) -> None:
        bad = text_violations(self, "neighbour") + _measurement_violations(self)
        if self.important not in ("", *IMPORTANT):
            bad.append(
                refused(self, "important", "must say who had priority", f"one of {', '.join(IMPORTANT)}, or empty")
            )
        check(bad)

    @property
    def feasible(self) -> bool:
        """False only where the pair cannot share the device at all."""
        return self.status is not PairStatus.INFEASIBLE


MIN_COMPANY = 2  # jobs beside the victim: one alone makes a pair


@record
class GroupMeasurement:
    """The measured slowdown of one victim beside two or more neighbours on the same device.

    A group of k jobs has one row for each of its distinct workloads. The company of a row are the other k - 1 jobs.
    Where several jobs run the victim's workload, its row holds the slowdowns of all of them, block after block.

    >>> from interfere.records import GroupMeasurement
    >>> row = GroupMeasurement(victim="a", company=("a", "b"), device_type="v100", mode="mps", slowdown=2.5)
    >>> row.members, row.copies
    (('a', 'a', 'b'), 2)
    """

    victim: str
    company: tuple[str, ...]  # the other jobs, sorted, a workload as often as it runs beside the victim
    device_type: str
    mode: SharingMode
    metric: str = "step_time_mean"
    slowdown: float = NAN  # geometric mean over passes; NaN unless status is ok
    lower: float = NAN  # 95 % interval of the mean
    upper: float = NAN
    passes: tuple[float, ...] = ()  # slowdown of each copy of the victim in each block
    status: PairStatus = PairStatus.OK
    reason: str = ""
    overlap_frac: float = NAN  # share of the victim's window in which all of its company ran
    steal_frac: float = NAN  # share of wall time that third processes took
    source: str = "user"
    campaign: str = ""
    device_name: str = ""  # the very machine: processor or card
    measured_at_s: float = NAN  # unix time

    def __post_init__(self) -> None:
        check(_company_violations(self) + _measurement_violations(self))

    @property
    def members(self) -> tuple[str, ...]:
        """All jobs of the group, sorted. The rows of one group have equal members."""
        return tuple(sorted((self.victim, *self.company)))

    @property
    def copies(self) -> int:
        """The number of jobs in the group that run the victim's workload, the victim included."""
        return 1 + self.company.count(self.victim)

    @property
    def feasible(self) -> bool:
        """False only where the group cannot share the device at all."""
        return self.status is not PairStatus.INFEASIBLE


def _company_violations(row: GroupMeasurement) -> list[Violation]:
    """Return the violations of a company, which must be a sorted tuple of two or more names."""
    bad = []
    if len(row.company) < MIN_COMPANY:
        what = f"must hold at least {MIN_COMPANY} jobs"
        bad.append(refused(row, "company", what, "a victim with one neighbour is a pair"))
    if not all(map(is_name, row.company)):
        return [*bad, refused(row, "company", "must hold printable names", "1-256 characters")]
    if list(row.company) != sorted(row.company):
        bad.append(refused(row, "company", "must be sorted", "sort the names"))
    return bad


def _measurement_violations(row: PairMeasurement | GroupMeasurement) -> list[Violation]:
    """Return the violations of a measured slowdown that do not depend on the victim's neighbours."""
    bad = text_violations(row, "victim", "device_type", "source") + set_sharing_mode(row)
    if row.metric not in METRICS:
        bad.append(refused(row, "metric", "unknown metric", f"one of {', '.join(METRICS)}"))
    if row.status is PairStatus.OK and not MIN_SLOWDOWN <= row.slowdown <= MAX_SLOWDOWN:
        what = f"must lie in [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}] when status is ok"
        bad.append(refused(row, "slowdown", what, "mark the row unstable or infeasible with its reason"))
    if row.status is not PairStatus.OK and not row.reason:
        bad.append(refused(row, "reason", "a row that is not ok needs its reason", "say why"))
    return bad


# --- what a profiler measures -----------------------------------------------------------------------------------------

WorkloadPair = tuple[str, str]  # names of two workloads
WorkloadGroup = tuple[str, ...]  # names of two or more workloads, one as often as it takes part


@record
class SoloMeasurement:
    """The profile of one workload, and the share of the core that third processes took meanwhile (NaN: unknown)."""

    profile: JobProfile
    steal_frac: float


@record
class SideSlice:
    """The measurement of one job in one slice, over whole steps.

    Its wall time is the sum of its pauses, its CPU time, and its waiting for the core.
    """

    alone: bool
    start_s: float  # since the start of the block
    steps: int
    wall_s: float
    paused_s: float  # the job waited of its own accord
    cpu_s: float  # NaN where the device is no CPU core
    taken_s: float  # of the waiting, what third processes caused
    clock_before: float  # CPU seconds of a fixed piece of work on the same core before the slice; NaN: not measured
    clock_after: float
    overlap_s: float  # of the wall time, how long the loops of all other jobs ran
    latencies_s: tuple[float, ...] = ()  # of a service, from arrival to answer, of the requests that arrived in it
    ttft_s: tuple[float, ...] = ()  # of these, where tokens are generated: time to first token, from arrival
    tpot_s: tuple[float, ...] = ()  # time per output token after the first
    counted: bool = True  # False: more disturbed than the others


@record
class BlockSide:
    """The measurement of one job in one block: sums over the valid slices, for the job alone and for the job beside its
    neighbours.

    Wall times leave out the time that third processes took, and are scaled to the usual clock of the core.
    """

    workload: str
    steps_alone: int
    wall_alone_s: float
    cpu_alone_s: float
    steps_shared: int
    wall_shared_s: float
    cpu_shared_s: float
    slices_counted: int  # of `slices`; the others were disturbed
    log_error: float  # standard error of the logarithm of the slowdown
    overlap_frac: float  # share of the shared time in which the others' loops ran: of several, the least
    slices: tuple[SideSlice, ...] = ()

    @property
    def slowdown(self) -> float:
        """The step time with neighbours divided by the step time alone; NaN where no slice held a whole step."""
        if not (self.steps_alone and self.steps_shared):
            return math.nan
        return (self.wall_shared_s / self.steps_shared) / (self.wall_alone_s / self.steps_alone)


@record
class MeasuredBlock:
    """One measured block of a pair or a group. `reason` is set only where its slowdowns are invalid.

    In a mode that orders jobs (`priority`) the first side is the important job.
    """

    pass_index: int
    attempt: int
    started_at_s: float  # unix time
    window_s: float  # of each slice in which one job runs alone
    sides: tuple[BlockSide, ...]  # one of each job of the group
    steal_frac: float  # share of the time in which third processes had the core while a job of the group wanted it
    drift_frac: float  # slowest over fastest clock of the core, less one
    reason: str
    mode: SharingMode = DEFAULT_MODE

    def __post_init__(self) -> None:
        check(set_sharing_mode(self))

    @property
    def key(self) -> WorkloadGroup:
        """The names of the jobs in sorted order; in a mode that orders jobs, the important one first."""
        return group_key((side.workload for side in self.sides), self.mode)

    @property
    def accepted(self) -> bool:
        """Whether the slowdowns of the block have a meaning."""
        return not self.reason


def group_key(members: Iterable[str], mode: SharingMode = DEFAULT_MODE) -> WorkloadGroup:
    """Return the jobs of a group in sorted order, so that equal groups have equal keys.

    In a mode that orders jobs the given order is kept, because the first job is the important one.
    """
    return tuple(members) if mode.properties.orders_jobs else tuple(sorted(members))


@record
class BlockRequest:
    """The next block to measure: its group, pass and attempt, and the earlier measurements of the group."""

    members: WorkloadGroup  # in the order in which the jobs are started
    pass_index: int
    attempt: int = 0  # 0, then one more for each block of this group and pass that was rejected
    earlier: tuple[MeasuredBlock, ...] = ()  # of the same group, from which a profiler may learn how long to measure
