"""Jobs on one device class: what is known of each there, whether it may start, and how far it may be slowed down.

A cap holds on the quantile 1 - risk of the predicted slowdown. There are five: the job's own, the request's, the one
that a job holds against partners of lower priority, what a latency target leaves (target ÷ time of one request alone
on this device type; where the p99 of a service is known alone and predicted, the p99 takes the place of the mean), and
what a deadline, or a device that closes, leaves beside a co-located job that runs for as long as it could
(`runtime.tolerable_slowdown`). Of several caps the tightest binds. A job that misses its latency target even alone, or
whose request time is unknown on the device type, shares with no job.

A step of a service holds many requests, so its p99 alone can be a tenth of the time of a step. Where the p99 decides,
the time of a step says nothing of the target.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.group_rules import Bools, Group, GroupRule, RuleGroup
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.runtime import (
    TICK_S,
    UNLIMITED,
    Runtime,
    remaining_quantile_s,
    runtimes,
    tolerable_slowdown,
)
from interfere.records import NAN, Job, JobProfile, Limits, MemoryDemand, Rule, RuleKind


def availability_rule(job: Job, device_class: DeviceClass) -> Rule | None:
    """Return the rule that forbids a job to start there now, however long it runs; None where it may start."""
    if job.pools and device_class.pool not in job.pools:
        return Rule(
            kind=RuleKind.POOL,
            job_id=job.id,
            pools=job.pools,
            pool=device_class.pool,
            device_type=device_class.type,
        )
    if device_class.open_s > 0:
        return None
    return Rule(
        kind=RuleKind.DEVICE_CLOSED,
        job_id=job.id,
        pool=device_class.pool,
        device_type=device_class.type,
        opens_in_s=device_class.opens_s if math.isfinite(device_class.opens_s) else NAN,
    )


def start_rule(job: Job, runtime: Runtime, device_class: DeviceClass) -> Rule | None:
    """Return the rule, memory aside, that forbids a job to start there with or without co-located jobs; None where it
    may start."""
    return availability_rule(job, device_class) or runtime.blocking_rule(
        job.id, pool=device_class.pool, device_type=device_class.type
    )


def start_rules(rows: Sequence[Rule | None], columns: Sequence[Rule | None]) -> GroupRule:
    """Return the rule on the pairs of which one job may not start on the device class.

    `rows`, `columns`: the `start_rule` of each job; None for residents, which run there already.
    """
    forbidden = (np.array([rule is not None for rule in rules], dtype=bool) for rules in (rows, columns))
    row_forbidden, column_forbidden = forbidden

    def rule(row: int, column: int) -> Rule:
        """Return the row job's rule before that of the column job."""
        found = rows[row] or columns[column]
        assert found is not None
        return found

    mask = row_forbidden[:, None] | column_forbidden
    return GroupRule.of_pairs(mask, rule, lambda row, column: RuleGroup(rule(row, column).kind))


@dataclass(frozen=True, kw_only=True)
class JobsOnClass:
    """Pending and running jobs (n) with their demands on one device class."""

    device_class: DeviceClass
    jobs: tuple[Job, ...]
    profiles: tuple[JobProfile | None, ...]
    relative_times: NDArray[np.float64]  # float64[n]: τ
    demands: tuple[MemoryDemand, ...]
    runtimes: tuple[Runtime, ...]  # UNLIMITED where no deadline and no window plays a part

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        device_class: DeviceClass,
        context: PlanningContext,
        relative_times: NDArray[np.float64],
        *,
        timed: bool,
    ) -> "JobsOnClass":
        """Look the jobs up. `timed`: does a deadline or a window play a part?"""
        risk = context.limits.slowdown.risk
        return cls(
            device_class=device_class,
            jobs=tuple(jobs),
            profiles=tuple(context.profile(job, device_class.type) for job in jobs),
            relative_times=relative_times,
            demands=tuple(context.demand(job, device_class) for job in jobs),
            runtimes=runtimes(jobs, relative_times, device_class.open_s, context.now_s, risk)
            if timed
            else (UNLIMITED,) * len(jobs),
        )

    @cached_property
    def alone_s(self) -> NDArray[np.float64]:
        """float64[n]: median seconds to the end of each job alone; NaN where unknown."""
        return np.array([job.remaining_s for job in self.jobs], dtype=np.float64) * self.relative_times

    @cached_property
    def profiled(self) -> Bools:
        """bool[n]: has the job a profile on the device type?"""
        return np.array([profile is not None for profile in self.profiles], dtype=bool)

    def start_rule(self, i: int) -> Rule | None:
        """Return the rule, memory aside, that forbids job i to start there; None where it may start."""
        return start_rule(self.jobs[i], self.runtimes[i], self.device_class)

    def memory_rule(self, i: int) -> Rule | None:
        """Return the rule by which job i does not fit into the memory even alone; None where it fits."""
        return solo_memory_rule(self.jobs[i].id, self.demands[i], self.device_class.memory)

    def solo_rule(self, i: int) -> Rule | None:
        """Return the rule that forbids job i to start there even alone; None where it may start."""
        return self.start_rule(i) or self.memory_rule(i)


def seconds_alone(job: Job, device_class: DeviceClass, level: float, context: PlanningContext) -> float:
    """Return a quantile of the seconds that a job still takes alone on a device class; NaN where unknown, and infinity
    where its pools or its memory forbid it at any time."""
    if job.pools and device_class.pool not in job.pools:
        return math.inf
    if solo_memory_rule(job.id, context.demand(job, device_class), device_class.memory) is not None:
        return math.inf
    return remaining_quantile_s(job, level) * float(context.relative_times_on(device_class.type, [job])[0])


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
