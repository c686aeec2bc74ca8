"""Makes profiles of static traces on a device type: the roofline's step time, kernel table, and memory by use.

Law 1: `attach_static` fills only facts that are absent, and `interfere.data.facts.without_static` is its exact inverse.
Law 2: a job without an entry in the catalogue keeps its NaN.

The roofline (Williams et al., CACM 2009) predicts the time of a traced operator on a device; nothing is fitted:

    t(op) = max(flops / (0.55 · peak · fill), bytes / (0.75 · bandwidth)) + 2 µs · serial launches
    fill  = min(1, blocks / multiprocessors)

Law: t(op) ≥ max(flops / peak, bytes / bandwidth).
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from interfere.data.facts import STATIC_FIELDS, STATIC_SUFFIX
from interfere.data.tables import add_profiles
from interfere.devices import DeviceType, find_device_type, has_peak_rates, require_peak_rates
from interfere.profiling.catalogue import find_factory
from interfere.profiling.measurement_log import lock_log
from interfere.profiling.static import Factory
from interfere.profiling.static.operator_costs import OperatorCost
from interfere.profiling.static.trace import StaticTrace, trace_step
from interfere.records import JobProfile, KernelStat

COMPUTE_SHARE = 0.55  # of the peak that library kernels reach; with it and the next, Gavel's jobs rank within .95-.98
BANDWIDTH_SHARE = 0.75  # of the bandwidth that a streaming kernel reaches (BabelStream on V100: 0.8-0.9)
LAUNCH_S = 2e-6  # shortest time between two kernels of one stream


def operator_time_s(cost: OperatorCost, device: DeviceType) -> float:
    """Return the seconds of one operator call on a device whose peak rates are known."""
    return max(compute_time_s(cost, device), memory_time_s(cost, device)) + LAUNCH_S * cost.serial


def compute_time_s(cost: OperatorCost, device: DeviceType) -> float:
    """Return the seconds that the arithmetic of an operator takes, without waiting for memory."""
    fill_frac = min(1.0, cost.blocks / device.multiprocessors)
    return cost.flops / (COMPUTE_SHARE * peak_flops(cost, device) * fill_frac)


def peak_flops(cost: OperatorCost, device: DeviceType) -> float:
    """Return the peak FLOP/s of a device for an operator: the widest unit for its precision, TF32 as in PyTorch's
    defaults."""
    if cost.half and cost.product:
        return device.half_flops
    return device.tf32_flops if cost.convolution and not math.isnan(device.tf32_flops) else device.peak_flops


def memory_time_s(cost: OperatorCost, device: DeviceType) -> float:
    """Return the seconds that the memory traffic of an operator takes, without waiting for arithmetic."""
    return cost.bytes / (BANDWIDTH_SHARE * device.memory_bandwidth_bytes_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedProfiles:
    """Profiles after static facts were added, and the workloads with and without such facts."""

    jobs: tuple[JobProfile, ...]
    traced: tuple[str, ...]  # workloads with static facts
    unknown: tuple[str, ...]  # workloads without


def static_profile(trace: StaticTrace, workload: str, device: str) -> JobProfile:
    """Return the profile of a traced job on a device type, with nothing measured.

    Raises NotFoundError for a device whose peak rates are unknown.
    """
    device_type = require_peak_rates(device)
    kernels = tuple(
        KernelStat(
            name=cost.name,
            mean_s=operator_time_s(cost, device_type),
            count=float(calls * trace.repeats),
            flops=cost.flops,
            bytes=cost.bytes,
            compute_bound=float(compute_time_s(cost, device_type) > memory_time_s(cost, device_type)),
        )
        for cost, calls in trace.calls
    )
    step_time_s = sum(kernel.mean_s * kernel.count for kernel in kernels)
    return JobProfile(
        workload=workload,
        device_type=device_type.name,
        step_time_s=step_time_s,
        source="static",
        flops_per_step=trace.flops,
        bytes_per_step=trace.bytes,
        memory_working_set_bytes=trace.touched_bytes,
        memory_model_bytes=trace.model_bytes,
        memory_activation_bytes=trace.activation_bytes,
        memory_gradient_bytes=trace.gradient_bytes,
        memory_optimizer_bytes=trace.optimizer_bytes,
        static_step_time_s=step_time_s,
        static_memory_peak_bytes=trace.peak_bytes,
        kernels=kernels,
    )


def attach_static(
    jobs: Sequence[JobProfile], *, lookup: Callable[[str], Factory | None] = find_factory
) -> AttachedProfiles:
    """Add static facts to every job for which `lookup` returns a factory, on device types with known peak rates.

    A job that already has kernels or static facts is left unchanged: measured and traced facts are never mixed.
    """
    traces: dict[str, StaticTrace | None] = {}

    def trace_of(workload: str) -> StaticTrace | None:
        if workload not in traces:
            factory = lookup(workload)
            traces[workload] = trace_step(factory, workload) if factory else None
        return traces[workload]

    profiles = []
    for job in jobs:
        can_be_timed = has_peak_rates(find_device_type(job.device_type))
        trace = trace_of(job.workload) if can_be_timed and _lacks_static_facts(job) else None
        if trace is None:
            profiles.append(job)
        else:
            profiles.append(_with_static_facts(job, static_profile(trace, job.workload, job.device_type)))
    traced = {job.workload for job in profiles if job.source.endswith(STATIC_SUFFIX)}
    return AttachedProfiles(
        jobs=tuple(profiles),
        traced=tuple(sorted(traced)),
        unknown=tuple(sorted({job.workload for job in jobs} - traced)),
    )


def _lacks_static_facts(job: JobProfile) -> bool:
    return not job.kernels and all(math.isnan(getattr(job, name)) for name in STATIC_FIELDS)


def _with_static_facts(job: JobProfile, static: JobProfile) -> JobProfile:
    facts = {name: getattr(static, name) for name in STATIC_FIELDS}
    return replace(job, source=job.source + STATIC_SUFFIX, kernels=static.kernels, **facts)


def add_static(folder: Path, static: JobProfile) -> JobProfile:
    """Write a static profile into the table in `folder`, which is made if needed. Return the job's combined profile.

    Raises UnfitError when another profiler works in the folder, and TableError for a table that cannot be read.
    """
    raw_folder = folder / "raw"  # only a campaign has one; made here, it would make an imported table look like one
    with lock_log(raw_folder) if raw_folder.is_dir() else nullcontext():
        table = add_profiles(folder, (static,))
    key = (static.workload, static.device_type)
    return next(job for job in table.jobs if (job.workload, job.device_type) == key)
