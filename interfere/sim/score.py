"""What a replay comes to: completion times, waiting, how busy the devices were, and how far sharing went.

Completion J_i = end - arrival; slowdown J_i / max(d_i, `SHORTEST_S`) with d_i the duration alone, at least 1; waiting
J_i - time in service; utilisation ∫ busy dt / ∫ devices there dt, up to the last end. All jobs count.
Differences between two policies are paired by trace, their interval is a bootstrap over traces, never over jobs: jobs
of one trace wait for each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.sim.replay import Replayed

Floats = NDArray[np.float64]
SHORTEST_S = 10.0  # the bound that the literature of bounded slowdown uses (Feitelson et al., JSSPP 1997)
DRAWS = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Of all jobs of one replay, or of several together."""

    jobs: int
    mean_completion_s: float
    median_completion_s: float
    p99_completion_s: float
    mean_slowdown: float
    mean_waiting_s: float
    makespan_s: float
    utilisation: float  # share of device time with somebody on it, up to the last end
    shared: float  # share of busy device time with two
    pairs: int  # of jobs that shared
    mean_pair_slowdown: float  # of both sides, each pair once
    past_cap: float  # share of pairs in which a side passes the cap
    stops: int


def score(replays: Sequence[Replayed], cap: float) -> Score:
    """Of all jobs of these replays together."""
    completion = np.concatenate([one.completion_s for one in replays])
    duration = np.concatenate([[job.duration_s for job in one.world.jobs] for one in replays])
    running = [_running_s(one) for one in replays]
    busy = [_integral(one, one.busy) for one in replays]
    pairs = [pair for one in replays for pair in pair_slowdowns(one).values()]
    worst = np.array([max(pair) for pair in pairs])
    return Score(
        jobs=len(completion),
        mean_completion_s=float(completion.mean()),
        median_completion_s=float(np.median(completion)),
        p99_completion_s=float(np.quantile(completion, 0.99)),
        mean_slowdown=float((completion / np.maximum(duration, SHORTEST_S)).clip(1.0).mean()),
        mean_waiting_s=float((completion - np.concatenate(running)).mean()),
        makespan_s=max(float(one.ended_s.max() - one.world.jobs[0].arrival_s) for one in replays),
        utilisation=sum(busy) / sum(_offered_s(one) for one in replays),
        shared=sum(_integral(one, one.shared) for one in replays) / max(sum(busy), 1e-12),
        pairs=len(pairs),
        mean_pair_slowdown=float(np.mean(pairs)) if pairs else 1.0,
        past_cap=float((worst > cap).mean()) if pairs else 0.0,
        stops=int(sum(one.stops.sum() for one in replays)),
    )


def pair_slowdowns(replayed: Replayed) -> dict[tuple[str, str], tuple[float, ...]]:
    """Of every pair of jobs that shared, the slowdowns of its sides."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for span in replayed.spans:
        if span.partner_id:
            key = (min(span.job_id, span.partner_id), max(span.job_id, span.partner_id))
            found.setdefault(key, {})[span.job_id] = span.slowdown
    return {key: tuple(sides.values()) for key, sides in found.items()}


def _running_s(replayed: Replayed) -> Floats:
    """float64[n]: seconds on devices."""
    place = {job.id: k for k, job in enumerate(replayed.world.jobs)}
    total = np.zeros(len(place))
    for span in replayed.spans:
        total[place[span.job_id]] += span.end_s - span.start_s
    return total


def _integral(replayed: Replayed, devices: NDArray[np.int64]) -> float:
    return float(np.diff(replayed.at_s) @ devices[:-1])


def _offered_s(replayed: Replayed) -> float:
    """Device seconds that were there between the first arrival and the last end."""
    start_s, end_s = replayed.world.jobs[0].arrival_s, float(replayed.ended_s.max())
    return sum(
        max(0.0, min(until, end_s) - max(since, start_s))
        for one in replayed.world.devices
        for since, until in one.windows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Of one policy against another on the same t traces."""

    share: float  # of the other's mean completion time: -0.1 is a tenth less
    low: float
    high: float
    traces: int


def difference(policy: Sequence[float], other: Sequence[float], *, seed: int = 0) -> Difference:
    """Of mean completion times on t traces each: mean of the shares, and its interval by bootstrap over traces.

    One trace has no interval: NaN.
    """
    shares = np.asarray(policy) / np.asarray(other) - 1
    if len(shares) < 2:
        return Difference(share=float(shares.mean()), low=np.nan, high=np.nan, traces=len(shares))
    drawn = np.random.default_rng(seed).integers(0, len(shares), (DRAWS, len(shares)))
    low, high = np.quantile(shares[drawn].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(share=float(shares.mean()), low=float(low), high=float(high), traces=len(shares))
