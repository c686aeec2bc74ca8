"""Backup under load, restore, check, repair; and every fault of the file: told, with a way out, and nothing lost."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.store import app
from interfere.config import Settings
from interfere.errors import UnfitError
from interfere.records import Grant
from interfere.records.documents import to_json
from interfere.store.backup import back_up, restore
from interfere.store.sqlite.file import FORMAT
from interfere.store.sqlite.lost_commits import read_wal
from interfere.store.sqlite.maintenance import check, repair
from interfere.store.store import SqliteStore
from interfere.testing.stores import PROFILE, append, window

COMMITS = 200
GRANT = Grant(job_id="a", workload="w", device_ids=("d",), bytes=4e9, since_s=5.0)


def ids(path: Path) -> list[str]:
    store = SqliteStore(path, read_only=True)
    try:
        return [entry.observation.observation_id for entry in store.observations.entries()]
    finally:
        store.close()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store whose writer was killed: every commit is still in its write-ahead log."""
    path = tmp_path / "store.db"
    write = (
        "import os, signal, sys, pathlib; from interfere.store.store import SqliteStore\n"
        "from interfere.testing.stores import append, window\n"
        "store = SqliteStore(pathlib.Path(sys.argv[1]))\n"
        "store._file._connection.execute('PRAGMA wal_autocheckpoint = 0')\n"
        f"for k in range({COMMITS}): append(store, window(str(k)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", write, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    return path


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def test_an_undamaged_log_is_read_whole_and_a_torn_end_is_no_damage(killed: Path) -> None:
    wal = killed.with_name("store.db-wal")
    state = read_wal(killed)
    assert state.commits >= COMMITS
    assert state.lost_commits == 0
    os.truncate(wal, wal.stat().st_size - 1000)  # the last transaction was being written when the power went
    assert read_wal(killed).lost_commits == 0
    store = SqliteStore(killed)
    assert len(list(store.observations.entries())) == COMMITS - 1
    store.close()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_damaged_log_is_told_and_repaired_on_request(killed: Path, share: float) -> None:
    wal = killed.with_name("store.db-wal")
    flip(wal, int(share * wal.stat().st_size))
    before = wal.read_bytes()
    with pytest.raises(UnfitError, match=r"damaged: \d+ acknowledged(.|\n)*interfere store restore(.|\n)*store repair"):
        SqliteStore(killed)
    assert wal.read_bytes() == before  # nothing was cut
    report = check(killed)
    assert "acknowledged transactions" in report.problems[0]
    report, kept = repair(killed)
    assert report.problems == ()
    assert kept.with_name(f"{kept.name}-wal").read_bytes() == before
    assert ids(killed) == [str(k) for k in range(len(ids(killed)))]
    assert abs(len(ids(killed)) - share * COMMITS) < 0.1 * COMMITS
    SqliteStore(killed).close()


def test_a_backup_under_load_has_every_acknowledged_row(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store, over = SqliteStore(path), threading.Event()
    acknowledged: list[str] = []

    def write() -> None:
        k = 0
        while not over.is_set():
            append(store, window(str(k)))
            acknowledged.append(str(k))
            k += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            while len(acknowledged) < 50 * (number + 1):
                pass
            before = len(acknowledged)
            report = back_up(Settings(store=path), tmp_path / f"backup{number}.db").store
            assert report.problems == ()
            copied = ids(tmp_path / f"backup{number}.db")
            assert copied[:before] == acknowledged[:before]
    finally:
        over.set()
        writer.join()
        store.close()
    mode = stat.S_IMODE((tmp_path / "backup0.db").stat().st_mode)
    assert mode == 0o600
    with pytest.raises(UnfitError, match="will not replace"):
        back_up(Settings(store=path), tmp_path / "backup0.db")


def test_a_restore_moves_the_old_store_aside_and_needs_it_free(tmp_path: Path) -> None:
    path, saved = tmp_path / "store.db", tmp_path / "saved.db"
    store = SqliteStore(path)
    append(store, window("a"))
    back_up(Settings(store=path), saved)
    append(store, window("b"))
    with pytest.raises(UnfitError, match="another server"):
        restore(Settings(store=path), saved)
    store.close()
    (kept,) = restore(Settings(store=path), saved).kept
    assert ids(path) == ["a"]
    assert ids(Path(kept)) == ["a", "b"]
    assert restore(Settings(store=tmp_path / "new" / "store.db"), saved).kept == ()
    assert ids(tmp_path / "new" / "store.db") == ["a"]
    saved.write_bytes(saved.read_bytes()[:5000])
    with pytest.raises(UnfitError, match="not a sound backup"):
        restore(Settings(store=path), saved)
    assert ids(path) == ["a"]


def test_what_cannot_be_read_is_named_and_set_aside_by_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    append(store, *(window(str(k)) for k in range(300)))
    store.profiles.put([PROFILE])
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO profile (id, content) VALUES ('bad', '[')")
        connection.execute("UPDATE observation SET content = '{}' WHERE id = '7'")
        grants = [("s", "grant", place, to_json(GRANT)) for place in range(2)] + [("s", "grant", 2, "{}")]
        connection.executemany("REPLACE INTO granted VALUES (?, ?, ?, ?)", grants)
    problems = " ".join(check(path).problems)
    assert "profile bad cannot be read" in problems
    assert "observation 7 cannot be read" in problems
    assert "granted s grant 2 cannot be read" in problems
    result = CliRunner().invoke(app, ["check", "--store", str(path)])
    assert result.exit_code == 1
    report, _ = repair(path)
    assert (report.problems, report.rows["granted"], report.rows["profile"]) == ((), 2, 1)
    assert ids(path) == [str(k) for k in range(300) if k != 7]
    store = SqliteStore(path)
    assert list(store.profiles.all()) == [PROFILE]
    append(store, window("next"))
    assert store.observations.newest(1)[0].sequence == 301  # the counter goes on
    store.close()


def test_damaged_pages_cost_what_is_on_them(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    append(store, *(window(str(k)) for k in range(2000)))
    store.close()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    assert check(path).problems
    report, _ = repair(path)
    assert report.problems == ()
    assert len(ids(path)) > 1000
    SqliteStore(path).close()


def test_a_newer_format_says_so_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(UnfitError, match=r"newer release(.|\n)*upgrade"):
        SqliteStore(path)
    with pytest.raises(UnfitError, match=r"newer release(.|\n)*upgrade"):
        repair(path)
    assert "newer release" in check(path).problems[0]


def test_a_removed_file_is_told_at_the_next_write_and_clients_see_no_path(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    append(store, window("a"))
    path.unlink()
    with pytest.raises(UnfitError, match="removed or replaced") as caught:
        append(store, window("b"))
    assert str(tmp_path) not in str(caught.value)
    store.close()


def test_links_to_one_store_are_one_store(tmp_path: Path) -> None:
    path, hard, soft = (tmp_path / name for name in ("store.db", "hard.db", "soft.db"))
    store = SqliteStore(path)
    hard.hardlink_to(path)
    soft.symlink_to(path)
    for name in (hard, soft):
        with pytest.raises(UnfitError, match="another server"):
            SqliteStore(name)
    append(store, window("a"))
    store.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(mode=0o644)
    store = SqliteStore(path)
    append(store, window("a"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    store.close()
    assert modes["store.db"] == modes["store.db-wal"] == modes["store.db.lock"] == 0o600
