"""Laws of `plan`: the best by brute force, never over memory, seats or caps, never an action that is not allowed."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.policy.answer.ranking import rank
from interfere.records import ActionKind, Device, Job, Limits, Plan, Snapshot, SolveStatus
from tests.tables import DEVICE, TablePredictor, catalogue, context, plan, profile, resolver

PRICES = {"price_per_hour": 2.0, "power_w": 300.0}
NAMES = tuple("abcdefgh")
GIB = 2.0**30


class World:
    """A random small cluster whose slowdowns, memory and weights are known."""

    def __init__(self, seed: int, *, kinds: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.table = {(v, n): float(1 + rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES}
        self.memory = {name: float(rng.integers(1, 12)) * GIB for name in NAMES}
        self.capacity = 16 * GIB
        self.spread = 1.2
        self.predictor = TablePredictor(self.table, spread=self.spread, devices=(DEVICE, "other"))
        self.resolve = resolver(
            *(
                profile(name, peak_bytes=self.memory[name], device_type=kind)
                for name in NAMES
                for kind in (DEVICE, "other")
            )
        )

        def weight() -> float:
            return float(rng.choice([1.0, 1.0, 2.0]))

        pending = tuple(
            Job(id=f"p{k}", workload=str(rng.choice(list(NAMES))), weight=weight())
            for k in range(int(rng.integers(0, 6)))
        )
        devices = []
        for k in range(int(rng.integers(1, 4))):
            jobs = tuple(
                Job(id=f"r{k}.{r}", workload=str(rng.choice(list(NAMES))), weight=weight())
                for r in range(int(rng.choice([0, 0, 1, 2])))
            )
            kind = DEVICE if kinds == 1 or rng.random() < 0.5 else "other"
            devices.append(Device(id=f"d{k}", type=kind, memory_bytes=self.capacity, residents=jobs, **PRICES))
        cap = math.nan if rng.random() < 0.5 else float(1 + rng.random())
        allowed = (
            frozenset(ActionKind) if rng.random() < 0.7 else frozenset({ActionKind.WAIT, rng.choice(list(ActionKind))})
        )
        most = None if rng.random() < 0.7 else int(rng.integers(0, 3))
        least = float(rng.choice([0.0, 1.0]))
        limits = Limits.of(allowed=allowed, max_slowdown=cap, max_devices=most, min_joint_throughput=least)
        self.snapshot = Snapshot(pending=pending, devices=tuple(devices), limits=limits)

    def plan(self, **changes: object) -> Plan:
        return plan(context(replace(self.snapshot, **changes), self.predictor, self.resolve, "d"))

    def cost(self, i: Job, j: Job) -> float:
        ahead, back = self.table[i.workload, j.workload], self.table[j.workload, i.workload]
        cap = self.snapshot.limits.slowdown.max_slowdown
        if max(ahead, back) * self.spread > cap or self.memory[i.workload] + self.memory[j.workload] > self.capacity:
            return math.inf
        if ActionKind.START_SHARED not in self.snapshot.limits.allowed:
            return math.inf
        if 0 < 1 / ahead + 1 / back <= self.snapshot.limits.slowdown.min_joint_throughput:
            return math.inf
        return i.weight * (np.float64(np.float32(ahead)) - 1) + j.weight * (np.float64(np.float32(back)) - 1)

    def brute_force(self) -> tuple[float, float]:
        """(waiting weight, cost) of the best placement, by trying them all."""
        jobs, devices = self.snapshot.pending, self.snapshot.devices
        limits, best = self.snapshot.limits, (math.inf, math.inf)
        for choice in itertools.product(range(-1, len(devices)), repeat=len(jobs)):
            cost, waiting, taken = 0.0, sum(j.weight for j, c in zip(jobs, choice, strict=True) if c < 0), 0
            for k, device in enumerate(devices):
                new = [job for job, c in zip(jobs, choice, strict=True) if c == k]
                group = [*device.residents, *new]
                if not new:
                    continue
                taken += not device.residents
                if len(group) > 2:
                    cost = math.inf
                elif len(group) == 2:
                    cost += self.cost(group[0], group[1])
                elif ActionKind.START_ALONE not in limits.allowed:
                    cost = math.inf
            if limits.max_devices is not None and taken > limits.max_devices:
                cost = math.inf
            if math.isfinite(cost):
                best = min(best, (waiting, cost))
        return best


@pytest.mark.parametrize("seed", range(150))
def test_as_good_as_trying_every_placement(seed: int) -> None:
    world = World(seed)
    found = world.plan()
    waiting = sum(
        job.weight
        for job, action in zip(world.snapshot.pending, found.actions, strict=True)
        if action.kind is ActionKind.WAIT
    )
    best_waiting, best_cost = world.brute_force()
    assert waiting == pytest.approx(best_waiting)
    assert found.cost == pytest.approx(best_cost, abs=1e-6)
    assert found.status is SolveStatus.OPTIMAL
    assert found.lower_bound == pytest.approx(found.cost)


@given(st.integers(0, 100_000))
@settings(max_examples=80, deadline=None)
def test_no_rule_of_the_snapshot_is_broken(seed: int) -> None:
    world = World(seed, kinds=2)
    found = world.plan()
    jobs = {job.id: job for job in (*world.snapshot.pending, *(r for d in world.snapshot.devices for r in d.residents))}
    company = {device.id: [r.id for r in device.residents] for device in world.snapshot.devices}
    free = {device.id for device in world.snapshot.devices if not device.residents}
    taken = set()
    for action in found.actions:
        assert action.kind in world.snapshot.limits.allowed
        assert action.reason
        if action.kind is not ActionKind.WAIT:
            company[action.device_id].append(action.job_id)
            taken |= {action.device_id} & free
    for device in world.snapshot.devices:
        group = company[device.id]
        if len(group) > len(device.residents):
            assert len(group) <= 2
            assert sum(world.memory[jobs[j].workload] for j in group) <= world.capacity
    limit = world.snapshot.limits.max_devices
    assert limit is None or len(taken) <= limit
    cap = world.snapshot.limits.slowdown.max_slowdown
    for action in found.actions:
        assert (
            math.isnan(cap)
            or action.kind is not ActionKind.START_SHARED
            or action.slowdown * world.spread <= cap + 1e-5
        )
    assert found.lower_bound <= found.cost + 1e-9
    assert [a.job_id for a in found.actions] == [j.id for j in world.snapshot.pending]


@given(st.integers(0, 100_000))
@settings(max_examples=40, deadline=None)
def test_another_idle_device_never_makes_it_worse(seed: int) -> None:
    world = World(seed)
    before = world.plan()
    more = (*world.snapshot.devices, Device(id="extra", type=DEVICE, memory_bytes=world.capacity, **PRICES))
    after = world.plan(devices=more)

    def score(found: Plan) -> tuple[float, float]:
        waits = [a.kind is ActionKind.WAIT for a in found.actions]
        return sum(j.weight for j, w in zip(world.snapshot.pending, waits, strict=True) if w), round(found.cost, 6)

    assert score(after) <= score(before)


@given(st.integers(0, 100_000), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_of_jobs_and_devices_changes_no_cost(seed: int, random: object) -> None:
    world = World(seed)
    pending, devices = list(world.snapshot.pending), list(world.snapshot.devices)
    random.shuffle(pending)
    random.shuffle(devices)
    moved = world.plan(pending=tuple(pending), devices=tuple(devices))
    assert moved.cost == pytest.approx(world.plan().cost, abs=1e-6)


def test_greedy_is_never_cheaper_when_as_many_start() -> None:
    for seed in range(60):
        found = World(seed).plan()
        waiting = sum(a.kind is ActionKind.WAIT for a in found.actions)
        if waiting == found.greedy_waiting and not any(j.weight != 1 for j in World(seed).snapshot.pending):
            assert found.greedy_cost >= found.cost - 1e-9


def test_a_workload_nobody_profiled_runs_alone_first() -> None:
    table = TablePredictor({("a", "a"): 1.1})
    devices = (Device(id="d0", type=DEVICE, residents=(Job(id="r", workload="a"),)), Device(id="d1", type=DEVICE))
    snapshot = Snapshot(pending=(Job(id="x", workload="never seen"),), devices=devices)
    (action,) = plan(context(snapshot, table, resolver(profile("a")), "d")).actions
    assert (action.kind, action.device_id) == (ActionKind.START_ALONE, "d1")
    assert "runs alone first" in action.reason
    (action,) = plan(context(replace(snapshot, devices=devices[:1]), table, resolver(profile("a")), "d")).actions
    assert action.kind is ActionKind.WAIT
    assert "no profile" in action.reason


def test_a_job_larger_than_every_device_waits_and_says_so() -> None:
    table = TablePredictor({("a", "a"): 1.1})
    snapshot = Snapshot(
        pending=(Job(id="x", workload="a", memory_peak_bytes=61 * GIB),),
        devices=(Device(id="d", type=DEVICE, memory_bytes=40 * GIB),),
    )
    (action,) = plan(context(snapshot, table, resolver(profile("a")), "d")).actions
    assert action.kind is ActionKind.WAIT
    assert action.reason == "memory: 61 GiB > 40 GiB on the largest device"


def test_refused_pairs_name_the_rule_with_numbers() -> None:
    table = TablePredictor({("a", "a"): 2.0}, spread=1.5)
    resident = Device(id="d", type=DEVICE, memory_bytes=80 * GIB, residents=(Job(id="r", workload="a"),))
    snapshot = Snapshot(pending=(Job(id="x", workload="a", max_slowdown=1.5),), devices=(resident,))
    found = plan(context(snapshot, table, resolver(profile("a")), "d"))
    assert found.refused_total == 1
    assert found.refused[0].reason == "slowdown cap of the job: x could reach 3.00 > 1.50 at risk 0.05"
    heavy = resolver(profile("a", peak_bytes=50 * GIB))
    found = plan(context(replace(snapshot, pending=(Job(id="x", workload="a"),)), table, heavy, "d"))
    assert found.refused[0].reason == "memory: 50 GiB + 50 GiB > 80 GiB"


def test_a_device_type_the_model_never_saw_hosts_jobs_alone_only() -> None:
    table = TablePredictor({("a", "a"): 1.0})
    devices = (Device(id="d", type="tpu", residents=(Job(id="r", workload="a"),)), Device(id="e", type="tpu"))
    jobs = (Job(id="x", workload="a"), Job(id="y", workload="a"))
    known = resolver(profile("a", device_type="tpu"))
    found = plan(context(Snapshot(pending=jobs, devices=devices), table, known, "d"))
    assert sorted(a.kind for a in found.actions) == [ActionKind.START_ALONE, ActionKind.WAIT]
    assert "never saw tpu" in found.refused[0].reason
    found = plan(
        context(Snapshot(pending=jobs, devices=devices, limits=Limits(allow_extrapolation=True)), table, known, "d")
    )
    assert sorted(a.kind for a in found.actions) == [ActionKind.START_ALONE, ActionKind.START_SHARED]


@pytest.mark.parametrize(
    ("pending", "devices", "field"),
    [
        ((), (), "devices"),
        (("x", "x"), (("d", ()),), "pending[1].id"),
        (("x",), (("d", ("x",)),), "pending[0].id"),
        ((), (("d", ("r",)), ("e", ("r",))), "devices[1].residents[0].id"),
        ((), (("d", ()), ("d", ())), "devices[1].id"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused_with_its_field(
    pending: tuple, devices: tuple, field: str
) -> None:
    snapshot = Snapshot(
        pending=tuple(Job(id=name, workload="a") for name in pending),
        devices=tuple(
            Device(id=name, type=DEVICE, residents=tuple(Job(id=r, workload="a") for r in jobs))
            for name, jobs in devices
        ),
    )
    with pytest.raises(InvalidInputError) as caught:
        plan(context(snapshot, TablePredictor({}), resolver(), "d"))
    assert [v.field for v in caught.value.violations] == [field]


@pytest.mark.parametrize("seed", range(40))
def test_ranking_agrees_with_the_plan_of_one_job(seed: int) -> None:
    world = World(seed)
    limits = replace(world.snapshot.limits, max_devices=None)
    for job in world.snapshot.pending[:1]:
        ranked = rank(job, world.snapshot.devices, world.predictor, catalogue(world.resolve), limits)
        assert len(ranked) == len(world.snapshot.devices)
        (action,) = world.plan(pending=(job,), limits=limits).actions
        feasible = [r for r in ranked if r.feasible]
        assert (action.kind is ActionKind.WAIT) == (not feasible)
        if feasible:
            assert feasible[0].cost == pytest.approx(action.cost, abs=1e-6)
        assert [r.cost for r in feasible] == sorted(r.cost for r in feasible)
        assert all(r.reason for r in ranked)


@given(st.integers(0, 100_000), st.floats(0.001, 0.5), st.floats(1.0, 4.0), st.floats(1.0, 4.0))
@settings(max_examples=60, deadline=None)
def test_no_chosen_pair_passes_a_cap_at_the_risk_and_a_tighter_cap_adds_none_past_it(
    seed: int, risk: float, one: float, other: float
) -> None:
    world = World(seed)
    jobs = {job.id: job for job in (*world.snapshot.pending, *(r for d in world.snapshot.devices for r in d.residents))}
    scale = world.spread ** ((0.5 - risk) / 0.45)
    tight = min(one, other)
    past = []
    for cap in (max(one, other), tight):
        found = world.plan(limits=Limits.of(max_slowdown=cap, risk=risk))
        pairs = [(jobs[p.job_id].workload, jobs[p.partner_id].workload) for p in found.pairs]
        reached = [scale * max(world.table[a, b], world.table[b, a]) for a, b in pairs]
        assert all(slowdown <= cap + 1e-5 for slowdown in reached)
        past.append(sum(slowdown > tight + 1e-5 for slowdown in reached))
    assert past[1] <= past[0]


def test_more_risk_allows_the_pair_that_less_refuses_with_the_number_that_binds() -> None:
    table = TablePredictor({("a", "a"): 1.4}, spread=1.5)
    resident = Device(id="d", type=DEVICE, residents=(Job(id="r", workload="a"),))

    def pairs(risk: float, **caps: float) -> int:
        jobs = (Job(id="x", workload="a", **caps),)
        limits = Limits.of(risk=risk)
        return len(
            plan(
                context(Snapshot(pending=jobs, devices=(resident,), limits=limits), table, resolver(profile("a")), "d")
            ).pairs
        )

    assert (pairs(0.05, max_slowdown=1.5), pairs(0.5, max_slowdown=1.5), pairs(0.05)) == (0, 1, 1)


def test_the_cap_of_one_job_does_not_bind_its_partner() -> None:
    table = TablePredictor({("a", "b"): 1.1, ("b", "a"): 3.0})
    resident = Device(id="d", type=DEVICE, residents=(Job(id="r", workload="b"),))
    snapshot = Snapshot(pending=(Job(id="x", workload="a", max_slowdown=1.2),), devices=(resident,))
    known = resolver(profile("a"), profile("b"))
    assert len(plan(context(snapshot, table, known, "d")).pairs) == 1
    strict = replace(resident, residents=(Job(id="r", workload="b", max_slowdown=1.2),))
    assert plan(context(replace(snapshot, devices=(strict,)), table, known, "d")).pairs == ()


@pytest.mark.parametrize("risk", [0.0, 0.6, math.nan])
def test_a_risk_outside_its_range_is_refused_with_its_field(risk: float) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Limits.of(risk=risk)
    assert [v.field for v in caught.value.violations] == ["risk"]
