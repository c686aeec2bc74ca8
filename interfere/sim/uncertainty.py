"""How sure a mean over recorded days is, and how much days or traces differ: two things that are told apart.

The interval of a mean is about its expectation over other periods of the same process: months of a load like this one
or, where the trace was replayed at other loads too, months at loads like these weeks. Only more recorded days narrow
it; further draws of the same days never do. The spread is percentiles: of the days themselves, or of whole traces where
several were replayed. It says what one day or trace may bring, and does not shrink with their number.

The figure is R = Σ n / Σ d - s over the days k of one or several worlds, with n and d summed over the jobs that arrive
on a day. What the interval covers is E[Σ n] / E[Σ d] - s, expected over periods of the same length of the same process:
the figure over all jobs of very many such months. At equal load it is built in three steps.

1. R = P - L, what is above 0 and what is below it, day by day: P = Σ max(c, 0) / Σ d and L = Σ max(-c, 0) / Σ d with
   c = n - s d. Of a change of completion times L is the share of time saved, P the share lost.
2. The error of each: sums of the residuals c - P d over all runs of m consecutive days, m two fifths of the record
   (overlapping batch means: Meketon and Schmeiser, WSC 1984), with Student's t of 1.5 (days / m - 1) degrees of
   freedom. So few and long batches hold queues that last for a week, and the quantile pays for their small number.
3. Ends on the scale of log-odds within the bounds of the figure, since time saved is made in few congested days: it is
   skewed, and a month that had less of them shows a smaller error too. The ends of P and L are put together by the
   square-and-add rule (Zou and Donner, Statistics in Medicine 2008).

Months as they fall differ in load, and at equal load in how unevenly their jobs arrive: months with bursts save more
time, and have more to save. Over them P(ℓ), L(ℓ) and Σ d(ℓ), as replays at several loads ℓ show them, are averaged over
log-normal loads ℓ < 1, whose mean is the recorded one and whose spread follows from the recorded days' work by the same
batches, and over normal levels v: log-odds of P and L at equal load lie higher by v, and completion times by a factor
e^(v/2).

Load and level are correlated by ρ. Where bursts bring the work, months of more load are burstier too, and months miss
the mean of all by more than independent errors would; where sources take turns, heavier months are steadier. Taylor's
power law tells which: among the recorded weeks the standard deviation of a day's work grows as the b-th power of the
week's mean, with b = 1/2 for independent arrivals, 1 where all days are multiplied, and more for bursts above a calm
level. The squared error, in log-odds, is that of the level, that of the mean load, and 2 ρ times the product of both.

Several worlds are independent: their variances add, degrees of freedom by Welch and Satterthwaite. A world that is
shorter than `MIN_DAYS` is one batch itself.

Laws: each interval names its population; one that too little was recorded for has no ends, and says why. Nothing is
drawn: equal sums give equal ends, which lie within the bounds, and on both sides of the mean.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.90  # of an interval
MIN_DAYS = 14  # of 10 days the interval covers 85 of 100 with a worst process of 78, of 14 days 88 with 81
MIN_TRACES = 3  # fewer traces say nothing about other traces
BATCH_SHARE = 0.4  # of 30 days, 10, 12 and 15 cover 87, 89 and 94 of 100; of 60 and 120, 24 and 48 cover 91 each
FULL_BATCH_DAYS = 12  # of a shorter record a batch is up to half: of 21 days 8 cover 84 of 100, 10 cover 90
OVERLAP_FREEDOM = 1.5  # degrees of freedom to those of batches that do not overlap (Meketon and Schmeiser)

# Errors of one record are themselves uncertain. A calm month shows too small an error of its load: it counts as typical
# at least. Of the variance of a level half is the record's own, half is typical.
# `python -m tests.bench.uneven_months` counts how often intervals hold. `LEVEL_SPREAD`, `LOAD_QUANTILE`, the form of
# the load's error and the three constants of the correlation were chosen on `tests.sim.uneven_months.CHOSEN_ON`.
TYPICAL_LOAD_ERROR = 0.165  # of the logarithm of a month's load: root mean square of Venus' four virtual clusters
LEVEL_SPREAD = 0.86  # of log-odds at equal load; over ten sets of months in tests/sim it is .62 to 1.28
COMPLETION_SLOPE = 0.5  # of the logarithm of completion times on the level: mean over the same months, .1 to .9
TYPICAL_STEP = 1.645 * LEVEL_SPREAD  # half the width at equal load
LOAD_BATCH_SHARE = 0.13  # of a record: 4 days of a month, as errors of loads are told apart by shorter batches too
LOAD_QUANTILE = 2.25  # errors on both sides of the recorded load: on the same months up to 2.5 serves alike
WEEK_DAYS = 7
NEUTRAL_EXPONENT = 0.75  # of Taylor's law: ρ is 0
CORRELATION_SLOPE = 2.0  # of ρ on the exponent: on the same months 1.6 to 2.4 serve alike
MAX_CORRELATION = 0.6  # of a record, whose exponent is uncertain
NEUTRAL_VARIANCE = 0.02  # of the logarithm of weekly work: at it the record and the neutral exponent count alike
LOAD_SPREAD = 1.6  # errors, the standard deviation of other records' loads over noise with H of .5 to .9
NEAR_LOAD = 0.06  # in logarithms: a load so near to the world's own adds nothing to it
MIN_SHARE = 1e-6  # a smaller part has no logarithm worth having; averaging over levels doubles it
LOG_LOADS: Floats = np.linspace(math.log(0.05), 0.0, 121)  # over which shares are averaged: a stable load is below 1
LEVELS, LEVEL_WEIGHTS = (np.asarray(each)[:, None] for each in hermegauss(5))  # of a standard normal

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
    which = "this one" if len(worlds) == 1 else f"these {len(worlds)}"
    return f"{_period_noun(worlds)} of a load like {which} ({days} recorded days)"


def _period_noun(worlds: Sequence[DaySums]) -> str:
    spans = [len(world.denominator) for world in worlds]
    return "months" if MONTH_DAYS[0] <= min(spans) and max(spans) <= MONTH_DAYS[1] else "periods"


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
    weights = [world.denominator for world in worlds]
    above, below = (
        _part([_part_of(world, sign, subtract) for world in worlds], weights, bound)
        for sign, bound in ((1, bounds.high), (-1, -bounds.low))
    )
    return _square_and_add(above, below)


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
    mean, step = _mean_and_step(values, weights, bound)
    return _Part(mean=mean, low=_moved(mean, bound, -step), high=_moved(mean, bound, step))


def _mean_and_step(values: Sequence[Floats], weights: Sequence[Floats], bound: float) -> tuple[float, float]:
    """Return the mean Σ values / Σ weights, and half the width of its interval in log-odds: 0 at the bounds."""
    from scipy.special import stdtrit

    total = float(sum(weight.sum() for weight in weights))
    mean = float(sum(value.sum() for value in values)) / total
    if not 0 < mean < bound:
        return mean, 0.0
    variance, freedom = _variance_of_sum([value - mean * weight for value, weight in zip(values, weights, strict=True)])
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance) / total
    return mean, half / (mean * (1.0 if math.isinf(bound) else 1.0 - mean / bound))


def _moved(mean: float, bound: float, step: float) -> float:
    """Return a mean moved by a step on the scale of log-odds within [0, bound]."""
    step = min(step, 50.0)  # e^50: beyond all figures
    if not 0 < mean < bound:
        return mean
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


# --- periods whose loads vary -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResponse:
    """The day sums of one world at its own load and, with its arrivals stretched, at other loads."""

    work: Floats  # float64[d], what the jobs of each recorded day ask for, in any unit
    load: float  # offered, as recorded: above 0 and below 1
    at: Mapping[float, DaySums]  # by offered load, the world's own among them

    def distance(self, load: float) -> float:
        """Return how far a load is from the world's own, in logarithms."""
        return abs(math.log(load / self.load))


def mean_over_loads(worlds: Sequence[LoadResponse], bounds: Bounds, *, subtract: float = 0.0) -> UncertainMean:
    """Return Σ numerator / Σ denominator - `subtract` over periods at loads like those of the recorded weeks.

    Such periods differ in their load by as much as the recorded days say that they do, all below 1. Mean and interval
    average the figure over their loads; the spread is that of the recorded days.
    """
    own = [world.at[world.load] for world in worlds]
    recorded = mean_over_days(own, bounds, subtract=subtract)
    days = sum(int((sums.denominator > 0).sum()) for sums in own)
    population = f"mean over {_period_noun(own)} at loads like these weeks ({days} recorded days)"
    if too_short(own):
        return replace(recorded, interval=replace(recorded.interval, population=population))
    above = _part_over_loads(worlds, 1, bounds.high, subtract)
    below = _part_over_loads(worlds, -1, -bounds.low, subtract)
    low, high, missing = *_square_and_add(above, below), None
    if bounds.low < 0 < bounds.high and above.mean == below.mean == 0:
        low, high, missing = math.nan, math.nan, NoInterval.NOTHING_CHANGED
    return UncertainMean(
        mean=above.mean - below.mean,
        interval=Interval(low=low, high=high, population=population, missing=missing),
        spread=recorded.spread,
    )


def _part_over_loads(worlds: Sequence[LoadResponse], sign: int, bound: float, subtract: float) -> _Part:
    """Return what is above 0 (`sign` 1) or below it (-1) in the mean over loads, with both ends of its interval.

    On the scale of log-odds, the error at equal load is correlated with what another mean load of each world would
    change, by the correlation of load and level of that world.
    """
    curves = [_LoadCurve(world, sign, bound, subtract) for world in worlds]

    def mean(moved: int = -1, by: float = 0.0) -> float:
        sums = [curve.sums(by if k == moved else 0.0) for k, curve in enumerate(curves)]
        return sum(part for part, _ in sums) / sum(weight for _, weight in sums)

    middle = mean()
    if not 4 * MIN_SHARE < middle < bound:
        mean_at_bound = 0.0 if middle < bound else bound
        return _Part(mean=mean_at_bound, low=mean_at_bound, high=mean_at_bound)
    days = sum(len(world.work) for world in worlds)
    own_step = _step_at_equal_load(worlds, sign, bound, subtract)
    at_equal_load = math.sqrt(0.5 * own_step**2 + 0.5 * TYPICAL_STEP**2 * MONTH_DAYS[1] / days)
    ends = []
    for side in (-1, 1):
        moved = [mean(k, side * LOAD_QUANTILE * curve.load_error) for k, curve in enumerate(curves)]
        steps = [max(0.0, side * (_log_odds(each, bound) - _log_odds(middle, bound))) for each in moved]
        of_loads = math.hypot(*steps)
        # The ρ of several worlds is their mean, each weighted by the variance that its load adds.
        correlation = sum(c.correlation * step**2 for c, step in zip(curves, steps, strict=True)) / (of_loads**2 or 1.0)
        variance = at_equal_load**2 + of_loads**2 + 2 * correlation * at_equal_load * of_loads
        ends.append(_moved(middle, bound, side * math.sqrt(variance)))
    return _Part(mean=middle, low=ends[0], high=ends[1])


def _step_at_equal_load(worlds: Sequence[LoadResponse], sign: int, bound: float, subtract: float) -> float:
    """Return half the width, in log-odds, of the interval of a part at equal load.

    It is that at the worlds' own loads, or at the nearest others where the part is 0 at their own.
    """
    nearest = [sorted(world.at, key=world.distance) for world in worlds]
    for loads in zip(*nearest, strict=False):
        sums = [world.at[load] for world, load in zip(worlds, loads, strict=True)]
        mean, step = _mean_and_step(
            [_part_of(each, sign, subtract) for each in sums], [each.denominator for each in sums], bound
        )
        if 0 < mean < bound:
            return step
    return 0.0


class _LoadCurve:
    """One part of the figure of one world, as a share of the denominator, and the denominator, by load."""

    def __init__(self, world: LoadResponse, sign: int, bound: float, subtract: float) -> None:
        # 1. The replayed loads; between two of them, logarithms and log-odds are on the line through theirs.
        loads = sorted(load for load in world.at if load == world.load or world.distance(load) > NEAR_LOAD)
        totals = [float(world.at[load].denominator.sum()) for load in loads]
        parts = [float(_part_of(world.at[load], sign, subtract).sum()) for load in loads]
        odds = np.array([_log_odds(part / total, bound) for part, total in zip(parts, totals, strict=True)])
        self._totals = np.exp(_on_lines(np.log(loads), np.log(totals)))
        self._odds, self._bound = _on_lines(np.log(loads), odds), bound
        # 2. The mean load of such periods and its error, their levels, and how both are correlated.
        days, mean = len(world.work), float(world.work.mean())
        variance = _variance_by_batches(world.work - mean, max(2, round(LOAD_BATCH_SHARE * days)))
        months = days / MONTH_DAYS[1]
        self.load_error = max(math.sqrt(variance) / (days * mean), TYPICAL_LOAD_ERROR / math.sqrt(months))
        self._log_load, self._level_spread = math.log(world.load), LEVEL_SPREAD / math.sqrt(months)
        correlation = CORRELATION_SLOPE * (taylor_exponent(world.work) - NEUTRAL_EXPONENT)
        self.correlation = min(max(correlation, -MAX_CORRELATION), MAX_CORRELATION)

    def sums(self, moved: float) -> tuple[float, float]:
        """Return the part and the denominator, averaged over all loads whose mean logarithm is moved by so much, and
        over levels.

        Time lost, which has no bound, is a share of the times with it, as time saved is one of the times without.
        """
        middle = min(self._log_load + moved, 0.0)
        deviation = (LOG_LOADS - middle) / (LOAD_SPREAD * self.load_error)
        density = np.exp(-0.5 * deviation**2)
        own_levels = math.sqrt(1.0 - self.correlation**2) * LEVELS
        levels = self._level_spread * (self.correlation * deviation + own_levels)
        longer = self._totals * (1.0 + np.exp(self._odds)) if math.isinf(self._bound) else self._totals
        weights = density / density.sum() * np.exp(LOG_LOADS) * longer  # twice the load: twice the jobs
        weights = LEVEL_WEIGHTS * np.exp(COMPLETION_SLOPE * levels) * weights
        part = float((weights / (1.0 + np.exp(-self._odds - levels))).sum())
        if math.isinf(self._bound):
            return part, float(weights.sum()) - part
        return self._bound * part, float(weights.sum())


def taylor_exponent(work: Floats) -> float:
    """Return the power of a week's mean work with which the standard deviation over its days grows (Taylor, Nature
    1961).

    `work`: float64[d], of each recorded day, not all 0. All runs of seven days are weeks. The slope of one logarithm on
    the other is shrunk towards `NEUTRAL_EXPONENT`, the more the less the weeks differ.
    """
    if len(work) <= WEEK_DAYS:
        return NEUTRAL_EXPONENT
    weeks = np.lib.stride_tricks.sliding_window_view(work, WEEK_DAYS)
    least = 1e-3 * float(work.mean())  # an idle week has no logarithm
    mean, deviation = np.log(np.maximum(weeks.mean(axis=1), least)), np.log(np.maximum(weeks.std(axis=1), least))
    covariance = float(np.mean((mean - mean.mean()) * (deviation - deviation.mean())))
    return (covariance + NEUTRAL_VARIANCE * NEUTRAL_EXPONENT) / (float(mean.var()) + NEUTRAL_VARIANCE)


def _part_of(sums: DaySums, sign: int, subtract: float) -> Floats:
    return np.maximum(sign * (sums.numerator - subtract * sums.denominator), 0.0)


def _on_lines(x: Floats, y: Floats) -> Floats:
    """Return y at `LOG_LOADS` on the lines through the points, beyond them on the outer lines, which never fall."""
    inside = np.interp(LOG_LOADS, x, y)
    if len(x) == 1:
        return np.asarray(inside)
    first, last = (max(0.0, float((y[k + 1] - y[k]) / (x[k + 1] - x[k]))) for k in (0, len(x) - 2))
    outside = first * np.minimum(LOG_LOADS - x[0], 0.0) + last * np.maximum(LOG_LOADS - x[-1], 0.0)
    return np.asarray(inside + outside)


def _log_odds(mean: float, bound: float) -> float:
    mean = max(mean, MIN_SHARE)
    return math.log(mean) if math.isinf(bound) else math.log(mean / max(bound - mean, MIN_SHARE))
