"""How sure a mean over recorded days is, and how much days or traces differ: two things that are told apart.

The interval of a mean is about its expectation over other periods of the same process: months like this one, or other
traces (`ratio_interval` says which mean exactly, and how the ends are found). Only more recorded days narrow it;
further draws of the same days never do. The spread is percentiles: of the days themselves, or of whole traces where
several were replayed. It says what one day or trace may bring, and does not shrink with their number.
Laws: each interval names its population; one that too little was recorded for has no ends, and says why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from interfere.sim.ratio_interval import (
    CONFIDENCE,
    MIN_DAYS,
    MIN_TRACES,
    Bounds,
    DaySums,
    Floats,
    ends_of_mean,
    too_short,
)

MIN_SPREAD_DAYS = 5  # fewer single days have no percentiles
MONTH_DAYS = (28, 31)


class NoInterval(StrEnum):
    """The reason why a mean has no interval."""

    FEW_DAYS = f"fewer than {MIN_DAYS} recorded days"
    FEW_TRACES = f"fewer than {MIN_TRACES} traces"
    NOTHING_CHANGED = "nothing changed on any recorded day, which says nothing about busier ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval and the population that it describes. The ends are NaN where there is none."""

    low: float
    high: float
    population: str
    missing: NoInterval | None = None  # why there are no ends

    @property
    def is_known(self) -> bool:
        """Are there ends?"""
        return not math.isnan(self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainMean:
    """A mean of the traces as recorded, the interval of that mean, and the spread over days or traces."""

    mean: float
    interval: Interval  # where the mean of other periods of this kind is expected
    spread: Interval  # what single days, or whole traces, bring


def mean_over_days(
    worlds: Sequence[DaySums], bounds: Bounds, *, traces: Sequence[float] = (), subtract: float = 0.0
) -> UncertainMean:
    """Σ numerator / Σ denominator - `subtract` over all days of all worlds, a figure within `bounds`.

    `traces`: the same figure of whole traces, redraws included; with two or more the spread is over them.
    """
    numerator = np.concatenate([world.numerator for world in worlds])
    denominator = np.concatenate([world.denominator for world in worlds])
    total, days = float(denominator.sum()), int((denominator > 0).sum())
    if len(traces) > 1:
        spread = _percentiles(traces, f"{len(traces)} traces")
    else:
        single = numerator[denominator > 0] / denominator[denominator > 0] - subtract
        spread = _percentiles(single if days >= MIN_SPREAD_DAYS else (), f"{days} recorded days")
    return UncertainMean(
        mean=float(numerator.sum()) / total - subtract if total else math.nan,
        interval=_interval_over_days(worlds, bounds, subtract),
        spread=spread,
    )


def _interval_over_days(worlds: Sequence[DaySums], bounds: Bounds, subtract: float) -> Interval:
    days = sum(int((world.denominator > 0).sum()) for world in worlds)
    low, high = ends_of_mean(worlds, bounds, subtract)
    missing = NoInterval.FEW_DAYS if too_short(worlds) else None
    is_change = bounds.low < 0 < bounds.high
    if is_change and all(np.array_equal(world.numerator, subtract * world.denominator) for world in worlds):
        low, high, missing = math.nan, math.nan, missing or NoInterval.NOTHING_CHANGED
    return Interval(low=low, high=high, population=f"mean over {_periods(worlds, days)}", missing=missing)


def _periods(worlds: Sequence[DaySums], days: int) -> str:
    """The population that the recorded days are taken to be drawn from."""
    spans = [len(world.denominator) for world in worlds]
    recorded = f"{days} recorded days"
    if len(worlds) == 1:
        is_month = MONTH_DAYS[0] <= spans[0] <= MONTH_DAYS[1]
        return f"{'months' if is_month else 'periods'} like this one ({recorded})"
    is_month = MONTH_DAYS[0] <= min(spans) and max(spans) <= MONTH_DAYS[1]
    return f"{'months' if is_month else 'periods'} like these {len(worlds)} ({recorded})"


def mean_over_traces(traces: Sequence[float], population: str = "traces") -> UncertainMean:
    """Return the mean of one figure per trace, with interval and spread.

    Interval: mean ± t · s / √k for k traces. It takes the traces as independent draws with roughly normal errors (on
    the scale of log-odds it covers no better). Spread: percentiles over the traces.
    """
    from scipy.special import stdtrit

    values = np.asarray(traces, dtype=np.float64)
    mean = float(values.mean()) if len(values) else math.nan
    named = f"{len(values)} {population}"
    if len(values) < MIN_TRACES:
        missing = NoInterval.FEW_TRACES
        unknown = Interval(low=math.nan, high=math.nan, population=f"mean over {named}", missing=missing)
        return UncertainMean(mean=mean, interval=unknown, spread=_percentiles((), named))
    half = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * float(values.std(ddof=1)) / math.sqrt(len(values))
    interval = Interval(low=mean - half, high=mean + half, population=f"mean over {named}")
    return UncertainMean(mean=mean, interval=interval, spread=_percentiles(values, named))


def _percentiles(values: Sequence[float] | Floats, population: str) -> Interval:
    """Between which `CONFIDENCE` of the values lie; no ends without values."""
    if not len(values):
        return Interval(low=math.nan, high=math.nan, population=population)
    low, high = np.quantile(np.asarray(values), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(low=float(low), high=float(high), population=population)
