"""Reservations of device time: within capacity, in time, and found wherever brute force finds them."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from interfere.policy.deadlines.admission import (
    CapacityProfile,
    DeadlineDemand,
    Reservation,
    reserve_earliest,
    schedule_all,
)

ALWAYS = ((-math.inf, math.inf),)


def demand(name: str, seconds: float, deadline_s: float, gpus: int = 1, **fields: float) -> DeadlineDemand:
    return DeadlineDemand(job_id=name, gpus=gpus, deadline_s=deadline_s, runtime_s=(seconds,), **fields)


def profile(count: int, *spans: tuple[float, float]) -> CapacityProfile:
    return CapacityProfile(0.0, spans or ALWAYS, count)


def when(slots: tuple[Reservation, ...] | None) -> list[tuple[str, float, float]]:
    return sorted((one.job_id, one.from_s, one.until_s) for one in slots or ())


def test_jobs_run_one_after_the_other_by_deadline() -> None:
    found = schedule_all([demand("b", 2, 5), demand("a", 3, 3)], [profile(1)])
    assert when(found) == [("a", 0, 3), ("b", 3, 5)]
    assert schedule_all([demand("b", 2, 4), demand("a", 3, 3)], [profile(1)]) is None


def test_two_single_device_jobs_run_after_a_gang() -> None:
    jobs = [demand("gang", 2, 2, gpus=2), demand("a", 2, 4), demand("b", 2, 4)]
    assert when(schedule_all(jobs, [profile(2)])) == [("a", 2, 4), ("b", 2, 4), ("gang", 0, 2)]
    assert schedule_all([*jobs, demand("c", 1, 4)], [profile(2)]) is None


def test_an_order_other_than_that_of_the_deadlines_is_found() -> None:
    """By deadline the single jobs take both devices from 0, one after the other, and the gang is late."""
    jobs = [demand("a", 1, 3), demand("b", 2, 3.5), demand("gang", 2, 4, gpus=2)]
    assert schedule_all(jobs, [profile(2)]) is not None
    assert (
        schedule_all([demand("long", 4, 9), demand("short", 1, 8), demand("gang", 5, 9, gpus=2)], [profile(2)])
        is not None
    )


def test_a_job_that_can_be_checkpointed_continues_after_a_closed_interval() -> None:
    open_hours = ((0.0, 4.0), (10.0, 14.0))
    assert schedule_all([demand("x", 6, 20)], [profile(1, *open_hours)]) is None
    found = schedule_all([demand("x", 6, 20, checkpoint_s=1.0)], [profile(1, *open_hours)])
    assert when(found) == [("x", 0, 4), ("x", 10, 13)]  # 2 s more, and the checkpoint
    assert schedule_all([demand("x", 6, 12.9, checkpoint_s=1.0)], [profile(1, *open_hours)]) is None


def test_a_job_gets_the_profile_on_which_it_ends_first_of_those_it_may_use() -> None:
    slow_but_free, fast_but_busy = profile(1), profile(1)
    fast_but_busy.reserve(0.0, 3.0, 1)
    one = DeadlineDemand(job_id="x", gpus=1, deadline_s=9.0, runtime_s=(5.0, 3.0))
    assert [slot.profile for slot in reserve_earliest(one, [slow_but_free, fast_but_busy])] == [0]
    other = DeadlineDemand(job_id="y", gpus=1, deadline_s=9.0, runtime_s=(math.inf, 3.0))
    assert when(reserve_earliest(other, [slow_but_free, fast_but_busy])) == [("y", 3, 6)]


@pytest.mark.parametrize("seed", range(60))
def test_brute_force_over_start_times_agrees_on_one_profile(seed: int) -> None:
    """Whole seconds: every set of start times is tried."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    jobs = [
        demand(str(k), float(rng.integers(1, 4)), float(rng.integers(2, 8)), gpus=int(rng.integers(1, count + 1)))
        for k in range(int(rng.integers(1, 5)))
    ]
    found = schedule_all(jobs, [profile(count)])
    assert (found is not None) == _possible(jobs, count)
    if found:
        _check(found, jobs, count)


def _possible(jobs: list[DeadlineDemand], count: int) -> bool:
    choices = [range(int(job.deadline_s - job.runtime_s[0]) + 1) for job in jobs]
    for starts in itertools.product(*choices):
        used: Counter[int] = Counter()
        for job, start in zip(jobs, starts, strict=True):
            used.update(dict.fromkeys(range(start, start + int(job.runtime_s[0])), job.gpus))
        if max(used.values(), default=0) <= count:
            return True
    return False


def _check(slots: tuple[Reservation, ...], jobs: list[DeadlineDemand], count: int) -> None:
    for at_s in {slot.from_s for slot in slots}:
        assert sum(slot.gpus for slot in slots if slot.from_s <= at_s < slot.until_s) <= count
    for job in jobs:
        mine = [slot for slot in slots if slot.job_id == job.job_id]
        assert sum(slot.until_s - slot.from_s for slot in mine) == pytest.approx(job.runtime_s[0])
        assert max(slot.until_s for slot in mine) <= job.deadline_s


@pytest.mark.parametrize("seed", range(15))
def test_a_schedule_is_in_time_and_within_capacity_also_in_several_intervals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        demand(
            str(k),
            float(rng.integers(1, 6)),
            float(rng.integers(3, 40)),
            gpus=int(rng.integers(1, 4)),
            checkpoint_s=0.0 if rng.random() < 0.5 else math.nan,
        )
        for k in range(7)
    ]
    found = schedule_all(jobs, [profile(3, (0.0, 6.0), (8.0, 40.0))])
    if found is not None:
        _check(found, jobs, 3)
        assert not any(slot.from_s < 8.0 and slot.until_s > 6.0 for slot in found)
        assert all(
            schedule_all([job for job in jobs if job is not out], [profile(3, (0.0, 6.0), (8.0, 40.0))]) for out in jobs
        )


@pytest.mark.parametrize("seed", range(20))
def test_earliest_starts_agree_with_trying_every_step(seed: int) -> None:
    """The first step, or the time asked from, at which enough devices are free for long enough."""
    rng = np.random.default_rng(seed)
    free, occupied = profile(6), [(float(rng.integers(1, 30)), int(rng.integers(1, 3))) for _ in range(3)]
    one_by_one = profile(6)
    free.occupy_from_now(occupied)
    for until_s, count in occupied:
        one_by_one.reserve(0.0, until_s, count)
    for _ in range(6):
        from_s, length_s = float(rng.integers(0, 40)), float(rng.integers(1, 20))
        if one_by_one.is_free(from_s, from_s + length_s, 2):
            free.reserve(from_s, from_s + length_s, 2)
            one_by_one.reserve(from_s, from_s + length_s, 2)
    for count in range(1, 7):
        for runtime_s in (0.5, 3.0, 11.0):
            for from_s in (0.0, 2.5, 17.0):
                start_s = free.earliest_start(count, runtime_s, from_s)
                assert start_s == one_by_one.earliest_start(count, runtime_s, from_s)
                tried = (at_s for at_s in [from_s, *map(float, range(60))] if at_s >= from_s)
                expected = min(at_s for at_s in tried if free.is_free(at_s, at_s + runtime_s, count))
                assert start_s == expected
