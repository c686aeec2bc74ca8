"""Intervals of means and spreads: what narrows them, what does not, and how often they are right."""

import math

import numpy as np
import pytest

from interfere.sim.uncertainty import DaySums, mean_over_days
from tests.sim.planted_gains import PLANTED, covered, month


def test_the_interval_covers_a_planted_gain() -> None:
    """Nominally 90 of 100; tests/soak counts more months."""
    assert 0.85 <= covered(100) <= 0.95


def test_only_recorded_days_narrow_the_interval_of_the_mean() -> None:
    traces = np.random.default_rng(0).normal(PLANTED, 0.05, 400).tolist()
    alone, few, many = (mean_over_days([month(0)], traces=traces[:n], subtract=1.0) for n in (0, 5, 400))
    assert alone.interval == few.interval == many.interval
    assert alone.mean == few.mean == many.mean
    longer = mean_over_days([month(k) for k in range(8)], subtract=1.0)
    assert longer.interval.high - longer.interval.low < 0.6 * (alone.interval.high - alone.interval.low)
    assert (alone.interval.population, longer.interval.population) == (
        "mean over 30 recorded days",
        "mean over 240 recorded days",
    )


def test_more_traces_do_not_narrow_the_spread() -> None:
    traces = np.random.default_rng(0).normal(PLANTED, 0.05, 4000).tolist()
    some, many = (mean_over_days([month(0)], traces=traces[:n], subtract=1.0).spread for n in (40, 4000))
    assert many.high - many.low == pytest.approx(2 * 1.645 * 0.05, rel=0.05)
    assert some.high - some.low == pytest.approx(many.high - many.low, rel=0.3)
    assert (some.population, many.population) == ("40 traces", "4000 traces")


def test_the_spread_over_days_is_wider_than_the_interval_of_their_mean() -> None:
    found = mean_over_days([month(1)], subtract=1.0)
    assert found.spread.population == "30 recorded days"
    assert found.spread.low < found.interval.low < found.mean < found.interval.high < found.spread.high


def test_few_days_have_no_interval() -> None:
    ones = np.ones(4)
    found = mean_over_days([DaySums(numerator=ones * 3, denominator=ones)])
    assert found.mean == 3.0
    assert not found.interval.is_known
    assert not found.spread.is_known
    empty = mean_over_days([DaySums(numerator=ones * 0, denominator=ones * 0)])
    assert math.isnan(empty.mean)
