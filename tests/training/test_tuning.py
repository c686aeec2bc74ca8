"""Tuning: the told error is nested, an interrupted search goes on as if it had not been, every trial is a run."""

import json
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import pytest

from interfere.cli import main
from interfere.errors import InvalidInputError
from interfere.training.commands import tune as tuning
from interfere.training.commands.tune import Range, TunedModel, tune_model
from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.splits import folds
from interfere.training.models.additive import AdditiveModel
from interfere.training.publishing.tracking import mlflow_connection

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
