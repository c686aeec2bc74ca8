"""How long one whole decision of `plan` takes, prediction included: CPU seconds of one core, with the shipped model."""

import time

import numpy as np
import pytest

from features.pair import Encoder
from interfere.policy.planner import plan
from interfere.predict.onnx import OnnxPredictor, load_model
from interfere.predict.residual import OnlineModel
from interfere.records import Device, Job, JobProfile, Limits, Snapshot
from serving.server import SHIPPED
from tests.bench.history import record, reference_s

pytestmark = pytest.mark.bench
# CPU seconds that one decision may take: pending jobs, devices, residents, cap.
SIZES = [
    (300, 1000, 700, float("nan"), 0.15),
    (300, 700, 700, 1.5, 0.15),
    (1000, 1000, 700, float("nan"), 1.5),
    (1000, 1000, 700, 1.5, 1.5),
]


@pytest.fixture(scope="module")
def model() -> OnnxPredictor:
    return load_model(SHIPPED, Encoder())


@pytest.mark.parametrize(("jobs", "devices", "busy", "cap", "limit_s"), SIZES)
def test_one_decision(model: OnnxPredictor, jobs: int, devices: int, busy: int, cap: float, limit_s: float) -> None:
    predictor = OnlineModel(model, None)
    where = model.manifest.domains[0]
    names = sorted({workload for workload, _ in model.profiles})
    rng = np.random.default_rng(0)

    def job(name: str) -> Job:
        return Job(id=name, workload=str(rng.choice(names)), weight=float(rng.choice([1.0, 2.0, 4.0])))

    def resolve(one: Job, device_type: str) -> JobProfile | None:
        return model.profiles.get((one.workload, device_type))

    snapshot = Snapshot(
        pending=tuple(job(f"j{k}") for k in range(jobs)),
        devices=tuple(
            Device(
                id=f"d{k}", type=where.device_type, mode=where.mode, residents=(job(f"r{k}"),) if k < busy else ()
            )
            for k in range(devices)
        ),
        limits=Limits(max_slowdown=cap),
    )  # fmt: skip
    times = []
    for _ in range(6):
        start_s = time.process_time()
        plan(snapshot, predictor, resolve, "bench")
        times.append(time.process_time() - start_s)
    median_s, base_s = float(np.median(times[1:])), reference_s()  # the first one loads libraries
    record(
        f"policy decision {jobs} jobs {devices} devices {busy} residents cap {cap:g}",
        {"median_cpu_s": median_s, "reference_s": base_s, "median_per_reference": median_s / base_s},
    )
    assert median_s <= limit_s
