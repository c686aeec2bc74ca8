"""Tables that state a small world exactly, so that a test can compute its predictions by hand."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from interfere.data.tables import Table
from interfere.records import JobProfile, KernelStat, PairMeasurement, PairStatus, Progress

DEVICE = "cpu-core"
WINDOW_NOISE = 0.03  # of the log slowdown that a site observes in a window


def profile(workload: str, place: int, device_type: str = DEVICE) -> JobProfile:
    """A profile that differs from every other place's; every third has no kernel table."""
    busy = 0.3 + 0.6 * ((place * 0.618) % 1)
    step = 0.004 * 1.5**place
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=step,
        busy_frac=busy,
        busy_s=(busy * step, busy * step * 1.1),
        idle_s=((1 - busy) * step, (1 - busy) * step * 0.9),
        memory_peak_bytes=1e8 * (1 + place),
        kernels=() if place % 3 == 0 else (KernelStat(name="aten::mm", mean_s=step / 4, count=2.0),),
    )


def measurement(
    victim: str, neighbour: str, slowdown: float, *, spread: float = 0.02, **fields: object
) -> PairMeasurement:
    """An ok row with two blocks that agree; `spread` is the half-width of its interval in log units."""
    values: dict = {
        "victim": victim,
        "neighbour": neighbour,
        "device_type": DEVICE,
        "mode": "timeslice",
        "slowdown": slowdown,
        "lower": slowdown * math.exp(-spread),
        "upper": slowdown * math.exp(spread),
        "passes": (slowdown * 0.999, slowdown * 1.001),
    }
    return PairMeasurement(**(values | fields))


def not_ok(victim: str, neighbour: str) -> PairMeasurement:
    """A row that must never be learned from."""
    return PairMeasurement(
        victim=victim, neighbour=neighbour, device_type=DEVICE, mode="timeslice", status=PairStatus.UNSTABLE, reason="x"
    )


def world(slowdown: Callable[[int, int], float], count: int = 6, *, name: str = "world", **fields: object) -> Table:
    """All ordered pairs of w0, w1, ...; `slowdown(i, j)` of i beside j."""
    jobs = tuple(profile(f"w{i}", i) for i in range(count))
    pairs = tuple(measurement(f"w{i}", f"w{j}", slowdown(i, j), **fields) for i in range(count) for j in range(count))
    return Table(name=name, jobs=jobs, pairs=pairs)


def table_of(slowdowns: Mapping[tuple[str, str], float], *, name: str = "table") -> Table:
    """Exactly these ordered pairs."""
    names = sorted({job for pair in slowdowns for job in pair})
    return Table(
        name=name,
        jobs=tuple(profile(job, k) for k, job in enumerate(names)),
        pairs=tuple(measurement(v, n, s) for (v, n), s in slowdowns.items()),
    )


def additive(i: int, j: int) -> float:
    """log slowdown = 0.1 + 0.05 i + 0.08 j: no interaction at all."""
    return math.exp(0.1 + 0.05 * i + 0.08 * j)


def summed(i: int, j: int) -> float:
    """speed = 0.95 - 0.04 i - 0.06 j: what the additive baseline says exactly."""
    return 1 / (0.95 - 0.04 * i - 0.06 * j)


def crossed(i: int, j: int) -> float:
    """Additive, and more where both are odd."""
    return additive(i, j) * (1.4 if i % 2 and j % 2 else 1.0)


def as_if_traced(job: JobProfile) -> JobProfile:
    """The job as an import leaves it: measured facts, and static ones that `without_static` knows."""
    return replace(
        job,
        source="cpu+static",
        gpu_util_frac=0.25,
        static_step_time_s=0.5,
        static_memory_peak_bytes=1e8,
        memory_model_bytes=len(job.workload) * 1e7,
    )


def observed_windows(
    pairs: list[PairMeasurement], truth: Mapping[tuple[str, str], float], first: int, rng: np.random.Generator
) -> list[Progress]:
    """Return a window of each pair, in a random order. `truth`: log slowdown by victim and neighbour."""
    return [
        Progress(
            observation_id=f"o{first + k}",
            job_id=f"j {pair.victim}",
            workload=pair.victim,
            company=(pair.neighbour,),
            device_type=pair.device_type,
            mode=pair.mode,
            slowdown=math.exp(truth[pair.victim, pair.neighbour] + WINDOW_NOISE * float(rng.normal())),
            start_s=1e9 + 60.0 * (first + k),
            end_s=1e9 + 60.0 * (first + k) + 60.0,
        )
        for k, pair in enumerate(pairs[index] for index in rng.permutation(len(pairs)).tolist())
    ]
