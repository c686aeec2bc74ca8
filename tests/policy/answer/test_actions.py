"""Reasons of actions and refusals name workloads as the site does, and count each rule apart."""

from interfere.policy.answer.alternatives import refusals
from interfere.policy.solve.builder import decision_problem
from interfere.records import Action, ActionKind, Device, Job, Snapshot
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver

WORKLOADS = ("workloads:small", "workloads:large")


def snapshot_of_unprofiled_residents() -> Snapshot:
    residents = [Job(id=f"r{k}", workload=workload) for k, workload in enumerate(WORKLOADS)]
    return Snapshot(
        pending=(Job(id="x", workload="a"),),
        devices=tuple(Device(id=f"d{k}", type=DEVICE, residents=(job,)) for k, job in enumerate(residents)),
    )


def test_a_workload_named_after_a_factory_is_not_cut_at_its_colon() -> None:
    snapshot = snapshot_of_unprofiled_residents()
    found = plan(context(snapshot, TablePredictor({("a", "a"): 1.1}), resolver(profile("a"))))
    (action,) = found.actions
    assert action.kind is ActionKind.WAIT
    for workload in WORKLOADS:
        assert f"no profile of workload {workload!r} on {DEVICE} (1 pair)" in action.reason


def test_examples_are_listed_for_each_unprofiled_workload() -> None:
    snapshot = snapshot_of_unprofiled_residents()
    asked = context(snapshot, TablePredictor({("a", "a"): 1.1}), resolver(profile("a")))
    many = Action(kind=ActionKind.WAIT, job_id="x")
    listed, total = refusals(decision_problem(asked, by_start_weight=True), many)
    assert total == 2
    assert {refusal.partner_id for refusal in listed} == {"r0", "r1"}
