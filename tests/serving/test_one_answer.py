"""The shipped model gives one answer however it is asked; a decision that asks too much of its model is refused."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import SHIPPED_MODEL, Settings
from interfere.errors import LimitError
from interfere.policy.solve import planner
from interfere.predict.manifest import shipped_profiles
from interfere.records import ActionKind, Device, Job, JobProfile, Limits, ObservationResult, Progress, Snapshot
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE, MODE, STEP_TIME_S, WORKLOADS, profile
from tests.serving.one_answer import LARGE, assert_one_answer, different_jobs


def test_the_shipped_model_answers_alike_however_it_is_asked(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    served = serve(replace(settings, model=SHIPPED_MODEL))
    with PolicyClient(served.address, timeout_s=60.0) as client:
        mode = client.model().domains[0].mode
        known = [profile for profile in shipped_profiles(SHIPPED_MODEL) if profile.device_type == "cpu-core"]
        assert_one_answer(client, known, mode)  # measured pairs, answered by their measurement
        jobs = different_jobs(known, LARGE)
        before = assert_one_answer(client, jobs, mode)
        beside = [window(k, jobs[k], jobs[k + 1], 1.2 * before[k, k + 1], mode) for k in range(8)]
        assert {answer.result for answer in client.observe(beside)} == {ObservationResult.APPLIED}
        after = assert_one_answer(client, jobs, mode)
        assert np.abs(np.log(after / before)).max() > 0.01  # corrected, and alike however it is asked


def window(k: int, victim: JobProfile, neighbour: JobProfile, slowdown: float, mode: str) -> Progress:
    """A minute of one job beside another."""
    return Progress(
        observation_id=f"o{k}",
        job_id=victim.workload,
        workload=victim.workload,
        company=(neighbour.workload,),
        device_type=victim.device_type,
        mode=mode,
        start_s=0.0,
        end_s=60.0,
        slowdown=slowdown,
    )


@pytest.fixture
def limited(
    serve: Callable[..., RunningServer], settings: Settings, model_folder: Path, tmp_path: Path
) -> Iterator[PolicyClient]:
    """A server whose model predicts pair by pair, and no more than 20 distinct ones for a request."""
    folder = Path(shutil.copytree(model_folder, tmp_path / "limited"))
    manifest = json.loads((folder / "manifest.json").read_text()) | {
        "format": 3,
        "matrix_limit": {"pairs": 20, "seconds": 0.001},
    }
    del manifest["files"]["matrix.onnx"], manifest["matrix_model"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with PolicyClient(serve(replace(settings, model=folder)).address) as client:
        client.register_profiles([profile(f"w{k}", step_time_s=0.01 * (k + 1)) for k in range(6)])
        yield client


def cluster(names: list[str], residents: list[str], **limits: object) -> Snapshot:
    """Pending jobs, two empty devices, and a device for each resident."""
    devices = [
        Device(id=f"d{k}", type=DEVICE_TYPE, mode=MODE, residents=(Job(id=f"r{k}", workload=name),) if name else ())
        for k, name in enumerate([*residents, "", ""])
    ]
    pending = tuple(Job(id=f"j{k}", workload=name) for k, name in enumerate(names))
    return Snapshot(pending=pending, devices=tuple(devices), limits=Limits.of(**limits))


def test_what_a_model_is_and_may_be_asked_for_is_told(limited: PolicyClient) -> None:
    info = limited.model()
    assert (info.model, info.matrix_model, info.matrix_limit_pairs, info.selected_by) == (
        "additive",
        "additive",
        20,
        "gate",
    )
    assert info.card.startswith("# A tiny model")


def test_a_matrix_above_the_limit_is_refused_and_repeated_jobs_count_once(limited: PolicyClient) -> None:
    with pytest.raises(LimitError, match="25 distinct ordered pairs, 20 take it"):
        limited.predict_matrix([f"w{k}" for k in range(5)])
    assert limited.predict_matrix([*WORKLOADS] * 50).matrix.victim_slowdown.shape == (200, 200)


def test_a_decision_above_the_limit_is_refused_before_it_is_made(limited: PolicyClient) -> None:
    five = [f"w{k}" for k in range(5)]
    whole = cluster(five, [])
    unnamed = replace(whole, devices=tuple(replace(device, mode="") for device in whole.devices))  # a mode is assumed
    for asked in (whole, unnamed, cluster(five[:3], [*five[3:], "w5"])):  # 25; 25; 9 + 2 · 3 · 3
        with pytest.raises(LimitError, match=r"distinct ordered pairs, 20 take it(.|\n)*--champion gp"):
            limited.match(asked)
        with pytest.raises(LimitError, match="distinct ordered pairs"):
            limited.validate(asked)
    assert limited.match(cluster([*STEP_TIME_S] * 30, ["train"] * 10)).pairs  # 16 distinct pairs, however many jobs
    alone = frozenset({ActionKind.START_ALONE, ActionKind.WAIT})
    assert limited.match(cluster(five, [], allowed=alone)).actions  # asks for no pair
    moving = frozenset({ActionKind.START_SHARED, ActionKind.START_ALONE, ActionKind.WAIT, ActionKind.MOVE})
    with pytest.raises(LimitError, match="25 distinct"):
        limited.match(cluster([], five, allowed=moving))
    assert limited.match(cluster([], five)).status  # nothing is asked about


def test_only_pairs_inside_a_pool_count_where_pools_are_planned_apart(
    limited: PolicyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = tuple(Device(id=f"d{k}", type=DEVICE_TYPE, mode=MODE, pool=f"p{k}") for k in range(2))
    pending = tuple(Job(id=f"w{k}", workload=f"w{k}", pools=(f"p{k % 2}",)) for k in range(6))
    with pytest.raises(LimitError, match="36 distinct"):
        limited.match(Snapshot(pending=pending, devices=devices))
    monkeypatch.setattr(planner, "CELLS_OF_ONE_PROBLEM", 0)
    assert limited.match(Snapshot(pending=pending, devices=devices)).actions  # 9 + 9
    with pytest.raises(LimitError, match="36 distinct"):
        limited.match(Snapshot(pending=tuple(replace(job, pools=()) for job in pending), devices=devices))
