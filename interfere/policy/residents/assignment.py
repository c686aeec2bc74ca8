"""Which residents leave their devices: moves and preemptions that gain, and the starts on devices that they vacate.

Without a clock no resident leaves its device, because earlier starts cannot be distinguished from recent ones. The
residents and pending jobs of each device class are in one assignment.

A migration may be any set of moves that pays: a job leaves its partner for an empty device, joins a job that is alone
so that a waiting one gets its device, or several change places. `migration` says what a move saves and costs, in
weighted seconds. With `rematch_running` jobs are worth their weighted speeds (`rematching`), and pending jobs are
paired too; a resident without `remaining_s` is then expected to run on for its `attained_s`, because lifetimes are
heavy-tailed.

Law 1: only jobs move that may (`migration`). Law 2: no job moves twice, and the assignment returns no job to the queue.
Law 3: once all moving jobs have left their devices, every start and every move finds its place free. Law 4: devices
that moves connect gain together more than `move_factor` times what the moves cost.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np

from interfere.matching.problem import WAITS, Bools, Ints
from interfere.matching.rematching import (
    Arrangement,
    Floats,
    RematchableJobs,
    RematchingProblem,
    destinations,
    rematch,
    rematching_problem,
)
from interfere.policy.answer.starts import merge_plans, plan_of_starts, start_alone, start_beside
from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.residents.migration import (
    MIN_GAIN_S,
    is_movable,
    job_weight,
    leaving_action,
    may_leave,
    may_start_alone,
    open_devices,
    plan_moves_across_types,
    plan_preemptions,
    slowdowns_beside,
    start_where_vacated,
)
from interfere.policy.rules.runtime import start_weights
from interfere.records import NAN, Action, ActionKind, Device, Job, Plan, SolveStatus
from interfere.time_budget import TimeBudget

LEAST_EXPECTED_S = 300.0  # least expected remaining time of any job: a usual time slice
MAX_WAITING = 64  # pending jobs in one assignment, for each device class
MAX_PAIRS = 40_000  # of residents that are looked at in one device class, where no job has fewer than
MIN_PARTNERS = 32
FEW_PARTNERS, SHARE_OF_FEW_PAIRS = 8, 0.4  # of the first search, and its share of the budget


LEAVING_KINDS = (ActionKind.MOVE, ActionKind.PREEMPT)  # promised actions after which a resident has left its device


def with_migrations(plan: Plan, context: PlanningContext) -> Plan:
    """Return the plan with migrations that gain added, and the starts on the devices that they vacate.

    Actions of pending jobs come first. `context`: the context of the snapshot for which the plan was made.
    """
    snapshot = context.snapshot
    if not snapshot.limits.allowed.intersection(LEAVING_KINDS) or math.isnan(snapshot.now_s):
        return plan
    started_on = {device_id for action in plan.actions for device_id in action.places}
    unplaced = {action.job_id for action in plan.actions if not action.places}
    waiting = [job for job in snapshot.pending if job.id in unplaced and job.gpus == 1]
    waiting.sort(key=lambda job: -float(start_weights([job], snapshot.now_s, snapshot.limits.timing.ageing_s)[0]))
    empty = {device.id for device in snapshot.devices if not device.residents}
    max_devices = len(empty) if snapshot.limits.max_devices is None else snapshot.limits.max_devices
    free_devices = max_devices - len(started_on & empty)
    changes: list[Action] = []
    # 1. Moves within a device class, and starts that they make room for.
    if ActionKind.MOVE in snapshot.limits.allowed:
        changes += plan_assignments(context, started_on, waiting, free_devices)
    # 2. Preemptions by priority, on devices that nothing else changes.
    if ActionKind.PREEMPT in snapshot.limits.allowed:
        placed = {action.job_id for action in changes}
        queue = [job for job in waiting if job.id not in placed]
        changes += plan_preemptions(context, started_on | _changed_devices(changes, context), queue)
    # 3. Moves to idle devices of another type.
    if ActionKind.MOVE in snapshot.limits.allowed:
        changed = _changed_devices(changes, context)
        changes += plan_moves_across_types(context, started_on | changed, free_devices - len(changed & empty))
    leaving = [action for action in changes if action.kind in LEAVING_KINDS]
    if len(leaving) < len(changes):
        starts = [action for action in changes if action.kind not in LEAVING_KINDS]
        plan = merge_plans([plan, plan_of_starts(starts, context)], context)
    if any(is_movable(job) for device in snapshot.devices for job in device.residents):
        plan = replace(plan, status=SolveStatus.BOUNDED)  # heuristic: other migrations might gain more
    return replace(plan, actions=(*plan.actions, *leaving))


def _changed_devices(changes: Sequence[Action], context: PlanningContext) -> set[str]:
    """Return the ids of the devices that a job leaves, moves to, is preempted on or starts on."""
    left = [device for action in changes for device in context.resident_devices.get(action.job_id, ())]
    return {device.id for device in left} | {action.device_id for action in changes}


def plan_assignments(
    context: PlanningContext, closed_devices: Collection[str], waiting: Sequence[Job], free_devices: int
) -> list[Action]:
    """Return the moves and starts of the best assignment of each device class with residents, class by class.

    `closed_devices` have a promise or a start of this plan; `waiting`: jobs on one device that no action starts, in
    start order; `free_devices`: number of empty devices that may still be used.
    """
    changes, queue = list[Action](), list(waiting)
    for device_class, devices in open_devices(context, closed_devices).items():
        assignment = _ClassAssignment.of(device_class, devices, queue, free_devices, context)
        if assignment is not None:
            free_devices -= assignment.newly_used()
            changes += assignment.changes(context)
            placed = {action.job_id for action in changes}
            queue = [job for job in queue if job.id not in placed]
    return changes


def _expected_s(job: Job) -> float:
    """Return the expected remaining time of a job alone, in seconds."""
    return max(LEAST_EXPECTED_S, float(np.nan_to_num(job.remaining_s if job.remaining_s >= 0 else job.attained_s)))


def _problem(
    jobs: Sequence[Job], home: Ints, devices: int, device_class: DeviceClass, context: PlanningContext
) -> tuple[RematchingProblem, Floats]:
    """Return the problem of a device class, and float64[n, n]: the slowdown of each job beside each.

    With `rematch_running` values are weighted speeds (`rematching`), else weighted seconds that are saved.
    """
    rematches = context.limits.rematch_running
    slowdown, may_join = slowdowns_beside(jobs, device_class, context)
    facts = RematchableJobs(
        home=home,
        weight=np.array([job_weight(job, context.snapshot) for job in jobs]),
        expected_s=np.array([_expected_s(job) for job in jobs]),
        checkpoint_s=np.nan_to_num(np.array([job.checkpoint_s for job in jobs])),
        may_move=np.array([may_leave(job, device_class, unknown_length=rematches) for job in jobs]),
    )
    allowed = may_join & may_join.T & (ActionKind.START_SHARED in context.limits.allowed)
    if rematches:
        factor = context.limits.move_factor
        return rematching_problem(facts, slowdown, allowed, devices=devices, move_factor=factor), slowdown
    return _seconds(jobs, facts, slowdown, allowed, devices, context), slowdown


def _seconds(
    jobs: Sequence[Job],
    facts: RematchableJobs,
    slowdown: Floats,
    allowed: Bools,
    devices: int,
    context: PlanningContext,
) -> RematchingProblem:
    """Return the problem of weighted seconds that are saved.

    The present arrangement is worth 0. A job of unknown remaining time saves nothing and is never slowed down further.
    An unknown present slowdown counts as 1, so that leaving the partner saves nothing.
    """
    n, home, runs = len(jobs), facts.home, facts.home != WAITS
    together = (home[:, None] == home[None, :]) & runs[:, None] & ~np.eye(n, dtype=bool)
    present = np.ones(n)
    beside = np.nonzero(together)
    present[beside[0]] = np.nan_to_num(slowdown[beside], nan=1.0)
    seconds = facts.weight * np.array([job.remaining_s for job in jobs])

    def saved(there: Floats) -> Floats:
        """float64[n, m]: weighted seconds that each job saves at a slowdown; -inf where that is not known."""
        reduction = present[:, None] - there
        of_unknown_length = np.where(reduction < 0, -np.inf, 0.0)
        known = np.where(np.isnan(seconds)[:, None], of_unknown_length, reduction * seconds[:, None])
        return np.where(np.isnan(reduction), -np.inf, known)

    beside_each = saved(slowdown)
    may_pair = allowed & runs & runs[:, None]
    residents = [job.remaining_s for device in context.snapshot.devices for job in device.residents]
    wait_s = float(np.nan_to_num(np.fmin.reduce(residents, initial=math.nan)))
    lost = context.limits.move_factor * facts.weight * facts.checkpoint_s
    return RematchingProblem(
        home=home,
        alone=np.where(runs, saved(np.ones((n, 1)))[:, 0], facts.weight * wait_s),
        pair=np.where(together, 0.0, np.where(may_pair, beside_each + beside_each.T, -np.inf)),
        move=np.broadcast_to(np.where(facts.may_move & runs, lost, np.inf)[:, None], (n, n)),
        devices=devices,
    )


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
        may_move = (may_leave(job, device_class, unknown_length=rematches) for job in residents)
        if not any(may_move) or context.budget.expired:
            return None
        # A job that waits although a device is empty waits for a reason; it gets no vacated one.
        places = 2 * len(devices) - len(residents) if rematches else len(occupied) if devices == occupied else 0
        suitable = (job for job in queue if may_start_alone(job, device_class, context))
        jobs = [*residents, *islice(suitable, min(MAX_WAITING, places))]
        home = [k for k, device in enumerate(occupied) for _ in device.residents]
        homes = np.array(home + [WAITS] * (len(jobs) - len(residents)), dtype=np.int64)
        problem, slowdown = _problem(jobs, homes, len(devices), device_class, context)
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

    def changes(self, context: PlanningContext) -> Iterator[Action]:
        """Yield the moves, which name what the moves on connected devices gain together, then the starts."""
        jobs, mate, runs = self.jobs, self.arrangement.mate.tolist(), self.problem.runs
        for movers, inside, started in self._connected():
            paid = sum(float(self.problem.move[i, mate[i]]) for i in movers) / self.move_factor
            cost_s = sum(float(self.lost_s[i]) for i in movers)
            lasts_s = cost_s / paid if paid > 0 else float(self.lasts_s[[*inside, *started]].min())
            saved_s = self._gained(inside, started) * lasts_s
            for i in movers:
                j = mate[i]
                yield leaving_action(
                    ActionKind.MOVE,
                    jobs[i],
                    self._device_of[i],
                    saved_s,
                    cost_s,
                    starts=next((jobs[other].id for other in started if mate[other] == other), ""),
                    partner_id="" if i == j else jobs[j].id,
                    slowdown=1.0 if i == j else float(self.slowdown[i, j]),
                    partner_slowdown=NAN if i == j else float(self.slowdown[j, i]),
                )
        left_by = {self.devices[int(self.problem.home[i])].id: jobs[i].id for i in self._device_of if runs[i]}
        for i, device_id in self._device_of.items():
            j, devices = mate[i], (context.devices[device_id],)
            if runs[i]:
                continue
            if i != j:
                slowdowns = float(self.slowdown[i, j]), float(self.slowdown[j, i])
                yield start_beside(jobs[i], devices, jobs[j], slowdowns, context)
            elif device_id in left_by:
                yield start_where_vacated(jobs[i], devices[0], left_by[device_id], ActionKind.MOVE, context)
            else:
                yield start_alone(jobs[i], devices, context)

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
