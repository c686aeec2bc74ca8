"""Months drawn from known processes and replayed: the gain that the interval of one of them should cover is known.

A month holds 30 days on eight devices, from empty; arrivals are stretched to exactly one offered load, as `interfere
whatif` does. The processes differ in how jobs come (independently; with busy and calm days and a daily rhythm; as
sweeps that a user submits at once; by the week) and in the tail of their durations, cut at two days; one has jobs on
two devices. The true gain of a process is that of all jobs of all its months: their times with sharing over those
without, less 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.score import day_totals_of
from interfere.sim.trace_worlds import scale_to_load
from interfere.sim.truth import TableTruth
from interfere.sim.uncertainty import DaySums
from interfere.sim.world import DAY_S, World
from interfere.testing.schedulers import MODE, NAMES, USUAL, devices, job

Floats = NDArray[np.float64]
DAYS, DEVICES = 30, 8
LOADS = (0.5, 0.75, 0.95)
QUEUES = ("fifo-easy", "sjf-easy", "tiresias-first-fit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """How jobs arrive and how long they take."""

    name: str
    arrivals: Callable[[np.random.Generator, float], Floats]  # seconds, from a mean number of jobs a day
    durations: Callable[[np.random.Generator, int], Floats]  # seconds
    gpus: tuple[int, ...] = (1,)  # drawn evenly

    def month(self, load: float, seed: int) -> World:
        """A month at exactly this offered load."""
        rng = np.random.default_rng(seed)
        mean_s = float(self._clipped(np.random.default_rng(0), 100_000).mean()) * float(np.mean(self.gpus))
        arrivals = np.sort(self.arrivals(rng, load * DEVICES * DAY_S / mean_s))
        count = len(arrivals)
        drawn = zip(
            arrivals.tolist(),
            self._clipped(rng, count).tolist(),
            rng.choice(NAMES, count).tolist(),
            rng.choice(self.gpus, count).tolist(),
            strict=True,
        )
        jobs = tuple(job(f"j{k}", at, took, name, gpus) for k, (at, took, name, gpus) in enumerate(drawn))
        return scale_to_load(World(name=f"{self.name} {seed}", jobs=jobs, devices=devices(DEVICES)), load)

    def _clipped(self, rng: np.random.Generator, count: int) -> Floats:
        return np.clip(self.durations(rng, count), 30.0, 2 * DAY_S)


def _independent(rng: np.random.Generator, per_day: float) -> Floats:
    return rng.uniform(0, DAYS * DAY_S, rng.poisson(DAYS * per_day))


def _by_day(rng: np.random.Generator, per_day: Sequence[float]) -> Floats:
    """Numbers of jobs by day; three in five of a day around two in the afternoon."""
    days = np.repeat(np.arange(DAYS), rng.poisson(per_day))
    moments = np.where(rng.random(len(days)) < 0.6, rng.normal(0.6, 0.12, len(days)) % 1, rng.random(len(days)))
    return np.asarray((days + moments) * DAY_S)


def _busy_days(rng: np.random.Generator, per_day: float) -> Floats:
    return _by_day(rng, (per_day * rng.lognormal(-0.125, 0.5, DAYS)).tolist())


def _weekly(rng: np.random.Generator, per_day: float) -> Floats:
    first = rng.integers(7)
    week = np.array([0.4 if (first + day) % 7 > 4 else 1.24 for day in range(DAYS)])
    return _by_day(rng, (per_day * week * rng.lognormal(-0.02, 0.2, DAYS)).tolist())


def _long_bursts(rng: np.random.Generator, per_day: float) -> Floats:
    """Intensities of days that are correlated by 0.6, without a daily rhythm: jobs wait in few stretches of several
    days, and some months have none."""
    intensity = np.zeros(DAYS)
    for day in range(DAYS):
        intensity[day] = 0.6 * intensity[day - 1] + 0.8 * rng.normal() if day else rng.normal()
    days = np.repeat(np.arange(DAYS), rng.poisson(per_day * np.exp(0.4 * intensity - 0.08)))
    return np.asarray((days + rng.random(len(days))) * DAY_S)


def _sweeps(rng: np.random.Generator, per_day: float) -> Floats:
    """On average four jobs at once, a second apart."""
    starts = rng.uniform(0, DAYS * DAY_S, rng.poisson(DAYS * per_day / 4))
    return np.concatenate([start + np.arange(rng.geometric(0.25)) for start in starts])


PROCESSES = (
    Process(name="independent", arrivals=_independent, durations=lambda rng, n: rng.lognormal(8.0, 1.4, n)),
    Process(name="busy days", arrivals=_busy_days, durations=lambda rng, n: rng.lognormal(7.4, 1.8, n)),
    Process(name="sweeps", arrivals=_sweeps, durations=lambda rng, n: 2700 * (1 - rng.random(n)) ** (-1 / 1.3)),
    Process(name="weekly", arrivals=_weekly, durations=lambda rng, n: 3600 * rng.weibull(0.5, n), gpus=(1, 1, 1, 2)),
)
LONG_BURSTS = Process(name="long bursts", arrivals=_long_bursts, durations=lambda rng, n: rng.lognormal(7.4, 1.8, n))


def gain_by_day(world: World, queue: str) -> DaySums:
    """Completion times with greedy sharing over those without, by day of arrival."""
    known = true_beliefs(USUAL)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE)
    shared, alone = (
        replay(world, TableTruth([USUAL]), make_scheduler(PRESETS[name], settings))
        for name in (f"{queue}-greedy", queue)
    )
    return day_totals_of(shared).completion_change(day_totals_of(alone))
