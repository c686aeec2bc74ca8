"""Converters of profiles with their kernel tables, of references to jobs, and of profile summaries."""

from interfere.errors import InvalidInputError, Violation
from interfere.records import COUNTERS, NAN, JobProfile, KernelStat
from interfere.v1 import policy_pb2 as pb
from interfere.wire.messages import JobRef, ProfileSummary
from interfere.wire.scalars import Inspection, number, numbers, set_numbers

_OPTIONAL = (
    "step_time_s",
    "step_time_sd_s",
    "busy_frac",
    "flops_per_step",
    "bytes_per_step",
    "memory_peak_bytes",
    "memory_working_set_bytes",
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_step_time_s",
    "static_memory_peak_bytes",
    *COUNTERS,
    "power_w",
    "measured_at_s",
)
_KERNEL_OPTIONAL = (
    "gap_s",
    "sd_s",
    "flops",
    "bytes",
    "sm_used",
    "occupancy_frac",
    "compute_frac",
    "memory_frac",
    "compute_bound",
)


def kernel_to_proto(kernel: KernelStat) -> pb.KernelStat:
    """One kernel identity with its statistics."""
    message = pb.KernelStat(name=kernel.name, mean_s=kernel.mean_s, grid=kernel.grid, block=kernel.block)
    set_numbers(message, kernel, "count", *_KERNEL_OPTIONAL)
    return message


def kernel_from_proto(message: pb.KernelStat) -> KernelStat:
    """One kernel identity; raises InvalidInputError."""
    return KernelStat(
        name=message.name,
        mean_s=message.mean_s,
        count=number(message, "count", 1.0),
        grid=tuple(message.grid),
        block=tuple(message.block),
        **numbers(message, *_KERNEL_OPTIONAL),
    )


def profile_to_proto(profile: JobProfile) -> pb.JobProfile:
    """All facts of one profile."""
    message = pb.JobProfile(
        workload=profile.workload,
        device_type=profile.device_type,
        source=profile.source,
        family=profile.family,
        busy_s=profile.busy_s,
        idle_s=profile.idle_s,
        kernels=[kernel_to_proto(kernel) for kernel in profile.kernels],
    )
    set_numbers(message, profile, *_OPTIONAL)
    return message


def profile_from_proto(message: pb.JobProfile) -> JobProfile:
    """All facts of one profile; raises InvalidInputError with every broken rule."""
    inspection = Inspection()
    kernels = inspection.read_all("kernels", message.kernels, kernel_from_proto)
    optional = inspection.read("", lambda: numbers(message, *_OPTIONAL)) or dict.fromkeys(_OPTIONAL, NAN)
    profile = inspection.read(
        "",
        lambda: JobProfile(
            workload=message.workload,
            device_type=message.device_type,
            source=message.source or "user",
            family=message.family,
            busy_s=tuple(message.busy_s),
            idle_s=tuple(message.idle_s),
            kernels=kernels,
            **optional,
        ),
    )
    inspection.done()
    assert profile is not None
    return profile


def ref_to_proto(ref: JobRef) -> pb.JobRef:
    """A reference to a job."""
    if ref.profile is not None:
        return pb.JobRef(profile=profile_to_proto(ref.profile))
    return pb.JobRef(workload=ref.workload) if ref.workload else pb.JobRef(profile_id=ref.profile_id)


def ref_from_proto(message: pb.JobRef) -> JobRef:
    """A reference to a job; raises InvalidInputError."""
    if message.WhichOneof("job") == "profile":
        inspection = Inspection()
        profile = inspection.read("profile", lambda: profile_from_proto(message.profile))
        inspection.done()
        return JobRef(profile=profile)
    return JobRef(workload=_printable("workload", message), profile_id=_printable("profile_id", message))


def _printable(name: str, message: pb.JobRef) -> str:
    value = str(getattr(message, name))
    if len(value) > 256 or not value.isprintable():
        raise InvalidInputError.from_violations(
            [Violation(field=name, what="must be a printable name", value=repr(value[:40]), remedy="1-256 characters")]
        )
    return value


def summary_to_proto(summary: ProfileSummary) -> pb.ProfileSummary:
    """A summary of one profile."""
    message = pb.ProfileSummary(
        profile_id=summary.profile_id,
        workload=summary.workload,
        device_type=summary.device_type,
        source=summary.source,
        newest=summary.newest,
        registered=summary.registered,
        problem=summary.problem,
    )
    set_numbers(message, summary, "step_time_s")
    return message


def summary_from_proto(message: pb.ProfileSummary) -> ProfileSummary:
    """A summary of one profile."""
    return ProfileSummary(
        profile_id=message.profile_id,
        workload=message.workload,
        device_type=message.device_type,
        source=message.source,
        step_time_s=number(message, "step_time_s"),
        newest=message.newest,
        registered=message.registered,
        problem=message.problem,
    )
