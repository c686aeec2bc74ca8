"""The state of a simulated cluster: what runs where now, and how far every job has come.

A job runs on `gpus` devices, alone or beside others that hold exactly the same devices: its company. Its rate is the
speed of its slowest device divided by its slowdown beside them; the rate changes only when its company does, or when it
or a job of its company enters another phase (`world.Phase`). A job that is idle slows nobody, and nobody slows it. A
job that loads or ends has the slowdowns of the truth's `loading_workload`.
Law 1: ∫ rate dt over a job's spans is its duration, plus a checkpoint for every stop. Law 2: no device has more jobs
than seats. Law 3: a decision that is not allowed raises ValueError and leaves that job as it was.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.free_devices import DevicePlaces, FreeDevices
from interfere.sim.world import ONLY_STEPS, Phase, SimDevice, SimJob, World


class Truth(Protocol):
    """The true slowdowns of jobs that run together."""

    @property
    def gang_excess(self) -> float:
        """The loss (slowdown less one) of a job on several devices, relative to that of the same job on one device."""

    @property
    def loading_workload(self) -> str:
        """The workload that any job counts as while it loads or ends; empty: its own."""

    def slowdown(self, victim: str, neighbours: Sequence[str], device_type: str) -> float:
        """Return the slowdown (≥ 1) of a workload beside its neighbours; NaN where they must not share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start of a waiting job, on free devices or on exactly the devices of running jobs that leave a seat."""

    job_id: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decisions of a scheduler at one moment. Stops are applied first: a job that is stopped and started moves."""

    starts: Sequence[Start] = ()
    stops: Sequence[str] = ()  # running jobs that go back to the queue
    drops: Sequence[str] = ()  # waiting jobs that will never run
    promises: Sequence[str] = ()  # jobs whose deadline is promised from now on
    wake_s: float = math.inf  # ask again then, if no event happens before


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval in which a job ran on the same devices beside the same neighbours, or alone."""

    job_id: str
    start_s: float
    end_s: float
    company_ids: tuple[str, ...]  # the jobs beside it
    device_ids: tuple[str, ...]
    slowdown: float  # caused by its company
    rate: float  # seconds of work at speed 1 done a second
    stepping: bool = True  # the job and all jobs beside it made steps: none was in another phase

    @property
    def partner_id(self) -> str:
        """The id of the first job on the same devices; empty where the job ran alone."""
        return self.company_ids[0] if self.company_ids else ""


@dataclass(slots=True, kw_only=True)
class JobState:
    """The progress of one job, which schedulers read.

    `remaining_s` and `served_s` are seconds of work at speed 1, as they were at `accounted_s`.
    """

    job: SimJob
    arrival_rank: int  # 0 for the first job that arrived
    remaining_s: float  # the truth: only a scheduler with an oracle may read it
    served_s: float = 0.0
    accounted_s: float = 0.0
    started_s: float = math.nan  # first start
    ended_s: float = math.nan  # inf: dropped
    promised_s: float = math.nan  # the deadline that a scheduler promised
    stops: int = 0
    devices: tuple[SimDevice, ...] = ()
    company: "tuple[JobState, ...]" = ()  # jobs on the same devices
    slowdown: float = 1.0
    rate: float = 0.0
    rate_version: int = 0  # counts changes of the rate: an end foreseen at an earlier one is void
    device_ids: tuple[str, ...] = ()  # ids of the devices that it runs on; empty while it waits
    phases: tuple[tuple[Phase, float], ...] = ONLY_STEPS  # of its run; see SimJob.phases
    phase_number: int = 0  # of the present one in `phases`

    @property
    def partner(self) -> "JobState | None":
        """The first of the other jobs on the same devices; None where the job runs alone."""
        return self.company[0] if self.company else None

    @property
    def phase(self) -> Phase:
        """What the job does now, or would do first if it started."""
        return self.phases[self.phase_number][0]

    @property
    def is_in_last_phase(self) -> bool:
        """Whether the job is over when its present phase ends."""
        return self.phase_number == len(self.phases) - 1

    def phase_end_s(self) -> float:
        """The time at which the present phase ends at the job's current rate."""
        return self.accounted_s + max(0.0, self.remaining_s - self.phases[self.phase_number][1]) / self.rate


@dataclass(slots=True)
class Cluster:
    """The state of a simulated cluster at `now_s`. Schedulers read the state; only `replay` changes it."""

    world: World
    truth: Truth
    seats: int = DEFAULT_SEATS  # jobs that may share a device
    now_s: float = 0.0
    jobs: dict[str, JobState] = field(default_factory=dict)  # all that have arrived
    waiting: dict[str, JobState] = field(default_factory=dict)
    running: dict[str, JobState] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)  # completed ones, in order of their ends
    devices: dict[str, SimDevice] = field(default_factory=dict)
    free: FreeDevices = field(init=False)  # present now and without a job
    node_gpus: int = 0  # devices of the largest node
    changed_rates: list[JobState] = field(default_factory=list)  # every job whose rate was set, in order; only grows
    busy: int = 0  # devices with a job
    shared: int = 0  # devices with two jobs or more
    _unshared: dict[str, JobState] = field(default_factory=dict)  # job id -> running job without company
    _running_on: dict[str, tuple[JobState, ...]] = field(default_factory=dict)  # device id -> its jobs

    def __post_init__(self) -> None:
        self.devices = {device.device.id: device for device in self.world.devices}
        self.node_gpus = self.world.node_gpus
        self.free = FreeDevices(DevicePlaces(device.device for device in self.world.devices))
        self.update_presence()

    def served_s(self, state: JobState) -> float:
        """Return the work that a job has done by now, in seconds at speed 1."""
        return self.all_served_s((state,))[0]

    def all_served_s(self, states: Sequence[JobState]) -> list[float]:
        """Return `served_s` of every job. One call is faster than a call for each job."""
        now_s, total_s = self.now_s, list[float]()
        for state in states:
            done_s, left_s = state.rate * (now_s - state.accounted_s), state.remaining_s
            total_s.append(state.served_s + (done_s if done_s < left_s else left_s))
        return total_s

    def unshared_jobs(self) -> list[JobState]:
        """Return the running jobs without a partner, in the order in which they became so.

        A guest may join such a job on exactly the job's devices.
        """
        return list(self._unshared.values())

    def groups_with_a_seat(self) -> list[tuple[JobState, ...]]:
        """Return the groups of running jobs on the same devices that one more job may join, in the order of their
        starts.

        Within a group, jobs are in the order in which they joined it.
        """
        groups = {id(group): group for group in map(self._group_of, self.running.values())}
        return [group for group in groups.values() if len(group) < self.seats]

    def _group_of(self, state: JobState) -> tuple[JobState, ...]:
        return self._running_on[state.device_ids[0]]

    def apply(self, decision: Decision) -> None:
        """Carry out a decision: promises, stops, starts, then drops."""
        for job_id in decision.promises:
            self.jobs[job_id].promised_s = self.jobs[job_id].job.deadline_s
        for job_id in decision.stops:
            self.stop(job_id)
        for start in decision.starts:
            self.start(start)
        for job_id in decision.drops:
            self.drop(job_id)

    # --- events -------------------------------------------------------------------------------------------------------

    def arrive(self, job: SimJob) -> None:
        """Add a job to the queue."""
        state = JobState(job=job, arrival_rank=len(self.jobs), remaining_s=job.duration_s, phases=job.phases)
        self.jobs[job.id] = self.waiting[job.id] = state

    def update_presence(self) -> None:
        """Add devices whose windows have begun, remove devices whose windows have ended, and stop the jobs on the
        latter."""
        absent = {device_id for device_id, device in self.devices.items() if not device.is_present(self.now_s)}
        for state in [state for state in self.running.values() if absent.intersection(state.device_ids)]:
            self._stop(state)
        occupied = {device_id for state in self.running.values() for device_id in state.device_ids}
        self.free = self.free.only(
            device.device
            for device_id, device in self.devices.items()
            if device_id not in absent and device_id not in occupied
        )

    def start(self, start: Start) -> None:
        """Start a waiting job on the devices that `start` names. Raises ValueError where the job may not start
        there."""
        state = self.waiting.get(start.job_id)
        if state is None:
            raise ValueError(f"{start.job_id} does not wait")
        if len(set(start.device_ids)) != state.job.gpus or len(start.device_ids) != state.job.gpus:
            raise ValueError(f"{start.job_id} takes {state.job.gpus} devices, not {start.device_ids}")
        pools = {self.devices[device_id].device.pool for device_id in start.device_ids}
        if state.job.pools and not pools.issubset(state.job.pools):
            raise ValueError(f"{start.job_id} may not run in {pools}")
        company: tuple[JobState, ...] = ()
        if not all(device_id in self.free for device_id in start.device_ids):
            company = self._company_on(start)
        state.devices = tuple(self.devices[device_id] for device_id in start.device_ids)
        state.device_ids = tuple(start.device_ids)
        del self.waiting[start.job_id]
        self.running[start.job_id] = state
        self.free.remove(device.device for device in state.devices)
        if not company:
            self.busy += len(state.devices)
        elif len(company) == 1:
            self.shared += len(state.devices)
        if math.isnan(state.started_s):
            state.started_s = self.now_s
        self._regroup((*company, state), first=state)

    def _company_on(self, start: Start) -> tuple[JobState, ...]:
        """Return the running jobs that hold exactly these devices.

        Raises ValueError where they leave no free seat, or where the new job must not share with one of them.
        """
        hosts = self._running_on.get(start.device_ids[0], ())
        if not hosts or len(hosts) >= self.seats or set(start.device_ids) != set(hosts[0].device_ids):
            raise ValueError(f"{start.device_ids} are neither free nor those of jobs that leave a seat")
        group = (self.waiting[start.job_id], *hosts)
        if any(math.isnan(self._slowdown_in_steps(member, group)) for member in group):
            raise ValueError(f"{start.job_id} must not share with {', '.join(host.job.id for host in hosts)}")
        return hosts

    def _slowdown(self, member: JobState, group: Sequence[JobState]) -> float:
        """Return the true slowdown of one job of a group on the same devices, in the present phases of all."""
        if self._are_stepping(group):
            return self._slowdown_in_steps(member, group)
        busy = [state for state in group if state.phase is not Phase.IDLE]
        if member.phase is Phase.IDLE or len(busy) == 1:
            return 1.0
        return self._slowdown_of(member, [self._acts_as(state) for state in busy], busy.index(member), group)

    def _slowdown_in_steps(self, member: JobState, group: Sequence[JobState]) -> float:
        """Return the true slowdown of one job of a group if all made steps; NaN where they must not share."""
        return self._slowdown_of(member, [state.job.workload for state in group], group.index(member), group)

    def _slowdown_of(self, member: JobState, workloads: list[str], place: int, group: Sequence[JobState]) -> float:
        device_type = next(state.devices for state in group if state.devices)[0].device.type
        others = workloads[:place] + workloads[place + 1 :]
        slowdown = self.truth.slowdown(workloads[place], others, device_type)
        excess = 1.0 if member.job.gpus == 1 else self.truth.gang_excess
        return slowdown if excess == 1.0 else 1.0 + excess * (slowdown - 1.0)

    def _acts_as(self, state: JobState) -> str:
        """Return the workload whose slowdowns a job has in its present phase."""
        return state.job.workload if state.phase is Phase.STEPS else self.truth.loading_workload or state.job.workload

    @staticmethod
    def _are_stepping(group: Iterable[JobState]) -> bool:
        return all(state.phase is Phase.STEPS for state in group)

    def stop(self, job_id: str) -> None:
        """Preempt a running job. The job goes back to the queue, keeps its work and pays its checkpoint."""
        state = self.running.get(job_id)
        if state is None or not state.job.preemptible:
            raise ValueError(f"{job_id} does not run, or may not be stopped")
        self._stop(state)

    def _stop(self, state: JobState) -> None:
        self._release_devices(state)
        state.remaining_s += state.job.checkpoint_s
        state.phase_number = sum(left_s >= state.remaining_s > 0.0 for _, left_s in state.phases)
        state.stops += 1
        self.waiting[state.job.id] = state

    def drop(self, job_id: str) -> None:
        """Remove a waiting job from the queue for good."""
        state = self.waiting.pop(job_id, None)
        if state is None:
            raise ValueError(f"{job_id} does not wait")
        state.ended_s = math.inf

    def end_phase(self, job_id: str) -> None:
        """Let a running job enter its next phase, or end it, where its present phase is over."""
        state = self.running[job_id]
        if state.is_in_last_phase:
            self.end(job_id)
            return
        group = self._group_of(state)
        for member in group:
            self._account_work(member)
        state.remaining_s = state.phases[state.phase_number][1]
        state.phase_number += 1
        self._regroup(group, first=state)

    def end(self, job_id: str) -> None:
        """End a running job that has done its work, and free its devices."""
        state = self.running[job_id]
        self._release_devices(state)
        state.remaining_s, state.ended_s = 0.0, self.now_s

    def _release_devices(self, state: JobState) -> None:
        self._account_work(state)
        others = tuple(member for member in self._group_of(state) if member is not state)
        del self.running[state.job.id]
        if not others:
            self._unshared.pop(state.job.id)
            for device_id in state.device_ids:
                del self._running_on[device_id]
            self.busy -= len(state.devices)
            self.free.add(device.device for device in state.devices if device.is_present(self.now_s))
        else:
            self.shared -= len(state.devices) if len(others) == 1 else 0
            self._regroup(others, first=others[0])
        state.devices, state.device_ids, state.company, state.rate, state.slowdown = (), (), (), 0.0, 1.0
        state.rate_version += 1

    def _regroup(self, group: tuple[JobState, ...], *, first: JobState) -> None:
        """Record that exactly these jobs share their devices from now on, and update their rates, beginning with
        `first`."""
        self._running_on |= dict.fromkeys(first.device_ids, group)
        for member in (first, *(each for each in group if each is not first)):
            self._account_work(member)
            member.company = tuple(other for other in group if other is not member)
            member.slowdown = self._slowdown(member, group) if member.company else 1.0
            if member.company:
                self._unshared.pop(member.job.id, None)
            else:
                self._unshared[member.job.id] = member
            member.rate = min(device.speed for device in member.devices) / member.slowdown
            member.rate_version += 1
            self.changed_rates.append(member)

    def _account_work(self, state: JobState) -> None:
        """Record the work that a job has done since `accounted_s`, at the rate that held until now, as one span."""
        if state.rate > 0 and self.now_s > state.accounted_s:
            done_s = min(state.remaining_s, state.rate * (self.now_s - state.accounted_s))
            state.remaining_s -= done_s
            state.served_s += done_s
            self.spans.append(
                Span(
                    job_id=state.job.id,
                    start_s=state.accounted_s,
                    end_s=self.now_s,
                    slowdown=state.slowdown,
                    rate=state.rate,
                    company_ids=tuple(other.job.id for other in state.company),
                    device_ids=state.device_ids,
                    stepping=self._are_stepping((state, *state.company)),
                )
            )
        state.accounted_s = self.now_s


class Scheduler(Protocol):
    """Decides at every event: an arrival, an end, a device that appears or leaves, a time that was asked for."""

    def decide(self, cluster: Cluster) -> Decision:
        """Return the jobs that start and stop now. Called once per moment, after all events of that moment."""
