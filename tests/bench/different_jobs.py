"""A cluster in which no two jobs are alike: every job a workload and a weight of its own."""

from dataclasses import replace

import numpy as np

from interfere.predict.onnx import OnnxPredictor
from interfere.records import Device, Job, JobProfile, Limits, Snapshot


def all_different(model: OnnxPredictor, jobs: int, devices: int, busy: int) -> tuple[Snapshot, dict[str, JobProfile]]:
    """Pending jobs, devices of one type of which some are busy, and the profile of every workload."""
    where = model.manifest.domains[0]
    known = [profile for _, profile in sorted(model.profiles.items())]
    rng = np.random.default_rng(0)
    profiles: dict[str, JobProfile] = {}

    def job(name: str) -> Job:
        one = known[rng.integers(len(known))]
        times, traffic = np.exp(rng.normal(0, 0.2, 2)).tolist()
        profiles[name] = replace(
            one, workload=name, step_time_s=one.step_time_s * times, bytes_per_step=one.bytes_per_step * traffic
        )
        return Job(id=name, workload=name, weight=float(rng.uniform(0.5, 4.0)))

    snapshot = Snapshot(
        pending=tuple(job(f"j{k}") for k in range(jobs)),
        devices=tuple(
            Device(id=f"d{k}", type=where.device_type, mode=where.mode, residents=(job(f"r{k}"),) if k < busy else ())
            for k in range(devices)
        ),
        limits=Limits(allow_extrapolation=True),
    )
    return snapshot, profiles
