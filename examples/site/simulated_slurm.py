"""Slurm in the simulator: the adapter as it ships advises a simulated cluster, round by round, on the replay's clock.

The adapter's own code decides here: which jobs it asks about, prepared starts, whole GPUs first, windows of step marks.
Only what Slurm does is written down again: jobs in order of priority, each on the device that its placement names; no
job before one of whole GPUs that waits for free ones, because all time limits are the same minute; and a job of a
prepared placement when the jobs before it have ended.
Law: a job starts on a free place, after its submission, and after those that its placement names.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.client import PolicyClient
from interfere.progress import Mark
from interfere.serving.adapters.observations import Rejection
from interfere.serving.adapters.round import Advisor
from interfere.serving.adapters.slurm.jobs import Gpu, GpuAddress, Held, Node, Note, SlurmJob
from interfere.serving.adapters.slurm.port import SlurmPort, slurm_metrics
from interfere.serving.adapters.slurm.scontrol import Edit, SlurmCommands
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.windows import Residency
from interfere.sim.cluster import Cluster, Decision, JobState, Start

PARTITION, GRES, SHARDS = "main", "g0", 2
LIMIT_S = 60.0  # Slurm counts time limits in whole minutes, and every job of the site is shorter
FIRST_PRIORITY = 4_294_901_759  # of Slurm's first job; one less for each that follows
ALMOST_NOW_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """What Slurm and the job's marks know of it beside the simulator."""

    comment: str  # as a user writes it
    step_s: float  # alone


@dataclass(slots=True)
class _Request:
    """What Slurm holds of a job that it may be told to change."""

    note: Note | None
    eligible_s: float  # simulated time from which Slurm may start it


class SimulatedSlurm(SlurmCommands):
    """Slurm's commands on a simulated cluster. Times that it tells are Unix seconds: `begin_s` + the replay's."""

    def __init__(
        self, jobs: Mapping[str, SimulatedJob], *, begin_s: float, window_s: float, placement_s: float
    ) -> None:
        """Answer for a cluster that `follow` names. `window_s`: deferral of new jobs; `placement_s`: from a round to
        the start of a job that it placed on a free seat."""
        super().__init__(timeout_s=math.inf)
        self._jobs, self._begin_s, self._window_s, self._placement_s = jobs, begin_s, window_s, placement_s
        self._requests: dict[str, _Request] = {}
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The simulated cluster."""
        assert self._cluster is not None
        return self._cluster

    def follow(self, cluster: Cluster) -> None:
        """Take in the jobs that were submitted meanwhile: `job_submit.lua` defers those that ask for a shard."""
        self._cluster = cluster
        for job_id, state in cluster.jobs.items():
            if job_id not in self._requests:
                is_deferred = state.job.gpus == 1
                eligible_s = state.job.arrival_s + self._window_s * is_deferred
                self._requests[job_id] = _Request(Note() if is_deferred else None, eligible_s)

    def unix_s(self) -> float:
        """Return the Unix time of the replay's clock."""
        return self._begin_s + self.cluster.now_s

    # --- commands -----------------------------------------------------------------------------------------------------

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Return all jobs that were submitted. Times are whole seconds, as Slurm tells them."""
        first = next((state for state in self._waiting() if state.job.gpus > 1), None)
        latest_s = max((state.started_s for state in self.cluster.running.values()), default=self.cluster.now_s)
        return tuple(self._job(state, state is first, latest_s + LIMIT_S) for state in self.cluster.jobs.values())

    def _job(self, state: JobState, is_first: bool, expected_s: float) -> SlurmJob:
        request, has_ended = self._requests[state.job.id], not math.isnan(state.ended_s)
        whole, nodes = state.job.gpus > 1, [device.device.node for device in state.devices]
        start_s = expected_s if math.isnan(state.started_s) else state.started_s
        to = request.note.to if request.note else None
        return SlurmJob(
            id=state.job.id,
            state="COMPLETED" if has_ended else "RUNNING" if nodes else "PENDING",
            reason="Resources" if is_first else "",
            comment=self._jobs[state.job.id].comment,
            note=request.note,
            tres="gres:gpu:1" if whole else f"gres:shard:{to.gres}:1" if to else "gres:shard:1",
            partition=PARTITION,
            priority=FIRST_PRIORITY - state.arrival_rank,
            submit_s=self._whole(state.job.arrival_s),
            eligible_s=self._whole(request.eligible_s),
            start_s=self._whole(start_s) if is_first or not math.isnan(state.started_s) else 0.0,
            end_s=self._whole(state.ended_s) if has_ended else 0.0,
            limit_s=LIMIT_S,
            node=",".join(nodes) or (to.node if has_ended and to else ""),
            held=tuple(Held("gpu" if whole else "shard", GpuAddress(node, GRES), 1) for node in nodes),
        )

    def _whole(self, at_s: float) -> float:
        return float(math.floor(self._begin_s + at_s))

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, each of one GPU."""
        return tuple(
            Node(
                name=each.device.node,
                usable=True,
                partitions=(PARTITION,),
                gpus=(Gpu(address=GpuAddress(each.device.node, GRES), index=0, shards=SHARDS),),
            )
            for each in self.cluster.world.devices
        )

    def apply(self, edits: Sequence[Edit]) -> tuple[Rejection, ...]:
        """Change waiting jobs as scontrol would."""
        now_s = self.cluster.now_s
        for edit in edits:
            for job_id in edit.job_ids:
                request = self._requests[job_id]
                request.note = edit.note or request.note
                if edit.kind in ("renew", "repair"):
                    request.eligible_s = now_s + self._window_s
                else:  # a prepared job waits for others, so Slurm has looked at it before they end
                    request.eligible_s = now_s + self._placement_s * (not edit.note or not edit.note.after)
        return ()

    # --- what Slurm starts --------------------------------------------------------------------------------------------

    def starts(self) -> list[Start]:
        """Return the jobs that Slurm starts now. A job that has no place keeps its device from all later ones, and one
        of whole GPUs keeps all devices."""
        occupied = {device_id: self._residents(device_id) for device_id in self.cluster.devices}
        kept, starts = set[str](), list[Start]()
        for state in self._waiting():
            if not self._is_eligible(state):
                continue
            devices = self._devices_for(state, occupied, kept)
            if len(devices) == state.job.gpus:
                starts.append(Start(job_id=state.job.id, device_ids=tuple(devices)))
                for device_id in devices:
                    occupied[device_id] = [*occupied[device_id], state]
            else:
                to = self._place_of(state)
                kept |= {to} if to else set(self.cluster.devices)
        return starts

    def next_eligible_s(self) -> float:
        """Return the next time at which Slurm may start a job that it may not start now."""
        now_s = self.cluster.now_s
        times_s = (self._requests[state.job.id].eligible_s for state in self._waiting())
        return min((at_s for at_s in times_s if at_s > now_s), default=math.inf)

    def _waiting(self) -> list[JobState]:
        return sorted(self.cluster.waiting.values(), key=lambda state: state.arrival_rank)

    def _residents(self, device_id: str) -> list[JobState]:
        return [state for state in self.cluster.running.values() if device_id in state.device_ids]

    def _is_eligible(self, state: JobState) -> bool:
        request = self._requests[state.job.id]
        before = request.note.after if request.note else ()
        return request.eligible_s <= self.cluster.now_s and not any(each in self.cluster.running for each in before)

    def _place_of(self, state: JobState) -> str:
        note = self._requests[state.job.id].note
        return str(note.to) if note and note.to and note.state == "placed" else ""

    def _devices_for(self, state: JobState, occupied: Mapping[str, Sequence[JobState]], kept: set[str]) -> list[str]:
        """Return devices with room, the least occupied first; fewer than the job asks for where there are too few."""
        seats = 1 if state.job.gpus > 1 else SHARDS
        place = self._place_of(state)
        room = [
            device_id
            for device_id, residents in occupied.items()
            if device_id not in kept and place in ("", device_id)
            if len(residents) < seats and all(each.job.gpus == 1 for each in residents)
        ]
        return sorted(room, key=lambda device_id: len(occupied[device_id]))[: state.job.gpus]


class SimulatedMarks:
    """The step marks that jobs of a replay write. Implements MarkSource."""

    def __init__(self, slurm: SimulatedSlurm, jobs: Mapping[str, SimulatedJob], *, begin_s: float, every_s: float):
        self._slurm, self._jobs, self._begin_s, self._every_s = slurm, jobs, begin_s, every_s
        self._work: dict[str, list[tuple[float, float]]] = {}  # by job: times, and the seconds of work done by then
        self._ended: dict[str, list[Mark]] = {}
        self._spans_read = 0

    def complete_until_s(self, now_s: float) -> float:
        """Return the time up to which all marks are read: now."""
        return now_s

    def marks(self, residency: Residency[SlurmJob], now_s: float) -> Sequence[Mark]:
        """Return the marks of a job since its first step, one each `every_s`."""
        job_id = residency.job.id
        if job_id in self._ended:
            return self._ended[job_id]
        self._read_spans()
        state, now = self._slurm.cluster.jobs[job_id], self._slurm.cluster.now_s
        work = [*self._work.get(job_id, [(state.started_s, 0.0)]), (now, self._slurm.cluster.served_s(state))]
        at_s, done_s = map(np.array, zip(*work, strict=True))
        before_s = state.job.idle_s + state.job.start_up_s
        after_s = state.job.duration_s - state.job.shut_down_s
        begin_s, end_s = np.interp([before_s, min(after_s, done_s[-1])], done_s, at_s)
        times_s = np.arange(begin_s, end_s, self._every_s)
        steps = (np.interp(times_s, at_s, done_s) - before_s) / self._jobs[job_id].step_s
        marks = [
            Mark(writer="0", unix_s=self._begin_s + float(at), monotonic_s=float(at), steps=float(count))
            for at, count in zip(times_s, steps, strict=True)
        ]
        if not math.isnan(state.ended_s):
            self._ended[job_id] = marks
        return marks

    def _read_spans(self) -> None:
        spans = self._slurm.cluster.spans
        for span in spans[self._spans_read :]:
            work = self._work.setdefault(span.job_id, [(span.start_s, 0.0)])
            work.append((span.end_s, work[-1][1] + span.rate * (span.end_s - span.start_s)))
        self._spans_read = len(spans)


@dataclass(slots=True, kw_only=True)
class AdvisedSlurm:
    """A scheduler of the simulator: Slurm, advised by the adapter in rounds of its interval."""

    slurm: SimulatedSlurm
    advisor: "Advisor[SlurmJob, object, Edit]"
    interval_s: float
    next_round_s: float

    @classmethod
    def of(
        cls,
        client: PolicyClient,
        settings: SlurmSettings,
        jobs: Mapping[str, SimulatedJob],
        *,
        begin_s: float,
        placement_s: float,
        mark_every_s: float,
    ) -> "AdvisedSlurm":
        """Return the scheduler of one replay. `begin_s`: Unix time of the replay's second 0."""
        slurm = SimulatedSlurm(jobs, begin_s=begin_s, window_s=settings.window_s, placement_s=placement_s)
        metrics = slurm_metrics()
        port = SlurmPort(settings, slurm, metrics, clock=slurm.unix_s)
        marks = SimulatedMarks(slurm, jobs, begin_s=begin_s, every_s=mark_every_s)
        return cls(
            slurm=slurm,
            advisor=Advisor(port, client, marks, settings, metrics),
            interval_s=settings.interval_s,
            next_round_s=settings.interval_s / 2,  # a stream begins at any moment between two rounds: half way, then
        )

    def decide(self, cluster: Cluster) -> Decision:
        """Return what Slurm starts now. A round is held when its time has come and Slurm starts nothing."""
        self.slurm.follow(cluster)
        starts = self.slurm.starts()
        if starts:
            return Decision(starts=starts, wake_s=cluster.now_s + ALMOST_NOW_S)
        if cluster.now_s >= self.next_round_s:
            self.advisor.round()
            self.next_round_s += self.interval_s
        return Decision(wake_s=min(self.next_round_s, self.slurm.next_eligible_s()))
