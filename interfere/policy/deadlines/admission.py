"""Deadline admission: reserves device time for a set of gangs, job after job, so that each meets its deadline.

A capacity profile gives the number of free devices of one class at any time. Each job reserves g devices of one profile
with the earliest possible end: in one interval, or, if the job can be checkpointed, in several intervals in which g
devices are free; each interruption adds one checkpoint. This is the progressive filling of ElasticFlow (Gu et al.,
ASPLOS 2023, section 4.1) for gangs of fixed size, at exact times instead of slots of one length. Jobs are taken in
order of deadline; if that fails, up to `MAX_PERMUTED_JOBS` jobs are tried in every order. For one profile and
uninterrupted jobs that finds a schedule whenever one exists. Law: no profile exceeds its devices and no job is late; a
schedulable set stays schedulable without one of its jobs.
"""

import itertools
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MAX_PERMUTED_JOBS = 5  # most jobs that are tried in every order: 120 schedules

Interval = tuple[float, float]
"""(from, until), seconds on the caller's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineDemand:
    """Device time that one job needs before its deadline: `gpus` devices of one capacity profile."""

    job_id: str
    gpus: int
    deadline_s: float
    runtime_s: tuple[float, ...]  # on devices of each profile; inf where the job may not run
    checkpoint_s: float = math.nan  # added by each interruption; NaN where the job must run in one interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Devices reserved for a job over one interval."""

    job_id: str
    profile: int  # index of the capacity profile
    from_s: float
    until_s: float
    gpus: int


class CapacityProfile:
    """The number of free devices of one class, as a step function of time."""

    def __init__(self, now_s: float, open_intervals: Iterable[Interval], count: int) -> None:
        """Create a capacity profile with `count` free devices in each interval during which the devices are open."""
        # _free[k] devices from _times_s[k] to _times_s[k + 1]; NumPy reads both without a copy.
        self._times_s, self._free = array("d", [now_s]), array("q", [0])
        self.visited_steps = 0  # work of all queries and reservations so far
        for from_s, until_s in open_intervals:
            self.reserve(from_s, until_s, -count)

    def copy(self) -> "CapacityProfile":
        """Return an independent copy of the profile."""
        duplicate = CapacityProfile(self._times_s[0], (), 0)
        duplicate._times_s, duplicate._free = self._times_s[:], self._free[:]
        return duplicate

    def reserve(self, from_s: float, until_s: float, count: int) -> None:
        """Take `count` devices over an interval; a negative count adds them."""
        first, last = self._step_at(from_s), self._step_at(until_s)
        self.visited_steps += last - first
        np.frombuffer(self._free, np.int64)[first:last] -= count

    def occupy_from_now(self, occupied: Sequence[tuple[float, int]]) -> None:
        """Reserve devices from now on, given as (until_s, count) entries; equal to one `reserve` for each entry."""
        ends = sorted(occupied)
        ends_s = np.array([until_s for until_s, _ in ends], dtype=np.float64)
        taken = np.concatenate([[0], np.cumsum(np.array([count for _, count in ends], dtype=np.int64))])
        times_s, free = np.frombuffer(self._times_s), np.frombuffer(self._free, np.int64)
        marks_s = np.unique(np.concatenate([times_s, ends_s[np.isfinite(ends_s)]]))
        step = np.maximum(0, np.searchsorted(times_s, marks_s, side="right") - 1)
        used = taken[-1] - taken[np.searchsorted(ends_s, marks_s, side="right")]
        self._times_s = array("d", marks_s.tobytes())
        self._free = array("q", (free[step] - used).astype(np.int64).tobytes())

    def is_free(self, from_s: float, until_s: float, count: int) -> bool:
        """Return whether `count` devices are free over a whole interval."""
        times_s, free = self._times_s, self._free
        first, last = bisect_right(times_s, from_s) - 1, bisect_left(times_s, until_s)
        self.visited_steps += last - first
        if first >= last:
            return True
        if free[first] < count:  # a busy class is mostly full at once
            return False
        return int(np.frombuffer(free, np.int64)[first:last].min()) >= count

    def earliest_start(self, count: int, runtime_s: float, from_s: float) -> float:
        """Return the earliest time from `from_s` at which `count` devices are free for `runtime_s`; inf if there is
        none.
        """
        first = max(0, bisect_right(self._times_s, from_s) - 1)
        times_s, free = np.frombuffer(self._times_s)[first:], np.frombuffer(self._free, np.int64)[first:]
        # 1. Where stretches of enough free devices begin and end: at the steps with too few, and at the last step.
        too_few = np.flatnonzero(free < count)
        begins, ends = np.concatenate([[0], too_few + 1]), np.concatenate([too_few, [len(free)]])
        begins, ends = begins[begins < ends], ends[begins < ends]
        # 2. The first that is long enough.
        starts_s = np.maximum(times_s[begins], from_s)
        ends_s = np.where(ends < len(free), times_s[np.minimum(ends, len(free) - 1)], np.inf)
        enough = ends_s >= starts_s + runtime_s
        if not enough.any():
            self.visited_steps += len(free)
            return math.inf
        start_s = float(starts_s[enough.argmax()])
        self.visited_steps += max(int(begins[enough.argmax()]) + 1, int(np.searchsorted(times_s, start_s + runtime_s)))
        return start_s

    def _step_at(self, at_s: float) -> int:
        """Return the index of the step that begins at a time, after splitting a step where necessary."""
        if at_s <= self._times_s[0]:
            return 0
        if at_s == math.inf:
            return len(self._times_s)
        k = bisect_right(self._times_s, at_s) - 1
        if self._times_s[k] == at_s:
            return k
        self._times_s.insert(k + 1, at_s)
        self._free.insert(k + 1, self._free[k])
        return k + 1

    def earliest_intervals(self, gpus: int, runtime_s: float, checkpoint_s: float) -> list[Interval]:
        """Return the intervals in which a job ends earliest; empty where the job can never finish."""
        intervals: list[Interval] = []
        remaining_s = runtime_s
        for k, free in enumerate(self._free):
            from_s = self._times_s[k]
            until_s = self._times_s[k + 1] if k + 1 < len(self._times_s) else math.inf
            if free < gpus:
                if math.isnan(checkpoint_s):
                    intervals, remaining_s = [], runtime_s
                continue
            if intervals and intervals[-1][1] < from_s:
                remaining_s += checkpoint_s
            if remaining_s <= until_s - from_s:
                return _join_adjacent([*intervals, (from_s, from_s + remaining_s)])
            intervals.append((from_s, until_s))
            remaining_s -= until_s - from_s
        return []


def _join_adjacent(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the sorted intervals with touching intervals merged."""
    joined: list[Interval] = []
    for from_s, until_s in intervals:
        if joined and joined[-1][1] == from_s:
            joined[-1] = (joined[-1][0], until_s)
        else:
            joined.append((from_s, until_s))
    return joined


def schedule_all(
    demands: Sequence[DeadlineDemand], profiles: Sequence[CapacityProfile]
) -> tuple[Reservation, ...] | None:
    """Return reservations with which every job meets its deadline, or None if none were found."""
    by_deadline = sorted(demands, key=lambda demand: (demand.deadline_s, demand.job_id))
    orders: Iterable[Sequence[DeadlineDemand]] = [by_deadline]
    if len(demands) <= MAX_PERMUTED_JOBS:
        orders = itertools.permutations(by_deadline)
    schedules = (_schedule_in_order(order, profiles) for order in orders)
    return next((schedule for schedule in schedules if schedule is not None), None)


def reserve_earliest(demand: DeadlineDemand, profiles: Sequence[CapacityProfile]) -> tuple[Reservation, ...]:
    """Reserve device time for one job on the profile where the job ends first, and return the reservations.

    The result is empty, and the profiles are unchanged, if the job would miss its deadline.
    """
    best: tuple[float, int, list[Interval]] | None = None  # end, index of the profile, intervals
    for k, profile in enumerate(profiles):
        if demand.runtime_s[k] == math.inf:
            continue
        intervals = profile.earliest_intervals(demand.gpus, demand.runtime_s[k], demand.checkpoint_s)
        if intervals:
            option = (intervals[-1][1], k, intervals)
            best = min(best, option) if best else option
    if best is None or best[0] > demand.deadline_s:
        return ()
    _, k, intervals = best
    for from_s, until_s in intervals:
        profiles[k].reserve(from_s, until_s, demand.gpus)
    return tuple(
        Reservation(job_id=demand.job_id, profile=k, from_s=from_s, until_s=until_s, gpus=demand.gpus)
        for from_s, until_s in intervals
    )


def _schedule_in_order(
    order: Sequence[DeadlineDemand], profiles: Sequence[CapacityProfile]
) -> tuple[Reservation, ...] | None:
    """Return the reservations of the jobs in the given order; None if a job would miss its deadline."""
    trial = [profile.copy() for profile in profiles]
    schedule: list[Reservation] = []
    for demand in order:
        reservations = reserve_earliest(demand, trial)
        if not reservations:
            return None
        schedule += reservations
    return tuple(schedule)
