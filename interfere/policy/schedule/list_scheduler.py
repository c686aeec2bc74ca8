"""Serial schedule generation: jobs are taken in an order, and each goes where its price is least, now or later.

The price of a place is what the job's end costs there, and for a place beside another job also what the later end of
that one costs. Later jobs fill the gaps that earlier ones leave, so that every job has a reservation, and waiting for a
faster device or for a set of devices is weighed like any other place (Kolisch and Hartmann, 1999: serial schemes).
"""

import math
from collections.abc import Sequence

import numpy as np

from interfere.policy.deadlines.admission import CapacityProfile, Interval
from interfere.policy.schedule.problem import Schedule, ScheduleProblem
from interfere.policy.schedule.timeline import MAX_HOSTS_TRIED, GroupStart, Timeline


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
    for job in order:
        if job not in timeline.kept_starts:
            place_cheapest(timeline, job, min_joint_throughput)
    return timeline.schedule()


def place_cheapest(timeline: Timeline, job: int, min_joint_throughput: float) -> None:
    """Add a job at its cheapest place; it stays without one where no class may ever run it."""
    problem = timeline.problem
    # 1. The cheapest place alone: the earliest on each class.
    best_price, best_class, best_intervals = math.inf, -1, list[Interval]()
    for device_class in np.flatnonzero(problem.may_run_alone[job]).tolist():
        work_s = float(problem.work_s[job, device_class])
        if timeline.price(job, work_s) >= best_price:
            continue
        intervals = timeline.earliest_intervals(job, device_class)
        if intervals and (price := timeline.price(job, intervals[-1][1])) < best_price:
            best_price, best_class, best_intervals = price, device_class, intervals
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
                timeline.join(job, slot, end_s, host_end_s)
                return
            prices[slot] = math.inf
    if best_class >= 0:
        timeline.start_alone(job, best_class, best_intervals)
