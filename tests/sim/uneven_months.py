"""Months as they fall: drawn from known processes, replayed at the load that each happens to have.

A month holds 30 days, from empty; nothing is stretched, so the loads of months differ by .1 and more (standard
deviation). Why they differ: self-similar on/off sources (Willinger et al., 1997; Pareto shape a: H = (3 - a) / 2), a
log-Gaussian intensity whose logarithm is correlated over days, sessions of users of very different length, bursts that
last for days, and weeks of different levels with a weekly and a daily rhythm.

The form and the constants of the interval over loads were chosen on `CHOSEN_ON`, half of `PROCESSES` and `OTHERS`. The
other half and `FURTHER` judge it. All have other parameters; "bursts of days" were then lower, .65 above .75.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from interfere.sim.world import DAY_S, World
from interfere.testing.schedulers import NAMES, devices, job

Floats = NDArray[np.float64]
Intensity = Callable[[np.random.Generator], Floats]  # float64[HOURS], relative, of mean 1 over all months
DAYS = 30
HOURS = 24 * DAYS
LONGEST_S = 2 * DAY_S  # of run times


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenProcess:
    """A process whose months have different loads."""

    name: str
    intensity: Intensity
    devices: int = 8
    per_day: float = 54.5  # jobs: a mean load of .65 on eight devices
    median_s: float = 3_600.0  # of run times
    log_sd: float = 1.3

    def month(self, seed: int) -> World:
        """One month, at the load that it happens to have."""
        rng = np.random.default_rng(seed)
        hours = np.repeat(np.arange(HOURS), rng.poisson(self.per_day / 24 * self.intensity(rng)))
        arrivals = np.sort((hours + rng.random(len(hours))) * 3600.0)
        took = np.clip(self.median_s * rng.lognormal(0.0, self.log_sd, len(hours)), 30.0, LONGEST_S)
        drawn = zip(arrivals.tolist(), took.tolist(), rng.choice(NAMES, len(hours)).tolist(), strict=True)
        jobs = tuple(job(f"j{k}", at, seconds, name) for k, (at, seconds, name) in enumerate(drawn))
        return World(name=f"{self.name} {seed}", jobs=jobs, devices=devices(self.devices))


def on_off(*, sources: int, shape: float, mean_h: float) -> Intensity:
    """Sources that are on and off for Pareto times of this shape and mean, stationary."""
    scale_h = (shape - 1) * mean_h

    def drawn(rng: np.random.Generator) -> Floats:
        total = np.zeros(HOURS)
        for _ in range(sources):
            is_on, now_h = rng.random() < 0.5, 0.0
            length_h = scale_h * rng.pareto(shape - 1)  # the rest of the period that goes on at the start
            while now_h < HOURS:
                if is_on:
                    edges = np.clip(np.arange(HOURS + 1), now_h, now_h + length_h)
                    total += np.diff(edges)
                now_h, is_on = now_h + length_h, not is_on
                length_h = scale_h * rng.pareto(shape)
        return np.asarray(total / (0.5 * sources))

    return drawn


def log_gaussian(*, correlated_h: float, spread: float) -> Intensity:
    """An intensity whose logarithm has this standard deviation and an exponential correlation."""
    step = float(np.exp(-1 / correlated_h))

    def drawn(rng: np.random.Generator) -> Floats:
        deviation = np.zeros(HOURS)
        noise = rng.normal(size=HOURS)
        deviation[0] = noise[0]
        for hour in range(1, HOURS):
            deviation[hour] = step * deviation[hour - 1] + np.sqrt(1 - step**2) * noise[hour]
        return np.asarray(np.exp(spread * deviation - spread**2 / 2))

    return drawn


def sessions(*, per_day: float, shape: float, mean_h: float, mean: float) -> Intensity:
    """Sessions of Pareto length; `mean` is how many are open at a time, those that began over 40 days ago left out."""

    def drawn(rng: np.random.Generator) -> Floats:
        begun = rng.uniform(-40 * 24, HOURS, rng.poisson(per_day * (40 + DAYS)))
        length_h = (shape - 1) * mean_h * rng.pareto(shape, len(begun))
        inside = np.clip(begun + np.minimum(length_h, 40 * 24), 0, HOURS)
        starts = np.clip(begun, 0, HOURS)
        hours = np.arange(HOURS)
        total = np.clip(np.minimum(inside[:, None], hours + 1) - np.maximum(starts[:, None], hours), 0, 1).sum(axis=0)
        return np.asarray(total / mean)

    return drawn


def bursts(*, per_month: float, mean_h: float, height: float, calm: float) -> Intensity:
    """Bursts above a calm level, of exponential length and height."""

    def drawn(rng: np.random.Generator) -> Floats:
        total = np.full(HOURS, calm)
        for start_h in rng.uniform(-20 * 24, HOURS, rng.poisson(per_month / 30 * (20 + DAYS))):
            edges = np.clip(np.arange(HOURS + 1), start_h, start_h + min(rng.exponential(mean_h), 480.0))
            total += np.diff(edges) * rng.exponential(height)
        return total

    return drawn


def weeks(*, log_level: float, spread: float, weekend: float, by_hour: float) -> Intensity:
    """Weeks of log-normal levels, with a weekly and a daily rhythm."""

    def drawn(rng: np.random.Generator) -> Floats:
        first = rng.integers(7)
        day = np.arange(DAYS) + first
        levels = rng.lognormal(log_level, spread, 6)
        by_day = levels[day // 7] * np.where(day % 7 > 4, weekend, (7 - 2 * weekend) / 5)
        hour = np.arange(HOURS) % 24
        return np.asarray(by_day[np.arange(HOURS) // 24] * (1 + by_hour * np.cos((hour - 14) / 24 * 2 * np.pi)))

    return drawn


PROCESSES = (
    UnevenProcess(name="self-similar on/off", intensity=on_off(sources=6, shape=1.4, mean_h=12.0)),
    UnevenProcess(name="log-Gaussian, two days", intensity=log_gaussian(correlated_h=48.0, spread=0.6)),
    UnevenProcess(name="sessions", intensity=sessions(per_day=4.0, shape=1.6, mean_h=30.0, mean=4.5)),
    UnevenProcess(name="bursts of days", intensity=bursts(per_month=4.0, mean_h=72.0, height=0.75, calm=0.7)),
    UnevenProcess(name="weekly rhythm", intensity=weeks(log_level=-0.1, spread=0.45, weekend=0.4, by_hour=0.6)),
)
_of_three_devices = partial(UnevenProcess, devices=3, median_s=10_800.0)
OTHERS = (  # sites of three devices and long jobs
    _of_three_devices(
        name="five on/off sources, H = .75",
        intensity=on_off(sources=5, shape=1.5, mean_h=18.0),
        per_day=12.0,
        log_sd=0.7,
    ),
    _of_three_devices(
        name="log-Gaussian, three days",
        intensity=log_gaussian(correlated_h=72.0, spread=0.5),
        per_day=10.0,
        log_sd=0.9,
    ),
    _of_three_devices(
        name="sessions of a day",
        intensity=sessions(per_day=5.0, shape=1.5, mean_h=24.0, mean=4.6),
        per_day=11.5,
        log_sd=0.7,
    ),
    _of_three_devices(
        name="longer bursts",
        intensity=bursts(per_month=3.0, mean_h=84.0, height=0.75, calm=0.74),
        per_day=11.0,
        log_sd=0.8,
    ),
    _of_three_devices(
        name="calmer weeks",
        intensity=weeks(log_level=-0.08, spread=0.4, weekend=0.5, by_hour=0.5),
        per_day=10.5,
        log_sd=0.9,
    ),
)
_DRAWN = np.random.default_rng(0).permutation(len(PROCESSES) + len(OTHERS))[: len(PROCESSES)]
CHOSEN_ON = tuple((*PROCESSES, *OTHERS)[k].name for k in _DRAWN)
_of_five_devices = partial(UnevenProcess, devices=5, median_s=7_200.0)
FURTHER = (  # sites of five devices
    _of_five_devices(
        name="eight on/off sources, H = .85",
        intensity=on_off(sources=8, shape=1.3, mean_h=20.0),
        per_day=20.5,
        log_sd=1.1,
    ),
    _of_five_devices(
        name="log-Gaussian, four days",
        intensity=log_gaussian(correlated_h=96.0, spread=0.45),
        per_day=20.5,
        log_sd=1.0,
    ),
    _of_five_devices(
        name="sessions of 40 hours",
        intensity=sessions(per_day=3.0, shape=1.7, mean_h=40.0, mean=4.55),
        per_day=20.0,
        log_sd=1.1,
    ),
    _of_five_devices(
        name="bursts of two days",
        intensity=bursts(per_month=6.0, mean_h=48.0, height=0.9, calm=0.64),
        per_day=20.5,
        log_sd=1.0,
    ),
    _of_five_devices(
        name="quiet weekends",
        intensity=weeks(log_level=-0.1, spread=0.45, weekend=0.3, by_hour=0.8),
        per_day=20.5,
        log_sd=1.1,
    ),
)
