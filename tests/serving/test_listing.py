"""What a server decided and keeps, over the wire and on the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands import scopes
from interfere.errors import ForbiddenError, LimitError
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
