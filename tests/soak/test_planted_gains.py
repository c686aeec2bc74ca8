"""How often the interval of the mean gain covers the true one: planted in days, and in whole months that are replayed.

Planted gains of days are covered as often as the interval says. A replayed month is drawn from one process (bursts by
day, heavy tails, a load of about 0.6 on four devices); the true gain of sharing is that of all its months together. It
is made in few congested days, which most months lack: intervals of single months cover it in about two of three, and
docs/results.md says so. `SOAK_ROUNDS`: half the number of months.
"""

import os

import numpy as np

from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.registry import SchedulerSettings, make_scheduler
from interfere.sim.score import completion_change_by_day
from interfere.sim.truth import TableTruth
from interfere.sim.uncertainty import DaySums, mean_over_days
from interfere.sim.world import DAY_S, World
from tests.sim.planted_gains import covered
from tests.sim.small_worlds import MODE, NAMES, USUAL, devices, job

MONTHS = 2 * int(os.environ.get("SOAK_ROUNDS", "25"))  # make soak: 100
DAYS = 30


def month(seed: int) -> World:
    """Some forty jobs a day on four devices."""
    rng = np.random.default_rng(seed)
    arrivals = [
        day * DAY_S + at
        for day in range(DAYS)
        for at in rng.uniform(0, DAY_S, rng.poisson(40 * rng.lognormal(-0.1, 0.45))).tolist()
    ]
    durations = np.minimum(rng.lognormal(7.8, 1.2, len(arrivals)), DAY_S / 2).tolist()
    jobs = [
        job(f"j{k}", at, duration, str(rng.choice(NAMES)))
        for k, (at, duration) in enumerate(zip(sorted(arrivals), durations, strict=True))
    ]
    return World(name=f"month {seed}", jobs=tuple(jobs), devices=devices(4))


def gain_by_day(world: World) -> DaySums:
    """Of sharing, where shortest jobs go first."""
    known = true_beliefs(USUAL)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE)
    shared, alone = (
        replay(world, TableTruth([USUAL]), make_scheduler(name, settings))
        for name in ("fifo+first-fit+greedy", "fifo+first-fit")
    )
    return completion_change_by_day(shared, alone)


def test_gains_planted_in_days() -> None:
    share = covered(4 * MONTHS)
    print(f"{4 * MONTHS} months: covered {share:.1%}")
    assert 0.85 <= share <= 0.95


def test_gains_of_replayed_months() -> None:
    months = [gain_by_day(month(seed)) for seed in range(MONTHS)]
    true = float(sum(m.numerator.sum() for m in months) / sum(m.denominator.sum() for m in months)) - 1
    intervals = [mean_over_days([sums], subtract=1.0, seed=k).interval for k, sums in enumerate(months)]
    share = float(np.mean([interval.low <= true <= interval.high for interval in intervals]))
    width = float(np.mean([interval.high - interval.low for interval in intervals]))
    print(f"{MONTHS} months: true gain {true:+.1%}, mean width {width:.1%}, covered {share:.0%}")
    assert 0.5 <= share < 0.85  # where it becomes better, say so in docs/results.md
