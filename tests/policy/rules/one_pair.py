"""Random snapshots of every kind of job, device and limit, and the rules on one pair of them in plain numbers."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.records import (
    ActionKind,
    Device,
    Job,
    JobProfile,
    Limits,
    ObjectiveKind,
    RuleKind,
    Snapshot,
    Window,
)
from tests.tables import TablePredictor, context, profile, resolver

NOW_S, TICK_S, GIB = 1000.0, 1e-3, 2.0**30
WORKLOADS = ("a", "b", "c:train", "c:serve", "d")
TYPES, UNKNOWN_TYPE = ("fast", "slow"), "unknown"
SPREAD = 1.3  # of the interval's end to the median
NEAR = 1e-6  # relative: closer than this, rounding decides


class RandomSnapshot:
    """Jobs, devices and limits of every kind, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        pairs = [(victim, neighbour) for victim in WORKLOADS for neighbour in WORKLOADS]
        self.slowdown = {pair: float(np.float32(1 + rng.gamma(1.0, 0.4))) for pair in pairs}
        for _ in range(int(rng.choice([0, 0, 1, 3]))):  # the model abstains
            self.slowdown[pairs[rng.integers(len(pairs))]] = math.nan
        self.fits = {pair: float(rng.uniform(0.6, 1.0)) for pair in pairs}
        self.profiles = {
            (name, device_type): self.profile(name, device_type)
            for name in WORKLOADS
            for device_type in (*TYPES, UNKNOWN_TYPE)
            if rng.random() < 0.9
        }
        self.memory_known = rng.random() < 0.7
        devices = [self.device(f"d{k}") for k in range(int(rng.integers(1, 5)))]
        self.snapshot = Snapshot(
            pending=tuple(self.job(f"p{k}") for k in range(int(rng.integers(1, 5)))),
            devices=tuple(devices),
            limits=self.limits(),
            now_s=NOW_S,
            objective=ObjectiveKind(rng.choice(list(ObjectiveKind))),
        )

    def maybe(self, probability: float, value: float) -> float:
        return value if self.rng.random() < probability else math.nan

    def profile(self, name: str, device_type: str) -> JobProfile:
        return replace(
            profile(name, device_type=device_type, peak_bytes=self.maybe(0.5, self.rng.uniform(1, 30) * GIB)),
            step_time_s=self.maybe(0.95, self.rng.uniform(0.01, 0.05)),
            memory_working_set_bytes=self.maybe(0.4, self.rng.uniform(1, 20) * GIB),
            static_memory_peak_bytes=self.maybe(0.3, self.rng.uniform(1, 30) * GIB),
        )

    def job(self, name: str) -> Job:
        rng, remaining_s = self.rng, float(self.rng.uniform(10, 200))
        timed = rng.random() < 0.4
        return Job(
            id=name,
            workload=str(rng.choice(WORKLOADS)),
            weight=float(rng.choice([1.0, 2.0])),
            priority=int(rng.choice([0, 1, 2])),
            max_slowdown=self.maybe(0.15, 1 + 2 * rng.random()),
            latency_target_s=self.maybe(0.15, rng.uniform(0.02, 0.1)),
            remaining_s=remaining_s,
            remaining_p90_s=self.maybe(0.5, remaining_s * 1.5),
            attained_s=float(rng.uniform(1, 50)),
            elapsed_s=float(rng.uniform(1, 99)),
            deadline_s=NOW_S + remaining_s * float(rng.uniform(0.7, 6)) if timed else math.nan,
            preemptible=bool(rng.random() < 0.4),
            checkpoint_s=self.maybe(0.7, float(rng.uniform(1, 60))),
            pools=() if rng.random() < 0.8 else (str(rng.choice(["north", "south"])),),
            memory_peak_bytes=self.maybe(0.3, rng.uniform(1, 30) * GIB),
            memory_working_set_bytes=self.maybe(0.2, rng.uniform(1, 20) * GIB),
            grant_bytes=self.maybe(0.1, rng.uniform(1, 30) * GIB),
        )

    def device(self, name: str) -> Device:
        rng = self.rng
        from_s = float(rng.choice([0.0, 0.0, 0.0, NOW_S + 20]))
        windows = (Window(from_s=from_s, until_s=NOW_S + float(rng.uniform(30, 400))),) if rng.random() < 0.3 else ()
        grants = self.memory_known and rng.random() < 0.3
        return Device(
            id=name,
            type=str(rng.choice([*TYPES, *TYPES, *TYPES, UNKNOWN_TYPE])),
            pool=str(rng.choice(["", "north", "south"])),
            memory_bytes=float(rng.choice([24, 40])) * GIB if self.memory_known else math.nan,
            granule_bytes=2 * GIB if grants else math.nan,
            oversubscription_ratio=float(rng.choice([1.0, 1.5])) if self.memory_known else 1.0,
            windows=windows,
            price_per_hour=2.0,
            power_w=300.0,
            residents=tuple(replace(self.job(f"{name}.r{k}"), pools=()) for k in range(int(rng.integers(0, 2)))),
        )

    def limits(self) -> Limits:
        rng = self.rng
        shares = rng.random() < 0.95
        return Limits.of(
            allowed=frozenset(ActionKind) - (frozenset() if shares else {ActionKind.START_SHARED}),
            soft_cap=1.5,
            max_slowdown=self.maybe(0.2, 1.2 + 2 * rng.random()),
            protected_slowdown=self.maybe(0.4, 1.1 + rng.random()),
            min_joint_throughput=float(rng.choice([0.0, 1.0, rng.uniform(0.5, 1.9)])),
            risk=float(rng.choice([0.05, 0.2, 0.5])),
            memory_headroom=float(rng.choice([0.0, 0.1])),
            misfit_risk=self.maybe(0.2, float(rng.uniform(0.05, 0.4))),
            allow_extrapolation=bool(rng.random() < 0.5),
            guest_ends_first=bool(rng.random() < 0.3),
        )

    def context(self) -> PlanningContext:
        predictor = TablePredictor(self.slowdown, spread=SPREAD, devices=TYPES, fits=self.fits)
        return context(self.snapshot, predictor, resolver(*self.profiles.values()))


class OnePair:
    """The rules on one pair, checked one by one with plain numbers: what the arrays have to agree with."""

    def __init__(self, drawn: RandomSnapshot, device_class: DeviceClass, job: Job, partner: Job, *, running: bool):
        self.drawn, self.device_class, self.running = drawn, device_class, running
        self.job, self.partner = job, partner
        self.limits = drawn.snapshot.limits
        self.is_near = False  # does rounding decide somewhere?

    def violated(self) -> set[RuleKind]:
        """Every kind of rule that forbids the pair."""
        found = set()
        if ActionKind.START_SHARED not in self.limits.allowed:
            found.add(RuleKind.ACTION_NOT_ALLOWED)
        for starting in (self.job,) if self.running else (self.job, self.partner):
            found |= self._start_violations(starting)
        known = [self._profile(one) is not None for one in (self.job, self.partner)]
        if not all(known):
            return found | {RuleKind.UNPROFILED_WORKLOAD} | self._memory_violations(predicted=False)
        if self.device_class.type == UNKNOWN_TYPE and not self.limits.allow_extrapolation:
            return found | {RuleKind.UNKNOWN_DEVICE_TYPE} | self._memory_violations(predicted=False)
        if math.isnan(self._slowdown(self.job) + self._slowdown(self.partner)):
            found.add(RuleKind.NOVEL_PAIR)
        found |= self._memory_violations(predicted=True)
        for one in (self.job, self.partner):
            found |= self._cap_violations(one)
        together = 1 / self._slowdown(self.job) + 1 / self._slowdown(self.partner)
        least = self.limits.slowdown.min_joint_throughput
        if least > 0 and not self._exceeds(together, least) and not math.isnan(together):
            found.add(RuleKind.JOINT_THROUGHPUT)
        guest_s, host_s = (self._median_runtime_s(one) * self._slowdown(one) for one in (self.job, self.partner))
        if self.running and self.limits.guest_ends_first and self._exceeds(guest_s, host_s):
            found.add(RuleKind.GUEST_ENDS_FIRST)
        return found

    def _exceeds(self, value: float, limit: float) -> bool:
        self.is_near |= math.isfinite(limit) and abs(value - limit) <= NEAR * max(abs(value), abs(limit))
        return value > limit

    def _profile(self, job: Job) -> JobProfile | None:
        return self.drawn.profiles.get((job.workload, self.device_class.type))

    def _other(self, job: Job) -> Job:
        return self.partner if job is self.job else self.job

    def _slowdown(self, job: Job) -> float:
        return self.drawn.slowdown[job.workload, self._other(job).workload]

    def _upper(self, job: Job) -> float:
        return self._slowdown(job) * SPREAD ** ((0.5 - self.limits.slowdown.risk) / 0.45)

    def _tau(self, job: Job) -> float:
        types = {device.type for device in self.drawn.snapshot.devices}
        profiles = {name: self.drawn.profiles.get((job.workload, name)) for name in types}
        times = {name: one.step_time_s for name, one in profiles.items() if one and not math.isnan(one.step_time_s)}
        own = times.get(self.device_class.type)
        return own / min(times.values()) if own else 1.0

    def _runtime_s(self, job: Job, level: float) -> float:
        spread = 1.0 if math.isnan(job.remaining_p90_s) else job.remaining_p90_s / job.remaining_s
        z = NormalDist().inv_cdf(level) / NormalDist().inv_cdf(0.9)
        return job.remaining_s * spread**z * self._tau(job)

    def _median_runtime_s(self, job: Job) -> float:
        return job.remaining_s * self._tau(job)

    def _is_interrupted(self, job: Job) -> bool:
        pessimistic_s, open_s = self._runtime_s(job, 1 - self.limits.slowdown.risk), self.device_class.open_s
        return math.isfinite(open_s) and pessimistic_s > open_s + TICK_S

    def _checkpoint_s(self, job: Job) -> float:
        return job.checkpoint_s if job.preemptible else math.nan

    def _start_violations(self, job: Job) -> set[RuleKind]:
        where, found = self.device_class, set()
        if job.pools and where.pool not in job.pools:
            found.add(RuleKind.POOL)
        if where.open_s == 0:
            found.add(RuleKind.DEVICE_CLOSED)
        checkpoint_s = self._checkpoint_s(job)
        if self._is_interrupted(job) and (math.isnan(checkpoint_s) or where.open_s <= checkpoint_s):
            found.add(RuleKind.WINDOW)
        if self._exceeds(self._runtime_s(job, self.limits.slowdown.risk), job.deadline_s - NOW_S + TICK_S):
            found.add(RuleKind.DEADLINE)
        return found

    def _needed_bytes(self, job: Job) -> float:
        known = self._profile(job)
        sizes = [job.grant_bytes, job.memory_peak_bytes]
        sizes += [known.memory_peak_bytes] if known else []
        sizes += [job.memory_working_set_bytes]
        sizes += [known.static_memory_peak_bytes, known.memory_working_set_bytes] if known else []
        return next((size for size in sizes if not math.isnan(size)), math.nan)

    def _working_set_bytes(self, job: Job) -> float:
        known = self._profile(job)
        sizes = [job.memory_working_set_bytes, known.memory_working_set_bytes if known else math.nan]
        return next((size for size in sizes if not math.isnan(size)), 0.0)

    def _granules(self, job: Job) -> int:
        needed_bytes = self._needed_bytes(job)
        return (
            0 if math.isnan(needed_bytes) else math.ceil(needed_bytes / self.device_class.memory.granule_bytes - 1e-6)
        )

    def _memory_violations(self, *, predicted: bool) -> set[RuleKind]:
        memory, both, found = self.device_class.memory, (self.job, self.partner), set()
        if memory.memory_bytes < 0:
            return found
        if memory.granule_bytes > 0:
            capacity = memory.memory_bytes * memory.oversubscription_ratio / memory.granule_bytes
            if sum(self._granules(one) for one in both) > math.floor(capacity + 1e-6):
                found.add(RuleKind.GRANT)
        capacity_bytes = memory.memory_bytes * (1 - self.limits.memory.memory_headroom)
        if memory.oversubscription_ratio > 1:
            if self._exceeds(sum(map(self._working_set_bytes, both)), capacity_bytes):
                found.add(RuleKind.WORKING_SET)
        elif self._exceeds(sum(np.nan_to_num([self._needed_bytes(one) for one in both])), capacity_bytes):
            found.add(RuleKind.MEMORY)
        misfit = 1 - self.drawn.fits[self.job.workload, self.partner.workload]
        if predicted and self._exceeds(misfit, self.limits.memory.misfit_risk):
            found.add(RuleKind.MISFIT_RISK)
        return found

    def _cap_violations(self, job: Job) -> set[RuleKind]:
        limits, upper, partner, found = self.limits.slowdown, self._upper(job), self._other(job), set()
        known = self._profile(job)
        assert known is not None
        if self._exceeds(upper, job.max_slowdown):
            found.add(RuleKind.JOB_SLOWDOWN_CAP)
        if self._exceeds(upper, limits.max_slowdown):
            found.add(RuleKind.REQUEST_SLOWDOWN_CAP)
        if job.priority > partner.priority and self._exceeds(upper, limits.protected_slowdown):
            found.add(RuleKind.PROTECTED_SLOWDOWN)
        if not math.isnan(job.latency_target_s) and not math.isnan(upper):
            too_slow = math.isnan(known.step_time_s) or job.latency_target_s < known.step_time_s
            if too_slow or self._exceeds(upper * known.step_time_s, job.latency_target_s):
                found.add(RuleKind.LATENCY_TARGET)
        return found | self._time_violations(job)

    def _time_violations(self, job: Job) -> set[RuleKind]:
        """Slowed down s times, the job ends at runtime + min(partner's runtime, s · runtime) · (1 - 1/s)."""
        level = 1 - self.limits.slowdown.risk
        runtime_s, upper, partner = self._runtime_s(job, level), self._upper(job), self._other(job)
        partner_s = self._runtime_s(partner, level) * self._upper(partner)
        end_s = runtime_s + min(partner_s, runtime_s * upper) * (1 - 1 / upper)
        interrupted, checkpoint_s = self._is_interrupted(job), self._checkpoint_s(job)
        lost_s = checkpoint_s if interrupted and not math.isnan(checkpoint_s) else 0.0
        found = set()
        if self._exceeds(end_s, job.deadline_s - NOW_S - lost_s + TICK_S):
            found.add(RuleKind.DEADLINE)
        closes_s = math.inf if interrupted else self.device_class.open_s
        if self._exceeds(end_s, closes_s + TICK_S):
            found.add(RuleKind.WINDOW)
        return found
