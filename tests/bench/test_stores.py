"""What a write costs on PostgreSQL beside SQLite: CPU of this process, the time until it is on disk, and how many
reports of several callers are stored in a second, one after another and in groups."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.records import ObservationAnswer, ObservationResult, Reported, ScopeLedger
from interfere.serving.servicer import ReportGroups
from interfere.store.rows import NewObservation
from interfere.store.store import Store, open_store
from interfere.testing.stores import DECISION, promise, window
from tests.bench.history import record
from tests.store.postgres_server import running_postgres

pytestmark = pytest.mark.bench
REPEATS = 200
numbers = itertools.count()


def append(store: Store, count: int) -> None:
    """Append new observations."""
    new = [NewObservation(observation=window(f"o{next(numbers)}")) for _ in range(count)]
    store.observations.append(new, 0.0)


def decide(store: Store) -> None:
    """Read the ledger of a scope, and commit it with 20 promises and the answer, as a Match does."""
    name = f"d{next(numbers)}"
    ledger = store.ledgers.read("s")
    promises = tuple(promise(f"{name}-{k}") for k in range(20))
    decision = replace(DECISION, snapshot_id=name, content=b"answer" * 500)
    assert store.ledgers.commit(replace(ledger, promises=promises), decision)
    assert isinstance(ledger, ScopeLedger)


WORK: dict[str, Callable[[Store], None]] = {
    "append_1": lambda store: append(store, 1),
    "append_100": lambda store: append(store, 100),
    "decision": decide,
}


def test_writes_on_both_stores(tmp_path: Path) -> None:
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        database = stack.enter_context(running_postgres(fsync=True)).new_database()
        stores = {
            "sqlite": stack.enter_context(closing(open_store(tmp_path / "store.db"))),
            "postgresql": stack.enter_context(closing(open_store(database))),
        }
        for name, work in WORK.items():
            cpu_s: dict[str, list[float]] = {kind: [] for kind in stores}
            wall_s: dict[str, list[float]] = {kind: [] for kind in stores}
            for kind in list(stores) * REPEATS:  # in turn, so that both meet the same disturbances
                start_cpu_s, start_s = time.thread_time(), time.perf_counter()
                work(stores[kind])
                cpu_s[kind].append(time.thread_time() - start_cpu_s)
                wall_s[kind].append(time.perf_counter() - start_s)
            for kind in stores:
                figures[f"{name}_{kind}_cpu_ms"] = round(1e3 * float(np.median(cpu_s[kind])), 3)
                figures[f"{name}_{kind}_ms"] = round(1e3 * float(np.median(wall_s[kind])), 3)
            figures[f"{name}_ratio"] = round(float(np.median(wall_s["postgresql"]) / np.median(wall_s["sqlite"])), 2)
    print()
    for name in WORK:
        print(", ".join(f"{key} {value}" for key, value in figures.items() if key.startswith(f"{name}_")))
    record("stores", figures)
    assert all(figures[f"{name}_ratio"] < 20 for name in WORK)


CALLERS, REPORTS = 8, 100


def reports_a_second(store: Store, observe: Callable[[int], object]) -> float:
    """Return how many reports of several callers are stored in a second."""
    start_s = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(observe, range(CALLERS * REPORTS)))
    assert store.observations.bounds()[1] >= CALLERS * REPORTS
    return CALLERS * REPORTS / (time.perf_counter() - start_s)


def test_reports_of_several_callers_at_once(tmp_path: Path) -> None:
    figures: dict[str, float] = {}
    with ExitStack() as stack:
        database = stack.enter_context(running_postgres(fsync=True)).new_database()
        for kind, address in {"sqlite": tmp_path / "store.db", "postgresql": database}.items():
            store = stack.enter_context(closing(open_store(address)))

            def observe(reported: Sequence[Reported], store: Store = store) -> list[ObservationAnswer]:
                store.observations.append([NewObservation(observation=each) for each in reported], 0.0)  # type: ignore[arg-type]  # none is unreadable
                return [ObservationAnswer(observation_id="", result=ObservationResult.APPLIED) for _ in reported]

            groups, one_at_a_time = ReportGroups(observe), threading.Lock()

            def alone(_: int, lock: threading.Lock = one_at_a_time, store: Store = store) -> None:
                with lock:
                    append(store, 1)

            def grouped(_: int, groups: ReportGroups = groups) -> None:
                groups.observe([window(f"o{next(numbers)}")], 60.0)

            for name, work in {"one_by_one": alone, "grouped": grouped}.items():
                rates = [reports_a_second(store, work) for _ in range(3)]
                figures[f"{kind}_{name}_reports_s"] = round(float(np.median(rates)))
    print()
    print(", ".join(f"{key} {value:g}" for key, value in figures.items()))
    record("stores_grouped", figures)
    for kind in ("sqlite", "postgresql"):
        assert figures[f"{kind}_grouped_reports_s"] > figures[f"{kind}_one_by_one_reports_s"]
