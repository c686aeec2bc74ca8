"""The laws of every objective: those that ship, a weighted sum of them, and one that docs/architecture.md defines."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.costs.objectives import (
    DEADLINE_MISSES,
    OBJECTIVES,
    Aggregate,
    Objective,
    objective_of,
    weighted_sum,
)
from interfere.policy.decide import decide
from interfere.policy.validate import validate_snapshot
from interfere.records import Device, Job, Limits, ObjectiveKind, ObjectiveTerm, ScopeLedger, Snapshot
from interfere.testing.objectives import ObjectiveLaws, jobs
from tests.docs.architecture_page import example
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

MIN_SUM = {kind: objective for kind, objective in OBJECTIVES.items() if not objective.is_min_max}
PRICES = {"price_per_hour": 2.0, "power_w": 300.0}
MIN_MAX_KINDS = {ObjectiveKind.MAKESPAN, ObjectiveKind.FINISH_TIME_FAIRNESS}


def documented_objective() -> Objective:
    """The objective of a stranger: the example of the page, imported but not run."""
    names: dict[str, object] = {"__name__": "objective_example"}
    exec(compile(example("objective"), "objective_example", "exec"), names)
    objective = names["LONGEST_WAIT"]
    assert isinstance(objective, Objective)
    return objective


EVERY: Mapping[str, Objective] = {
    **{str(kind): objective for kind, objective in OBJECTIVES.items()},
    "weighted sum": weighted_sum([(float(k + 1) / 3, objective) for k, objective in enumerate(MIN_SUM.values())]),
    "documented": documented_objective(),
}


class TestObjectives(ObjectiveLaws):
    """Every objective that ships, a weighted sum of them, and the documented one."""

    @pytest.fixture(scope="class", params=EVERY)
    @classmethod
    def objective(cls, request: pytest.FixtureRequest) -> Objective:
        return EVERY[request.param]


@pytest.mark.parametrize("name", EVERY)
def test_only_a_min_max_objective_takes_the_largest_cost(name: str) -> None:
    assert EVERY[name].is_min_max == (EVERY[name].aggregate is Aggregate.MAX) == (name in MIN_MAX_KINDS)


def test_every_kind_that_a_request_may_name_is_registered() -> None:
    assert set(OBJECTIVES) == set(ObjectiveKind)
    for kind in ObjectiveKind:
        assert objective_of(Snapshot(pending=(), devices=(), objective=kind)) is OBJECTIVES[kind]


@given(
    queue=jobs(),
    shares=st.lists(st.floats(0.0, 100.0), min_size=len(MIN_SUM), max_size=len(MIN_SUM)),
    scale=st.floats(0.0, 10.0),
)
@settings(max_examples=50, deadline=None)
def test_a_weighted_sum_is_linear_in_its_terms(queue: tuple[Job, ...], shares: list[float], scale: float) -> None:
    terms = list(zip(shares, MIN_SUM.values(), strict=True))
    total = weighted_sum(terms)
    scaled = weighted_sum([(scale * share, objective) for share, objective in terms])
    for of in ("constant", "rate"):
        expected = np.zeros(len(queue))
        for share, objective in terms:
            expected = expected + share * getattr(objective, of)(queue)
        assert getattr(total, of)(queue) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert getattr(scaled, of)(queue) == pytest.approx(scale * expected, rel=1e-9, abs=1e-9)
    assert total.soft_cap_price == pytest.approx(sum(share * term.soft_cap_price for share, term in terms))
    assert total.deadline_miss_price == pytest.approx(sum(share * term.deadline_miss_price for share, term in terms))
    assert set(total.required_fields) == {field for _, term in terms for field in term.required_fields}


def test_a_weighted_sum_of_one_term_is_that_term() -> None:
    queue = (Job(id="j", workload="w", weight=3.0, priority=1),)
    only = weighted_sum([(1.0, DEADLINE_MISSES)])
    assert only.constant(queue).tolist() == DEADLINE_MISSES.constant(queue).tolist()
    assert only.rate(queue).tolist() == DEADLINE_MISSES.rate(queue).tolist()
    assert only.deadline_miss_price == DEADLINE_MISSES.deadline_miss_price


@pytest.mark.parametrize(("kind", "field"), [(ObjectiveKind.COST, "price_per_hour"), (ObjectiveKind.ENERGY, "power_w")])
def test_every_device_says_what_the_objective_needs(kind: ObjectiveKind, field: str) -> None:
    devices = (Device(id="d", type="t", **PRICES), Device(id="e", type="t"))
    snapshot = Snapshot(pending=(), devices=devices, objective=kind)
    assert [violation.field for violation in validate_snapshot(snapshot)] == [f"devices[1].{field}"]


@pytest.mark.parametrize("kind", ObjectiveKind)
def test_a_min_max_objective_is_refused_as_a_term_and_no_other_is(kind: ObjectiveKind) -> None:
    terms = (ObjectiveTerm(kind=ObjectiveKind.WEIGHTED_EXCESS), ObjectiveTerm(kind=kind))
    snapshot = Snapshot(
        pending=(),
        devices=(Device(id="d", type="t", **PRICES),),
        objective_terms=terms,
        limits=Limits.of(soft_cap=2.0),
    )
    refused = [violation.field for violation in validate_snapshot(snapshot)]
    assert refused == (["objective_terms[1].kind"] if OBJECTIVES[kind].is_min_max else [])


@pytest.mark.parametrize("kind", ObjectiveKind)
@pytest.mark.parametrize("seed", range(3))
def test_an_objective_of_the_caller_decides_as_the_same_one_named_by_the_request(
    kind: ObjectiveKind, seed: int
) -> None:
    """With gangs and a resident, so that subproblems are planned and merged under it too."""
    rng = np.random.default_rng(seed)
    names = "abcdef"
    table = {(victim, neighbour): float(rng.uniform(1, 2)) for victim in names for neighbour in names}
    queue = [
        Job(
            id=name,
            workload=name,
            gpus=2 if name in "de" else 1,
            remaining_s=float(rng.uniform(1, 100)),
            attained_s=float(rng.uniform(0, 100)),
            elapsed_s=float(rng.uniform(0, 200)),
        )
        for name in names
    ]
    devices = tuple(
        Device(id=f"d{k}", type=DEVICE, residents=(queue[-1],) if k == 0 else (), node=f"n{k // 2}", **PRICES)
        for k in range(5)
    )
    limits = Limits.of(soft_cap=1.5)
    snapshot = Snapshot(pending=tuple(queue[:-1]), devices=devices, limits=limits, now_s=0.0)
    named = context(
        replace(snapshot, objective=kind), TablePredictor(table), resolver(*(profile(name) for name in names))
    )
    given_by_caller = replace(named, snapshot=snapshot, custom_objective=OBJECTIVES[kind])
    plans = [decide(made, ScopeLedger(scope="default")).plan for made in (named, given_by_caller)]
    assert repr(plans[0]) == repr(plans[1])
