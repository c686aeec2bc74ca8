"""Makes profiles of static traces on a device type: the roofline's step time, kernel table, and memory by use.

Law 1: `attach_static` fills only facts that are absent, and `interfere.data.facts.without_static` is its exact inverse.
Law 2: a job without an entry in the catalogue keeps its NaN.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from interfere.data.facts import STATIC_FIELDS, STATIC_SUFFIX
from interfere.devices import find_device_type, has_peak_rates, require_peak_rates
from interfere.profiling.catalogue import find_factory
from interfere.profiling.static.roofline import compute_time_s, memory_time_s, operator_time_s
from interfere.profiling.static.trace import StaticTrace, trace_step
from interfere.profiling.static.traceable import Factory
from interfere.records import JobProfile, KernelStat


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedProfiles:
    """The result of `attach_static`."""

    jobs: tuple[JobProfile, ...]
    traced: tuple[str, ...]  # workloads with static facts
    unknown: tuple[str, ...]  # workloads without


def static_profile(trace: StaticTrace, workload: str, device: str) -> JobProfile:
    """Profile of a traced job on a device type, with nothing measured.

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
    """Give static facts to every job for which `lookup` knows a factory, on a device whose peak rates are known.

    A job that already has kernels or one of these facts keeps what it has: measured and traced facts are never mixed.
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
