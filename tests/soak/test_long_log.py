"""A log of 200,000 windows: profiles, rollbacks, log reads and predictions beside them, and a start after a kill."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interfere.client import PolicyClient
from interfere.records import ObservationResult, Progress, ReporterWeight, Rollback
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from tests.models import DEVICE_TYPE, profile
from tests.soak.processes import serving

LONG = "SOAK_ROUNDS" in os.environ  # make soak
WINDOWS, LATER = (200_000, 40_000) if LONG else (3_000, 1_500)
JOBS, BATCH = 100, 1_500
MAX_S, MAX_START_S = 0.05, 5.0
NAMES = [f"w{k}" for k in range(JOBS)]
UNPROFILED = "w0"  # observed before it has a profile


def windows(first: int, count: int) -> Iterator[list[Progress]]:
    """Batches of windows of random pairs from four reporters; now and then one without a neighbour."""
    rng = np.random.default_rng(first)
    effects = np.random.default_rng(0).normal(0.0, 0.1, (2, JOBS))
    for start in range(first, first + count, BATCH):
        batch = []
        for k in range(start, min(start + BATCH, first + count)):
            victim, neighbour = rng.choice(JOBS, 2, replace=False)
            shared = {"slowdown": float(np.exp(0.4 + effects[0, victim] + effects[1, neighbour] + rng.normal(0, 0.03)))}
            alone = victim == 0 or k % 100 == 0
            batch.append(
                Progress(
                    observation_id=str(k),
                    job_id=f"j{victim}",
                    workload=NAMES[victim],
                    device_type=DEVICE_TYPE,
                    company=() if alone else (NAMES[neighbour],),
                    start_s=float(k),
                    end_s=k + 10.0,
                    reporter=f"r{victim % 4}",
                    **({"steps": 100.0} if alone else shared),
                )
            )
        yield batch


@contextmanager
def predicting(address: str) -> Iterator[list[float]]:
    """Seconds of one prediction after another, fifty in a second, for as long as the block takes."""
    request = pb.PredictSlowdownsRequest(
        jobs=[pb.JobRef(workload=name) for name in NAMES[1:9]], device_type=DEVICE_TYPE
    )
    over, seconds = threading.Event(), []

    def ask() -> None:
        with grpc.insecure_channel(address) as channel:
            stub = rpc.PolicyServiceStub(channel)
            while not over.wait(0.02):
                start_s = time.perf_counter()
                stub.PredictSlowdowns(request)
                seconds.append(time.perf_counter() - start_s)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()


def timed(what: str, call: Callable[[], object], times: dict[str, float]) -> None:
    """Note the seconds of a call."""
    start_s = time.perf_counter()
    call()
    times[what] = time.perf_counter() - start_s


def until_learned(client: PolicyClient) -> float:
    """Seconds until the model knows of everything that the log holds."""
    start_s = time.perf_counter()
    while client.model().online.relearning:
        time.sleep(0.05)
    return time.perf_counter() - start_s


def medians(client: PolicyClient) -> np.ndarray:
    return client.predict(NAMES[1:20], device_type=DEVICE_TYPE).prediction.median


@pytest.mark.timeout(1800)
def test_nobody_waits_for_a_long_log(model_folder: Path, tmp_path: Path) -> None:
    path, times = tmp_path / "store.db", {}
    with serving(model_folder, path) as served, PolicyClient(served.address, timeout_s=60.0) as client:
        client.register_profiles([profile(name) for name in NAMES[1:]])
        for batch in windows(0, WINDOWS):
            client.observe(batch)
        known = medians(client)
        back = Rollback(observation_id="back", to_sequence=WINDOWS // 20, reason="try")
        with predicting(served.address) as predictions:
            timed("log", client.observation_log, times)
            timed("profile", lambda: client.register_profiles([profile("new")]), times)
            # 1. A rollback far back, and what comes after it while the log is learned again.
            timed("rollback", lambda: client.observe([back]), times)
            later = replace(next(windows(10**9, 1))[0], observation_id="later")
            timed("window", lambda: client.observe([later]), times)
            print(f"learned again after {until_learned(client):.1f} s")
            rolled_back = medians(client)
            # 2. Its undoing, and then a reporter that is rolled back, and a profile of a job that had none.
            undo = Rollback(observation_id="undo", to_sequence=0, reason="no", undoes=WINDOWS + 1)
            timed("undo", lambda: client.observe([undo]), times)
            print(f"learned again after {until_learned(client):.1f} s")
            np.testing.assert_allclose(medians(client), known, rtol=0.02)  # one window more
            one = Rollback(observation_id="one", to_sequence=0, reason="liar", reporter="r1")
            timed("rollback of a reporter", lambda: client.observe([one]), times)
            timed("profile of an observed job", lambda: client.register_profiles([profile(UNPROFILED)]), times)
            mute = ReporterWeight(observation_id="mute", reporter="r2", weight=0.5, reason="try")
            timed("weight", lambda: client.observe([mute]), times)
            print(f"learned again after {until_learned(client):.1f} s")
            final = medians(client)
        assert not np.allclose(rolled_back, known, rtol=1e-6)
        assert not np.allclose(final, known, rtol=1e-6)
        median, slow, slowest = np.quantile(predictions, [0.5, 0.99, 1.0]) * 1e3
        print(f"{len(predictions)} predictions: median {median:.1f}, 99 % {slow:.1f}, slowest {slowest:.0f} ms")
        print(", ".join(f"{what} {1e3 * seconds:.0f} ms" for what, seconds in times.items()))
        for batch in windows(2 * 10**6, LATER):
            assert {one.result for one in client.observe(batch)} <= {
                ObservationResult.APPLIED,
                ObservationResult.QUARANTINED,
            }
        final = medians(client)
        served.kill()
    start_s = time.perf_counter()
    with serving(model_folder, path) as served:
        taken_s = time.perf_counter() - start_s
        with grpc.insecure_channel(served.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            checked = health.Check(health_pb2.HealthCheckRequest(service="interfere.v1.PolicyService"))
            assert checked.status == health_pb2.HealthCheckResponse.SERVING
        with PolicyClient(served.address, timeout_s=20.0) as client:
            np.testing.assert_allclose(medians(client), final, rtol=1e-9)  # the same log, the same state
            assert client.model().online.observations == WINDOWS + LATER + 5
    print(f"started after a kill at {WINDOWS + LATER} windows in {taken_s:.1f} s")
    if LONG:
        assert not {what: seconds for what, seconds in times.items() if seconds > MAX_S}
        assert slow <= 1e3 * MAX_S
        assert taken_s <= MAX_START_S
