"""A write-ahead log that was cut or removed: what was acknowledged and is missing is named, at start and by `check`."""

import logging
import shutil
from pathlib import Path

import pytest

from interfere.config import Settings
from interfere.store.backup import back_up, restore
from interfere.store.sqlite.lost_commits import mark_path
from interfere.store.sqlite.maintenance import check
from interfere.store.store import SqliteStore
from interfere.testing.stores import append, window


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store with 40 acknowledged windows as a killed process leaves it: the last 20 are in the write-ahead log."""
    store = SqliteStore(tmp_path / "served.db")
    for k in range(20):
        append(store, window(str(k)))
    store.close()
    store = SqliteStore(tmp_path / "served.db")
    for k in range(20, 40):
        append(store, window(str(k)))
    (tmp_path / "killed").mkdir()
    for ending in ("", "-wal", "-mark"):
        shutil.copy(tmp_path / f"served.db{ending}", tmp_path / "killed" / f"store.db{ending}")
    store.close()
    return tmp_path / "killed" / "store.db"


def wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def count(path: Path) -> int:
    store = SqliteStore(path)
    try:
        return len(list(store.observations.entries()))
    finally:
        store.close()


def test_a_killed_server_lost_nothing_and_nothing_is_told(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert check(killed).problems == ()
    assert count(killed) == 40
    assert caplog.text == ""


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_cut_log_is_named_with_what_it_took_along(
    killed: Path, caplog: pytest.LogCaptureFixture, kept: float
) -> None:
    content = wal(killed).read_bytes()
    wal(killed).write_bytes(content[: int(kept * len(content))])
    (problem,) = check(killed).problems
    assert "acknowledged transactions are missing, among them the observations" in problem
    with caplog.at_level(logging.ERROR):
        left = count(killed)
    assert 20 <= left < 40
    assert f"observations {left + 1} to 40" in caplog.text
    assert "interfere store restore" in caplog.text
    report = check(killed)
    assert report.problems == ()
    assert f"observations {left + 1} to 40" in report.set_aside[0]
    caplog.clear()
    assert count(killed) == left  # told once
    assert caplog.text == ""


def test_a_removed_log_is_named(killed: Path) -> None:
    wal(killed).unlink()
    assert "20 acknowledged transactions are missing" in check(killed).problems[0]


def test_an_older_copy_in_the_place_of_a_store_is_told_and_a_restored_backup_is_not(
    killed: Path, tmp_path: Path
) -> None:
    back_up(Settings(store=killed), tmp_path / "backup.db")
    store = SqliteStore(killed)
    append(store, window("new"))
    store.close()
    shutil.copy(tmp_path / "backup.db", killed)
    assert "1 acknowledged transactions are missing" in check(killed).problems[0]
    restore(Settings(store=killed), tmp_path / "backup.db")
    assert check(killed).problems == ()


@pytest.mark.parametrize("content", [b"", b"interfere-mark", b"\xff\xfe", b"interfere-mark other 9 9\n"])
def test_a_mark_that_cannot_be_read_or_is_of_another_store_says_nothing(killed: Path, content: bytes) -> None:
    mark_path(killed).write_bytes(content)
    assert check(killed).problems == ()
    assert count(killed) == 40


def test_a_mark_that_cannot_be_written_stops_nobody(killed: Path) -> None:
    mark_path(killed).unlink()
    mark_path(killed).mkdir()
    store = SqliteStore(killed)
    append(store, window("new"))
    store.close()
    assert count(killed) == 41
