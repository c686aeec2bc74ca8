"""A job is ended only on the word of who may report for its scope: windows of other identities are forgeries there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.config import Settings
from interfere.serving.commands.callers import app
from interfere.serving.server import RunningServer
from tests.serving.test_attacks import add, client_of
from tests.serving.test_grants import device, ends, job, snapshot, used

OVERUSED = [used(10.0 * k, 10.0 * k + 9.0, 30.0) for k in range(1, 19)]  # of a grant of 8 GiB


@pytest.mark.parametrize("decision_workers", [0, 1])
def test_forged_memory_windows_of_another_tenant_end_no_job(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path, decision_workers: int
) -> None:
    add(tmp_path, "owner", "--role=decide", "--role=report", "--role=read", "--scope=b")
    add(tmp_path, "neighbour", "--role=decide", "--role=report", "--scope=a")
    server = serve(replace(settings, callers=tmp_path / "callers.toml", decision_workers=decision_workers))

    def later(now_s: float) -> dict[str, str]:
        return ends(owner.match(snapshot(now_s, devices=(device("d", job("a")),), scope="b")).actions)

    with client_of(server, tmp_path, "owner") as owner, client_of(server, tmp_path, "neighbour") as neighbour:
        assert later(5.0) == {}
        forged = [replace(window, observation_id=f"f{window.observation_id}") for window in OVERUSED]
        neighbour.observe([replace(window, reporter="owner") for window in forged])
        assert later(200.0) == {}
        (line,) = owner.grants(scope="b").grants
        assert line.times_exceeded == 0
        owner.observe(OVERUSED)
        assert list(later(210.0)) == ["a"]


def test_windows_of_a_caller_that_was_removed_end_no_job(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    add(tmp_path, "owner", "--role=decide", "--role=read")
    add(tmp_path, "probe", "--role=report")
    server = serve(replace(settings, callers=tmp_path / "callers.toml"))
    with client_of(server, tmp_path, "owner") as owner, client_of(server, tmp_path, "probe") as probe:
        owner.match(snapshot(5.0, devices=(device("d", job("a")),)))
        probe.observe(OVERUSED)
        removed = CliRunner().invoke(app, ["remove", "probe", "--file", str(tmp_path / "callers.toml")])
        assert removed.exit_code == 0
        assert ends(owner.match(snapshot(200.0, devices=(device("d", job("a")),))).actions) == {}
        add(tmp_path, "probe", "--role=report")
        assert list(ends(owner.match(snapshot(210.0, devices=(device("d", job("a")),))).actions)) == ["a"]
