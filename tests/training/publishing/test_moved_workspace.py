"""A workspace that was copied or moved is whole: versions are listed, promoted and trained on in its new place."""

import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands import output
from interfere.data.tables import Table, write_table
from interfere.errors import NotFoundError
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import read_manifest
from interfere.training.commands.promote import app
from interfere.training.pipeline import train
from interfere.training.publishing.model_registry import champion_folder, list_versions, promote
from interfere.training.publishing.tracking import COLUMNS
from interfere.training.retrain import RetrainOutcome, retrain
from tests.training.cheap_models import CHEAP_MODELS, ONLY_MEAN


@pytest.fixture(scope="module")
def work(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions: the champion, and one that the gate refused."""
    place = tmp_path_factory.mktemp("before") / "work"
    train([small_folder], place, models=CHEAP_MODELS)
    train([small_folder], place, models=ONLY_MEAN)
    return place


def addresses(work: Path) -> set[str]:
    with sqlite3.connect(work / "mlflow.db") as database:
        return {
            str(row[0])
            for table, column in COLUMNS
            for row in database.execute(f"SELECT {column} FROM {table}")
            if row[0] and str(row[0]).startswith("file:")
        }


def test_versions_are_listed_with_figures_verdicts_and_the_published_one(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poor, first = list_versions(work)
    assert (first.number, first.gate, poor.number, poor.gate) == (1, "passed", 2, "refused")
    assert (first.champion, first.published, first.challenger) == (True, True, False)
    assert (poor.champion, poor.published, poor.challenger) == (False, False, True)
    assert first.figures["pair.mae"] < poor.figures["pair.mae"]
    assert 0 <= first.figures["job.coverage_others"] <= 1
    shown = CliRunner().invoke(app, ["--list", "--work", str(work), "--json"])
    rows = json.loads(shown.stdout)["versions"]
    assert [(row["number"], row["published"], row["served"]) for row in rows] == [(2, False, False), (1, True, False)]
    assert rows[0]["reason"].startswith("refused: worse than champion version 1 on ")
    monkeypatch.setattr(output.out, "_width", 200)
    table = CliRunner().invoke(app, ["--list", "--work", str(work)]).stdout
    assert f"{first.figures['pair.mae']:.3f}" in table
    assert "champion, published" in table
    with pytest.raises(NotFoundError, match="interfere train"):
        list_versions(work.parent / "nowhere")


def test_a_copied_workspace_is_whole_without_the_original(
    work: Path, small: Table, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    original, moved = tmp_path / "original" / "work", tmp_path / "elsewhere" / "my work"
    shutil.copytree(work, original)
    shutil.copytree(original, moved)
    listed = [(each.number, each.folder_version, each.champion) for each in list_versions(moved)]
    assert listed == [(each.number, each.folder_version, each.champion) for each in list_versions(original)]
    for place in (original, moved):
        assert all(address.startswith((place / "mlartifacts").as_uri()) for address in addresses(place))
    shutil.rmtree(original)
    assert promote(moved, encoder.fingerprint, number=2, force="a drill").before == 1
    assert promote(moved, encoder.fingerprint, number=1).before == 2
    write_table(tmp_path / "less", replace(small, pairs=small.pairs[:-2]))
    made = retrain([tmp_path / "less"], moved, store=tmp_path / "store.db", models=CHEAP_MODELS)
    assert made.outcome is RetrainOutcome.PUBLISHED, made.reason
    assert read_manifest(champion_folder(moved), encoder.fingerprint).version == list_versions(moved)[0].folder_version


def test_a_database_copied_without_its_artifacts_still_says_where_they_are(
    work: Path, encoder: FeatureEncoder, tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    list_versions(work)
    shutil.copy(work / "mlflow.db", tmp_path / "bare" / "mlflow.db")
    assert promote(tmp_path / "bare", encoder.fingerprint, number=1).version.number == 1
