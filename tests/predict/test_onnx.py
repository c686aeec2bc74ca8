"""The shipped model through ONNX Runtime: one answer however it is asked, and no incomplete folder served."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import interfere.predict
from interfere.errors import LimitError, ModelError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.predict.graphs import PAIRS_PER_CALL
from interfere.predict.manifest import UNSTATED
from interfere.predict.measured import MeasuredPredictor, MeasuredSlowdown, PairKey
from interfere.predict.onnx import OnnxPredictor, load_model
from interfere.predict.residual import OnlineModel
from interfere.records import (
    Device,
    Job,
    JobProfile,
    Limits,
    ObservationResult,
    PairBatch,
    Progress,
    Snapshot,
    Source,
)
from tests.models import reseal
from tests.tables import context, matrix_batch, plan

SHIPPED = Path(interfere.predict.__file__).parent / "default"
DOMAIN = ("cpu-core", "timeslice")


@pytest.fixture(scope="module")
def model() -> OnnxPredictor:
    return load_model(SHIPPED, FeatureEncoder())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED, tmp_path / "model"))


def batch(model: OnnxPredictor, jobs: tuple[JobProfile, ...], **more: object) -> PairBatch:
    n = len(jobs)
    values = {"device_type": DOMAIN[0], "mode": DOMAIN[1], **more}
    return PairBatch(jobs=jobs, victim=np.repeat(np.arange(n), n), neighbour=np.tile(np.arange(n), n), **values)


def test_one_pair_or_many_or_a_small_matrix_give_the_same_number(model: OnnxPredictor) -> None:
    jobs = tuple(model.profiles.values())[:6]
    whole = model.predict_pairs(batch(model, jobs))
    single = [
        model.predict_pairs(replace(batch(model, jobs), victim=np.array([i]), neighbour=np.array([j]))).median[0]
        for i in range(6)
        for j in range(6)
    ]
    matrix = model.predict_matrix(matrix_batch(jobs))
    np.testing.assert_allclose(single, whole.median, rtol=1e-6)
    np.testing.assert_allclose(matrix.victim_slowdown.ravel(), whole.median, rtol=1e-6)
    np.testing.assert_allclose(matrix.neighbour_slowdown, matrix.victim_slowdown.T, rtol=1e-6)
    assert set(whole.source) == {Source.MODEL}


def test_intervals_hold_their_median_and_widen_for_a_new_job(model: OnnxPredictor) -> None:
    known = tuple(model.profiles.values())[:2]
    new = (known[0], replace(known[1], workload="never seen"))
    old, cold = model.predict_pairs(batch(model, known)), model.predict_pairs(batch(model, new))
    assert (old.lower < old.median).all()
    assert (old.median < old.upper).all()
    assert cold.upper[1] / cold.lower[1] > old.upper[1] / old.lower[1]


def test_a_large_matrix_has_the_same_answers_as_its_pairs_in_both_directions(model: OnnxPredictor) -> None:
    base = tuple(model.profiles.values())
    jobs = tuple(replace(base[k % len(base)], workload=f"w{k}", step_time_s=0.01 + k * 1e-5) for k in range(70))
    assert len(jobs) ** 2 > PAIRS_PER_CALL
    matrix = model.predict_matrix(matrix_batch(jobs))
    pairs = model.predict_pairs(batch(model, jobs))
    np.testing.assert_allclose(matrix.victim_slowdown.ravel(), pairs.median, rtol=1e-5)
    np.testing.assert_allclose(matrix.neighbour_slowdown, matrix.victim_slowdown.T, rtol=1e-5)
    part = model.predict_matrix(matrix_batch(jobs[3:68], jobs))
    np.testing.assert_allclose(part.victim_slowdown, matrix.victim_slowdown[3:68], rtol=1e-5)
    upper = model.predict_matrix(matrix_batch(jobs), quantile=0.95)
    assert (upper.victim_slowdown > matrix.victim_slowdown).all()


@pytest.fixture
def limited(model: OnnxPredictor, folder: Path) -> OnnxPredictor:
    """The model with a manifest that limits matrices to 200 distinct pairs."""
    manifest = json.loads((folder / "manifest.json").read_text()) | {"matrix_limit": {"pairs": 200, "seconds": 0.5}}
    manifest["files"].pop("matrix.onnx", None)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    reseal(folder)
    return load_model(folder, FeatureEncoder())


def test_a_matrix_above_the_models_limit_is_refused_before_any_work(limited: OnnxPredictor) -> None:
    base = tuple(limited.profiles.values())
    jobs = tuple(replace(base[k % len(base)], workload=f"w{k}") for k in range(15))
    with pytest.raises(LimitError, match=r"225 distinct ordered pairs, 200 take it 0.5 s(.|\n)*--champion gp"):
        limited.predict_matrix(matrix_batch(jobs))
    with pytest.raises(LimitError, match="207 distinct"):
        limited.predict_matrix(
            matrix_batch(jobs[:12], jobs[3:])
        )  # 12 jobs beside 12, of which 9 are the same: 288 - 81
    assert len(limited.encoded_jobs) == 0
    assert limited.predict_matrix(matrix_batch(jobs[:14])).victim_slowdown.shape == (14, 14)


def test_the_limit_counts_distinct_pairs(limited: OnnxPredictor, model: OnnxPredictor) -> None:
    base = tuple(model.profiles.values())[:5]
    many = base * 40
    matrix = limited.predict_matrix(matrix_batch(many, base * 3))
    assert matrix.victim_slowdown.shape == (200, 15)
    few = limited.predict_matrix(matrix_batch(base))
    np.testing.assert_array_equal(matrix.victim_slowdown, np.tile(few.victim_slowdown, (40, 3)))
    np.testing.assert_array_equal(matrix.neighbour_slowdown, np.tile(few.neighbour_slowdown, (40, 3)))


def test_a_matrix_graph_of_another_model_is_never_asked(folder: Path) -> None:
    """Folders of format 2 may hold one, of the model that answered large matrices."""
    (folder / "matrix.onnx").write_bytes(b"no graph")
    manifest = json.loads((folder / "manifest.json").read_text()) | {"format": 2, "matrix_model": "another"}
    manifest["files"]["matrix.onnx"] = hashlib.sha256(b"no graph").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    served = load_model(folder, FeatureEncoder())
    assert served.manifest.matrix_limit == UNSTATED
    jobs = tuple(served.profiles.values())
    matrix, pairs = served.predict_matrix(matrix_batch(jobs)), served.predict_pairs(batch(served, jobs))
    np.testing.assert_allclose(matrix.victim_slowdown.ravel(), pairs.median, rtol=1e-5)


def test_memory_that_does_not_fit_is_infeasible_and_unknown_memory_is_not(model: OnnxPredictor) -> None:
    job = next(iter(model.profiles.values()))
    jobs = (replace(job, memory_peak_bytes=6e9), replace(job, memory_peak_bytes=float("nan")))
    answer = model.predict_pairs(batch(model, jobs, device_memory_bytes=8e9))
    assert answer.feasibility[0] == 0.0
    assert np.isnan(answer.feasibility[1:]).all()
    assert model.predict_matrix(matrix_batch(jobs, device_memory_bytes=8e9)).feasible.tolist() == [[0, 1], [1, 1]]
    assert model.predict_pairs(batch(model, jobs, device_memory_bytes=16e9)).feasibility[0] == 1.0


def test_an_unseen_domain_abstains_with_a_remedy_unless_asked(model: OnnxPredictor) -> None:
    jobs = tuple(model.profiles.values())[:2]
    answer = model.predict_pairs(batch(model, jobs, device_type="h200"))
    assert set(answer.source) == {Source.ABSTAINED}
    assert np.isnan(answer.median).all()
    assert "import or measure" in answer.reason[0]
    with pytest.raises(UnfitError, match="h200"):
        model.predict_matrix(matrix_batch(jobs, device_type="h200"))
    asked = model.predict_pairs(batch(model, jobs, device_type="h200", allow_extrapolation=True))
    assert np.isfinite(asked.median).all()


@pytest.mark.parametrize("name", ["pair.onnx", "arrays.npz", "profiles.json.gz", "residual.npz"])
def test_a_truncated_file_is_refused_by_name(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        load_model(folder, FeatureEncoder())


@pytest.mark.parametrize("name", sorted({path.name for path in SHIPPED.iterdir()} - {"manifest.json"}))
def test_every_file_is_hashed_so_that_an_edited_one_is_refused_by_name(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=rf"truncated or edited(.|\n)*{name}"):
        load_model(folder, FeatureEncoder())


def test_an_edited_prior_of_the_online_correction_is_refused_though_it_can_be_read(folder: Path) -> None:
    with np.load(folder / "residual.npz") as arrays:
        edited = dict(arrays) | {"pair_var": np.float64(9.0)}
    np.savez_compressed(folder / "residual.npz", **edited)
    with pytest.raises(ModelError, match=r"residual\.npz"):
        load_model(folder, FeatureEncoder())
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["residual.npz"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    reseal(folder)
    with pytest.raises(ModelError, match=r"does not list(.|\n)*residual\.npz"):
        load_model(folder, FeatureEncoder())


def test_a_truncated_graph_with_a_matching_manifest_is_refused_too(folder: Path) -> None:
    data = (folder / "pair.onnx").read_bytes()[:-2000]
    (folder / "pair.onnx").write_bytes(data)
    reseal(folder)
    with pytest.raises(ModelError, match="pair"):
        load_model(folder, FeatureEncoder())


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"fingerprint": "0123456789abcdef"}, "another feature encoder"),
        ({"format": 99}, "another format"),
        ({"intervals": {}}, "cannot be read"),
        ({"files": {}}, "cannot be read"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(folder: Path, edit: dict, message: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text()) | edit
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=message):
        load_model(folder, FeatureEncoder())


def test_a_folder_without_a_manifest_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"manifest\.json"):
        load_model(tmp_path, FeatureEncoder())


def novel_job(model: OnnxPredictor) -> JobProfile:
    """A job at the edge of every column."""
    job = next(iter(model.profiles.values()))
    return replace(
        job,
        workload="novel",
        step_time_s=1e6,
        busy_frac=1e-9,
        busy_s=(1e5,) * 3,
        idle_s=(1e6,) * 3,
        memory_peak_bytes=1e15,
        memory_working_set_bytes=1e15,
        kernels=(),
    )


def test_a_job_unlike_all_others_abstains_unless_asked(model: OnnxPredictor) -> None:
    jobs = (next(iter(model.profiles.values())), novel_job(model))
    answer = model.predict_pairs(batch(model, jobs))
    assert answer.source == (Source.MODEL, *[Source.ABSTAINED] * 3)
    assert "novel is unlike every job" in answer.reason[1]
    assert "measure" in answer.reason[1]
    assert np.isnan(model.predict_matrix(matrix_batch(jobs)).victim_slowdown).tolist() == [[False, True], [True, True]]
    asked = model.predict_pairs(batch(model, jobs, allow_extrapolation=True))
    assert np.isfinite(asked.median).all()
    assert asked.upper[1] / asked.lower[1] > 2 * asked.upper[0] / asked.lower[0]


def test_a_plan_shares_no_device_with_a_job_unlike_all_others(model: OnnxPredictor) -> None:
    profiles = {job.workload: job for job in (next(iter(model.profiles.values())), novel_job(model))}
    jobs = tuple(Job(id=name, workload=name) for name in profiles)
    snapshot = Snapshot(pending=jobs, devices=(Device(id="d", type=DOMAIN[0]),))
    decided = plan(context(snapshot, model, lambda job, _: profiles[job.workload], "d"))
    assert not decided.pairs
    assert any("unlike all that the model learned from" in refused.reason for refused in decided.refused)
    bold = replace(snapshot, limits=Limits(allow_extrapolation=True))
    assert len(plan(context(bold, model, lambda job, _: profiles[job.workload], "d")).pairs) == 1


def test_a_measured_pair_is_answered_however_novel(model: OnnxPredictor) -> None:
    jobs = (next(iter(model.profiles.values())), novel_job(model))
    key = PairKey(jobs[0].workload, "novel", *DOMAIN)
    known = MeasuredPredictor(model, {key: MeasuredSlowdown(slowdown=1.7, lower=1.7, upper=1.7)})
    answer = known.predict_pairs(batch(model, jobs))
    assert (answer.median[1], answer.source[1], answer.reason[1]) == (1.7, Source.MEASURED, "")
    assert known.predict_matrix(matrix_batch(jobs), quantile=0.95).victim_slowdown[0, 1] == pytest.approx(1.7)


def test_a_pair_that_was_observed_is_answered_however_novel(model: OnnxPredictor) -> None:
    profiles = {job.workload: job for job in (next(iter(model.profiles.values())), novel_job(model))}
    jobs, (name, other) = tuple(profiles.values()), profiles
    online = OnlineModel(model)
    for k, (victim, neighbour) in enumerate(((name, "novel"), ("novel", name))):
        before = online.predict_pairs(batch(model, jobs))
        assert before.source[1 + k] is Source.ABSTAINED  # the other direction says nothing of this one
        window = Progress(
            observation_id=f"o{k}",
            job_id=victim,
            workload=victim,
            company=(neighbour,),
            device_type=DOMAIN[0],
            mode=DOMAIN[1],
            start_s=0.0,
            end_s=60.0,
            slowdown=1.3 + k / 10,
        )
        assert online.observe(window, lambda workload, _: profiles[workload]).result is ObservationResult.APPLIED
    answer = online.predict_pairs(batch(model, jobs))
    assert answer.source == (Source.MODEL, Source.MODEL, Source.MODEL, Source.ABSTAINED)
    assert (answer.lower[1:3] < answer.median[1:3]).all()
    asked = online.predict_pairs(batch(model, jobs, allow_extrapolation=True))
    assert answer.median[1:3] == pytest.approx(asked.median[1:3])
    for quantile in (0.5, 0.95):
        table = online.predict_matrix(matrix_batch(jobs), quantile=quantile)
        assert np.isnan(table.victim_slowdown).tolist() == [[False, False], [False, True]]
        assert np.allclose(table.victim_slowdown, table.neighbour_slowdown.T, rtol=1e-5, equal_nan=True)
    snapshot = Snapshot(
        pending=tuple(Job(id=each, workload=each) for each in (name, other)), devices=(Device(id="d", type=DOMAIN[0]),)
    )
    assert len(plan(context(snapshot, online, lambda job, _: profiles[job.workload], "d")).pairs) == 1
