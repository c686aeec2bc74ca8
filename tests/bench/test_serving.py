"""What the server costs over loopback on one core: a matrix of 1,000 jobs, one pair, one decision.

Client and server share the core that the process is pinned to here. Aims: matrix under 2 s, pair p50 under 2 ms.
"""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import SHIPPED_MODEL, Settings
from interfere.records import Device, Job, JobProfile, Snapshot
from interfere.serving.server import start_server
from tests.bench.history import median_s, record, reference_s, times_s
from tests.models import publish

pytestmark = pytest.mark.bench
N = 1000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyClient]:
    """The shipped model where there is one, else the tiny one; client and server on one core."""
    folder = tmp_path_factory.mktemp("bench")
    model = SHIPPED_MODEL if (SHIPPED_MODEL / "manifest.json").is_file() else publish(folder / "model")
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    server = start_server(Settings(model=model, work=folder / "work", port=0))
    with PolicyClient(server.address, timeout_s=120) as client:
        yield client
    server.stop()
    os.sched_setaffinity(0, allowed)


def job(k: int, device_type: str) -> JobProfile:
    """The k-th of many different jobs, with a timeline of 200 stretches."""
    rng = np.random.default_rng(k)
    busy, idle = rng.exponential(0.01, 200), rng.exponential(0.005, 200)
    return JobProfile(
        workload=f"w{k}",
        device_type=device_type,
        step_time_s=float(rng.uniform(0.001, 1)),
        busy_frac=0.6,
        busy_s=tuple(busy.tolist()),
        idle_s=tuple(idle.tolist()),
        memory_peak_bytes=float(rng.uniform(1e8, 1e10)),
    )


def test_a_matrix_of_a_thousand_registered_jobs(client: PolicyClient) -> None:
    info = client.model()
    client.register_profiles([job(k, info.domains[0].device_type) for k in range(N)])
    names = [f"w{k}" for k in range(N)]
    (first_s,) = times_s(lambda: client.predict_matrix(names), 1, warm=False)
    warm_s = median_s(lambda: client.predict_matrix(names), 5)
    matrix = client.predict_matrix(names).matrix
    assert matrix.victim_slowdown.shape == (N, N)
    assert np.isfinite(matrix.victim_slowdown).all()
    base_s = reference_s()
    record(
        f"serving matrix {N} ({info.matrix_model})",
        {"first_s": first_s, "warm_s": warm_s, "reference_s": base_s, "warm_per_reference": warm_s / base_s},
    )


def test_one_pair(client: PolicyClient) -> None:
    info = client.model()
    times = times_s(lambda: client.predict(info.workloads[:2], pairs=[(0, 1)]), 500)
    base_s = reference_s()
    record(
        f"serving pair ({info.model})",
        {
            "p50_s": float(np.quantile(times, 0.5)),
            "p99_s": float(np.quantile(times, 0.99)),
            "reference_s": base_s,
            "p50_per_reference": float(np.quantile(times, 0.5)) / base_s,
        },
    )


@pytest.mark.parametrize(("jobs", "devices", "repeats"), [(60, 40, 5), (400, 250, 1), (1000, 600, 1)])
def test_one_decision(client: PolicyClient, jobs: int, devices: int, repeats: int) -> None:
    info = client.model()
    where = info.domains[0]
    snapshot = Snapshot(
        pending=tuple(Job(id=f"j{k}", workload=info.workloads[k % len(info.workloads)]) for k in range(jobs)),
        devices=tuple(Device(id=f"d{k}", type=where.device_type, mode=where.mode) for k in range(devices)),
    )
    solve_s = median_s(lambda: client.match(snapshot), repeats)
    base_s = reference_s()
    record(
        f"serving match {jobs} jobs {devices} devices",
        {"median_s": solve_s, "reference_s": base_s, "median_per_reference": solve_s / base_s},
    )


@pytest.mark.parametrize(("jobs", "devices"), [(60, 40), (1000, 600)])
def test_one_explanation(client: PolicyClient, jobs: int, devices: int) -> None:
    info = client.model()
    where = info.domains[0]
    snapshot = Snapshot(
        pending=tuple(Job(id=f"j{k}", workload=info.workloads[k % len(info.workloads)]) for k in range(jobs)),
        devices=tuple(Device(id=f"d{k}", type=where.device_type, mode=where.mode) for k in range(devices)),
    )
    plan = client.match(snapshot)
    explain_s = median_s(lambda: client.explain(plan.decision_id, "j1"), 3)
    base_s = reference_s()
    record(
        f"serving explain one of {jobs} jobs {devices} devices",
        {"median_s": explain_s, "reference_s": base_s, "median_per_reference": explain_s / base_s},
    )
