"""A real server on a free port, on the tiny model of `tests.models`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.serving.server import RunningServer, start_server
from interfere.v1 import policy_pb2_grpc as rpc
from tests.models import publish
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def settings(model_folder: Path, tmp_path: Path) -> Settings:
    return Settings(model=model_folder, work=tmp_path / "work", port=0, grace_s=1.0, decision_workers=0)


@pytest.fixture
def serve(settings: Settings) -> Iterator[Callable[..., RunningServer]]:
    """Start servers, each stopped at the end."""
    running: list[RunningServer] = []

    def start(with_: Settings = settings) -> RunningServer:
        running.append(start_server(with_))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def server(serve: Callable[..., RunningServer]) -> RunningServer:
    return serve()


@pytest.fixture
def client(server: RunningServer) -> Iterator[PolicyClient]:
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        yield client


@pytest.fixture
def stub(server: RunningServer) -> Iterator[Any]:
    """What other languages send: protobuf that no record checked before."""
    with grpc.insecure_channel(server.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        yield rpc.PolicyServiceStub(channel)
