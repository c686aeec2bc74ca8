"""Scores of replays: completion times, waiting, utilisation, sharing, deadlines, and differences between schedulers.

Completion time J_i = end - arrival; slowdown J_i / max(d_i, `SHORTEST_S`) with d_i the duration without sharing, at
least 1; waiting = J_i - time on devices; utilisation = ∫ busy devices dt / ∫ present devices dt, up to the last end.
The slowdown by company is the time on devices over what the job would have taken there alone.
Deadline satisfaction = deadlines met / all submitted jobs that have one, dropped jobs included. Times are over all
jobs that end: only a scheduler of deadlines drops jobs, and `dropped` counts them.
Differences between two schedulers are paired job by job and summed by day of arrival, for `uncertainty`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.sim.ratio_interval import DaySums
from interfere.sim.replay import Replayed
from interfere.sim.world import DAY_S, HOUR_S, LATE_S

Floats = NDArray[np.float64]
SHORTEST_S = 10.0  # the bound that the literature of bounded slowdown uses (Feitelson et al., JSSPP 1997)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Of all jobs of one replay, or of several together."""

    jobs: int
    mean_completion_s: float
    median_completion_s: float
    p99_completion_s: float
    mean_slowdown: float
    mean_waiting_s: float
    makespan_s: float
    utilisation: float  # share of device time with a job, up to the last end
    shared: float  # share of busy device time with two jobs or more
    pairs: int  # of jobs that shared; groups of three and more count as pairs do
    mean_pair_slowdown: float  # of all sides, each pair counted once
    past_cap: float  # share of pairs in which a side was slowed by more than the cap
    worst_slowdown: float  # the largest of a job by its company, over all its time on devices
    stops: int
    dropped: int  # jobs that the scheduler gave up
    with_deadline: int  # jobs
    met: int  # of these, jobs that met it
    best_effort_jct_s: float  # mean completion time of jobs without a deadline; NaN where all have one
    wasted_gpu_h: float  # device hours of jobs that missed their deadline, and of checkpoints
    used_gpu_h: float  # device hours; an hour on a shared device is half an hour of each of two jobs
    promised: int  # deadlines that the scheduler promised
    broken: int  # of these, deadlines that were missed

    @property
    def satisfaction(self) -> float:
        """Deadlines met over all submitted jobs that have one; NaN where none has."""
        return self.met / self.with_deadline if self.with_deadline else math.nan


def score(replays: Sequence[Replayed], cap: float) -> Score:
    """Score of all jobs of these replays together. `cap`: slowdown past which a pair counts in `past_cap`."""
    ended = [np.isfinite(replayed.ended_s) for replayed in replays]
    completion = np.concatenate([replayed.completion_s[done] for replayed, done in zip(replays, ended, strict=True)])
    duration = np.concatenate([_durations_s(replayed)[done] for replayed, done in zip(replays, ended, strict=True)])
    running = np.concatenate([_running_s(replayed)[done] for replayed, done in zip(replays, ended, strict=True)])
    slowdown = (completion / np.maximum(duration, SHORTEST_S)).clip(1.0)
    busy_s = sum(_integral_s(replayed, replayed.busy) for replayed in replays)
    pairs = [group for replayed in replays for group in group_slowdowns(replayed).values()]
    larger = np.array([max(pair) for pair in pairs])
    missed = [_missed(replayed) for replayed in replays]
    with_deadline = [_has_deadline(replayed) for replayed in replays]
    promised = [~np.isnan(replayed.promised_s) for replayed in replays]
    best_effort = [replayed.completion_s[~dated] for replayed, dated in zip(replays, with_deadline, strict=True)]
    gpu_h = [_gpu_hours(replayed, late) for replayed, late in zip(replays, missed, strict=True)]
    return Score(
        jobs=sum(len(done) for done in ended),
        mean_completion_s=_mean(completion),
        median_completion_s=float(np.median(completion)) if len(completion) else math.nan,
        p99_completion_s=float(np.quantile(completion, 0.99)) if len(completion) else math.nan,
        mean_slowdown=_mean(slowdown),
        mean_waiting_s=_mean(completion - running),
        makespan_s=max(_last_end_s(replayed) - _first_arrival_s(replayed) for replayed in replays),
        utilisation=busy_s / max(sum(_present_s(replayed) for replayed in replays), 1e-12),
        shared=sum(_integral_s(replayed, replayed.shared) for replayed in replays) / max(busy_s, 1e-12),
        pairs=len(pairs),
        mean_pair_slowdown=float(np.mean([side for pair in pairs for side in pair])) if pairs else 1.0,
        past_cap=float((larger > cap).mean()) if pairs else 0.0,
        worst_slowdown=max((float(sharing_slowdowns(replayed).max(initial=1.0)) for replayed in replays), default=1.0),
        stops=int(sum(replayed.stops.sum() for replayed in replays)),
        dropped=sum(int((~done).sum()) for done in ended),
        with_deadline=sum(int(dated.sum()) for dated in with_deadline),
        met=sum(int((dated & ~late).sum()) for dated, late in zip(with_deadline, missed, strict=True)),
        best_effort_jct_s=_mean(np.concatenate(best_effort)),
        wasted_gpu_h=sum(wasted for wasted, _ in gpu_h),
        used_gpu_h=sum(used for _, used in gpu_h),
        promised=sum(int(given.sum()) for given in promised),
        broken=sum(int((given & late).sum()) for given, late in zip(promised, missed, strict=True)),
    )


def group_slowdowns(replayed: Replayed) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Two or more jobs that ran beside each other, and no others -> the slowdown of each."""
    slowdowns: dict[tuple[str, ...], dict[str, float]] = {}
    for span in replayed.spans:
        if span.company_ids:
            key = tuple(sorted((span.job_id, *span.company_ids)))
            slowdowns.setdefault(key, {})[span.job_id] = span.slowdown
    return {key: tuple(sides.values()) for key, sides in slowdowns.items()}


def sharing_slowdowns(replayed: Replayed) -> Floats:
    """float64[n] ≥ 1: a job's time on devices, over what it would have taken there without company."""
    index = {job.id: k for k, job in enumerate(replayed.world.jobs)}
    ran_s, alone_s = np.zeros(len(index)), np.zeros(len(index))
    for span in replayed.spans:
        ran_s[index[span.job_id]] += span.end_s - span.start_s
        alone_s[index[span.job_id]] += (span.end_s - span.start_s) / span.slowdown
    return np.divide(ran_s, alone_s, out=np.ones(len(index)), where=alone_s > 0)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _durations_s(replayed: Replayed) -> Floats:
    return np.array([job.duration_s for job in replayed.world.jobs], dtype=np.float64)


def _deadlines_s(replayed: Replayed) -> Floats:
    return np.array([job.deadline_s for job in replayed.world.jobs], dtype=np.float64)


def _has_deadline(replayed: Replayed) -> NDArray[np.bool_]:
    return np.isfinite(_deadlines_s(replayed))


def _missed(replayed: Replayed) -> NDArray[np.bool_]:
    """bool[n]: jobs that ended after their deadline, or were dropped."""
    return np.asarray(~(replayed.ended_s <= _deadlines_s(replayed) + LATE_S))


def _running_s(replayed: Replayed) -> Floats:
    """float64[n]: seconds on devices."""
    index = {job.id: k for k, job in enumerate(replayed.world.jobs)}
    total_s = np.zeros(len(index))
    for span in replayed.spans:
        total_s[index[span.job_id]] += span.end_s - span.start_s
    return total_s


def _gpu_hours(replayed: Replayed, missed: NDArray[np.bool_]) -> tuple[float, float]:
    """Device hours wasted and used; an hour on a shared device counts in equal parts for each of its jobs."""
    jobs = {job.id: (job, late) for job, late in zip(replayed.world.jobs, missed.tolist(), strict=True)}
    wasted_h = used_h = 0.0
    for span in replayed.spans:
        job, late = jobs[span.job_id]
        hours = (span.end_s - span.start_s) * job.gpus / HOUR_S / (1 + len(span.company_ids))
        used_h += hours
        wasted_h += hours if late else 0.0
    wasted_h += sum(
        stops * job.checkpoint_s * job.gpus / HOUR_S
        for stops, (job, late) in zip(replayed.stops.tolist(), jobs.values(), strict=True)
        if not late
    )
    return wasted_h, used_h


def _integral_s(replayed: Replayed, devices: NDArray[np.int64]) -> float:
    return float(np.diff(replayed.at_s) @ devices[:-1])


def _first_arrival_s(replayed: Replayed) -> float:
    return replayed.world.jobs[0].arrival_s


def _last_end_s(replayed: Replayed) -> float:
    """The last end of a job; the first arrival where all were dropped."""
    ended_s = replayed.ended_s[np.isfinite(replayed.ended_s)]
    return float(ended_s.max(initial=_first_arrival_s(replayed)))


def _present_s(replayed: Replayed) -> float:
    """Device seconds that were available between the first arrival and the last end."""
    start_s, end_s = _first_arrival_s(replayed), _last_end_s(replayed)
    return sum(
        max(0.0, min(until_s, end_s) - max(from_s, start_s))
        for device in replayed.world.devices
        for from_s, until_s in device.windows
    )


# --- sums over days, for intervals ------------------------------------------------------------------------------------


def completion_change_by_day(replayed: Replayed, reference: Replayed) -> DaySums:
    """Completion times summed by day of arrival, over those of the same jobs in a reference."""
    return DaySums(
        numerator=_sum_by_day(replayed, replayed.completion_s),
        denominator=_sum_by_day(replayed, reference.completion_s),
    )


def deadlines_met_by_day(replayed: Replayed, reference: Replayed | None = None) -> DaySums:
    """Deadlines met, less those that a reference met, over all deadlines, by day of arrival."""
    with_deadline = _has_deadline(replayed)
    met = (with_deadline & ~_missed(replayed)).astype(np.float64)
    if reference is not None:
        met -= with_deadline & ~_missed(reference)
    return DaySums(
        numerator=_sum_by_day(replayed, met), denominator=_sum_by_day(replayed, with_deadline.astype(np.float64))
    )


def best_effort_by_day(replayed: Replayed) -> DaySums:
    """Completion times of the jobs that have no deadline and end, over their number, by day of arrival."""
    counted = ~_has_deadline(replayed) & np.isfinite(replayed.ended_s)
    return DaySums(
        numerator=_sum_by_day(replayed, np.where(counted, replayed.completion_s, 0.0)),
        denominator=_sum_by_day(replayed, counted.astype(np.float64)),
    )


def completion_by_day(replayed: Replayed) -> DaySums:
    """Completion times of the jobs that end, over their number, by day of arrival."""
    ended = np.isfinite(replayed.ended_s)
    return DaySums(
        numerator=_sum_by_day(replayed, np.where(ended, replayed.completion_s, 0.0)),
        denominator=_sum_by_day(replayed, ended.astype(np.float64)),
    )


def worst_slowdown_by_day(replayed: Replayed) -> DaySums:
    """The largest slowdown by company of a job that arrived on each day; days without jobs count nowhere."""
    days, slowdown = _days(replayed), sharing_slowdowns(replayed)
    worst = np.zeros(int(days.max(initial=0)) + 1)
    np.maximum.at(worst, days, slowdown)
    return DaySums(numerator=worst, denominator=(worst > 0).astype(np.float64))


def _sum_by_day(replayed: Replayed, values: Floats) -> Floats:
    """float64[d]: of all days from the first arrival to the last."""
    return np.asarray(np.bincount(_days(replayed), weights=values), dtype=np.float64)


def _days(replayed: Replayed) -> NDArray[np.int64]:
    """int64[n]: the day of arrival of each job, 0 for the first."""
    days = np.array([job.arrival_s // DAY_S for job in replayed.world.jobs], dtype=np.int64)
    return np.asarray(days - days[0])
