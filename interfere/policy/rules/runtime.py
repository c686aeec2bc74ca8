"""How long a job would stay on a device class, against its deadline and the time that the device stays open.

What remains of a job alone on its fastest device type is log-normal with median remaining_s and 90 % quantile
remaining_p90_s; exactly remaining_s where only that is known. On a slower type it takes τ times as long (`objectives`).
A stay may not begin where its deadline passes even at the quantile `risk` of what remains, nor, unless the job can be
checkpointed, where the device may close before it ends, at the quantile 1 - risk.
Law: a later deadline and a longer window never forbid more. Pure arrays and numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs.objectives import weights
from interfere.records import NAN, Device, Job
from interfere.records.windows import spans

Floats = NDArray[np.float64]
P90_Z = NormalDist().inv_cdf(0.9)
TICK_S = 1e-3  # the same times added in another order, also in seconds since 1970: 52 bits of these are 2e-7 s
# Midpoints of ten equally likely parts of what remains: chances of a miss are read off to a few per cent.
PARTS = tuple((k + 0.5) / 10 for k in range(10))
HOUR_S, MINUTE_S = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One job on one device class, alone."""

    least_s: float = NAN  # until its end there, at the quantile `risk` of what remains; NaN where unknown
    most_s: float = NAN  # the same at 1 - risk
    slack_s: float = NAN  # until its deadline; NaN without one
    open_s: float = math.inf  # that the device stays open
    checkpoint_s: float = NAN  # what closing would cost it; NaN where it may not be stopped

    @property
    def interrupted(self) -> bool:
        """May the device close before it ends? Also where nobody knows how long it runs."""
        return math.isfinite(self.open_s) and not self.most_s <= self.open_s + TICK_S

    @property
    def loses_s(self) -> float:
        """Seconds that closing costs it."""
        return self.checkpoint_s if self.interrupted and not math.isnan(self.checkpoint_s) else 0.0

    @property
    def within_s(self) -> float:
        """Seconds in which it must end: before its deadline, and before the device closes unless it is cut off anyway;
        NaN for no limit."""
        closes = math.isfinite(self.open_s) and not self.interrupted
        return float(np.fmin(self.slack_s - self.loses_s, self.open_s if closes else NAN))

    def shut(self, job_id: str, where: str) -> str:
        """Why it may not begin; empty where it may."""
        closes = f"window: {where} closes in {said(self.open_s)}"
        if self.interrupted and math.isnan(self.checkpoint_s):
            if math.isnan(self.most_s):
                return f"{closes}, and nobody says how long {job_id} runs (remaining_s)"
            return f"{closes}, {job_id} needs {said(self.most_s)} there"
        if self.interrupted and self.open_s <= self.checkpoint_s:
            return f"{closes}, a checkpoint of {job_id} takes {said(self.checkpoint_s)}"
        if self.least_s > self.slack_s + TICK_S:
            return f"deadline: {job_id} needs {said(self.least_s)} on {where}, {said(self.slack_s)} are left"
        return ""


FREE = Stay()


def stays(jobs: Sequence[Job], times: Floats, open_s: float, now_s: float, risk: float) -> tuple[Stay, ...]:
    """Of each job on a class that stays open for `open_s`; `times` float64[n] are its τ there."""
    return tuple(
        Stay(
            least_s=remaining_s(job, risk) * tau,
            most_s=remaining_s(job, 1 - risk) * tau,
            slack_s=job.deadline_s - now_s,
            open_s=open_s,
            checkpoint_s=job.checkpoint_s if job.preemptible else NAN,
        )
        for job, tau in zip(jobs, times.tolist(), strict=True)
    )


def bearable(needs_s: Floats, left_s: Floats, beside_s: Floats | float) -> Floats:
    """The slowdown up to which who needs `needs_s` alone ends within `left_s`, beside company gone after `beside_s`.

    Slowed down s times it ends at needs · s where company stays, else at needs + beside (1 - 1/s). NaN: no limit.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        spare_s = left_s - needs_s
        passing = np.where(spare_s >= beside_s, np.inf, 1.0 / (1.0 - spare_s / beside_s))
        return np.asarray(np.where(spare_s >= 0, np.fmax(left_s / needs_s, passing), left_s / needs_s))


def remaining_s(job: Job, level: float) -> float:
    """Quantile of what remains alone on the fastest type."""
    if math.isnan(job.remaining_p90_s) or not job.remaining_s > 0:
        return job.remaining_s
    return float(job.remaining_s * (job.remaining_p90_s / job.remaining_s) ** (NormalDist().inv_cdf(level) / P90_Z))


def slowdowns_to_miss(jobs: Sequence[Job], times: Floats, now_s: float, beside_s: Floats | float = math.inf) -> Floats:
    """float64[k, n, ...]: above which slowdown each deadline is missed, in k equally likely cases of what remains.

    `beside_s` float64[n, ...]: when company goes.
    """
    parts = PARTS if any(not math.isnan(job.remaining_p90_s) for job in jobs) else (0.5,)
    more = (slice(None),) + (None,) * (np.ndim(beside_s) - 1)
    slack_s = np.array([job.deadline_s - now_s for job in jobs], dtype=np.float64)[more]
    needs_s = [np.array([remaining_s(job, level) for job in jobs], dtype=np.float64) * times for level in parts]
    return np.stack([bearable(each[more], slack_s, beside_s) for each in needs_s])


def left_s(jobs: Sequence[Job], times: Floats) -> Floats:
    """float64[n]: median time to the end alone; inf where nobody knows."""
    return np.asarray(np.nan_to_num(np.array([job.remaining_s for job in jobs], dtype=np.float64), nan=np.inf) * times)


def lost_times(jobs: Sequence[Job], found: Sequence[Stay]) -> Floats:
    """float64[n]: what closing costs each, in its own times alone on its fastest type; 0 where that is not known."""
    lost = [one.loses_s / job.remaining_s if job.remaining_s > 0 else 0.0 for job, one in zip(jobs, found, strict=True)]
    return np.array(lost, dtype=np.float64)


def start_weights(jobs: Sequence[Job], now_s: float) -> Floats:
    """float64[n], who starts first where not all can: weight · 10^priority, up to twice that as a deadline comes near.

    w (1 + 1 / (1 + laxity in hours)), laxity = deadline - now - remaining_s ≥ 0; w without a deadline. So who can still
    make it goes before who has no deadline, the least slack first, and never before two such jobs.
    """
    weight = weights(jobs)
    for i, job in enumerate(jobs):
        if not math.isnan(job.deadline_s):
            laxity_s = max(0.0, job.deadline_s - now_s - job.remaining_s)
            weight[i] *= 1.0 + 1.0 / (1.0 + laxity_s / HOUR_S)
    return weight


def opening(device: Device, now_s: float) -> tuple[float, float]:
    """Seconds that it stays open (inf: always, 0: it is closed), and until it opens (inf: never)."""
    for from_s, until_s in spans(device.windows):
        if now_s < from_s:
            return 0.0, from_s - now_s
        if now_s < until_s or not device.windows:
            return until_s - now_s if device.windows else math.inf, 0.0
    return 0.0, math.inf


def said(seconds: float) -> str:
    """For people."""
    if abs(seconds) >= HOUR_S:
        return f"{seconds / HOUR_S:.3g} h"
    return f"{seconds / MINUTE_S:.3g} min" if abs(seconds) >= MINUTE_S else f"{seconds:.3g} s"
