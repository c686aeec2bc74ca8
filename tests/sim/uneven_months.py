"""Months as they fall: drawn from known processes, replayed at the load that each happens to have.

A month holds 30 days on eight devices, from empty, at a mean load of .65; nothing is stretched, so the loads of months
differ by .12 and more (standard deviation). Why they differ: self-similar on/off sources (Willinger et al., 1997;
H = .8), a log-Gaussian intensity whose logarithm is correlated over two days, sessions of users of very different
length, bursts that last for days, and weeks of different levels with a weekly and a daily rhythm.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.sim.world import DAY_S, World
from interfere.testing.schedulers import NAMES, devices, job

Floats = NDArray[np.float64]
DAYS, DEVICES, MEAN_LOAD = 30, 8, 0.65
HOURS = 24 * DAYS
MEDIAN_S, LOG_SD, LONGEST_S = 3_600.0, 1.3, 2 * DAY_S  # of run times
PER_DAY = 54.5  # jobs: MEAN_LOAD x DEVICES x DAY_S / mean run time


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenProcess:
    """A process whose months have different loads."""

    name: str
    intensity: Callable[[np.random.Generator], Floats]  # float64[HOURS], relative, of mean 1 over all months

    def month(self, seed: int) -> World:
        """One month, at the load that it happens to have."""
        rng = np.random.default_rng(seed)
        hours = np.repeat(np.arange(HOURS), rng.poisson(PER_DAY / 24 * self.intensity(rng)))
        arrivals = np.sort((hours + rng.random(len(hours))) * 3600.0)
        took = np.clip(MEDIAN_S * rng.lognormal(0.0, LOG_SD, len(hours)), 30.0, LONGEST_S)
        drawn = zip(arrivals.tolist(), took.tolist(), rng.choice(NAMES, len(hours)).tolist(), strict=True)
        jobs = tuple(job(f"j{k}", at, seconds, name) for k, (at, seconds, name) in enumerate(drawn))
        return World(name=f"{self.name} {seed}", jobs=jobs, devices=devices(DEVICES))


def _on_off(rng: np.random.Generator) -> Floats:
    """Six sources that are on and off for Pareto times of shape 1.4 (H = .8) and mean half a day, stationary."""
    shape, scale_h, sources = 1.4, 0.4 * 12.0, 6
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


def _log_gaussian(rng: np.random.Generator) -> Floats:
    deviation, step = np.zeros(HOURS), float(np.exp(-1 / 48))
    noise = rng.normal(size=HOURS)
    deviation[0] = noise[0]
    for hour in range(1, HOURS):
        deviation[hour] = step * deviation[hour - 1] + np.sqrt(1 - step**2) * noise[hour]
    spread = 0.6
    return np.asarray(np.exp(spread * deviation - spread**2 / 2))


def _sessions(rng: np.random.Generator) -> Floats:
    """Sessions, four a day begun, of Pareto length (shape 1.6, 30 h in the mean) by day of the working time."""
    begun = rng.uniform(-40 * 24, HOURS, rng.poisson(4 * (40 + DAYS)))
    length_h = 0.6 * 30 * rng.pareto(1.6, len(begun))
    inside = np.clip(begun + np.minimum(length_h, 40 * 24), 0, HOURS)
    starts = np.clip(begun, 0, HOURS)
    hours = np.arange(HOURS)
    total = np.clip(np.minimum(inside[:, None], hours + 1) - np.maximum(starts[:, None], hours), 0, 1).sum(axis=0)
    return np.asarray(total / 4.5)


def _bursts(rng: np.random.Generator) -> Floats:
    """Four bursts a month of three days in the mean, each with .65 more in the mean."""
    total = np.full(HOURS, 0.75)
    for start_h in rng.uniform(-20 * 24, HOURS, rng.poisson(4 / 30 * (20 + DAYS))):
        edges = np.clip(np.arange(HOURS + 1), start_h, start_h + min(rng.exponential(72.0), 480.0))
        total += np.diff(edges) * rng.exponential(0.65)
    return total


def _weeks(rng: np.random.Generator) -> Floats:
    first = rng.integers(7)
    day = np.arange(DAYS) + first
    levels = rng.lognormal(-0.1, 0.45, 6)
    by_day = levels[day // 7] * np.where(day % 7 > 4, 0.4, 1.24)
    hour = np.arange(HOURS) % 24
    return np.asarray(by_day[np.arange(HOURS) // 24] * (1 + 0.6 * np.cos((hour - 14) / 24 * 2 * np.pi)))


PROCESSES = (
    UnevenProcess(name="self-similar on/off", intensity=_on_off),
    UnevenProcess(name="log-Gaussian, two days", intensity=_log_gaussian),
    UnevenProcess(name="sessions", intensity=_sessions),
    UnevenProcess(name="bursts of days", intensity=_bursts),
    UnevenProcess(name="weekly rhythm", intensity=_weeks),
)
