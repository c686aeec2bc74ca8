"""A tracking server that asks who calls: MLflow's own basic authentication."""

from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from interfere.errors import ForbiddenError, UnauthenticatedError
from interfere.features.pair import FeatureEncoder
from interfere.training.pipeline import train
from interfere.training.publishing.model_registry import MODEL, list_versions, promote
from interfere.training.publishing.tracking import mlflow_connection
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.mlflow_servers import tracking_server

pytest.importorskip("flask_wtf", reason="mlflow's basic-auth app imports Flask-WTF: make install")
pytestmark = pytest.mark.journey
ADMIN, PASSWORD = "admin", "a long password of the administrator"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("server")
    (root / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = READ\n"
        f"database_uri = sqlite:///{root / 'auth.db'}\nadmin_username = {ADMIN}\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    environ = {"MLFLOW_AUTH_CONFIG_PATH": str(root / "auth.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": "of this test"}
    with tracking_server(root, "--app-name", "basic-auth", environ=environ) as address:
        yield address


def test_a_caller_is_known_by_name_and_password_and_may_do_what_it_was_granted(
    server: str, small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    def trained() -> int:
        return train(
            [small_folder], tmp_path, models=CHEAP_MODELS, tracking=server, report=lines.append
        ).registered.number

    # 1. Nobody: refused before any work.
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UnauthenticatedError, match=r"(?s)does not know this caller.*MLFLOW_TRACKING_USERNAME"):
        trained()
    assert lines == []

    # 2. The administrator trains, promotes, loads.
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", ADMIN)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    assert trained() == 1
    assert promote(tmp_path, FeatureEncoder().fingerprint, number=1, tracking=server).version.champion
    with mlflow_connection(tmp_path, server):
        model = mlflow.pyfunc.load_model(f"models:/{MODEL}@champion")
        assert len(model.predict(model.input_example)) == len(model.input_example)
        from mlflow.server.auth.client import AuthServiceClient

        users = AuthServiceClient(server)
        users.create_user("reader", "a long password of a reader")

    # 3. Somebody who may only read: refused before any work.
    lines.clear()
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a long password of a reader")
    assert [each.number for each in list_versions(tmp_path, server)] == [1]
    with pytest.raises(ForbiddenError, match=r"(?s)does not let this caller.*EDIT"):
        trained()
    assert lines == []
