"""Decisions, and the ledger of what each scope has promised and granted, in SQLite."""

import sqlite3

from interfere.records import AcceptedDeadline, Promise, ScopeLedger
from interfere.store.file import SqliteFile
from interfere.store.protocol import StoredDecision
from interfere.store.rows import (
    accepted_deadline_text,
    grant_text,
    promise_text,
    read_grant,
    read_promised,
    read_slots,
    slots_text,
)


class SqliteDecisions:
    """Implements `DecisionBook`."""

    def __init__(self, file: SqliteFile, keep: int) -> None:
        self._file, self._keep = file, keep

    def put(self, decision: StoredDecision) -> None:
        """Store one, forget those past the newest `keep`."""
        with self._file.transaction() as connection:
            self.put_within(connection, decision)

    def put_within(self, connection: sqlite3.Connection, decision: StoredDecision) -> None:
        """The same inside a transaction of another book."""
        row = (decision.scope, decision.snapshot_id, decision.digest, decision.content)
        connection.execute("INSERT INTO decision (scope, snapshot_id, digest, content) VALUES (?, ?, ?, ?)", row)
        connection.execute("DELETE FROM decision WHERE seq <= (SELECT max(seq) FROM decision) - ?", (self._keep,))

    def find(self, scope: str, snapshot_id: str) -> StoredDecision | None:
        """The decision of a snapshot."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT digest, content FROM decision WHERE scope = ? AND snapshot_id = ?", (scope, snapshot_id)
            ).fetchone()
        return row and StoredDecision(scope=scope, snapshot_id=snapshot_id, digest=row[0], content=row[1])


class SqlitePromises:
    """Implements `PromiseBook`."""

    def __init__(self, file: SqliteFile, decisions: SqliteDecisions) -> None:
        self._file, self._decisions = file, decisions

    def ledger(self, scope: str) -> ScopeLedger:
        """What is promised and granted in a scope, in the order in which it was."""
        with self._file.reading() as connection:  # one statement, so that another process cannot write between two
            rows = connection.execute(
                "SELECT 'ledger' AS kind, 0 AS place, revision, now_s, '' FROM ledger WHERE scope = ?1 "
                "UNION ALL SELECT 'promise', place, 0, 0, content FROM promise WHERE scope = ?1 "
                "UNION ALL SELECT kind, place, 0, 0, content FROM granted WHERE scope = ?1 ORDER BY kind, place",
                (scope,),
            ).fetchall()
        head = next(((revision, now_s) for kind, _, revision, now_s, _ in rows if kind == "ledger"), None)
        if head is None:
            return ScopeLedger(scope=scope)
        texts: dict[str, list[str]] = {"promise": [], "grant": [], "slots": [], "ledger": []}
        for kind, _, _, _, content in rows:
            texts[kind].append(content)
        promised = [read_promised(text) for text in texts["promise"]]
        return ScopeLedger(
            scope=scope,
            revision=head[0],
            now_s=head[1],
            promises=tuple(row for row in promised if isinstance(row, Promise)),
            accepted_deadlines=tuple(row for row in promised if isinstance(row, AcceptedDeadline)),
            grants=tuple(map(read_grant, texts["grant"])),
            slots=tuple(map(read_slots, texts["slots"])),
        )

    def commit(self, ledger: ScopeLedger, decision: StoredDecision | None = None) -> bool:
        """Replace the ledger, if it is still at the revision that was read."""
        texts = [(promise.action.job_id, promise_text(promise)) for promise in ledger.promises]
        texts += [(accepted.job_id, accepted_deadline_text(accepted)) for accepted in ledger.accepted_deadlines]
        promises = [(ledger.scope, place, job_id, text) for place, (job_id, text) in enumerate(texts)]
        granted = [(ledger.scope, "grant", place, grant_text(one)) for place, one in enumerate(ledger.grants)]
        granted += [(ledger.scope, "slots", place, slots_text(one)) for place, one in enumerate(ledger.slots)]
        with self._file.transaction() as connection:
            row = connection.execute("SELECT revision FROM ledger WHERE scope = ?", (ledger.scope,)).fetchone()
            if (row[0] if row else 0) != ledger.revision:
                return False
            connection.execute(
                "REPLACE INTO ledger (scope, revision, now_s) VALUES (?, ?, ?)",
                (ledger.scope, ledger.revision + 1, ledger.now_s),
            )
            connection.execute("DELETE FROM promise WHERE scope = ?", (ledger.scope,))
            connection.executemany("INSERT INTO promise (scope, place, job_id, content) VALUES (?, ?, ?, ?)", promises)
            connection.execute("DELETE FROM granted WHERE scope = ?", (ledger.scope,))
            connection.executemany("INSERT INTO granted (scope, kind, place, content) VALUES (?, ?, ?, ?)", granted)
            if decision is not None:
                self._decisions.put_within(connection, decision)
        return True

    def release(self, job_id: str, decision_id: str) -> int:
        """Forget the promises to a job, and the deadline accepted of it, that a decision made or repeated."""
        with self._file.transaction() as connection:
            rows = connection.execute(
                "SELECT scope, place, content FROM promise WHERE job_id = ?", (job_id,)
            ).fetchall()
            gone = [(scope, place) for scope, place, text in rows if decision_id in read_promised(text).decision_ids]
            connection.executemany("DELETE FROM promise WHERE scope = ? AND place = ?", gone)
            connection.executemany(
                "UPDATE ledger SET revision = revision + 1 WHERE scope = ?", {(scope,) for scope, _ in gone}
            )
        return len(gone)
