"""Intervals of means and spreads: what narrows them, what does not, and how often they are right."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interfere.sim.uncertainty import (
    MIN_DAYS,
    POSITIVE,
    RELATIVE_CHANGE,
    SHARE,
    SHARE_CHANGE,
    Bounds,
    DaySums,
    NoInterval,
    UncertainMean,
    ends_of_mean,
    mean_over_days,
)
from tests.sim.block_bootstrap import bootstrap_ends
from tests.sim.planted_gains import PLANTED, covered, month
from tests.study.over_traces import mean_over_traces


def change(*worlds: DaySums, traces: list[float] | None = None) -> UncertainMean:
    return mean_over_days(worlds, RELATIVE_CHANGE, traces=traces or (), subtract=1.0)


def congested(seed: int, days: int = 30) -> tuple[DaySums, float]:
    """A month whose gain is made in runs of congested days, one in four days on average, and its true gain."""
    rng = np.random.default_rng(seed)
    work = rng.lognormal(10.0, 0.3, days)
    waiting, at = np.zeros(days), 0.0
    for day in range(days):
        at = 0.6 * at + rng.exponential(4.0) * (rng.random() < 0.25)
        waiting[day] = at
    expected = 0.25 * 4.0 * np.mean((1 - 0.6 ** np.arange(1, days + 1)) / 0.4)
    sums = DaySums(numerator=work * (1 + 0.4 * waiting), denominator=work * (1 + waiting))
    return sums, float(-0.6 * expected / (1 + expected))


# --- how often it is right --------------------------------------------------------------------------------------------


def test_the_interval_covers_a_planted_gain() -> None:
    """Nominally 90 of 100; tests/soak counts more months, and months that are replayed."""
    assert 0.85 <= covered(400) <= 0.95


def test_the_interval_covers_a_gain_that_is_made_in_congested_days() -> None:
    """A block bootstrap over days covers it less often."""
    inside = rival = 0
    for seed in range(300):
        sums, true = congested(seed)
        interval = change(sums).interval
        inside += interval.low <= true <= interval.high
        low, high = bootstrap_ends(sums, seed)
        rival += low <= true <= high
    assert 0.85 <= inside / 300 <= 0.95
    assert rival < inside


def test_the_interval_over_several_worlds_covers_their_common_gain() -> None:
    inside = 0
    for seed in range(200):
        worlds, true = zip(*(congested(3 * seed + k) for k in range(3)), strict=True)
        interval = change(*worlds).interval
        inside += interval.low <= true[0] <= interval.high
    assert 0.85 <= inside / 200 <= 0.96


# --- its laws ---------------------------------------------------------------------------------------------------------


@given(
    days=st.integers(MIN_DAYS + 4, 60),
    seed=st.integers(0, 1000),
    kind=st.sampled_from([POSITIVE, SHARE, RELATIVE_CHANGE, SHARE_CHANGE]),
    sparse=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_the_ends_lie_within_the_bounds_and_on_both_sides_of_the_mean(
    days: int, seed: int, kind: Bounds, sparse: float
) -> None:
    rng = np.random.default_rng(seed)
    denominator = rng.lognormal(3.0, 1.0, days) * (rng.random(days) > 0.1)
    assume((denominator > 0).sum() >= MIN_DAYS)
    figures = rng.uniform(kind.low, min(kind.high, 3.0), days) * (rng.random(days) >= sparse)
    subtract = 1.0 if kind is RELATIVE_CHANGE else 0.0
    sums = DaySums(numerator=(figures + subtract) * denominator, denominator=denominator)
    low, high = ends_of_mean([sums], kind, subtract)
    mean = float(sums.numerator.sum() / denominator.sum()) - subtract
    assert kind.low - 1e-9 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= kind.high + 1e-9
    again = DaySums(numerator=7 * sums.numerator, denominator=7 * sums.denominator)
    assert ends_of_mean([again], kind, subtract) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


def test_loss_and_gain_are_treated_alike() -> None:
    sums = month(3)
    met = DaySums(numerator=(sums.denominator - sums.numerator) / 1e4, denominator=sums.denominator / 1e3)
    missed = DaySums(numerator=-met.numerator, denominator=met.denominator)
    low, high = ends_of_mean([met], SHARE_CHANGE)
    assert ends_of_mean([missed], SHARE_CHANGE) == pytest.approx((-high, -low))


def test_only_recorded_days_narrow_the_interval_of_the_mean() -> None:
    traces = np.random.default_rng(0).normal(PLANTED, 0.05, 400).tolist()
    alone, few, many = (change(month(0), traces=traces[:n]) for n in (0, 5, 400))
    assert alone.interval == few.interval == many.interval
    assert alone.mean == few.mean == many.mean
    widths = [change(*(month(k) for k in range(count))).interval for count in (1, 8)]
    assert widths[1].high - widths[1].low < 0.6 * (widths[0].high - widths[0].low)
    assert [each.population for each in widths] == [
        "mean over months of a load like this one (30 recorded days)",
        "mean over months of a load like these 8 (240 recorded days)",
    ]
    assert change(month(0, 90)).interval.population == "mean over periods of a load like this one (90 recorded days)"


def test_more_traces_do_not_narrow_the_spread() -> None:
    traces = np.random.default_rng(0).normal(PLANTED, 0.05, 4000).tolist()
    some, many = (change(month(0), traces=traces[:n]).spread for n in (40, 4000))
    assert many.high - many.low == pytest.approx(2 * 1.645 * 0.05, rel=0.05)
    assert some.high - some.low == pytest.approx(many.high - many.low, rel=0.3)
    assert (some.population, many.population) == ("40 traces", "4000 traces")


def test_the_spread_over_days_is_wider_than_the_interval_of_their_mean() -> None:
    found = change(month(1))
    assert found.spread.population == "30 recorded days"
    assert found.spread.low < found.interval.low < found.mean < found.interval.high < found.spread.high


# --- where there is none ----------------------------------------------------------------------------------------------


def test_few_days_have_no_interval_and_it_says_why() -> None:
    found = change(month(0, MIN_DAYS - 1))
    assert not found.interval.is_known
    assert found.interval.missing is NoInterval.FEW_DAYS
    assert found.spread.is_known
    assert change(month(0, MIN_DAYS)).interval.is_known
    ones = np.ones(4)
    short = mean_over_days([DaySums(numerator=ones * 3, denominator=ones)], POSITIVE)
    assert short.mean == 3.0
    assert not short.spread.is_known
    empty = mean_over_days([DaySums(numerator=ones * 0, denominator=ones * 0)], POSITIVE)
    assert math.isnan(empty.mean)


def test_short_worlds_are_a_batch_each_where_there_are_enough() -> None:
    two, three = ([month(k, 7) for k in range(count)] for count in (2, 3))
    assert change(*two).interval.missing is NoInterval.FEW_DAYS
    assert change(*three).interval.is_known


def test_a_month_in_which_nothing_changed_says_nothing_about_others() -> None:
    same = month(0).denominator
    found = change(DaySums(numerator=same, denominator=same))
    assert found.mean == 0.0
    assert found.interval.missing is NoInterval.NOTHING_CHANGED


def test_two_traces_say_nothing_about_others() -> None:
    assert not mean_over_traces([-0.1, -0.2]).interval.is_known
    assert mean_over_traces([-0.1, -0.2, -0.1]).interval.is_known
