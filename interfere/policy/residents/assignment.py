"""Re-pairing: the residents and pending jobs of each device class in one assignment, and the resulting moves and
starts.

`rematching` computes the values of arrangements, `migration` decides which jobs may pair. A resident without
`remaining_s` is expected to run on for its `attained_s`, because lifetimes are heavy-tailed. Law 1: the conditions are
those of single migrations: only preemptible jobs on one device move, with a known checkpoint, no deadline, and more
time on their device than a promise lives. Law 2: no job moves twice, and the assignment returns no job to the queue;
preemptions by priority are planned afterwards, on devices that the assignment does not change. Law 3: once all moving
jobs have left their devices, every start and every move finds its place free.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from interfere.matching.problem import WAITS
from interfere.matching.rematching import Arrangement, RematchingProblem, rematch
from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.residents.migration import (
    Destination,
    Migration,
    MigrationPlan,
    job_weight,
    may_start_alone,
    outlived_promises,
    plan_migrations,
    slowdowns_beside,
)
from interfere.policy.residents.rematching import Floats, RematchableJobs, destinations, rematching_problem
from interfere.policy.rules.availability import availability_rule
from interfere.records import NAN, ActionKind, Device, Job
from interfere.records.cluster import DEFAULT_SEATS

LEAST_EXPECTED_S = 300.0  # least expected remaining time of any job: a usual time slice
MAX_WAITING = 64  # pending jobs in one assignment, for each device class


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedStart:
    """A pending job that starts, and its destination in the assignment."""

    job_id: str
    destination: Destination
    leaving_id: str = ""  # resident that moves away from the destination; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPlan:
    """The starts and moves of an assignment; moves that depend on each other form one migration."""

    moves: MigrationPlan = field(default_factory=MigrationPlan)
    starts: tuple[AssignedStart, ...] = ()


def plan_assignment(
    context: PlanningContext, closed_devices: Collection[str], waiting: Sequence[Job], free_devices: int
) -> AssignmentPlan:
    """Return the best assignment of each device class with residents, computed class by class.

    `closed_devices` have a promise or a start of this plan; `waiting`: jobs on one device that no action starts, in
    start order; `free_devices`: number of empty devices that may still be used.
    """
    migrations, of_job, starts = list[Migration](), dict[str, Destination](), list[AssignedStart]()
    queue = list(waiting)
    for device_class, devices in _open_devices(context, closed_devices).items():
        if context.budget.expired:
            break
        assignment = _ClassAssignment.of(device_class, devices, queue, free_devices, context)
        if assignment is None:
            continue
        free_devices -= assignment.newly_used()
        migrations += assignment.migrations(context.limits.move_factor)
        placed = assignment.destinations()
        of_job |= {job_id: place for job_id, place in placed.items() if job_id in context.residents}
        starts += assignment.starts(placed)
        queue = [job for job in queue if job.id not in placed]
    if ActionKind.PREEMPT in context.limits.allowed:
        migrations += _preemptions(context, {*closed_devices, *_changed_devices(context, of_job, starts)}, queue)
    return AssignmentPlan(moves=MigrationPlan(migrations=tuple(migrations), destinations=of_job), starts=tuple(starts))


def _changed_devices(
    context: PlanningContext, of_job: Mapping[str, Destination], starts: Sequence[AssignedStart]
) -> set[str]:
    """Return the ids of the devices that a job leaves, moves to or starts on."""
    left = {device.id for job_id in of_job for device in context.resident_devices[job_id]}
    return left | {place.device_id for place in of_job.values()} | {start.destination.device_id for start in starts}


def _preemptions(
    context: PlanningContext, closed_devices: Collection[str], queue: Sequence[Job]
) -> tuple[Migration, ...]:
    """Return the preemptions by priority, on devices that are not closed."""
    limits = replace(context.limits, allowed=context.limits.allowed - {ActionKind.MOVE})
    without_moves = context.subproblem(replace(context.snapshot, limits=limits))
    return plan_migrations(without_moves, closed_devices, queue, 0).migrations


def _open_devices(context: PlanningContext, closed_devices: Collection[str]) -> dict[DeviceClass, list[Device]]:
    """Return by class the devices whose jobs may be rearranged, devices with residents first."""
    devices_of: dict[DeviceClass, list[Device]] = {}
    for device in sorted(context.snapshot.devices, key=lambda device: not device.residents):
        if device.id not in closed_devices and len(device.residents) <= 2 and outlived_promises(device, context):
            device_class = context.device_class(device)
            if device_class.seats >= DEFAULT_SEATS and (device.residents or device_class in devices_of):
                devices_of.setdefault(device_class, []).append(device)
    return devices_of


def _expected_s(job: Job) -> float:
    """Return the expected remaining time of a job alone, in seconds."""
    return max(LEAST_EXPECTED_S, float(np.nan_to_num(job.remaining_s if job.remaining_s >= 0 else job.attained_s)))


def _may_move(job: Job, device_class: DeviceClass) -> bool:
    known = not math.isnan(job.checkpoint_s) and not (math.isnan(job.remaining_s) and math.isnan(job.attained_s))
    movable = job.preemptible and job.gpus == 1 and math.isnan(job.deadline_s)
    return known and movable and availability_rule(job, device_class) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassAssignment:
    """The best arrangement of the jobs of one device class on its devices."""

    jobs: list[Job]  # residents, then pending jobs
    devices: list[Device]  # devices with residents first
    problem: RematchingProblem
    arrangement: Arrangement
    slowdown: Floats  # float64[n, n]
    expected_s: Floats  # float64[n]
    lost_s: Floats  # float64[n]: weight · checkpoint_s

    @classmethod
    def of(
        cls,
        device_class: DeviceClass,
        devices: list[Device],
        queue: Sequence[Job],
        free_devices: int,
        context: PlanningContext,
    ) -> "_ClassAssignment | None":
        """Return the best arrangement; None where no job may move."""
        occupied = [device for device in devices if device.residents]
        devices = [*occupied, *[device for device in devices if not device.residents][: max(0, free_devices)]]
        residents = [job for device in occupied for job in device.residents]
        if not any(_may_move(job, device_class) for job in residents):
            return None
        places = 2 * len(devices) - len(residents)
        suitable = (job for job in queue if may_start_alone(job, device_class, context))
        jobs = [*residents, *islice(suitable, min(MAX_WAITING, places))]
        slowdown, may_join = slowdowns_beside(jobs, device_class, context)
        home = [k for k, device in enumerate(occupied) for _ in device.residents]
        weight = np.array([job_weight(job, context.snapshot) for job in jobs])
        checkpoint_s = np.nan_to_num(np.array([job.checkpoint_s for job in jobs]))
        expected_s = np.array([_expected_s(job) for job in jobs])
        problem = rematching_problem(
            RematchableJobs(
                home=np.array(home + [WAITS] * (len(jobs) - len(residents))),
                weight=weight,
                expected_s=expected_s,
                checkpoint_s=checkpoint_s,
                may_move=np.array([_may_move(job, device_class) for job in jobs]),
            ),
            slowdown,
            may_join & may_join.T & (ActionKind.START_SHARED in context.limits.allowed),
            devices=len(devices),
            move_factor=context.limits.move_factor,
        )
        return cls(
            jobs=jobs,
            devices=devices,
            problem=problem,
            arrangement=rematch(problem).arrangement,
            slowdown=slowdown,
            expected_s=expected_s,
            lost_s=weight * checkpoint_s,
        )

    def _device_of(self) -> dict[int, str]:
        return destinations(self.problem, self.arrangement, [device.id for device in self.devices])

    def _speed(self, i: int, j: int) -> float:
        """Return the speed of job i with partner j, 1 / slowdown, times the weight of i."""
        weight = float(self.problem.alone[i])
        return weight if i == j else weight / max(1.0, float(np.nan_to_num(self.slowdown[i, j], nan=1.0)))

    def newly_used(self) -> int:
        """Return the number of empty devices on which the arrangement places a job."""
        empty = {device.id for device in self.devices if not device.residents}
        return len(empty & set(self._device_of().values()))

    def destinations(self) -> dict[str, Destination]:
        """Return the destination of every job that starts or moves, by job id."""
        placed = {}
        for i, device_id in self._device_of().items():
            j = int(self.arrangement.mate[i])
            placed[self.jobs[i].id] = Destination(
                device_id=device_id,
                partner_id="" if i == j else self.jobs[j].id,
                slowdown=1.0 if i == j else float(self.slowdown[i, j]),
                partner_slowdown=NAN if i == j else float(self.slowdown[j, i]),
            )
        return placed

    def _left_by(self) -> dict[str, str]:
        """Return a job that moves away from each device, by device id."""
        return {
            self.devices[int(self.problem.home[i])].id: self.jobs[i].id
            for i in self._device_of()
            if self.problem.runs[i]
        }

    def starts(self, placed: dict[str, Destination]) -> Iterator[AssignedStart]:
        """Yield the starts of pending jobs."""
        left_by = self._left_by()
        for i in self._device_of():
            if not self.problem.runs[i]:
                place = placed[self.jobs[i].id]
                yield AssignedStart(
                    job_id=self.jobs[i].id, destination=place, leaving_id=left_by.get(place.device_id, "")
                )

    def migrations(self, move_factor: float) -> Iterator[Migration]:
        """Yield one migration for each set of devices connected by moves."""
        device_of, place_of = self._device_of(), {device.id: k for k, device in enumerate(self.devices)}
        part = list(range(len(self.devices)))  # connected component of each device; a move merges two components

        for i, device_id in device_of.items():
            if self.problem.runs[i]:
                old, new = part[int(self.problem.home[i])], part[place_of[device_id]]
                part = [new if label == old else label for label in part]
        mate, partner = self.arrangement.mate, self.problem.partner
        for label in dict.fromkeys(part):
            movers = [i for i in device_of if self.problem.runs[i] and part[int(self.problem.home[i])] == label]
            if not movers:
                continue
            inside = [
                i for i in range(self.problem.n) if self.problem.runs[i] and part[int(self.problem.home[i])] == label
            ]
            started = [i for i in device_of if not self.problem.runs[i] and part[place_of[device_of[i]]] == label]
            gained = sum(self._speed(i, int(mate[i])) - self._speed(i, int(partner[i])) for i in inside)
            gained += sum(self._speed(i, int(mate[i])) for i in started)
            paid = sum(float(self.problem.move[i, mate[i]]) for i in movers) / move_factor
            cost_s = sum(float(self.lost_s[i]) for i in movers)
            lasts_s = cost_s / paid if paid > 0 else float(self.expected_s[[*inside, *started]].min())
            room = next((i for i in started if mate[i] == i), None)
            yield Migration(
                movers=tuple(self.jobs[i].id for i in movers),
                starts="" if room is None else self.jobs[room].id,
                device_id="" if room is None else device_of[room],
                saved_s=gained * lasts_s,
                cost_s=cost_s,
            )
