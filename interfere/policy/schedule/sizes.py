"""Sizes of elastic jobs: on how many devices each waiting one starts, and which running ones are stopped for another.

A choice of sizes is judged by the schedule of all jobs that it leads to, shortest job first: by the weighted sum of
their ends, or by the worst job where the objective is about that. The best uniform choice (all at their first size, or
at their fastest of at most n devices) is improved job by job while that gains: greedy by marginal gain (Optimus, Peng
et al., 2018), but with what a size costs the jobs that wait. Where nobody says how long jobs take, as many as possible
start now.

Law 1: a running job is stopped only where the gain exceeds `move_factor` times its checkpoint. Law 2: the same snapshot
and ledger give the same sizes. Law 3: a promised start keeps its size.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.objectives import Aggregate
from interfere.policy.rules.text import render
from interfere.policy.schedule.from_context import SchedulingInstance, has_planned_objective, scheduling_instance
from interfere.policy.schedule.heuristics import GREEDY_JOINT_THROUGHPUT, JobOrder, jobs_in_order, schedule_in_order
from interfere.policy.schedule.problem import ScheduleProblem, ScheduleValue, value_of
from interfere.policy.schedule.timeline import GroupStart
from interfere.records import Action, ActionKind, Job, Plan, Promise, Rule, RuleKind, Snapshot

Floats = NDArray[np.float64]
MAX_WORK_UNITS = 500_000  # a sixth of a second of one core


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedSnapshot:
    """A snapshot in which every job runs on one number of devices only, and the residents to stop for another size."""

    snapshot: Snapshot
    resized: Mapping[str, Rule] = field(default_factory=dict)  # why, by job id


def with_present_sizes(snapshot: Snapshot, gpus_of: Mapping[str, int]) -> Snapshot:
    """Return the snapshot with every elastic job at one size.

    A resident is at its present size, a pending job at that of `gpus_of`, by job id, or at its first.
    """

    def sized(job: Job, gpus: int) -> Job:
        return job.at_size(gpus) if job.sizes else job

    if not any(job.sizes for job in _jobs(snapshot)):
        return snapshot
    return replace(
        snapshot,
        pending=tuple(
            sized(job, gpus_of.get(job.id, job.sizes[0].gpus if job.sizes else 0)) for job in snapshot.pending
        ),
        devices=tuple(
            replace(device, residents=tuple(sized(job, job.gpus) for job in device.residents))
            for device in snapshot.devices
        ),
    )


def sizes_of_plan(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """Return on how many devices a plan starts the elastic jobs that it starts, by job id."""
    elastic = {job.id for job in snapshot.pending if job.sizes}
    return {action.job_id: len(action.places) for action in plan.actions if action.job_id in elastic and action.places}


def choose_sizes(context: PlanningContext, promises: Iterable[Promise]) -> SizedSnapshot:
    """Return the snapshot with a size chosen for every elastic job that no promise names."""
    snapshot = context.snapshot
    if not any(job.sizes for job in _jobs(snapshot)):
        return SizedSnapshot(snapshot=snapshot)
    known = list(promises)
    promised = {each.action.job_id: len(each.action.places) for each in known if not each.from_device_id}
    promised = {job.id: promised[job.id] for job in snapshot.pending if _is_size(promised.get(job.id), job)}
    present = with_present_sizes(snapshot, promised)
    waiting = [job for job in snapshot.pending if job.sizes and job.id not in promised]
    movable = _resizable(context, {promise.action.job_id for promise in known})
    if not snapshot.devices or not (waiting or movable):
        return SizedSnapshot(snapshot=present)
    chosen = _Choice.of(context.with_snapshot(present), waiting, movable).made()
    resized = {job.id: chosen[job.id] for job in movable if chosen[job.id] != job.gpus}
    return SizedSnapshot(
        snapshot=with_present_sizes(snapshot, promised | {job.id: chosen[job.id] for job in waiting}),
        resized={name: Rule(kind=RuleKind.RESIZED, job_id=name, gpus=gpus) for name, gpus in resized.items()},
    )


def stop_actions(resized: Mapping[str, Rule], context: PlanningContext) -> tuple[Action, ...]:
    """Return one `preempt` action for each resident that is stopped to start again at another size.

    It names all devices of the job.
    """
    actions = []
    for name, rule in resized.items():
        devices = tuple(device.id for device in context.resident_devices[name])
        actions.append(
            Action(
                kind=ActionKind.PREEMPT,
                job_id=name,
                device_id=devices[0],
                device_ids=devices if len(devices) > 1 else (),
                reason=render(rule),
                rule=rule,
            )
        )
    return tuple(actions)


def _jobs(snapshot: Snapshot) -> Iterable[Job]:
    """Yield the pending jobs, then the residents of each device."""
    yield from snapshot.pending
    for device in snapshot.devices:
        yield from device.residents


def _is_size(gpus: int | None, job: Job) -> bool:
    """Return whether a number of devices is one of the sizes of an elastic job."""
    return any(size.gpus == gpus for size in job.sizes)


def _resizable(context: PlanningContext, promised: set[str]) -> list[Job]:
    """Return the elastic residents that may be stopped: preemptible, alone on devices of one class, at known cost.

    A job whose start may still be promised is left alone, as migrations leave it.
    """
    limits, now_s = context.limits, context.now_s
    if ActionKind.PREEMPT not in limits.allowed or math.isnan(now_s) or context.snapshot.partial:
        return []
    found = []
    for name, devices in context.resident_devices.items():
        job = context.residents[name]
        may_stop = bool(job.sizes) and job.preemptible and math.isnan(job.deadline_s) and name not in promised
        if not may_stop or math.isnan(job.remaining_s + job.checkpoint_s):
            continue
        is_alone = len(devices) == job.gpus and all(len(device.residents) == 1 for device in devices)
        is_settled = now_s - job.since_s >= limits.timing.promise_ttl_s
        if is_alone and is_settled and len({context.device_class(device) for device in devices}) == 1:
            found.append(job)
    return sorted(found, key=lambda job: job.id)


def _by_weighted_ends(instance: SchedulingInstance) -> ScheduleProblem:
    """Return the problem with Σ weight · end as its objective.

    Shares of a job's own time, as `auto` has them, would give the devices to short jobs that hardly need them.
    """
    objective = instance.problem.objective
    weight = np.array([job.weight for job in instance.jobs], dtype=np.float64)
    return replace(instance.problem, objective=replace(objective, rate=weight, constant=np.zeros_like(weight)))


def _fastest(speed_of: Mapping[int, float], max_gpus: int) -> int:
    """Return the fastest size of at most this many devices, or the smallest one."""
    fitting = [gpus for gpus in speed_of if gpus <= max_gpus] or [min(speed_of)]
    return min(fitting, key=lambda gpus: (-speed_of[gpus], gpus))


@dataclass(kw_only=True)
class _Choice:
    """The sizes of some jobs of a scheduling problem, in which residents that may be resized wait like pending jobs."""

    instance: SchedulingInstance
    number_of: dict[str, int]  # of each elastic job in the problem, by job id
    sizes: dict[int, dict[int, float]]  # of each elastic job: speed by number of devices, the first size first
    kept: dict[int, GroupStart]  # of each resident that may be resized: that it goes on as it runs
    checkpoint_s: dict[int, float]  # what stopping such a resident adds, times the factor that a move has to gain
    expired: Callable[[], bool]
    units: int = 0

    @classmethod
    def of(cls, context: PlanningContext, waiting: list[Job], movable: list[Job]) -> "_Choice":
        """Return the choice before it is made. `context`: with every job at its present size, or its first."""
        snapshot, limits = context.snapshot, context.limits
        names = {job.id for job in movable}
        first = [job.at_size(job.sizes[0].gpus) for job in movable]
        devices = tuple(
            replace(device, residents=tuple(job for job in device.residents if job.id not in names))
            for device in snapshot.devices
        )
        freed = sum(job.gpus for job in movable)
        if limits.max_devices is not None:
            limits = replace(limits, max_devices=limits.max_devices + freed)
        everybody = context.subproblem(
            replace(snapshot, pending=(*snapshot.pending, *first), devices=devices, limits=limits)
        )
        instance = scheduling_instance(everybody, {}, shares=has_planned_objective(everybody))
        instance = instance or scheduling_instance(everybody, {}, shares=False)
        assert instance is not None
        if instance.problem.objective.aggregate is Aggregate.SUM:
            instance = replace(instance, problem=_by_weighted_ends(instance))
        number_of = {job.id: k for k, job in enumerate(instance.pending)}
        class_of = {name: k for k, members in enumerate(instance.classes) for name in members.device_ids}
        elastic = (*waiting, *movable)
        return cls(
            instance=instance,
            number_of={job.id: number_of[job.id] for job in elastic},
            sizes={number_of[job.id]: {size.gpus: size.speed for size in job.sizes} for job in elastic},
            kept={
                number_of[job.id]: GroupStart(
                    jobs=(number_of[job.id],),
                    device_class=class_of[context.resident_devices[job.id][0].id],
                    gpus=job.gpus,
                    slowdowns=(1.0,),
                )
                for job in movable
            },
            expired=lambda: context.budget.expired,
            checkpoint_s={number_of[job.id]: limits.move_factor * job.checkpoint_s for job in movable},
        )

    def made(self) -> dict[str, int]:
        """Return the number of devices of each elastic job, by job id."""
        present = {job: group.gpus for job, group in self.kept.items()}
        first = {job: next(iter(speed_of)) for job, speed_of in self.sizes.items()}
        steps = sorted({gpus for speed_of in self.sizes.values() for gpus in speed_of})
        uniform = [first | present]
        uniform += [{job: _fastest(speed_of, most) for job, speed_of in self.sizes.items()} | present for most in steps]
        best_value, best = min(((self._value(sizes), sizes) for sizes in uniform), key=lambda pair: pair[0])
        improved = True
        while improved and self._may_go_on():
            improved = False
            for job in sorted(self.sizes, key=lambda job: (-float(self._shortest_s[job]), job)):
                for gpus in self.sizes[job]:
                    if gpus == best[job] or not self._may_go_on():
                        continue
                    trial = best | {job: gpus}
                    if (value := self._value(trial)) < best_value:
                        best_value, best, improved = value, trial, True
        return {name: best[job] for name, job in self.number_of.items()}

    def _may_go_on(self) -> bool:
        """Return whether there are work units left, and no safety stop."""
        return self.units < MAX_WORK_UNITS and not self.expired()

    @property
    def _shortest_s(self) -> Floats:
        return self.instance.problem.shortest_s

    def _value(self, sizes: Mapping[int, int]) -> tuple[int, ScheduleValue]:
        """Return what the schedule at these sizes is worth: the jobs that have to wait, where times are unknown, first.

        Residents at their present size go on as they run.
        """
        problem = self._problem(sizes)
        kept = [group for job, group in self.kept.items() if sizes[job] == group.gpus]
        resized = [job for job, group in self.kept.items() if sizes[job] != group.gpus]
        order = [*resized, *(job for job in jobs_in_order(problem, JobOrder.SHORTEST) if job not in resized)]
        schedule = schedule_in_order(problem, order, GREEDY_JOINT_THROUGHPUT, starts=kept)
        self.units += schedule.work_units + problem.pending
        waiting = int((schedule.start_s > 0).sum()) if self.instance.is_estimated else 0
        return waiting, value_of(schedule, problem)

    def _problem(self, sizes: Mapping[int, int]) -> ScheduleProblem:
        """Return the problem in which each elastic job has one size."""
        problem = self.instance.problem
        gpus, work_s = problem.gpus.copy(), problem.work_s.copy()
        for job, count in sizes.items():
            gpus[job] = count
            work_s[job] /= self.sizes[job][count]
            if job in self.kept and count != self.kept[job].gpus:
                work_s[job] += self.checkpoint_s[job]
        return replace(problem, gpus=gpus, work_s=work_s)
