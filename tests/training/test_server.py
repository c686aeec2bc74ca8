"""Two trainings against a real `mlflow server`: trained, judged, refused, forced, read back."""

import base64
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pytest
from mlflow.webhooks.delivery import _generate_hmac_signature

from interfere.cli import main
from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.data.tables import Table
from interfere.errors import ModelError, NotFoundError, UnavailableError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import published_version, read_manifest
from interfere.serving.server import start_server
from interfere.training.commands.ui import serve_ui
from interfere.training.pipeline import TrainingResult, train
from interfere.training.publishing.model_registry import MODEL, AliasFollower, champion_folder, promote
from interfere.training.publishing.tracking import mlflow_connection
from tests.training.cheap_models import CHEAP_MODELS, ONLY_MEAN
from tests.training.mlflow_servers import tracking_server
from tests.waiting import PATIENCE_S, free_port, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server with a database and artifacts of its own, which may call a webhook of this machine."""
    webhooks = {
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_WEBHOOK_CACHE_TTL": "0",
        "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": base64.urlsafe_b64encode(bytes(32)).decode(),
    }
    with tracking_server(tmp_path_factory.mktemp("server"), environ=webhooks) as address:
        yield address


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
        assert {f.path for f in client.list_artifacts(life.first.run_id)} >= {"card.md", "verdict.json"}
        served = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")
        answer = served.predict(served.input_example)
    assert (answer.low <= answer.slowdown).all()
    assert (answer.slowdown <= answer.high).all()


def test_a_poor_challenger_is_judged_on_rows_unseen_by_both_and_refused(life: Life) -> None:
    assert life.first.registered.champion
    assert not life.poor.registered.champion
    verdict = life.poor.verdict
    assert verdict.against.startswith("champion version 1 on ")
    assert verdict.against.endswith(" rows unseen by both")
    assert not verdict.passed
    assert verdict.error.challenger > verdict.error.champion
    assert verdict.error.low > 0


def test_an_alias_is_followed_into_a_folder(life: Life, server: str, encoder: FeatureEncoder, tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    with mlflow_connection(life.work, server):
        follower = AliasFollower(mlflow, "staging", folder, encoder.fingerprint)
        with pytest.raises(NotFoundError, match="no version of interfere has this alias"):
            follower.look()
        mlflow.MlflowClient().set_registered_model_alias(MODEL, "staging", "1")
        assert life.first.version in follower.look()
        assert read_manifest(folder, encoder.fingerprint).version == life.first.version
        assert follower.look() == ""
        mlflow.MlflowClient().set_registered_model_alias(MODEL, "staging", "2")
        with pytest.raises(UnfitError, match="version 2 did not pass the gate"):
            follower.look()
        assert published_version(folder) == life.first.version
        mlflow.MlflowClient().set_registered_model_alias(MODEL, "staging", "1")
        with pytest.raises(ModelError, match="another feature encoder"):
            AliasFollower(mlflow, "staging", tmp_path / "other", "0" * 16).look()
        assert not (tmp_path / "other").exists()


def test_a_registry_that_is_down_leaves_the_folder_and_is_told(
    life: Life, server: str, encoder: FeatureEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with mlflow_connection(life.work, server):
        follower = AliasFollower(mlflow, "champion", tmp_path / "watched", encoder.fingerprint)
        follower.look()
        mlflow.set_registry_uri(f"http://127.0.0.1:{free_port()}")
        with pytest.raises(UnavailableError, match="the registry does not answer"):
            follower.look()
        assert published_version(tmp_path / "watched") == life.first.version
        mlflow.set_registry_uri(server)
        assert follower.look() == ""


def test_mlflow_calls_the_follower_and_reads_what_the_server_says(life: Life, server: str, tmp_path: Path) -> None:
    """A process that would look once an hour, MLflow's own webhook, and a policy server that watches the folder."""
    folder, secret = tmp_path / "watched", "a secret of the webhook"
    with mlflow_connection(life.work, server), ExitStack() as ends:
        registry = mlflow.MlflowClient()
        registry.set_registered_model_alias(MODEL, "staging", "1")
        registry.set_model_version_tag(MODEL, "2", "forced", "a drill")
        command = [sys.executable, "-m", "interfere", "models", "follow", "--alias", "staging", "--note", "--once"]
        command += ["--folder", str(folder), "--tracking", server, "--every-s", "3600", "--target"]
        subprocess.run([*command, f"127.0.0.1:{free_port()}"], check=True, cwd=tmp_path)
        assert published_version(folder) == life.first.version
        assert registry.get_model_version(MODEL, "1").tags["server"].startswith("no answer")

        policy = start_server(Settings(model=folder, work=tmp_path, port=0, model_poll_s=0.1, insecure=True))
        ends.callback(policy.stop)
        port = free_port()
        command = [*(each for each in command if each != "--once"), policy.address, "--listen", f"127.0.0.1:{port}"]
        (tmp_path / "secret").write_text(secret)
        process = subprocess.Popen([*command, "--secret-file", str(tmp_path / "secret")], cwd=tmp_path)
        ends.callback(process.kill)
        said = f"{policy.address}: serves {life.first.version}"
        wait_until(lambda: registry.get_model_version(MODEL, "1").tags["server"] == said, "the server serves the first")

        address = f"http://127.0.0.1:{port}/"
        for key, expected in ((secret, 204), ("another secret", 401)):
            assert called(address, key) == expected
        assert called(address, secret, age_s=3600) == 401
        events = ["model_version_alias.created"]
        hook = registry.create_webhook("follow", address, events=events, secret=secret)
        registry.set_registered_model_alias(MODEL, "staging", "2")
        wait_until(lambda: published_version(folder) == life.poor.version, "MLflow calls the follower")
        with PolicyClient(policy.address) as client:
            wait_until(lambda: client.model().version == life.poor.version, "the server takes it")

        def noted() -> bool:
            called(address, secret)
            return "on trial" in registry.get_model_version(MODEL, "2").tags.get("server", "")

        wait_until(noted, "what the server says stands at the version")
        words = registry.get_model_version(MODEL, "2").tags["server"]
        assert f"serves {life.poor.version}, on trial: {life.poor.version} beside {life.first.version}" in words
        registry.delete_webhook(hook.webhook_id)
        registry.delete_model_version_tag(MODEL, "2", "forced")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def called(address: str, secret: str, *, age_s: int = 0) -> int:
    """The status of a call that is signed as MLflow signs."""
    timestamp, body = str(int(time.time()) - age_s), "{}"
    headers = {
        "X-MLflow-Delivery-Id": "1",
        "X-MLflow-Timestamp": timestamp,
        "X-MLflow-Signature": _generate_hmac_signature(secret, "1", timestamp, body),
    }
    request = urllib.request.Request(address, data=body.encode(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


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
    (line,) = lines
    assert f"{server}/#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=" in line
    assert f"{server}/#/models/{MODEL}?" in line


def test_a_server_that_is_down_is_reported_before_any_work(small_folder: Path, tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(UnavailableError, match=r"(?s)does not answer.*--tracking"):
        train([small_folder], tmp_path / "work", tracking=f"http://127.0.0.1:{port}", report=pytest.fail)
