"""The SQLite store: the laws of every store, and faults of the file system."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.errors import UnavailableError, UnfitError
from interfere.records import AcceptedDeadline, ScopeLedger
from interfere.records.documents import to_json
from interfere.store.decisions import StoredDecisionAudits
from interfere.store.sqlite.file import SqliteFile
from interfere.store.store import SqliteStore
from interfere.testing.stores import (
    AUDIT,
    DECISION,
    MEMORY,
    OTHER,
    PROFILE,
    StoreLaws,
    append,
    promise,
    window,
)


class TestSqliteStore(StoreLaws):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Iterator[Callable[[], SqliteStore]]:
        opened: list[SqliteStore] = []

        def open_() -> SqliteStore:
            opened.append(SqliteStore(tmp_path / "new" / "store.db"))
            return opened[-1]

        yield open_
        for store in opened:
            store.close()


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    hold = (
        "import sys, pathlib; from interfere.store.store import SqliteStore; "
        "store = SqliteStore(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UnfitError, match=f"process {holder.pid}.*store.db"):
        SqliteStore(path)
    holder.kill()
    holder.communicate()
    SqliteStore(path).close()


def test_a_killed_server_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    write = (
        "import sys, pathlib; from interfere.store.store import SqliteStore\n"
        "from interfere.testing.stores import append, window\n"
        "store = SqliteStore(pathlib.Path(sys.argv[1]))\n"
        "for k in range(100000):\n"
        "    append(store, window(str(k))); print(k, flush=True)"
    )
    writer = subprocess.Popen([sys.executable, "-c", write, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(20):
        writer.stdout.readline()
    writer.kill()
    rest = writer.communicate()[0].splitlines()
    acknowledged = 20 + len(rest) - (1 if rest and not rest[-1].isdigit() else 0)
    store = SqliteStore(path)
    ids = [int(e.observation.observation_id) for e in store.observations.entries()]
    store.close()
    assert ids == list(range(len(ids)))
    assert acknowledged <= len(ids) <= acknowledged + 1


def test_only_the_newest_decisions_are_kept(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", max_decisions=3)
    for k in range(5):
        store.decisions.put(type(DECISION)(scope="s", snapshot_id=str(k), digest="d", content=b""))
    assert [k for k in range(5) if store.decisions.find("s", str(k))] == [2, 3, 4]
    store.close()


def test_only_the_newest_audits_are_kept(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "s.db")
    file.prepare_schema()
    audits = StoredDecisionAudits(file, max_audits=3)
    for k in range(5):
        audits.put(replace(AUDIT, decision_id=str(k)))
    assert [k for k in range(5) if audits.find(str(k))] == [2, 3, 4]
    file.close()


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 30, None])
def test_a_foreign_file_is_refused_and_left_unchanged(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "s.db"
    if content is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE theirs (x)")
        other.close()
        content = path.read_bytes()
    else:
        path.write_bytes(content)
    with pytest.raises(UnfitError, match="--store FILE"):
        SqliteStore(path)
    assert path.read_bytes() == content
    with pytest.raises(UnfitError, match="--store FILE"):
        SqliteStore(path)  # and its lock was released


def test_a_full_disk_is_unavailable_and_leaves_the_store_intact(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    append(store, window("a"))
    with store._file.read_connection() as connection:  # the disk fills up: SQLite may take no further page
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UnavailableError, match="free the disk"):
        append(store, *(window(str(k)) for k in range(1000)))
    assert store.observations.counts() == {"progress": 1}
    with store._file.read_connection() as connection:
        connection.execute("PRAGMA max_page_count = 100000")
    append(store, window("b"))
    assert store.observations.counts() == {"progress": 2}
    store.close()


def test_a_locked_file_is_unavailable(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="busy") as busy:
        store.profiles.put([PROFILE])
    assert "disk" not in busy.value.remedy
    other.execute("ROLLBACK")
    other.close()
    assert store.profiles.put([OTHER]) == (OTHER.profile_id,)
    store.close()


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder that the effective user may not write to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        was_root = os.geteuid() == 0
        folder.chmod(0o755 if was_root else 0o555)
        if was_root:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if was_root:
                os.seteuid(0)
            folder.chmod(0o755)


def test_a_read_only_folder(unprivileged: Path) -> None:
    with pytest.raises(UnfitError, match=r"Permission denied.*s\.db(.|\n)*--store FILE"):
        SqliteStore(unprivileged / "s.db")
    with pytest.raises(UnfitError, match="--store FILE"):
        SqliteStore(unprivileged / "deeper" / "s.db")


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnfitError, match="--store FILE"):
        SqliteStore(tmp_path / "file" / "s.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnfitError, match="--store FILE"):
        SqliteStore(tmp_path / "folder")


def test_a_store_of_format_1_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as old:
        old.executescript(
            "CREATE TABLE profile (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT);"
            "CREATE TABLE observation (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT);"
            "CREATE TABLE decision (seq INTEGER PRIMARY KEY, scope TEXT, snapshot_id TEXT, digest TEXT, content BLOB);"
            "PRAGMA user_version = 1;"
        )
        old.execute("INSERT INTO observation (id, content) VALUES ('a', ?)", (to_json(window("a")),))
    old.close()
    store = SqliteStore(path)
    append(store, MEMORY)
    assert store.ledgers.commit(ScopeLedger(scope="s"))
    assert [repr(e.observation) for e in store.observations.entries()] == [repr(window("a")), repr(MEMORY)]
    store.audits.put(AUDIT)
    store.close()
    store = SqliteStore(path)
    assert store.audits.find(AUDIT.decision_id) == AUDIT
    store.close()


def test_a_store_of_format_2_is_upgraded_and_keeps_its_decisions(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    store.decisions.put(DECISION)
    store.close()
    with sqlite3.connect(path) as old:
        old.executescript("DROP TABLE account; DROP TABLE ledger; DROP TABLE promise; PRAGMA user_version = 2;")
    old.close()
    store = SqliteStore(path)
    assert store.decisions.find("s", "1") == DECISION
    assert store.audits.find(AUDIT.decision_id) is None
    store.audits.put(AUDIT)
    assert store.audits.find(AUDIT.decision_id) == AUDIT
    store.close()


def test_a_store_of_format_4_is_upgraded_and_keeps_its_promises(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    store.ledgers.commit(ScopeLedger(scope="s", promises=(promise("a"),)))
    append(store, MEMORY)
    store.close()
    with sqlite3.connect(path) as old:
        old.executescript("DROP TABLE granted; DROP INDEX observation_usage; PRAGMA user_version = 4;")
    old.close()
    store = SqliteStore(path)
    assert [one.action.job_id for one in store.ledgers.read("s").promises] == ["a"]
    assert [repr(one) for one in store.observations.memory_usages("j", after_s=0.0)] == [repr(MEMORY)]
    assert store.ledgers.commit(store.ledgers.read("s"))
    store.close()


def test_a_store_without_a_table_of_plans_is_read_and_written(tmp_path: Path) -> None:
    """Servers of earlier releases make no table of planned orders and ends; a file of theirs is opened either way."""
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    store.ledgers.commit(ScopeLedger(scope="s", promises=(promise("a"),)))
    store.close()
    with sqlite3.connect(path) as old:
        old.execute("DROP TABLE planned")
    old.close()
    reader = SqliteStore(path, read_only=True)
    assert [one.action.job_id for one in reader.ledgers.read("s").promises] == ["a"]
    reader.close()
    store = SqliteStore(path)
    assert store.ledgers.commit(replace(store.ledgers.read("s"), planned_order=("a",)))
    assert store.ledgers.read("s").planned_order == ("a",)
    store.close()


def test_a_store_with_accepted_deadlines_among_its_promises_is_read_and_written_unchanged(tmp_path: Path) -> None:
    """`golden/store-format5.sql`: a dump of a store written before `AcceptedDeadline` was a record of its own."""
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as old:
        old.executescript((Path(__file__).parent / "golden" / "store-format5.sql").read_text())
        rows = old.execute("SELECT * FROM promise ORDER BY place").fetchall()
    old.close()
    store = SqliteStore(path)
    ledger = store.ledgers.read("default")
    assert [(promise.action.job_id, promise.places) for promise in ledger.promises] == [("starts", ("d1",))]
    assert ledger.accepted_deadlines == (
        AcceptedDeadline(job_id="starts", deadline_s=1110.0, decision_ids=("first",)),
        AcceptedDeadline(job_id="waits", deadline_s=1065.0, decision_ids=("first",)),
    )
    assert [grant.job_id for grant in ledger.grants] == ["r"]
    assert store.ledgers.commit(ledger)
    store.close()
    with sqlite3.connect(path) as now:
        assert now.execute("SELECT * FROM promise ORDER BY place").fetchall() == rows
    now.close()


def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as later:
        later.executescript("CREATE TABLE decision (x); PRAGMA user_version = 99;")
    later.close()
    with pytest.raises(UnfitError, match="format 99"):
        SqliteStore(path)
