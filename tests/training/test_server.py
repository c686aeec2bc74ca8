"""Two trainings against a real `mlflow server`: trained, judged, refused, forced, read back."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import numpy as np
import pytest

from interfere.cli import main
from interfere.data.tables import Table
from interfere.errors import UnavailableError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import read_manifest
from interfere.training.commands.ui import serve_ui
from interfere.training.pipeline import TrainingResult, train
from interfere.training.publishing.model_registry import MODEL, champion_folder, promote
from interfere.training.publishing.tracking import mlflow_connection
from tests.training.cheap_models import CHEAP_MODELS, ONLY_MEAN
from tests.waiting import PATIENCE_S, free_port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server with a database and artifacts of its own."""
    root = tmp_path_factory.mktemp("server")
    port = free_port()
    scripts = Path(sys.executable).parent
    environ = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [scripts / "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{root / 'server.db'}", "--artifacts-destination", root / "artifacts"]
    with (root / "log").open("w") as log:
        started = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + PATIENCE_S
            while not answers(address):
                assert started.poll() is None, (root / "log").read_text()
                assert time.monotonic() < deadline, (root / "log").read_text()
                time.sleep(0.3)
            yield address
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=10):
            return True
    except OSError:
        return False


@dataclass(frozen=True)
class Life:
    work: Path
    first: TrainingResult
    poor: TrainingResult


@pytest.fixture(scope="module")
def life(server: str, small: Table, small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Ten pairs are held out from both trainings; the second may only learn the mean."""
    work = tmp_path_factory.mktemp("work")
    apart = sorted({tuple(sorted((p.victim, p.neighbour))) for p in small.ok_pairs if p.victim != p.neighbour})
    held_out = frozenset(apart[:10])
    first = train([small_folder], work, held_out=held_out, tracking=server, models=CHEAP_MODELS)
    poor = train([small_folder], work, held_out=held_out, tracking=server, models=ONLY_MEAN)
    return Life(work=work, first=first, poor=poor)


def test_everything_lands_on_the_server_and_nothing_in_the_workspace(life: Life, server: str) -> None:
    assert {path.name for path in life.work.iterdir()} == {"models"}
    with mlflow_connection(life.work, server):
        client = mlflow.MlflowClient()
        run = client.get_run(life.first.run_id)
        assert run.info.artifact_uri.startswith("mlflow-artifacts:")
        assert {f.path for f in client.list_artifacts(life.first.run_id)} >= {"published", "card.md", "verdict.json"}
        served = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")
        answer = served.predict(served.input_example)["log_slowdown"]
    assert np.isfinite(answer).all()


def test_a_poor_challenger_is_judged_on_rows_unseen_by_both_and_refused(life: Life) -> None:
    assert life.first.registered.champion
    assert not life.poor.registered.champion
    verdict = life.poor.verdict
    assert verdict.against.startswith("champion version 1 on ")
    assert verdict.against.endswith(" rows unseen by both")
    assert not verdict.passed
    assert verdict.error.challenger > verdict.error.champion
    assert verdict.error.low > 0


def test_promotion_obeys_the_gate_unless_forced_with_a_reason(
    life: Life,
    server: str,
    encoder: FeatureEncoder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnfitError, match=r"(?s)did not pass the gate: refused: worse than champion version 1.*--force"):
        promote(life.work, encoder.fingerprint, tracking=server)
    champion = champion_folder(life.work)
    assert read_manifest(champion, encoder.fingerprint).version == life.first.version

    with pytest.raises(SystemExit) as stop:
        main(["promote", "--work", str(life.work), "--tracking", server, "--force", "a drill", "--json"])
    assert stop.value.code == 0
    assert "forced: a drill" in capsys.readouterr().err
    assert read_manifest(champion, encoder.fingerprint).version == life.poor.version
    with mlflow_connection(life.work, server):
        assert mlflow.MlflowClient().get_model_version_by_alias(MODEL, "champion").tags["forced"] == "a drill"

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    with pytest.raises(SystemExit) as stop:
        main(["promote", "--work", str(life.work), "--version", "1", "--json"])
    said = capsys.readouterr()
    back = json.loads(said.out)
    assert (back["registered_version"], back["before"], back["forced"]) == (1, 2, "")
    assert "that verdict was against the baselines alone" in said.err


def test_nothing_is_started_for_a_tracking_server(server: str, tmp_path: Path) -> None:
    lines: list[str] = []
    assert serve_ui(tmp_path, 5000, tracking=server, report=lines.append) == 0
    assert lines == [f"{server} is a tracking server with its own pages: open it in a browser"]


def test_a_server_that_is_down_is_reported_before_any_work(small_folder: Path, tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(UnavailableError, match=r"(?s)does not answer.*--tracking"):
        train([small_folder], tmp_path / "work", tracking=f"http://127.0.0.1:{port}", report=pytest.fail)
