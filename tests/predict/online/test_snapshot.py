"""Law: a snapshot of an online model answers as the model did when it was taken, whatever the model learns later."""

import gc
import tracemalloc
import weakref
from pathlib import Path

import numpy as np

from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, MatrixBatch, PairBatch
from interfere.serving.state import load_served_model
from tests.models import DEVICE_TYPE, WORKLOADS, profile, publish
from tests.serving.test_observations import window


def answers(model: OnlineModel) -> np.ndarray:
    jobs = tuple(profile(name) for name in WORKLOADS)
    n = len(jobs)
    batch = {"device_type": DEVICE_TYPE, "mode": "timeslice"}
    pairs = model.predict_pairs(
        PairBatch(jobs=jobs, victim=np.repeat(np.arange(n), n), neighbour=np.tile(np.arange(n), n), **batch)
    )
    matrix = model.predict_matrix(MatrixBatch(victims=jobs, neighbours=jobs, **batch), quantile=0.9)
    return np.concatenate([pairs.lower, pairs.median, pairs.upper, matrix.victim_slowdown.ravel()])


def resolve(workload: str, device_type: str) -> JobProfile | None:
    return profile(workload) if workload in WORKLOADS else None


def test_a_snapshot_stays_while_the_model_learns(tmp_path: Path) -> None:
    model = load_served_model(publish(tmp_path / "model")).untaught(lambda _: None)
    rng = np.random.default_rng(0)
    taken = [(model.snapshot(), answers(model), model.summary())]
    for k in range(60):
        victim, neighbour = rng.choice(WORKLOADS, 2)
        company = (str(neighbour),) if k % 7 else ()
        given = {"slowdown": float(rng.uniform(1.0, 3.0))} if company else {"steps": 100.0}
        model.observe(window(str(k), str(victim), *company, **given), resolve)
        if k % 10 == 0:
            taken.append((model.snapshot(), answers(model), model.summary()))
    model.set_savepoint()
    model.observe(window("late", "infer", "gemm", slowdown=2.0), resolve)
    model.restore_savepoint()
    for snapshot, expected, summary in taken:
        assert np.array_equal(answers(snapshot), expected, equal_nan=True)
        assert snapshot.summary() == summary
    assert not np.array_equal(taken[0][1], taken[-1][1])


def test_taking_a_snapshot_costs_by_the_jobs_and_not_by_the_windows(tmp_path: Path) -> None:
    model = load_served_model(publish(tmp_path / "model")).untaught(lambda _: None)
    names = [f"w{k}" for k in range(100)]
    profiles = {name: profile(name) for name in names}
    windows = [window(str(k), names[k % 100], names[(k + 1 + k // 100) % 100], slowdown=1.5) for k in range(1_000)]
    model.prefetch(windows, lambda name, _: profiles[name])
    allocated = []
    for k, each in enumerate(windows):
        model.observe(each, lambda name, _: profiles[name])
        if k in (199, 999):  # every job was seen by then in both roles
            tracemalloc.start()
            snapshot = model.snapshot()
            allocated.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            of_pairs = zip(snapshot.state.pairs.values(), model.state.pairs.values(), strict=True)
            assert all(copied is shared for copied, shared in of_pairs), "what belongs to pairs is shared, not copied"
    assert model.summary()["corrected_pairs"] > 900
    assert allocated[1] <= 1.2 * allocated[0], "bytes of a snapshot, after 200 and after 1,000 windows"


def test_a_snapshot_that_nobody_reads_is_freed_at_once(tmp_path: Path) -> None:
    """Each window makes one. In cycles they pile up until the collector stops all threads to look for them."""
    model = load_served_model(publish(tmp_path / "model")).untaught(lambda _: None)
    model.observe(window("one", "infer", "gemm", slowdown=2.0), resolve)
    gc.disable()
    try:
        snapshot = model.snapshot()
        answers(snapshot)
        freed = weakref.ref(snapshot)
        del snapshot
        assert freed() is None
        freed = weakref.ref(model)
        del model
        assert freed() is None
    finally:
        gc.enable()
