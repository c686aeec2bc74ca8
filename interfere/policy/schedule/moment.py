"""The optimal matching of this moment inside a schedule: its starts, and which of them a waiting job holds back.

Where the objective is not about ends, or nobody says how long jobs take, the matching is served as it is, with one
exception: a waiting job that would pass its promised end gets the place where it ends first, and no start delays it.
"""

import math
from collections.abc import Sequence

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.schedule.from_context import SchedulingInstance
from interfere.policy.schedule.heuristics import JobOrder, jobs_in_order
from interfere.policy.schedule.list_scheduler import place_cheapest
from interfere.policy.schedule.problem import Schedule, ScheduleProblem
from interfere.policy.schedule.search import ALONE
from interfere.policy.schedule.timeline import GroupStart, Timeline
from interfere.records import Action, Plan


def moment_starts(moment: Plan, instance: SchedulingInstance, context: PlanningContext) -> tuple[GroupStart, ...]:
    """The starts of the optimal matching of this moment, one for each group of jobs that start together."""
    number_of = {job.id: k for k, job in enumerate(instance.jobs)}
    class_of = {device_id: k for k, members in enumerate(instance.classes) for device_id in members.device_ids}
    groups: dict[frozenset[str], list[Action]] = {}
    for action in moment.actions:
        if action.places:
            groups.setdefault(frozenset(action.places), []).append(action)
    starts = []
    for actions in groups.values():
        hosts = [name for name in actions[0].partners if name in context.residents]
        slowdown_of = actions[0].slowdown_of_partners
        starts.append(
            GroupStart(
                jobs=tuple(number_of[action.job_id] for action in actions),
                device_class=class_of[actions[0].places[0]],
                gpus=len(actions[0].places),
                slowdowns=(
                    *(max(1.0, action.slowdown) for action in actions),
                    *(max(1.0, slowdown_of[name]) for name in hosts),
                ),
                hosts=tuple(number_of[name] for name in hosts),
            )
        )
    return tuple(starts)


def schedule_protecting_overdue(problem: ScheduleProblem, starts: Sequence[GroupStart]) -> tuple[Schedule, int] | None:
    """The schedule in which an overdue job gets its place before the starts of this moment, and the number of that job.

    Overdue is the first waiting job in order of promised ends, of the highest priority, where its planned end is past
    its promised end although only the starts of this moment are placed before it. Starts of a higher priority are never
    held back. None where no job is overdue.
    """
    starting = {job for group in starts for job in group.jobs}
    may_run = set(np.flatnonzero(problem.may_run_alone.any(axis=1)).tolist())
    waiting = [job for job in jobs_in_order(problem, JobOrder.FIRST_DUE) if job not in starting and job in may_run]
    if not waiting:
        return None
    overdue = waiting[0]
    timeline = Timeline(problem)
    for group in starts:
        timeline.start_group(group)
    place_cheapest(timeline, overdue, ALONE)
    if not timeline.end_s[overdue] > problem.latest_end_s[overdue]:
        return None
    # 1. Starts of a higher priority, then the overdue job.
    priority = problem.objective.priority
    is_before = [max(int(priority[job]) for job in group.jobs) > priority[overdue] for group in starts]
    timeline = Timeline(problem)
    for group, before in zip(starts, is_before, strict=True):
        if before:
            timeline.start_group(group)
    place_cheapest(timeline, overdue, ALONE)
    if not math.isfinite(timeline.end_s[overdue]):
        return None
    # 2. The other starts of this moment, except those that would delay it; then the jobs that they leave.
    for group, before in zip(starts, is_before, strict=True):
        if not before and _leaves_room(timeline, group, overdue):
            timeline.start_group(group)
    for job in jobs_in_order(problem, JobOrder.FIFO):
        if job != overdue and job not in timeline.kept_starts:
            place_cheapest(timeline, job, ALONE)
    return timeline.schedule(), overdue


def _leaves_room(timeline: Timeline, group: GroupStart, placed: int) -> bool:
    """Whether a start leaves a job that is placed its devices for the whole of its time, and takes few enough."""
    problem = timeline.problem
    if not group.hosts and timeline.new_devices + group.gpus > problem.max_new_devices:
        return False
    if group.device_class != timeline.place[placed]:
        return True
    from_s, until_s = timeline.occupation_s(group)
    from_s = max(from_s, float(timeline.start_s[placed]))
    until_s = min(until_s, float(timeline.end_s[placed]))
    return from_s >= until_s or timeline.profiles[group.device_class].is_free(from_s, until_s, group.gpus)
