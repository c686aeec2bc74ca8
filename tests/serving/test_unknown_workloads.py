"""A job of an unknown workload runs alone first; while it does, other jobs of its workload need not wait for that."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Action, ActionKind, Device, Job, Progress, RuleKind, Snapshot
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE
from tests.waiting import PATIENCE_S

FIRST = Job(id="first", workload="mystery")
KNOWN = Job(id="known", workload="bert-serve")


@pytest.fixture
def client(serve: Callable[..., RunningServer], tmp_path: Path) -> Iterator[PolicyClient]:
    """A client of a server with the shipped model, which knows the mean slowdown of its device type."""
    server = serve(Settings(work=tmp_path / "work", port=0, grace_s=1.0, decision_workers=0))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        yield client


def decided(client: PolicyClient, pending: tuple[Job, ...], **residents: tuple[Job, ...]) -> dict[str, Action]:
    devices = tuple(Device(id=name, type=DEVICE_TYPE, residents=jobs) for name, jobs in residents.items())
    plan = client.match(Snapshot(pending=pending, devices=devices))
    found = {action.job_id: action for action in plan.actions}
    for job in pending:
        assert client.explain(plan.decision_id, job.id).action == found[job.id]
    return found


def test_a_second_job_of_an_unknown_workload_takes_a_free_seat_while_the_first_is_measured_alone(
    client: PolicyClient,
) -> None:
    second = Job(id="second", workload="mystery")
    alone = decided(client, (second,), d1=(KNOWN,))["second"]
    assert (alone.kind, alone.rule.kind if alone.rule else None) == (ActionKind.WAIT, RuleKind.UNPROFILED_WORKLOAD)
    beside = decided(client, (second,), d0=(FIRST,), d1=(KNOWN,))["second"]
    assert (beside.kind, beside.device_id, beside.partner_id) == (ActionKind.START_SHARED, "d1", "known")
    assert beside.slowdown_lower < beside.slowdown < beside.slowdown_upper


def test_nobody_joins_the_job_that_is_measured(client: PolicyClient) -> None:
    waiting = (Job(id="second", workload="mystery"), Job(id="other", workload="bert-serve"))
    for order in (waiting, waiting[::-1]):
        assert {each.kind for each in decided(client, order, d0=(FIRST,)).values()} == {ActionKind.WAIT}


def test_of_two_that_run_alone_one_is_measured(client: PolicyClient) -> None:
    jobs = (Job(id="third", workload="mystery"), Job(id="other", workload="bert-serve"))
    found = decided(client, jobs, d0=(FIRST,), d1=(Job(id="second", workload="mystery"),))
    assert sorted((each.kind, each.device_id) for each in found.values()) == [
        (ActionKind.START_SHARED, "d1"),
        (ActionKind.WAIT, ""),
    ]


def test_once_it_is_measured_nothing_is_kept_free(client: PolicyClient) -> None:
    client.observe(
        [
            Progress(
                observation_id="solo",
                job_id="first",
                workload="mystery",
                device_type=DEVICE_TYPE,
                start_s=0.0,
                end_s=10.0,
                steps=100.0,
                device_id="d0",
            ),
            Progress(
                observation_id="shared",
                job_id="second",
                workload="mystery",
                company=("bert-serve",),
                device_type=DEVICE_TYPE,
                start_s=0.0,
                end_s=10.0,
                slowdown=1.2,
                device_id="d1",
            ),
        ]
    )
    found = decided(client, (Job(id="third", workload="mystery"),), d0=(FIRST,))["third"]
    assert (found.kind, found.device_id) == (ActionKind.START_SHARED, "d0")
