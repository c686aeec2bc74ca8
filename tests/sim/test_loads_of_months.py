"""Means over months whose loads vary: how often their interval is right beside that at equal load, and its laws."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.sim.uncertainty import (
    NEUTRAL_EXPONENT,
    RELATIVE_CHANGE,
    DaySums,
    Floats,
    LoadResponse,
    NoInterval,
    ends_of_mean,
    mean_over_loads,
    taylor_exponent,
)
from interfere.study.engine import Runner
from tests.bench.uneven_months import LOADS, QUEUES, MonthGain, coverage_of, month_gains
from tests.sim.uneven_months import PROCESSES

DAYS = 30
BURSTS = PROCESSES[3]


def congestion(load: float) -> float:
    """Completion times without sharing over run times, of a queue at this load."""
    return 1.0 + 2.0 * load**4 / (1.0 - load) ** 1.5


def response(seed: int, *, gain: float = 0.6) -> LoadResponse:
    """A month at a load of .5 in the mean that varies from month to month; sharing saves a share of all waiting."""
    rng = np.random.default_rng(seed)
    level = np.zeros(DAYS)
    for day in range(DAYS):
        level[day] = 0.7 * level[day - 1] + 0.7 * rng.normal() if day else rng.normal()
    level += 0.5 * rng.normal()  # what no day of this month tells
    work = rng.gamma(20.0, np.exp(0.4 * level - 0.1) / 20.0)
    load = min(0.9, 0.5 * float(work.mean()))

    def at(target: float) -> DaySums:
        by_day = np.minimum(work / work.mean() * target, 0.95)
        alone = work * np.array([congestion(each) for each in by_day])
        return DaySums(numerator=alone - gain * (alone - work), denominator=alone)

    return LoadResponse(work=work, load=load, at={each: at(each) for each in (load, 0.5, 0.75, 0.95)})


def test_it_covers_the_gain_of_months_whose_loads_vary_more_often_than_the_interval_at_equal_load() -> None:
    months = [response(seed) for seed in range(100)]
    own = [month.at[month.load] for month in months]
    true = sum(each.numerator.sum() for each in own) / sum(each.denominator.sum() for each in own) - 1
    ends = [mean_over_loads([month], RELATIVE_CHANGE, subtract=1.0).interval for month in months]
    equal = [ends_of_mean([sums], RELATIVE_CHANGE, 1.0) for sums in own]
    covered = np.mean([each.low <= true <= each.high for each in ends])
    at_equal_load = np.mean([low <= true <= high for low, high in equal])
    print(f"covered {covered:.0%}, at equal load {at_equal_load:.0%}")
    assert covered >= 0.85
    assert at_equal_load < 0.8


@settings(max_examples=20)
@given(st.integers(0, 200), st.floats(-0.5, 0.9), st.sets(st.sampled_from(LOADS), min_size=1))
def test_the_ends_lie_on_both_sides_of_the_mean_and_within_the_bounds(
    seed: int, gain: float, loads: set[float]
) -> None:
    month = response(seed, gain=gain)
    kept = LoadResponse(
        work=month.work, load=month.load, at={load: month.at[load] for load in (month.load, *sorted(loads))}
    )
    found = mean_over_loads([kept], RELATIVE_CHANGE, subtract=1.0)
    if abs(gain) < 1e-6:
        return
    assert -1.0 <= found.interval.low <= found.mean <= found.interval.high
    assert found.interval.population == "mean over months at loads like these weeks (30 recorded days)"
    scaled = LoadResponse(
        work=7 * kept.work,
        load=kept.load,
        at={k: DaySums(numerator=3 * v.numerator, denominator=3 * v.denominator) for k, v in kept.at.items()},
    )
    again = mean_over_loads([scaled], RELATIVE_CHANGE, subtract=1.0).interval
    assert (again.low, again.high) == pytest.approx((found.interval.low, found.interval.high), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_time_lost_is_averaged_as_time_saved_is(seed: int) -> None:
    """With both schedulers exchanged, mean times are in the inverse ratio: but for lines between replayed loads."""
    month = response(seed)
    exchanged = LoadResponse(
        work=month.work,
        load=month.load,
        at={k: DaySums(numerator=v.denominator, denominator=v.numerator) for k, v in month.at.items()},
    )
    saved, lost = (mean_over_loads([each], RELATIVE_CHANGE, subtract=1.0).mean for each in (month, exchanged))
    assert saved < 0 < lost
    assert (1 + saved) * (1 + lost) == pytest.approx(1.0, rel=0.03)


def test_a_month_that_loses_nothing_says_nothing_and_few_days_neither() -> None:
    still = response(1, gain=0.0)
    assert mean_over_loads([still], RELATIVE_CHANGE, subtract=1.0).interval.missing is NoInterval.NOTHING_CHANGED
    month = response(2)
    short = LoadResponse(
        work=month.work[:10],
        load=month.load,
        at={k: DaySums(numerator=v.numerator[:10], denominator=v.denominator[:10]) for k, v in month.at.items()},
    )
    found = mean_over_loads([short], RELATIVE_CHANGE, subtract=1.0)
    assert found.interval.missing is NoInterval.FEW_DAYS
    assert math.isnan(found.interval.low)


def varied(levels: Sequence[float], exponent: float) -> Floats:
    """The work of days whose standard deviation grows as this power of the level of their four weeks."""
    by_day = np.repeat(levels, 28)
    within = np.tile(0.2 * np.array([-1.0, 1.0, -0.5, 0.5, -1.5, 1.5, 0.0]), 4 * len(levels))
    return np.asarray(by_day + by_day**exponent * within)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.4])
@pytest.mark.parametrize("seed", range(3))
def test_taylors_exponent_is_found_in_long_records_whatever_the_unit(exponent: float, seed: int) -> None:
    work = varied(np.random.default_rng(seed).lognormal(0.0, 0.6, 13), exponent)
    assert taylor_exponent(work) == pytest.approx(exponent, abs=0.2)
    assert taylor_exponent(1000 * work) == pytest.approx(taylor_exponent(work))


@pytest.mark.parametrize("seed", range(3))
def test_months_whose_heavier_weeks_are_burstier_may_lie_farther_from_the_mean_of_all(seed: int) -> None:
    """The same replays and loads: only how the days of heavier weeks vary differs."""
    month = response(seed)
    levels = np.repeat([0.85, 1.15, 1.0, 0.9], 7)
    steady, bursty = (
        np.concatenate([levels + levels**exponent * np.tile([0.1, -0.1], 14), [1.0, 1.0]]) for exponent in (-2.0, 4.0)
    )
    assert taylor_exponent(steady) < NEUTRAL_EXPONENT < taylor_exponent(bursty)
    found = [mean_over_loads([replace(month, work=work)], RELATIVE_CHANGE, subtract=1.0) for work in (steady, bursty)]
    narrow, wide = (
        [math.log(-x / (1 + x)) for x in (each.interval.low, each.mean, each.interval.high)] for each in found
    )
    assert np.all(-np.diff(narrow) < -np.diff(wide))  # on both sides, on the scale on which errors are added
    assert wide[1] > narrow[1]  # heavier months save more


def test_weeks_that_do_not_differ_tell_no_exponent() -> None:
    assert taylor_exponent(np.tile([1.0, 2.0, 4.0, 1.0, 2.0, 4.0, 3.0], 4)) == pytest.approx(NEUTRAL_EXPONENT)
    assert taylor_exponent(np.ones(7)) == NEUTRAL_EXPONENT


def test_several_worlds_narrow_it() -> None:
    one = mean_over_loads([response(3)], RELATIVE_CHANGE, subtract=1.0).interval
    four = mean_over_loads([response(seed) for seed in (3, 4, 5, 6)], RELATIVE_CHANGE, subtract=1.0).interval
    assert four.high - four.low < one.high - one.low


def test_months_of_a_bench_are_replayed_once_and_kept(tmp_path: Path) -> None:
    """Two months of one process; `python -m tests.bench.uneven_months` counts a hundred of each."""
    first = month_gains(BURSTS, 2, 1, Runner(folder=tmp_path))
    told: list[str] = []
    again = month_gains(BURSTS, 2, 1, Runner(folder=tmp_path, report=told.append))
    assert told == [f"5 of 5 were done before, in {tmp_path / 'bursts-of-days'}"]
    for queue in QUEUES:
        judged, other = first[queue]
        assert isinstance(judged, MonthGain)
        assert (len(judged.response.at), len(other.response.at)) == (1 + len(LOADS), 1)
        assert judged.over_loads() == again[queue][0].over_loads()
        assert (coverage_of(first[queue]).months, judged.over_loads().interval.is_known) == (1, True)
        kept, swapped = judged.own, judged.exchanged(0).own
        assert np.array_equal(kept.numerator + kept.denominator, swapped.numerator + swapped.denominator)
