"""Law: where a workload is mistyped, the command names the nearest one that is known."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from interfere.cli import main
from interfere.config import Settings
from interfere.errors import remedy_for_name
from interfere.serving.server import start_server
from tests.models import DEVICE_TYPE, publish

NEW = "an-utterly-new-one"
SNAPSHOT = {"pending": [{"id": "a", "workload": "strem"}], "devices": [{"id": "d", "type": DEVICE_TYPE}]}
LOCAL = [
    ("profile", "pairs", "gem+stream"),
    ("profile", "campaign", "--jobs", "gem,stream"),
    ("profile", "filling", "--high", "gem"),
    ("timeline", "gem", "stream"),
    ("data", "facts", "gem", "cpu"),
    ("data", "suggest", "cpu", "--job", "gem"),
    ("train", "--data", "cpu", "--held-out", "gem+stream"),
]
ASKED = [
    ("predict", "--victim", "strem", "--neighbour", "gemm"),
    ("match", "snapshot.json"),
    ("advise", "--jobs", "gemm,strem"),
    ("probe", "strem"),
    ("profiles", "list", "--workload", "strem"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    server = start_server(
        Settings(model=publish(folder / "model"), work=folder / "work", port=0, decision_workers=0, metrics_port=-1)
    )
    yield server.address
    server.stop()


@pytest.mark.parametrize("arguments", LOCAL, ids=" ".join)
def test_the_nearest_workload_is_the_remedy(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 1
    assert "did you mean gemm?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", ASKED, ids=" ".join)
def test_a_name_that_the_server_does_not_know_gets_the_nearest_that_it_knows(
    arguments: tuple[str, ...],
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def error_output(name: str) -> str:
        (tmp_path / "snapshot.json").write_text(json.dumps(SNAPSHOT).replace("strem", name))
        with pytest.raises(SystemExit):
            main([*(each.replace("strem", name) for each in arguments), "--target", address])
        return capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    assert "no profile of workload 'strem': did you mean stream?" in error_output("strem")
    assert "did you mean" not in error_output(NEW)  # a new workload is none that was mistyped
    assert "did you mean" not in error_output("stream")


def test_without_a_near_name_the_remedy_lists_all() -> None:
    assert remedy_for_name("trian", ("train", "tune")) == "did you mean train?"
    assert remedy_for_name("zzz", ("train", "tune")) == "one of train, tune"
    assert remedy_for_name("zzz", ("train",), "see the list") == "see the list"
    assert remedy_for_name("zzz", ()) == "one of (none)"
