"""Objectives: hand-worked plans, and the best of every placement by brute force."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.records import ActionKind, Device, Job, JobProfile, Limits, ObjectiveKind, ObjectiveTerm, Plan, Snapshot
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver

NAMES = "abcd"
PRICES = {"price_per_hour": 3600.0, "power_w": 1.0}  # 1 a second
KNOWN = resolver(*(profile(name) for name in NAMES))
EMPTY = tuple(Device(id=f"d{k}", type=DEVICE, **PRICES) for k in range(2))
SLOW = "slow"  # a second device type
SOFT_CAP = 1.6

# The definitions once more, in the words of the test: cost of one job at stretch x, and how costs come together.
ONE: dict[ObjectiveKind, Callable[[Job, float], float]] = {
    ObjectiveKind.AUTO: lambda job, x: job.weight * (x - 1),  # at one moment
    ObjectiveKind.WEIGHTED_EXCESS: lambda job, x: job.weight * (x - 1),
    ObjectiveKind.TOTAL_SLOWDOWN: lambda job, x: x,
    ObjectiveKind.COMPLETION_TIME: lambda job, x: job.remaining_s * x,
    ObjectiveKind.MAKESPAN: lambda job, x: job.remaining_s * x,
    ObjectiveKind.PAIRS_PAST_CAP: lambda job, x: 0.0,
    ObjectiveKind.DEADLINE_MISSES: lambda job, x: 1e-3 * job.weight * (x - 1),  # without deadlines
    ObjectiveKind.FINISH_TIME_FAIRNESS: lambda job, x: (
        (job.elapsed_s + job.remaining_s * x) / (job.attained_s + job.remaining_s)
    ),
}
WORST = {ObjectiveKind.MAKESPAN, ObjectiveKind.FINISH_TIME_FAIRNESS}


def decided(snapshot: Snapshot, table: dict[tuple[str, str], float]) -> Plan:
    return plan(context(snapshot, TablePredictor(table), KNOWN, "d"))


def test_each_objective_chooses_its_own_pair() -> None:
    table = {(v, n): 2.0 for v in NAMES for n in NAMES}
    table |= {("a", "b"): 1.5, ("b", "a"): 1.2, ("a", "c"): 1.1, ("c", "a"): 1.9, ("b", "c"): 1.3, ("c", "b"): 1.3}
    pending = (
        Job(id="a", workload="a", weight=8.0, remaining_s=10.0, attained_s=90.0, elapsed_s=100.0),
        Job(id="b", workload="b", weight=1.0, remaining_s=10.0, attained_s=0.0, elapsed_s=0.0),
        Job(id="c", workload="c", weight=1.0, remaining_s=100.0, attained_s=100.0, elapsed_s=200.0),
    )
    found = {}
    for objective in ObjectiveKind:
        limits = Limits.of(soft_cap=1.4)
        answer = decided(Snapshot(pending=pending, devices=EMPTY, objective=objective, limits=limits), table)
        (pair,) = answer.pairs
        name = pair.job_id + pair.partner_id
        if objective is ObjectiveKind.COMPLETION_TIME and name in ("ab", "bc"):
            name = "ab or bc"
        found[objective] = (name, round(answer.cost, 4), round(answer.objective_value, 4))
    assert found == {
        # ab: 8 · .5 + .2 = 4.2, ac: 8 · .1 + .9 = 1.7, bc: .3 + .3
        ObjectiveKind.AUTO: ("bc", 0.6, 0.6),
        ObjectiveKind.WEIGHTED_EXCESS: ("bc", 0.6, 0.6),
        # ab: 1.5 + 1.2 + 1 = 3.7, ac: 1.1 + 1.9 + 1 = 4, bc: 1.3 + 1.3 + 1
        ObjectiveKind.TOTAL_SLOWDOWN: ("bc", 3.6, 3.6),
        # ab: 14 + 12 + 100 = 126, a alone after 12 s; ac: 11 + 105.2 + 10; bc: 13 + 103 + 10
        ObjectiveKind.COMPLETION_TIME: ("ab or bc", 126.0, 126.0),
        # ab: max(15, 12, 100), ac: 190, bc: 130
        ObjectiveKind.MAKESPAN: ("ab", 127.0, 100.0),
        # alone 1.1, 1, 1.5; ab: 1.15, 1.2, 1.5; ac: 1.11, 1.95; bc: 1.3, 1.65
        ObjectiveKind.FINISH_TIME_FAIRNESS: ("ab", 3.85, 1.5),
        # ab: 1.5, ac: 1.9, bc: 1.3
        ObjectiveKind.PAIRS_PAST_CAP: ("bc", 0.0, 0.0),
        # nobody has a deadline: a thousandth of the weighted excess
        ObjectiveKind.DEADLINE_MISSES: ("bc", 0.0006, 0.0006),
        # seconds until both have ended: ab 12 + 2, ac 11 + 94.2, bc 13 + 90; and the third alone
        ObjectiveKind.COST: ("bc", 113.0, 113.0),
        ObjectiveKind.ENERGY: ("bc", 113.0, 113.0),
    }


def test_the_worst_counts_first_then_the_sum() -> None:
    table = dict.fromkeys(itertools.product(NAMES, NAMES), 1.5)
    table |= {("a", "b"): 1.05, ("b", "a"): 1.05}
    jobs = [Job(id=n, workload=n, remaining_s=r) for n, r in zip("abc", (100.0, 10.0, 10.0), strict=True)]
    snapshot = Snapshot(pending=tuple(jobs), devices=EMPTY, objective=ObjectiveKind.MAKESPAN)
    answer = decided(snapshot, table)  # ab would add 5.5, but the last would be done at 105; bc adds 10
    assert [(p.job_id, p.partner_id) for p in answer.pairs] == [("b", "c")]
    assert (answer.objective_value, answer.cost, answer.lower_bound) == pytest.approx((100.0, 130.0, 100.0))
    running = Device(id="r", type=DEVICE, residents=(Job(id="r", workload="d", remaining_s=200.0),))
    answer = decided(replace(snapshot, devices=(*EMPTY, running)), dict(table) | {("d", "d"): 1.0})
    assert not answer.pairs or running.id not in [p.device_id for p in answer.pairs]
    assert [(p.job_id, p.partner_id) for p in answer.pairs] == [("a", "b")]  # 105 is below 200 anyway
    assert answer.objective_value == 200.0
    assert answer.greedy_cost == 200.0  # c beside b, one after the other


def test_terms_add_with_their_weights() -> None:
    table = dict.fromkeys(itertools.product(NAMES, NAMES), 1.5)
    jobs = tuple(Job(id=n, workload=n, weight=2.0, remaining_s=10.0) for n in "ab")
    terms = (
        ObjectiveTerm(kind=ObjectiveKind.WEIGHTED_EXCESS, weight=100.0),
        ObjectiveTerm(kind=ObjectiveKind.COMPLETION_TIME, weight=0.5),
    )
    answer = decided(Snapshot(pending=jobs, devices=EMPTY[:1], objective_terms=terms), table)
    assert answer.objective_value == answer.cost == 100 * (2 * 2 * 0.5) + 0.5 * (2 * 10 * 1.5)


@pytest.mark.parametrize("kind", sorted(WORST))
def test_the_worst_of_jobs_cannot_be_a_term(kind: ObjectiveKind) -> None:
    terms = (ObjectiveTerm(kind=ObjectiveKind.WEIGHTED_EXCESS), ObjectiveTerm(kind=kind))
    with pytest.raises(InvalidInputError) as caught:
        decided(Snapshot(pending=(), devices=EMPTY, objective_terms=terms), {})
    assert [v.field for v in caught.value.violations] == ["objective_terms[1].kind"]
    assert "weighted_excess" in caught.value.violations[0].remedy


def test_of_two_jobs_and_one_place_the_short_one_starts() -> None:
    jobs = (Job(id="long", workload="a", remaining_s=50.0), Job(id="short", workload="b", remaining_s=5.0))
    table = dict.fromkeys(itertools.product(NAMES, NAMES), 1.5)
    capped = tuple(replace(job, max_slowdown=1.2) for job in jobs)
    answer = decided(Snapshot(pending=capped, devices=EMPTY[:1], objective=ObjectiveKind.COMPLETION_TIME), table)
    assert [a.kind for a in answer.actions] == [ActionKind.WAIT, ActionKind.START_ALONE]
    assert answer.cost == 5.0


def timed(workload: str, kind: str, step_time_s: float) -> JobProfile:
    return replace(profile(workload, device_type=kind), step_time_s=step_time_s)


def test_the_job_that_gains_most_gets_the_fast_device_and_alone_on_a_slow_one_costs() -> None:
    # a takes 4 × as long on the slow type, b 1.5 ×, of c nothing is known there
    steps = {("a", DEVICE): 0.1, ("a", SLOW): 0.4, ("b", DEVICE): 0.2, ("b", SLOW): 0.3, ("c", DEVICE): 1.0}
    known = resolver(*(timed(*key, step) for key, step in steps.items()))
    devices = (Device(id="slow", type=SLOW), Device(id="fast", type=DEVICE))
    jobs = (Job(id="a", workload="a", weight=2.0), Job(id="b", workload="b"))
    predictor = TablePredictor(dict.fromkeys(itertools.product(NAMES, NAMES), 5.0), devices=(DEVICE, SLOW))
    answer = plan(context(Snapshot(pending=jobs, devices=devices), predictor, known, "d"))
    assert [a.device_id for a in answer.actions] == ["fast", "slow"]
    assert [a.cost for a in answer.actions] == pytest.approx([0.0, 0.5])
    assert answer.cost == answer.lower_bound == pytest.approx(0.5)
    swapped = (replace(jobs[0], workload="c"), jobs[1])  # unknown on the slow type: τ = 1
    answer = plan(context(Snapshot(pending=swapped, devices=devices), predictor, known, "d"))
    assert [a.device_id for a in answer.actions] == ["slow", "fast"]


def placed(group: Sequence[Job], table: dict[tuple[str, str], float], tau: Callable[[Job], float]) -> list[float]:
    """Stretch of each job of a group of one or two."""
    if len(group) == 1:
        return [tau(group[0])]
    one, other = group
    return [tau(one) * table[one.workload, other.workload], tau(other) * table[other.workload, one.workload]]


# Money and energy are no sums over jobs, and ends of a pair depend on both; tests/policy/oracle has them.
LEFT_OUT = (ObjectiveKind.COMPLETION_TIME, ObjectiveKind.COST, ObjectiveKind.ENERGY)


@pytest.mark.parametrize("objective", [*(kind for kind in ObjectiveKind if kind not in LEFT_OUT), None])
@pytest.mark.parametrize("seed", range(30))
def test_as_good_as_trying_every_placement(objective: ObjectiveKind | None, seed: int) -> None:
    """None: a weighted sum of three. Every third world has two device types."""
    rng = np.random.default_rng(seed)
    table = {pair: float(np.float32(1 + rng.gamma(1.0, 0.6))) for pair in itertools.product(NAMES, NAMES)}
    kinds = (DEVICE, SLOW) if seed % 3 == 0 else (DEVICE,)
    step = {(name, kind): float(rng.integers(1, 5)) for name in NAMES for kind in kinds}

    def job(name: str) -> Job:
        return Job(
            id=name,
            workload=str(rng.choice(list(NAMES))),
            weight=float(rng.choice([1.0, 2.0])),
            remaining_s=float(rng.integers(1, 50)),
            attained_s=float(rng.integers(0, 50)),
            elapsed_s=float(rng.integers(0, 99)),
        )

    pending = tuple(job(f"p{k}") for k in range(4))
    spare = [Device(id=f"d{k}", type=str(rng.choice(list(kinds)))) for k in range(int(rng.integers(1, 4)))]
    running = [Device(id="r", type=str(rng.choice(list(kinds))), residents=(job("r0"),))]
    if seed % 2:
        running.append(Device(id="full", type=DEVICE, residents=(job("r1"), job("r2"))))
    devices = (*running, *spare)
    types = {d.type for d in devices}

    def tau(one: Job, device: Device) -> float:
        return step[one.workload, device.type] / min(step[one.workload, kind] for kind in types)

    terms = (
        ObjectiveTerm(kind=ObjectiveKind.WEIGHTED_EXCESS, weight=3.0),
        ObjectiveTerm(kind=ObjectiveKind.COMPLETION_TIME, weight=0.2),
        ObjectiveTerm(kind=ObjectiveKind.PAIRS_PAST_CAP, weight=5.0),
    )
    a_pair_past = {ObjectiveKind.PAIRS_PAST_CAP: 1.0, None: 5.0}.get(objective, 0.0)

    def cost(one: Job, stretch: float) -> float:
        if objective is None:
            return sum(term.weight * ONE[term.kind](one, stretch) for term in terms)
        return ONE[objective](one, stretch)

    best = (math.inf, math.inf, math.inf)
    for choice in itertools.product(range(-1, len(devices)), repeat=len(pending)):
        groups = [
            (d, [*d.residents, *(j for j, c in zip(pending, choice, strict=True) if c == k)])
            for k, d in enumerate(devices)
        ]
        if any(len(group) > 2 for _, group in groups):
            continue
        waiting = sum(j.weight for j, c in zip(pending, choice, strict=True) if c < 0)
        added, worst = 0.0, -math.inf
        for device, group in groups:
            alone = [cost(r, tau(r, device)) for r in device.residents]
            worst = max([worst, *alone])
            if len(group) == len(device.residents):
                continue
            costs = [
                cost(j, x) for j, x in zip(group, placed(group, table, lambda j, d=device: tau(j, d)), strict=True)
            ]
            worst = max([worst, *costs])
            added += sum(costs) - sum(alone)
            if len(group) == 2:
                one, other = (job.workload for job in group)
                added += a_pair_past * (max(table[one, other], table[other, one]) > SOFT_CAP)
        value = worst if objective in WORST else added
        best = min(best, (waiting, round(value, 12), added))
    known = resolver(*(timed(name, kind, step[name, kind]) for name, kind in step))
    limits = Limits.of(soft_cap=SOFT_CAP, min_joint_throughput=0.0)
    snapshot = Snapshot(pending=pending, devices=devices, limits=limits)
    snapshot = replace(snapshot, objective=objective) if objective else replace(snapshot, objective_terms=terms)
    answer = plan(context(snapshot, TablePredictor(table, devices=kinds), known, "d"))
    waits = sum(j.weight for j, a in zip(pending, answer.actions, strict=True) if a.kind is ActionKind.WAIT)
    assert (waits, answer.objective_value, answer.cost) == pytest.approx(best, rel=1e-6)
    assert answer.lower_bound == pytest.approx(answer.objective_value)
    assert answer.gap == 0
    if answer.greedy_waiting == sum(a.kind is ActionKind.WAIT for a in answer.actions) == 0:
        assert answer.greedy_cost >= answer.objective_value - 1e-6


@pytest.mark.parametrize(
    ("objective", "needed"),
    [
        (ObjectiveKind.COMPLETION_TIME, ["remaining_s"]),
        (ObjectiveKind.MAKESPAN, ["remaining_s"]),
        (ObjectiveKind.FINISH_TIME_FAIRNESS, ["remaining_s", "elapsed_s", "attained_s"]),
    ],
)
def test_what_an_objective_needs_is_asked_of_every_job_by_its_field(
    objective: ObjectiveKind, needed: list[str]
) -> None:
    devices = (Device(id="d", type=DEVICE, residents=(Job(id="r", workload="a"),)),)
    snapshot = Snapshot(pending=(Job(id="x", workload="a"),), devices=devices, objective=objective)
    with pytest.raises(InvalidInputError) as caught:
        decided(snapshot, {("a", "a"): 1.1})
    fields = [v.field for v in caught.value.violations]
    assert fields == [f"{job}.{name}" for job in ("pending[0]", "devices[0].residents[0]") for name in needed]


def test_a_job_of_no_length_has_no_fair_time() -> None:
    job = Job(id="x", workload="a", remaining_s=0.0, attained_s=0.0, elapsed_s=5.0)
    with pytest.raises(InvalidInputError) as caught:
        decided(Snapshot(pending=(job,), devices=EMPTY, objective=ObjectiveKind.FINISH_TIME_FAIRNESS), {})
    assert [v.field for v in caught.value.violations] == ["pending[0].remaining_s"]


@pytest.mark.parametrize("objective", ObjectiveKind)
def test_nobody_to_place_costs_nothing(objective: ObjectiveKind) -> None:
    limits = Limits.of(soft_cap=1.5)
    answer = decided(Snapshot(pending=(), devices=EMPTY, objective=objective, limits=limits), {})
    assert (answer.cost, answer.objective_value, answer.gap) == (0.0, 0.0, 0.0)
