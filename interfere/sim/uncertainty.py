"""How sure a mean over recorded days is, and how much days or traces differ: two things that are told apart.

The interval of a mean is a circular block bootstrap over the days of the trace as recorded (Politis and Romano 1992):
runs of consecutive days are drawn with replacement, since the queue of one day waits into the next. Only more recorded
days narrow it; further draws of the same days never do. The spread is percentiles: of the days themselves, or of whole
traces where several were replayed. It says what one day or trace may bring, and does not shrink with their number.
Over several traces, each is one value of a sample: Student's interval of its mean.
Law: each interval names its population.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BOOTSTRAP_DRAWS = 2000
CONFIDENCE = 0.90  # of the interval of the mean, and the share of days or traces within the spread
BLOCK_FACTOR = 2  # blocks of 2 · d^(1/3) days: six of a month, about a week; see `_resample`
MIN_DAYS = 5  # fewer days say nothing about other days: no interval
MIN_TRACES = 3  # fewer traces say nothing about other traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Two ends, and what they are about. NaN where the population is too small for any."""

    low: float
    high: float
    population: str

    @property
    def is_known(self) -> bool:
        """Are there ends?"""
        return not math.isnan(self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainMean:
    """A mean of the traces as recorded, the interval of that mean, and the spread over days or traces."""

    mean: float
    interval: Interval  # where the mean of other days of this kind is expected
    spread: Interval  # what single days, or whole traces, bring


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySums:
    """A quantity summed over the jobs that arrived on each of d days of one world, and what it is divided by."""

    numerator: Floats  # float64[d]
    denominator: Floats  # float64[d]


def mean_over_days(
    worlds: Sequence[DaySums], *, traces: Sequence[float] = (), subtract: float = 0.0, seed: int = 0
) -> UncertainMean:
    """Σ numerator / Σ denominator - `subtract` over all days of all worlds.

    `traces`: the same figure of whole traces, redraws included; with two or more the spread is over them.
    """
    numerator = np.concatenate([world.numerator for world in worlds])
    denominator = np.concatenate([world.denominator for world in worlds])
    days = int((denominator > 0).sum())
    low = high = math.nan
    if days >= MIN_DAYS:
        rng = np.random.default_rng(seed)
        sums = np.sum([_resample(world, rng) for world in worlds], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = sums[0] / sums[1]
        centre = float(numerator.sum() / denominator.sum())
        low, high = _percentiles(centre + _widening(worlds) * (ratios[np.isfinite(ratios)] - centre) - subtract)
    interval = Interval(low=low, high=high, population=f"mean over {days} recorded days")
    if len(traces) > 1:
        low, high = _percentiles(np.asarray(traces, dtype=np.float64))
        spread = Interval(low=low, high=high, population=f"{len(traces)} traces")
    else:
        single = numerator[denominator > 0] / denominator[denominator > 0] - subtract
        low, high = _percentiles(single) if days >= MIN_DAYS else (math.nan, math.nan)
        spread = Interval(low=low, high=high, population=f"{days} recorded days")
    total = float(denominator.sum())
    mean = float(numerator.sum()) / total - subtract if total else math.nan
    return UncertainMean(mean=mean, interval=interval, spread=spread)


def mean_over_traces(traces: Sequence[float], population: str = "traces") -> UncertainMean:
    """The mean of one figure a trace. Interval: mean ± t · s / √k for k traces, which takes them as independent draws
    with errors that are about normal. Spread: percentiles of the traces."""
    from scipy.special import stdtrit

    values = np.asarray(traces, dtype=np.float64)
    mean = float(values.mean()) if len(values) else math.nan
    ends = spread = (math.nan, math.nan)
    if len(values) >= MIN_TRACES:
        quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
        half = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
        ends, spread = (mean - half, mean + half), _percentiles(values)
    return UncertainMean(
        mean=mean,
        interval=Interval(low=ends[0], high=ends[1], population=f"mean over {len(values)} {population}"),
        spread=Interval(low=spread[0], high=spread[1], population=f"{len(values)} {population}"),
    )


def _percentiles(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _blocks(world: DaySums) -> tuple[int, int, int]:
    """Days, days of a block, and blocks of a world."""
    days = len(world.numerator)
    length = BLOCK_FACTOR * max(1, round(days ** (1 / 3)))
    return days, length, -(-days // length)


def _widening(worlds: Sequence[DaySums]) -> float:
    """Few blocks vary too little: √(b / (b - 1)) · t / z for b blocks, as for the mean of a sample of b values."""
    from scipy.special import ndtri, stdtrit

    blocks = max(2, sum(_blocks(world)[2] for world in worlds))
    quantile = (1 + CONFIDENCE) / 2
    return math.sqrt(blocks / (blocks - 1)) * float(stdtrit(blocks - 1, quantile) / ndtri(quantile))


def _resample(world: DaySums, rng: np.random.Generator) -> Floats:
    """float64[2, BOOTSTRAP_DRAWS]: sums of numerator and denominator over days drawn in blocks.

    Their length grows as d^(1/3), the best rate for a mean (Hall, Horowitz and Jing, Biometrika 1995). With the factor
    2 the interval covers a planted gain in 85 to 93 of 100 months whose days are correlated by up to 0.5; with 1 in 79.
    """
    days, length, blocks = _blocks(world)
    starts = rng.integers(0, days, (BOOTSTRAP_DRAWS, blocks))
    chosen = (starts[:, :, None] + np.arange(length)) % days
    chosen = chosen.reshape(BOOTSTRAP_DRAWS, -1)[:, :days]
    return np.array([world.numerator[chosen].sum(axis=1), world.denominator[chosen].sum(axis=1)])
