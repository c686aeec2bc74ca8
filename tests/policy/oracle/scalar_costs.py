"""What one group of jobs on one device class costs, job by job, in plain numbers.

The formulas are those that `interfere.policy.costs` documents, written down once more for one pair at a time, with
neither arrays nor any code of the planner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from interfere.policy.costs.paging import MEASURED
from interfere.policy.device_class import DeviceClass
from interfere.records import ActionKind, Job, ObjectiveKind
from tests.policy.oracle.random_clusters import PairOnType, RandomCluster
from tests.policy.rules.one_pair import NOW_S, SPREAD

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
MAX_OBJECTIVES = (ObjectiveKind.MAKESPAN, ObjectiveKind.FINISH_TIME_FAIRNESS)
WEIGHTED_OBJECTIVES = (ObjectiveKind.AUTO, ObjectiveKind.WEIGHTED_EXCESS, ObjectiveKind.DEADLINE_MISSES)
TIME_LOST = 1e-3
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCost:
    """What a group adds: parts (priority, cost), and the largest cost of one of its jobs."""

    parts: tuple[tuple[int, float], ...]
    largest: float


def start_weight(job: Job, ageing_s: float) -> float:
    """How much it counts that the job waits."""
    weight = job.weight
    if ageing_s > 0 and not math.isnan(job.elapsed_s):
        weight *= min(8, 1 + max(0, math.floor(job.elapsed_s / ageing_s) - 2))
    if not math.isnan(job.deadline_s):
        laxity_s = max(0.0, job.deadline_s - NOW_S - job.remaining_s)
        weight *= 1 + 1 / (1 + laxity_s / HOUR_S)
    return weight


class ScalarCosts:
    """The costs and permissions of every group of one cluster; None where a rule forbids the group."""

    def __init__(self, drawn: RandomCluster) -> None:
        self.drawn, self.limits = drawn, drawn.snapshot.limits
        terms = [(term.weight, term.kind) for term in drawn.snapshot.objective_terms]
        self.terms = terms or [(1.0, drawn.snapshot.objective)]
        self.is_max = self.terms[0][1] in MAX_OBJECTIVES
        self.is_weighted = any(kind in WEIGHTED_OBJECTIVES for _, kind in self.terms)
        self.counts_ends = self.terms[0][1] is ObjectiveKind.COMPLETION_TIME and not terms
        self.is_near = False  # does rounding decide a rule somewhere?
        self.solo = cache(self._solo)
        self.pair = cache(self._pair)
        self.beside = cache(self._beside)

    # --- groups -----------------------------------------------------------------------------------------------------

    def _solo(self, job: Job, where: DeviceClass) -> GroupCost | None:
        """A job alone on an empty device, or on its set of devices."""
        if ActionKind.START_ALONE not in self.limits.allowed or not self.may_run_alone(job, where):
            return None
        cost = self._cost(job, where, 1.0) + self._miss_price(job) * self._solo_miss(job, where)
        cost += self._second_price(job, where) * self.runtime_s(job, where)
        return GroupCost(parts=((job.priority, cost),), largest=cost)

    def _pair(self, job: Job, other: Job, where: DeviceClass) -> GroupCost | None:
        """Two pending jobs of one size on an empty device, or on one set of devices."""
        if self._is_shared_by_too_many(job) or self._violated(job, other, where) or self._violated(other, job, where):
            return None
        costs = [self._shared_cost(one, two, where) for one, two in ((job, other), (other, job))]
        parts = [(job.priority, costs[0]), (other.priority, costs[1])]
        price = self._second_price(job, where) * self._occupied_s(job, other, where)
        parts.append((max(job.priority, other.priority), price))
        return self._group(job, other, where, parts, costs)

    def _second_price(self, job: Job, where: DeviceClass) -> float:
        """Of one second for which the job's devices are occupied."""
        money = sum(share for share, kind in self.terms if kind is ObjectiveKind.COST)
        energy = sum(share for share, kind in self.terms if kind is ObjectiveKind.ENERGY)
        return job.gpus * (money * where.price_per_hour / 3600 + energy * where.power_w)

    def _occupied_s(self, job: Job, other: Job, where: DeviceClass) -> float:
        """Until both have ended: together until one does, then the other alone."""
        ahead, back = self.paged(job, other, where), self.paged(other, job, where)
        job_s, other_s = self.runtime_s(job, where), self.runtime_s(other, where)
        if job_s * ahead <= other_s * back:
            return job_s * ahead + (other_s - job_s * ahead / back)
        return other_s * back + (job_s - other_s * back / ahead)

    def _beside(self, job: Job, resident: Job, where: DeviceClass) -> GroupCost | None:
        """A pending job beside a resident of the same size; the resident counts with what is added."""
        if self._is_shared_by_too_many(job) or self._violated(job, resident, where, running=True):
            return None
        own, others = (self._shared_cost(one, two, where) for one, two in ((job, resident), (resident, job)))
        before = self._constant(resident) + self._rate(resident) * self._tau(resident, where)
        if self._miss_price(resident):
            alone, shared = self._solo_miss(resident, where), self._shared_miss(resident, job, where)
            others += self._miss_price(resident) * (max(0.0, shared - alone) - shared)
        parts = [(job.priority, own), (resident.priority, others - before)]
        longer_s = self._occupied_s(job, resident, where) - self.runtime_s(resident, where)
        parts.append((max(job.priority, resident.priority), self._second_price(job, where) * longer_s))
        return self._group(job, resident, where, parts, [own, others])

    def _group(
        self, job: Job, other: Job, where: DeviceClass, parts: list[tuple[int, float]], costs: list[float]
    ) -> GroupCost:
        price = sum(share for share, kind in self.terms if kind is ObjectiveKind.PAIRS_PAST_CAP)
        if price:
            cap = self.limits.slowdown.soft_cap
            within = math.prod(1 - self._exceedance(*two, where, cap) for two in ((job, other), (other, job)))
            parts.append((max(job.priority, other.priority), price * (1 - within)))
        return GroupCost(parts=tuple(parts), largest=max(costs))

    # --- rules ------------------------------------------------------------------------------------------------------

    def _is_shared_by_too_many(self, job: Job) -> bool:
        return self.limits.most_shared_gpus is not None and job.gpus > self.limits.most_shared_gpus

    def _violated(self, job: Job, other: Job, where: DeviceClass, *, running: bool = False) -> bool:
        rules = PairOnType(self.drawn, where, job, other, running=running)
        violated = bool(rules.violated())
        self.is_near |= rules.is_near
        return violated

    def may_run_alone(self, job: Job, where: DeviceClass) -> bool:
        """Does the job fit the device class without a neighbour, now?"""
        rules, memory = PairOnType(self.drawn, where, job, job, running=False), where.memory
        violated = bool(rules._start_violations(job))
        if memory.memory_bytes >= 0:
            if memory.granule_bytes > 0:
                granules = memory.memory_bytes * memory.oversubscription_ratio / memory.granule_bytes
                violated |= rules._granules(job) > math.floor(granules + 1e-6)
            if memory.oversubscription_ratio > 1:
                violated |= rules._exceeds(rules._working_set_bytes(job), memory.memory_bytes)
            else:
                violated |= rules._exceeds(rules._needed_bytes(job), memory.memory_bytes)
        self.is_near |= rules.is_near
        return not violated

    # --- one job ----------------------------------------------------------------------------------------------------

    def _tau(self, job: Job, where: DeviceClass) -> float:
        return PairOnType(self.drawn, where, job, job, running=False)._tau(job)

    def slowdown(self, job: Job, other: Job, where: DeviceClass) -> float:
        """Predicted median."""
        return self.drawn.slowdowns[where.type][job.workload, other.workload]

    def paging(self, jobs: Sequence[Job], where: DeviceClass) -> float:
        """The price of paging of jobs on one device: linear between what was measured, and on along the last line."""
        memory = where.memory
        if len(jobs) < 2 or memory.oversubscription_ratio <= 1 or memory.memory_bytes <= 0:
            return 1.0
        touched = 0.0
        for job in jobs:
            rules = PairOnType(self.drawn, where, job, job, running=False)
            known = rules._profile(job)
            sizes = [job.memory_working_set_bytes, known.memory_working_set_bytes if known else math.nan]
            sizes += [rules._needed_bytes(job), 0.0]
            touched += next(size for size in sizes if not math.isnan(size))
        share = max(0.0, 1 - memory.memory_bytes / touched) if touched else 0.0
        k = max(k for k, (from_share, _) in enumerate(MEASURED[:-1]) if from_share <= share)
        (low, price), (high, next_price) = MEASURED[k : k + 2]
        return price + (share - low) / (high - low) * (next_price - price)

    def paged(self, job: Job, other: Job, where: DeviceClass) -> float:
        """The predicted median, times the price of paging: what costs count."""
        return self.slowdown(job, other, where) * self.paging([job, other], where)

    def runtime_s(self, job: Job, where: DeviceClass) -> float:
        """Median seconds that remain alone there."""
        return job.remaining_s * self._tau(job, where)

    def _lost_share(self, job: Job, where: DeviceClass) -> float:
        """What the closing of the device costs the job, as a share of what remains."""
        rules = PairOnType(self.drawn, where, job, job, running=False)
        lost = rules._is_interrupted(job) and job.preemptible and not math.isnan(job.checkpoint_s)
        return job.checkpoint_s / job.remaining_s if lost else 0.0

    def _constant(self, job: Job) -> float:
        total_s = job.attained_s + job.remaining_s
        of_kind = {
            ObjectiveKind.AUTO: -job.weight,
            ObjectiveKind.WEIGHTED_EXCESS: -job.weight,
            ObjectiveKind.FINISH_TIME_FAIRNESS: job.elapsed_s / total_s,
            ObjectiveKind.DEADLINE_MISSES: -TIME_LOST * job.weight,
        }
        return sum(share * of_kind.get(kind, 0.0) for share, kind in self.terms)

    def _rate(self, job: Job) -> float:
        of_kind = {
            ObjectiveKind.AUTO: job.weight,
            ObjectiveKind.WEIGHTED_EXCESS: job.weight,
            ObjectiveKind.TOTAL_SLOWDOWN: 1.0,
            ObjectiveKind.COMPLETION_TIME: job.remaining_s,
            ObjectiveKind.MAKESPAN: job.remaining_s,
            ObjectiveKind.FINISH_TIME_FAIRNESS: job.remaining_s / (job.attained_s + job.remaining_s),
            ObjectiveKind.PAIRS_PAST_CAP: 0.0,
            ObjectiveKind.COST: 0.0,
            ObjectiveKind.ENERGY: 0.0,
            ObjectiveKind.DEADLINE_MISSES: TIME_LOST * job.weight,
        }
        return sum(share * of_kind[kind] for share, kind in self.terms)

    def _miss_price(self, job: Job) -> float:
        return sum(share * job.weight for share, kind in self.terms if kind is ObjectiveKind.DEADLINE_MISSES)

    def _cost(self, job: Job, where: DeviceClass, slowdown: float, *, running: bool = False) -> float:
        lost = 0.0 if running else self._lost_share(job, where)
        return self._constant(job) + self._rate(job) * (self._tau(job, where) * slowdown + lost)

    def _shared_cost(self, job: Job, other: Job, where: DeviceClass) -> float:
        running = any(job.id == resident.id for device in self.drawn.snapshot.devices for resident in device.residents)
        cost = self._cost(job, where, self.paged(job, other, where), running=running)
        if self.counts_ends:
            cost += self._end_beside_s(job, other, where) - self.runtime_s(job, where) * self.paged(job, other, where)
        price = self._miss_price(job)
        return cost + price * self._shared_miss(job, other, where) if price else cost

    def _end_beside_s(self, job: Job, other: Job, where: DeviceClass) -> float:
        """When the job ends that starts with another, which leaves the device to it or is left by it."""
        own_s, other_s = (self.runtime_s(one, where) for one in (job, other))
        slowdown, other_slowdown = self.paged(job, other, where), self.paged(other, job, where)
        if own_s * slowdown <= other_s * other_slowdown:
            return own_s * slowdown
        left_s = own_s - other_s * other_slowdown / slowdown
        return other_s * other_slowdown + left_s

    def floor(self, resident: Job, where: DeviceClass) -> float:
        """What a resident costs as it runs now, a neighbour that it has already left aside."""
        return self._constant(resident) + self._rate(resident) * self._tau(resident, where)

    # --- chances ----------------------------------------------------------------------------------------------------

    def _exceedance(self, job: Job, other: Job, where: DeviceClass, cap: float) -> float:
        """P(slowdown > cap), linear in log s between the levels; certain beyond the first and the last."""
        median = self.slowdown(job, other, where)
        quantiles = [math.log(np.float32(median * SPREAD ** ((level - 0.5) / 0.45))) for level in LEVELS]
        at = math.log(max(cap, np.finfo(np.float64).tiny) / self.paging([job, other], where))
        if at >= quantiles[-1]:
            return 0.0
        if at < quantiles[0]:
            return 1.0
        k = max(k for k in range(len(LEVELS) - 1) if quantiles[k] <= at)
        width = max(quantiles[k + 1] - quantiles[k], 1e-12)
        return 1 - (LEVELS[k] + (at - quantiles[k]) / width * (LEVELS[k + 1] - LEVELS[k]))

    def _cases_s(self, job: Job, where: DeviceClass) -> list[float]:
        """Ten equally likely lengths of what remains there."""
        if math.isnan(job.remaining_p90_s):
            return [self.runtime_s(job, where)]
        z = [NormalDist().inv_cdf((k + 0.5) / 10) / NormalDist().inv_cdf(0.9) for k in range(10)]
        return [self.runtime_s(job, where) * (job.remaining_p90_s / job.remaining_s) ** each for each in z]

    def _solo_miss(self, job: Job, where: DeviceClass) -> float:
        if math.isnan(job.deadline_s):
            return 0.0
        cases_s = self._cases_s(job, where)
        return sum(job.deadline_s - NOW_S < case_s for case_s in cases_s) / len(cases_s)

    def _shared_miss(self, job: Job, other: Job, where: DeviceClass) -> float:
        if math.isnan(job.deadline_s):
            return 0.0
        left_s, cases_s = job.deadline_s - NOW_S, self._cases_s(job, where)
        other_s = self.runtime_s(other, where) * self.paged(other, job, where)
        limits = []
        for case_s in cases_s:
            spare_s = left_s - case_s
            limit = left_s / case_s
            if spare_s >= other_s:
                limit = math.inf
            elif spare_s >= 0:
                limit = max(limit, 1 / (1 - spare_s / other_s))
            limits.append(limit)
        return sum(self._exceedance(job, other, where, limit) for limit in limits) / len(limits)
