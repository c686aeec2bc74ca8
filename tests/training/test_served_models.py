"""LightGBM, two-tower network, Gaussian process and ensemble: each trained, exported, registered, served and scored.

The table is the shipped one, the registry a real MLflow database, the server a real one on the published folder. What
it answers over gRPC is compared with the fitted model and with measurements that no model was fitted on.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.data.loading import shipped_table
from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.predict.novelty import pair_novelty
from interfere.predict.onnx import load_model
from interfere.records import JobProfile, ModelInfo
from interfere.records.documents import to_document
from interfere.serving.server import start_server
from interfere.training.dataset import Dataset, PairRows, build_dataset, hold_out, unordered_pair
from interfere.training.evaluation.candidates import HELD_OUT
from interfere.training.models.catalogue import FEATURE_MODELS, MODELS
from interfere.training.models.completed import CompletedModel, FittedCompleted
from interfere.training.models.mlp import MlpModel
from interfere.training.pipeline import TrainingResult, train
from interfere.training.publishing.model_registry import MODEL
from interfere.training.publishing.tracking import mlflow_connection
from tests.serving.one_answer import LARGE, assert_one_answer, different_jobs

pytestmark = pytest.mark.journey
NAMES = tuple(model.name for model in FEATURE_MODELS)
HELD_OUT_PAIRS = 14
QUICK = {**MODELS, "mlp": CompletedModel(inner=MlpModel(epochs=60))}  # it is fitted a dozen times


@dataclass(frozen=True)
class ServedModelCase:
    """One model after `interfere train --champion NAME`, and a client of a server on its folder."""

    name: str
    work: Path
    result: TrainingResult
    fitted: FittedCompleted  # fitted here on the same rows
    training_set: Dataset
    held_out: Dataset
    profiles: tuple[JobProfile, ...]
    client: PolicyClient


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workspace, whose registry gets all four."""
    return tmp_path_factory.mktemp("four")


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, work: Path, shipped: Table) -> Iterator[ServedModelCase]:
    name, encoder = request.param, FeatureEncoder()
    dataset = build_dataset([shipped], encoder)
    pairs = sorted({unordered_pair(p.victim, p.neighbour) for p in shipped.ok_pairs if p.victim != p.neighbour})
    chosen = np.random.default_rng(0).choice(len(pairs), HELD_OUT_PAIRS, replace=False)
    apart = frozenset(pairs[k] for k in chosen)
    result = train(
        [shipped_table("cpu")],
        work,
        champion=name,
        models={each: QUICK[each] for each in ("mean", "additive", name)},
        publish_to=work / "published" / name,
        held_out=apart,
    )
    training_set, held_out = hold_out(dataset, apart)
    server = start_server(Settings(model=result.folder, work=work / f"served-{name}", port=0, decision_workers=0))
    try:
        with PolicyClient(server.address, timeout_s=60.0) as client:
            yield ServedModelCase(
                name=name,
                work=work,
                result=result,
                fitted=QUICK[name].fit(training_set, 0),
                training_set=training_set,
                held_out=held_out,
                profiles=tuple(load_model(result.folder, encoder).profiles.values()),
                client=client,
            )
    finally:
        server.stop()


def test_it_is_trained_published_and_told_by_its_name(case: ServedModelCase) -> None:
    info: ModelInfo = case.client.model()
    assert (case.result.champion, case.result.selected_by) == (case.name, "request")
    assert (info.model, info.matrix_model, info.selected_by, info.version) == (
        case.name,
        case.name,
        "request",
        case.result.version,
    )
    assert [each.model for each in case.client.list_models().models if each.served] == [case.name]
    assert f"# Slowdown predictor: {case.name}" in info.card
    factorises = hasattr(case.fitted.inner, "to_matrix_onnx")
    assert (info.matrix_limit_pairs == 0) == factorises == (case.result.folder / "matrix.onnx").exists()
    assert case.result.worst_parity <= 1e-5


def test_the_registered_model_answers_as_the_server_does(case: ServedModelCase) -> None:
    """Pairs that were measured, by name; and the same jobs under new names, by their profiles."""
    domain = case.training_set.domains[0]
    names = [profile.workload for profile in case.profiles]
    facts = [json.dumps(to_document(replace(each, workload=f"new-{each.workload}"))) for each in case.profiles]
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names))]
    frame = pd.DataFrame(
        {
            "victim": [names[i] for i, _ in pairs] + [f"new-{names[i]}" for i, _ in pairs],
            "neighbour": [names[j] for _, j in pairs] * 2,
            "device_type": domain.device_type,
            "mode": str(domain.mode),
            "victim_profile": [None] * len(pairs) + [facts[i] for i, _ in pairs],
        }
    )
    with mlflow_connection(case.work):
        version = mlflow.MlflowClient().get_model_version(MODEL, str(case.result.registered.number))
        answer = mlflow.pyfunc.load_model(f"models:/{MODEL}/{version.version}").predict(frame)
    assert (version.tags["model"], version.tags["folder_version"]) == (case.name, case.result.version)
    new = [replace(each, workload=f"new-{each.workload}") for each in case.profiles]
    known = case.client.predict(names, pairs=pairs, mode=domain.mode).prediction
    unknown = case.client.predict(
        [*new, *names], pairs=[(i, len(new) + j) for i, j in pairs], mode=domain.mode
    ).prediction
    for column, field in {"slowdown": "median", "low": "lower", "high": "upper"}.items():
        served = np.concatenate([getattr(known, field), getattr(unknown, field)])
        np.testing.assert_allclose(answer[column], served, rtol=1e-5, err_msg=column)
    assert answer.source.tolist() == [each.value for each in (*known.source, *unknown.source)]
    assert {"measured", "model"} <= set(answer.source)


def test_it_answers_over_grpc_what_the_fitted_model_predicts(case: ServedModelCase) -> None:
    """Jobs of new names: no measurement answers for them."""
    jobs, encoder = different_jobs(case.profiles, 24, seed=1), FeatureEncoder()
    case.client.register_profiles(jobs)
    domain = case.training_set.domains[0]
    n = len(jobs)
    i, j = (side.ravel() for side in np.indices((n, n)))
    answer = case.client.predict(
        [job.workload for job in jobs],
        pairs=list(zip(i.tolist(), j.tolist(), strict=True)),
        mode=domain.mode,
        allow_extrapolation=True,
    )
    encoded = encoder.encode_jobs(jobs, domain.device_type, domain.mode)
    unknown = np.zeros(len(i), dtype=np.int64)
    rows = PairRows(
        pairs=encoder.encode_pairs(encoded[i], encoded[j]), victim=unknown, neighbour=unknown, domain=unknown + 1
    )
    intervals = load_model(case.result.folder, encoder).manifest.intervals
    shift = intervals.quantile(0.5, novelty=_novelty(case, encoded)[i, j], partners=unknown, domain=1)
    np.testing.assert_allclose(np.log(answer.prediction.median), case.fitted.predict(rows) + shift, atol=1e-5)


def test_it_gives_one_answer_however_it_is_asked(case: ServedModelCase) -> None:
    assert_one_answer(case.client, different_jobs(case.profiles, LARGE, seed=2), case.training_set.domains[0].mode)


def test_its_answers_over_grpc_are_scored_on_pairs_that_were_held_out(case: ServedModelCase) -> None:
    rows = case.held_out.latest_rows()
    workloads = list(case.held_out.workloads)
    pairs = list(zip((rows.rows.victim - 1).tolist(), (rows.rows.neighbour - 1).tolist(), strict=True))
    answer = case.client.predict(workloads, pairs=pairs, mode=case.training_set.domains[0].mode).prediction
    assert len(pairs) == 2 * HELD_OUT_PAIRS
    assert {source.value for source in answer.source} == {"model"}  # no measurement of theirs was published
    measured = speed(rows.log_slowdown)
    mae = np.abs(1 / answer.median - measured).mean()
    mean_mae = np.abs(speed(case.training_set.log_slowdown).mean() - measured).mean()
    of_fitted = next(s.mae for split, model, s in case.result.scores if (split, model) == (HELD_OUT, case.name))
    covered = ((answer.lower <= np.exp(rows.log_slowdown)) & (np.exp(rows.log_slowdown) <= answer.upper)).mean()
    print(f"{case.name}: MAE of speed over gRPC {mae:.4f}, fitted {of_fitted:.4f}, mean {mean_mae:.4f}, {covered:.2f}")
    assert mae < 0.6 * mean_mae
    assert abs(mae - of_fitted) < 0.01  # the served median is moved to that of the held-out residuals
    assert covered > 0.7


def _novelty(case: ServedModelCase, encoded: np.ndarray) -> np.ndarray:
    """Novelty of all pairs of jobs, float64[n, n]."""
    space = case.fitted.space
    if space is None:
        return np.zeros((len(encoded), len(encoded)))
    novelty = space.novelty(*case.fitted.completion.complete(encoded))
    return pair_novelty(novelty[:, None], novelty[None])
