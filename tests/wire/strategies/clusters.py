"""Jobs with their profiles, devices, limits, and whole snapshots."""

from dataclasses import replace

from hypothesis import strategies as st

from interfere.data.parquet import OPTIONAL_JOB_COLUMNS, OPTIONAL_KERNEL_FIELDS
from interfere.records import (
    ActionKind,
    Device,
    Job,
    JobProfile,
    JobRef,
    JobSize,
    KernelStat,
    Limits,
    ObjectiveKind,
    ObjectiveTerm,
    ProfileSummary,
    Snapshot,
    Window,
)
from tests.wire.strategies.values import counts, modes, names, numbers, optional, tuples, words

kernels = st.builds(
    KernelStat,
    name=names,
    mean_s=numbers(),
    gap_s=optional(),
    count=numbers(),
    grid=tuples(counts),
    block=tuples(counts),
    **{name: optional() for name in OPTIONAL_KERNEL_FIELDS},
)


@st.composite
def profiles(draw: st.DrawFn) -> JobProfile:
    stretches = draw(st.lists(st.tuples(numbers(), numbers()), max_size=4))
    return JobProfile(
        workload=draw(names),
        device_type=draw(names),
        step_time_s=draw(optional(1e-9)),
        source=draw(names),
        step_time_sd_s=draw(optional()),
        busy_frac=draw(optional()),
        busy_s=tuple(b for b, _ in stretches),
        idle_s=tuple(i for _, i in stretches),
        flops_per_step=draw(optional()),
        bytes_per_step=draw(optional()),
        memory_peak_bytes=draw(optional()),
        memory_working_set_bytes=draw(optional()),
        kernels=draw(tuples(kernels, 2)),
        family=draw(st.just("") | names),
        **{name: draw(optional()) for name in OPTIONAL_JOB_COLUMNS},
    )


refs = st.builds(JobRef, workload=names) | st.builds(JobRef, profile_id=names) | st.builds(JobRef, profile=profiles())

summaries = st.builds(
    ProfileSummary,
    profile_id=names,
    workload=names,
    device_type=names,
    source=names,
    step_time_s=optional(1e-9),
    newest=st.booleans(),
    registered=st.booleans(),
)

plain_jobs = st.builds(
    Job,
    id=names,
    workload=names,
    profile_id=words,
    memory_peak_bytes=optional(),
    weight=numbers(1e-6),
    max_slowdown=optional(1.0),
    gpus=st.integers(1, 2**31),
    pools=tuples(words),
    preemptible=st.booleans(),
    checkpoint_s=optional(),
    since_s=optional(),
    grant_bytes=optional(1.0),
    remaining_s=optional(),
    attained_s=optional(),
    elapsed_s=optional(),
    priority=st.integers(0, 4),
    memory_working_set_bytes=optional(),
    latency_target_s=optional(),
    deadline_s=optional(),
)

jobs = plain_jobs.flatmap(
    lambda job: (
        st.just(job) | optional(job.remaining_s).map(lambda p90: replace(job, remaining_p90_s=p90))
        if job.remaining_s == job.remaining_s
        else st.just(job)
    )
)


def with_sizes(job: Job) -> st.SearchStrategy[Job]:
    """The job as an elastic one: its own number of devices first, then others."""
    others = st.lists(st.integers(1, 4_000).filter(lambda gpus: gpus != job.gpus), unique=True, max_size=3)

    def size(gpus: int) -> st.SearchStrategy[JobSize]:
        return st.builds(JobSize, gpus=st.just(gpus), speed=numbers(1e-6, 1e6), memory_peak_bytes=optional())

    further = others.flatmap(lambda counts: st.tuples(*map(size, counts)))
    return further.map(lambda sizes: replace(job, sizes=(JobSize(gpus=job.gpus), *sizes)))


jobs = jobs | jobs.flatmap(with_sizes)

device_windows = numbers(0.0, 1e9).flatmap(
    lambda from_s: st.builds(Window, from_s=st.just(from_s), until_s=optional(from_s + 1.0))
)

devices = st.builds(
    Device,
    id=names,
    type=names,
    node=words,
    memory_bytes=optional(1e3),
    mode=modes,
    residents=tuples(jobs, 2),
    pool=words,
    oversubscription_ratio=numbers(1.0, 100.0),
    granule_bytes=optional(1.0, 1e3),
    windows=tuples(device_windows),
    price_per_hour=optional(),
    power_w=optional(),
    seats=st.none() | st.integers(1, 48),
    host_reserve_bytes=optional(),
)

limits = st.builds(
    Limits.of,
    allowed=st.frozensets(st.sampled_from(ActionKind)).map(lambda kinds: kinds | {ActionKind.WAIT}),
    max_slowdown=optional(1.0),
    max_devices=st.none() | counts,
    most_shared_gpus=st.none() | counts.map(lambda count: count + 1),
    allow_extrapolation=st.booleans(),
    choosable_modes=st.frozensets(modes),
    promise_deadlines=st.booleans(),
    guest_ends_first=st.booleans(),
    rematch_running=st.booleans(),
    risk=st.floats(0.001, 0.5),
    memory_headroom=numbers(0.0, 0.99),
    misfit_risk=optional(0.0, 1.0),
    protected_slowdown=optional(1.0),
    min_joint_throughput=numbers(),
    time_budget_s=optional(0.001),
    soft_cap=optional(1.0),
    resident_cap=numbers(1.0),
    probe_devices=counts,
    probe_cap=numbers(1.0),
    probe_risk=st.floats(0.001, 0.5),
    promise_ttl_s=numbers(),
    slice_s=optional(1e-3),
    ageing_s=numbers(),
    move_factor=numbers(1.0),
    grant_patience_s=numbers(),
    grant_tolerance=numbers(),
)

snapshots = st.builds(
    Snapshot,
    pending=tuples(jobs),
    devices=tuples(devices),
    scope=names,
    snapshot_id=words,
    limits=limits,
    objective=st.sampled_from(ObjectiveKind),
    now_s=optional(),
    partial=st.booleans(),
    objective_terms=tuples(st.builds(ObjectiveTerm, kind=st.sampled_from(ObjectiveKind), weight=numbers(1e-6))),
)
