"""The server that the examples ask."""

from collections.abc import Iterator

import pytest

from interfere.config import SHIPPED_MODEL, Settings
from interfere.serving.calls.tokens import LocalTokens
from interfere.serving.server import RunningServer, start_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the shipped model, as `interfere serve` starts it after an installation."""
    settings = Settings(model=SHIPPED_MODEL, work=tmp_path_factory.mktemp("examples"), port=0)
    server = start_server(settings, LocalTokens())
    yield server
    server.stop()
