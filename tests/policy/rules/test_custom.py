"""Rules of other packages in decisions: no plan breaks one, and a rule that forbids nothing changes no plan."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError, UnfitError
from interfere.policy.answer.ranking import rank
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import JobKeys
from interfere.policy.decide import decide
from interfere.policy.rules.custom import SharedPairs, SharingRule
from interfere.policy.subproblems import problem_size
from interfere.records import ActionKind, Device, Job, Limits, Plan, RuleKind, ScopeLedger, Snapshot
from interfere.testing.rules import RuleLaws
from tests.tables import DEVICE, TablePredictor, catalogue, context, plan, profile, resolver

NAMES = tuple("abc")
RESOLVE = resolver(*map(profile, NAMES))
MILD = TablePredictor({(v, n): 1.1 for v in NAMES for n in NAMES})


def tenants_differ(pairs: SharedPairs) -> np.ndarray:
    first = np.vectorize(lambda name: name[0], otypes=[str])
    return first(pairs.job["id"]) != first(pairs.partner["id"])


TENANTS = SharingRule(forbids=tenants_differ, because="tenants differ", reads=("id",), name="tenants")


class TestLaws(RuleLaws):
    @pytest.fixture(scope="class", params=["by id", "by slowdown", "by length", "one way"])
    @classmethod
    def rule(cls, request: pytest.FixtureRequest) -> SharingRule:
        forbids = {
            "by id": tenants_differ,
            "by slowdown": lambda pairs: pairs.slowdown > 6,
            "by length": lambda pairs: pairs.job["remaining_s"] > 2 * pairs.partner["remaining_s"],
            "one way": lambda pairs: pairs.job["weight"] > pairs.partner["weight"],
        }[request.param]
        return SharingRule(forbids=forbids, because="so it is", reads=("id", "remaining_s", "weight"), name="r")


def drawn(seed: int) -> PlanningContext:
    """A cluster with gangs, residents alone and beside others, devices of two and three seats, every action allowed."""
    rng = np.random.default_rng(seed)
    predictor = TablePredictor({(v, n): float(1 + rng.gamma(1.0, 0.2)) for v in NAMES for n in NAMES})

    def job(k: int, **facts: object) -> Job:
        tenant, length_s = rng.choice(["x", "y"]), float(rng.integers(1, 3000))
        return Job(id=f"{tenant}{k}", workload=str(rng.choice(NAMES)), remaining_s=length_s, **facts)

    seats = int(rng.choice([2, 2, 3]))
    devices = []
    for k in range(4):
        resident = (job(100 + k, preemptible=True, checkpoint_s=1.0, since_s=0.0),) if rng.random() < 0.5 else ()
        devices.append(Device(id=f"d{k}", type=DEVICE, node=f"n{k // 2}", residents=resident, seats=seats))
    pending = tuple(job(k, gpus=int(rng.choice([1, 1, 1, 2]))) for k in range(int(rng.integers(1, 6))))
    limits = Limits.of(allowed=frozenset(ActionKind), move_factor=1.0)
    return context(
        Snapshot(pending=pending, devices=tuple(devices), limits=limits, now_s=10.0), predictor, RESOLVE, "d"
    )


def shares(found: Plan, snapshot: Snapshot) -> list[list[str]]:
    """The jobs of each device once the plan is carried out."""
    runs = {device.id: [job.id for job in device.residents] for device in snapshot.devices}
    leave = {each.job_id for each in found.actions if each.kind in (ActionKind.MOVE, ActionKind.PREEMPT)}
    for jobs in runs.values():
        jobs[:] = [name for name in jobs if name not in leave]
    for action in found.actions:
        if action.kind in (ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.MOVE):
            for name in action.places:
                runs[name].append(action.job_id)
    return [jobs for jobs in runs.values() if len(jobs) > 1]


def decided(asked: PlanningContext) -> Plan:
    return decide(asked, ScopeLedger(scope="default")).plan


@given(st.integers(0, 1_000_000))
@settings(max_examples=40, deadline=None)
def test_no_plan_breaks_a_rule_and_one_that_forbids_nothing_changes_none(seed: int) -> None:
    asked = drawn(seed)
    kept = decided(replace(asked, custom_rules=(TENANTS,)))
    for jobs in shares(kept, asked.snapshot):
        assert len({name[0] for name in jobs}) == 1, jobs
    nothing = SharingRule(forbids=lambda pairs: np.array(False), because="never", name="nothing")
    free, unchanged = decided(asked), decided(replace(asked, custom_rules=(nothing,)))
    assert unchanged.actions == free.actions


def test_the_law_above_can_fail() -> None:
    broken = [
        {name[0] for name in jobs} for seed in range(20) for jobs in shares(decided(drawn(seed)), drawn(seed).snapshot)
    ]
    assert any(len(tenants) > 1 for tenants in broken)


def one_pair(rule: SharingRule) -> PlanningContext:
    host = Job(id="y1", workload="b")
    device = Device(id="d", type=DEVICE, residents=(host,))
    snapshot = Snapshot(pending=(Job(id="x1", workload="a"),), devices=(device,))
    return replace(context(snapshot, MILD, RESOLVE, "d"), custom_rules=(rule,))


def test_the_reason_names_the_rule_and_says_why() -> None:
    asked = one_pair(TENANTS)
    found = plan(asked)
    assert found.refused[0].rule.kind is RuleKind.CUSTOM
    assert found.refused[0].reason == "tenants: tenants differ"
    assert "rule of the site (1 pair)" in found.actions[0].reason
    (job,), devices = asked.snapshot.pending, asked.snapshot.devices
    (ranked,) = rank(job, devices, MILD, catalogue(RESOLVE), Limits(), custom_rules=(TENANTS,))
    assert (ranked.feasible, ranked.reason) == (False, found.refused[0].reason)


def test_jobs_are_interchangeable_unless_a_rule_reads_what_they_differ_in() -> None:
    jobs = tuple(Job(id=f"{'xy'[k % 2]}{k}", workload="a", deadline_s=9e3, remaining_s=50.0) for k in range(8))
    snapshot = Snapshot(pending=jobs, devices=(Device(id="d", type=DEVICE),), now_s=0.0)
    by_workload = replace(TENANTS, reads=("workload",))
    for rules, classes in (((), 1), ((by_workload,), 1), ((TENANTS,), 8)):
        assert len({JobKeys(snapshot, custom_rules=rules).of(job) for job in jobs}) == classes
        assert problem_size(snapshot, 1, rules).jobs == classes


def test_a_rule_sees_only_the_fields_that_it_names() -> None:
    rule = replace(TENANTS, reads=("workload",))
    with pytest.raises(UnfitError, match="the rule 'tenants' failed") as caught:
        plan(one_pair(rule))
    assert "'id'" in str(caught.value)
    with pytest.raises(InvalidInputError, match="no job has"):
        replace(TENANTS, reads=("tenant",))


@pytest.mark.parametrize("answer", [np.array([1.0]), np.ones((3, 5), dtype=bool), None])
def test_a_rule_that_answers_something_else_is_named(answer: object) -> None:
    with pytest.raises(UnfitError, match="the rule 'tenants' failed"):
        plan(one_pair(replace(TENANTS, forbids=lambda pairs: answer)))
