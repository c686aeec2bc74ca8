"""The jobs of one node that `interfere run` started, as a port of the round: no job waits, running jobs may be ended.

Law 1: only jobs of the folder of started jobs are told or ended, each through the process that started it. Law 2: a job
is ended only where the server decided so, or where its supervisor was killed. Law 3: without `enforce` nothing is told
or ended; all is measured and reported. Law 4: a sample that cannot be read is no sample, never a zero.
"""

import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from interfere.errors import UnfitError, Violation
from interfere.monitoring.job_memory import MemoryWatch, WatchedJob, cgroup_of, limit_of
from interfere.policy.rules.memory import device_slots
from interfere.profiling.nvidia_smi import check_gpus
from interfere.profiling.programs.device_admission import PublishedDevice, PublishedDevices
from interfere.profiling.programs.process_tree import ProcessTable
from interfere.profiling.programs.started_jobs import (
    JOBS,
    SPOOL,
    Ending,
    Notice,
    NoticeKind,
    StartedJob,
    end_forcibly,
    remove,
    send,
    started_jobs,
    token_processes,
)
from interfere.progress import Mark, read
from interfere.records import NAN, ActionKind, Device, Job, Plan, Snapshot
from interfere.records.checks import check, refused
from interfere.serving.adapters.observations import DecidedJob, Rejection
from interfere.serving.adapters.problem import Problem, host_reserves, job_record
from interfere.serving.adapters.round import (
    PlannedChanges,
    Reading,
    decisions_of,
)
from interfere.serving.adapters.settings import GIB, AdapterSettings, SharedDeviceFacts
from interfere.serving.adapters.windows import Place, Residency, Run

MAX_GAP = 2.5  # in intervals: one missing sample is an irregularity of a busy node, two are a gap
GAP_OF_PATIENCE = 0.1  # a gap of a tenth of the patience hides no dip that would matter, however busy the node is
ACT_S = 30.0  # a supervisor that was asked to end its job has so long, beyond the grace of the job, to do so
LOST, OVERDUE = "its supervisor was killed", "it did not end when it was asked to"
SETTLE_S = 3.0  # marks are written once a second


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice(SharedDeviceFacts):
    """A device of this node. `gpu_uuid` empty: a part of the host, such as a core; its memory is that of the host.

    `id` empty: the UUID. For Slurm's jobs it is the GRES type of the GPU.
    """

    id: str = ""
    gpu_uuid: str = ""  # as nvidia-smi -L lists it

    ALWAYS_GRANTS: ClassVar[bool] = True

    def __post_init__(self) -> None:
        bad = []
        if not (self.id or self.gpu_uuid):
            bad.append(
                refused(self, "id", "is needed, or gpu_uuid", 'add id = "0", or the UUID that nvidia-smi -L lists')
            )
        if self.gpu_uuid and not self.gpu_uuid.startswith(("GPU-", "MIG-")):
            remedy = "nvidia-smi -L lists the UUIDs of GPUs: GPU-5ad6e4..."
            bad.append(refused(self, "gpu_uuid", "is no UUID of a GPU", remedy))
        check(bad)
        object.__setattr__(self, "id", self.id or self.gpu_uuid)
        SharedDeviceFacts.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(AdapterSettings):
    """The settings of a node's agent. `interval_s` is the time between two samples."""

    cluster: str = "nodes"
    node: str = ""  # its name; empty: the host's
    jobs: Path = JOBS
    host_reserve_gib: float = NAN  # host memory that backs what devices grant beyond their own; absent: what they need
    devices: tuple[NodeDevice, ...] = ()  # of jobs that `interfere run` starts
    # Between two samples of one window; 0: 2.5 intervals, and a tenth of grant_patience_s at least.
    max_gap_s: float = 0.0
    grace_s: float = 10.0  # that `interfere run` gives a job; a supervisor that takes longer is ended with its job

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = (*AdapterSettings.MAY_BE_ZERO, "grace_s", "host_reserve_gib", "max_gap_s")

    def own_violations(self) -> Sequence[Violation]:
        """Return a violation where a device is described twice."""
        bad = []
        for what in ("id", "gpu_uuid"):
            names = [name for device in self.devices if (name := getattr(device, what))]
            if len(set(names)) < len(names):
                bad.append(
                    refused(self, "devices", f"two have one {what}", "give each its own", value=", ".join(names))
                )
        return bad

    @property
    def largest_gap_s(self) -> float:
        """The longest time between two samples of one window. Shorter dips of a job's memory may be missed."""
        return self.max_gap_s or max(MAX_GAP * self.interval_s, GAP_OF_PATIENCE * self.grant_patience_s)

    @property
    def node_name(self) -> str:
        """The name of this node in device ids."""
        return self.node or socket.gethostname()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A notice to a job that `interfere run` started."""

    job: StartedJob
    notice: Notice


@dataclass(slots=True)
class _Watch:
    """What the agent remembers of one running job."""

    granted_bytes: float = NAN
    warning: str = ""  # that it was not told yet
    asked_to_end_s: float = NAN
    dead_rounds: int = 0  # in which its supervisor was gone without an ending


class NodePort:
    """The jobs of this node that `interfere run` started, as rounds of the adapter see them (`SchedulerPort`).

    It starts nothing, and no job waits here. Without `enforce` everything is measured and reported, and no job is told
    or ended.
    """

    name = "node"

    def __init__(self, settings: NodeSettings, *, enforce: bool) -> None:
        self.dry_run, self.enforce = False, enforce
        self.limits = settings.limits(ActionKind.KEEP, ActionKind.END)
        self.rules = settings.window_rules(settle_s=SETTLE_S)
        self._settings = settings
        self._memory = MemoryWatch(settings.report_every_s, settings.largest_gap_s, settings.grant_patience_s)
        self._devices = {f"{settings.node_name}/{device.id}": device for device in settings.devices}
        self._jobs: tuple[StartedJob, ...] = ()
        self._watched: dict[str, _Watch] = {}
        self._processes: dict[str, tuple[int, ...]] = {}
        self._marks: dict[str, tuple[int, list[Mark]]] = {}
        self._lost: dict[str, Ending] = {}  # of jobs whose supervisors were killed
        self._now_s = 0.0

    def device_id(self, job: StartedJob) -> str:
        """Return the id of a job's device in decisions."""
        return f"{self._settings.node_name}/{job.record.device_id}"

    def read(self) -> Reading[StartedJob, NodeChange]:
        """Read the jobs' folders, and sample what each running job holds. Jobs whose supervisor was killed are
        ended."""
        self._now_s, table = time.time(), ProcessTable()
        self._read_jobs(table)
        watched = [self._watched_job(job) for job in self._running()]
        prefix = f"node/{self._settings.cluster}/{self._settings.node_name}"
        usages, warnings = self._memory.sample(watched, self._now_s, prefix, table)
        for run_id, warning in warnings.items():
            self._watched[run_id].warning = warning
        return Reading(
            at_s=self._now_s,
            scopes=(f"{self._settings.cluster}/{self._settings.node_name}",) if watched else (),
            runs=tuple(self._run(job) for job in self._jobs),
            decided_jobs=tuple(
                DecidedJob(job=job, decision_id="", ended_s=job.ending.at_s, end_reason=job.ending.reason)
                for job in self._jobs
                if job.ending is not None
            ),
            repairs=tuple(
                self._change(job, NoticeKind.END, LOST if self._watched[job.run_id].dead_rounds else OVERDUE)
                for job in self._running()
                if self.enforce and (self._watched[job.run_id].dead_rounds or self._is_overdue(job))
            ),
            memory_usages=usages,
        )

    def _read_jobs(self, table: ProcessTable) -> None:
        """Read the jobs on known devices, with their processes; a job of which nothing is left has ended."""
        jobs = []
        for job in started_jobs(self._settings.jobs):
            ending = job.ending or self._lost.get(job.run_id)
            if ending is not None and self._now_s - ending.at_s > self._settings.lookback_s:
                remove(job)
            elif self.device_id(job) in self._devices:
                jobs.append(job)
        watched, self._processes = {job.run_id: self._watched.get(job.run_id, _Watch()) for job in jobs}, {}
        for k, job in enumerate(jobs):
            watch, lives = watched[job.run_id], job.ending is None and job.supervisor_lives()
            pids = table.descendants(job.record.supervisor_pid) if lives else ()
            if job.ending is None and not lives:
                # A supervisor writes the ending before it ends: one that is missing twice in a row was killed.
                watch.dead_rounds += 1
                pids = token_processes(job)
                if watch.dead_rounds > 1 and not pids:
                    self._lost.setdefault(job.run_id, Ending(at_s=self._now_s, reason=LOST, exit_code=-1))
            if job.ending is None and job.run_id in self._lost:
                jobs[k] = replace(job, ending=self._lost[job.run_id])
            self._processes[job.run_id] = pids
        self._jobs, self._watched = tuple(jobs), watched
        self._lost = {run_id: ending for run_id, ending in self._lost.items() if run_id in watched}
        self._marks = {run_id: marks for run_id, marks in self._marks.items() if run_id in watched}

    def _running(self) -> list[StartedJob]:
        return [job for job in self._jobs if job.ending is None]

    def _run(self, job: StartedJob) -> Run[StartedJob]:
        device = self._devices[self.device_id(job)]
        place = Place(self.device_id(job), device.type, device.mode)
        end_s = math.inf if job.ending is None else job.ending.at_s
        return Run(job=job, start_s=job.record.since_s, end_s=end_s, places=(place,))

    def _watched_job(self, job: StartedJob) -> WatchedJob:
        device, pids = self._devices[self.device_id(job)], self._processes[job.run_id]
        cgroup = cgroup_of(pids[0]) if pids and job.record.cgroup else None
        return WatchedJob(
            id=job.id,
            run_id=job.run_id,
            workload=job.workload,
            device_id=self.device_id(job),
            device_type=device.type,
            gpu_uuid=device.gpu_uuid,
            limit_bytes=limit_of(self._watched[job.run_id].granted_bytes, self.limits.memory.grant_tolerance),
            cgroup=cgroup if cgroup is not None and cgroup.folder.name == job.record.cgroup else None,
            pids=pids,
        )

    def _is_overdue(self, job: StartedJob) -> bool:
        """Whether a job should have ended by now."""
        return self._now_s - self._watched[job.run_id].asked_to_end_s > self._settings.grace_s + ACT_S

    def _change(self, job: StartedJob, kind: NoticeKind, reason: str) -> NodeChange:
        return NodeChange(job=job, notice=Notice(kind=kind, reason=reason, at_s=self._now_s))

    def problem(
        self,
        scope: str,
        lost_s: Callable[[str], float],  # noqa: ARG002 - no job of a node says how long it takes
    ) -> Problem[StartedJob]:
        """Return the devices of this node with their running jobs; nothing is pending."""
        residents: dict[str, list[Job]] = {name: [] for name in self._devices}
        for job in self._running():
            record = job_record(
                job,
                self._settings,
                self._now_s,
                priority=0.0,
                submitted_s=job.record.since_s,
                memory_bytes=NAN,
                max_slowdown="",
                grant_bytes=job.record.memory_bytes,
                since_s=job.record.since_s,
            )
            if record is not None:
                residents[self.device_id(job)].append(record)
        devices = device_records(self._settings, {name: tuple(jobs) for name, jobs in residents.items()})
        snapshot = Snapshot(pending=(), devices=devices, scope=scope, now_s=self._now_s)
        return Problem(snapshot=snapshot, candidates=(), left_out=Counter())

    def planned_changes(
        self,
        problem: Problem[StartedJob],  # noqa: ARG002 - the plan names every job
        plan: Plan | None,
    ) -> PlannedChanges[StartedJob, NodeChange]:
        """Return the notices of a plan: a job is ended where the plan says so, and warned each time that it begins to
        hold more than its grant."""
        jobs = {job.id: job for job in self._running()}
        decisions = decisions_of(plan.actions, jobs, plan.decision_id) if plan else ()
        changes = []
        for each in decisions:
            watch = self._watched[each.job.run_id]
            watch.granted_bytes = each.action.grant_bytes
            if each.action.kind is ActionKind.END:
                if math.isnan(watch.asked_to_end_s):
                    changes.append(self._change(each.job, NoticeKind.END, each.action.reason))
            elif watch.warning:
                changes.append(self._change(each.job, NoticeKind.WARNING, watch.warning))
                watch.warning = ""
        ends = tuple(each for each in decisions if each.action.kind is ActionKind.END)
        return PlannedChanges(decisions=ends, changes=tuple(changes))

    def apply(self, changes: Sequence[NodeChange]) -> tuple[Rejection, ...]:
        """Give notices to jobs' supervisors, and end by force the jobs whose supervisors do not. Without `enforce`
        nobody is told or ended."""
        rejected = []
        for change in changes:
            job, watch, ends = change.job, self._watched[change.job.run_id], change.notice.kind is NoticeKind.END
            is_forced = ends and (watch.dead_rounds > 0 or self._is_overdue(job))
            if ends and math.isnan(watch.asked_to_end_s):
                watch.asked_to_end_s = self._now_s
            if not self.enforce:
                continue
            if is_forced:
                end_forcibly(job, self._processes[job.run_id])
            try:
                send(job, change.notice)
            except OSError as error:
                rejected.append(Rejection(job_id=job.id, message=str(error), lost_race=False))
        return tuple(rejected)

    def marks(self, residency: Residency[StartedJob], now_s: float) -> list[Mark]:
        """Return the recent step marks of a job (`MarkSource`)."""
        job = residency.job
        offset, marks = self._marks.get(job.run_id, (0, []))
        try:
            spool = read(job.folder / SPOOL, offset)
        except OSError:
            return marks
        marks = [mark for mark in (*marks, *spool.marks) if mark.unix_s >= now_s - self.rules.lookback_s]
        self._marks[job.run_id] = (spool.offset, marks)
        return marks

    def complete_until_s(self, now_s: float) -> float:
        """Return the time up to which the marks are complete (`MarkSource`)."""
        return now_s


def device_records(settings: NodeSettings, residents: Mapping[str, tuple[Job, ...]]) -> tuple[Device, ...]:
    """Return the devices of a node with the jobs on each, by the id of the device in decisions."""
    devices = [
        Device(
            id=(name := f"{settings.node_name}/{device.id}"),
            node=settings.node_name,
            type=device.type,
            mode=device.mode,
            memory_bytes=device.memory_gib * GIB,
            granule_bytes=device.granule_gib * GIB,
            oversubscription_ratio=device.oversubscription_ratio,
            residents=residents.get(name, ()),
        )
        for device in settings.devices
    ]
    return host_reserves(devices, settings.host_reserve_gib * GIB)


def published_devices(settings: NodeSettings, *, enforced: bool) -> PublishedDevices:
    """Return what `interfere run` needs to know of this node's devices.

    Raises NotFoundError for a GPU that this machine has not, and UnfitError where the memory of this host is less than
    what it is to back.
    """
    check_gpus(device.gpu_uuid for device in settings.devices if device.gpu_uuid)
    slots = [device_slots(record) for record in device_records(settings, {})]
    reserve_bytes = [
        0.0 if each is None or math.isnan(each.host_reserve_bytes) else each.host_reserve_bytes for each in slots
    ]
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if sum(reserve_bytes) > host_bytes:
        raise UnfitError(
            "this host cannot back what its devices may grant beyond their own memory",
            value=f"{sum(reserve_bytes) / GIB:.4g} GiB, and the host has {host_bytes / GIB:.4g} GiB",
            remedy="set host_reserve_gib to what the host can spare, or lower oversubscription_ratio",
        )
    return PublishedDevices(
        enforced=enforced,
        devices=tuple(
            PublishedDevice(
                id=device.id,
                gpu_uuid=device.gpu_uuid,
                granules=each.granules if each else 0,
                granule_bytes=each.granule_bytes if each else 0.0,
                host_reserve_bytes=reserved,
            )
            for device, each, reserved in zip(settings.devices, slots, reserve_bytes, strict=True)
        ),
    )
