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
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.sim.replay import Replayed
from interfere.sim.uncertainty import DaySums
from interfere.sim.world import DAY_S, HOUR_S, LATE_S

Floats = NDArray[np.float64]
SHORTEST_S = 10.0  # the bound that the literature of bounded slowdown uses (Feitelson et al., JSSPP 1997)
SUMS = ("busy_s", "shared_s", "present_s", "pairs_past_cap")  # parts of figures
LARGEST = ("makespan_s", "worst_slowdown")  # figures of which the largest is that of several replays together


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score of the jobs of one replay or of several: arrays and sums, and the figures computed from them.

    e is the number of jobs that ended, b the number of those without a deadline.
    """

    completion_s: Floats  # float64[e]
    slowdown: Floats  # float64[e]
    running_s: Floats  # float64[e], on devices
    best_effort_s: Floats  # float64[b], completion times of jobs without a deadline
    dropped: int  # jobs that the scheduler gave up
    makespan_s: float
    busy_s: float  # device seconds with a job
    shared_s: float  # device seconds with two jobs or more
    present_s: float  # device seconds offered, up to the last end
    pairs: int  # of jobs that shared; groups of three and more count as pairs do
    pairs_past_cap: int  # in which a side was slowed by more than the cap
    worst_slowdown: float  # the largest of a job by its company, over all its time on devices
    stops: int
    with_deadline: int  # jobs
    met: int  # of these, jobs that met it
    wasted_gpu_h: float  # device hours of jobs that missed their deadline, and of checkpoints
    used_gpu_h: float  # device hours; an hour on a shared device is half an hour of each of two jobs
    promised: int  # deadlines that the scheduler promised
    broken: int  # of these, deadlines that were missed

    @property
    def jobs(self) -> int:
        """The number of all jobs, ended or dropped."""
        return len(self.completion_s) + self.dropped

    @property
    def mean_completion_s(self) -> float:
        """Mean completion time; NaN where no job ended."""
        return _mean(self.completion_s)

    @property
    def median_completion_s(self) -> float:
        """Median completion time; NaN where no job ended."""
        return float(np.median(self.completion_s)) if len(self.completion_s) else math.nan

    @property
    def p99_completion_s(self) -> float:
        """Completion time within which 99 % of the jobs that end are over; NaN where none ended."""
        return float(np.quantile(self.completion_s, 0.99)) if len(self.completion_s) else math.nan

    @property
    def mean_slowdown(self) -> float:
        """Mean completion time over run time without sharing."""
        return _mean(self.slowdown)

    @property
    def mean_waiting_s(self) -> float:
        """Mean time of a job from arrival to end during which the job is on no device."""
        return _mean(self.completion_s - self.running_s)

    @property
    def p90_waiting_s(self) -> float:
        """Time on no device that 90 % of the jobs that end do not exceed; NaN where none ended."""
        return float(np.quantile(self.completion_s - self.running_s, 0.9)) if len(self.completion_s) else math.nan

    @property
    def utilisation(self) -> float:
        """Share of device time with a job, up to the last end."""
        return self.busy_s / max(self.present_s, 1e-12)

    @property
    def shared(self) -> float:
        """Share of busy device time with two jobs or more."""
        return self.shared_s / max(self.busy_s, 1e-12)

    @property
    def past_cap(self) -> float:
        """Share of pairs in which a side was slowed by more than the cap."""
        return self.pairs_past_cap / self.pairs if self.pairs else 0.0

    @property
    def best_effort_jct_s(self) -> float:
        """Mean completion time of jobs without a deadline; NaN where all jobs have a deadline."""
        return _mean(self.best_effort_s)

    @property
    def satisfaction(self) -> float:
        """Share of jobs with a deadline that met it; NaN where no job has a deadline."""
        return self.met / self.with_deadline if self.with_deadline else math.nan

    def facts(self) -> dict[str, float]:
        """Return every figure of the score by its name."""
        computed = [name for name, member in vars(Score).items() if isinstance(member, property)]
        counted = [each.name for each in fields(self) if each.type in (int, float) and each.name not in SUMS]
        return {name: getattr(self, name) for name in (*computed, *counted)}


def score(replays: Sequence[Replayed], cap: float) -> Score:
    """Return the score of all jobs of these replays together. `cap`: slowdown past which a pair counts in
    `past_cap`."""
    return score_of([_score_of_one(replayed, cap) for replayed in replays])


def score_of(scores: Sequence[Score]) -> Score:
    """Return the score of all jobs of the replays that have these scores."""
    merged: dict[str, Any] = {}
    for name in (each.name for each in fields(Score)):
        values = [getattr(each, name) for each in scores]
        if isinstance(values[0], np.ndarray):
            merged[name] = np.concatenate(values)
        else:
            merged[name] = max(values) if name in LARGEST else sum(values)
    return Score(**merged)


def _score_of_one(replayed: Replayed, cap: float) -> Score:
    """Return the score of all jobs of one replay. `cap`: slowdown past which a pair counts in `pairs_past_cap`."""
    jobs = _JobArrays(replayed)
    done, missed = np.isfinite(replayed.ended_s), jobs.missed
    completion_s = replayed.completion_s[done]
    pairs = list(group_slowdowns(replayed).values())
    promised = ~np.isnan(replayed.promised_s)
    # Device hours: an hour on a shared device counts in equal parts for each of its jobs.
    used_h = np.zeros(len(jobs.index))
    for span in replayed.spans:
        used_h[jobs.index[span.job_id]] += (span.end_s - span.start_s) / HOUR_S / (1 + len(span.company_ids))
    used_h *= jobs.gpus
    checkpoint_h = replayed.stops * jobs.checkpoint_s * jobs.gpus / HOUR_S
    first_s = replayed.world.jobs[0].arrival_s
    last_s = float(replayed.ended_s[done].max(initial=first_s))  # the first arrival where all were dropped
    return Score(
        completion_s=completion_s,
        slowdown=(completion_s / np.maximum(jobs.duration_s[done], SHORTEST_S)).clip(1.0),
        running_s=jobs.running_s[done],
        best_effort_s=replayed.completion_s[~jobs.has_deadline],
        dropped=int((~done).sum()),
        makespan_s=last_s - first_s,
        busy_s=float(np.diff(replayed.at_s) @ replayed.busy[:-1]),
        shared_s=float(np.diff(replayed.at_s) @ replayed.shared[:-1]),
        present_s=sum(
            max(0.0, min(until_s, last_s) - max(from_s, first_s))
            for device in replayed.world.devices
            for from_s, until_s in device.windows
        ),
        pairs=len(pairs),
        pairs_past_cap=sum(max(pair) > cap for pair in pairs),
        worst_slowdown=float(jobs.sharing_slowdown.max(initial=1.0)),
        stops=int(replayed.stops.sum()),
        with_deadline=int(jobs.has_deadline.sum()),
        met=int((jobs.has_deadline & ~missed).sum()),
        wasted_gpu_h=float(np.where(missed, used_h, checkpoint_h).sum()),
        used_gpu_h=float(used_h.sum()),
        promised=int(promised.sum()),
        broken=int((promised & missed).sum()),
    )


class _JobArrays:
    """Arrays over the n jobs of a replay, in order of arrival, from which scores are computed."""

    def __init__(self, replayed: Replayed) -> None:
        jobs = replayed.world.jobs
        self.index = {job.id: k for k, job in enumerate(jobs)}
        self.gpus = np.array([job.gpus for job in jobs])
        self.duration_s = np.array([job.duration_s for job in jobs], dtype=np.float64)
        self.checkpoint_s = np.array([job.checkpoint_s for job in jobs], dtype=np.float64)
        deadline_s = np.array([job.deadline_s for job in jobs], dtype=np.float64)
        self.has_deadline = np.isfinite(deadline_s)
        self.missed = ~(replayed.ended_s <= deadline_s + LATE_S)  # dropped jobs too
        self.running_s, alone_s = np.zeros(len(jobs)), np.zeros(len(jobs))  # on devices; there without company
        for span in replayed.spans:
            self.running_s[self.index[span.job_id]] += span.end_s - span.start_s
            alone_s[self.index[span.job_id]] += (span.end_s - span.start_s) / span.slowdown
        self.sharing_slowdown = np.divide(self.running_s, alone_s, out=np.ones(len(jobs)), where=alone_s > 0)  # ≥ 1


def group_slowdowns(replayed: Replayed) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return the slowdown of each job, for every set of two or more jobs that ran together without further jobs."""
    slowdowns: dict[tuple[str, ...], dict[str, float]] = {}
    for span in replayed.spans:
        if span.company_ids:
            key = tuple(sorted((span.job_id, *span.company_ids)))
            slowdowns.setdefault(key, {})[span.job_id] = span.slowdown
    return {key: tuple(sides.values()) for key, sides in slowdowns.items()}


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


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
        """Return daily sums for the mean completion time of the jobs that end."""
        return DaySums(numerator=self.completion_s, denominator=self.ended)

    def completion_change(self, reference: "DayTotals") -> DaySums:
        """Return daily sums for the ratio of completion times to the same jobs' in a reference replay."""
        return DaySums(numerator=self.completion_s, denominator=reference.completion_s)

    def deadlines_met(self, reference: "DayTotals | None" = None) -> DaySums:
        """Return daily sums for the share of deadlines met, minus the share in a reference replay where one is
        given."""
        met = self.met if reference is None else self.met - reference.met
        return DaySums(numerator=met, denominator=self.with_deadline)

    def best_effort_completion(self) -> DaySums:
        """Return daily sums for the mean completion time of the jobs without a deadline that end."""
        return DaySums(numerator=self.best_effort_s, denominator=self.best_effort)

    def worst(self) -> DaySums:
        """Return daily sums for the largest slowdown by company of a day, averaged over the days that have jobs."""
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

    def by_day(values: NDArray[np.generic]) -> Floats:
        return np.asarray(np.bincount(days, weights=values.astype(np.float64)), dtype=np.float64)

    jobs, ended = _JobArrays(replayed), np.isfinite(replayed.ended_s)
    worst = np.zeros(int(days.max(initial=0)) + 1)
    np.maximum.at(worst, days, jobs.sharing_slowdown)
    completion_s = np.where(ended, replayed.completion_s, 0.0)
    return DayTotals(
        completion_s=by_day(completion_s),
        ended=by_day(ended),
        met=by_day(jobs.has_deadline & ~jobs.missed),
        with_deadline=by_day(jobs.has_deadline),
        best_effort_s=by_day(np.where(jobs.has_deadline, 0.0, completion_s)),
        best_effort=by_day(ended & ~jobs.has_deadline),
        worst_slowdown=worst,
    )
