"""Tuning: the told error is nested, an interrupted search goes on as if it had not been, every trial is a run."""

import json
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import pytest
from optuna import get_all_study_summaries
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from interfere.cli import main
from interfere.data.tables import Table
from interfere.errors import InvalidInputError
from interfere.training import tuning
from interfere.training.commands.tune import tune_model
from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.splits import folds
from interfere.training.models.additive import AdditiveModel
from interfere.training.publishing.tracking import mlflow_connection
from interfere.training.tuning import FoundSettings, Range, TunedModel, pair_digests, read_settings

pytestmark = pytest.mark.journey
TRIALS = 8


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range with settings so bad that they are pruned."""
    monkeypatch.setitem(tuning.SPACES, "additive", {"shrinkage": Range(low=0.01, high=1e6, log=True)})


def tuned(folder: Path, trials: int = TRIALS) -> TunedModel:
    return TunedModel(model=AdditiveModel(), trials=trials, folder=str(folder))


def test_tests_of_a_fold_change_no_prediction_of_it(small_dataset: Dataset, tmp_path: Path) -> None:
    """What a fold tests took part in no search, no fit: with other measurements it is predicted as before."""
    model, (first, *_) = tuned(tmp_path), folds(small_dataset, "pair", 0, 2)
    other = small_dataset.log_slowdown.copy()
    other[first.test] += np.linspace(-1.0, 1.0, len(first.test))
    changed = replace(small_dataset, log_slowdown=other)
    (before,), (after,) = (
        evaluate_models(each, (model,), splits=("pair",), count=2) for each in (small_dataset, changed)
    )
    tested = before.fold == 0
    assert (before.predicted_log[tested] == after.predicted_log[tested]).all()
    assert not (before.predicted_log[~tested] == after.predicted_log[~tested]).any()


def test_an_interrupted_search_goes_on_as_if_it_had_not_been(small_dataset: Dataset, tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("trial 3"):
            raise KeyboardInterrupt

    whole = tuned(tmp_path / "whole").search(small_dataset, 0)
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "other").search(small_dataset, 0, interrupt)
    told: list[str] = []
    again = tuned(tmp_path / "other").search(small_dataset, 0, told.append)
    assert len(told) == TRIALS - 3
    assert list(again.trials()) == list(whole.trials())
    assert again.best == whole.best
    trials = list(whole.trials())
    assert trials[0][2] == {"shrinkage": AdditiveModel().shrinkage}  # what ships is tried first
    assert {state for _, state, _, _ in trials} == {"complete", "pruned"}
    assert min(error for _, state, _, error in trials if state == "complete") <= trials[0][3]


def test_every_trial_is_a_run_inside_the_one_that_tells_the_nested_errors(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "--data", str(small_folder), "--model", "additive", "--trials", str(TRIALS), "--split", "pair"]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--folds", "2", "--work", str(tmp_path), "--json"])
    assert stop.value.code == 0
    document = json.loads(capsys.readouterr().out)
    errors = {each["model"]: each["mae"] for each in document["nested"]}
    assert set(errors) == {"additive", "additive-tuned"}
    assert document["minimised_error"] not in errors.values()
    with mlflow_connection(tmp_path):
        client = mlflow.MlflowClient()
        run = client.get_run(document["run_id"])
        children = client.search_runs(
            [run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{document['run_id']}'", max_results=100
        )
    assert run.info.run_name.startswith("tune additive: small · ")
    assert run.data.metrics["error_pair_nested"] == pytest.approx(errors["additive-tuned"])
    assert run.data.metrics["minimised_error"] == pytest.approx(document["minimised_error"])
    assert len(children) == document["trials"] == TRIALS
    assert {child.data.params["state"] for child in children} == {"complete", "pruned"}
    assert document["settings"].keys() == {"shrinkage"}
    assert any((tmp_path / "tune").iterdir())


def test_a_model_without_settings_is_refused(small_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"(?s)nothing to tune.*gbdt"):
        tune_model([small_folder], tmp_path, model="mean", trials=1)


# --- found settings in a training -------------------------------------------------------------------------------------


def found_on(dataset: Dataset, shrinkage: float = 7.0) -> FoundSettings:
    return FoundSettings(
        model="additive", settings={"shrinkage": shrinkage}, trials=3, pairs=tuple(sorted(pair_digests(dataset)))
    )


def test_found_settings_never_predict_a_pair_that_chose_them(
    small: Table, small_dataset: Dataset, tmp_path: Path
) -> None:
    """With other measurements of what a fold tests, and settings found on all of them, it is predicted as before."""
    (first, *_) = folds(small_dataset, "pair", 0, 2)
    other = small_dataset.log_slowdown.copy()
    other[first.test] += np.linspace(-1.0, 1.0, len(first.test))
    changed = replace(small_dataset, log_slowdown=other)
    predicted = []
    for dataset, shrinkage in ((small_dataset, 0.02), (changed, 1e5)):  # each found on its own rows
        model = found_on(dataset, shrinkage).model_for([small], tmp_path)
        (each,) = evaluate_models(dataset, (model,), splits=("pair",), count=2)
        predicted.append(each.predicted_log[each.fold == 0])
    assert (predicted[0] == predicted[1]).all()


def test_found_settings_are_taken_where_no_test_chose_them(
    small: Table, small_dataset: Dataset, tmp_path: Path
) -> None:
    (first, *_) = folds(small_dataset, "pair", 0, 2)
    exact = replace(AdditiveModel(), shrinkage=7.0)
    elsewhere = replace(small_dataset, workloads=tuple(f"other {name}" for name in small_dataset.workloads))
    for found, rows in (
        (found_on(small_dataset), small_dataset),  # the last fit, on all rows
        (found_on(elsewhere), small_dataset.take(first.train)),  # of another table
    ):
        fitted = found.model_for([small], tmp_path).fit(rows, 0)
        assert (fitted.predict(rows.rows) == exact.fit(rows, 0).predict(rows.rows)).all()
    assert not (tmp_path / "tune").exists()  # nothing was searched


def trials_in(work: Path) -> dict[str, int]:
    """The number of trials that each study of a workspace holds."""
    journals = (JournalStorage(JournalFileBackend(str(file))) for file in (work / "tune").glob("*.log"))
    return {study.study_name: study.n_trials for each in journals for study in get_all_study_summaries(each)}


def test_a_training_compares_the_tuned_model_and_publishes_it_on_request(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tune_model([small_folder], tmp_path, model="additive", trials=3)
    tried = trials_in(tmp_path)
    options = ("--data", str(small_folder), "--work", str(tmp_path), "--models", "additive", "--json")
    with pytest.raises(SystemExit) as stop:
        main(["train", *options, "--settings", "additive", "--champion", "additive-tuned"])
    assert stop.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["model"] == "additive-tuned"
    told = {(split, name): each["mae"] for split, of in document["scores"].items() for name, each in of.items()}
    for each in result.nested:  # the nested error that tune told, and never the one that the search minimised
        assert told[each.split, each.model] == pytest.approx(each.scores.mae)
    assert result.tuned_error not in told.values()
    after = trials_in(tmp_path)
    assert tried.items() <= after.items()  # the searches of tune were found done; those of families are new
    assert len(after) > len(tried)
    card = (tmp_path / "models" / "champion" / "card.md").read_text(encoding="utf-8")
    assert "settings that were searched" in card


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        '{"format": 1, "model": "additive", "settings": {"shrinkage": 1e9}, "trials": 3, "pairs": []}',
        '{"format": 1, "model": "additive", "settings": {}, "trials": 3, "pairs": []}',
        '{"format": 1, "model": "os", "settings": {}, "trials": 3, "pairs": []}',
    ],
)
def test_what_is_no_file_of_settings_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(content)
    with pytest.raises(InvalidInputError, match="no settings of a model"):
        read_settings(str(tmp_path / "mine.json"), tmp_path)
    with pytest.raises(InvalidInputError, match="no settings of a model"):
        read_settings("nothing-here.json", tmp_path)
    with pytest.raises(InvalidInputError, match=r"(?s)no settings were searched.*interfere tune --model gbdt"):
        read_settings("gbdt", tmp_path)
