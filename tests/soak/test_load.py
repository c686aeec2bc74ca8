"""Load: observations per second on one core while predictions go on, and a restart with a long log."""

import os
import random
import threading
import time
from pathlib import Path

from interfere.client import PolicyClient
from interfere.features.pair import FeatureEncoder
from interfere.predict.measured import MeasuredPredictor
from interfere.predict.onnx import load_model
from interfere.predict.residual import OnlineModel
from interfere.records import Progress
from interfere.serving.learning.ledger import ObservationLedger
from interfere.serving.metrics import Metrics
from interfere.serving.profiles import ProfileCatalogue
from interfere.store.store import SqliteStore
from tests.models import DEVICE_TYPE, profile
from tests.serving.workers.test_pool import cpu_s
from tests.soak.processes import serving, shared

LONG = "SOAK_ROUNDS" in os.environ  # make soak
SECONDS = 60.0 if LONG else 2.0
BATCH = 100
RATE = 1_000.0  # observations per second that one core must sustain
ENTRIES = 1_000_000 if LONG else 20_000
JOBS = 10_000 if LONG else 500
RESTART_S = 10.0


def test_a_thousand_observations_a_second_on_one_core_with_predictions_going_on(
    model_folder: Path, tmp_path: Path
) -> None:
    with serving(model_folder, tmp_path / "store.db") as served:
        os.sched_setaffinity(served.process.pid, {min(os.sched_getaffinity(0))})
        for task in Path(f"/proc/{served.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {min(os.sched_getaffinity(0))})
        over, asked = threading.Event(), []

        def predict() -> None:
            with PolicyClient(served.address, timeout_s=20.0) as client:
                while not over.is_set():
                    start_s = time.perf_counter()
                    client.predict(["infer", "stream", "gemm", "train"])
                    asked.append(time.perf_counter() - start_s)
                    time.sleep(0.02)

        asking = threading.Thread(target=predict)
        asking.start()
        try:
            with PolicyClient(served.address, timeout_s=20.0) as client:
                sent, start_s, before_s = 0, time.perf_counter(), cpu_s(served.process.pid)
                while (taken_s := time.perf_counter() - start_s) < SECONDS:
                    client.observe([shared(str(sent + k), sent + k) for k in range(BATCH)])
                    sent += BATCH
                assert client.model().online.observations == sent
                used_s = cpu_s(served.process.pid) - before_s
        finally:
            over.set()
            asking.join()
    slow_ms = sorted(asked)[int(0.95 * len(asked))] * 1e3
    rate = sent / taken_s
    print(f"{rate:.0f} observations/s for {taken_s:.0f} s; {len(asked)} predictions, 95 % in {slow_ms:.0f} ms")
    assert sent / used_s >= RATE / 2, "a CPU second, predictions included; half for a slow machine"
    if LONG:
        assert rate >= RATE
    assert asked


def test_a_restart_with_a_long_log(model_folder: Path, tmp_path: Path) -> None:
    """After a kill: from the last snapshot that was written on the way, and the entries since."""
    path, rng = tmp_path / "store.db", random.Random(0)
    store = SqliteStore(path)
    names = [f"w{k}" for k in range(JOBS)]
    store.profiles.put([profile(name) for name in names])
    model = load_model(model_folder, FeatureEncoder())
    predictor = MeasuredPredictor(model, {})
    catalogue = ProfileCatalogue(
        {shipped.profile_id: shipped for shipped in model.profiles.values()}, dict(store.profiles.read())
    )
    ledger = ObservationLedger(
        lambda _: OnlineModel(predictor), store.observations, store.checkpoints, catalogue, Metrics()
    )
    for start in range(0, ENTRIES, 2_000):
        ledger.observe([_window(k, rng.choice(names), rng.choice(names)) for k in range(start, start + 2_000)])
        if ledger.state_is_due:
            ledger.store_state()
    store.close()  # and no snapshot at the end
    with serving(model_folder, path) as served:
        taken_s = cpu_s(served.process.pid)
        with PolicyClient(served.address, timeout_s=20.0) as client:
            assert client.model().online.observations == ENTRIES
    print(f"{ENTRIES} observations of {JOBS} jobs: served after {taken_s:.1f} CPU s")
    assert taken_s <= RESTART_S


def _window(k: int, victim: str, neighbour: str) -> Progress:
    return Progress(
        observation_id=str(k),
        job_id="j",
        workload=victim,
        device_type=DEVICE_TYPE,
        company=(neighbour,),
        start_s=float(k),
        end_s=k + 10.0,
        slowdown=1.2 + 0.05 * (k % 4),
    )
