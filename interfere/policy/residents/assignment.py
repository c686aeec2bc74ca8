"""The residents and pending jobs of each device class in one assignment, and the resulting moves and starts.

A migration may be any set of moves that pays: a job leaves its partner for an empty device, joins a job that is alone
so that a waiting one gets its device, or several change places. `migration` says what a move saves and costs, in
weighted seconds. With `rematch_running` jobs are worth their weighted speeds (`rematching`), and pending jobs are
paired too; a resident without `remaining_s` is then expected to run on for its `attained_s`, because lifetimes are
heavy-tailed.

Law 1: only jobs move that may (`migration`). Law 2: no job moves twice, and the assignment returns no job to the queue;
preemptions by priority are planned afterwards, on devices that the assignment does not change. Law 3: once all moving
jobs have left their devices, every start and every move finds its place free. Law 4: devices that moves connect gain
together more than `move_factor` times what the moves cost.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np

from interfere.matching.problem import WAITS, Ints
from interfere.matching.rematching import (
    Arrangement,
    Floats,
    RematchableJobs,
    RematchingProblem,
    destinations,
    rematch,
    rematching_problem,
)
from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.residents.migration import (
    MIN_GAIN_S,
    Destination,
    Migration,
    MigrationPlan,
    job_weight,
    may_leave,
    may_start_alone,
    open_devices,
    plan_preemptions,
    slowdowns_beside,
)
from interfere.policy.rules.availability import availability_rule
from interfere.records import NAN, ActionKind, Device, Job
from interfere.time_budget import TimeBudget

LEAST_EXPECTED_S = 300.0  # least expected remaining time of any job: a usual time slice
MAX_WAITING = 64  # pending jobs in one assignment, for each device class
MAX_PAIRS = 40_000  # of residents that are looked at in one device class, where no job has fewer than
MIN_PARTNERS = 32
FEW_PARTNERS, SHARE_OF_FEW_PAIRS = 8, 0.4  # of the first search, and its share of the budget


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
    """Return the best assignment of each device class with residents, computed class by class, and preemptions.

    `closed_devices` have a promise or a start of this plan; `waiting`: jobs on one device that no action starts, in
    start order; `free_devices`: number of empty devices that may still be used.
    """
    migrations, of_job, starts = list[Migration](), dict[str, Destination](), list[AssignedStart]()
    queue, may_move = list(waiting), ActionKind.MOVE in context.limits.allowed
    for device_class, devices in open_devices(context, closed_devices).items() if may_move else ():
        assignment = _ClassAssignment.of(device_class, devices, queue, free_devices, context)
        if assignment is None:
            continue
        free_devices -= assignment.newly_used()
        migrations += assignment.migrations()
        placed = assignment.destinations()
        of_job |= {job_id: place for job_id, place in placed.items() if job_id in context.residents}
        starts += assignment.starts(placed)
        queue = [job for job in queue if job.id not in placed]
    if ActionKind.PREEMPT in context.limits.allowed:
        left = {device.id for job_id in of_job for device in context.resident_devices[job_id]}
        filled = {place.device_id for place in of_job.values()} | {start.destination.device_id for start in starts}
        migrations += plan_preemptions(context, {*closed_devices, *left, *filled}, queue)
    return AssignmentPlan(moves=MigrationPlan(migrations=tuple(migrations), destinations=of_job), starts=tuple(starts))


def _expected_s(job: Job) -> float:
    """Return the expected remaining time of a job alone, in seconds."""
    return max(LEAST_EXPECTED_S, float(np.nan_to_num(job.remaining_s if job.remaining_s >= 0 else job.attained_s)))


def _may_move(job: Job, device_class: DeviceClass) -> bool:
    known = not math.isnan(job.checkpoint_s) and not (math.isnan(job.remaining_s) and math.isnan(job.attained_s))
    movable = job.preemptible and job.gpus == 1 and math.isnan(job.deadline_s)
    return known and movable and availability_rule(job, device_class) is None


def _speeds(
    jobs: Sequence[Job], home: Ints, devices: int, device_class: DeviceClass, context: PlanningContext
) -> tuple[RematchingProblem, Floats]:
    """Return the problem of weighted speeds (`rematching`), and float64[n, n]: the slowdown of each job beside each."""
    slowdown, may_join = slowdowns_beside(jobs, device_class, context)
    facts = RematchableJobs(
        home=home,
        weight=np.array([job_weight(job, context.snapshot) for job in jobs]),
        expected_s=np.array([_expected_s(job) for job in jobs]),
        checkpoint_s=np.nan_to_num(np.array([job.checkpoint_s for job in jobs])),
        may_move=np.array([_may_move(job, device_class) for job in jobs]),
    )
    allowed = may_join & may_join.T & (ActionKind.START_SHARED in context.limits.allowed)
    factor = context.limits.move_factor
    return rematching_problem(facts, slowdown, allowed, devices=devices, move_factor=factor), slowdown


def _seconds(
    jobs: Sequence[Job], home: Ints, devices: int, device_class: DeviceClass, context: PlanningContext
) -> tuple[RematchingProblem, Floats]:
    """Return the problem of weighted seconds that are saved, and float64[n, n]: the slowdown of each job beside each.

    The present arrangement is worth 0. A job of unknown remaining time saves nothing and is never slowed down further.
    An unknown present slowdown counts as 1, so that leaving the partner saves nothing.
    """
    slowdown, may_join = slowdowns_beside(jobs, device_class, context)
    n, runs = len(jobs), home != WAITS
    together = (home[:, None] == home[None, :]) & runs[:, None] & ~np.eye(n, dtype=bool)
    present = np.ones(n)
    beside = np.nonzero(together)
    present[beside[0]] = np.nan_to_num(slowdown[beside], nan=1.0)
    weight = np.array([job_weight(job, context.snapshot) for job in jobs])
    seconds = weight * np.array([job.remaining_s for job in jobs])

    def saved(there: Floats) -> Floats:
        """float64[n, m]: weighted seconds that each job saves at a slowdown; -inf where that is not known."""
        reduction = present[:, None] - there
        of_unknown_length = np.where(reduction < 0, -np.inf, 0.0)
        known = np.where(np.isnan(seconds)[:, None], of_unknown_length, reduction * seconds[:, None])
        return np.where(np.isnan(reduction), -np.inf, known)

    allowed = may_join & may_join.T & (ActionKind.START_SHARED in context.limits.allowed) & runs & runs[:, None]
    beside_each = saved(slowdown)
    pair = np.where(together, 0.0, np.where(allowed, beside_each + beside_each.T, -np.inf))
    residents = [job.remaining_s for device in context.snapshot.devices for job in device.residents]
    wait_s = float(np.nan_to_num(np.fmin.reduce(residents, initial=math.nan)))
    may_move = np.array([may_leave(job, device_class) for job in jobs]) & runs
    checkpoint_s = np.array([job.checkpoint_s for job in jobs])
    move = np.where(may_move, context.limits.move_factor * weight * np.nan_to_num(checkpoint_s), np.inf)
    problem = RematchingProblem(
        home=home,
        alone=np.where(runs, saved(np.ones((n, 1)))[:, 0], weight * wait_s),
        pair=pair,
        move=np.broadcast_to(move[:, None], (n, n)),
        stop=np.full(n, np.inf),
        devices=devices,
    )
    return problem, slowdown


def _best_arrangement(problem: RematchingProblem, budget: TimeBudget) -> Arrangement:
    """Return the best arrangement found: first among few pairs, so that a large problem has an answer early."""
    few, most = FEW_PARTNERS, max(MIN_PARTNERS, MAX_PAIRS // max(1, problem.n))
    if problem.n <= most:
        return rematch(problem, budget).arrangement
    first = rematch(_with_candidate_pairs(problem, few), budget.share(SHARE_OF_FEW_PAIRS))
    return rematch(_with_candidate_pairs(problem, most), budget, first.arrangement).arrangement


def _with_candidate_pairs(problem: RematchingProblem, most: int) -> RematchingProblem:
    """Return the problem with the pairs that run now and, of each job, its best partners and as many others.

    Many jobs have the same best partners, so that those alone would leave most jobs without any. The others are the
    first of one fixed order, so that more candidates contain fewer.
    """
    n, pair, home = problem.n, problem.pair, problem.home
    kept = (home[:, None] == home[None, :]) & problem.runs
    best = np.argsort(-pair, axis=1, kind="stable")[:, : most // 2]
    others = np.random.default_rng(n).integers(0, n, (most, n))[: most // 2].T
    np.put_along_axis(kept, np.concatenate([best, others], axis=1), np.True_, axis=1)
    return replace(problem, pair=np.where(kept | kept.T, pair, -np.inf))


@dataclass(frozen=True, kw_only=True)
class _ClassAssignment:
    """The best arrangement of the jobs of one device class on its devices."""

    jobs: list[Job]  # residents, then pending jobs
    devices: list[Device]  # devices with residents first
    problem: RematchingProblem
    arrangement: Arrangement
    slowdown: Floats  # float64[n, n]
    lost_s: Floats  # float64[n]: weight · checkpoint_s
    lasts_s: Floats  # float64[n]: seconds for which one unit of value lasts that no move is charged against
    move_factor: float

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
        rematches = context.limits.rematch_running
        occupied = [device for device in devices if device.residents]
        devices = [*occupied, *[device for device in devices if not device.residents][: max(0, free_devices)]]
        residents = [job for device in occupied for job in device.residents]
        may_move = _may_move if rematches else may_leave
        if not any(may_move(job, device_class) for job in residents) or context.budget.expired:
            return None
        # A job that waits although a device is empty waits for a reason; it gets no vacated one.
        places = 2 * len(devices) - len(residents) if rematches else len(occupied) if devices == occupied else 0
        suitable = (job for job in queue if may_start_alone(job, device_class, context))
        jobs = [*residents, *islice(suitable, min(MAX_WAITING, places))]
        home = [k for k, device in enumerate(occupied) for _ in device.residents]
        homes = np.array(home + [WAITS] * (len(jobs) - len(residents)), dtype=np.int64)
        problem, slowdown = (_speeds if rematches else _seconds)(jobs, homes, len(devices), device_class, context)
        checkpoint_s = np.nan_to_num(np.array([job.checkpoint_s for job in jobs]))
        found = cls(
            jobs=jobs,
            devices=devices,
            problem=problem,
            arrangement=_best_arrangement(problem, context.budget),
            slowdown=slowdown,
            lost_s=np.array([job_weight(job, context.snapshot) for job in jobs]) * checkpoint_s,
            lasts_s=np.array([_expected_s(job) for job in jobs]) if rematches else np.ones(len(jobs)),
            move_factor=context.limits.move_factor,
        )
        return found._without_idle_moves()

    def _without_idle_moves(self) -> "_ClassAssignment":
        """Return the arrangement without the moves and starts on connected devices that gain nothing together."""
        mate, place = self.arrangement.mate.copy(), self.arrangement.place.copy()
        present = self.problem.current()
        for movers, inside, started in self._connected():
            paid = sum(float(self.problem.move[i, mate[i]]) for i in movers)
            if self._gained(inside, started) - paid <= MIN_GAIN_S:
                members = [*inside, *started]
                mate[members], place[members] = present.mate[members], present.place[members]
        return replace(self, arrangement=Arrangement(mate=mate, place=place))

    @cached_property
    def _device_of(self) -> dict[int, str]:
        """The device of every job that starts or moves."""
        return destinations(self.problem, self.arrangement, [device.id for device in self.devices])

    def newly_used(self) -> int:
        """Return the number of empty devices on which the arrangement places a job."""
        empty = {device.id for device in self.devices if not device.residents}
        return len(empty & set(self._device_of.values()))

    def destinations(self) -> dict[str, Destination]:
        """Return the destination of every job that starts or moves, by job id."""
        placed = {}
        for i, device_id in self._device_of.items():
            j = int(self.arrangement.mate[i])
            placed[self.jobs[i].id] = Destination(
                device_id=device_id,
                partner_id="" if i == j else self.jobs[j].id,
                slowdown=1.0 if i == j else float(self.slowdown[i, j]),
                partner_slowdown=NAN if i == j else float(self.slowdown[j, i]),
            )
        return placed

    def starts(self, placed: dict[str, Destination]) -> Iterator[AssignedStart]:
        """Yield the starts of pending jobs."""
        left_by = {
            self.devices[int(self.problem.home[i])].id: self.jobs[i].id for i in self._device_of if self.problem.runs[i]
        }
        for i in self._device_of:
            if not self.problem.runs[i]:
                place = placed[self.jobs[i].id]
                yield AssignedStart(
                    job_id=self.jobs[i].id, destination=place, leaving_id=left_by.get(place.device_id, "")
                )

    def migrations(self) -> Iterator[Migration]:
        """Yield one migration for each set of devices connected by moves."""
        mate = self.arrangement.mate
        for movers, inside, started in self._connected():
            paid = sum(float(self.problem.move[i, mate[i]]) for i in movers) / self.move_factor
            cost_s = sum(float(self.lost_s[i]) for i in movers)
            lasts_s = cost_s / paid if paid > 0 else float(self.lasts_s[[*inside, *started]].min())
            room = next((i for i in started if mate[i] == i), None)
            yield Migration(
                movers=tuple(self.jobs[i].id for i in movers),
                starts="" if room is None else self.jobs[room].id,
                device_id="" if room is None else self._device_of[room],
                saved_s=self._gained(inside, started) * lasts_s,
                cost_s=cost_s,
            )

    def _connected(self) -> list[tuple[list[int], list[int], list[int]]]:
        """Return the movers, all residents and the starting jobs of each set of devices that moves connect."""
        device_of, place_of = self._device_of, {device.id: k for k, device in enumerate(self.devices)}
        runs, home = self.problem.runs, self.problem.home
        part = list(range(len(self.devices)))  # connected component of each device; a move merges two components
        for i, device_id in device_of.items():
            if runs[i]:
                old, new = part[int(home[i])], part[place_of[device_id]]
                part = [new if label == old else label for label in part]
        connected: dict[int, tuple[list[int], list[int], list[int]]] = {}
        for i in device_of:
            if runs[i]:
                connected.setdefault(part[int(home[i])], ([], [], []))[0].append(i)
        for i in np.flatnonzero(runs).tolist():
            if (label := part[int(home[i])]) in connected:
                connected[label][1].append(i)
        for i, device_id in device_of.items():
            if not runs[i] and (label := part[place_of[device_id]]) in connected:
                connected[label][2].append(i)
        return list(connected.values())

    def _gained(self, inside: Sequence[int], started: Sequence[int]) -> float:
        """Return the value of the jobs' new groups minus the value of their present groups.

        Costs of moves are not counted.
        """
        after = {tuple(sorted((i, int(self.arrangement.mate[i])))) for i in (*inside, *started)}
        before = {tuple(sorted((i, int(self.problem.partner[i])))) for i in inside}
        return sum(map(self._worth, after)) - sum(map(self._worth, before))

    def _worth(self, group: tuple[int, ...]) -> float:
        i, j = group
        return float(self.problem.alone[i] if i == j else self.problem.pair[i, j])
