"""Random scheduling problems: device types, gangs, residents, pairs that may share, promised ends and priorities."""

import math
from dataclasses import replace

import numpy as np

from interfere.policy.costs.objectives import Aggregate
from interfere.policy.schedule.problem import (
    Deadlines,
    RunningJobs,
    Schedule,
    ScheduleObjective,
    ScheduleProblem,
)

ALWAYS = ((-math.inf, math.inf),)


def random_problem(seed: int, *, gangs: bool = True, deadlines: bool = False) -> ScheduleProblem:
    """A problem of up to a dozen pending jobs on up to three classes of up to six devices.

    `deadlines`: two jobs in three have one, half of them with times that are not known exactly.
    """
    rng = np.random.default_rng(seed)
    c, k = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    devices = tuple(rng.integers(1, 7, c).tolist())
    n = int(rng.integers(1, 13))
    guest = rng.uniform(1.0, 2.5, (c, k, k))
    host = rng.uniform(1.0, 2.5, (c, k, k))
    joint = 1 / guest + 1 / host
    joint = np.where((joint > 1) & (rng.random((c, k, k)) < 0.8), joint, -np.inf)
    gpus, work, running = [], [], []
    for _ in range(n):
        gpus.append(int(rng.choice([1, 1, 2, 4])) if gangs else 1)
        work.append(rng.exponential(100.0) * rng.uniform(1, 3, c) + 1e-3)
    r = 0
    for device_class, count in enumerate(devices):
        used = 0
        while used < count and rng.random() < 0.6:
            size = int(rng.integers(1, count - used + 1)) if gangs else 1
            jobs = int(rng.choice([1, 1, 2]))
            ends = tuple((rng.exponential(80.0, jobs) + 1e-3).tolist())
            running.append(
                RunningJobs(device_class=device_class, gpus=size, jobs=tuple(range(n + r, n + r + jobs)), ends_s=ends)
            )
            for _ in range(jobs):
                gpus.append(size)
                work.append(rng.exponential(100.0, c) + 1e-3)
            r += jobs
            used += size
    total = n + r
    allowed = np.array([[gpus[i] <= devices[j] for j in range(c)] for i in range(n)]) & (rng.random((n, c)) < 0.9)
    late = np.where(rng.random(total) < 0.3, rng.uniform(50, 500, total), np.inf)
    made = ScheduleProblem(
        pending=n,
        work_s=np.array(work),
        may_run_alone=allowed,
        may_start_alone=allowed & (rng.random((n, c)) < 0.9),
        gpus=np.array(gpus),
        kind=rng.integers(0, k, total),
        guest_slowdown=guest,
        host_slowdown=host,
        slows_resident=rng.random((c, k, k)) < 0.2,
        joint_throughput=joint,
        open_intervals=(ALWAYS,) * c,
        devices=devices,
        running=tuple(running),
        objective=ScheduleObjective(
            constant=rng.uniform(0, 2, total),
            rate=rng.uniform(0.1, 2, total),
            aggregate=Aggregate.SUM if rng.random() < 0.7 else Aggregate.MAX,
            priority=rng.integers(0, 2, total),
        ),
        latest_end_s=late,
        elapsed_s=np.sort(rng.uniform(0, 500, n))[::-1],
        checkpoint_s=np.full(n, np.nan),
        weight=rng.uniform(0.5, 2, n),
        deadlines=Deadlines.none(total),
    )
    return replace(made, deadlines=_drawn_deadlines(made, rng)) if deadlines else made


def _drawn_deadlines(problem: ScheduleProblem, rng: np.random.Generator) -> Deadlines:
    """Deadlines of one to four times what a job takes."""
    total = problem.jobs
    at_s = problem.work_s.min(axis=1) * rng.uniform(1.0, 4.0, total)
    return Deadlines(
        at_s=np.where(rng.random(total) < 0.67, at_s, np.inf),
        spread=np.where(rng.random(total) < 0.5, rng.uniform(0.1, 0.7, total), 0.0),
        weight=rng.choice([1.0, 2.0], total),
    )


def relabelled(problem: ScheduleProblem, order: np.ndarray) -> ScheduleProblem:
    """The same problem with its pending jobs in another order."""
    full = np.concatenate([order, np.arange(problem.pending, problem.jobs)])
    return replace(
        problem,
        work_s=problem.work_s[full],
        may_run_alone=problem.may_run_alone[order],
        may_start_alone=problem.may_start_alone[order],
        gpus=problem.gpus[full],
        kind=problem.kind[full],
        objective=replace(
            problem.objective,
            constant=problem.objective.constant[full],
            rate=problem.objective.rate[full],
            priority=problem.objective.priority[full],
        ),
        latest_end_s=problem.latest_end_s[full],
        deadlines=Deadlines(
            at_s=problem.deadlines.at_s[full],
            spread=problem.deadlines.spread[full],
            weight=problem.deadlines.weight[full],
        ),
        elapsed_s=problem.elapsed_s[order],
        weight=problem.weight[order],
    )


def check_feasible(problem: ScheduleProblem, schedule: Schedule) -> None:
    """No class has more devices in use than it has at any time, and no set of devices has three jobs at once.

    A set of devices counts once, from the start of its first job to the end of its last.
    """
    slots: list[tuple[int, int, list[tuple[float, float]]]] = []
    slot_of: dict[int, int] = {}
    for group in problem.running:
        for job in group.jobs:
            slot_of[job] = len(slots)
        slots.append((group.device_class, group.gpus, [(0.0, float(schedule.end_s[job])) for job in group.jobs]))
    for job in sorted(range(problem.pending), key=lambda job: (schedule.start_s[job], schedule.host[job] >= 0)):
        if not math.isfinite(schedule.start_s[job]):
            assert not problem.may_run_alone[job].any()
            continue
        place, host = int(schedule.device_class[job]), int(schedule.host[job])
        span = (float(schedule.start_s[job]), float(schedule.end_s[job]))
        assert span[1] - span[0] >= problem.work_s[job, place] * (1 - 1e-9)
        if host >= 0:
            slot_of[job] = slot_of[host]
            assert slots[slot_of[host]][:2] == (place, problem.gpus[job])
            kinds = problem.kind[job], problem.kind[host]
            assert math.isfinite(problem.joint_throughput[(place, *kinds)])
        else:
            assert problem.may_run_alone[job, place]
            assert span[0] > 0 or problem.may_start_alone[job, place]
            slot_of[job] = len(slots)
            slots.append((place, int(problem.gpus[job]), []))
        slots[slot_of[job]][2].append(span)
    for place, count in enumerate(problem.devices):
        spans = [
            (min(start for start, _ in times), max(end for _, end in times), gpus)
            for on, gpus, times in slots
            if on == place
        ]
        for at_s, _, _ in spans:
            assert sum(gpus for start, end, gpus in spans if start <= at_s < end - 1e-6) <= count
    for _, _, times in slots:
        for at_s, _ in times:
            assert sum(start <= at_s < end - 1e-6 for start, end in times) <= 2
