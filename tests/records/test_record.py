"""Laws of records: what they print, and what their fields say of themselves."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest
from hypothesis import given, settings

import interfere.records
from interfere.records import (
    NAN,
    Action,
    ActionKind,
    Device,
    Job,
    JobSize,
    Limits,
    PairMeasurement,
    Plan,
    PlanLevel,
    Rule,
    RuleKind,
    SolveStatus,
)
from interfere.records.plans import LevelKind
from interfere.records.record import fields_of
from interfere.sharing_modes import SharingMode
from tests.wire import strategies as some

RECORDS = sorted(
    {
        each
        for module in pkgutil.iter_modules(interfere.records.__path__)
        for each in vars(importlib.import_module(f"interfere.records.{module.name}")).values()
        if inspect.isclass(each) and dataclasses.is_dataclass(each) and each.__module__.startswith("interfere.records")
    },
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("record_type", RECORDS, ids=lambda kind: kind.__name__)
def test_every_record_is_frozen_with_slots_and_keywords(record_type: type) -> None:
    assert record_type.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert all(each.kw_only for each in dataclasses.fields(record_type))
    assert "__slots__" in vars(record_type)


def test_a_record_prints_what_is_set() -> None:
    assert repr(Job(id="a", workload="w", weight=1.0, remaining_s=NAN)) == "Job(id='a', workload='w')"
    assert repr(Job(id="a", workload="w", remaining_s=0.0)) == "Job(id='a', workload='w', remaining_s=0.0)"
    assert repr(Device(id="d", type="t", mode=SharingMode.MPS)) == "Device(id='d', type='t', mode='mps')"
    assert repr(Limits()) == "Limits()"
    assert repr(Limits.of(max_slowdown=1.5)) == "Limits(slowdown=SlowdownLimits(max_slowdown=1.5))"
    row = PairMeasurement(victim="a", neighbour="b", device_type="t", mode=SharingMode.MPS, slowdown=1.5)
    assert repr(row) == "PairMeasurement(victim='a', neighbour='b', device_type='t', mode='mps', slowdown=1.5)"
    wait = Action(kind=ActionKind.WAIT, job_id="a", rule=Rule(kind=RuleKind.GANG, job_id="a", gpus=2))
    assert repr(wait) == "Action(kind=ActionKind.WAIT, job_id='a', rule=Rule(kind=RuleKind.GANG, job_id='a', gpus=2))"


@given(some.jobs, some.jobs)
@settings(max_examples=50, deadline=None)
def test_equal_texts_are_equal_records(job: Job, other: Job) -> None:
    assert eval(repr(job), {"Job": Job, "JobSize": JobSize, "nan": NAN}) == job
    assert (repr(job) == repr(other)) == (job == other)


def test_a_plan_of_four_jobs_is_readable() -> None:
    numbers = {"slowdown": 1.21, "slowdown_lower": 1.05, "slowdown_upper": 1.43, "partner_slowdown": 1.3, "cost": 0.51}
    pair = {"kind": ActionKind.START_SHARED, "device_id": "gpu-0", "reason": "the plan with this pair costs least"}
    ids = [f"job-{k}" for k in range(4)]
    actions = tuple(
        Action(
            job_id=job,
            partner_id=ids[k ^ 1],
            rule=Rule(kind=RuleKind.LEAST_COST, job_id=job, partner_id=ids[k ^ 1], slowdown=1.21, partner_slowdown=1.3),
            **pair,
            **numbers,
        )
        for k, job in enumerate(ids)
    )
    plan = Plan(
        decision_id="0f3b",
        model_version="2026.1",
        actions=actions,
        pairs=(),
        refused=(),
        refused_total=0,
        cost=1.02,
        greedy_cost=1.02,
        greedy_waiting=0,
        lower_bound=1.02,
        gap=0.0,
        status=SolveStatus.OPTIMAL,
        levels=(PlanLevel(kind=LevelKind.COST, value=1.02, lower_bound=1.02),),
    )
    assert len(repr(plan)) < 2_000
    assert "nan" not in repr(plan)


def test_the_fields_of_records_in_place_stand_beside_the_others() -> None:
    paths = {each.name: each.path for each in fields_of(Limits)}
    assert paths["risk"] == "slowdown.risk"
    assert paths["allowed"] == "allowed"
    assert set(paths) == set(Limits().flat())
