"""The cluster as a scheduler sends it: jobs, devices, and the snapshot of one moment."""

import math
from collections.abc import Sequence
from dataclasses import field, replace

from interfere.errors import InvalidInputError, Violation
from interfere.records.checks import (
    MIN_WEIGHT,
    NAN,
    check,
    number_violations,
    refused,
    text_violations,
)
from interfere.records.limits import Limits, ObjectiveKind, ObjectiveTerm
from interfere.records.record import optional_numbers, record
from interfere.sharing_modes import OptionalSharingMode, set_sharing_mode

HIGHEST_PRIORITY = 9  # ten levels: the digits; Kubernetes and Slurm clusters rarely name more
# Clients of one MPS server on a GPU since Volta (NVIDIA, Multi-Process Service, section 2.3.2).
MAX_SEATS = 48
DEFAULT_SEATS = 2
MIN_SPEED = 1e-6  # of a size, relative to the first
_AT_LEAST_ONE = ("max_slowdown", "grant_bytes")  # numbers of a job that must be at least 1


MAX_SIZES = 16  # numbers of devices that one job may choose from


@record
class JobSize:
    """A number of devices that an elastic job can run on, and how fast it is there.

    >>> from interfere import Job, JobSize
    >>> sizes = (JobSize(gpus=1), JobSize(gpus=4, speed=3.1))
    >>> Job(id="j1", workload="resnet-train", remaining_s=620.0, sizes=sizes).at_size(4).remaining_s
    200.0
    """

    gpus: int
    speed: float = 1.0  # relative to the first size of the job
    memory_peak_bytes: float = NAN  # on each of its devices; absent: that of the job

    def __post_init__(self) -> None:
        bad = number_violations(self, "gpus", low=1.0, nan=False) + number_violations(self, "memory_peak_bytes")
        check(bad + number_violations(self, "speed", low=MIN_SPEED, nan=False))


@record
class Job:
    """A pending or running job. Only `id` and `workload` are required.

    >>> from interfere import Job
    >>> job = Job(id="j1", workload="resnet-train", remaining_s=3600.0, max_slowdown=1.5)
    >>> job.priority, job.gpus, job.preemptible
    (0, 1, False)
    """

    id: str
    workload: str
    profile_id: str = ""
    memory_peak_bytes: float = NAN
    weight: float = 1.0
    max_slowdown: float = NAN  # the job's own slowdown cap, on the quantile 1 - risk of the limits
    remaining_s: float = NAN  # expected, alone on its fastest device type; objectives of time require it
    attained_s: float = NAN  # service so far, in seconds alone on its fastest device type
    elapsed_s: float = NAN  # since submission; a pending job counts more the longer it has waited
    priority: int = 0  # 0 to 9; strict: nothing of a lower priority is weighed against a higher one
    memory_working_set_bytes: float = NAN  # used where no peak is known
    latency_target_s: float = NAN  # upper limit on the time of one request: time alone × slowdown, at that quantile
    gpus: int = 1  # devices that it takes at once; a running job is a resident of each of them
    pools: tuple[str, ...] = ()  # of devices that it may start on; empty: any
    preemptible: bool = False  # whether it may be moved or stopped while it runs
    checkpoint_s: float = NAN  # cost of moving or stopping it
    since_s: float = NAN  # when a resident started on its devices, on the caller's clock
    grant_bytes: float = NAN  # memory that it asks for on each of its devices; absent: its known demand
    deadline_s: float = NAN  # on the caller's clock; needs remaining_s
    remaining_p90_s: float = NAN  # 90 % quantile of the remaining time, of which remaining_s is then the median
    # Of an elastic job: it starts at any of them. Its times are those at the first size; `gpus` is its present size
    # while it runs, and the first size while it waits.
    sizes: tuple[JobSize, ...] = ()

    def __post_init__(self) -> None:
        bad = text_violations(self, "id", "workload") + number_violations(self, *_JOB_NUMBERS)
        bad += number_violations(self, *_AT_LEAST_ONE, low=1.0)
        bad += number_violations(self, "weight", low=MIN_WEIGHT, nan=False)
        bad += number_violations(self, "gpus", low=1.0, nan=False)
        if not math.isnan(self.remaining_p90_s) and not self.remaining_p90_s >= self.remaining_s:
            what, remedy = "must be ≥ remaining_s, which it needs", "send the median as remaining_s, or leave it out"
            value = f"{self.remaining_p90_s!r} beside {self.remaining_s!r}"
            bad.append(refused(self, "remaining_p90_s", what, remedy, value=value))
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            what = f"must be a whole number from 0 to {HIGHEST_PRIORITY}"
            bad.append(refused(self, "priority", what, f"map your priorities to 0..{HIGHEST_PRIORITY}"))
        check(bad + (_size_violations(self) if self.sizes else []))

    def at_size(self, gpus: int) -> "Job":
        """Return the job as one that runs on this many devices only: its times there, its memory, no other sizes.

        Raises InvalidInputError for a number of devices that is none of its sizes.
        """
        size = next((size for size in self.sizes if size.gpus == gpus), None)
        if size is None:
            known = ", ".join(str(size.gpus) for size in self.sizes)
            raise InvalidInputError(f"job {self.id} has no such size", value=str(gpus), remedy=f"one of {known}")
        peak_bytes = self.memory_peak_bytes if math.isnan(size.memory_peak_bytes) else size.memory_peak_bytes
        times_s = {name: getattr(self, name) / size.speed for name in ("remaining_s", "remaining_p90_s", "attained_s")}
        return replace(self, gpus=gpus, memory_peak_bytes=peak_bytes, sizes=(), **times_s)


def _size_violations(job: Job) -> list[Violation]:
    """Return what is wrong with the sizes of an elastic job."""
    gpus = [size.gpus for size in job.sizes]
    bad = []
    if len(gpus) > MAX_SIZES or len(set(gpus)) < len(gpus):
        what, remedy = f"must be at most {MAX_SIZES} different numbers of devices", "send each size once"
        bad.append(refused(job, "sizes", what, remedy, value=repr(gpus)))
    if job.sizes[0].speed != 1.0:
        what, remedy = "is the first size, to which speeds are relative", "divide all speeds by that of the first size"
        value = f"speed {job.sizes[0].speed!r}"
        bad.append(refused(job, "sizes", what, remedy, value=value))
    if job.gpus not in gpus:
        what, remedy = "must be one of sizes", "send its present number of devices, and while it waits the first size"
        bad.append(refused(job, "gpus", what, remedy, value=f"{job.gpus!r}, sizes {gpus}"))
    return bad


_JOB_NUMBERS = optional_numbers(Job, but=_AT_LEAST_ONE)


@record
class Window:
    """A device is available from `from_s` until `until_s`, both on the caller's clock."""

    from_s: float = 0.0
    until_s: float = NAN  # absent: no end is known

    def __post_init__(self) -> None:
        bad = number_violations(self, "from_s", nan=False) + number_violations(self, "until_s")
        if self.until_s <= self.from_s:
            what, remedy = f"must be after from_s, {self.from_s!r}", "leave it out when no end is known"
            bad.append(refused(self, "until_s", what, remedy))
        check(bad)


@record
class Device:
    """A device and the jobs that run on it now.

    With a granule or a ratio above 1 it grants its memory: every job on it holds a grant of whole granules, in all
    at most ratio * memory. A ratio above 1 promises more than there is: it needs unified memory, where pages that do
    not fit are swapped to the host, (ratio - 1) * memory of which is reserved there for it, and jobs whose working
    sets together still fit. Where the host backs less, less is granted.

    >>> from interfere import Device, Job
    >>> device = Device(id="d0", type="v100", memory_bytes=16e9, residents=(Job(id="j0", workload="gemm"),))
    >>> device.type, [resident.id for resident in device.residents]
    ('v100', ['j0'])
    """

    id: str
    type: str
    node: str = ""
    memory_bytes: float = NAN
    mode: OptionalSharingMode = ""  # empty: the one that the model knows for the type, else timeslice
    residents: tuple[Job, ...] = ()
    pool: str = ""  # named part of the scope that jobs may be restricted to
    oversubscription_ratio: float = 1.0  # memory that may be granted ÷ memory of the device
    granule_bytes: float = NAN  # unit of grants; absent: memory is not granted in granules
    windows: tuple[Window, ...] = ()  # times at which it may be used; empty: always
    price_per_hour: float = NAN  # while jobs occupy it; the objective cost needs it
    power_w: float = NAN  # while jobs occupy it; the objective energy needs it
    seats: int | None = None  # jobs that may share it; absent: its granules where it names their size, else two
    # Host memory that backs what it grants beyond its own; absent: as much as the ratio needs.
    host_reserve_bytes: float = NAN

    def __post_init__(self) -> None:
        bad = text_violations(self, "id", "type") + number_violations(self, "memory_bytes", "granule_bytes", low=1.0)
        bad += set_sharing_mode(self) if self.mode else []
        bad += number_violations(self, "oversubscription_ratio", low=1.0, nan=False)
        bad += number_violations(self, "price_per_hour", "power_w", "host_reserve_bytes")
        if self.seats is not None and not 1 <= self.seats <= MAX_SEATS:
            what, remedy = f"must be a whole number from 1 to {MAX_SEATS}", "leave it out for two"
            bad.append(refused(self, "seats", what, remedy))
        if self.granule_bytes > self.memory_bytes:
            what = f"is more than memory_bytes, {self.memory_bytes!r}"
            bad.append(refused(self, "granule_bytes", what, "choose one of at most the device's memory"))
        check(bad)


@record
class Snapshot:
    """The jobs and devices of a scope as its scheduler sees them now; complete unless `partial`.

    With `now_s`, the caller's clock, planned starts are remembered as promises until the next snapshots. Without it,
    every snapshot is decided without memory of earlier ones.

    >>> from interfere import Device, Job, Snapshot
    >>> queue = (Job(id="j1", workload="gemm"), Job(id="j2", workload="stream"))
    >>> snapshot = Snapshot(pending=queue, devices=(Device(id="d0", type="cpu-core"),), now_s=0.0)
    >>> snapshot.scope, snapshot.objective.value
    ('default', 'auto')
    """

    pending: tuple[Job, ...]
    devices: tuple[Device, ...]
    scope: str = "default"
    snapshot_id: str = ""
    limits: Limits = field(default_factory=Limits)
    objective: ObjectiveKind = ObjectiveKind.AUTO
    objective_terms: tuple[ObjectiveTerm, ...] = ()  # a weighted sum in place of `objective`
    objective_name: str = ""  # of another package, in place of both; the server's settings enable it
    now_s: float = NAN
    partial: bool = False  # jobs and devices that are left out may still be there

    def __post_init__(self) -> None:
        check(number_violations(self, "now_s"))


def spans(windows: Sequence[Window]) -> list[tuple[float, float]]:
    """Return the (from, until) times of windows in order, with touching windows merged. Without windows: all time.

    A window without a known end ends at infinity.
    """
    if not windows:
        return [(-math.inf, math.inf)]
    merged: list[tuple[float, float]] = []
    for window in sorted(windows, key=lambda window: window.from_s):
        until_s = math.inf if math.isnan(window.until_s) else window.until_s
        if merged and window.from_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until_s))
        else:
            merged.append((window.from_s, until_s))
    return merged
