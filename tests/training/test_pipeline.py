"""The training pipeline from tables to a served model, on a real MLflow database."""

import io
import json
import re
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import mlflow
import numpy as np
import pytest

from interfere.cli import main
from interfere.data.cards.hub import model_readme
from interfere.data.tables import Table, table_digest, write_table
from interfere.errors import NotFoundError, TableError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.predict.manifest import read_manifest
from interfere.predict.measured import read_measured_table
from interfere.predict.onnx import load_model
from interfere.records import PairBatch
from interfere.strict_json import json_value
from interfere.training.dataset import Dataset, build_dataset, read_source_tables
from interfere.training.evaluation.candidates import REQUEST, Candidates
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.interval_calibration import partner_counts
from interfere.training.models.catalogue import MODELS
from interfere.training.models.gbdt import GbdtModel
from interfere.training.pipeline import TrainingResult, small_domain_warnings, train
from interfere.training.publishing.model_registry import MODEL, challenger_folder, champion_folder, promote
from interfere.training.publishing.publication import build_publication, publish
from interfere.training.publishing.tracking import HEADLINE, database_uri, mlflow_connection
from tests.tables import matrix_batch
from tests.training.cheap_models import CHEAP_MODELS


@dataclass(frozen=True)
class Trained:
    work: Path
    tables: tuple[Path, ...]
    result: TrainingResult
    held_out: frozenset[tuple[str, str]]


@pytest.fixture(scope="module")
def trained(small: Table, small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two tables of the same pairs, the later one a tenth slower; two pairs held out."""
    later = tmp_path_factory.mktemp("later") / "later"
    later.mkdir()
    slower = [
        replace(p, slowdown=p.slowdown * 1.1, lower=p.lower * 1.1, upper=p.upper * 1.1, passes=())
        for p in small.pairs
        if p.slowdown == p.slowdown
    ]
    write_table(later, replace(small, pairs=tuple(slower)))
    work = tmp_path_factory.mktemp("work")
    apart = [(p.neighbour, p.victim) for p in small.pairs if p.slowdown == p.slowdown and p.victim != p.neighbour]
    held_out = frozenset({apart[0], apart[-1]})
    lines: list[str] = []
    result = train([small_folder, later], work, seed=1, occasion="test", held_out=held_out, report=lines.append)
    assert any(line.startswith("champion: ") for line in lines)
    return Trained(work=work, tables=(small_folder, later), result=result, held_out=held_out)


@pytest.fixture(scope="module")
def second(trained: Trained, small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the command prints for a second training in the same workspace, published elsewhere."""
    target = tmp_path_factory.mktemp("published") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "0")
        patch.setenv("INTERFERE_WORK", str(trained.work))
        made = document("train", "--data", str(small_folder), "--publish", str(target), "--json")
    assert made["folder"] == str(target)
    return made


def test_the_published_folder_answers_as_a_predictor(trained: Trained, small: Table, encoder: FeatureEncoder) -> None:
    model = load_model(trained.result.folder, encoder)
    assert model.version == trained.result.version
    assert model.manifest.model == trained.result.champion
    names = sorted(model.profiles)
    assert [name for name, _ in names] == sorted(job.workload for job in small.jobs)
    jobs = tuple(model.profiles[name] for name in names)
    batch = PairBatch(
        jobs=jobs, victim=np.array([0, 1]), neighbour=np.array([1, 0]), device_type="cpu-core", mode="timeslice"
    )
    answer = model.predict_pairs(batch)
    assert np.all((answer.lower < answer.median) & (answer.median < answer.upper))
    assert np.all((answer.median > 0.8) & (answer.median < 5))
    grid = model.predict_matrix(matrix_batch(jobs, device_type="cpu-core"))
    assert grid.victim_slowdown[0, 1] == pytest.approx(answer.median[0], rel=1e-4)
    assert grid.neighbour_slowdown[0, 1] == pytest.approx(answer.median[1], rel=1e-4)


def test_held_out_pairs_are_in_no_published_number_and_scored_separately(
    trained: Trained, encoder: FeatureEncoder
) -> None:
    manifest = read_manifest(trained.result.folder, encoder.fingerprint)
    measured = read_measured_table(trained.result.folder, manifest)
    hidden = {tuple(sorted(pair)) for pair in trained.held_out}
    assert measured
    assert not hidden & {tuple(sorted((key.victim, key.neighbour))) for key in measured}
    apart = [scores for split, _, scores in trained.result.scores if split == "held_out"]
    assert len(apart) == len(MODELS)
    assert {one.rows for one in apart} <= {2, 3, 4}  # the newest row of each direction that was ok


def test_a_later_measurement_replaces_an_earlier_one(trained: Trained, small: Table, encoder: FeatureEncoder) -> None:
    manifest = read_manifest(trained.result.folder, encoder.fingerprint)
    first = {(p.victim, p.neighbour): p.slowdown for p in small.pairs}
    for key, row in read_measured_table(trained.result.folder, manifest).items():
        assert row.slowdown == pytest.approx(1.1 * first[key.victim, key.neighbour])
    first_rows, later_rows = (t["rows"] for t in manifest.trained_on)
    assert first_rows == later_rows > 0  # both are learned from


def test_the_manifest_carries_scores_intervals_and_sources(trained: Trained, encoder: FeatureEncoder) -> None:
    manifest = read_manifest(trained.result.folder, encoder.fingerprint)
    assert set(manifest.scores) == {"pair", "job", "family", "held_out"}
    assert set(manifest.scores["job"]) == set(MODELS)
    assert manifest.scores["pair"]["gbdt"]["mae"] == pytest.approx(
        next(s.mae for split, model, s in trained.result.scores if (split, model) == ("pair", "gbdt"))
    )
    assert manifest.intervals.grids.shape == (3, 2, len(manifest.intervals.levels))
    assert np.all(np.diff(manifest.intervals.grids, axis=-1) >= 0)
    assert manifest.feasibility is None  # every pair of this table fitted
    assert sum(file.stat().st_size for file in trained.result.folder.iterdir()) < 2**20
    text = (trained.result.folder / "card.md").read_text()
    assert "One CPU core, for trying out" in text
    assert text == model_readme(trained.result.folder)
    assert "\n## Intended use\n" in text
    assert max(line.count("|") for line in text.splitlines() if line.startswith("|")) == 8  # seven columns
    assert str(trained.work) not in text


def test_runs_hold_parameters_metrics_tables_figures_and_the_registered_model(trained: Trained) -> None:
    client = mlflow.MlflowClient(tracking_uri=database_uri(trained.work), registry_uri=database_uri(trained.work))
    experiment = client.get_experiment_by_name("interfere")
    runs = client.search_runs([experiment.experiment_id])
    children = {r.info.run_name: r for r in runs if r.data.tags.get("mlflow.parentRunId") == trained.result.run_id}
    assert set(children) == set(MODELS)
    assert {r.info.status for r in runs} == {"FINISHED"}
    assert len(runs) == 1 + len(MODELS) <= 10
    tables = ("folds.json", "predictions.json")
    with mlflow_connection(trained.work):
        folds, predictions = (
            mlflow.MlflowClient().load_table(experiment.experiment_id, name, run_ids=[trained.result.run_id])
            for name in tables
        )
    assert set(folds.model) == set(MODELS)
    assert set(zip(folds.split, folds.fold, strict=True)) >= {("pair", 0), ("pair", 4), ("job", 5), ("family", 2)}
    assert (folds.mae > 0).all()
    assert (folds.rows >= 1).all()
    for split, model, scores in trained.result.scores:
        if model == trained.result.champion and split != "held_out":
            rows = predictions[predictions.split == split]
            error = (speed(np.log(rows.measured)) - speed(np.log(rows.slowdown))).abs().mean()
            assert (len(rows), error) == (scores.rows, pytest.approx(scores.mae))
            assert ((rows.low <= rows.measured) & (rows.measured <= rows.high)).mean() == pytest.approx(scores.coverage)
    parent = client.get_run(trained.result.run_id)
    assert re.fullmatch(r"test small, later · \d{4}-\d\d-\d\d \d\d:\d\d", parent.info.run_name)
    champion = {split: scores for split, name, scores in trained.result.scores if name == trained.result.champion}
    figures = {name: getattr(champion[split], score) for name, (split, score) in HEADLINE.items()}
    assert {name: parent.data.metrics[name] for name in HEADLINE} == pytest.approx(figures)
    assert sorted(parent.data.metrics)[: len(HEADLINE)] == sorted(HEADLINE)  # as MLflow's pages sort
    described = parent.data.tags["mlflow.note.content"]
    assert described.startswith(f"# Slowdown predictor: {trained.result.champion}\n\nabs_err_job **")
    assert "Learned from" in described
    assert "## Scores" not in described
    inputs = {one.dataset.name: one.dataset.digest for one in parent.inputs.dataset_inputs}
    assert inputs == {t.name: table_digest(t)[:36] for t in trained.tables}
    assert children["gbdt"].data.params["leaves"] == str(GbdtModel().leaves)
    expected = next(s.mae for split, model, s in trained.result.scores if (split, model) == ("job", "mlp"))
    assert children["mlp"].data.metrics["job.mae"] == pytest.approx(expected)
    files = {f.path for f in client.list_artifacts(trained.result.run_id)}
    assert files >= {
        "comparison.json",
        "comparison.md",
        "card.md",
        "environment.txt",
        "predictions.json",
        "folds.json",
        "figures.html",
        "verdict.json",
    }
    version = client.get_model_version_by_alias(MODEL, "champion")
    assert (str(version.version), version.run_id) == ("1", trained.result.run_id)
    assert version.description == described


def test_the_contributions_to_the_trees_are_logged(trained: Trained) -> None:
    client = mlflow.MlflowClient(tracking_uri=database_uri(trained.work))
    experiment = client.get_experiment_by_name("interfere").experiment_id
    under = f"tags.`mlflow.parentRunId` = '{trained.result.run_id}'"
    where = {r.info.run_name: r.info.run_id for r in client.search_runs([experiment], under)}
    for name in ("gbdt", "ensemble"):
        assert {f.path for f in client.list_artifacts(where[name])} == {"contributions.json", "contributions.html"}
    assert not client.list_artifacts(where["gp"])


def test_the_verdict_is_stored_with_run_and_version(trained: Trained) -> None:
    verdict = trained.result.verdict
    assert verdict.passed
    assert verdict.reason == "passed: first model of this registry, not worse than mean and additive"
    with mlflow_connection(trained.work):
        stored = json.loads(mlflow.artifacts.load_text(f"runs:/{trained.result.run_id}/verdict.json"))
        version = mlflow.MlflowClient().get_model_version(MODEL, "1")
    assert stored == json_value(asdict(verdict))
    assert (version.tags["gate"], version.tags["gate_reason"]) == ("passed", verdict.reason)


def test_the_second_training_is_judged_against_the_champion(trained: Trained, second: dict) -> None:
    """It learned from the pairs that were held out from the first, but they are too few to judge on alone."""
    verdict = second["verdict"]
    assert verdict["against"].startswith("champion version 1 on ")
    assert verdict["against"].endswith(" trusted rows, each hidden from both")
    assert [side["side"] for side in verdict["sides"]] == ["own", "others"]
    assert verdict["passed"] == verdict["reason"].startswith("passed: ")


def test_a_device_type_with_a_few_rows_beside_many_of_another_is_warned_of(
    small: Table, encoder: FeatureEncoder
) -> None:
    jobs = tuple(replace(job, device_type="a100") for job in small.jobs)
    few = Table(name="few", jobs=jobs, pairs=tuple(replace(pair, device_type="a100") for pair in small.ok_pairs[:4]))
    (warning,) = small_domain_warnings(build_dataset([small, few], encoder))
    assert warning.startswith("warning: only 4 ordered pairs of a100/timeslice")
    assert small_domain_warnings(build_dataset([small], encoder)) == []


def test_the_card_and_the_result_of_a_training_say_that_a_device_type_has_only_a_few_rows(
    small: Table, small_folder: Path, tmp_path: Path
) -> None:
    jobs = tuple(replace(job, device_type="a100") for job in small.jobs)
    few = Table(name="few", jobs=jobs, pairs=tuple(replace(pair, device_type="a100") for pair in small.ok_pairs[:4]))
    write_table(tmp_path / "few", few)
    made = train([small_folder, tmp_path / "few"], tmp_path / "work", models=CHEAP_MODELS)
    (warning,) = made.warnings
    assert f"**{warning}**" in (made.folder / "card.md").read_text()


def test_the_first_model_of_a_workspace_is_its_champion(trained: Trained) -> None:
    assert trained.result.registered.champion
    assert trained.result.folder == champion_folder(trained.work)
    assert read_bytes(challenger_folder(trained.work)) == read_bytes(trained.result.folder)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_champion(
    name: str, small_folder: Path, small_dataset: Dataset, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    final = {name: MODELS[name].fit(small_dataset, 0)}
    quick = evaluate_models(small_dataset, [MODELS["mean"]])
    evaluations = [replace(one, model=name) for one in quick]
    source = read_source_tables([small_folder])
    candidates = Candidates(
        dataset=small_dataset,
        settings=MODELS,
        fitted=final,
        evaluations=tuple(evaluations),
        champion=name,
        selected_by=REQUEST,
        seed=0,
    )
    made = build_publication(candidates, source, encoder)
    publish(tmp_path / "model", made)
    model = load_model(tmp_path / "model", encoder)
    jobs = tuple(source.tables[0].jobs)
    rows = small_dataset.rows
    at = {name: k for k, name in enumerate(job.workload for job in jobs)}
    order = np.array([at[name] for name in small_dataset.workloads])
    answer = model.predict_pairs(
        PairBatch(
            jobs=jobs,
            victim=order[rows.victim - 1],
            neighbour=order[rows.neighbour - 1],
            device_type="cpu-core",
            mode="timeslice",
        )
    )
    novelty = final[name].novelty(rows) if hasattr(final[name], "novelty") else np.zeros(len(rows))
    counts = partner_counts(small_dataset)[1]
    shift = model.manifest.intervals.quantile(
        0.5, novelty=novelty, partners=np.minimum(counts[rows.victim], counts[rows.neighbour]), domain=1
    )
    np.testing.assert_allclose(np.log(answer.median), final[name].predict(rows) + shift, atol=1e-4)
    pair_by_pair = not hasattr(final[name].inner if hasattr(final[name], "inner") else final[name], "to_matrix_onnx")
    assert (model.manifest.model, model.manifest.selected_by) == (name, "request")
    assert (model.manifest.factorises, model.manifest.matrix_limit is None) == (not pair_by_pair, not pair_by_pair)
    assert (tmp_path / "model" / "matrix.onnx").exists() == model.manifest.factorises
    assert model.manifest.matrix_limit is None or 200_000 <= model.manifest.matrix_limit.pairs <= 500_000
    matrix = model.predict_matrix(matrix_batch(jobs, device_type="cpu-core", allow_extrapolation=True))
    listed = [
        matrix.victim_slowdown[order[i - 1], order[j - 1]] for i, j in zip(rows.victim, rows.neighbour, strict=True)
    ]
    np.testing.assert_allclose(listed, answer.median, rtol=1e-5)
    card = (tmp_path / "model" / "card.md").read_text()
    assert f"# Slowdown predictor: {name}" in card
    assert "requested by name" in card
    assert ("predicts pair by pair" in card) == pair_by_pair


def test_the_command_and_the_library_make_the_same_model_twice(
    second: dict, small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    again = train([small_folder], tmp_path / "other", seed=0)
    assert second["version"] == again.version
    assert second["scores"]["pair"] == {
        model: pytest.approx(json_value(asdict(s))) for split, model, s in again.scores if split == "pair"
    }
    assert read_bytes(Path(second["folder"])) == read_bytes(again.folder)


def test_promotion_moves_the_alias_and_publishes_that_version(
    trained: Trained, second: dict, encoder: FeatureEncoder
) -> None:
    assert (second["registered_version"], second["is_champion"]) == (2, False)
    champion = champion_folder(trained.work)
    assert read_manifest(champion, encoder.fingerprint).version == trained.result.version

    made = document("promote", "--work", str(trained.work), "--json")
    assert (made["registered_version"], made["before"], made["version"]) == (2, 1, second["version"])
    assert read_manifest(champion, encoder.fingerprint).version == second["version"]
    back = promote(trained.work, encoder.fingerprint, number=1)
    assert (back.before, back.version.folder_version) == (2, trained.result.version)
    with pytest.raises(NotFoundError, match="one of 1, 2"):
        promote(trained.work, encoder.fingerprint, number=9)


def test_promotion_without_a_training_says_what_to_do(tmp_path: Path, encoder: FeatureEncoder) -> None:
    with pytest.raises(NotFoundError, match="interfere train"):
        promote(tmp_path, encoder.fingerprint)


def test_a_corrupt_table_publishes_nothing(small_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(small_folder, broken)
    content = (broken / "pairs.parquet").read_bytes()
    (broken / "pairs.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(TableError, match=r"pairs\.parquet"):
        train([small_folder, broken], tmp_path / "work", publish_to=tmp_path / "model")
    assert not (tmp_path / "work").exists()
    assert not (tmp_path / "model").exists()


def test_a_table_whose_passes_disagree_is_refused(small: Table, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noisy = [replace(p, passes=tuple(np.exp(rng.normal(0.3, 0.2, 4)).tolist())) for p in small.pairs]
    folder = tmp_path / "noisy"
    folder.mkdir()
    write_table(folder, replace(small, pairs=tuple(noisy)))
    with pytest.raises(UnfitError, match=r"(?s)ICC .*more passes"):
        train([folder], tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_what_is_not_a_model_is_refused_before_any_work(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UnfitError, match="not a model folder"):
        train([small_folder], tmp_path / "work", publish_to=tmp_path / "mine")
    assert not (tmp_path / "work").exists()


def test_a_workspace_that_cannot_be_made_is_one_clear_error(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", str(small_folder), "--work", str(tmp_path / "file" / "work")])
    said = capsys.readouterr().err
    assert stop.value.code == 1
    assert "workspace cannot be written" in said
    assert "--work" in said


def document(*arguments: str) -> dict:
    """The JSON document that a command prints; it must end well."""
    with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0
    return json.loads(printed.getvalue())


def read_bytes(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
