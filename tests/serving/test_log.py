"""The observation log end to end: what is kept, replayed to any point, rolled back, and met by a new model."""

import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import NotFoundError
from interfere.predict.online.prior import PRIOR_FILE, ResidualPrior, default_prior
from interfere.records import (
    ActionKind,
    Device,
    Job,
    JobRef,
    MemoryUsage,
    ObservationResult,
    Outcome,
    OutcomeKind,
    PairQuery,
    Progress,
    Rollback,
    Snapshot,
    Source,
)
from interfere.serving.learning import ledger as learning
from interfere.serving.learning import log_fold
from interfere.serving.metrics import Metrics
from interfere.serving.predicting import predict_pairs
from interfere.serving.server import RunningServer
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.store.observations import StoredCheckpoints
from interfere.store.rows import RolledBackRange
from interfere.store.store import SqliteStore
from interfere.training.publishing.residual_prior import residual_prior_file
from tests.models import DEVICE_TYPE, add_file, expected, profile, publish
from tests.serving.test_observations import APPLIED, DUPLICATE, PENDING, REJECTED, median, results, window

DAY_S = 86_400.0
QUARANTINED = ObservationResult.QUARANTINED
MEMORY = MemoryUsage(
    observation_id="m", job_id="j", workload="infer", device_type=DEVICE_TYPE, bytes=2.0**30, start_s=0.0, end_s=9.0
)
OUTCOME = Outcome(
    observation_id="o", job_id="j", kind=OutcomeKind.LOST_RACE, at_s=5.0, decision_id="d", device_id="a", reason="late"
)
PAIRS = [(v, n) for v in ("infer", "stream", "gemm") for n in ("infer", "stream", "gemm") if v != n]


def medians(client: PolicyClient) -> list[float]:
    return [median(client, *pair) for pair in PAIRS]


def some_windows(count: int, start: int = 0) -> list[Progress]:
    """Different pairs, all of them somewhat slower than the model says; one window alone in ten."""
    made = []
    for k in range(start, start + count):
        victim, neighbour = PAIRS[k % len(PAIRS)]
        shared = window(str(k), victim, neighbour, slowdown=expected(victim, neighbour) * (1.05 + 0.03 * (k % 5)))
        made.append(window(str(k), victim, steps=100.0) if k % 10 == 9 else shared)
    return made


def test_outcomes_and_memory_usage_are_kept_and_listed(serve: Callable[..., RunningServer]) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        told = client.observe([MEMORY, OUTCOME, MEMORY, replace(OUTCOME, reason="other")])
        assert [one.result for one in told] == [APPLIED, APPLIED, DUPLICATE, REJECTED]
    first.stop()
    with PolicyClient(serve().address) as client:
        online = client.model().online
        assert (online.observations, online.outcomes, online.memory_usages, online.corrected_jobs) == (2, 1, 1, 0)
        entries = client.observation_log().entries
        assert [(e.sequence, e.observation) for e in entries] == [(2, OUTCOME), (1, MEMORY)]
        assert results(client, OUTCOME) == [DUPLICATE]  # type: ignore[arg-type]


def test_the_state_at_any_point_is_what_it_was_then(client: PolicyClient) -> None:
    then = {}
    for one in some_windows(12):
        client.observe([one])
        log = client.observation_log()
        then[log.entries[0].sequence] = log.online, log.corrections
    for sequence, (online, corrections) in then.items():
        log = client.observation_log(at_sequence=sequence, limit=3)
        assert (log.online, log.corrections) == (online, corrections)
        assert log.entries[0].sequence == sequence
        assert len(log.entries) == min(3, sequence)
    assert client.observation_log(at_sequence=0).entries == ()
    with pytest.raises(NotFoundError, match="ends at 12"):
        client.observation_log(at_sequence=13)


def test_a_rollback_forgets_what_came_after_its_point_and_nothing_else(serve: Callable[..., RunningServer]) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        client.observe(some_windows(5))
        known = medians(client)
        client.observe([window("bad", "infer", "gemm", slowdown=3.0), *some_windows(5, 5)])
        assert medians(client) != known
        assert results(client, Rollback(observation_id="r", to_sequence=5, reason="broken reporter")) == [APPLIED]  # type: ignore[arg-type]
        assert medians(client) == known
        assert [e.rolled_back for e in client.observation_log().entries] == [False, *[True] * 6, *[False] * 5]
        assert results(client, some_windows(1, 5)[0]) == [DUPLICATE]  # it stays in the log
        assert results(client, window("new", "infer", "gemm", slowdown=2.0)) == [APPLIED]
        assert median(client) != known[PAIRS.index(("infer", "gemm"))]
        after = medians(client)
        (far,) = client.observe([Rollback(observation_id="f", to_sequence=99, reason="typing error")])
        assert far.result is REJECTED
        assert "the log ends at 13" in far.reason
    first.stop()
    with PolicyClient(serve().address) as client:
        assert medians(client) == after


def test_clocks_do_not_matter_only_the_order_of_arrival_does(serve: Callable[..., RunningServer]) -> None:
    """Out of order, late by a day, from the future, and with a clock that jumped back: the same state."""
    windows = some_windows(12)
    shifted = [
        replace(one, start_s=one.start_s + at, end_s=one.end_s + at)
        for one, at in zip(windows, [3e9, 0.0, 1e9, 1e9 - DAY_S, 5e8, 2e9] * 2, strict=True)
    ]
    first = serve()
    with PolicyClient(first.address) as client:
        assert REJECTED not in results(client, *windows)
        straight = medians(client)
    first.stop()
    Path(first.settings.store_path).unlink()
    with PolicyClient(serve().address) as client:
        assert REJECTED not in results(client, *shifted)
        assert medians(client) == straight


def test_a_restart_from_a_snapshot_and_one_from_the_whole_log_know_the_same(
    serve: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "SNAPSHOT_EVERY", 16)
    first = serve()
    with PolicyClient(first.address) as client:
        for start in range(0, 60, 6):
            client.observe(some_windows(6, start))
        client.observe([window("waits", "train", "gemm", steps=5.0)])
        known, online = medians(client), client.model().online
    first.stop()
    with sqlite3.connect(first.settings.store_path) as store:
        assert [row[0] for row in store.execute("SELECT seq FROM snapshot ORDER BY seq")] == [18, 36, 54, 61]
    store.close()

    def check() -> None:
        server = serve()
        with PolicyClient(server.address) as client:
            assert medians(client) == known
            assert client.model().online == online
        server.stop()

    check()
    with sqlite3.connect(first.settings.store_path) as store:
        store.execute("DELETE FROM snapshot WHERE seq = 61")
    store.close()
    check()
    with sqlite3.connect(first.settings.store_path) as store:
        store.execute("UPDATE snapshot SET content = substr(content, 1, 999)")
    store.close()
    check()  # a damaged snapshot costs time only
    monkeypatch.setattr(StoredCheckpoints, "find", lambda self, key, up_to=None: iter(()))
    check()


def test_a_rollback_past_a_snapshot_ignores_it(
    serve: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "SNAPSHOT_EVERY", 4)
    server = serve()
    with PolicyClient(server.address) as client:
        client.observe(some_windows(3))
        known = medians(client)
        client.observe(some_windows(9, 3))
        client.observe([Rollback(observation_id="r", to_sequence=3, reason="why")])
        assert medians(client) == known
    server.stop()
    with PolicyClient(serve().address) as client:
        assert medians(client) == known


@pytest.fixture
def challenger(tmp_path: Path) -> Path:
    """Another model: the same graphs under a version of its own."""
    return publish(tmp_path / "challenger", version="fedcba987654")


def test_a_new_champion_meets_every_observation_anew(
    serve: Callable[..., RunningServer], settings: Settings, challenger: Path
) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        client.observe(some_windows(30))
        known, online = medians(client), client.model().online
    first.stop()
    with PolicyClient(serve(replace(settings, model=challenger)).address) as client:
        assert client.model().version == "fedcba987654"
        assert medians(client) == known  # it answers as the first one did, so it is as far off
        assert client.model().online == online


def test_a_memory_report_beyond_the_device_is_refused(client: PolicyClient) -> None:
    (answer,) = client.observe([replace(MEMORY, observation_id="34 TB", bytes=34e12)])
    assert answer.result is REJECTED
    assert "exceed" in answer.reason
    assert client.model().online.memory_usages == 0


def test_a_batch_that_is_half_bad(client: PolicyClient) -> None:
    client.observe([window("old", "infer", "gemm", slowdown=2.0)])
    told = client.observe(
        [
            window("1", "infer", "gemm", slowdown=2.0),
            window("old", "infer", "gemm", slowdown=2.0),
            window("2", "infer", "gemm", "stream", slowdown=2.0),
            window("3", "train", "gemm", steps=5.0),
            window("old", "infer", "gemm", slowdown=1.0),
            MEMORY,
            window("1", "infer", "gemm", slowdown=1.5),
            window("1", "infer", "gemm", slowdown=2.0),
        ]
    )
    assert [one.result for one in told] == [
        APPLIED,
        DUPLICATE,
        APPLIED,
        PENDING,
        REJECTED,
        APPLIED,
        REJECTED,
        DUPLICATE,
    ]
    assert all(one.reason for one in told if one.result is not APPLIED)
    assert client.model().online.observations == 5


def test_a_job_without_facts_is_served_from_what_was_observed_until_its_facts_come(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    folder = publish(tmp_path / "with-means")
    add_file(folder, PRIOR_FILE, residual_prior_file(cold_prior()))
    with PolicyClient(serve(replace(settings, model=folder)).address) as client:
        (before,) = client.predict(["nobody", "gemm"], pairs=[(0, 1)]).prediction.source
        assert before is Source.ABSTAINED
        told = [window(f"cold {k}", "nobody", "gemm", slowdown=1.9) for k in range(8)]
        assert results(client, *told) == [APPLIED] * 8
        assert median(client, "nobody", "gemm") == pytest.approx(1.9, rel=0.05)
        jobs = (Job(id="x", workload="nobody"), Job(id="y", workload="stream"))
        plan = client.match(Snapshot(pending=jobs, devices=(Device(id="d", type=DEVICE_TYPE),)))
        assert {action.kind for action in plan.actions} == {ActionKind.START_SHARED}
        client.register_profiles([profile("nobody")])
        assert expected("nobody", "gemm") < median(client, "nobody", "gemm") < 2.0
        assert client.model().online.corrected_jobs == 1


def cold_prior() -> ResidualPrior:
    """The tiny model's jobs suffer 1.5 on average."""
    homes = [(name, DEVICE_TYPE, "timeslice") for name in ("train", "infer", "gemm", "stream")]
    return replace(
        default_prior(),
        signatures={home: np.zeros(0) for home in homes},
        means={(DEVICE_TYPE, "timeslice"): 0.4},
        victim_effect=dict.fromkeys(homes, 0.1),
        neighbour_effect=dict.fromkeys(homes, 0.0),
    )


def test_a_log_that_is_too_long_forgets_its_oldest_entries_and_nothing_it_learned(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "SNAPSHOT_EVERY", 20)
    model, path = load_served_model(model_folder), tmp_path / "store.db"
    store = SqliteStore(path)
    core = PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=1.0, max_log_entries=50)
    for k in range(120):
        core.observe([window(str(k), "infer", "stream", slowdown=2.5)])
    assert next(entry.sequence for entry in store.observations.entries()) > 40
    assert sum(core.state.learned.counts.values()) < 75
    query = PairQuery(jobs=(JobRef(workload="infer"), JobRef(workload="stream")), pairs=((0, 1),))
    before = predict_pairs(core.state, query).prediction.median
    core.store_state()
    store.close()
    store = SqliteStore(path)
    core = PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=1.0, max_log_entries=50)
    assert predict_pairs(core.state, query).prediction.median == before
    store.close()


@given(st.lists(st.tuples(st.integers(2, 40), st.integers(0, 40)), max_size=5), st.integers(0, 40), st.integers(0, 40))
def test_what_is_read_of_a_log_is_what_no_rollback_made_invalid(
    drawn: list[tuple[int, int]], after: int, upto: int
) -> None:
    rollbacks = [RolledBackRange(at, to) for at, to in drawn if to < at]
    spans = list(log_fold.valid_spans(after, upto, rollbacks))
    read = [sequence for above, last in spans for sequence in range(above + 1, last + 1)]
    assert len(read) == len(set(read))
    is_rollback = {rollback.sequence for rollback in rollbacks}
    valid = {k for k in range(after + 1, upto + 1) if not log_fold.is_rolled_back(k, OUTCOME, rollbacks)}
    assert set(read) - is_rollback == valid - is_rollback


def test_observations_that_arrive_together_are_learned_one_after_the_other(model_folder: Path, tmp_path: Path) -> None:
    """Two callers send the same window: while the first is being learned, the second must not look into the log."""
    store = SqliteStore(tmp_path / "log.db")
    core = PolicyCore(model=load_served_model(model_folder), store=store, metrics=Metrics(), time_budget_s=1.0)
    both_looked, find = threading.Barrier(2), store.observations.find

    def slow_find(observation_ids: Iterable[str]) -> object:
        found = find(observation_ids)
        with suppress(threading.BrokenBarrierError):
            both_looked.wait(timeout=0.5)  # nobody else comes while the lock is held
        return found

    store.observations.find = slow_find  # type: ignore[method-assign,assignment]
    with ThreadPoolExecutor(2) as callers:
        sent = [callers.submit(core.observe, [window("1", "infer", "stream", slowdown=1.5)]) for _ in range(2)]
        told = sorted(answer.result for each in sent for answer in each.result())
    assert told == sorted([ObservationResult.APPLIED, ObservationResult.DUPLICATE])
    assert len(list(store.observations.entries())) == 1
    store.close()
