"""PredictSlowdowns and PredictMatrix over the wire, against numbers worked out by hand."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.errors import InvalidInputError, LimitError, UnfitError
from interfere.predict.groups import GroupComposition, composed_slowdown
from interfere.records import JobRef, MatrixQuery, PairQuery, Source
from interfere.serving.metrics import Metrics
from interfere.serving.predicting import predict_matrix, predict_pairs
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.store.store import SqliteStore
from tests.models import DEVICE_TYPE, RESIDUALS, WORKLOADS, expected, profile


def test_a_pair_has_median_interval_and_source(client: PolicyClient) -> None:
    answer = client.predict(["train", "infer"], pairs=[(0, 1)])
    said = answer.prediction
    median = expected("train", "infer")
    assert said.median == pytest.approx([median], rel=1e-6)
    assert [said.lower[0], said.upper[0]] == pytest.approx(np.exp([RESIDUALS[1], RESIDUALS[3]]) * median, rel=1e-6)
    assert said.source == (Source.MODEL,)
    assert (answer.device_type, answer.model_version) == (DEVICE_TYPE, "0123456789ab")


def test_without_pairs_all_different_places_are_answered(client: PolicyClient) -> None:
    answer = client.predict(["infer", "stream", "infer"])
    asked = list(zip(answer.victim.tolist(), answer.neighbour.tolist(), strict=True))
    assert asked == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert answer.prediction.median[1] == pytest.approx(expected("infer", "infer"))


def test_a_measured_pair_is_answered_by_its_measurement(client: PolicyClient) -> None:
    said = client.predict(["train", "gemm"]).prediction
    assert said.median[0] == pytest.approx(2.2)
    assert said.source == (Source.MEASURED, Source.MODEL)


def test_a_group_is_composed_of_its_pairs(client: PolicyClient) -> None:
    answer = client.predict(["train", "infer", "gemm"], pairs=[(0, 1), (0, 1, 2), (2, 0, 1)], device_memory_bytes=2.5e9)
    said = answer.prediction
    assert said.median[1] == pytest.approx(composed_slowdown([float(said.median[0]), 2.2]), rel=1e-6)
    assert said.source == (Source.MODEL, Source.COMPOSED, Source.COMPOSED)
    assert answer.further == ((), (2,), (1,))
    assert said.feasibility.tolist() == [1.0, 0.0, 0.0]  # three GiB do not fit, two do
    silent = client.predict(["train", "nobody", "gemm"], pairs=[(0, 2, 1)]).prediction
    assert silent.source == (Source.ABSTAINED,)
    assert "nobody" in silent.reason[0]
    with pytest.raises(InvalidInputError, match="different neighbours"):
        client.predict(["train", "infer"], pairs=[(0, 1, 1)])


def test_a_published_composition_answers_groups(model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "with-groups"
    shutil.copytree(model_folder, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    composition = GroupComposition(growth=1.0, saturation=0.5, errors=(0.01, 0.02, 0.03))
    domain = {"device_type": DEVICE_TYPE, "mode": "timeslice"}
    manifest["groups"] = [{**domain, "cases": 100, "composition": asdict(composition), "scores": []}]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    store = SqliteStore(tmp_path / "store.db")
    core = PolicyCore(model=load_served_model(folder), store=store, metrics=Metrics(), time_budget_s=1.0)
    jobs = tuple(JobRef(workload=name) for name in ("infer", "train", "gemm"))
    told = predict_pairs(core.state, PairQuery(jobs=jobs, pairs=((0, 1), (0, 2), (0, 1, 2)))).prediction
    store.close()
    pairs = told.median[:2].tolist()
    assert told.median[2] == pytest.approx(composed_slowdown(pairs, composition))
    assert told.median[2] > composed_slowdown(pairs)


def test_jobs_by_id_and_by_facts(client: PolicyClient) -> None:
    fast = profile("mine", step_time_s=1e-3)
    (profile_id,) = client.register_profiles([fast])
    inline = profile("mine", step_time_s=1.0)
    said = client.predict([JobRef(profile_id=profile_id), inline, "mine", "gemm"], pairs=[(0, 3), (1, 3), (2, 3)])
    medians = said.prediction.median
    assert medians[0] == pytest.approx(expected("mine", "gemm", 1e-3), rel=1e-6)
    assert medians[1] == pytest.approx(expected("mine", "gemm", 1.0), rel=1e-6)
    assert medians[2] == medians[0]
    unknown_id = client.predict([JobRef(profile_id="ffff"), "gemm"]).prediction
    assert set(unknown_id.source) == {Source.ABSTAINED}
    assert "ffff" in unknown_id.reason[0]


def test_what_cannot_be_predicted_abstains_beside_what_can(client: PolicyClient) -> None:
    said = client.predict(["infer", "nobody", "gemm"], pairs=[(0, 1), (1, 0), (0, 2)]).prediction
    assert said.source == (Source.ABSTAINED, Source.ABSTAINED, Source.MODEL)
    assert np.isnan(said.median[:2]).all()
    assert said.median[2] == pytest.approx(expected("infer", "gemm"), rel=1e-6)
    assert "'nobody'" in said.reason[0]
    assert "interfere profile solo" in said.reason[0]
    assert said.reason[2] == ""


def test_an_unknown_device_type_abstains_unless_extrapolation_is_allowed(client: PolicyClient) -> None:
    jobs = [profile("infer"), profile("gemm")]
    refused = client.predict(jobs, device_type="h100").prediction
    assert set(refused.source) == {Source.ABSTAINED}
    allowed = client.predict(jobs, device_type="h100", allow_extrapolation=True).prediction
    assert np.isfinite(allowed.median).all()
    by_mode = client.predict(["infer", "gemm"], mode="mps").prediction
    assert "never saw cpu-core/mps" in by_mode.reason[0]
    with pytest.raises(UnfitError, match="cpu-core/mps"):
        client.predict_matrix(["infer", "gemm"], mode="mps")


def test_facts_of_another_device_type_abstain(client: PolicyClient) -> None:
    other = replace(profile("infer"), device_type="h100")
    said = client.predict([other, "gemm"]).prediction
    assert set(said.source) == {Source.ABSTAINED}
    assert "is of h100, not of cpu-core" in said.reason[0]
    assert np.isfinite(client.predict([other, "gemm"], allow_extrapolation=True).prediction.median).all()


def test_feasibility_needs_the_memory_of_the_device(client: PolicyClient) -> None:
    assert np.isnan(client.predict(["infer", "gemm"]).prediction.feasibility).all()
    fits = client.predict(["infer", "gemm"], device_memory_bytes=4 * 2.0**30).prediction
    assert (fits.feasibility == 1).all()
    tight = client.predict_matrix(["infer", "gemm"], device_memory_bytes=1.5 * 2.0**30)
    assert (tight.matrix.feasible == 0).all()


def test_a_matrix_has_both_directions(client: PolicyClient) -> None:
    answer = client.predict_matrix(["infer", "gemm", "stream"], ["train", "infer"])
    assert answer.matrix.victim_slowdown.shape == (3, 2)
    assert answer.matrix.victim_slowdown[0, 0] == pytest.approx(expected("infer", "train"), rel=1e-5)
    assert answer.matrix.neighbour_slowdown[2, 0] == pytest.approx(expected("train", "stream"), rel=1e-5)
    assert answer.matrix.neighbour_slowdown[1, 0] == pytest.approx(2.2)  # measured: train beside gemm
    assert (answer.matrix.feasible == 1).all()


def test_no_neighbours_means_the_victims_again(client: PolicyClient) -> None:
    square = client.predict_matrix(WORKLOADS).matrix
    same = client.predict_matrix(WORKLOADS, WORKLOADS).matrix
    assert np.array_equal(square.victim_slowdown, same.victim_slowdown)
    assert square.victim_slowdown == pytest.approx(square.neighbour_slowdown.T)


def test_a_large_matrix_agrees_with_the_pairs(client: PolicyClient) -> None:
    many = [*WORKLOADS] * 20  # 80 × 80: more than one block of the graph
    large = client.predict_matrix(many).matrix.victim_slowdown
    small = client.predict_matrix(WORKLOADS).matrix.victim_slowdown
    assert large == pytest.approx(np.tile(small, (20, 20)), rel=1e-5)


def test_a_higher_quantile_is_a_larger_slowdown(client: PolicyClient) -> None:
    median = client.predict_matrix(WORKLOADS).matrix.victim_slowdown
    high = client.predict_matrix(WORKLOADS, quantile=0.95).matrix.victim_slowdown
    assert (high > median).all()


def test_a_matrix_names_every_job_without_a_profile(client: PolicyClient) -> None:
    with pytest.raises(InvalidInputError) as caught:
        client.predict_matrix(["nobody", "infer"], ["gemm", "nothing"])
    assert [violation.field for violation in caught.value.violations] == ["victims[0]", "neighbours[1]"]
    assert "RegisterProfiles" in caught.value.violations[0].remedy
    with pytest.raises(InvalidInputError) as caught:
        client.predict_matrix(["nobody"])
    assert [violation.field for violation in caught.value.violations] == ["victims[0]"]


def test_stated_limits(client: PolicyClient) -> None:
    with pytest.raises(LimitError, match="PredictMatrix"):
        client.predict(["infer"] * 200)
    with pytest.raises(LimitError, match="split it"):
        client.predict_matrix(["infer"] * 3000)


def test_profiles_that_come_with_a_request_are_not_kept(model_folder: Path, tmp_path: Path) -> None:
    """20,000 of them once filled a gigabyte in some requests."""
    model, store = load_served_model(model_folder), SqliteStore(tmp_path / "store.db")
    core = PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=1.0)
    predict_pairs(
        core.state, PairQuery(jobs=(JobRef(workload="gemm"), JobRef(workload="infer")), allow_extrapolation=True)
    )
    predict_pairs(core.state, PairQuery(jobs=(JobRef(workload="stream"), JobRef(workload="infer"))))
    kept, kept_bytes = len(model.encoded_jobs), model.encoded_jobs.bytes
    for k in range(20):
        inline = tuple(JobRef(profile=profile(f"new{k}-{i}", step_time_s=0.01 + i)) for i in range(5))
        predict_pairs(core.state, PairQuery(jobs=inline, allow_extrapolation=True))
        predict_matrix(core.state, MatrixQuery(victims=inline, allow_extrapolation=True))
        del inline
    assert (len(model.encoded_jobs), model.encoded_jobs.bytes) == (kept, kept_bytes)
    assert kept > 0
    store.close()
