"""Random clusters whose devices have one to four seats, and every placement of groups on them, in plain numbers.

What one group costs and which rule forbids it is written down once more for one group at a time, from the slowdowns of
its pairs, with neither arrays nor any code of the planner.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist

import numpy as np

from interfere.policy.device_class import DeviceClass
from interfere.records import Job, ObjectiveKind, ObjectiveTerm
from tests.policy.oracle.exhaustive import LevelKey, Oracle
from tests.policy.oracle.random_clusters import PairOnType, RandomCluster
from tests.policy.oracle.scalar_costs import GroupCost, ScalarCosts
from tests.policy.rules.one_pair import NOW_S, SPREAD, TICK_S

GROWTH, SATURATION, MOST_FURTHER, SIZE_ERROR = 0.40, 3.1, 3, 0.13
OBJECTIVES = (
    ObjectiveKind.WEIGHTED_EXCESS,
    ObjectiveKind.WEIGHTED_EXCESS,
    ObjectiveKind.TOTAL_SLOWDOWN,
    ObjectiveKind.MAKESPAN,
    ObjectiveKind.FINISH_TIME_FAIRNESS,
)
Start = tuple[tuple[int, ...], DeviceClass | None, int, int, dict[LevelKey, float], float]


class SeatedCluster(RandomCluster):
    """A random cluster with seats, under an objective and limits that know groups."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = np.random.default_rng(10**6 + seed)
        seats = [int(rng.choice([1, 2, 3, 3, 4, 4])) for _ in self.snapshot.devices]
        if rng.random() < 0.5:  # more devices of one class
            seats = [seats[0]] * len(seats)
        if all(count == 2 for count in seats):
            seats[0] = 3
        limits = self.snapshot.limits
        terms: tuple[ObjectiveTerm, ...] = ()
        if rng.random() < 0.2:
            kinds = (ObjectiveKind.WEIGHTED_EXCESS, ObjectiveKind.TOTAL_SLOWDOWN)
            terms = tuple(ObjectiveTerm(kind=kind, weight=float(rng.choice([0.5, 1.0, 3.0]))) for kind in kinds)
        self.snapshot = replace(
            self.snapshot,
            devices=tuple(
                replace(
                    device,
                    seats=None if count == 2 and rng.random() < 0.5 and math.isnan(device.granule_bytes) else count,
                )
                for device, count in zip(self.snapshot.devices, seats, strict=True)
            ),
            limits=replace(limits, guest_ends_first=False, memory=replace(limits.memory, misfit_risk=math.nan)),
            objective=ObjectiveKind(rng.choice(list(OBJECTIVES))),
            objective_terms=terms,
        )


class FewKindsCluster(SeatedCluster):
    """A cluster with seats whose pending jobs are of two kinds and differ in their weights."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = np.random.default_rng(2 * 10**6 + seed)
        kinds = self.snapshot.pending[:2]
        pending = tuple(
            replace(kinds[k % len(kinds)], id=job.id, weight=float(rng.uniform(0.5, 4.0)))
            for k, job in enumerate(self.snapshot.pending)
        )
        objective = ObjectiveKind(rng.choice([ObjectiveKind.WEIGHTED_EXCESS, ObjectiveKind.TOTAL_SLOWDOWN]))
        self.snapshot = replace(self.snapshot, pending=pending, objective=objective)


class GroupCosts:
    """What groups of pending jobs beside residents cost; None where a rule forbids the group."""

    def __init__(self, costs: ScalarCosts) -> None:
        self.costs, self.drawn, self.limits = costs, costs.drawn, costs.limits

    def cost(self, jobs: Sequence[Job], residents: Sequence[Job], where: DeviceClass) -> GroupCost | None:
        """The cost of a group of two or more jobs in all."""
        everybody = [*jobs, *residents]
        if any(not self._may_share(job, other, where, running=False) for job, other in combinations(jobs, 2)):
            return None
        if any(not self._may_share(job, other, where, running=True) for job in jobs for other in residents):
            return None
        slowdown = {job.id: self.slowdown(job, everybody, where) for job in everybody}
        if any(math.isnan(value) for value in slowdown.values()):
            return None
        if self._too_large(everybody, where) or any(self._too_slow(job, everybody, where) for job in everybody):
            return None
        least = self.limits.slowdown.min_joint_throughput
        done = sum(1 / value for value in slowdown.values())
        if len(everybody) > 2 and least > 0 and not self._exceeds(done, least):
            return None
        parts, largest = [], -math.inf
        paging, paging_before = self.costs.paging(everybody, where), self.costs.paging(residents, where)
        for job in jobs:
            cost = self.costs._cost(job, where, slowdown[job.id] * paging)
            parts.append((job.priority, cost))
            largest = max(largest, cost)
        for job in residents:
            cost = self.costs._cost(job, where, slowdown[job.id] * paging, running=True)
            alone = self.slowdown(job, residents, where) * paging_before
            before = self.costs._cost(job, where, alone, running=True)
            parts.append((job.priority, cost - before))
            largest = max(largest, cost)
        return GroupCost(parts=tuple(parts), largest=largest)

    def slowdown(self, job: Job, everybody: Sequence[Job], where: DeviceClass) -> float:
        """The median slowdown of one job beside all the others; NaN where nothing is predicted."""
        others = [other for other in everybody if other.id != job.id]
        if not others:
            return 1.0
        if not all((one.workload, where.type) in self.drawn.profiles for one in everybody):
            return math.nan
        if where.type not in self.drawn.types and not self.limits.allow_extrapolation:
            return math.nan
        beside = [self.costs.slowdown(job, other, where) for other in others]
        if len(beside) == 1:
            return beside[0]
        excess = sum(max(value - 1, 0) for value in beside) if not any(map(math.isnan, beside)) else math.nan
        further = min(len(beside) - 1, MOST_FURTHER)
        return 1 + excess * (1 + GROWTH * further * math.exp(-SATURATION * excess / len(beside)))

    def _upper(self, job: Job, everybody: Sequence[Job], where: DeviceClass) -> float:
        """The quantile 1 - risk of that slowdown."""
        pair = math.log(SPREAD) * (0.5 - self.limits.slowdown.risk) / 0.45
        normal = NormalDist()
        scale = normal.inv_cdf(1 - self.limits.slowdown.risk) / normal.inv_cdf(0.95)
        others = len(everybody) - 1
        distance = math.sqrt(others * pair**2 + (scale * SIZE_ERROR * (others - 1)) ** 2)
        return self.slowdown(job, everybody, where) * math.exp(distance)

    def _may_share(self, job: Job, other: Job, where: DeviceClass, *, running: bool) -> bool:
        found = self.costs.beside(job, other, where) if running else self.costs.pair(job, other, where)
        return found is not None

    def _rules(self, job: Job, where: DeviceClass) -> PairOnType:
        return PairOnType(self.drawn, where, job, job, running=False)

    def _too_large(self, everybody: Sequence[Job], where: DeviceClass) -> bool:
        memory = where.memory
        if memory.memory_bytes < 0:
            return False
        rules = [self._rules(job, where) for job in everybody]
        if memory.granule_bytes > 0:
            capacity = math.floor(memory.memory_bytes * memory.oversubscription_ratio / memory.granule_bytes + 1e-6)
            if sum(rule._granules(job) for rule, job in zip(rules, everybody, strict=True)) > capacity:
                return True
        kind = "_working_set_bytes" if memory.oversubscription_ratio > 1 else "_needed_bytes"
        needed = sum(float(np.nan_to_num(getattr(rule, kind)(job))) for rule, job in zip(rules, everybody, strict=True))
        return self._exceeds(needed, memory.memory_bytes * (1 - self.limits.memory.memory_headroom))

    def _too_slow(self, job: Job, everybody: Sequence[Job], where: DeviceClass) -> bool:
        """Does the job pass one of its caps beside all the others?"""
        limits, upper = self.limits.slowdown, self._upper(job, everybody, where)
        lower_priority = any(other.priority < job.priority for other in everybody)
        found = self._exceeds(upper, job.max_slowdown) or self._exceeds(upper, limits.max_slowdown)
        found |= lower_priority and self._exceeds(upper, limits.protected_slowdown)
        if not math.isnan(job.latency_target_s):
            step_time_s = self.drawn.profiles[job.workload, where.type].step_time_s
            found |= math.isnan(step_time_s) or job.latency_target_s < step_time_s
            found |= self._exceeds(upper * step_time_s, job.latency_target_s)
        return found or self._too_late(job, upper, everybody, where)

    def _too_late(self, job: Job, upper: float, everybody: Sequence[Job], where: DeviceClass) -> bool:
        """Company stays as long as the longest of the others could."""
        level, rules = 1 - self.limits.slowdown.risk, self._rules(job, where)
        runtime_s = rules._runtime_s(job, level)
        stays_s = max(
            self._rules(other, where)._runtime_s(other, level) * self._upper(other, everybody, where)
            for other in everybody
            if other.id != job.id
        )
        end_s = runtime_s + min(stays_s, runtime_s * upper) * (1 - 1 / upper)
        interrupted, checkpoint_s = rules._is_interrupted(job), rules._checkpoint_s(job)
        lost_s = checkpoint_s if interrupted and not math.isnan(checkpoint_s) else 0.0
        found = self._exceeds(end_s, job.deadline_s - NOW_S - lost_s + TICK_S)
        return found or self._exceeds(end_s, (math.inf if interrupted else where.open_s) + TICK_S)

    def _exceeds(self, value: float, limit: float) -> bool:
        near = math.isfinite(limit) and abs(value - limit) <= 1e-6 * max(abs(value), abs(limit))
        self.costs.is_near |= near
        return value > limit


class GroupOracle(Oracle):
    """The placements of groups of a cluster with seats."""

    def _find_places(self) -> None:
        super()._find_places()
        self.group_costs = GroupCosts(self.costs)
        devices_of: dict[frozenset[str], list[str]] = {}
        residents_of: dict[frozenset[str], tuple[Job, ...]] = {}
        everywhere: dict[str, int] = {}
        for device in self.drawn.snapshot.devices:
            ids = frozenset(job.id for job in device.residents)
            residents_of[ids] = device.residents
            devices_of.setdefault(ids, []).append(device.id)
            for job in device.residents:
                everywhere[job.id] = everywhere.get(job.id, 0) + 1
        self.groups_there = [
            (residents_of[ids], self.class_of[names[0]], tuple(names))
            for ids, names in devices_of.items()
            if ids
            and len({self.class_of[name] for name in names}) == 1
            and all(job.gpus == len(names) == everywhere[job.id] for job in residents_of[ids])
            and len(ids) < self.class_of[names[0]].seats
        ]
        # The places beside residents, in the form of the pairs' oracle.
        self.seats = [(residents[0], where, names) for residents, where, names in self.groups_there]

    def _groups(self) -> Iterator[Start]:
        for gpus in {job.gpus for job in self.pending}:
            places = [i for i, job in enumerate(self.pending) if job.gpus == gpus]
            for where in self.empty:
                for size in range(1, where.seats + 1):
                    for jobs in combinations(places, size):
                        yield from self._start(jobs, (), where, gpus, -1)
            for seat, (residents, where, names) in enumerate(self.groups_there):
                if len(names) == gpus == residents[0].gpus:
                    for size in range(1, where.seats - len(residents) + 1):
                        for jobs in combinations(places, size):
                            yield from self._start(jobs, residents, where, gpus, seat)

    def _start(
        self, places: tuple[int, ...], residents: Sequence[Job], where: DeviceClass, gpus: int, seat: int
    ) -> Iterator[Start]:
        jobs = [self.pending[i] for i in places]
        if len(jobs) == 1 and not residents:
            cost = self.costs.solo(jobs[0], where)
        else:
            cost = self.group_costs.cost(jobs, residents, where)
        if cost is not None:
            empty = seat < 0
            yield places, where if empty else None, gpus if empty else 0, seat, self._parts(cost), cost.largest

    @property
    def floor(self) -> float:
        """The largest cost of a resident as it runs now."""
        floor = -math.inf
        for device in self.drawn.snapshot.devices:
            where = self.class_of[device.id]
            for job in device.residents:
                known = [one for one in device.residents if (one.workload, where.type) in self.drawn.profiles]
                slowdown = self.group_costs.slowdown(job, known, where) if job in known else 1.0
                slowdown = 1.0 if math.isnan(slowdown) else slowdown
                slowdown *= self.costs.paging(device.residents, where) if job in known else 1.0
                floor = max(floor, self.costs._cost(job, where, slowdown, running=True))
        return floor
