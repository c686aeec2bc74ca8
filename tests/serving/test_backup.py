"""A backup of a server in use brings everything back in an empty place; a damaged one replaces nothing."""

import json
import os
import shutil
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands.store import app
from interfere.config import Settings
from interfere.errors import InterfereError, UnavailableError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.serving.server import RunningServer
from interfere.store.backup import back_up, restore
from interfere.training.publishing.model_registry import copy_folder
from tests.models import publish
from tests.serving.test_observations import median, window
from tests.store.postgres_server import PostgresServer, running_postgres
from tests.waiting import PATIENCE_S, wait_until

PAIRS = (("infer", "stream"), ("stream", "infer"), ("gemm", "infer"))


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["file", "database"])
def new_settings(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Callable[[str], Settings]:
    """Settings of a new, empty place: the model is the workspace's champion."""

    def new(name: str) -> Settings:
        place = replace(settings, model=None, work=tmp_path / name)
        if request.param == "file":
            return place
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return replace(place, database=postgres.new_database())

    return new


@pytest.fixture
def used(settings: Settings, tmp_path: Path) -> Settings:
    """A place that a server has used, with everything that a workspace holds."""
    place = replace(settings, model=None, work=tmp_path / "used")
    publish(place.champion_path)
    (place.work / "tables" / "mine").mkdir(parents=True)
    (place.work / "tables" / "mine" / "pairs.parquet").write_bytes(b"rows")
    (place.work / "mlartifacts" / "1").mkdir(parents=True)
    (place.work / "mlartifacts" / "1" / "card.md").write_text("a card")
    (place.work / "callers.toml").write_text("[callers]\n")
    (place.work / "server.key").write_text("a private key")
    (place.work / "runs").mkdir()
    (place.work / "runs" / "again.json").write_text("{}")
    with closing(sqlite3.connect(place.work / "mlflow.db")) as runs, runs:
        runs.execute("CREATE TABLE runs (name TEXT)")
        runs.execute("INSERT INTO runs VALUES ('first')")
    return place


@contextmanager
def repeated(work: Callable[[int], object]) -> Iterator[None]:
    """Do something again and again in a thread."""
    over, failed = threading.Event(), []

    def go_on() -> None:
        for k in count():
            if over.is_set():
                return
            try:
                work(k)
            except Exception as error:  # shown by the test
                failed.append(error)
                return

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert failed == []


def believed(client: PolicyClient) -> list[float]:
    return [median(client, *pair) for pair in PAIRS]


def logged(client: PolicyClient) -> list[str]:
    return [entry.observation.observation_id for entry in reversed(client.observation_log(limit=1_000).entries)]


def test_a_server_restored_in_an_empty_place_is_the_server_that_was_saved(
    serve: Callable[..., RunningServer], new_settings: Callable[[str], Settings], tmp_path: Path
) -> None:
    old, new, saved = new_settings("old"), new_settings("new"), tmp_path / "saved.tar"
    publish(old.champion_path)
    server = serve(old)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        publish(tmp_path / "newer", version="newer")
        copy_folder(tmp_path / "newer", old.champion_path)
        client.load_model(shadow=False)
        told: list[str] = []

        def report(k: int) -> None:
            if k >= 900:  # what one answer about the log can hold
                return
            client.observe([window(f"w{k}", *PAIRS[k % 3], slowdown=1.2 + 0.01 * (k % 7))])
            told.append(f"w{k}")

        with repeated(report):
            wait_until(lambda: len(told) > 50, "a load")
            acknowledged = list(told)
            assert back_up(old, saved).left_out == ()
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        with pytest.raises(UnfitError, match="another server"):
            restore(old, saved)
        client.rollback_model()
    server.stop()
    restore(new, saved)
    with PolicyClient(serve(new).address, timeout_s=PATIENCE_S) as client:
        assert client.model().version == "newer"
        entries = logged(client)
        assert entries[: len(acknowledged)] == acknowledged
        restored = believed(client)
        assert client.rollback_model().version == "0123456789ab", "what was served before is in the backup"
    # The same log told to a server of the same model from the start teaches the same.
    fresh = replace(new, database="", work=tmp_path / "fresh", model=tmp_path / "newer")
    with PolicyClient(serve(fresh).address, timeout_s=PATIENCE_S) as client:
        for k in range(len(entries)):
            client.observe([window(f"w{k}", *PAIRS[k % 3], slowdown=1.2 + 0.01 * (k % 7))])
        assert believed(client) == pytest.approx(restored)


def test_a_database_is_saved_for_a_file_and_a_file_for_a_database_that_is_empty(
    serve: Callable[..., RunningServer], used: Settings, postgres: PostgresServer, tmp_path: Path
) -> None:
    with PolicyClient(serve(used).address, timeout_s=PATIENCE_S) as client:
        client.observe([window(f"w{k}", *PAIRS[0], slowdown=2.0) for k in range(5)])
    shared = replace(used, work=tmp_path / "shared", database=postgres.new_database())
    back_up(used, tmp_path / "file.tar")
    restore(shared, tmp_path / "file.tar")
    with pytest.raises(UnfitError, match="not empty"):
        restore(shared, tmp_path / "file.tar")
    back_up(shared, tmp_path / "database.tar")
    back_up(shared, tmp_path / "database.db")
    for number, name in enumerate(("database.tar", "database.db")):
        again = replace(used, work=tmp_path / f"again{number}", model=used.champion_path)
        restore(again, tmp_path / name)
        with PolicyClient(serve(again).address, timeout_s=PATIENCE_S) as client:
            assert logged(client) == [f"w{k}" for k in range(5)]
    other = replace(used, work=tmp_path / "other", database=postgres.new_database(), model=used.champion_path)
    assert restore(other, tmp_path / "database.db").files == 1
    with PolicyClient(serve(other).address, timeout_s=PATIENCE_S) as client:
        assert logged(client) == [f"w{k}" for k in range(5)]
        with pytest.raises(UnfitError, match="another server"):
            restore(other, tmp_path / "database.db")


def test_the_workspace_comes_back_without_keys_and_what_was_there_is_kept(
    serve: Callable[..., RunningServer], used: Settings, tmp_path: Path
) -> None:
    serve(used).stop()
    done = CliRunner().invoke(app, ["backup", str(tmp_path / "saved.tar"), "--work", str(used.work), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["files"] > 5
    new = replace(used, work=tmp_path / "new")
    assert restore(new, tmp_path / "saved.tar").kept == ()
    assert (new.work / "tables" / "mine" / "pairs.parquet").read_bytes() == b"rows"
    assert (new.work / "mlartifacts" / "1" / "card.md").read_text() == "a card"
    assert (new.work / "callers.toml").read_text() == "[callers]\n"
    with closing(sqlite3.connect(new.work / "mlflow.db")) as runs:
        assert runs.execute("SELECT name FROM runs").fetchall() == [("first",)]
    assert {each.name for each in new.work.iterdir()} & {"server.key", "runs"} == set()
    for file in new.work.rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 or not file.is_file(), file
    (new.work / "tables" / "mine" / "pairs.parquet").write_bytes(b"other rows")
    config = tmp_path / "serve.toml"
    config.write_text(f'work = "{new.work}"\n')
    done = CliRunner().invoke(app, ["restore", str(tmp_path / "saved.tar"), "--config", str(config), "--json"])
    assert done.exit_code == 0, done.output
    kept = [Path(path) for path in json.loads(done.stdout)["kept"]]
    assert {path.name.partition(".before-restore-")[0] for path in kept} == {
        *("callers.toml", "mlartifacts", "mlflow.db", "models", "tables", "store.db", "store.db.models")
    }
    (tables,) = (path for path in kept if path.name.startswith("tables"))
    assert (tables / "mine" / "pairs.parquet").read_bytes() == b"other rows"
    assert [each.name for each in new.work.iterdir() if each.name.startswith(".")] == []


def test_a_model_that_is_published_meanwhile_is_saved_whole(
    serve: Callable[..., RunningServer], used: Settings, tmp_path: Path
) -> None:
    serve(used).stop()
    sources = [publish(tmp_path / f"source{k}", version=f"version{k}") for k in range(2)]
    published: list[int] = []

    def exchange(k: int) -> None:
        copy_folder(sources[k % 2], used.champion_path)
        published.append(k)

    with repeated(exchange):
        for k in range(20):
            before = len(published)
            wait_until(lambda: len(published) > before, "models are published")  # noqa: B023
            with suppress(UnavailableError):  # an exchange at every attempt
                back_up(used, tmp_path / f"saved{k}.tar")
    back_up(used, tmp_path / "saved.tar")
    saved = sorted(tmp_path.glob("saved*.tar"))
    for number, file in enumerate(saved):
        new = replace(used, work=tmp_path / f"new{number}")
        restore(new, file)
        assert load_model(new.champion_path, FeatureEncoder()).version in ("version0", "version1")


def test_a_model_whose_publication_broke_off_is_no_backup_without_a_model(
    serve: Callable[..., RunningServer], used: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(used).stop()
    half = used.work / "models" / ".champion-broken"
    half.mkdir()
    used.champion_path.rename(half / "old")
    monkeypatch.setattr("interfere.store.backup.PAUSE_S", 0.0)
    with pytest.raises(UnavailableError, match="changes while it is copied"):
        back_up(used, tmp_path / "saved.tar")
    (half / "old").rename(used.champion_path)
    back_up(used, tmp_path / "saved.tar")


def test_a_damaged_backup_replaces_nothing_and_its_file_is_named(
    serve: Callable[..., RunningServer], used: Settings, tmp_path: Path
) -> None:
    serve(used).stop()
    back_up(used, tmp_path / "saved.tar")
    content = (tmp_path / "saved.tar").read_bytes()
    with tarfile.open(tmp_path / "saved.tar") as archive:
        members = archive.getmembers()
    assert members[0].name == "store.db"
    new = replace(used, work=tmp_path / "new")
    for member in members:
        damaged = bytearray(content)
        damaged[member.offset_data + member.size // 2] ^= 0x01
        (tmp_path / "damaged.tar").write_bytes(damaged)
        if member.name == "manifest.json":
            damaged[member.offset_data] = 0
            (tmp_path / "damaged.tar").write_bytes(damaged)
        named = "not a whole backup" if member.name == "manifest.json" else member.name
        with pytest.raises(UnfitError, match=named):
            restore(new, tmp_path / "damaged.tar")
    for size in (members[1].offset_data, len(content) // 2, members[-1].offset):
        (tmp_path / "damaged.tar").write_bytes(content[:size])
        with pytest.raises(UnfitError):
            restore(new, tmp_path / "damaged.tar")
    assert list(new.work.iterdir()) == []


@pytest.mark.parametrize("name", ["../outside", "/outside", "models/../../outside", "store.db/../../outside"])
def test_a_backup_writes_nothing_outside_of_its_place(used: Settings, tmp_path: Path, name: str) -> None:
    manifest = json.dumps({"format": 1, "made_s": 0, "sha256": {name: "0" * 64}}).encode()
    (tmp_path / "manifest.json").write_bytes(manifest)
    with tarfile.open(tmp_path / "made.tar", "w") as archive:
        archive.add(tmp_path / "manifest.json", "manifest.json")
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(UnfitError, match="not a file of a backup"):
        restore(used, tmp_path / "made.tar")
    assert not list(tmp_path.rglob("outside"))


def test_a_backup_that_cannot_be_written_is_one_error_and_leaves_nothing(
    serve: Callable[..., RunningServer], used: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(used).stop()
    with pytest.raises(UnavailableError, match="cannot be written"):
        back_up(used, tmp_path / "nowhere" / "saved.tar")
    with pytest.raises(UnfitError, match="no store"):
        back_up(replace(used, work=tmp_path / "unused"), tmp_path / "saved.tar")
    full = type(shutil.disk_usage(tmp_path))(10**9, 10**9, 1000)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: full)
        with pytest.raises(UnavailableError, match="too little room"):
            back_up(used, tmp_path / "saved.tar")
    back_up(used, tmp_path / "saved.tar")

    def fails(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(tarfile.TarFile, "addfile", fails)
    with pytest.raises(InterfereError, match="No space left"):
        back_up(used, tmp_path / "second.tar")
    assert not list(tmp_path.glob("second.tar")) + list(tmp_path.glob(".second.tar*"))
