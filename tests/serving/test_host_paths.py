"""No answer tells where on its machine the server keeps things."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import ModelError, UnavailableError
from interfere.serving.calls.interceptor import error_without_paths, without_paths
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from tests.waiting import PATIENCE_S

METHODS = pb.DESCRIPTOR.services_by_name["PolicyService"].methods


def errors_of_all_methods(address: str) -> str:
    """Return everything that the errors of all methods tell, to empty and to malformed requests."""
    told = []
    with grpc.insecure_channel(address) as channel:
        for method in METHODS:
            for content in (b"", b"\xff\xff\xff\xff", b"\x0a\x0b../../etc/x"):
                call = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")
                try:
                    call(content, timeout=PATIENCE_S)
                except grpc.RpcError as error:
                    failed: Any = error
                    told.append(f"{failed.details()} {failed.trailing_metadata()!r}")
    return "\n".join(told)


def test_no_method_tells_a_path(serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path) -> None:
    """With a published model that cannot be served."""
    folder = tmp_path / "published"
    shutil.copytree(settings.model or folder, folder)
    server = serve(replace(settings, model=folder))
    (folder / "manifest.json").write_text("{")
    told = errors_of_all_methods(server.address)
    assert "manifest.json" in told
    assert str(tmp_path) not in told
    assert str(Path.home()) not in told
    assert str(Path(pb.__file__).parents[2]) not in told
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        with pytest.raises(ModelError) as caught:
            client.load_model()
        refused = client.list_models().refused
    assert "…/manifest.json" in refused
    assert str(tmp_path) not in str(caught.value) + refused


def test_an_error_keeps_its_kind_and_what_is_no_path() -> None:
    error = error_without_paths(
        UnavailableError(
            "disk full: '/var/lib/x/store.db'", value=Path("/srv/a/b.json"), remedy="free /var", retry_after_s=2.0
        )
    )
    assert isinstance(error, UnavailableError)
    assert error.retry_after_s == 2.0
    assert str(error) == "disk full: '…/store.db': …/b.json\n  remedy: free /var"
    for text in ("team/job", "a ratio of 1/2", "https://host.dev/a/b", "3 MiB/s", "~/x/y"):
        assert without_paths(text) == text
