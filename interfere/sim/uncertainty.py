"""How sure a mean over recorded days is, and how much days or traces differ: two things that are told apart.

The interval of a mean is about its expectation over other periods of the same process: months like this one. Only more
recorded days narrow it; further draws of the same days never do. The spread is percentiles: of the days themselves, or
of whole traces where several were replayed. It says what one day or trace may bring, and does not shrink with their
number.

The figure is R = Σ n / Σ d - s over the days k of one or several worlds, with n and d summed over the jobs that arrive
on a day. What the interval covers is E[Σ n] / E[Σ d] - s, expected over periods of the same length of the same process:
the figure over all jobs of very many months like this one. It is built in three steps.

1. R = P - L, what is above 0 and what is below it, day by day: P = Σ max(c, 0) / Σ d and L = Σ max(-c, 0) / Σ d with
   c = n - s d. Of a change of completion times L is the share of time saved, P the share lost.
2. The error of each: sums of the residuals c - P d over all runs of m consecutive days, m two fifths of the record
   (overlapping batch means: Meketon and Schmeiser, WSC 1984), with Student's t of 1.5 (days / m - 1) degrees of
   freedom. So few and long batches hold queues that last for a week, and the quantile pays for their small number.
3. Ends on the scale of log-odds within the bounds of the figure, since time saved is made in few congested days: it is
   skewed, and a month that had less of them shows a smaller error too. The ends of P and L are put together by the
   square-and-add rule (Zou and Donner, Statistics in Medicine 2008).

Several worlds are independent: their variances add, degrees of freedom by Welch and Satterthwaite. A world that is
shorter than `MIN_DAYS` is one batch itself.

Laws: each interval names its population; one that too little was recorded for has no ends, and says why. Nothing is
drawn: equal sums give equal ends, which lie within the bounds, and on both sides of R.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.90  # of an interval
MIN_DAYS = 14  # of 10 days the interval covers 85 of 100 with a worst process of 78, of 14 days 88 with 81
MIN_TRACES = 3  # fewer traces say nothing about other traces
BATCH_SHARE = 0.4  # of 30 days, 10, 12 and 15 cover 87, 89 and 94 of 100; of 60 and 120, 24 and 48 cover 91 each
FULL_BATCH_DAYS = 12  # of a shorter record a batch is up to half: of 21 days 8 cover 84 of 100, 10 cover 90
OVERLAP_FREEDOM = 1.5  # degrees of freedom to those of batches that do not overlap (Meketon and Schmeiser)

MIN_SPREAD_DAYS = 5  # fewer single days have no percentiles
MONTH_DAYS = (28, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySums:
    """Sums by day of arrival, over the d days of one world: the numerator and the denominator of a ratio."""

    numerator: Floats  # float64[d]
    denominator: Floats  # float64[d]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The smallest and the largest value that a figure can take; 0 lies between them."""

    low: float
    high: float


POSITIVE = Bounds(low=0.0, high=math.inf)  # a mean time
SHARE = Bounds(low=0.0, high=1.0)
RELATIVE_CHANGE = Bounds(low=-1.0, high=math.inf)  # of something positive
SHARE_CHANGE = Bounds(low=-1.0, high=1.0)


class NoInterval(StrEnum):
    """The reason why a mean has no interval."""

    FEW_DAYS = f"fewer than {MIN_DAYS} recorded days"
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
        """Whether the interval has known ends."""
        return not math.isnan(self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainMean:
    """A mean over the traces as recorded, the interval of that mean, and the spread over days or traces."""

    mean: float
    interval: Interval  # where the mean of other periods of this kind is expected
    spread: Interval  # what single days, or whole traces, bring


def mean_over_days(
    worlds: Sequence[DaySums], bounds: Bounds, *, traces: Sequence[float] = (), subtract: float = 0.0
) -> UncertainMean:
    """Return Σ numerator / Σ denominator - `subtract` over all days of all worlds, for a figure within `bounds`.

    `traces`: the same figure of whole traces, redraws included; with two or more traces the spread is over them.
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
    """Return in words the population from which the recorded days are taken to be drawn."""
    spans = [len(world.denominator) for world in worlds]
    recorded = f"{days} recorded days"
    if len(worlds) == 1:
        is_month = MONTH_DAYS[0] <= spans[0] <= MONTH_DAYS[1]
        return f"{'months' if is_month else 'periods'} like this one ({recorded})"
    is_month = MONTH_DAYS[0] <= min(spans) and max(spans) <= MONTH_DAYS[1]
    return f"{'months' if is_month else 'periods'} like these {len(worlds)} ({recorded})"


def _percentiles(values: Sequence[float] | Floats, population: str) -> Interval:
    """Return the interval that holds `CONFIDENCE` of the values; without ends where there are no values."""
    if not len(values):
        return Interval(low=math.nan, high=math.nan, population=population)
    low, high = np.quantile(np.asarray(values), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(low=float(low), high=float(high), population=population)


# --- the ends of an interval ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A non-negative mean with both ends of its interval."""

    mean: float
    low: float
    high: float


def ends_of_mean(worlds: Sequence[DaySums], bounds: Bounds, subtract: float = 0.0) -> tuple[float, float]:
    """Return the interval of Σ numerator / Σ denominator - `subtract`; NaN where data are `too_short` or nothing is
    summed."""
    if too_short(worlds) or not sum(float(world.denominator.sum()) for world in worlds):
        return math.nan, math.nan
    excess = [world.numerator - subtract * world.denominator for world in worlds]
    weights = [world.denominator for world in worlds]
    return _square_and_add(
        _part([np.maximum(values, 0.0) for values in excess], weights, bounds.high),
        _part([np.maximum(-values, 0.0) for values in excess], weights, -bounds.low),
    )


def too_short(worlds: Sequence[DaySums]) -> bool:
    """Return whether the data are too short for an interval.

    They are long enough with `MIN_DAYS` days in total, if one world spans `MIN_DAYS` or there are `MIN_TRACES` worlds.
    """
    days = [int((world.denominator > 0).sum()) for world in worlds]
    long = any(len(world.denominator) >= MIN_DAYS for world in worlds)
    return sum(days) < MIN_DAYS or not (long or len(worlds) >= MIN_TRACES)


def _square_and_add(above: _Part, below: _Part) -> tuple[float, float]:
    """Return the interval of the difference of two means from the interval of each (square-and-add rule)."""
    difference = above.mean - below.mean
    return (
        difference - math.hypot(above.mean - above.low, below.high - below.mean),
        difference + math.hypot(above.high - above.mean, below.mean - below.low),
    )


def _part(values: Sequence[Floats], weights: Sequence[Floats], bound: float) -> _Part:
    """Return the mean Σ values / Σ weights in [0, bound]; its ends are symmetric in log-odds (logarithms where
    unbounded)."""
    from scipy.special import stdtrit

    total = float(sum(weight.sum() for weight in weights))
    mean = float(sum(value.sum() for value in values)) / total
    if not 0 < mean < bound:
        return _Part(mean=mean, low=mean, high=mean)
    variance, freedom = _variance_of_sum([value - mean * weight for value, weight in zip(values, weights, strict=True)])
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance) / total
    room = 1.0 if math.isinf(bound) else 1.0 - mean / bound
    step = half / (mean * room)
    return _Part(mean=mean, low=_moved(mean, bound, -step), high=_moved(mean, bound, step))


def _moved(mean: float, bound: float, step: float) -> float:
    """Return a mean moved by a step on the scale of log-odds within [0, bound]."""
    step = min(step, 50.0)  # e^50: beyond all figures
    if math.isinf(bound):
        return mean * math.exp(step)
    odds = mean / (bound - mean) * math.exp(step)
    return bound * odds / (1.0 + odds)


def _variance_of_sum(residuals: Sequence[Floats]) -> tuple[float, float]:
    """Return the variance of the sum of the residuals of all worlds, and its degrees of freedom."""
    long = [world for world in residuals if len(world) >= MIN_DAYS]
    short = np.array([world.sum() for world in residuals if len(world) < MIN_DAYS])
    variances, freedoms = [], []
    for world in long:
        days = len(world)
        batch = max(math.ceil(BATCH_SHARE * days), min(FULL_BATCH_DAYS, days // 2))
        variances.append(_variance_by_batches(world, batch))
        freedoms.append(OVERLAP_FREEDOM * (days / batch - 1))
    if len(short):  # their sum is 0 where there are no others
        variances.append(float((short**2).sum()) * (1.0 if long else len(short) / (len(short) - 1)))
        freedoms.append(float(len(short) if long else len(short) - 1))
    variance = sum(variances)
    if variance <= 0:
        return 0.0, min(freedoms)
    return variance, variance**2 / sum(each**2 / freedom for each, freedom in zip(variances, freedoms, strict=True))


def _variance_by_batches(residuals: Floats, batch: int) -> float:
    """Return the variance of the sum of d residuals, estimated from all runs of `batch` consecutive days."""
    days = len(residuals)
    sums = np.convolve(residuals, np.ones(batch), mode="valid") - batch * residuals.mean()
    return float((sums**2).sum()) * days**2 / (batch * (days - batch + 1) * (days - batch))
