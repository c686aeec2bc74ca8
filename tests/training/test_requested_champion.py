"""A champion that is named when training takes the place of the one with the lowest error, and is said to."""

import json
from pathlib import Path

import mlflow
import pytest

from interfere.cli import main
from interfere.errors import InvalidInputError
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import read_manifest
from interfere.store.store import SqliteStore
from interfere.training.pipeline import train
from interfere.training.publishing.model_registry import MODEL, champion_folder, promote
from interfere.training.publishing.tracking import HEADLINE, mlflow_connection
from interfere.training.retrain import RetrainOutcome, retrain
from tests.training.cheap_models import CHEAP_MODELS


@pytest.mark.journey
def test_the_named_model_is_published_registered_and_kept_through_retraining(
    small_folder: Path, tmp_path: Path
) -> None:
    encoder, work = FeatureEncoder(), tmp_path / "work"
    by_error = train([small_folder], work, models=CHEAP_MODELS)
    assert (by_error.champion, by_error.selected_by) == ("additive", "gate")
    assert read_manifest(by_error.folder, encoder.fingerprint).selected_by == "gate"

    store = work / "store.db"
    SqliteStore(store).close()
    named = retrain([small_folder], work, store=store, models=CHEAP_MODELS, champion="mean")
    assert named.outcome is RetrainOutcome.REFUSED  # it is worse than the champion, and the gate says so
    assert named.trained
    number, run_id = named.trained.registered.number, named.trained.run_id
    again = retrain([small_folder], work, store=store, models=CHEAP_MODELS, champion="mean")
    assert again.outcome is RetrainOutcome.NOTHING_NEW
    assert retrain([small_folder], work, store=store, models=CHEAP_MODELS, dry_run=True).outcome is (
        RetrainOutcome.WOULD_TRAIN
    )

    promoted = promote(work, encoder.fingerprint, number=number, force="it was asked for")
    assert promoted.version.model == "mean"
    manifest = read_manifest(champion_folder(work), encoder.fingerprint)
    assert (manifest.model, manifest.selected_by) == ("mean", "request")
    assert "requested by name" in (champion_folder(work) / "card.md").read_text()
    with mlflow_connection(work):
        client = mlflow.MlflowClient()
        assert client.get_model_version(MODEL, str(number)).tags["model"] == "mean"
        shown = client.get_registered_model(MODEL).description
        metrics = client.get_run(run_id).data.metrics
        parameters = client.get_run(run_id).data.params
    figures = " · ".join(f"{name} **{metrics[name]:.3f}**" for name in HEADLINE)
    assert shown.endswith(f"Champion, version {number}: {figures}")  # on the page of the model, at once
    assert (parameters["champion"], parameters["selected_by"]) == ("mean", "request")


def test_an_unknown_name_is_refused_with_the_list_before_anything_is_read(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(InvalidInputError, match="choose among mean, additive"):
        train([tmp_path / "nowhere"], tmp_path / "work", models=CHEAP_MODELS, champion="gbdt")
    with pytest.raises(InvalidInputError, match="choose among mean, additive"):
        retrain([tmp_path / "nowhere"], tmp_path / "work", store=tmp_path / "s", models=CHEAP_MODELS, champion="gbdt")
    for command in ("train", "retrain"):
        with pytest.raises(SystemExit) as stop:
            main(
                [command, "--data", str(small_folder), "--work", str(tmp_path / "work"), "--champion", "lgbm", "--json"]
            )
        assert stop.value.code == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["value"] == "lgbm"
        assert all(name in error["remedy"] for name in ("gbdt", "mlp", "gp", "ensemble"))
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", str(small_folder), "--work", str(tmp_path / "work"), "--models", "lgbm", "--json"])
    assert stop.value.code == 1
    assert json.loads(capsys.readouterr().out)["error"]["value"] == "lgbm"
    assert not (tmp_path / "work").exists()
