"""Several servers on one PostgreSQL database: one log, one ledger, one belief."""

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import InterfereError, UnavailableError, UnfitError
from interfere.policy.context import PlanningContext
from interfere.policy.decide import ScopeDecision
from interfere.policy.decide import decide as decide_at_once
from interfere.predict.residual import OnlineModel
from interfere.records import Action, ActionKind, Device, Job, ObservationResult, Progress, Rollback, Snapshot
from interfere.serving import decisions
from interfere.serving.learning import ledger
from interfere.serving.learning.log_fold import LogFold
from interfere.serving.server import RunningServer
from interfere.store import postgres as postgres_module
from interfere.store.postgres import PostgresDatabase
from tests.models import DEVICE_TYPE, profile
from tests.serving.test_observations import median, window
from tests.serving.test_server import scrape
from tests.store.postgres_server import PostgresServer, running_postgres
from tests.waiting import PATIENCE_S, free_port, wait_until

REPLICAS = 3
DEADLINE_S = 10.0  # that clients usually wait: refusals come earlier


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


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scopes of all plans that are computed from now on, each in a tenth of a second at least."""
    scopes: list[str] = []

    def decide(context: PlanningContext, *given: Any) -> ScopeDecision:
        scopes.append(context.snapshot.scope)
        time.sleep(0.1)
        return decide_at_once(context, *given)

    monkeypatch.setattr(decisions, "decide", decide)
    return scopes


def match_at_once(replicas: list[PolicyClient], scope: str) -> None:
    """Let each server decide for the same scope at the same time."""
    snapshot = Snapshot(scope=scope, now_s=1e6, pending=(), devices=(Device(id="d", type=DEVICE_TYPE),), partial=True)
    with ThreadPoolExecutor(REPLICAS) as pool:
        list(pool.map(lambda k: replicas[k].match(replace(snapshot, snapshot_id=f"{k}")), range(REPLICAS)))


def test_a_server_waits_while_another_one_plans_for_the_scope(
    replicas: list[PolicyClient], planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    match_at_once(replicas, "s")
    assert len(planned) == REPLICAS
    monkeypatch.setattr(PostgresDatabase, "claim", lambda *_: nullcontext())  # the hint saves work, and no more
    match_at_once(replicas, "t")
    assert len(planned) > 2 * REPLICAS


def test_one_server_learns_a_log_again_and_the_others_take_what_it_stored(
    replicas: list[PolicyClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_at: dict[int, list[int]] = defaultdict(list)  # by server; one begins anew where a change arrives meanwhile
    model_after = LogFold.model_after

    def noting(fold: LogFold, upto: int) -> tuple[OnlineModel, int]:
        model, start = model_after(fold, upto)
        if threading.current_thread().name == "relearning":
            begun_at[id(fold)].append(start)
            time.sleep(0.3)
        return model, start

    monkeypatch.setattr(LogFold, "model_after", noting)
    monkeypatch.setattr(ledger, "FEW_ENTRIES", 0)
    told = [window(f"{k}", "nobody", "stream", slowdown=1.5) for k in range(40)]
    replicas[0].observe(told)
    wait_until(lambda: all(learned(each) == len(told) for each in replicas), "all have learned all")
    replicas[0].register_profiles([profile("nobody")])  # observed without a profile
    wait_until(lambda: len(begun_at) == REPLICAS, "all learn again")
    wait_until(lambda: not any(each.model().online.relearning for each in replicas), "all have learned again")
    assert sorted(starts[-1] for starts in begun_at.values()) == [0, *[len(told)] * (REPLICAS - 1)]
    assert len([starts for starts in begun_at.values() if 0 in starts]) == 1
    first, *others = replicas
    assert all(believed(other) == pytest.approx(believed(first)) for other in others)


def test_servers_learn_from_each_other_where_notifications_do_not_arrive(
    replicas: list[PolicyClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool of connections between server and database may pass none on."""
    monkeypatch.setattr(postgres_module, "CHANNEL", "nobody_listens")
    replicas[0].observe([window("a", "infer", "stream", slowdown=2.0)])
    wait_until(lambda: all(learned(each) == 1 for each in replicas), "all have learned it")


def test_a_second_server_in_one_workspace_is_refused(serve: Callable[..., RunningServer], shared: Settings) -> None:
    serve(shared)
    with pytest.raises(UnfitError, match="has this workspace open"):
        serve(shared)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_while_the_database_is_away_reports_wait_predictions_go_on_and_decisions_are_refused(
    postgres: PostgresServer, serve: Callable[..., RunningServer], shared: Settings, mode: str
) -> None:
    server = serve(replace(shared, metrics_port=0))
    queue = Snapshot(
        scope="s",
        snapshot_id="1",
        now_s=1e6,
        pending=(Job(id="job", workload="infer"),),
        devices=(Device(id="d", type=DEVICE_TYPE),),
    )
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client, ThreadPoolExecutor(6) as pool:
        client.observe([window("a", "infer", "stream", slowdown=2.0)])
        before = believed(client)
        postgres.stop(mode)
        try:
            reports = [
                pool.submit(client.observe, [window(f"b{k}", "infer", "stream", slowdown=2.0)]) for k in range(6)
            ]
            begin_s = time.monotonic()
            assert believed(client) == before
            for call in (lambda: client.match(queue), client.scopes, client.decisions):
                with pytest.raises(UnavailableError, match="database is away"):
                    call()
            assert "interfere_newest_observation_seconds NaN" in scrape(server)
            assert time.monotonic() - begin_s < DEADLINE_S
            assert not any(report.done() for report in reports)  # nothing is acknowledged that is not stored
        finally:
            postgres.start()
        assert [answer.result for report in reports for answer in report.result()] == [ObservationResult.APPLIED] * 6
        assert learned(client) == 7
        assert client.match(queue).actions


def test_a_report_is_told_why_it_is_not_stored_before_its_caller_gives_up(
    postgres: PostgresServer, serve: Callable[..., RunningServer], shared: Settings
) -> None:
    told = [window("a", "infer", "stream", slowdown=2.0)]
    with PolicyClient(serve(shared).address, timeout_s=6.0) as client:
        client.model()
        postgres.stop()
        try:
            with pytest.raises(UnavailableError, match="not confirmed as stored: the database is away"):
                client.observe(told)
        finally:
            postgres.start()
        wait_until(lambda: _is_applied(client, told), "it is stored when the database is back")
        assert learned(client) == 1


def _is_applied(client: PolicyClient, told: list[Progress]) -> bool:
    try:
        return client.observe(told)[0].result is ObservationResult.APPLIED
    except UnavailableError:
        return False


def test_reports_that_come_while_one_is_stored_are_stored_in_one_transaction(
    serve: Callable[..., RunningServer], shared: Settings
) -> None:
    address = shared.database
    with (
        psycopg.connect(address) as other,
        PolicyClient(serve(shared).address, timeout_s=PATIENCE_S) as client,
        ThreadPoolExecutor(9) as pool,
    ):
        other.execute("SELECT last FROM number WHERE name = 'observation' FOR UPDATE")  # as another server that appends
        reports = [pool.submit(client.observe, [window("same", "infer", "stream", slowdown=2.0)]) for _ in range(2)]
        reports += [pool.submit(client.observe, [window(f"{k}", "infer", "stream", slowdown=2.0)]) for k in range(4)]
        time.sleep(1.0)  # the first waits for the other server, the others for the first
        other.commit()
        results = Counter(answer.result for report in reports for answer in report.result())
        assert results == {ObservationResult.APPLIED: 5, ObservationResult.DUPLICATE: 1}
        transactions = other.execute("SELECT count(DISTINCT xmin::text), count(*) FROM observation").fetchone()
    assert transactions == (2, 5)


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
