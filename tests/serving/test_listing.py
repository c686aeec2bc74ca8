"""What a server decided and keeps, over the wire and on the command line."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands import scopes
from interfere.errors import ForbiddenError, LimitError, NotFoundError
from interfere.records import Device, Job, RuleKind, Snapshot, SolveStatus
from interfere.serving.calls.access import Access, Caller, Role
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE


def snapshot(now_s: float, *names: str, scope: str = "default") -> Snapshot:
    """Jobs that share one device, or wait for it."""
    pending = tuple(Job(id=name, workload="gemm") for name in names)
    device = Device(id="d", type=DEVICE_TYPE)
    return Snapshot(pending=pending, devices=(device,), now_s=now_s, scope=scope, snapshot_id=f"at {now_s:g}")


def test_decisions_are_listed_newest_first_and_in_pages(client: PolicyClient) -> None:
    assert client.decisions().decisions == ()
    plans = [client.match(snapshot(float(k), *"abc"[: k + 1])) for k in range(3)]
    client.match(snapshot(0.0, "x", scope="other"))
    listed = client.decisions().decisions
    assert [each.decision_id for each in listed] == [plan.decision_id for plan in reversed(plans)]
    newest = listed[0]
    assert (newest.snapshot_id, newest.now_s, newest.pending, newest.devices) == ("at 2", 2.0, 3, 1)
    assert (newest.started_alone + newest.started_shared, newest.waiting, newest.displaced) == (1, 2, 0)
    assert newest.model_version == plans[2].model_version
    assert newest.status is plans[2].status is SolveStatus.OPTIMAL
    assert sum(rule.count for rule in newest.waiting_rules) == 2
    assert newest.waiting_rules[0].kind in RuleKind
    assert client.decisions(limit=1).decisions == listed[:1]
    assert client.decisions(limit=2, before_id=newest.decision_id).decisions == listed[1:]
    assert client.decisions(before_id="unknown").decisions == ()
    assert [each.decision_id for each in client.decisions(scope="nobody's").decisions] == []
    with pytest.raises(LimitError, match="before_id"):
        client.decisions(limit=101)


def test_scopes_are_listed_with_what_is_kept(client: PolicyClient) -> None:
    assert client.scopes().scopes == ()
    client.match(snapshot(5.0, "a", scope="s"))
    client.match(snapshot(7.0, scope="empty"))
    empty, used = client.scopes().scopes
    assert (empty.scope, empty.now_s, empty.promises) == ("empty", 7.0, 0)
    assert (used.scope, used.now_s, used.promises, used.accepted_deadlines, used.grants) == ("s", 5.0, 1, 0, 0)


def test_a_caller_of_some_scopes_does_not_learn_of_the_others() -> None:
    caller = Caller(name="a", roles=frozenset({Role.READ}), scopes=frozenset({"mine"}))
    Access().check_request(caller, "ListDecisions", pb.ListDecisionsRequest(scope="mine"))
    with pytest.raises(ForbiddenError, match="other"):
        Access().check_request(caller, "ListDecisions", pb.ListDecisionsRequest(scope="other"))
    with pytest.raises(ForbiddenError, match="mine"):
        Access().check_request(caller, "ListScopes", pb.ListScopesRequest())


def test_the_commands_print_both(server: RunningServer, client: PolicyClient, tmp_path: Path) -> None:
    target = ("--target", server.address)
    runner = CliRunner()
    assert "no decision is kept" in runner.invoke(scopes.app, ("decisions", *target)).stdout
    plan = client.match(snapshot(5.0, "a", "b"))
    page = runner.invoke(scopes.app, ("decisions", *target)).stdout
    assert plan.decision_id in page
    assert max(map(len, page.splitlines())) <= 80
    told = json.loads(runner.invoke(scopes.app, ("decisions", *target, "--json")).stdout)
    assert told["decisions"][0]["decision_id"] == plan.decision_id
    assert "default" in runner.invoke(scopes.app, ("list", *target)).stdout


def test_a_scope_shows_who_is_where_and_who_waits_and_why(server: RunningServer, client: PolicyClient) -> None:
    with pytest.raises(NotFoundError, match="no decision"):
        client.scope("s")
    here = Device(id="d0", type=DEVICE_TYPE, residents=(Job(id="r", workload="infer"),))
    jobs = tuple(Job(id=name, workload="stream") for name in "abcde")
    plan = client.match(Snapshot(scope="s", now_s=5.0, pending=jobs, devices=(here, Device(id="d1", type=DEVICE_TYPE))))
    state = client.scope("s")
    assert (state.decision_id, state.now_s, state.model_version) == (plan.decision_id, 5.0, plan.model_version)
    assert [(each.device_id, each.device_type) for each in state.devices] == [("d0", DEVICE_TYPE), ("d1", DEVICE_TYPE)]
    places = {job.job_id: (device.device_id, job.planned) for device in state.devices for job in device.jobs}
    assert places.pop("r") == ("d0", False)
    started = {action.job_id: action for action in plan.actions if action.places and action.job_id != "r"}
    assert places == {name: (action.device_id, True) for name, action in started.items()}
    waiting = {job.job_id: job for job in state.waiting}
    assert waiting.keys() == set("abcde") - started.keys() != set()
    for action in plan.actions:
        if action.job_id in waiting:
            assert (waiting[action.job_id].rule, waiting[action.job_id].reason) == (action.rule, action.reason)
    page = CliRunner().invoke(scopes.app, ("show", "s", "--target", server.address)).stdout
    assert re.search(r"^d0 +cpu-core +r +infer *$", page, re.MULTILINE)
    assert next(iter(waiting)) in page
