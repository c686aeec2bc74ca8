"""How far each job may be slowed down, and which rule says so: of several caps the tightest binds.

A cap holds on the quantile 1 - risk of the predicted slowdown. There are five: the job's own, the request's, the one
that a job holds against partners of lower priority, what a latency target leaves (target ÷ time of one request alone
on this device type), and what a deadline, or a device that closes, leaves beside a co-located job that runs for as long
as it could (`runtime.tolerable_slowdown`). A job that misses its latency target even alone, or whose request time is
unknown on the device type, shares with no job.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.pair_rules import Bools, RuleGroup
from interfere.policy.rules.runtime import TICK_S, Runtime, tolerable_slowdown
from interfere.records import NAN, Job, JobProfile, Limits, Rule, RuleKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownCaps:
    """The caps of n jobs against m partners that do not depend on time; NaN for a cap that is not set."""

    own: Floats  # float64[n]: max_slowdown of the job
    request: float
    protected: float  # against partners of lower priority
    priority: Ints  # int64[n]
    partner_priority: Ints  # int64[m]
    latency: Floats  # float64[n]: 0 where no co-located job is possible

    @classmethod
    def of(
        cls, jobs: Sequence[Job], profiles: Sequence[JobProfile | None], partners: Sequence[Job], limits: Limits
    ) -> "SlowdownCaps":
        """The caps of jobs, with their profiles on the device type, against partners."""
        return cls(
            own=np.array([job.max_slowdown for job in jobs], dtype=np.float64),
            request=limits.slowdown.max_slowdown,
            protected=limits.slowdown.protected_slowdown,
            priority=np.array([job.priority for job in jobs], dtype=np.int64),
            partner_priority=np.array([job.priority for job in partners], dtype=np.int64),
            latency=np.array([_latency_cap(j, p) for j, p in zip(jobs, profiles, strict=True)], dtype=np.float64),
        )

    def tightest(self) -> Floats:
        """float64[n, m] or float64[n, 1], the tightest cap of each job against each partner; inf without any."""
        own = np.fmin(np.fmin(np.fmin(self.own, self.latency), self.request), np.inf)
        if math.isnan(self.protected):
            return np.asarray(own[:, None])
        protects = self.priority[:, None] > self.partner_priority
        return np.minimum(own[:, None], np.where(protects, self.protected, np.inf))

    def each(self, jobs: Ints, partners: Ints, time_cap: Floats) -> Floats:
        """float64[5, k]: the caps of k pairs in the order of `_KINDS`; `time_cap` float64[k] is the fifth."""
        protects = self.priority[jobs] > self.partner_priority[partners]
        return np.stack(
            [
                self.own[jobs],
                np.full(len(jobs), self.request),
                np.where(protects, self.protected, np.nan),
                self.latency[jobs],
                time_cap,
            ]
        )


# In the order of `SlowdownCaps.each`; None for the cap of a deadline or window, whose kind the runtime tells.
_KINDS = (
    RuleKind.JOB_SLOWDOWN_CAP,
    RuleKind.REQUEST_SLOWDOWN_CAP,
    RuleKind.PROTECTED_SLOWDOWN,
    RuleKind.LATENCY_TARGET,
    None,
)


@dataclass(frozen=True, kw_only=True)
class SlowdownCapRule:
    """The caps of one side of the pairs: of the row jobs against the column jobs, or the other way round.

    All arrays have the capped jobs in their rows and their partners in their columns.
    """

    jobs: Sequence[Job]
    partners: Sequence[Job]
    profiles: Sequence[JobProfile | None]
    runtimes: Sequence[Runtime]
    caps: SlowdownCaps
    time_cap: Floats  # float64[n, m], what deadlines and windows leave; NaN for no cap
    upper: Floats  # float64[n, m], the quantile 1 - risk of the slowdown
    risk: float
    caps_columns: bool  # are the capped jobs the columns of the pairs?

    @cached_property
    def mask(self) -> Bools:
        """bool[r, c]: could the job pass the tightest of its caps?"""
        past = np.asarray(self.upper > np.fmin(self.caps.tightest(), self.time_cap))
        return past.T if self.caps_columns else past

    def rule(self, row: int, column: int) -> Rule:
        """The tightest cap, and the slowdown that the job could reach."""
        i, j = (column, row) if self.caps_columns else (row, column)
        caps = self.caps.each(np.array([i]), np.array([j]), self.time_cap[i, [j]])[:, 0]
        tightest = int(np.nanargmin(caps))
        job, partner, runtime, kind = self.jobs[i], self.partners[j], self.runtimes[i], _KINDS[tightest]
        unreachable = latency_rule(job, self.profiles[i]) if kind is RuleKind.LATENCY_TARGET else None
        if unreachable is not None:
            return unreachable
        protected, latency = kind is RuleKind.PROTECTED_SLOWDOWN, kind is RuleKind.LATENCY_TARGET
        profile = self.profiles[i]
        kind = kind or _time_kind(runtime)
        deadline, window = kind is RuleKind.DEADLINE, kind is RuleKind.WINDOW
        return Rule(
            kind=kind,
            job_id=job.id,
            partner_id=partner.id,
            slowdown=float(self.upper[i, j]),
            slowdown_cap=float(caps[tightest]),
            risk=self.risk,
            priority=job.priority if protected else None,
            partner_priority=partner.priority if protected else None,
            latency_target_s=job.latency_target_s if latency else NAN,
            step_time_s=profile.step_time_s if latency and profile else NAN,
            runtime_s=runtime.pessimistic_s if deadline or window else NAN,
            time_left_s=runtime.deadline_limit_s if deadline else NAN,
            closes_in_s=runtime.closes_in_s if window else NAN,
        )

    def groups(self, row: int, columns: Sequence[int]) -> Sequence[RuleGroup]:
        """The kind of the tightest cap of each pair."""
        if not columns:
            return ()
        others, same = np.asarray(columns), np.full(len(columns), row)
        jobs, partners = (others, same) if self.caps_columns else (same, others)
        tightest = np.nanargmin(self.caps.each(jobs, partners, self.time_cap[jobs, partners]), axis=0)
        return [
            RuleGroup(_KINDS[k] or _time_kind(self.runtimes[i]))
            for k, i in zip(tightest.tolist(), jobs.tolist(), strict=True)
        ]


def time_caps(runtimes: Sequence[Runtime], partners: Sequence[Runtime], partner_upper: Floats) -> Floats:
    """float64[n, m], the cap that its deadline and the device's closing give each job beside each; NaN for none.

    `partner_upper` float64[n, m]: how far the partner could be slowed down, so how long it could stay.
    """
    pessimistic_s, limit_s = (
        np.array([getattr(runtime, name) for runtime in runtimes])[:, None]
        for name in ("pessimistic_s", "time_limit_s")
    )
    alone_s = np.array([partner.pessimistic_s for partner in partners], dtype=np.float64)
    partner_s = np.nan_to_num(alone_s, nan=np.inf) * partner_upper
    return tolerable_slowdown(pessimistic_s, limit_s + TICK_S, partner_s)


def latency_rule(job: Job, profile: JobProfile | None) -> Rule | None:
    """Why the latency target of a job leaves it no co-located job at all; None where it may share."""
    if np.isnan(job.latency_target_s) or profile is None or job.latency_target_s >= profile.step_time_s:
        return None
    return Rule(
        kind=RuleKind.LATENCY_TARGET,
        job_id=job.id,
        workload=job.workload,
        latency_target_s=job.latency_target_s,
        step_time_s=profile.step_time_s,
    )


def _latency_cap(job: Job, profile: JobProfile | None) -> float:
    """Target ÷ time alone; 0 where no co-located job is possible, NaN without a target."""
    if np.isnan(job.latency_target_s):
        return np.nan
    if profile is None or latency_rule(job, profile):
        return 0.0
    return job.latency_target_s / profile.step_time_s


def _time_kind(runtime: Runtime) -> RuleKind:
    """Does the window or the deadline leave the job less time?"""
    if runtime.time_limit_s < runtime.deadline_limit_s or math.isnan(runtime.deadline_in_s):
        return RuleKind.WINDOW
    return RuleKind.DEADLINE
