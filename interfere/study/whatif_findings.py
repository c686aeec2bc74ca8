"""What follows from replays with and without sharing: the change over months, devices to give back, who ends later.

Devices can be given back at equal service: on fewer devices the mean completion time and the waiting time that 90 % of
the jobs do not exceed are no worse than without sharing on all of them, up to `SAME_SHARE` and `SAME_WAIT_S`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from interfere.sim.schedulers.records import SchedulerRecord
from interfere.sim.score import Score, score_of
from interfere.sim.trace_worlds import asked_by_day, typical_week
from interfere.sim.uncertainty import RELATIVE_CHANGE, DaySums, LoadResponse, UncertainMean, mean_over_loads
from interfere.sim.world import SimJob, World
from interfere.study.comparison import Line
from interfere.study.replays import ReplayResult, ReplayTask

SAME_SHARE = 0.01  # of a mean completion time or of a waiting time: within it, service is equal
SAME_WAIT_S = 60.0  # the same, of waiting times near 0
LATER_SHARE = 0.1  # a job ends later where it takes more than this longer from arrival to end
GROUPS_TOLD = 3  # of users and of workloads: those with most jobs that end later
MAX_WEEK_JOBS = 2_000  # in a world: with more, replays of the server's decisions take hours
PAYS = -0.01  # change of the mean completion time from which on sharing pays
GANG_EXCESSES = (1.0, 2.0)  # what gangs may lose, relative to jobs on one device, beside what was measured
RUN_TIMES = ((600.0, "under 10 min"), (3_600.0, "10 min to 1 h"), (36_000.0, "1 to 10 h"), (math.inf, "over 10 h"))


# --- devices to give back ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesSaved:
    """How many devices of one type could be given back at equal service while all others stay.

    An upper end that no replay tried is none.
    """

    device_type: str
    devices: int
    without_sharing: int
    with_sharing: int
    largest_job: bool  # is it the largest job that needs the devices which are left?


def devices_saved(
    worlds: Sequence[World], results: Sequence[ReplayResult], alone: SchedulerRecord, shared: SchedulerRecord
) -> tuple[DevicesSaved, ...]:
    """Return for each device type how many devices all worlds could give back; empty while a replay that this needs is
    missing."""
    searches = list(_searches(worlds, results, alone, shared))
    if any(next_count(search.tried, search.most) is not None for search in searches):
        return ()
    found = []
    for kind in dict.fromkeys(search.device_type for search in searches):
        own = [search for search in searches if search.device_type == kind]
        unshared, sharing = ([each for each in own if each.scheduler == one] for one in (alone, shared))
        found.append(
            DevicesSaved(
                device_type=kind,
                devices=sum(each.devices for each in sharing),
                without_sharing=sum(_largest(each.tried) for each in unshared),
                with_sharing=sum(_largest(each.tried) for each in sharing),
                largest_job=all(_largest(each.tried) == each.most < each.devices for each in sharing),
            )
        )
    return tuple(found)


def tasks_of_fewer_devices(
    worlds: Sequence[World], results: Sequence[ReplayResult], alone: SchedulerRecord, shared: SchedulerRecord
) -> list[ReplayTask]:
    """Return the replays that the search for the number of devices to give back calls for next; none at its end."""
    tasks = []
    for search in _searches(worlds, results, alone, shared):
        count = next_count(search.tried, search.most)
        if count is not None:
            tasks.append(search.task(count))
    return list(dict.fromkeys(tasks))


def next_count(tried: Mapping[int, bool], most: int) -> int | None:
    """Return the number of devices to try next; None where the largest number with equal service is known.

    `tried`: number → whether service was equal. Numbers double until service is worse, and are halved from there on.
    """
    worse = min((count for count, is_equal in tried.items() if not is_equal), default=most + 1)
    equal = max((count for count, is_equal in tried.items() if is_equal and count < worse), default=-1)
    if equal + 1 >= worse:
        return None
    return (equal + worse) // 2 if worse <= most else min(most, max(2 * equal, equal + 1))


def most(world: World, device_type: str = "") -> int:
    """Return the number of devices that leave enough for the largest job, which runs on devices of one type.

    `device_type`: of which they are; empty: the only one.
    """
    counts = Counter(each.device.type for each in world.devices)
    largest = max(job.gpus for job in world.jobs)
    kind = device_type or next(iter(counts))
    fits_others = any(count >= largest for other, count in counts.items() if other != kind)
    return counts[kind] if fits_others else max(0, counts[kind] - largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeviceSearch:
    """The search for the largest number of devices of one type that one world could give back under one scheduler."""

    world: int
    scheduler: SchedulerRecord
    device_type: str
    devices: int
    most: int
    tried: Mapping[int, bool]  # whether service was equal, by the number of devices that were given back

    def task(self, count: int) -> ReplayTask:
        """Return the replay of so many devices fewer."""
        kind = self.device_type if count else ""
        return ReplayTask(scheduler=self.scheduler, world=self.world, given_back=count, given_type=kind)


def _searches(
    worlds: Sequence[World], results: Sequence[ReplayResult], alone: SchedulerRecord, shared: SchedulerRecord
) -> Iterator[_DeviceSearch]:
    """Yield the searches in all worlds that are offered less than they can serve, with what was tried so far."""
    scores = {result.task: result.score for result in results}
    for k, world in _served(worlds):
        counts = Counter(each.device.type for each in world.devices)
        reference = scores.get(ReplayTask(scheduler=alone, world=k))
        for kind, devices in counts.items():
            for scheduler in (alone, shared):
                search = _DeviceSearch(
                    world=k,
                    scheduler=scheduler,
                    device_type=kind,
                    devices=devices,
                    most=most(world, kind),
                    tried={},
                )
                tried = {
                    count: is_equal_service(score, reference)
                    for count in range(search.most + 1)
                    if reference is not None and (score := scores.get(search.task(count))) is not None
                }
                yield replace(search, tried=tried)


def is_equal_service(score: Score, reference: Score) -> bool:
    """Return whether jobs are served as well as in a reference replay of them."""
    most_wait_s = max((1 + SAME_SHARE) * reference.p90_waiting_s, reference.p90_waiting_s + SAME_WAIT_S)
    return (
        score.mean_completion_s <= (1 + SAME_SHARE) * reference.mean_completion_s and score.p90_waiting_s <= most_wait_s
    )


def _served(worlds: Sequence[World]) -> list[tuple[int, World]]:
    """Return the worlds that are offered less than they can serve, with their places."""
    return [(k, world) for k, world in enumerate(worlds) if world.jobs and world.load < 1]


def _largest(tried: Mapping[int, bool]) -> int:
    return max((count for count, is_equal in tried.items() if is_equal), default=0)


# --- months at loads like these weeks ---------------------------------------------------------------------------------


def change_over_loads(
    worlds: Sequence[World],
    results: Sequence[ReplayResult],
    alone: SchedulerRecord,
    shared: SchedulerRecord,
    loads: Sequence[float],
) -> UncertainMean | None:
    """Return the change of the mean completion time over periods at loads like those of the recorded weeks.

    `loads`: those at which the trace was replayed beside its own. None while one of these replays is missing, or where
    a job was dropped.
    """
    by_task = {result.task: result for result in results}
    responses = []
    for k, world in _served(worlds):
        at: dict[float, DaySums] = {}
        for load in (None, *loads):
            both = [by_task.get(ReplayTask(scheduler=one, world=k, load=load)) for one in (shared, alone)]
            days = [one.days for one in both if one is not None and one.days is not None and not one.score.dropped]
            if len(days) < len(both):
                return None
            at[world.load if load is None else load] = days[0].completion_change(days[1])
        responses.append(LoadResponse(work=asked_by_day(world), load=world.load, at=at))
    return mean_over_loads(responses, RELATIVE_CHANGE, subtract=1.0) if responses else None


# --- one week under the server's decisions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekScore:
    """How one scheduler serves the jobs of one week of every world."""

    scheduler: SchedulerRecord
    score: Score
    change: float  # of the mean completion time to the first of the schedulers


def tasks_of_one_week(worlds: Sequence[World], schedulers: Sequence[SchedulerRecord]) -> list[ReplayTask]:
    """Return the replays of one week by every scheduler, in worlds whose week has at most `MAX_WEEK_JOBS`."""
    return [
        ReplayTask(scheduler=scheduler, world=k, week=True)
        for k, world in _served(worlds)
        if 0 < len(typical_week(world).jobs) <= MAX_WEEK_JOBS
        for scheduler in schedulers
    ]


def week_scores(results: Sequence[ReplayResult], schedulers: Sequence[SchedulerRecord]) -> tuple[WeekScore, ...]:
    """Return the scores of the week in the worlds that every scheduler has replayed; empty where there are none."""
    scores = {result.task: result.score for result in results if result.task.week}
    worlds = [
        world
        for world in dict.fromkeys(task.world for task in scores)
        if all(ReplayTask(scheduler=each, world=world, week=True) in scores for each in schedulers)
    ]
    if not worlds:
        return ()
    tasks = [[ReplayTask(scheduler=each, world=world, week=True) for world in worlds] for each in schedulers]
    merged = [score_of([scores[task] for task in own]) for own in tasks]
    return tuple(
        WeekScore(scheduler=each, score=one, change=one.mean_completion_s / merged[0].mean_completion_s - 1)
        for each, one in zip(schedulers, merged, strict=True)
    )


# --- who ends later ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGroup:
    """Some jobs, and how many of them end later, or sooner, with sharing."""

    kind: str  # all, size, run time, cluster, user, workload
    name: str
    jobs: int
    later: int  # by more than `LATER_SHARE`
    sooner: int

    @property
    def later_share(self) -> float:
        """The share of these jobs that end later with sharing than without."""
        return self.later / self.jobs


def who_ends_later(
    worlds: Sequence[World], results: Sequence[ReplayResult], alone: SchedulerRecord, shared: SchedulerRecord
) -> tuple[JobGroup, ...]:
    """Return all jobs, then groups by devices, run time and cluster, and the users and workloads with most jobs that
    end later.

    Empty where the replays at the trace's own load are missing, or dropped jobs.
    """
    scores = {result.task: result.score for result in results}
    jobs, clusters, ratios = list[SimJob](), list[str](), list[NDArray[np.float64]]()
    for k, world in enumerate(worlds):
        both = [scores.get(ReplayTask(scheduler=scheduler, world=k)) for scheduler in (alone, shared)]
        if both[0] is None or both[1] is None or both[0].dropped or both[1].dropped:
            continue
        jobs.extend(world.jobs)
        clusters.extend([world.name] * len(world.jobs))
        ratios.append(both[1].completion_s / np.maximum(both[0].completion_s, 1e-9))
    if not jobs:
        return ()
    ratio = np.concatenate(ratios)
    later, sooner = ratio > 1 + LATER_SHARE, ratio < 1 / (1 + LATER_SHARE)

    def groups(kind: str, names: Sequence[str], *, limit: int | None = None) -> list[JobGroup]:
        labels = np.array(names)
        found = [
            JobGroup(
                kind=kind, name=name, jobs=int(own.sum()), later=int(later[own].sum()), sooner=int(sooner[own].sum())
            )
            for name in dict.fromkeys(names)
            for own in (labels == name,)
        ]
        if limit is None:
            return found
        return [each for each in sorted(found, key=lambda each: -each.later)[:limit] if each.later]

    run_times = [next(name for below_s, name in RUN_TIMES if job.duration_s < below_s) for job in jobs]
    order = {name: place for place, (_, name) in enumerate(RUN_TIMES)}
    sizes = {_size_text(job.gpus): job.gpus for job in jobs}
    users = [job.user for job in jobs]
    return (
        *groups("all", ["all jobs"] * len(jobs)),
        *sorted(groups("size", [_size_text(job.gpus) for job in jobs]), key=lambda each: sizes[each.name]),
        *sorted(groups("run time", run_times), key=lambda each: order[each.name]),
        *(groups("cluster", clusters) if len(set(clusters)) > 1 else ()),
        *(groups("user", users, limit=GROUPS_TOLD) if len(set(users)) > 1 else ()),
        *groups("workload", [job.workload or "(none named)" for job in jobs], limit=GROUPS_TOLD),
    )


def _size_text(gpus: int) -> str:
    least = 2 ** (gpus.bit_length() - 1)
    return "1 GPU" if gpus == 1 else f"{least} to {2 * least - 1} GPUs"


# --- where it pays ----------------------------------------------------------------------------------------------------


def pays_from(lines: Sequence[Line]) -> float:
    """Return the load from which on sharing pays, between two loads on the line through their changes.

    `lines`: of one scheduler. NaN where it does not pay at the highest load, 0 where it pays at all loads.
    """
    known = sorted((line.load, line.change.mean) for line in lines if line.change is not None)
    load = 0.0
    for (below, change), (above, next_change) in pairwise(known):
        if change > PAYS >= next_change:
            load = below + (above - below) * (PAYS - change) / (next_change - change)
    return math.nan if not known or known[-1][1] > PAYS else load


def gang_break_even(lines: Sequence[Line], without: Line) -> float:
    """Return what gangs may lose beside others, relative to the truth, so that their sharing does no harm.

    `lines`: with sharing gangs, one for each excess; `without`: where only jobs on one device share. inf where they do
    no harm at the largest excess, NaN where they harm at the least.
    """
    at = without.score.mean_completion_s
    known = sorted((line.task.gang_excess, line.score.mean_completion_s) for line in lines)
    if not known or known[0][1] > at:
        return math.nan
    for (below, mean_s), (above, next_s) in pairwise(known):
        if mean_s <= at < next_s:
            return below + (above - below) * (at - mean_s) / (next_s - mean_s)
    return math.inf
