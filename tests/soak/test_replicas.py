"""Three servers on one PostgreSQL database, one killed every ten seconds, the database restarted twice.

Nothing that was acknowledged is lost or doubled, and no place is promised twice.

`SOAK_SECONDS` says how long: 600 by default in `make soak`, 20 elsewhere.
"""

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from interfere.client import PolicyClient
from interfere.errors import InterfereError
from interfere.records import ActionKind, Device, Job, ObservationResult, Snapshot
from interfere.store.store import open_store
from tests.models import DEVICE_TYPE
from tests.soak.processes import Served, serving, shared
from tests.store.postgres_server import PostgresServer, running_postgres
from tests.waiting import PATIENCE_S, wait_until

SECONDS = float(os.environ.get("SOAK_SECONDS", "600" if "SOAK_ROUNDS" in os.environ else "20"))
KILL_EVERY_S = 10.0
REPLICAS, REPORTERS, SEATS, DEVICES = 3, 2, 2, 3
KEPT = (ObservationResult.APPLIED, ObservationResult.QUARANTINED, ObservationResult.DUPLICATE)
STARTS = (ActionKind.START_ALONE, ActionKind.START_SHARED)

REPORT_S = 30.0  # until a report without an answer is sent again


class Replicas:
    """The servers, and those of them that are not being killed."""

    def __init__(self, model: Path, database: str, folder: Path) -> None:
        self._model, self._database, self._folder = model, database, folder
        self._contexts: dict[int, ExitStack] = {}
        self.up: dict[int, Served] = {}
        self.over = threading.Event()
        for k in range(REPLICAS):
            self.start(k)

    def start(self, k: int) -> None:
        """Start a server; while the database is away, again and again."""
        while not self.over.is_set():
            stack = ExitStack()
            try:
                self.up[k] = stack.enter_context(serving(self._model, self._database, self._folder / f"work{k}"))
            except (AssertionError, ValueError):
                time.sleep(0.5)
                continue
            self._contexts[k] = stack
            return

    def kill(self, k: int) -> None:
        """Kill a server; nobody asks it any longer."""
        del self.up[k]
        self._contexts.pop(k).close()

    def ask(self, choice: int, call: Callable[[PolicyClient], object]) -> object:
        """Ask a server that is up. Raises InterfereError."""
        up = list(self.up.values())
        with PolicyClient(up[choice % len(up)].address, timeout_s=PATIENCE_S) as client:
            return call(client)

    def close(self) -> None:
        """Kill all."""
        for stack in self._contexts.values():
            stack.close()


class Caller(threading.Thread):
    """Calls until the end; what it finds wrong fails the test."""

    def __init__(self, replicas: Replicas, number: int) -> None:
        super().__init__(daemon=True)
        self.replicas, self.number, self.rng = replicas, number, random.Random(number)
        self.done = self.failed = 0
        self.faults: list[str] = []

    def run(self) -> None:
        for k in itertools.count():
            if self.replicas.over.is_set():
                return
            try:
                self.call(k)
                self.done += 1
            except InterfereError:
                self.failed += 1
            except Exception as error:
                self.faults.append(repr(error))

    def call(self, k: int) -> None:
        raise NotImplementedError

    def until_answered(self, call: Callable[[PolicyClient], object]) -> object:
        """Ask one server after the other until one answers."""
        while True:
            try:
                return self.replicas.ask(self.rng.randrange(99), call)
            except InterfereError:
                self.failed += 1
                time.sleep(0.1)


class Reporter(Caller):
    """Reports windows, each until it is acknowledged."""

    def __init__(self, replicas: Replicas, number: int) -> None:
        super().__init__(replicas, number)
        self.acknowledged: list[str] = []

    def call(self, k: int) -> None:
        batch = [shared(f"{self.number}-{k}-{j}", k + j) for j in range(1 + k % 5)]
        answers = self.until_answered(lambda client: client.observe(batch))
        for answer in answers:  # type: ignore[attr-defined]
            self.acknowledged.append(answer.observation_id)
            if answer.result not in KEPT:
                self.faults.append(f"{answer.observation_id} {answer.result}: {answer.reason}")


class Scheduler(Caller):
    """Lets all servers at once start jobs on the devices of one scope after another."""

    def call(self, k: int) -> None:
        devices = tuple(Device(id=f"d{j}", type=DEVICE_TYPE) for j in range(DEVICES))
        started: Counter[str] = Counter()

        def ask(job: int) -> None:
            snapshot = Snapshot(
                scope=f"{self.number}-{k}",
                snapshot_id=f"{job}",
                now_s=1e6,
                pending=(Job(id=f"job-{job}", workload="infer"),),
                devices=devices,
                partial=True,
            )
            plan = self.until_answered(lambda client: client.match(snapshot))
            started.update(each.device_id for each in plan.actions if each.kind in STARTS)  # type: ignore[attr-defined]

        threads = [threading.Thread(target=ask, args=(job,)) for job in range(SEATS * DEVICES + 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not started.total() >= DEVICES or max(started.values()) > SEATS:
            self.faults.append(f"scope {self.number}-{k}: {dict(started)}")


class Predictor(Caller):
    """Asks for predictions; those that fail were in flight when their server was killed."""

    def call(self, k: int) -> None:
        self.replicas.ask(k, lambda client: client.predict(["infer", "stream"], pairs=[(0, 1)]))


@contextmanager
def running(callers: list[Caller], replicas: Replicas) -> Iterator[None]:
    """Let callers call."""
    for caller in callers:
        caller.start()
    try:
        yield
    finally:
        replicas.over.set()
        for caller in callers:
            caller.join(PATIENCE_S)


def _is_reported(client: PolicyClient, name: str, number: int) -> bool:
    """Report a window as reporters do: what was not acknowledged is sent again, under the same id."""
    try:
        client.observe([shared(name, number)])
    except InterfereError:
        return False
    return True


def lag_s(replicas: Replicas, number: int) -> float:
    """Return how long after an acknowledged report the last server has learned it."""
    name = f"lag-{number}"
    up = list(replicas.up.values())
    with ExitStack() as stack:
        addresses = [each.address for each in up]
        first = stack.enter_context(PolicyClient(addresses[0], timeout_s=REPORT_S))
        others = [stack.enter_context(PolicyClient(each, timeout_s=PATIENCE_S)) for each in addresses[1:]]
        wait_until(lambda: _is_reported(first, name, number), "a report is acknowledged")
        begin_s = time.monotonic()
        for other in others:
            wait_until(
                lambda other=other: (
                    name  # type: ignore[misc]
                    in [entry.observation.observation_id for entry in other.observation_log(limit=1_000).entries]
                ),
                "the other server learns it",
            )
        return time.monotonic() - begin_s


def test_servers_that_are_killed_and_a_database_that_restarts_lose_nothing(model_folder: Path, tmp_path: Path) -> None:
    with running_postgres(fsync=True) as postgres:
        run(postgres, model_folder, tmp_path)


def run(postgres: PostgresServer, model_folder: Path, tmp_path: Path) -> None:
    """Kill, restart, and compare what was acknowledged with what is there."""
    database, begin_s, kills = postgres.new_database(), time.monotonic(), 0
    open_store(database).close()
    replicas = Replicas(model_folder, database, tmp_path)
    reporters: list[Reporter] = [Reporter(replicas, k) for k in range(REPORTERS)]
    schedulers = [Scheduler(replicas, 10 + k) for k in range(2)]
    predictor = Predictor(replicas, 20)
    restarts, lags = [("fast", SECONDS / 3), ("immediate", 2 * SECONDS / 3)], []
    try:
        with running([*reporters, *schedulers, predictor], replicas):
            while (passed_s := time.monotonic() - begin_s) < SECONDS or restarts:
                k = kills % REPLICAS
                replicas.kill(k)
                kills += 1
                if restarts and passed_s > restarts[0][1]:
                    postgres.stop(restarts.pop(0)[0])
                    time.sleep(1.0)
                    postgres.start()
                replicas.start(k)
                lags.append(lag_s(replicas, kills))
                time.sleep(max(0.0, begin_s + kills * KILL_EVERY_S - time.monotonic()))
        callers = [*reporters, *schedulers, predictor]
        assert [fault for caller in callers for fault in caller.faults] == []
        assert all(caller.done for caller in callers)
        assert predictor.failed <= kills
        store = open_store(database, read_only=True)
        stored = [entry.observation.observation_id for entry in store.observations.entries()]
        store.close()
        acknowledged = {name for reporter in reporters for name in reporter.acknowledged}
        assert len(stored) == len(set(stored))
        assert acknowledged <= set(stored)
        clients = [PolicyClient(each.address, timeout_s=PATIENCE_S) for each in replicas.up.values()]
        wait_until(lambda: all(c.model().online.observations == len(stored) for c in clients), "all have learned all")
        told = [client.predict(["infer", "stream"], pairs=[(0, 1)]).prediction.median.tolist() for client in clients]
        assert all(agree(each, told[0]) for each in told)
        print(
            f"{kills} kills, {len(acknowledged)} observations acknowledged, {sum(s.done for s in schedulers)} scopes, "
            f"{predictor.done} predictions, {predictor.failed} failed; behind by "
            f"{sorted(lags)[len(lags) // 2]:.2f} s (median), {max(lags):.2f} s (largest)"
        )
        for client in clients:
            client.close()
    finally:
        replicas.over.set()
        replicas.close()


def agree(one: list[float], other: list[float]) -> bool:
    """Whether two answers agree: a server that was restarted learned from a stored state."""
    return all(abs(a - b) < 1e-9 for a, b in zip(one, other, strict=True))
