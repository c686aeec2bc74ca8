"""Shipped models are served and asked about by name; a missing one is one clear error."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from interfere import config
from interfere.cli import main
from interfere.client import PolicyClient
from interfere.config import Settings, load_settings, shipped_model
from interfere.errors import ModelError, NotFoundError
from interfere.serving.server import RunningServer
from tests.models import DEVICE_TYPE, WORKLOADS, publish


@pytest.fixture
def gpu_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this installation has its GPU model."""
    folder = tmp_path / "installed" / "gpu"
    monkeypatch.setattr(config, "SHIPPED_GPU_MODEL", folder)
    return folder


def run(*arguments: str) -> tuple[int, str]:
    """Exit status and standard output of a command, run in this process so that it meets this installation."""
    with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0), printed.getvalue()


def test_a_model_is_served_by_its_name(
    serve: Callable[..., RunningServer], settings: Settings, gpu_folder: Path
) -> None:
    publish(gpu_folder, version="shippedgpu01")
    server = serve(replace(settings, model=load_settings(model="gpu", environ={}).model))
    assert (server.model_path, server.model_version) == (gpu_folder, "shippedgpu01")

    status, printed = run("match", "gpu", "--example", "--target", server.address, "--json")
    plan = json.loads(printed)
    assert status == 0
    assert [job["workload"] for job in plan["request"]["pending"]] == list(WORKLOADS)
    assert {device["type"] for device in plan["request"]["devices"]} == {DEVICE_TYPE}
    assert plan["model_version"] == "shippedgpu01"

    status, printed = run("match", "cpu", "--example", "--target", server.address, "--json")
    refused = json.loads(printed)["error"]
    assert (status, refused["remedy"]) == (1, "interfere serve --model cpu")
    assert "shippedgpu01" in refused["value"]

    with PolicyClient(server.address) as client:
        assert client.model().card.startswith("# A tiny model for tests")
    status, printed = run("models", "show", "--target", server.address, "--json")
    assert (status, json.loads(printed)["model"]) == (0, "additive")


def test_a_shipped_model_that_is_missing_is_one_clear_error(gpu_folder: Path, settings: Settings) -> None:
    with pytest.raises(ModelError, match=r"'gpu' is not part of this installation(.|\n)*make gpu-model") as caught:
        _ = replace(settings, model=Path("gpu")).served_folder
    assert str(gpu_folder) in str(caught.value)
    with pytest.raises(NotFoundError, match="one of cpu, gpu"):
        shipped_model("tpu")


def test_a_name_stands_for_the_shipped_model_whatever_the_working_directory_holds(
    gpu_folder: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(gpu_folder)
    publish(tmp_path / "here" / "gpu")
    monkeypatch.chdir(tmp_path / "here")
    assert replace(settings, model=Path("gpu")).served_folder == gpu_folder
    assert replace(settings, model=Path("gpu").absolute()).served_folder == tmp_path / "here" / "gpu"
    assert replace(settings, model=Path("cpu")).served_folder == config.SHIPPED_MODEL
