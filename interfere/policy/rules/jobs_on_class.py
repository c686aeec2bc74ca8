"""Jobs on one device class: what is known of each there before anything is said of pairs, and whether it may start."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.pair_rules import Bools, PairRule, RuleGroup
from interfere.policy.rules.runtime import UNLIMITED, Runtime, remaining_quantile_s, runtimes
from interfere.records import NAN, Job, JobProfile, MemoryDemand, Rule, RuleKind


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


def start_rules(rows: Sequence[Rule | None], columns: Sequence[Rule | None]) -> PairRule:
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
    return PairRule.of_pairs(mask, rule, lambda row, column: RuleGroup(rule(row, column).kind))


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

    @cached_property
    def start_rules(self) -> tuple[Rule | None, ...]:
        """Return, for each job, the rule (memory aside) that forbids its start there; None where it may start."""
        pairs = zip(self.jobs, self.runtimes, strict=True)
        return tuple(start_rule(job, runtime, self.device_class) for job, runtime in pairs)

    def memory_rule(self, i: int) -> Rule | None:
        """Return the rule by which job i does not fit into the memory even alone; None where it fits."""
        return solo_memory_rule(self.jobs[i].id, self.demands[i], self.device_class.memory)

    def solo_rule(self, i: int) -> Rule | None:
        """Return the rule that forbids job i to start there even alone; None where it may start."""
        return self.start_rules[i] or self.memory_rule(i)

    def subset(self, places: Sequence[int]) -> "JobsOnClass":
        """Some of the jobs, in another order."""
        return JobsOnClass(
            device_class=self.device_class,
            jobs=tuple(self.jobs[k] for k in places),
            profiles=tuple(self.profiles[k] for k in places),
            relative_times=self.relative_times[list(places)],
            demands=tuple(self.demands[k] for k in places),
            runtimes=tuple(self.runtimes[k] for k in places),
        )


def seconds_alone(job: Job, device_class: DeviceClass, level: float, context: PlanningContext) -> float:
    """Return a quantile of the seconds that a job still takes alone on a device class; NaN where unknown, and infinity
    where its pools or its memory forbid it at any time."""
    if job.pools and device_class.pool not in job.pools:
        return math.inf
    if solo_memory_rule(job.id, context.demand(job, device_class), device_class.memory) is not None:
        return math.inf
    return remaining_quantile_s(job, level) * float(context.relative_times_on(device_class.type, [job])[0])
