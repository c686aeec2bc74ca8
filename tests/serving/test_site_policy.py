"""Objectives and rules of other packages over the wire: only those that the settings of the server name."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InvalidInputError, UnfitError
from interfere.policy.costs.objectives import Objective
from interfere.policy.rules.custom import SharingRule
from interfere.records import Device, Job, ObjectiveKind, ObjectiveTerm, Plan, RuleKind, Snapshot
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE
from tests.waiting import PATIENCE_S

OLDEST = Objective(
    constant=lambda jobs: -np.array([job.elapsed_s for job in jobs]),
    rate=lambda jobs: np.array([job.elapsed_s for job in jobs]),
    required_fields=("elapsed_s",),
)
APART = SharingRule(
    reads=("workload",),
    forbids=lambda pairs: (pairs.job["workload"] == "infer") & (pairs.partner["workload"] == "stream"),
    because="infer and stream share a licence",
)
OLDEST_NAME, APART_NAME = f"{__name__}:OLDEST", f"{__name__}:APART"
DEVICES = tuple(Device(id=name, type=DEVICE_TYPE) for name in ("d0", "d1"))
JOBS = (
    Job(id="gemm", workload="gemm", elapsed_s=86_400.0),
    Job(id="infer", workload="infer", elapsed_s=60.0),
    Job(id="stream", workload="stream", elapsed_s=60.0),
)


@pytest.fixture
def client(settings: Settings, serve: Callable[..., RunningServer]) -> Iterator[PolicyClient]:
    """A client of a server that enables one objective and one rule."""
    server = serve(replace(settings, objectives=f" {OLDEST_NAME} ", rules=APART_NAME))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        yield client


def alone(plan: Plan) -> list[str]:
    return [action.job_id for action in plan.actions if action.kind == "start_alone"]


def test_a_request_names_an_objective_and_another_does_not(client: PolicyClient) -> None:
    names = ("gemm", "infer", "train")
    by_default = set()
    for oldest in names:
        jobs = tuple(Job(id=each, workload=each, elapsed_s=9e4 if each == oldest else 60.0) for each in names)
        snapshot = Snapshot(pending=jobs, devices=DEVICES)
        assert alone(client.match(replace(snapshot, objective_name=OLDEST_NAME))) == [oldest]
        by_default.update(alone(client.match(snapshot)))
    assert len(by_default) == 1  # whoever has waited for how long
    ranked = client.rank(JOBS[0], DEVICES, objective_name=OLDEST_NAME).rankings
    assert ranked[0].feasible
    with pytest.raises(InvalidInputError) as caught:
        client.match(replace(snapshot, objective_name=OLDEST_NAME, pending=(Job(id="x", workload="gemm"),)))
    (violation,) = caught.value.violations
    assert (violation.field, OLDEST_NAME in violation.what) == ("pending[0].elapsed_s", True)


@pytest.mark.parametrize("name", [APART_NAME, "nobody", "os:system", "interfere.objectives:auto", "x" * 5000])
def test_a_name_that_is_not_enabled_is_refused_with_those_that_are(client: PolicyClient, name: str) -> None:
    snapshot = Snapshot(pending=JOBS, devices=DEVICES, objective_name=name)
    for ask in (
        lambda: client.match(snapshot),
        lambda: client.validate(snapshot),
        lambda: client.rank(JOBS[0], DEVICES, objective_name=name),
    ):
        with pytest.raises(InvalidInputError) as caught:
            ask()
        (violation,) = caught.value.violations
        assert violation.field == "objective_name"


def test_two_objectives_are_refused(client: PolicyClient) -> None:
    snapshot = Snapshot(pending=JOBS, devices=DEVICES, objective_name=OLDEST_NAME)
    terms = (ObjectiveTerm(kind=ObjectiveKind.COST),)
    for both in (replace(snapshot, objective=ObjectiveKind.MAKESPAN), replace(snapshot, objective_terms=terms)):
        with pytest.raises(InvalidInputError, match="stands beside another objective"):
            client.match(both)


def test_a_rule_holds_in_plans_rankings_and_explanations(client: PolicyClient) -> None:
    resident = Device(id="d0", type=DEVICE_TYPE, residents=(JOBS[2],))
    plan = client.match(Snapshot(pending=JOBS[1:2], devices=(resident,), snapshot_id="s"))
    (refused,) = plan.refused
    reason = f"{APART_NAME}: infer and stream share a licence"
    assert (refused.rule.kind, refused.rule.custom_rule, refused.reason) == (RuleKind.CUSTOM, APART_NAME, reason)
    (ranking,) = client.rank(JOBS[1], (resident,)).rankings
    assert (ranking.feasible, ranking.reason) == (False, reason)
    explained = client.explain(plan.decision_id, "infer")
    assert [each.reason for each in explained.refused] == [reason]


def test_an_unknown_rule_or_what_is_none_stops_the_server_at_its_start(
    settings: Settings, serve: Callable[..., RunningServer]
) -> None:
    for rules, error in ((OLDEST_NAME, InvalidInputError), ("nobody", InvalidInputError), ("interfere:X", UnfitError)):
        with pytest.raises((error, InvalidInputError), match="rule"):
            serve(replace(settings, rules=rules))
