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
    """The score of all jobs of one replay, or of several replays together."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums of one replay, from which a score over several replays is computed. `e` of `n` jobs ended."""

    completion_s: Floats  # float64[e]
    slowdown: Floats  # float64[e]
    running_s: Floats  # float64[e], on devices
    dropped: int
    makespan_s: float
    busy_s: float  # device seconds
    shared_s: float
    present_s: float
    pairs: int
    pair_sides: int
    pair_slowdowns: float  # sum over all sides
    past_cap: int
    worst_slowdown: float
    stops: int
    with_deadline: int
    met: int
    best_effort_s: Floats  # float64[b], completion times of jobs without a deadline
    wasted_gpu_h: float
    used_gpu_h: float
    promised: int
    broken: int


def totals_of(replayed: Replayed, cap: float) -> Totals:
    """The totals of one replay. `cap`: slowdown past which a pair counts in `past_cap`."""
    done = np.isfinite(replayed.ended_s)
    completion_s = replayed.completion_s[done]
    pairs = list(group_slowdowns(replayed).values())
    missed, with_deadline = _missed(replayed), _has_deadline(replayed)
    promised = ~np.isnan(replayed.promised_s)
    wasted_gpu_h, used_gpu_h = _gpu_hours(replayed, missed)
    return Totals(
        completion_s=completion_s,
        slowdown=(completion_s / np.maximum(_durations_s(replayed)[done], SHORTEST_S)).clip(1.0),
        running_s=_running_s(replayed)[done],
        dropped=int((~done).sum()),
        makespan_s=_last_end_s(replayed) - _first_arrival_s(replayed),
        busy_s=_integral_s(replayed, replayed.busy),
        shared_s=_integral_s(replayed, replayed.shared),
        present_s=_present_s(replayed),
        pairs=len(pairs),
        pair_sides=sum(map(len, pairs)),
        pair_slowdowns=float(np.sum([side for pair in pairs for side in pair])),
        past_cap=sum(max(pair) > cap for pair in pairs),
        worst_slowdown=float(sharing_slowdowns(replayed).max(initial=1.0)),
        stops=int(replayed.stops.sum()),
        with_deadline=int(with_deadline.sum()),
        met=int((with_deadline & ~missed).sum()),
        best_effort_s=replayed.completion_s[~with_deadline],
        wasted_gpu_h=wasted_gpu_h,
        used_gpu_h=used_gpu_h,
        promised=int(promised.sum()),
        broken=int((promised & missed).sum()),
    )


def score(replays: Sequence[Replayed], cap: float) -> Score:
    """Score of all jobs of these replays together. `cap`: slowdown past which a pair counts in `past_cap`."""
    return score_of([totals_of(replayed, cap) for replayed in replays])


def score_of(totals: Sequence[Totals]) -> Score:
    """Score of all jobs of the replays with these totals."""
    completion_s = np.concatenate([each.completion_s for each in totals])
    running_s = np.concatenate([each.running_s for each in totals])
    busy_s, sides = sum(each.busy_s for each in totals), sum(each.pair_sides for each in totals)
    pairs = sum(each.pairs for each in totals)
    return Score(
        jobs=len(completion_s) + sum(each.dropped for each in totals),
        mean_completion_s=_mean(completion_s),
        median_completion_s=float(np.median(completion_s)) if len(completion_s) else math.nan,
        p99_completion_s=float(np.quantile(completion_s, 0.99)) if len(completion_s) else math.nan,
        mean_slowdown=_mean(np.concatenate([each.slowdown for each in totals])),
        mean_waiting_s=_mean(completion_s - running_s),
        makespan_s=max(each.makespan_s for each in totals),
        utilisation=busy_s / max(sum(each.present_s for each in totals), 1e-12),
        shared=sum(each.shared_s for each in totals) / max(busy_s, 1e-12),
        pairs=pairs,
        mean_pair_slowdown=sum(each.pair_slowdowns for each in totals) / sides if sides else 1.0,
        past_cap=sum(each.past_cap for each in totals) / pairs if pairs else 0.0,
        worst_slowdown=max((each.worst_slowdown for each in totals), default=1.0),
        stops=sum(each.stops for each in totals),
        dropped=sum(each.dropped for each in totals),
        with_deadline=sum(each.with_deadline for each in totals),
        met=sum(each.met for each in totals),
        best_effort_jct_s=_mean(np.concatenate([each.best_effort_s for each in totals])),
        wasted_gpu_h=sum(each.wasted_gpu_h for each in totals),
        used_gpu_h=sum(each.used_gpu_h for each in totals),
        promised=sum(each.promised for each in totals),
        broken=sum(each.broken for each in totals),
    )


def group_slowdowns(replayed: Replayed) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return the slowdown of each job, for every set of two or more jobs that ran together without further jobs."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DayTotals:
    """Sums over the jobs that arrived on each of d days, from the first job's day to the last job's day."""

    completion_s: Floats  # float64[d]: of the jobs that ended
    ended: Floats  # float64[d]: their number
    met: Floats  # float64[d]: deadlines
    with_deadline: Floats  # float64[d]
    best_effort_s: Floats  # float64[d]: completion times of the jobs that have no deadline and end
    best_effort: Floats  # float64[d]: their number
    worst_slowdown: Floats  # float64[d]: the largest by company; 0 on days without jobs

    def completion(self) -> DaySums:
        """Mean completion time of the jobs that end."""
        return DaySums(numerator=self.completion_s, denominator=self.ended)

    def completion_change(self, reference: "DayTotals") -> DaySums:
        """Completion times over those of the same jobs in a reference."""
        return DaySums(numerator=self.completion_s, denominator=reference.completion_s)

    def deadlines_met(self, reference: "DayTotals | None" = None) -> DaySums:
        """Deadlines met, less those that a reference met, over all deadlines."""
        met = self.met if reference is None else self.met - reference.met
        return DaySums(numerator=met, denominator=self.with_deadline)

    def best_effort_completion(self) -> DaySums:
        """Mean completion time of the jobs that have no deadline and end."""
        return DaySums(numerator=self.best_effort_s, denominator=self.best_effort)

    def worst(self) -> DaySums:
        """The largest slowdown by company of a job of each day; days without jobs count nowhere."""
        return DaySums(numerator=self.worst_slowdown, denominator=(self.worst_slowdown > 0).astype(np.float64))


def day_totals_of(replayed: Replayed, arrival_s: Floats | None = None) -> DayTotals:
    """Return sums by day of arrival.

    `arrival_s`: float64[n], given where days are counted by other arrivals than the replayed ones, such as the recorded
    arrivals of a stretched trace.
    """
    if arrival_s is None:
        arrival_s = np.array([job.arrival_s for job in replayed.world.jobs])
    days = (arrival_s // DAY_S).astype(np.int64)
    days = days - days.min(initial=days[0] if len(days) else 0)

    def by_day(values: Floats) -> Floats:
        return np.asarray(np.bincount(days, weights=values), dtype=np.float64)

    ended, with_deadline = np.isfinite(replayed.ended_s), _has_deadline(replayed)
    worst = np.zeros(int(days.max(initial=0)) + 1)
    np.maximum.at(worst, days, sharing_slowdowns(replayed))
    completion_s = np.where(ended, replayed.completion_s, 0.0)
    return DayTotals(
        completion_s=by_day(completion_s),
        ended=by_day(ended.astype(np.float64)),
        met=by_day((with_deadline & ~_missed(replayed)).astype(np.float64)),
        with_deadline=by_day(with_deadline.astype(np.float64)),
        best_effort_s=by_day(np.where(with_deadline, 0.0, completion_s)),
        best_effort=by_day((ended & ~with_deadline).astype(np.float64)),
        worst_slowdown=worst,
    )
