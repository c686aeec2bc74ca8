"""Several servers on one PostgreSQL database: one log, one ledger, one belief."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InterfereError, UnfitError
from interfere.records import Action, ActionKind, Device, Job, ObservationResult, Rollback, Snapshot
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE, profile
from tests.serving.test_observations import median, window
from tests.store.postgres_server import PostgresServer, running_postgres
from tests.waiting import PATIENCE_S, free_port, wait_until

REPLICAS = 3


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def shared(settings: Settings, postgres: PostgresServer) -> Settings:
    """The settings of all replicas but their workspace."""
    return replace(settings, database=postgres.new_database())


@pytest.fixture
def replicas(serve: Callable[..., RunningServer], shared: Settings, tmp_path: Path) -> Iterator[list[PolicyClient]]:
    """Clients, one of each server."""
    servers = [serve(replace(shared, work=tmp_path / f"work{k}")) for k in range(REPLICAS)]
    with ExitStack() as stack:
        yield [stack.enter_context(PolicyClient(each.address, timeout_s=PATIENCE_S)) for each in servers]


def learned(client: PolicyClient) -> int:
    """How many windows a server has learned."""
    return client.model().online.observations


def believed(client: PolicyClient) -> list[float]:
    """What a server predicts for some pairs."""
    return [median(client, *pair) for pair in (("infer", "stream"), ("stream", "infer"), ("infer", "gemm"))]


def test_what_one_server_is_told_the_others_believe(replicas: list[PolicyClient]) -> None:
    first, *others = replicas
    before = believed(first)
    assert all(believed(other) == before for other in others)
    for k in range(12):
        (answer,) = replicas[k % REPLICAS].observe([window(str(k), "infer", "stream", slowdown=2.0)])
        assert answer.result is ObservationResult.APPLIED
    wait_until(lambda: all(learned(each) == 12 for each in replicas), "all have learned all")
    now = believed(first)
    assert now[0] > before[0]
    assert all(believed(other) == now for other in others)  # the same entries in the same order
    (again,) = others[0].observe([window("0", "infer", "stream", slowdown=2.0)])
    assert again.result is ObservationResult.DUPLICATE
    others[0].observe([Rollback(observation_id="back", to_sequence=0, reason="a broken reporter")])
    wait_until(lambda: all(believed(each) == before for each in replicas), "the rollback is followed")


def test_reports_to_all_servers_at_once_are_stored_once_and_learned_in_one_order(replicas: list[PolicyClient]) -> None:
    def report(k: int) -> list[ObservationResult]:
        told = [window(f"{k}-{j}", "infer", "stream", slowdown=1.5 + 0.01 * j) for j in range(3)]
        told.append(window(f"same-{k // REPLICAS}", "infer", "gemm", slowdown=1.4))  # of all servers at once
        return [answer.result for answer in replicas[k % REPLICAS].observe(told)]

    with ThreadPoolExecutor(6) as pool:
        results = [result for each in pool.map(report, range(60)) for result in each]
    stored = len(results) - results.count(ObservationResult.DUPLICATE)
    assert stored == 60 * 3 + 60 // REPLICAS
    assert ObservationResult.REJECTED not in results
    wait_until(lambda: all(learned(each) == stored for each in replicas), "all have learned all")
    first, *others = replicas
    assert all(believed(other) == believed(first) for other in others)
    logs = [
        [entry.observation.observation_id for entry in each.observation_log(limit=500).entries] for each in replicas
    ]
    assert logs[0] == logs[1] == logs[2]


def test_a_profile_that_one_server_takes_the_others_use(replicas: list[PolicyClient]) -> None:
    replicas[0].register_profiles([profile("newcomer")])
    wait_until(lambda: all(each.list_profiles(workload="newcomer") for each in replicas), "all know it")


def test_servers_promise_no_place_twice(replicas: list[PolicyClient]) -> None:
    """Partial snapshots of one scope go to all servers at once; none of them shows what the others start."""
    devices = tuple(Device(id=f"d{k}", type=DEVICE_TYPE) for k in range(4))
    started: dict[str, list[Action]] = {}
    lock = threading.Lock()

    def ask(k: int) -> None:
        pending = (Job(id=f"job-{k}", workload="infer"),)
        plan = replicas[k % REPLICAS].match(
            Snapshot(scope="s", snapshot_id=f"s{k}", now_s=1e6, pending=pending, devices=devices, partial=True)
        )
        with lock:
            for action in plan.actions:
                if action.kind in (ActionKind.START_ALONE, ActionKind.START_SHARED):
                    started.setdefault(action.device_id, []).append(action)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(30)))
    assert 4 <= sum(map(len, started.values())) <= 8
    assert all(len(actions) <= 2 for actions in started.values())


def test_a_second_server_in_one_workspace_is_refused(serve: Callable[..., RunningServer], shared: Settings) -> None:
    serve(shared)
    with pytest.raises(UnfitError, match="has this workspace open"):
        serve(shared)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_answers_while_its_database_is_away_and_stores_when_it_is_back(
    postgres: PostgresServer, serve: Callable[..., RunningServer], shared: Settings, mode: str
) -> None:
    with PolicyClient(serve(shared).address, timeout_s=PATIENCE_S) as client:
        client.observe([window("a", "infer", "stream", slowdown=2.0)])
        before = believed(client)
        postgres.stop(mode)
        try:
            assert believed(client) == before
        finally:
            postgres.start()
        (answer,) = client.observe([window("b", "infer", "stream", slowdown=2.0)])
        assert answer.result is ObservationResult.APPLIED
        assert learned(client) == 2


def test_servers_that_are_replaced_one_after_the_other_fail_no_call(
    serve: Callable[..., RunningServer], shared: Settings, tmp_path: Path
) -> None:
    ports = [free_port() for _ in range(REPLICAS)]
    given = [replace(shared, work=tmp_path / f"work{k}", port=port, grace_s=30.0) for k, port in enumerate(ports)]
    servers = [serve(each) for each in given]
    over, counts = threading.Event(), Counter[str]()

    device = Device(id="d", type=DEVICE_TYPE)

    def load(k: int) -> None:
        with PolicyClient("ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports), timeout_s=PATIENCE_S) as client:
            queue = Snapshot(scope=f"s{k}", pending=(Job(id="job", workload="infer"),), devices=(device,))
            calls: list[Callable[[int], object]] = [
                lambda _: client.predict(["infer", "stream"], pairs=[(0, 1)]),
                lambda j: client.observe([window(f"{k}-{j}", "infer", "stream", slowdown=1.5)]),
                lambda j: client.match(replace(queue, snapshot_id=f"{k}-{j}", now_s=1e6 + j)),
            ]
            for j in itertools.count():
                if over.is_set():
                    return
                try:
                    calls[j % 3](j)
                    counts["answered"] += 1
                except InterfereError as error:
                    counts[error.one_line] += 1

    threads = [threading.Thread(target=load, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    try:
        for k in range(REPLICAS):
            answered = counts["answered"]
            wait_until(lambda: counts["answered"] > answered + 100, "the load goes on")  # noqa: B023
            servers[k].stop()
            answered = counts["answered"]
            wait_until(lambda: counts["answered"] > answered + 100, "the others answer")  # noqa: B023
            serve(given[k])
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert set(counts) == {"answered"}, counts
