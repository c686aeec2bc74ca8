"""Re-pairing in a decision: residents and pending jobs of each device class as one assignment, and its actions.

What arrangements are worth is `rematching`, who may pair by all rules of pairs is `migration`. A resident without
`remaining_s` is expected to run on as long as it has by its `attained_s`: lifetimes have heavy tails.
Law 1: who may move, and which devices are left alone, is as for single migrations: preemptible jobs on one device with
a known checkpoint and no deadline, there for longer than a promise lives. Law 2: no job moves twice, and the assignment
sends none back to the queue; preemptions by priority are planned after it, on devices that it leaves alone. Law 3: once
all that move have left their devices, every start and move finds its place.
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

LEAST_EXPECTED_S = 300.0  # of a job of which nothing is known, and of any other: a usual time slice
MAX_WAITING = 64  # pending jobs that one assignment considers, for each class


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedStart:
    """A pending job that starts where the assignment puts it."""

    job_id: str
    destination: Destination
    leaving_id: str = ""  # a resident that moves away from that device; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPlan:
    """The moves of an assignment, each set of moves that hang together as one migration, and the starts."""

    moves: MigrationPlan = field(default_factory=MigrationPlan)
    starts: tuple[AssignedStart, ...] = ()


def plan_assignment(
    context: PlanningContext, closed_devices: Collection[str], waiting: Sequence[Job], free_devices: int
) -> AssignmentPlan:
    """Return the best assignment of each device class with residents, one after the other.

    `closed_devices` have a promise or a start of this plan; `waiting` are jobs on one device that nothing starts, in
    the order in which they should start; `free_devices` is the number of empty devices that may still be taken.
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
    """Devices that a job leaves, moves to or starts on."""
    left = {device.id for job_id in of_job for device in context.resident_devices[job_id]}
    return left | {place.device_id for place in of_job.values()} | {start.destination.device_id for start in starts}


def _preemptions(
    context: PlanningContext, closed_devices: Collection[str], queue: Sequence[Job]
) -> tuple[Migration, ...]:
    """Preemptions by priority, on other devices."""
    limits = replace(context.limits, allowed=context.limits.allowed - {ActionKind.MOVE})
    without_moves = context.subproblem(replace(context.snapshot, limits=limits))
    return plan_migrations(without_moves, closed_devices, queue, 0).migrations


def _open_devices(context: PlanningContext, closed_devices: Collection[str]) -> dict[DeviceClass, list[Device]]:
    """Devices by class that may be arranged anew: those with residents first."""
    devices_of: dict[DeviceClass, list[Device]] = {}
    for device in sorted(context.snapshot.devices, key=lambda device: not device.residents):
        if device.id not in closed_devices and len(device.residents) <= 2 and outlived_promises(device, context):
            device_class = context.device_class(device)
            if device_class.seats >= DEFAULT_SEATS and (device.residents or device_class in devices_of):
                devices_of.setdefault(device_class, []).append(device)
    return devices_of


def _expected_s(job: Job) -> float:
    """Expected remaining time alone."""
    return max(LEAST_EXPECTED_S, float(np.nan_to_num(job.remaining_s if job.remaining_s >= 0 else job.attained_s)))


def _may_move(job: Job, device_class: DeviceClass) -> bool:
    known = not math.isnan(job.checkpoint_s) and not (math.isnan(job.remaining_s) and math.isnan(job.attained_s))
    movable = job.preemptible and job.gpus == 1 and math.isnan(job.deadline_s)
    return known and movable and availability_rule(job, device_class) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassAssignment:
    """The best arrangement of the jobs of one device class."""

    jobs: list[Job]  # residents, then pending ones
    devices: list[Device]  # those with residents first
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
        """Return the best one; None where nobody may move."""
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
        """Weighted speed of i beside j."""
        weight = float(self.problem.alone[i])
        return weight if i == j else weight / max(1.0, float(np.nan_to_num(self.slowdown[i, j], nan=1.0)))

    def newly_used(self) -> int:
        """Number of empty devices that get a job."""
        empty = {device.id for device in self.devices if not device.residents}
        return len(empty & set(self._device_of().values()))

    def destinations(self) -> dict[str, Destination]:
        """Return where every job that starts or moves goes, by job id."""
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
        """Device -> a job that moves away from it."""
        return {
            self.devices[int(self.problem.home[i])].id: self.jobs[i].id
            for i in self._device_of()
            if self.problem.runs[i]
        }

    def starts(self, placed: dict[str, Destination]) -> Iterator[AssignedStart]:
        """Yield the pending jobs that start."""
        left_by = self._left_by()
        for i in self._device_of():
            if not self.problem.runs[i]:
                place = placed[self.jobs[i].id]
                yield AssignedStart(
                    job_id=self.jobs[i].id, destination=place, leaving_id=left_by.get(place.device_id, "")
                )

    def migrations(self, move_factor: float) -> Iterator[Migration]:
        """One for each set of devices that moves connect: what its jobs gain in speed while their company lasts."""
        device_of, place_of = self._device_of(), {device.id: k for k, device in enumerate(self.devices)}
        part = list(range(len(self.devices)))  # of each device; parts that a move connects are made one

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
