"""The stream of jobs that every arm of a repetition gets: arrivals and run times of a trace, compressed to seconds.

Law: a stream depends on its seed and settings alone, so all arms of one repetition get the same jobs at the same times.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interfere.data.traces import TraceJob, read_trace
from interfere.errors import InvalidInputError

SHORTEST_S, LONGEST_S = 3.0, 12.0  # run times alone, start-up included
GANG_SHARE = 0.1  # of the jobs of a drawn stream; a trace says for itself which jobs are gangs
GANG_RANKS = 2  # there are two devices
NODE_DEVICES = 8  # a recorded job on more devices than a node has becomes a gang


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """One job of a stream. Times in seconds on the clock of the site."""

    index: int
    workload: str
    arrival_s: float
    alone_s: float  # run time alone, start-up included
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What a stream is made of. `load`: device seconds that the jobs take alone ÷ device seconds until the last
    arrival."""

    jobs: int
    load: float
    workloads: tuple[str, ...]
    gang_workload: str
    trace: Path | None = None  # folder of `interfere data import`; without it the stream is drawn
    devices: int = 2
    longest_s: float = LONGEST_S


def stream_of(settings: StreamSettings, seed: int) -> tuple[StreamJob, ...]:
    """Return the jobs of one repetition, in order of arrival.

    Of a trace, a stretch of consecutive jobs is taken at random; its run times are mapped by their logarithms onto
    3 to 12 s, and jobs that span nodes become gangs of two. Without a trace, gaps are exponential and run times
    log-uniform. Arrivals are stretched to the load.
    """
    rng = random.Random(seed)
    recorded = _recorded(settings, rng) if settings.trace else _drawn(settings, rng)
    low, high = (math.log(end([duration for _, duration, _ in recorded])) for end in (min, max))
    ratio = math.log(settings.longest_s / SHORTEST_S) / (high - low) if high > low else 0.0
    alone_s = [SHORTEST_S * math.exp(ratio * (math.log(duration) - low)) for _, duration, _ in recorded]
    gpus = [GANG_RANKS if count > 1 else 1 for _, _, count in recorded]
    work_s = sum(seconds * count for seconds, count in zip(alone_s, gpus, strict=True))
    first_s, last_s = recorded[0][0], recorded[-1][0]
    stretch = work_s / (settings.load * settings.devices) / (last_s - first_s) if last_s > first_s else 0.0
    order = [settings.workloads[k % len(settings.workloads)] for k in range(settings.jobs)]
    rng.shuffle(order)
    return tuple(
        StreamJob(
            index=k,
            workload=settings.gang_workload if gpus[k] > 1 else order[k],
            arrival_s=stretch * (arrival_s - first_s),
            alone_s=alone_s[k],
            gpus=gpus[k],
        )
        for k, (arrival_s, _, _) in enumerate(recorded)
    )


def _drawn(settings: StreamSettings, rng: random.Random) -> list[tuple[float, float, int]]:
    now_s, rows = 0.0, []
    gangs = set(rng.sample(range(settings.jobs), max(1, round(GANG_SHARE * settings.jobs))))
    for k in range(settings.jobs):
        now_s += rng.expovariate(1.0)
        duration_s = SHORTEST_S * (settings.longest_s / SHORTEST_S) ** rng.random()
        rows.append((now_s, duration_s, GANG_RANKS if k in gangs else 1))
    return rows


def _recorded(settings: StreamSettings, rng: random.Random) -> list[tuple[float, float, int]]:
    assert settings.trace is not None
    usable: Sequence[TraceJob] = [job for job in read_trace(settings.trace).jobs if job.duration_s > 0]
    if len(usable) < settings.jobs:
        raise InvalidInputError(
            "the trace has too few jobs with a run time",
            value=f"{len(usable)} of {settings.jobs}",
            remedy="import a longer one, or run fewer jobs",
        )
    first = rng.randrange(len(usable) - settings.jobs + 1)
    chosen = usable[first : first + settings.jobs]
    return [(job.arrival_s, job.duration_s, GANG_RANKS if job.gpus > NODE_DEVICES else 1) for job in chosen]
