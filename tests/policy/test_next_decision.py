"""The time of the next decision: the first foreseen event, and never before now."""

import math

import pytest

from interfere.policy.decide import ScopeDecision, decide
from interfere.predict.groups import composed_slowdown
from interfere.records import Device, Job, Limits, ObjectiveKind, ScopeLedger, Snapshot
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

TABLE = TablePredictor({("a", "a"): 2.0, ("a", "b"): 1.5, ("b", "a"): 3.0, ("b", "b"): 4.0})
KNOWN = resolver(profile("a"), profile("b"))


A_BESIDE_TWO_S = 1000.0 + 50.0 * composed_slowdown([2.0, 1.5])  # ends beside another of its kind and beside b


def job(name: str, remaining_s: float = math.nan) -> Job:
    return Job(id=name, workload=name[0], remaining_s=remaining_s)


def decided(
    pending: tuple[Job, ...], *companies: tuple[Job, ...], kind: str = DEVICE, **limits: float
) -> ScopeDecision:
    snapshot = Snapshot(
        pending=pending,
        devices=tuple(Device(id=str(k), type=kind, residents=jobs) for k, jobs in enumerate(companies)),
        now_s=1000.0,
        limits=Limits.of(**{"min_joint_throughput": 0.0} | limits),
        objective=ObjectiveKind.WEIGHTED_EXCESS,  # at one moment jobs share that a plan over time runs one by one
    )
    return decide(context(snapshot, TABLE, KNOWN, "x"), ScopeLedger(scope="default"))


@pytest.mark.parametrize(
    ("pending", "companies", "limits", "at_s"),
    [
        ((), ((),), {}, math.nan),
        ((), ((job("a"),),), {}, math.nan),
        ((), ((job("a", 50.0),), (job("b", 70.0),)), {}, 1050.0),
        ((), ((job("a", 50.0), job("b", 10.0)),), {}, 1030.0),  # 10 s · 3
        ((), ((job("a1", 50.0), job("a2", 90.0), job("b", 60.0)),), {}, A_BESIDE_TWO_S),
        ((), ((job("x", 50.0), job("b")),), {}, 1050.0),  # nothing predicts it
        ((job("a", 50.0),), ((),), {}, 1050.0),
        ((job("a", 500.0),), ((),), {}, 1120.0),  # its promise expires first
        ((job("a", 500.0),), ((),), {"promise_ttl_s": 30.0}, 1030.0),
        ((job("a", 60.0),), ((job("b", 10.0),),), {}, 1030.0),  # its resident, slowed by it
        ((job("a", 10.0),), ((job("b", 60.0),),), {}, 1015.0),
        ((), ((job("a", 50.0),),), {"slice_s": 20.0}, 1020.0),
        ((), ((),), {"slice_s": 20.0}, 1020.0),
    ],
)
def test_the_next_decision_is_at_the_first_foreseen_event(
    pending: tuple[Job, ...], companies: tuple[tuple[Job, ...], ...], limits: dict[str, float], at_s: float
) -> None:
    found = decided(pending, *companies, **limits).plan.resolve_at_s
    assert found == pytest.approx(at_s, nan_ok=True)


def test_on_an_unknown_device_type_a_job_ends_no_earlier_than_alone() -> None:
    companies = (job("a", 50.0), job("b", 60.0))
    assert decided((), companies, kind="tpu").plan.resolve_at_s == 1050.0
