"""Workers without a processor: the server answers with the greedy plan and says so, and nothing is promised twice.

A stopped process stands for one that gets no processor: it does nothing, however long the test waits.
"""

import math
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import ActionKind, Device, Job, Plan, Snapshot
from interfere.serving import servicer
from interfere.serving.server import RunningServer
from interfere.serving.servicer import bounded_wait_s
from interfere.store.sqlite.file import LOCK_TIMEOUT_S
from interfere.store.store import SqliteStore
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE
from tests.serving.test_server import scrape
from tests.serving.workers.test_pool import wait_ready, workers_of
from tests.waiting import PATIENCE_S, wait_until

TOLD = "no processor time"


@pytest.fixture
def working(serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch) -> RunningServer:
    """A server with one worker that decides and a spare one; callers wait for a worker for little more than a second
    of their deadline."""
    monkeypatch.setattr(servicer, "SHARE_OF_DEADLINE", 0.01)
    server = serve(replace(settings, decision_workers=1, metrics_port=0))
    wait_ready(server, 2)
    return server


@contextmanager
def stopped(server: RunningServer) -> Iterator[set[int]]:
    """Every worker of the server is stopped inside the block."""
    workers = workers_of(server)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield workers
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)


def snapshot(now_s: float, *names: str, devices: int = 2, snapshot_id: str = "") -> Snapshot:
    return Snapshot(
        pending=tuple(Job(id=name, workload="gemm") for name in names),
        devices=tuple(Device(id=f"d{k}", type=DEVICE_TYPE) for k in range(devices)),
        now_s=now_s,
        snapshot_id=snapshot_id,
    )


def starts(plan: Plan) -> dict[str, str]:
    """The devices that jobs start on."""
    kinds = (ActionKind.START_ALONE, ActionKind.START_SHARED)
    return {action.job_id: action.device_id for action in plan.actions if action.kind in kinds}


def match_of_worker(client: PolicyClient, now_s: float) -> Plan:
    """The first plan that a worker makes: on a starved host the server itself answers before."""
    plans = []

    def planned() -> bool:
        plans.append(client.match(snapshot(now_s + len(plans), "late")))
        return TOLD not in plans[-1].stopped_by

    wait_until(planned, "a worker plans")
    return plans[-1]


def test_stopped_workers_let_no_match_time_out_and_plan_again_afterwards(working: RunningServer) -> None:
    with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
        with stopped(working) as workers:
            plans = [client.match(snapshot(float(k), "a", "b")) for k in range(4)]
            assert workers_of(working) == workers  # they had no processor, so nobody judges them
            assert "interfere_greedy_decisions_total 4.0" in scrape(working)
        for plan in plans:
            assert plan.stopped_by.startswith(TOLD)
        assert len(starts(plans[0])) == 2
        assert starts(plans[3]) == starts(plans[0])  # promised
        assert not match_of_worker(client, 10.0).stopped_by
        wait_ready(working, 2)
        assert workers_of(working) == workers


def test_a_late_plan_is_discarded(working: RunningServer) -> None:
    """The jobs of the late plan get no promise, also where the request reached the worker before it was stopped."""
    with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
        with stopped(working):
            first = client.match(snapshot(0.0, "a", "b", devices=1, snapshot_id="1"))
            second = client.match(snapshot(1.0, "a", "b", devices=1, snapshot_id="2"))
            assert TOLD in first.stopped_by
        wait_ready(working, 2)  # the late workers have answered
        assert ledger_revision(working) == 2  # of the two answers, and of no late plan
        assert client.match(snapshot(0.0, "a", "b", devices=1, snapshot_id="1")) == first
        assert client.match(snapshot(1.0, "a", "b", devices=1, snapshot_id="2")) == second
        assert starts(client.match(snapshot(2.0, "a", "b", devices=1))) == starts(second) == starts(first)


def ledger_revision(server: RunningServer) -> int:
    """How often the ledger of the scope was written."""
    store = SqliteStore(server.settings.store_path, shared=True)
    try:
        return store.ledgers.read("default").revision
    finally:
        store.close()


def test_a_request_that_the_pipe_cannot_hold_waits_no_longer(working: RunningServer) -> None:
    """A stopped process reads nothing, so that writing to it waits without end."""
    names = tuple(f"j{k:03}-{'x' * 200}" for k in range(900))
    large = snapshot(0.0, *names, devices=10)
    with stopped(working), PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
        assert TOLD in client.match(large).stopped_by


def test_a_match_waits_while_another_process_holds_the_lock_of_the_store(working: RunningServer) -> None:
    """A process that is stopped while it writes holds the lock until it goes on."""
    connection = sqlite3.connect(working.settings.store_path, isolation_level=None, check_same_thread=False)
    release = threading.Timer(1.5 * LOCK_TIMEOUT_S, lambda: connection.execute("ROLLBACK"))
    try:
        connection.execute("BEGIN IMMEDIATE")
        release.start()
        with PolicyClient(working.address, timeout_s=PATIENCE_S) as client:
            assert starts(client.match(snapshot(0.0, "a", "b"))).keys() == {"a", "b"}
    finally:
        release.join()
        connection.close()


def test_the_wait_is_a_share_of_the_deadline_and_bounded_without_one() -> None:
    small = pb.MatchRequest(pending=[pb.Job(id="a")], devices=[pb.Device(id="d")])
    assert bounded_wait_s(small, 60.0) == servicer.SHARE_OF_DEADLINE * 60.0
    assert bounded_wait_s(small, None) == servicer.NO_DEADLINE_WAIT_S


def test_the_server_makes_no_greedy_plan_of_a_snapshot_that_would_hold_it_up() -> None:
    """Every other call waits while the server computes."""
    large = pb.MatchRequest(pending=[pb.Job(id=str(k)) for k in range(2_000)])
    assert bounded_wait_s(large, 60.0) == math.inf
