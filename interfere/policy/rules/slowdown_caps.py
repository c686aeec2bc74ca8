"""How far each job may be slowed down, and which rule says so: of several caps the tightest binds.

A cap holds on the quantile 1 - risk of the predicted slowdown. There are five: the job's own, the request's, the one
that a job holds against partners of lower priority, what a latency target leaves: target ÷ time of one request
alone on this device type, and what a deadline, or a device that closes, leaves beside company that stays for as long
as it could (`stay.bearable`). A job that misses its target even alone, or whose time is unknown there, shares with
nobody.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.runtime import TICK_S, Stay, bearable, said
from interfere.records import Job, JobProfile, Limits

Floats = NDArray[np.float64]
MS = 1e-3  # seconds
NAMES = ("slowdown cap of the job", "slowdown cap of the request", "protected slowdown")
PROTECTED, LATENCY, TIME = 2, 3, 4  # places among the caps


def caps_of(jobs: Sequence[Job], profiles: Sequence[JobProfile | None], limits: Limits) -> Floats:
    """float64[n], the tightest of those that hold beside anybody; inf without any."""
    own = [np.fmin(job.max_slowdown, _latency_cap(job, p)) for job, p in zip(jobs, profiles, strict=True)]
    return np.fmin(np.fmin(np.array(own, dtype=np.float64), limits.slowdown.max_slowdown), np.inf)


def time_caps(stays: Sequence[Stay], partners: Sequence[Stay], partner_upper: Floats) -> Floats:
    """float64[n, m], the cap that its deadline and the device's closing give each job beside each partner, which is
    slowed down at most `partner_upper` float64[n, m] times; NaN where there is none."""
    needs_s, within_s = (np.array([getattr(one, name) for one in stays])[:, None] for name in ("most_s", "within_s"))
    return bearable(needs_s, within_s + TICK_S, _goes_s(partners) * partner_upper)


def _goes_s(stays: Sequence[Stay]) -> Floats:
    """float64[n]: until each ends alone; inf where nobody knows."""
    return np.nan_to_num(np.array([one.most_s for one in stays], dtype=np.float64), nan=np.inf)


def protected_caps(jobs: Sequence[Job], partners: Sequence[Job], limits: Limits) -> Floats | float:
    """float64[n, m], the cap of each job against each partner of lower priority; inf where there is none."""
    if np.isnan(limits.slowdown.protected_slowdown):
        return np.inf
    higher = np.array([job.priority for job in jobs])[:, None] > np.array([job.priority for job in partners])
    return np.where(higher, limits.slowdown.protected_slowdown, np.inf)


def past_cap(
    job: Job, partner: Job, profile: JobProfile | None, upper: float, limits: Limits, stay: Stay, time_cap: float
) -> str:
    """The rule that binds a job that could be slowed down `upper` times; empty when it may."""
    against = limits.slowdown.protected_slowdown if job.priority > partner.priority else np.nan
    caps = [job.max_slowdown, limits.slowdown.max_slowdown, against, _latency_cap(job, profile)]
    caps.append(time_cap)
    if np.isnan(caps).all():
        return ""
    tightest = int(np.nanargmin(caps))
    if not upper > caps[tightest]:
        return ""
    if tightest == LATENCY:
        return unreachable(job, profile) or _late(job, profile, upper, limits)
    if tightest == TIME:
        need = f"{job.id}, {said(stay.most_s)} alone, could be slowed down {upper:.2f} × by {partner.id}"
        if stay.within_s < stay.slack_s - stay.loses_s or np.isnan(stay.slack_s):
            return (
                f"window: {need}, more than {time_cap:.2f} × would outlast the device at risk {limits.slowdown.risk:g}"
            )
        left = said(stay.slack_s - stay.loses_s)
        return f"deadline: {need}, {left} leave {time_cap:.2f} × at risk {limits.slowdown.risk:g}"
    reach = (
        f"{NAMES[tightest]}: {job.id} could reach {upper:.2f} > {caps[tightest]:.2f} at risk {limits.slowdown.risk:g}"
    )
    if tightest == PROTECTED:
        reach += f" beside {partner.id} (priority {job.priority} beside {partner.priority})"
    return reach


def unreachable(job: Job, profile: JobProfile | None) -> str:
    """Why a job can share with nobody whatever its slowdown; empty when it can."""
    if np.isnan(job.latency_target_s) or profile is None:
        return ""
    target_ms, alone_ms = job.latency_target_s / MS, profile.step_time_s / MS
    if np.isnan(alone_ms):
        return f"latency target: no request time of {job.workload} alone is known: {job.id} runs alone"
    if target_ms < alone_ms:
        return f"latency target: {target_ms:.3g} ms is less than {alone_ms:.3g} ms alone: {job.id} runs alone"
    return ""


def _late(job: Job, profile: JobProfile | None, upper: float, limits: Limits) -> str:
    alone_ms = profile.step_time_s / MS if profile else np.nan
    return (
        f"latency target: {job.id} could take {alone_ms * upper:.3g} ms > {job.latency_target_s / MS:.3g} ms "
        f"({alone_ms:.3g} ms alone × {upper:.2f}) at risk {limits.slowdown.risk:g}"
    )


def _latency_cap(job: Job, profile: JobProfile | None) -> float:
    """Target ÷ time alone; 0 where no company can do, NaN without a target."""
    if np.isnan(job.latency_target_s):
        return np.nan
    if profile is None or unreachable(job, profile):
        return 0.0
    return job.latency_target_s / profile.step_time_s
