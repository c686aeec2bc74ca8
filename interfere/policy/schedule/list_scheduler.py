"""Serial schedule generation: jobs are taken in an order, and each goes where its price is least, now or later.

The price of a place is what the job's end costs there, and for a place beside another job also what the later end of
that one costs. Later jobs fill the gaps that earlier ones leave, so that every job has a reservation, and waiting for a
faster device or for a set of devices is weighed like any other place (Kolisch and Hartmann, 1999: serial schemes).
"""

import math
from collections.abc import Sequence

import numpy as np

from interfere.policy.deadlines.admission import CapacityProfile
from interfere.policy.schedule.problem import Schedule, ScheduleProblem
from interfere.policy.schedule.timeline import MAX_HOSTS_TRIED, GroupStart, Part, Timeline


def schedule_in_order(
    problem: ScheduleProblem,
    order: Sequence[int],
    min_joint_throughput: float,
    profiles: list[CapacityProfile] | None = None,
    starts: Sequence[GroupStart] = (),
) -> Schedule:
    """Return the schedule in which the pending jobs are placed in an order; two share only above that joint throughput.

    `starts`: the groups of jobs that start now in any case, before all other jobs are placed.
    """
    timeline = Timeline(problem, profiles)
    for group in starts:
        timeline.start_group(group)
    priority, late = problem.objective.priority, list[int]()
    for job in (job for job in order if job not in timeline.kept_starts):
        if late and priority[job] < priority[late[-1]]:
            _place_all(timeline, late, min_joint_throughput)
            late = []
        if not place_cheapest(timeline, job, min_joint_throughput, may_be_late=False):
            late.append(job)
    _place_all(timeline, late, min_joint_throughput)
    return timeline.schedule()


def _place_all(timeline: Timeline, jobs: Sequence[int], min_joint_throughput: float) -> None:
    """Add jobs in an order, each at its cheapest place."""
    for job in jobs:
        place_cheapest(timeline, job, min_joint_throughput)


def place_cheapest(timeline: Timeline, job: int, min_joint_throughput: float, *, may_be_late: bool = True) -> bool:
    """Add a job at its cheapest place, and return whether it was considered to the end.

    It stays without a place where no class may ever run it. With `may_be_late` false a job that would miss its deadline
    at its cheapest place is not added.
    """
    problem = timeline.problem
    # 1. The cheapest place alone: the earliest on each class.
    best_price, best_parts = math.inf, list[Part]()
    for device_class in np.flatnonzero(problem.may_run_alone[job]).tolist():
        work_s = float(problem.work_s[job, device_class])
        if timeline.price(job, 0.0, work_s) >= best_price:
            continue
        parts = timeline.earliest_parts(job, device_class)
        if parts and (price := timeline.price(job, parts[0][1], parts[-1][2])) < best_price:
            best_price, best_parts = price, parts
    # 2. The cheapest host that has room.
    if math.isfinite(min_joint_throughput) and timeline.slots:
        prices, ends_s, host_ends_s = timeline.join_prices(job, min_joint_throughput)
        if problem.slows_resident.any() and timeline.may_start_now(job):
            prices[timeline.protected_residents(job)] = math.inf
        for _ in range(MAX_HOSTS_TRIED):
            slot = int(prices.argmin())
            if not prices[slot] < best_price:
                break
            end_s, host_end_s = float(ends_s[slot]), float(host_ends_s[slot])
            if timeline.has_room(slot, max(end_s, host_end_s)):
                if not may_be_late and timeline.is_late(job, float(timeline.slot_alone_s[slot]), end_s):
                    return False
                timeline.join(job, slot, end_s, host_end_s)
                return True
            prices[slot] = math.inf
    if best_parts:
        if not may_be_late and timeline.is_late(job, best_parts[0][1], best_parts[-1][2]):
            return False
        timeline.start_alone(job, best_parts)
    return True
