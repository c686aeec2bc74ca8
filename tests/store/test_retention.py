"""What is kept of decisions, audits and scopes: the newest, up to a number and a sum of bytes."""

import os
from dataclasses import replace
from pathlib import Path

from interfere.records import ScopeLedger
from interfere.store.decisions import MAX_AUDIT_BYTES, StoredDecisionAudits, StoredDecisions, StoredLedgers
from interfere.store.sqlite.file import SqliteFile
from interfere.store.sqlite.store import SqliteStore
from interfere.testing.stores import AUDIT, DECISION


def opened(path: Path) -> SqliteFile:
    SqliteStore(path).close()
    file = SqliteFile(path)
    file.prepare_schema()
    return file


def test_audits_and_decisions_stay_below_their_bytes(tmp_path: Path) -> None:
    file = opened(tmp_path / "store.db")
    audits = StoredDecisionAudits(file, max_bytes=400_000)
    decisions = StoredDecisions(file, max_decisions=1000, max_bytes=400_000)
    for k in range(60):
        content = os.urandom(20_000)  # does not compress
        audits.put(replace(AUDIT, decision_id=str(k), request=content))
        decisions.put(replace(DECISION, snapshot_id=str(k), content=content))
    for table, columns in (("account", "length(request) + length(answer)"), ("decision", "length(content)")):
        with file.read_connection() as connection:
            total, rows = connection.execute(f"SELECT sum({columns}), count(*) FROM {table}").fetchone()
        assert 15 <= rows <= 25
        assert total <= 1.1 * 400_000
    assert audits.find("59") is not None
    assert audits.find("0") is None
    assert decisions.find(DECISION.scope, "59") is not None
    file.close()


def test_an_audit_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    file = opened(tmp_path / "store.db")
    audits = StoredDecisionAudits(file)
    audits.put(replace(AUDIT, decision_id="huge", request=os.urandom(MAX_AUDIT_BYTES + 1)))
    assert audits.find("huge") is None
    file.close()


def test_scopes_that_were_decided_for_longest_ago_are_forgotten(tmp_path: Path) -> None:
    file = opened(tmp_path / "store.db")
    ledgers = StoredLedgers(file, StoredDecisions(file, 10), max_scopes=5)
    for k in range(8):
        assert ledgers.commit(ScopeLedger(scope=f"s{k}", now_s=float(k)))
        assert ledgers.commit(replace(ledgers.read("s0"), now_s=float(k)))  # is decided for all the time
    kept = {f"s{k}" for k in range(8) if ledgers.read(f"s{k}").revision}
    assert kept == {"s0", "s4", "s5", "s6", "s7"}
    file.close()
