"""What is kept has limits, what is evicted at a limit is counted, and what was freed returns to the system."""

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.predict import encoded_jobs
from interfere.records import (
    NAN,
    Device,
    Job,
    JobProfile,
    JobRef,
    KernelStat,
    PairQuery,
    Progress,
    Snapshot,
)
from interfere.serving.metrics import EVICTED, Metrics
from interfere.serving.predicting import predict_pairs
from interfere.serving.profiles import MAX_VERSIONS
from interfere.serving.server import RunningServer
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.serving.workers.fork_server import ARENAS
from interfere.store import decisions
from interfere.store.store import SqliteStore
from tests.models import DEVICE_TYPE, WORKLOADS, profile
from tests.serving.test_server import scrape


def evictions(server: RunningServer) -> dict[str, float]:
    """The counters of the metrics page, by what was evicted."""
    return {
        what: float(count)
        for what, count in re.findall(r'interfere_evictions_total\{what="(\w+)"\} (\S+)', scrape(server))
    }


def snapshot(scope: str, snapshot_id: str) -> Snapshot:
    return Snapshot(
        scope=scope,
        snapshot_id=snapshot_id,
        now_s=1.0,
        pending=(Job(id="a", workload="gemm"),),
        devices=(Device(id="d", type=DEVICE_TYPE),),
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_evictions_are_counted_wherever_they_happen(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(encoded_jobs, "MAX_CACHED_JOBS", 3)
    server = serve(replace(settings, metrics_port=0, decision_workers=workers))
    before = evictions(server)
    assert set(before) == set(EVICTED)
    assert sum(before.values()) == before["encoded_job"]  # of the decision that warms up
    with PolicyClient(server.address) as client:
        client.register_profiles([profile("gemm", step_time_s=0.01 + 0.001 * k) for k in range(MAX_VERSIONS + 5)])
        client.predict(list(WORKLOADS))
        # the profile of the model folder is a version too, and is not stored
        assert evictions(server)["profile_version"] == 5
        assert evictions(server)["encoded_job"] > before["encoded_job"]
        assert re.search(r"^interfere_encoded_jobs_bytes [1-9]", scrape(server), re.MULTILINE)
        assert re.search(r"^process_resident_memory_bytes [1-9]", scrape(server), re.MULTILINE)


def test_decisions_audits_and_scopes_beyond_their_limits_are_counted(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        SqliteStore.__init__, "__kwdefaults__", {**SqliteStore.__init__.__kwdefaults__, "max_decisions": 4}
    )
    monkeypatch.setattr(decisions.StoredDecisionAudits.__init__, "__defaults__", (3, decisions.MAX_AUDITS_BYTES))
    monkeypatch.setattr(decisions.StoredLedgers.__init__, "__defaults__", (2,))
    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address) as client:
        for k in range(6):
            client.match(snapshot(f"scope-{k}", f"snapshot-{k}"))
    counted = evictions(server)
    assert (counted["decision"], counted["decision_audit"], counted["scope"]) == (2, 3, 4)


def test_profiles_that_are_read_again_stay_the_same_objects(model_folder: Path, tmp_path: Path) -> None:
    """A worker reads the catalogue again after every registration: what it had encoded stays in its cache once."""
    with_own_model = []
    for shared in (False, True):
        store = SqliteStore(tmp_path / "store.db", shared=shared)
        model = load_served_model(model_folder)
        with_own_model.append(PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=1.0))
    writer, reader = with_own_model
    jobs = tuple(JobRef(workload=name) for name in (*WORKLOADS, "new"))
    writer.register([profile("new", step_time_s=0.02)])
    for k in range(5):
        writer.register([profile("changing", step_time_s=0.01 + 0.001 * k)])
        reader.catch_up(0, writer.state.profiles.digest())
        predict_pairs(reader.state, PairQuery(jobs=(*jobs, JobRef(workload="changing")), allow_extrapolation=True))
    assert len(reader.state.model.encoded_jobs) <= len(jobs) + 5
    writer.remove_profiles([writer.state.profiles.of_workload("new", DEVICE_TYPE).profile_id])  # type: ignore[union-attr]
    reader.catch_up(0, writer.state.profiles.digest())
    assert len(reader.state.model.encoded_jobs) <= len(jobs) + 4


def test_replaced_profiles_leave_nothing_behind(model_folder: Path, tmp_path: Path) -> None:
    """Neither those that were combined of several sources, nor what stood in for them on another device type."""
    store = SqliteStore(tmp_path / "store.db")
    core = PolicyCore(model=load_served_model(model_folder), store=store, metrics=Metrics(), time_budget_s=1.0)

    def ask_and_observe(k: int) -> None:
        step_time_s, kernels = 0.01 * 1.1**k, (KernelStat(name="k", mean_s=1e-6 * (1 + k), count=10),)
        declared = JobProfile(
            workload="combined", device_type=DEVICE_TYPE, step_time_s=NAN, source="nsight", kernels=kernels
        )
        core.register([profile("combined", step_time_s=step_time_s), declared])
        for device_type in (DEVICE_TYPE, "other"):
            core.observe([window(f"solo-{device_type}-{k}", "gemm", device_type=device_type, steps=1000.0)])
            core.observe([window(f"{device_type}-{k}", "combined", device_type=device_type, steps=1000.0 + 50 * k)])
            jobs = tuple(JobRef(workload=name) for name in ("combined", "gemm"))
            answer = predict_pairs(core.state, PairQuery(jobs=jobs, device_type=device_type, allow_extrapolation=True))
            assert np.isfinite(answer.prediction.median).all()

    for k in range(3):
        ask_and_observe(k)
    gc.collect()
    encoded, profiles = len(core.state.model.encoded_jobs), living_profiles()
    for k in range(3, 3 + 4 * MAX_VERSIONS):
        ask_and_observe(k)
    gc.collect()
    assert len(core.state.model.encoded_jobs) == encoded
    assert living_profiles() <= profiles + 2 * MAX_VERSIONS  # the kept versions of the catalogue
    store.close()


def window(name: str, workload: str, **given: Any) -> Progress:
    """Ten seconds of one job alone."""
    return Progress(observation_id=name, job_id="j", workload=workload, start_s=0.0, end_s=10.0, **given)


def living_profiles() -> int:
    return sum(type(each) is JobProfile for each in gc.get_objects())


HEAPS = """
import ctypes, sys, threading
from interfere.serving.workers.fork_server import return_freed_memory
if sys.argv[1] == "bounded":
    return_freed_memory()
together = threading.Barrier(8)
def allocate():
    block = b"b" * 100_000
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_info is glibc's")
def test_threads_share_few_heaps() -> None:
    """Each heap keeps holes of its own; the default is one for each of many threads."""

    def heaps(how: str) -> int:
        answer = subprocess.run([sys.executable, "-c", HEAPS, how], capture_output=True, text=True, check=True)
        return answer.stdout.count("<heap nr=")

    assert heaps("bounded") <= ARENAS < heaps("default")
