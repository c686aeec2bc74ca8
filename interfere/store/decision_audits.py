"""Decision audits in SQLite, compressed: the request, the answer and the state of knowledge behind each decision."""

import zlib

from interfere.store.protocols import DecisionAudit
from interfere.store.retention import EvictionListener, NewestRows, nobody
from interfere.store.sqlite_file import SqliteFile

MAX_AUDITS = 1_000  # one of 1,000 jobs takes 32 KB, compressed in 0.6 ms; explanations are asked for within the hour


MAX_BYTES = 256 * 2**20  # of all, compressed
MAX_AUDIT_BYTES = 8 * 2**20  # of one, compressed: a request that is larger is no scheduler's


class SqliteDecisionAudits:
    """Implements `DecisionAuditRepository`."""

    def __init__(
        self,
        file: SqliteFile,
        max_audits: int = MAX_AUDITS,
        max_bytes: int = MAX_BYTES,
        *,
        on_eviction: EvictionListener = nobody,
    ) -> None:
        self._file, self._on_eviction = file, on_eviction
        self._newest = NewestRows("account", ("request", "answer"), max_rows=max_audits, max_bytes=max_bytes)

    def put(self, audit: DecisionAudit) -> None:
        """Store one audit and delete the oldest beyond the limits; one that is too large is not kept."""
        row = (
            audit.decision_id,
            audit.scope,
            zlib.compress(audit.request, 1),
            zlib.compress(audit.answer, 1),
            audit.model_version,
            audit.learned_up_to,
            audit.facts_digest,
        )
        size = len(row[2]) + len(row[3])
        if size > MAX_AUDIT_BYTES:
            return
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO account"
                " (decision_id, scope, request, answer, model_version, learned_upto, facts)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            deleted = self._newest.apply(connection, size)
        self._on_eviction("decision_audit", deleted)

    def find(self, decision_id: str) -> DecisionAudit | None:
        """The audit of a decision; None where there is none."""
        with self._file.read_connection() as connection:
            row = connection.execute(
                "SELECT scope, request, answer, model_version, learned_upto, facts FROM account WHERE decision_id = ?",
                (decision_id,),
            ).fetchone()
        return row and DecisionAudit(
            decision_id=decision_id,
            scope=row[0],
            request=zlib.decompress(row[1]),
            answer=zlib.decompress(row[2]),
            model_version=row[3],
            learned_up_to=row[4],
            facts_digest=row[5],
        )
