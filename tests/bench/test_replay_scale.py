"""How the CPU time of a replay grows with jobs and devices, without re-pairing of running jobs.

Synthetic jobs with heavy tails on one pool of nodes of eight, at a load of 0.9. Growth is judged by ratios within a
run: at most n log n in jobs, linear in devices, with a margin for the noise of a shared machine.
"""

import math
import time

import numpy as np
import pytest

from interfere.records import Device
from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth
from interfere.sim.world import SimDevice, World
from interfere.testing.schedulers import MODE, NAMES, TYPE, USUAL, job
from tests.bench.history import record

pytestmark = pytest.mark.bench
LOAD, NOISE = 0.9, 1.6
POLICIES = ("sjf-first-fit", "sjf-easy-greedy", "sjf-easy-matching", "srtf-first-fit-greedy")


def world(jobs: int, devices: int, load: float = LOAD) -> World:
    """Jobs of one to sixteen devices."""
    rng = np.random.default_rng(0)
    gpus = rng.choice([1, 1, 1, 1, 1, 1, 2, 4, 8, 16], jobs)
    durations = rng.lognormal(7.5, 1.6, jobs).clip(30, 5 * 86_400)
    arrivals = np.sort(rng.random(jobs)) * (gpus * durations).sum() / (devices * load)
    rows = zip(arrivals.tolist(), durations.tolist(), rng.choice(NAMES, jobs).tolist(), gpus.tolist(), strict=True)
    return World(
        name="big",
        jobs=tuple(job(f"j{k}", *row, checkpoint_s=62.0) for k, row in enumerate(rows)),
        devices=tuple(
            SimDevice(device=Device(id=f"d{k}", type=TYPE, node=f"n{k // 8}", mode=MODE)) for k in range(devices)
        ),
    )


def cpu_s(policy: str, jobs: int, devices: int, *, load: float = LOAD) -> float:
    """CPU seconds of one replay."""
    known = true_beliefs(USUAL)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE)
    made, scheduler = world(jobs, devices, load), make_scheduler(PRESETS[policy], settings)
    started_s = time.process_time()
    replay(made, TableTruth([USUAL]), scheduler)
    return time.process_time() - started_s


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("policy", POLICIES)
def test_growth(policy: str) -> None:
    base, more_jobs, more_devices = cpu_s(policy, 6000, 160), cpu_s(policy, 24_000, 160), cpu_s(policy, 6000, 640)
    in_jobs, in_devices = more_jobs / base, more_devices / base
    print(f"{policy}: 6,000 jobs x 160 devices {base:.1f} s; x 4 jobs {in_jobs:.1f}; x 4 devices {in_devices:.1f}")
    record("replay-scale", {f"{policy} x4 jobs": in_jobs, f"{policy} x4 devices": in_devices})
    assert in_jobs <= NOISE * 4 * math.log(24_000) / math.log(6000)
    assert in_devices <= NOISE * 4


@pytest.mark.timeout(3600)
def test_a_hundred_thousand_jobs_on_a_thousand_devices_with_matching() -> None:
    taken_s = cpu_s("sjf-easy-matching", 100_000, 1000)
    print(f"100,000 jobs x 1,000 devices, sjf-easy-matching: {taken_s:.1f} s of CPU")
    record("replay-scale", {"100,000 x 1,000 cpu s": taken_s})
