"""How far each job may be slowed down, and which rule says so: of several caps the tightest binds.

A cap holds on the quantile 1 - risk of the predicted slowdown. There are five: the job's own, the request's, the one
that a job holds against partners of lower priority, what a latency target leaves (target ÷ time of one request alone
on this device type; where the p99 of a service is known alone and predicted, the p99 takes the place of the mean), and
what a deadline, or a device that closes, leaves beside a co-located job that runs for as long as it could
(`runtime.tolerable_slowdown`). A job that misses its latency target even alone, or whose request time is unknown on the
device type, shares with no job.

A step of a service holds many requests, so its p99 alone can be a tenth of the time of a step. Where the p99 decides,
the time of a step says nothing of the target.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.pair_rules import Bools, Group, RuleGroup
from interfere.policy.rules.runtime import TICK_S, Runtime, tolerable_slowdown
from interfere.records import NAN, Job, JobProfile, Limits, Rule, RuleKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownCaps:
    """The caps of n jobs beside one another that do not depend on time; NaN for a cap that is not set."""

    own: Floats  # float64[n]: max_slowdown of the job
    request: float
    protected: float  # against partners of lower priority
    priority: Ints  # int64[n]
    latency: Floats  # float64[n]: latency target ÷ time of a step alone; 0 where that is unknown

    @classmethod
    def of(cls, jobs: Sequence[Job], profiles: Sequence[JobProfile | None], limits: Limits) -> "SlowdownCaps":
        """The caps of jobs, with their profiles on the device type."""
        return cls(
            own=np.array([job.max_slowdown for job in jobs], dtype=np.float64),
            request=limits.slowdown.max_slowdown,
            protected=limits.slowdown.protected_slowdown,
            priority=np.array([job.priority for job in jobs], dtype=np.int64),
            latency=np.array([_latency_cap(j, p) for j, p in zip(jobs, profiles, strict=True)], dtype=np.float64),
        )

    @property
    def has_targets(self) -> bool:
        """Has some job a latency target?"""
        return bool(np.isfinite(self.latency).any())

    @property
    def any_is_set(self) -> bool:
        """May a cap bind?"""
        set_for_jobs = np.isfinite(self.own).any() or self.has_targets
        protects = not math.isnan(self.protected) and len(set(self.priority.tolist())) > 1
        return bool(set_for_jobs) or not math.isnan(self.request) or protects

    def tightest(self, jobs: Ints, partners: Ints) -> Floats:
        """float64[...], the tightest cap of each job against each partner, latency targets aside; inf without any."""
        own = np.fmin(np.fmin(self.own, self.request), np.inf)[jobs]
        if math.isnan(self.protected):
            return np.asarray(own)
        protects = self.priority[jobs] > self.priority[partners]
        return np.minimum(own, np.where(protects, self.protected, np.inf))

    def each(self, jobs: Ints, partners: Ints, time_cap: Floats) -> Floats:
        """float64[5, k]: the caps of k pairs in the order of `_KINDS`; `time_cap` float64[k] is the fifth."""
        protects = self.priority[jobs] > self.priority[partners]
        return np.stack(
            [
                self.own[jobs],
                np.full(len(jobs), self.request),
                np.where(protects, self.protected, np.nan),
                self.latency[jobs],
                time_cap,
            ]
        )


P99 = "latency_p99"  # the detail of a rule that a p99 breaks
# In the order of `SlowdownCaps.each`; None for the cap of a deadline or window, whose kind the runtime tells.
_KINDS = (
    RuleKind.JOB_SLOWDOWN_CAP,
    RuleKind.REQUEST_SLOWDOWN_CAP,
    RuleKind.PROTECTED_SLOWDOWN,
    RuleKind.LATENCY_TARGET,
    None,
)


@dataclass(frozen=True, kw_only=True)
class MemberCaps:
    """The caps of one member of each group against one other member."""

    jobs: JobsOnClass
    caps: SlowdownCaps
    members: Ints  # int64[...]: places of the capped members
    partners: Ints
    time_cap: Floats  # float64[...], what deadlines and windows leave beside the whole group; NaN for no cap
    upper: Floats  # float64[...], the quantile 1 - risk of the slowdown in the whole group
    latency_s: Floats  # float64[...], that of the latency of a request, no less than alone; NaN where none has a target
    is_p99: Bools  # bool[...]: is that latency the p99? else the mean
    risk: float

    @cached_property
    def mask(self) -> Bools:
        """Return bool[...]: whether the member could exceed the tightest of its caps."""
        past = self.upper > np.fmin(self.caps.tightest(self.members, self.partners), self.time_cap)
        return np.asarray(past | (self._latency_slowdown > self.caps.latency[self.members]))

    @cached_property
    def _latency_slowdown(self) -> Floats:
        """float64[...]: the latency ÷ the time of a step alone, as its cap; where it is not known, `upper`."""
        step_s = np.array([np.nan if profile is None else profile.step_time_s for profile in self.jobs.profiles])
        slowdown = self.latency_s / step_s[self.members]
        return np.where(np.isnan(slowdown), self.upper, slowdown)

    @staticmethod
    def _binding(caps: Floats, upper: Floats, latency: Floats) -> Ints:
        """int64[k]: which of the caps, float64[5, k], each member passes by the largest factor."""
        with np.errstate(divide="ignore"):  # a latency target that nothing can keep is a cap of 0
            return np.asarray(np.nanargmax(np.stack([upper, upper, upper, latency, upper]) / caps, axis=0))

    def rule(self, *group: int) -> Rule:
        """The tightest cap, and the slowdown that the member of one group could reach."""
        *before, last = group
        members, partners, upper, latency_slowdown, time_cap, is_p99 = self._at(*before, [last])
        i, j = int(members[0]), int(partners[0])
        caps = self.caps.each(members, partners, time_cap)
        tightest = int(self._binding(caps, upper, latency_slowdown)[0])
        job, partner, runtime, kind = self.jobs.jobs[i], self.jobs.jobs[j], self.jobs.runtimes[i], _KINDS[tightest]
        profile = self.jobs.profiles[i]
        by_p99 = bool(is_p99[0])
        unreachable = latency_rule(job, profile, by_p99=by_p99) if kind is RuleKind.LATENCY_TARGET else None
        if unreachable is not None:
            return unreachable
        protected, latency = kind is RuleKind.PROTECTED_SLOWDOWN, kind is RuleKind.LATENCY_TARGET
        kind = kind or _time_kind(runtime)
        deadline, window = kind is RuleKind.DEADLINE, kind is RuleKind.WINDOW
        return Rule(
            kind=kind,
            job_id=job.id,
            partner_id=partner.id,
            slowdown=float((latency_slowdown if latency else upper)[0]),
            slowdown_cap=float(caps[tightest, 0]),
            risk=self.risk,
            priority=job.priority if protected else None,
            partner_priority=partner.priority if protected else None,
            latency_target_s=job.latency_target_s if latency else NAN,
            detail=P99 if latency and by_p99 else "",
            step_time_s=profile.step_time_s if latency and profile else NAN,
            runtime_s=runtime.pessimistic_s if deadline or window else NAN,
            time_left_s=runtime.deadline_limit_s if deadline else NAN,
            closes_in_s=runtime.closes_in_s if window else NAN,
        )

    def groups(self, row: int, columns: Sequence[int]) -> Sequence[RuleGroup]:
        """The kind of the tightest cap of each pair of one row."""
        if not columns:
            return ()
        jobs, partners, upper, latency, time_cap, _ = self._at(row, list(columns))
        tightest = self._binding(self.caps.each(jobs, partners, time_cap), upper, latency)
        return [
            RuleGroup(_KINDS[k] or _time_kind(self.jobs.runtimes[i]))
            for k, i in zip(tightest.tolist(), jobs.tolist(), strict=True)
        ]

    def _at(self, *group: int | list[int]) -> tuple[Ints, Ints, Floats, Floats, Floats, Bools]:
        """Of some groups the members, the partners, the upper slowdowns, those of latencies, the time caps, and whether
        the latencies are p99s."""
        members, partners, upper, latency, time_cap, is_p99 = np.broadcast_arrays(
            self.members, self.partners, self.upper, self._latency_slowdown, self.time_cap, self.is_p99
        )
        return members[group], partners[group], upper[group], latency[group], time_cap[group], is_p99[group]


def time_caps(jobs: JobsOnClass, group: Group, upper: Sequence[Floats]) -> list[Floats]:
    """float64[...] each: the cap that its deadline and the device's closing give each member; NaN for none.

    They are kept beside company that stays as long as the longest member of it could, slowed down by `upper`.
    """
    pessimistic_s, limit_s = (
        np.array([getattr(runtime, name) for runtime in jobs.runtimes]) for name in ("pessimistic_s", "time_limit_s")
    )
    stays_s = [np.nan_to_num(pessimistic_s, nan=np.inf)[member] * up for member, up in zip(group, upper, strict=True)]
    caps = []
    for a, member in enumerate(group):
        others_s = np.maximum.reduce(np.broadcast_arrays(*(each for b, each in enumerate(stays_s) if b != a)))
        caps.append(tolerable_slowdown(pessimistic_s[member], limit_s[member] + TICK_S, others_s))
    return caps


def latency_rule(job: Job, profile: JobProfile | None, *, by_p99: bool) -> Rule | None:
    """Return the rule by which the latency target of a job excludes any co-located job; None where it may share.

    The target is missed even alone where it is less than the time of a step or, `by_p99` and where that is known, less
    than the p99 alone.
    """
    if np.isnan(job.latency_target_s) or profile is None:
        return None
    by_p99 = by_p99 and not math.isnan(profile.latency_p99_s)
    alone_s = profile.latency_p99_s if by_p99 else profile.step_time_s
    if job.latency_target_s >= alone_s:
        return None
    return Rule(
        kind=RuleKind.LATENCY_TARGET,
        job_id=job.id,
        workload=job.workload,
        latency_target_s=job.latency_target_s,
        step_time_s=alone_s,
        detail=P99 if by_p99 else "",
    )


def _latency_cap(job: Job, profile: JobProfile | None) -> float:
    """Target ÷ time of a step alone; 0 where that is unknown, NaN without a target."""
    if np.isnan(job.latency_target_s):
        return np.nan
    if profile is None or math.isnan(profile.step_time_s):
        return 0.0
    return job.latency_target_s / profile.step_time_s


def _time_kind(runtime: Runtime) -> RuleKind:
    """Does the window or the deadline leave the job less time?"""
    if runtime.time_limit_s < runtime.deadline_limit_s or math.isnan(runtime.deadline_in_s):
        return RuleKind.WINDOW
    return RuleKind.DEADLINE
