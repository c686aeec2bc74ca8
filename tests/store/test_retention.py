"""What is kept of decisions, audits and scopes: the newest, up to a number and a sum of bytes."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.records import ScopeLedger
from interfere.store.database import Database
from interfere.store.decisions import MAX_AUDIT_BYTES, StoredDecisionAudits, StoredDecisions, StoredLedgers
from interfere.store.observations import StoredObservations
from interfere.store.rows import NewObservation
from interfere.store.store import open_store
from interfere.testing.stores import AUDIT, DECISION, window


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """The database of an empty store."""
    is_file = request.param == "sqlite"
    store = open_store(tmp_path / "s.db" if is_file else request.getfixturevalue("postgres").new_database())
    yield store.database
    store.close()


def test_audits_and_decisions_stay_below_their_bytes(database: Database) -> None:
    audits = StoredDecisionAudits(database, max_bytes=400_000)
    decisions = StoredDecisions(database, max_decisions=1000, max_bytes=400_000)
    for k in range(60):
        content = os.urandom(20_000)  # does not compress
        audits.put(replace(AUDIT, decision_id=str(k), request=content))
        decisions.put(replace(DECISION, snapshot_id=str(k), content=content))
    for table, columns in (("account", "length(request) + length(answer)"), ("decision", "length(content)")):
        with database.read_connection() as connection:
            total, rows = connection.execute(f"SELECT sum({columns}), count(*) FROM {table}").fetchone()
        assert 15 <= rows <= 25
        assert total <= 1.1 * 400_000
    assert audits.find("59") is not None
    assert audits.find("0") is None
    assert decisions.find(DECISION.scope, "59") is not None


def test_an_audit_that_is_too_large_is_not_kept(database: Database) -> None:
    audits = StoredDecisionAudits(database)
    audits.put(replace(AUDIT, decision_id="huge", request=os.urandom(MAX_AUDIT_BYTES + 1)))
    assert audits.find("huge") is None


def test_scopes_that_were_decided_for_longest_ago_are_forgotten(database: Database) -> None:
    ledgers = StoredLedgers(database, StoredDecisions(database, 10), max_scopes=5)
    for k in range(8):
        assert ledgers.commit(ScopeLedger(scope=f"s{k}", now_s=float(k)))
        assert ledgers.commit(replace(ledgers.read("s0"), now_s=float(k)))  # is decided for all the time
    kept = {f"s{k}" for k in range(8) if ledgers.read(f"s{k}").revision}
    assert kept == {"s0", "s4", "s5", "s6", "s7"}


def test_the_oldest_observations_are_forgotten_and_numbers_go_on(database: Database) -> None:
    log = StoredObservations(database)
    log.append([NewObservation(observation=window(f"{k}")) for k in range(30)], 0.0)
    assert log.prune(10, up_to=30) == 20
    assert log.prune(10, up_to=30) == 0
    assert log.prune(0, up_to=25) == 5  # what is not learned yet stays
    assert log.append([NewObservation(observation=window("next"))], 0.0) == 31
    assert [entry.sequence for entry in log.entries()] == [26, 27, 28, 29, 30, 31]
    assert log.bounds() == (26, 31)
    assert log.counts() == {"progress": 6}
