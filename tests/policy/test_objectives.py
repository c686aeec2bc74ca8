"""Objectives: hand-worked plans, and the best of every placement by brute force."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.policy.objectives import OBJECTIVES
from interfere.policy.planner import plan
from interfere.records import ActionKind, Device, Job, ObjectiveKind, Plan, Snapshot
from tests.tables import DEVICE, TablePredictor, profile, resolver

NAMES = "abcd"
KNOWN = resolver(*(profile(name) for name in NAMES))
EMPTY = tuple(Device(id=f"d{k}", type=DEVICE) for k in range(2))


def decided(snapshot: Snapshot, table: dict[tuple[str, str], float]) -> Plan:
    return plan(snapshot, TablePredictor(table), KNOWN, "d")


def test_each_objective_chooses_its_own_pair() -> None:
    table = {(v, n): 2.0 for v in NAMES for n in NAMES}
    table |= {("a", "b"): 1.5, ("b", "a"): 1.2, ("a", "c"): 1.1, ("c", "a"): 1.9, ("b", "c"): 1.3, ("c", "b"): 1.3}
    pending = (
        Job(id="a", workload="a", weight=8.0, remaining_s=10.0),
        Job(id="b", workload="b", weight=1.0, remaining_s=10.0),
        Job(id="c", workload="c", weight=1.0, remaining_s=100.0),
    )
    found = {}
    for objective in ObjectiveKind:
        answer = decided(Snapshot(pending=pending, devices=EMPTY, objective=objective), table)
        (pair,) = answer.pairs
        found[objective] = (pair.job_id + pair.partner_id, round(answer.cost, 4))
    assert found == {
        # ab: 8 · .5 + .2 = 4.2, ac: 8 · .1 + .9 = 1.7, bc: .3 + .3
        ObjectiveKind.WEIGHTED_EXCESS: ("bc", 0.6),
        # ab: 1.5 + 1.2 + 1 = 3.7, ac: 1.1 + 1.9 + 1 = 4, bc: 1.3 + 1.3 + 1
        ObjectiveKind.TOTAL_SLOWDOWN: ("bc", 3.6),
        # ab: 15 + 12 + 100 = 127, ac: 11 + 190 + 10 = 211, bc: 13 + 130 + 10 = 153
        ObjectiveKind.COMPLETION_TIME: ("ab", 127.0),
    }


def test_of_two_jobs_and_one_place_the_short_one_starts() -> None:
    jobs = (Job(id="long", workload="a", remaining_s=50.0), Job(id="short", workload="b", remaining_s=5.0))
    table = dict.fromkeys(itertools.product(NAMES, NAMES), 1.5)
    capped = tuple(replace(job, max_slowdown=1.2) for job in jobs)
    answer = decided(Snapshot(pending=capped, devices=EMPTY[:1], objective=ObjectiveKind.COMPLETION_TIME), table)
    assert [a.kind for a in answer.actions] == [ActionKind.WAIT, ActionKind.START_ALONE]
    assert answer.cost == 5.0


@pytest.mark.parametrize("objective", ObjectiveKind)
@pytest.mark.parametrize("seed", range(25))
def test_as_good_as_trying_every_placement(objective: ObjectiveKind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = {pair: float(np.float32(1 + rng.gamma(1.0, 0.6))) for pair in itertools.product(NAMES, NAMES)}

    def job(name: str) -> Job:
        return Job(
            id=name, workload=str(rng.choice(list(NAMES))), weight=float(rng.choice([1.0, 2.0])),
            remaining_s=float(rng.integers(1, 50)),
        )  # fmt: skip

    pending = tuple(job(f"p{k}") for k in range(4))
    devices = (Device(id="r", type=DEVICE, residents=(job("r0"),)), *EMPTY[: int(rng.integers(1, 3))])
    of = OBJECTIVES[objective]

    def cost(group: list[Job]) -> float:
        if len(group) == 1:
            return float(of.alone(group)[0])
        slowdowns = np.array([table[group[0].workload, group[1].workload], table[group[1].workload, group[0].workload]])
        return float((of.alone(group) + of.rate(group) * (slowdowns - 1)).sum())

    best = (math.inf, math.inf)
    for choice in itertools.product(range(-1, len(devices)), repeat=len(pending)):
        groups = [
            [*d.residents, *(j for j, c in zip(pending, choice, strict=True) if c == k)] for k, d in enumerate(devices)
        ]
        if max(map(len, groups)) > 2:
            continue
        waiting = sum(j.weight for j, c in zip(pending, choice, strict=True) if c < 0)
        already = sum(cost([r]) for d in devices for r in d.residents)
        best = min(best, (waiting, sum(cost(group) for group in groups if group) - already))
    answer = decided(Snapshot(pending=pending, devices=devices, objective=objective), table)
    waits = sum(j.weight for j, a in zip(pending, answer.actions, strict=True) if a.kind is ActionKind.WAIT)
    assert (waits, answer.cost) == pytest.approx(best, rel=1e-6)
    assert answer.lower_bound == pytest.approx(answer.cost)


def test_completion_time_without_remaining_times_is_refused_with_every_field() -> None:
    devices = (Device(id="d", type=DEVICE, residents=(Job(id="r", workload="a"),)),)
    snapshot = Snapshot(pending=(Job(id="x", workload="a"),), devices=devices, objective=ObjectiveKind.COMPLETION_TIME)
    with pytest.raises(InvalidInputError) as caught:
        decided(snapshot, {("a", "a"): 1.1})
    fields = [v.field for v in caught.value.violations]
    assert fields == ["pending[0].remaining_s", "devices[0].residents[0].remaining_s"]
