"""The oracle itself: its search finds what plain enumeration finds, and its clusters are valid and of every kind."""

from collections import Counter
from dataclasses import replace

import pytest

from interfere.policy.answer.starts import all_waiting
from interfere.policy.validate import validate_snapshot
from interfere.records import ActionKind, ObjectiveKind, Plan, SolveStatus
from interfere.records.cluster import HIGHEST_PRIORITY
from tests.policy.oracle.exhaustive import IllegalPlanError, Oracle
from tests.policy.oracle.random_clusters import RandomCluster
from tests.policy.oracle.verdicts import check_seeds, faults_of

CLUSTERS = 400


def test_the_search_finds_the_least_of_all_placements() -> None:
    several = 0
    for seed in range(150):
        oracle = Oracle(RandomCluster(seed))
        all_levels = oracle.all_levels()
        several += len(all_levels) > 1
        assert oracle.best() == pytest.approx(min(all_levels), rel=1e-12, abs=1e-12)
    assert several > 100


def test_clusters_are_valid_and_of_every_kind() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CLUSTERS):
        drawn = RandomCluster(seed)
        snapshot = drawn.snapshot
        assert validate_snapshot(snapshot) == []
        residents = [job for device in snapshot.devices for job in device.residents]
        seen[f"objective {snapshot.objective}" if not snapshot.objective_terms else "weighted sum"] += 1
        seen[f"{len({device.type for device in snapshot.devices})} types"] += 1
        seen |= Counter({f"gang of {job.gpus}": 1 for job in snapshot.pending})
        seen |= Counter({f"priority {job.priority}": 1 for job in snapshot.pending})
        seen["window"] += any(device.windows for device in snapshot.devices)
        seen["deadline"] += any(job.deadline_s > 0 for job in snapshot.pending)
        seen["pool"] += any(job.pools for job in snapshot.pending)
        seen["resident"] += bool(residents)
        seen["running gang"] += any(job.gpus > 1 for job in residents)
        seen["device limit"] += snapshot.limits.max_devices is not None
        seen["cap"] += snapshot.limits.slowdown.max_slowdown > 0
        spread = [job.weight for job in snapshot.pending]
        seen["six decades of weight in one cluster"] += max(spread) > 1e6 * min(spread)
    expected = {f"objective {kind}" for kind in ObjectiveKind} | {"weighted sum"}
    expected |= {f"priority {p}" for p in range(HIGHEST_PRIORITY + 1)} | {f"gang of {g}" for g in (1, 2, 4)}
    expected |= {"1 types", "2 types", "3 types", "window", "deadline", "pool", "resident", "running gang"}
    expected |= {"device limit", "cap", "six decades of weight in one cluster"}
    assert {name for name in expected if seen[name] < 1} == set()


def test_a_plan_that_starts_nothing_is_legal_and_not_the_best() -> None:
    worse = 0
    for seed in range(40):
        oracle = Oracle(RandomCluster(seed))
        plan = waiting_plan(oracle)
        kinds = {kind for kind, _ in faults_of(oracle, plan)}
        best_waits = oracle.levels_of(plan) == oracle.best()
        assert ("false optimal" in kinds) == (not best_waits)
        worse += not best_waits
    assert worse > 20


def test_a_job_on_a_device_that_a_rule_forbids_is_illegal() -> None:
    refused = 0
    for seed in range(120):
        oracle = Oracle(RandomCluster(seed))
        plan = waiting_plan(oracle)
        for device_id, where in oracle.class_of.items():
            job = oracle.pending[0]
            allowed = where in oracle.empty and oracle.costs.solo(job, where) is not None
            if allowed or job.gpus > 1 or any(device_id in devices for *_, devices in oracle.seats):
                continue
            refused += 1
            with pytest.raises(IllegalPlanError):
                oracle.levels_of(with_start(plan, device_id))
    assert refused > 20


def test_seeds_are_checked_one_by_one() -> None:
    tally = check_seeds(range(5))
    assert tally.clusters == 5
    assert 0 <= tally.optimal_share <= 1


def test_levels_are_named_by_kind_and_priority() -> None:
    for seed in range(60):
        oracle = Oracle(RandomCluster(seed))
        assert oracle.keys[0].kind == "waiting_weight"
        assert oracle.keys[0].priority == max(job.priority for job in oracle.pending)
        assert ("max_cost" in {key.kind for key in oracle.keys}) == oracle.costs.is_max


# --- helpers ----------------------------------------------------------------------------------------------------------


def waiting_plan(oracle: Oracle) -> Plan:
    plan = all_waiting([job.id for job in oracle.pending], oracle.drawn.context())
    assert plan.status is SolveStatus.OPTIMAL
    return plan


def with_start(plan: Plan, device_id: str) -> Plan:
    first = replace(plan.actions[0], kind=ActionKind.START_ALONE, device_id=device_id)
    return replace(plan, actions=(first, *plan.actions[1:]))
