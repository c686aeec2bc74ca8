"""A server that was started for certain models serves no other: at start, by watch, by call, and after a restart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands.models import app
from interfere.config import SHIPPED_MODEL, Settings
from interfere.errors import InvalidInputError, ModelError
from interfere.predict.manifest import DIGEST_PREFIX, model_digest, published_version
from interfere.serving.server import RunningServer, start_server
from tests.serving.models.test_reload import put, wait_served
from tests.waiting import PATIENCE_S, wait_until

Serve = Callable[..., RunningServer]
OTHER = "this is not a model that the server was started for"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    folder = tmp_path / "champion"
    put(folder, 0)
    return folder


def test_another_model_is_refused_at_the_start(serve: Serve, settings: Settings, published: Path) -> None:
    given = replace(settings, model=published, model_digest=model_digest(published))
    serve(given).stop()
    put(published, 1)
    with pytest.raises(ModelError, match=OTHER) as refused:
        start_server(given)
    assert model_digest(published) in str(refused.value)
    assert "--model-digest" in refused.value.remedy


def test_another_model_is_refused_by_watch_and_by_call_and_the_old_one_goes_on(
    serve: Serve, settings: Settings, published: Path
) -> None:
    given = replace(settings, model=published, model_poll_s=0.05, model_digest=model_digest(published))
    server = serve(given)
    put(published, 1)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        wait_until(lambda: OTHER in client.list_models().refused, "the other model is refused")
        for shadow in (True, False):
            with pytest.raises(ModelError, match=OTHER):
                client.load_model(shadow=shadow)
        assert client.model().version == "version000"
        assert [each.version for each in client.list_models().models] == ["version000"]


def test_models_of_a_list_are_taken_and_rolled_back(
    serve: Serve, settings: Settings, published: Path, tmp_path: Path
) -> None:
    put(tmp_path / "next", 1)
    digests = f"{model_digest(published)}, {model_digest(tmp_path / 'next')}"
    server = serve(replace(settings, model=published, model_poll_s=0.05, model_digest=digests))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        wait_served(client, put(published, 1))
        assert client.rollback_model().version == "version000"
        put(published, 2)
        with pytest.raises(ModelError, match=OTHER):
            client.load_model()


def test_a_kept_model_is_served_again_only_while_it_is_listed(
    serve: Serve, settings: Settings, published: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = replace(settings, model=published, model_poll_s=3600.0)
    server = serve(given)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        put(published, 1)
        client.load_model()
        client.rollback_model()  # the next start would serve version000, which is pinned
    server.stop()
    server = serve(replace(given, model_digest=model_digest(published)))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        assert client.model().version == "version001"
        with pytest.raises(ModelError, match=OTHER):
            client.load_model("version000")
    assert caplog.text.count("the model that was served last cannot be served") == 1


def test_a_folder_in_the_archive_that_was_exchanged_is_not_served(
    serve: Serve, settings: Settings, published: Path
) -> None:
    given = replace(settings, model=published, model_digest=model_digest(published))
    serve(given).stop()
    kept = settings.served_models_path / "version000"
    put(kept, 5)  # under the name of the right version
    server = serve(given)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        assert client.model().version == "version000"


@pytest.mark.parametrize(
    "text", ["0123456789ab", "sha256:0123", f"{DIGEST_PREFIX}{'0' * 64} {DIGEST_PREFIX}{'1' * 64}"]
)
def test_what_is_no_digest_is_refused(settings: Settings, published: Path, text: str) -> None:
    with pytest.raises(InvalidInputError, match="not the digest of a model"):
        start_server(replace(settings, model=published, model_digest=text))


def test_the_command_prints_the_digest_of_which_the_version_is_the_beginning() -> None:
    ran = CliRunner().invoke(app, ["digest", "cpu"])
    assert ran.output.strip() == model_digest(SHIPPED_MODEL)
    assert ran.output.startswith(DIGEST_PREFIX + published_version(SHIPPED_MODEL))
    missing = CliRunner().invoke(app, ["digest", "/nonexistent"])
    assert isinstance(missing.exception, ModelError)
