"""Runs are stored in the workspace, and MLflow's global address is restored."""

import os
from pathlib import Path

import mlflow
import pytest

from interfere.errors import UnfitError
from interfere.training.publishing.tracking import (
    database_uri,
    library_versions,
    mlflow_connection,
    prepare_workspace,
    tracked_run,
)


def test_a_run_that_fails_is_marked_failed_and_the_error_propagates(tmp_path: Path) -> None:
    def fail() -> None:
        with tracked_run(tmp_path, "doomed") as run:
            run.log_parameters({"seed": 1})
            ids.append(run.id)
            raise ZeroDivisionError

    ids: list[str] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    client = mlflow.MlflowClient(tracking_uri=database_uri(tmp_path))
    assert client.get_run(ids[0]).info.status == "FAILED"
    assert client.get_run(ids[0]).data.params == {"seed": "1"}


@pytest.mark.parametrize("registry", [None, "sqlite:///theirs.db"])
def test_the_callers_address_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: str | None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if registry:
        monkeypatch.setenv("MLFLOW_REGISTRY_URI", registry)
    else:
        monkeypatch.delenv("MLFLOW_REGISTRY_URI", raising=False)
    before = mlflow.get_tracking_uri()
    with mlflow_connection(tmp_path / "work"):
        assert mlflow.get_tracking_uri() == mlflow.get_registry_uri() == database_uri(tmp_path / "work")
    assert mlflow.get_tracking_uri() == before
    assert not mlflow.is_tracking_uri_set()
    assert os.environ.get("MLFLOW_REGISTRY_URI") == registry
    assert mlflow.get_registry_uri() == (registry or before)
    assert [path.name for path in tmp_path.iterdir()] == ["work"]  # no database beside it


def test_an_address_from_the_environment_does_not_outlast_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = f"sqlite:///{tmp_path / 'theirs.db'}"
    with monkeypatch.context() as environment_of_caller:
        environment_of_caller.setenv("MLFLOW_TRACKING_URI", theirs)
        with mlflow_connection(tmp_path / "work"):
            pass
        assert mlflow.get_tracking_uri() == theirs
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert not mlflow.is_tracking_uri_set()


def test_a_workspace_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnfitError, match="--work"):
        prepare_workspace(tmp_path / "file")


def test_the_environment_names_interpreter_and_libraries() -> None:
    lines = library_versions().splitlines()
    assert lines[0].startswith("python 3.")
    assert any(line.startswith("lightgbm ") and line[9].isdigit() for line in lines)
