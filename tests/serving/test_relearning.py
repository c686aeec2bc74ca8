"""A log that is learned again beside the present model, and a server that learns its log before it is ready."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import CancelledError, UnavailableError
from interfere.records import Progress, Rollback
from interfere.serving.learning import ledger, log_fold
from interfere.serving.learning.log_fold import LogFold
from interfere.serving.metrics import Metrics
from interfere.serving.server import SERVICE, RunningServer, start_server
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.store.store import SqliteStore
from interfere.time_budget import interruptible
from tests.models import WORKLOADS, profile
from tests.serving.test_catch_up import answers
from tests.serving.test_observations import window
from tests.soak.processes import shared
from tests.waiting import PATIENCE_S, free_port, wait_until


def windows(first: int, count: int) -> list[Progress]:
    rng = np.random.default_rng(first)
    made = []
    for k in range(first, first + count):
        victim, neighbour = (str(name) for name in rng.choice([*WORKLOADS, "nobody"], 2, replace=False))
        made.append(
            replace(window(f"w{k}", victim, neighbour, slowdown=float(rng.uniform(1.2, 1.8))), reporter=f"r{k % 3}")
        )
    return made


class Paused:
    """Lets the log be learned again only when `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, original = threading.Event(), LogFold.model_after
        monkeypatch.setattr(log_fold, "FEW_ENTRIES", 0)
        monkeypatch.setattr(ledger, "FEW_ENTRIES", 0)

        def model_after(fold: LogFold, upto: int) -> object:
            if threading.current_thread().name == "relearning":
                assert self.go.wait(PATIENCE_S)
            return original(fold, upto)

        monkeypatch.setattr(log_fold.LogFold, "model_after", model_after)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Paused:
    return Paused(monkeypatch)


@pytest.fixture
def make_core(model_folder: Path, tmp_path: Path) -> Iterator[Callable[..., PolicyCore]]:
    """Cores on one store; the first one writes."""
    model, stores, cores = load_served_model(model_folder), [], []

    def make(*, learns_beside: bool = False) -> PolicyCore:
        stores.append(SqliteStore(tmp_path / "store.db", shared=bool(stores)))
        cores.append(
            PolicyCore(model=model, store=stores[-1], metrics=Metrics(), time_budget_s=1.0, learns_beside=learns_beside)
        )
        return cores[-1]

    yield make
    for core in cores:
        core.close()
    for store in stores:
        store.close()


def until_learned(core: PolicyCore) -> None:
    wait_until(lambda: not core.state.learned.relearning, "the log is learned again")


def rollback(name: str, **given: object) -> Rollback:
    return Rollback(observation_id=name, reason="why", **{"to_sequence": 0, **given})  # type: ignore[arg-type]


def test_calls_are_answered_by_the_model_before_until_the_log_is_learned_again(
    make_core: Callable[..., PolicyCore], paused: Paused
) -> None:
    core = make_core(learns_beside=True)
    core.observe(windows(0, 60))
    then = answers(core)
    core.observe(windows(100, 60))
    before = answers(core)
    # 1. The rollback is answered, and so are predictions and reports after it.
    (told,) = core.observe([rollback("r", to_sequence=60)])
    assert told.reason == ledger.RELEARNING
    assert core.model().online.relearning
    np.testing.assert_array_equal(answers(core), before)
    core.register([profile("train", step_time_s=0.2)])
    core.observe([])
    core.store_state()  # not of a model that is to be replaced
    assert list(core.store.checkpoints.find(core._observed._fold._key())) == []
    # 2. The result is that of the same log learned at once.
    paused.go.set()
    until_learned(core)
    np.testing.assert_allclose(answers(core), answers(make_core()), rtol=1e-12)
    assert not np.allclose(answers(core), before)
    core.observe(windows(200, 20))
    np.testing.assert_allclose(answers(core), answers(make_core()), rtol=1e-12)
    assert not np.allclose(answers(core), then)


def test_windows_and_rollbacks_that_come_meanwhile_are_in_the_result(
    make_core: Callable[..., PolicyCore], paused: Paused
) -> None:
    core = make_core(learns_beside=True)
    core.observe(windows(0, 80))
    core.observe([rollback("one", reporter="r1")])
    core.observe(windows(100, 30))
    core.register([profile("nobody")])  # observed without a profile
    core.observe([rollback("two", to_sequence=40), *windows(200, 30)])
    core.observe([rollback("undo", undoes=81)])
    assert core.state.learned.relearning
    paused.go.set()
    until_learned(core)
    np.testing.assert_allclose(answers(core), answers(make_core()), rtol=1e-12)
    told = core.model().online
    assert told == make_core().model().online


def test_a_replica_waits_for_the_result_and_takes_it(make_core: Callable[..., PolicyCore], paused: Paused) -> None:
    writer = make_core(learns_beside=True)
    writer.observe(windows(0, 60))
    replica = make_core()
    before = answers(replica)
    writer.observe([rollback("r", to_sequence=20)])
    state = writer.state
    replica.catch_up(state.learned.last_sequence, state.profiles.digest(), relearning=state.learned.relearning)
    np.testing.assert_array_equal(answers(replica), before)
    writer.register([profile("nobody")])
    state = writer.state
    replica.catch_up(state.learned.last_sequence, state.profiles.digest(), relearning=state.learned.relearning)
    paused.go.set()
    until_learned(writer)
    state = writer.state
    replica.catch_up(state.learned.last_sequence, state.profiles.digest(), relearning=state.learned.relearning)
    np.testing.assert_allclose(answers(replica), answers(writer), rtol=1e-12)
    assert not np.allclose(answers(replica), before)


def test_health_answers_while_a_server_learns_its_log(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    first = serve(replace(settings, port=port))
    with PolicyClient(first.address) as client:
        client.observe([shared(str(k), k) for k in range(20)])
    first.stop()
    go, original, found = threading.Event(), LogFold.model_after, []

    def slow(fold: LogFold, upto: int) -> object:
        assert go.wait(PATIENCE_S)
        return original(fold, upto)

    monkeypatch.setattr(log_fold.LogFold, "model_after", slow)
    starting = threading.Thread(target=lambda: found.append(start_server(replace(settings, port=port))))
    starting.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, PolicyClient(f"127.0.0.1:{port}") as client:
        health = health_pb2_grpc.HealthStub(channel)

        def status(name: str) -> int:
            return health.Check(
                health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S, wait_for_ready=True
            ).status

        try:
            assert status("") == health_pb2.HealthCheckResponse.SERVING  # alive
            assert status(SERVICE) == health_pb2.HealthCheckResponse.NOT_SERVING
            with pytest.raises(UnavailableError, match="starting"):
                client.model()
        finally:
            go.set()
            starting.join()
        assert status(SERVICE) == health_pb2.HealthCheckResponse.SERVING
        assert client.model().online.observations == 20
    found[0].stop()


def test_a_caller_that_gives_up_leaves_nothing_half_learned(make_core: Callable[..., PolicyCore]) -> None:
    core, other = make_core(), make_core()
    core.observe(windows(0, 30))
    other.catch_up(30, other.state.profiles.digest())
    other.observe(windows(100, 30))
    looks = itertools.count()

    def check() -> None:
        if next(looks) >= 2:
            raise CancelledError("nobody waits any longer")

    with interruptible(check), suppress(CancelledError):
        core.observe(windows(200, 5))  # after those of the other, which it has to learn first
    with interruptible(check), suppress(CancelledError):
        core.register([profile("nobody")])  # learns again all that was observed without it
    core.observe(windows(300, 5))
    np.testing.assert_allclose(answers(core), answers(make_core()), rtol=1e-12)
