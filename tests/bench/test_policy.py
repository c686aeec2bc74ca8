"""How long one whole decision of `plan` takes, prediction included: CPU seconds of one core, with the shipped model."""

import time
from dataclasses import replace

import numpy as np
import pytest

from interfere.config import SHIPPED_MODEL
from interfere.features.pair import FeatureEncoder
from interfere.policy.decide import decide
from interfere.predict.onnx import OnnxPredictor, load_model
from interfere.predict.residual import OnlineModel
from interfere.records import ActionKind, Device, Job, JobProfile, Limits, ScopeLedger, Snapshot
from tests.bench.different_jobs import all_different
from tests.bench.history import record, reference_s
from tests.tables import context, plan

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
    return load_model(SHIPPED_MODEL, FeatureEncoder())


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
            Device(id=f"d{k}", type=where.device_type, mode=where.mode, residents=(job(f"r{k}"),) if k < busy else ())
            for k in range(devices)
        ),
        limits=Limits.of(max_slowdown=cap),
    )
    times = []
    for _ in range(6):
        start_s = time.process_time()
        plan(context(snapshot, predictor, resolve, "bench"))
        times.append(time.process_time() - start_s)
    median_s, base_s = float(np.median(times[1:])), reference_s()  # the first one loads libraries
    record(
        f"policy decision {jobs} jobs {devices} devices {busy} residents cap {cap:g}",
        {"median_cpu_s": median_s, "reference_s": base_s, "median_per_reference": median_s / base_s},
    )
    assert median_s <= limit_s


@pytest.mark.parametrize("name", ["promises", "moves", "gangs"])
def test_one_decision_of_a_scope(model: OnnxPredictor, name: str) -> None:
    """300 promised jobs told again; 1,050 residents who may all move; 300 jobs on one to eight devices."""
    predictor, where = OnlineModel(model, None), model.manifest.domains[0]
    names = sorted({workload for workload, _ in model.profiles})
    rng = np.random.default_rng(0)

    def job(name: str, **given: object) -> Job:
        workload, weight = str(rng.choice(names)), float(rng.choice([1.0, 2.0, 4.0]))
        return Job(id=name, workload=workload, weight=weight, **given)  # type: ignore[arg-type]

    def resolve(one: Job, device_type: str) -> JobProfile | None:
        return model.profiles.get((one.workload, device_type))

    old = {"remaining_s": 3600.0, "preemptible": True, "checkpoint_s": 60.0, "since_s": 0.0}
    crowd = [1 + k % 2 if name == "moves" else 1 for k in range(400 if name == "gangs" else 700)] + [0] * 600
    sizes = (1, 1, 2, 4, 8) if name == "gangs" else (1,)
    snapshot = Snapshot(
        pending=tuple(job(f"j{k}", gpus=int(rng.choice(sizes))) for k in range(50 if name == "moves" else 300)),
        devices=tuple(
            Device(
                id=f"d{k}",
                type=where.device_type,
                mode=where.mode,
                node=f"n{k // 8}",
                residents=tuple(job(f"r{k}.{n}", **old) for n in range(crowd[k])),
            )
            for k in range(1000)
        ),
        limits=Limits(allowed=frozenset(ActionKind)) if name == "moves" else Limits(),
        now_s=1e6,
    )
    ledger = ScopeLedger(scope="default")
    if name == "promises":
        ledger = decide(context(snapshot, predictor, resolve, "before"), ledger).ledger
        assert len(ledger.promises) == 300
    times = []
    for _ in range(6):
        start_s = time.process_time()
        decide(context(snapshot, predictor, resolve, "bench"), ledger)
        times.append(time.process_time() - start_s)
    median_s, base_s = float(np.median(times[1:])), reference_s()
    record(
        f"policy decision of a scope 1000 devices {name}",
        {"median_cpu_s": median_s, "reference_s": base_s, "median_per_reference": median_s / base_s},
    )
    assert median_s <= 1.5


@pytest.mark.parametrize(("jobs", "devices", "busy"), [(1000, 1000, 700), (1000, 500, 300)])
def test_one_decision_of_jobs_that_all_differ(model: OnnxPredictor, jobs: int, devices: int, busy: int) -> None:
    """Every job a workload of its own, half of the queue waiting in the second: whole, and for at most two seconds."""
    snapshot, profiles = all_different(model, jobs, devices, busy)
    predictor = OnlineModel(model, None)
    hurried = replace(snapshot, limits=Limits.of(allow_extrapolation=True, time_budget_s=2.0))
    figures = {}
    for name, asked in (("whole", snapshot), ("two_seconds", hurried)):
        start_s = time.process_time()
        found = plan(context(asked, predictor, lambda one, _: profiles[one.workload], "bench"))
        figures |= {f"{name}_cpu_s": time.process_time() - start_s, f"{name}_gap": found.gap}
    base_s = reference_s()
    record(
        f"policy decision {jobs} jobs {devices} devices {busy} residents all different",
        {**figures, "reference_s": base_s, "whole_per_reference": figures["whole_cpu_s"] / base_s},
    )
    assert figures["whole_gap"] == 0
