"""Asks a server about the same jobs in every way there is, and compares pairs, lists, matrices, decisions, rankings."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.client import PolicyClient
from interfere.records import Device, Job, JobProfile, Limits, Snapshot

RTOL = 1e-5
LARGE = 70  # jobs: above 64 victims a call of matrix.onnx, and 4,900 pairs above 4,096 a call of pair.onnx
LIMITS = Limits(allow_extrapolation=True)  # novel jobs are answered too


def different_jobs(profiles: Sequence[JobProfile], count: int, seed: int = 0) -> tuple[JobProfile, ...]:
    """Jobs of new names, each a known one with other times and traffic."""
    rng = np.random.default_rng(seed)
    jobs = []
    for k in range(count):
        known, (time, traffic) = profiles[k % len(profiles)], np.exp(rng.normal(0, 0.2, 2)).tolist()
        jobs.append(
            replace(
                known,
                workload=f"new-{seed}-{k}",
                step_time_s=known.step_time_s * time,
                bytes_per_step=known.bytes_per_step * traffic,
            )
        )
    return tuple(jobs)


def assert_one_answer(client: PolicyClient, jobs: Sequence[JobProfile], mode: str) -> np.ndarray:
    """Register the jobs, ask about them in every way, and return their slowdowns, float64[n, n]."""
    client.register_profiles(jobs)
    names, device_type, n = [job.workload for job in jobs], jobs[0].device_type, len(jobs)
    # 1. One list of all pairs, self pairs included.
    every = [(i, j) for i in range(n) for j in range(n)]
    where = {"device_type": device_type, "mode": mode, "allow_extrapolation": True}
    listed = client.predict(names, pairs=every, **where).prediction.median.reshape(n, n)
    assert np.isfinite(listed).all()
    # 2. Some pairs by themselves.
    for i, j in ((0, 1), (n - 1, 0), (n // 2, n // 2)):
        alone = client.predict([names[i], names[j]], pairs=[(0, 1)], **where).prediction.median[0]
        np.testing.assert_allclose(alone, listed[i, j], rtol=RTOL)
    # 3. Matrices of all jobs, of a few, and of one beside all.
    for rows, columns in ((range(n), range(n)), (range(3), range(4)), (range(1), range(n)), (range(2, n), range(5))):
        row_names, column_names = [names[k] for k in rows], [names[k] for k in columns]
        matrix = client.predict_matrix(row_names, column_names, **where).matrix
        np.testing.assert_allclose(matrix.victim_slowdown, listed[np.ix_(rows, columns)], rtol=RTOL)
        np.testing.assert_allclose(matrix.neighbour_slowdown, listed[np.ix_(columns, rows)].T, rtol=RTOL)
    # 4. Decisions: small and large.
    for size in (4, n):
        assert _decided_slowdowns(client, names[:size], device_type, mode, listed) > 0
    # 5. A ranking of devices with one resident each.
    devices = [_device(k, device_type, mode, name) for k, name in enumerate(names[1:])]
    for ranking in client.rank(Job(id="job", workload=names[0]), devices, limits=LIMITS).rankings:
        resident = int(ranking.device_id.removeprefix("d")) + 1
        np.testing.assert_allclose(ranking.slowdown, listed[0, resident], rtol=RTOL)
        np.testing.assert_allclose(ranking.worst_resident_slowdown, listed[resident, 0], rtol=RTOL)
    return listed


def _decided_slowdowns(
    client: PolicyClient, names: Sequence[str], device_type: str, mode: str, listed: np.ndarray
) -> int:
    """Decide about the second half of the jobs beside residents and one another; how many of them share."""
    place = {name: k for k, name in enumerate(names)}
    half, quarter = len(names) // 2, len(names) // 4
    busy = [_device(k, device_type, mode, name) for k, name in enumerate(names[:quarter])]
    empty = [_device(quarter + k, device_type, mode) for k in range(max(1, (len(names) - half) // 4))]
    snapshot = Snapshot(
        pending=tuple(Job(id=name, workload=name) for name in names[half:]),
        devices=(*busy, *empty),
        limits=Limits.of(allow_extrapolation=True, min_joint_throughput=0.0),
    )
    actions = [action for action in client.match(snapshot).actions if action.partner_id]
    for action in actions:
        i, j = place[action.job_id], place[action.partner_id]
        np.testing.assert_allclose(action.slowdown, listed[i, j], rtol=RTOL)
        np.testing.assert_allclose(action.partner_slowdown, listed[j, i], rtol=RTOL)
    return len(actions)


def _device(number: int, device_type: str, mode: str, resident: str = "") -> Device:
    residents = (Job(id=resident, workload=resident),) if resident else ()
    return Device(id=f"d{number}", type=device_type, mode=mode, residents=residents)
