"""From a static trace and a device to a profile: the roofline's step time, kernel table and memory by phase.

Law 1: `attach_static` fills only what is absent, and `without_static` is its exact inverse.
Law 2: a job without an entry in the catalogue keeps its NaN.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interfere.devices import find_device_type, has_peak_rates, require_peak_rates
from interfere.profiling.catalogue import find
from interfere.profiling.static.roofline import compute_time_s, memory_time_s, op_time_s
from interfere.profiling.static.trace import StaticTrace, trace
from interfere.profiling.static.traceable import Factory
from interfere.records import NAN, JobProfile, KernelStat

MARK = "+static"  # ends the source of a profile that carries static facts beside measured ones
NUMBERS = (
    "flops_per_step",
    "bytes_per_step",
    "memory_working_set_bytes",
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_step_time_s",
    "static_memory_peak_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Profiles with static facts where there are any."""

    jobs: tuple[JobProfile, ...]
    traced: tuple[str, ...]  # workloads that gained them
    unknown: tuple[str, ...]  # workloads that did not


def static_profile(found: StaticTrace, workload: str, device: str) -> JobProfile:
    """Profile of a traced job on a device type, nothing measured. Raises NotFoundError for unknown ceilings."""
    where = require_peak_rates(device)
    kernels = tuple(
        KernelStat(
            name=cost.name,
            mean_s=op_time_s(cost, where),
            count=float(calls * found.repeats),
            flops=cost.flops,
            bytes=cost.bytes,
            compute_bound=float(compute_time_s(cost, where) > memory_time_s(cost, where)),
        )
        for cost, calls in found.calls
    )
    step_time_s = sum(kernel.mean_s * kernel.count for kernel in kernels)
    return JobProfile(
        workload=workload,
        device_type=where.name,
        step_time_s=step_time_s,
        source="static",
        flops_per_step=found.flops,
        bytes_per_step=found.bytes,
        memory_working_set_bytes=found.touched_bytes,
        memory_model_bytes=found.model_bytes,
        memory_activation_bytes=found.activation_bytes,
        memory_gradient_bytes=found.gradient_bytes,
        memory_optimizer_bytes=found.optimizer_bytes,
        static_step_time_s=step_time_s,
        static_memory_peak_bytes=found.peak_bytes,
        kernels=kernels,
    )


def attach_static(jobs: Sequence[JobProfile], *, lookup: Callable[[str], Factory | None] = find) -> Attached:
    """Give static facts to every job that `lookup` can trace, on a device whose ceilings are known.

    A job that has kernels or one of these facts already keeps what it has: measured facts are never mixed with traced.
    """
    traces: dict[str, StaticTrace | None] = {}

    def traced(workload: str) -> StaticTrace | None:
        if workload not in traces:
            factory = lookup(workload)
            traces[workload] = trace(factory, workload) if factory else None
        return traces[workload]

    made = []
    for job in jobs:
        known = has_peak_rates(find_device_type(job.device_type))
        found = traced(job.workload) if known and _lacks_static(job) else None
        made.append(job if found is None else _filled(job, static_profile(found, job.workload, job.device_type)))
    gained = {job.workload for job in made if job.source.endswith(MARK)}
    return Attached(
        jobs=tuple(made),
        traced=tuple(sorted(gained)),
        unknown=tuple(sorted({job.workload for job in jobs} - gained)),
    )


def merged(jobs: Sequence[JobProfile], static: JobProfile) -> JobProfile:
    """`static` as it belongs beside `jobs`: into the measured profile of the same key, else by itself.

    What a profiler measured is kept; of two static traces the newer counts.
    """
    key = (static.workload, static.device_type)
    measured = next((job for job in jobs if (job.workload, job.device_type) == key and job.source != "static"), None)
    if measured is None:
        return static
    bare = without_static(measured)
    return _filled(bare, static) if _lacks_static(bare) else measured


def without_static(job: JobProfile) -> JobProfile:
    """The profile as it was before `attach_static`."""
    if not job.source.endswith(MARK):
        return job
    absent: dict[str, Any] = dict.fromkeys(NUMBERS, NAN)
    return replace(job, source=job.source.removesuffix(MARK), kernels=(), **absent)


def _lacks_static(job: JobProfile) -> bool:
    return not job.kernels and all(math.isnan(getattr(job, name)) for name in NUMBERS)


def _filled(job: JobProfile, static: JobProfile) -> JobProfile:
    facts = {name: getattr(static, name) for name in NUMBERS}
    return replace(job, source=job.source + MARK, kernels=static.kernels, **facts)
