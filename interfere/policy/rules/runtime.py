"""How long a job runs on a device class, against its deadline and the time for which the device stays open.

What remains of a job, alone on its fastest device type, is log-normal with median remaining_s and 90 % quantile
remaining_p90_s; exactly remaining_s where only that is known. On a slower type it takes τ times as long (`objectives`).
A job may not start where it misses its deadline even at the quantile `risk` of what remains, nor, unless it can be
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
from interfere.records import NAN, Device, Job, Rule, RuleKind
from interfere.records.cluster import spans

Floats = NDArray[np.float64]
P90_Z = NormalDist().inv_cdf(0.9)
TICK_S = 1e-3  # the same times added in another order, also in seconds since 1970: 52 bits of these are 2e-7 s
# Midpoints of ten equally likely parts of what remains: chances of a miss are read off to a few per cent.
REMAINING_LEVELS = tuple((k + 0.5) / 10 for k in range(10))
HOUR_S = 3600.0
# A job that has waited very long counts as much as eight: more than the two that would share its device, less than a
# crowd, so that weights which callers send keep their meaning.
MAX_AGEING = 8.0
# Ageing periods that a job waits before its wait counts: in a busy cluster most jobs wait for one or two, and to age
# those costs the mean without shortening the longest wait (measured: tests/soak/test_starvation.py).
AGEING_BEGINS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """How long one job runs alone on one device class if it starts now, and in which time it has to."""

    optimistic_s: float = NAN  # to its end, at the quantile `risk` of what remains; NaN where unknown
    pessimistic_s: float = NAN  # to its end, at the quantile 1 - risk
    deadline_in_s: float = NAN  # NaN without a deadline
    closes_in_s: float = math.inf  # inf where the device stays open
    checkpoint_s: float = NAN  # that stopping it costs; NaN where it may not be stopped

    @property
    def is_interrupted(self) -> bool:
        """May the device close before the job ends? Also where nobody knows how long it runs."""
        return math.isfinite(self.closes_in_s) and not self.pessimistic_s <= self.closes_in_s + TICK_S

    @property
    def checkpoint_loss_s(self) -> float:
        """Seconds that the closing of the device costs the job."""
        return self.checkpoint_s if self.is_interrupted and not math.isnan(self.checkpoint_s) else 0.0

    @property
    def deadline_limit_s(self) -> float:
        """Seconds that the deadline leaves to run; NaN without a deadline."""
        return self.deadline_in_s - self.checkpoint_loss_s

    @property
    def time_limit_s(self) -> float:
        """Seconds in which the job must end: before its deadline, and before the device closes unless it is
        interrupted anyway. NaN without a limit."""
        closes = math.isfinite(self.closes_in_s) and not self.is_interrupted
        return float(np.fmin(self.deadline_limit_s, self.closes_in_s if closes else NAN))

    def blocking_rule(self, job_id: str, *, pool: str, device_type: str) -> Rule | None:
        """Return the rule that forbids the job to start on the device class even alone; None where it may start."""
        kind, runtime_s = RuleKind.WINDOW, NAN
        if self.is_interrupted and math.isnan(self.checkpoint_s):
            runtime_s = self.pessimistic_s
        elif not (self.is_interrupted and self.closes_in_s <= self.checkpoint_s):
            if not self.optimistic_s > self.deadline_in_s + TICK_S:
                return None
            kind, runtime_s = RuleKind.DEADLINE, self.optimistic_s
        window = kind is RuleKind.WINDOW
        return Rule(
            kind=kind,
            job_id=job_id,
            pool=pool,
            device_type=device_type,
            runtime_s=runtime_s,
            closes_in_s=self.closes_in_s if window else NAN,
            checkpoint_s=self.checkpoint_s if window else NAN,
            time_left_s=NAN if window else self.deadline_in_s,
        )


UNLIMITED = Runtime()


def runtimes(
    jobs: Sequence[Job], relative_times: Floats, closes_in_s: float, now_s: float, risk: float
) -> tuple[Runtime, ...]:
    """Each job's runtime on a device class that closes in `closes_in_s`, where its τ is `relative_times` float64[n]."""
    return tuple(
        Runtime(
            optimistic_s=remaining_quantile_s(job, risk) * tau,
            pessimistic_s=remaining_quantile_s(job, 1 - risk) * tau,
            deadline_in_s=job.deadline_s - now_s,
            closes_in_s=closes_in_s,
            checkpoint_s=job.checkpoint_s if job.preemptible else NAN,
        )
        for job, tau in zip(jobs, relative_times.tolist(), strict=True)
    )


def tolerable_slowdown(runtime_s: Floats, time_limit_s: Floats, partner_s: Floats | float) -> Floats:
    """The slowdown up to which a job of `runtime_s` alone ends within its limit, beside a job gone after `partner_s`.

    Slowed down s times it ends at runtime · s where the partner stays, else at runtime + partner (1 - 1/s). NaN where
    there is no limit.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        spare_s = time_limit_s - runtime_s
        outlasting = np.where(spare_s >= partner_s, np.inf, 1.0 / (1.0 - spare_s / partner_s))
        staying = time_limit_s / runtime_s
        return np.asarray(np.where(spare_s >= 0, np.fmax(staying, outlasting), staying))


def pair_ends_s(first_s: Floats, second_s: Floats, first_slowdown: Floats, second_slowdown: Floats) -> list[Floats]:
    """Return when each of two jobs ends that start together: slowed down until the other ends, then alone.

    `first_s` and `second_s`: seconds that each takes alone.
    """
    together_s = np.minimum(first_s * first_slowdown, second_s * second_slowdown)
    return [
        together_s + np.maximum(0.0, first_s - together_s / first_slowdown),
        together_s + np.maximum(0.0, second_s - together_s / second_slowdown),
    ]


def remaining_quantile_s(job: Job, level: float) -> float:
    """A quantile of the seconds that remain, alone on the fastest device type; NaN where unknown."""
    if math.isnan(job.remaining_p90_s) or not job.remaining_s > 0:
        return job.remaining_s
    return float(job.remaining_s * (job.remaining_p90_s / job.remaining_s) ** (NormalDist().inv_cdf(level) / P90_Z))


def remaining_cases_s(jobs: Sequence[Job]) -> list[Floats]:
    """float64[n] each: what remains of each job in equally likely cases, alone on its fastest device type."""
    uncertain = any(not math.isnan(job.remaining_p90_s) for job in jobs)
    levels = REMAINING_LEVELS if uncertain else (0.5,)
    return [np.array([remaining_quantile_s(job, level) for job in jobs], dtype=np.float64) for level in levels]


def relative_checkpoint_losses(jobs: Sequence[Job], alone: Sequence[Runtime]) -> Floats:
    """Return float64[n]: the checkpoint cost that the closing of the device causes each job, relative to its
    remaining_s; 0 where unknown."""
    shares = [
        runtime.checkpoint_loss_s / job.remaining_s if job.remaining_s > 0 else 0.0
        for job, runtime in zip(jobs, alone, strict=True)
    ]
    return np.array(shares, dtype=np.float64)


def ageing(jobs: Sequence[Job], ageing_s: float) -> Floats:
    """Return float64[n]: the factor by which waiting raises a job's weight.

    It is 1, plus 1 for each `ageing_s` waited from the period `AGEING_BEGINS` on.

    At most `MAX_AGEING`, in whole steps: among jobs that have waited about as long, costs still decide. 1 where
    elapsed_s is not known, and for all jobs where `ageing_s` is 0.
    """
    elapsed_s = np.array([job.elapsed_s for job in jobs], dtype=np.float64)
    if ageing_s == 0:
        return np.ones(len(jobs))
    periods = np.floor(np.nan_to_num(elapsed_s) / ageing_s)
    return np.asarray(np.minimum(MAX_AGEING, 1.0 + np.maximum(0.0, periods - (AGEING_BEGINS - 1))))


def start_weights(jobs: Sequence[Job], now_s: float, ageing_s: float) -> Floats:
    """Return float64[n]: the weight by which jobs of one priority compete for starts.

    It approaches twice the job's weight as its deadline comes near.

    w (1 + 1 / (1 + laxity in hours)), laxity = deadline - now - remaining_s ≥ 0; w without a deadline. So a job that
    can still meet its deadline goes before one that has none, the least laxity first, and never before two such jobs.
    All that times `ageing`.
    """
    weight = weights(jobs) * ageing(jobs, ageing_s)
    for i, job in enumerate(jobs):
        if not math.isnan(job.deadline_s):
            laxity_s = max(0.0, job.deadline_s - now_s - job.remaining_s)
            weight[i] *= 1.0 + 1.0 / (1.0 + laxity_s / HOUR_S)
    return weight


def opening_times(device: Device, now_s: float) -> tuple[float, float]:
    """Seconds for which a device stays open (inf: always, 0: it is closed), and until it opens (inf: never)."""
    for from_s, until_s in spans(device.windows):
        if now_s < from_s:
            return 0.0, from_s - now_s
        if now_s < until_s or not device.windows:
            return until_s - now_s if device.windows else math.inf, 0.0
    return 0.0, math.inf
