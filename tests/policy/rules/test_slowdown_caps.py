"""Caps, protection, latency targets and priorities: who is held back, and which rule says so."""

import math
from dataclasses import replace

import pytest

from interfere.errors import InvalidInputError
from interfere.records import ActionKind, Device, Job, Limits, ObjectiveKind, Plan, Snapshot
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver

KNOWN = resolver(profile("a"), profile("b"))  # 10 ms a step
TABLE = {("a", "a"): 1.4, ("a", "b"): 1.4, ("b", "a"): 2.0, ("b", "b"): 2.0}
PREDICTOR = TablePredictor(TABLE, spread=1.5)


def beside(job: Job, resident: Job, **limits: float) -> Plan:
    """The plan for one job and one place, beside a resident."""
    devices = (Device(id="d", type=DEVICE, residents=(resident,)),)
    return plan(context(Snapshot(pending=(job,), devices=devices, limits=Limits.of(**limits)), PREDICTOR, KNOWN, "d"))


def refusal(job: Job, resident: Job, **limits: float) -> str:
    found = beside(job, resident, **limits)
    return found.refused[0].reason if found.refused else ""


def test_the_tightest_of_several_caps_binds_and_is_named() -> None:
    job, low = Job(id="x", workload="a", max_slowdown=1.8, priority=2), Job(id="r", workload="a", priority=1)
    assert refusal(job, low, max_slowdown=1.9) == "slowdown cap of the job: x could reach 2.10 > 1.80 at risk 0.05"
    assert refusal(job, low, max_slowdown=1.7) == "slowdown cap of the request: x could reach 2.10 > 1.70 at risk 0.05"
    assert refusal(job, low, max_slowdown=1.9, protected_slowdown=1.2) == (
        "protected slowdown: x could reach 2.10 > 1.20 at risk 0.05 beside r (priority 2 beside 1)"
    )
    assert refusal(replace(job, max_slowdown=2.2), low) == ""


def test_only_the_job_of_higher_priority_is_protected() -> None:
    urgent, usual = Job(id="u", workload="a", priority=1), Job(id="v", workload="a")
    for job, resident, refused in ((urgent, usual, "u"), (usual, urgent, "u"), (usual, replace(usual, id="w"), "")):
        why = refusal(job, resident, protected_slowdown=1.5)
        assert why.startswith(f"protected slowdown: {refused}") if refused else why == ""
    assert refusal(urgent, usual) == ""


def test_a_latency_target_holds_on_the_time_alone_times_the_slowdown() -> None:
    job, resident = Job(id="x", workload="a", latency_target_s=0.020), Job(id="r", workload="a")
    assert refusal(job, resident) == ("latency target: x could take 21 ms > 20 ms (10 ms alone × 2.10) at risk 0.05")
    assert refusal(replace(job, latency_target_s=0.0211), resident) == ""
    assert refusal(job, resident, risk=0.5) == ""  # 14 ms in the middle
    assert refusal(resident, job).startswith("latency target: x")


def test_a_target_below_the_time_alone_means_alone_and_the_action_says_so() -> None:
    job = Job(id="x", workload="a", latency_target_s=0.008)
    why = "latency target: 8 ms is less than 10 ms alone: x runs alone"
    assert refusal(job, Job(id="r", workload="a")) == why
    (action,) = plan(
        context(Snapshot(pending=(job,), devices=(Device(id="d", type=DEVICE),)), PREDICTOR, KNOWN, "d")
    ).actions
    assert (action.kind, action.reason) == (ActionKind.START_ALONE, why)
    untimed = resolver(replace(profile("a"), step_time_s=math.nan))
    devices = (Device(id="d", type=DEVICE, residents=(Job(id="r", workload="a"),)),)
    found = plan(context(Snapshot(pending=(job,), devices=devices), PREDICTOR, untimed, "d"))
    assert "no request time of a alone is known" in found.refused[0].reason


def test_names_of_jobs_may_hold_anything() -> None:
    job = Job(id="{0} {x}", workload="a", max_slowdown=1.5)
    assert "{0} {x} could reach 2.10 > 1.50" in refusal(job, Job(id="r", workload="a"))


@pytest.mark.parametrize("objective", [ObjectiveKind.WEIGHTED_EXCESS, ObjectiveKind.TOTAL_SLOWDOWN])
def test_one_urgent_job_starts_before_any_weight_of_others(objective: ObjectiveKind) -> None:
    """One place: the urgent job takes it, however much the other weighs."""
    for weight in (9.0, 11.0, 1e9):
        jobs = (Job(id="usual", workload="a", weight=weight), Job(id="urgent", workload="a", priority=1))
        limits = Limits(allowed=frozenset({ActionKind.START_ALONE, ActionKind.WAIT}))
        snapshot = Snapshot(pending=jobs, devices=(Device(id="d", type=DEVICE),), limits=limits, objective=objective)
        started = [a.job_id for a in plan(context(snapshot, PREDICTOR, KNOWN, "d")).actions if a.device_id]
        assert started == ["urgent"]


def test_the_costs_of_each_priority_are_a_level_of_their_own() -> None:
    found = beside(Job(id="x", workload="a", priority=3, weight=2.0), Job(id="r", workload="a", priority=4))
    assert found.cost == pytest.approx((2.0 + 1.0) * 0.4, rel=1e-6)


@pytest.mark.parametrize("priority", [-1, 10, 1000])
def test_a_priority_out_of_range_is_refused_with_what_to_do(priority: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Job(id="x", workload="a", priority=priority)
    (violation,) = caught.value.violations
    assert (violation.field, violation.remedy) == ("priority", "map your priorities to 0..9")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory_headroom", -0.1),
        ("memory_headroom", 1.0),
        ("memory_headroom", math.nan),
        ("misfit_risk", 1.5),
        ("misfit_risk", -0.5),
        ("protected_slowdown", 0.9),
        ("time_budget_s", 0.0),
        ("time_budget_s", math.inf),
    ],
)
def test_a_limit_out_of_range_is_refused_with_its_field(field: str, value: float) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Limits.of(**{field: value})
    assert [v.field for v in caught.value.violations] == [field]
