"""Decisions with their audits, and the ledgers of promises and grants that they change."""

import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from interfere.records import AcceptedDeadline, DeviceSlots, EndPromise, Grant, Promise, ScopeLedger, ScopeSummary
from interfere.records.documents import to_json
from interfere.store.checked_rows import ReadRows
from interfere.store.database import Connection, Database, read, rows_of
from interfere.store.rows import (
    AUDIT,
    DECISION,
    GRANTED,
    LEDGER,
    PLANNED,
    PROMISE,
    DecisionAudit,
    LedgerHeader,
    LedgerPart,
    StoredDecision,
    accepted_deadline_to_json,
    promise_to_json,
)

MAX_BYTES = 256 * 2**20  # of the answers of all stored decisions
MAX_AUDITS = 1_000  # one of 1,000 jobs takes 32 KB, compressed in 0.6 ms; explanations are asked for within the hour
MAX_AUDITS_BYTES = 256 * 2**20  # of all, compressed
MAX_AUDIT_BYTES = 8 * 2**20  # of one, compressed: a request that is larger is no scheduler's
T = TypeVar("T")
_LEDGER_TABLES = ("ledger", "promise", "granted", "planned")  # each row belongs to one scope
MAX_KNOWN = 16  # ledgers that are kept as they were last read or written
MAX_SCOPES = 10_000  # ledgers; beyond this number, the least recently used are deleted


class NewestRows:
    """Keeps the newest rows of a table with a growing `seq`, up to a number of rows and a sum of bytes."""

    def __init__(self, table: str, columns: tuple[str, ...], *, max_rows: int, max_bytes: int) -> None:
        """Keep a table within its limits. `columns`: the columns whose sizes count."""
        self._table, self._max_rows, self._max_bytes = table, max_rows, max_bytes
        size = " + ".join(f"length({column})" for column in columns)
        self._sizes = f"SELECT seq, {size} FROM {table} ORDER BY seq DESC"  # noqa: S608 - our own names
        self._unchecked_bytes = max_bytes  # written since the sizes were summed; the first write sums them

    def apply(self, connection: Connection, added_bytes: int) -> int:
        """Delete the rows beyond the limits, inside the transaction of a write, and return their number.

        The sizes of all rows are summed only after enough bytes were written since the last sum.
        """
        deleted = connection.execute(
            f"DELETE FROM {self._table} WHERE seq <= (SELECT max(seq) FROM {self._table}) - ?",  # noqa: S608
            (self._max_rows,),
        ).rowcount
        self._unchecked_bytes += added_bytes
        if self._unchecked_bytes <= self._max_bytes // 16:
            return deleted
        self._unchecked_bytes, total = 0, 0
        for seq, size in connection.execute(self._sizes):
            total += size
            if total > self._max_bytes:
                older = f"DELETE FROM {self._table} WHERE seq <= ?"  # noqa: S608 - our own names
                return deleted + connection.execute(older, (seq,)).rowcount
        return deleted


class StoredDecisions:
    """Decisions under their snapshot ids; only the newest are kept."""

    def __init__(self, database: Database, max_decisions: int, max_bytes: int = MAX_BYTES) -> None:
        self._database = database
        self._newest = NewestRows("decision", ("content",), max_rows=max_decisions, max_bytes=max_bytes)

    def put(self, decision: StoredDecision) -> None:
        """Store one decision and delete the oldest beyond the limit. Raises ConflictError when (scope, snapshot id) is
        stored already."""
        with self._database.transaction() as connection:
            self.put_within(connection, decision)

    def put_within(self, connection: Connection, decision: StoredDecision) -> None:
        """Store one decision inside a transaction that another repository has opened, and delete the oldest beyond
        the limit."""
        row = (decision.scope, decision.snapshot_id, decision.digest, decision.content)
        connection.execute("INSERT INTO decision (scope, snapshot_id, digest, content) VALUES (?, ?, ?, ?)", row)
        self._database.on_eviction("decision", self._newest.apply(connection, len(decision.content)))

    def find(self, scope: str, snapshot_id: str) -> StoredDecision | None:
        """Return the decision of a snapshot; None where none is stored."""
        rows = read(self._database, DECISION, "WHERE scope = ? AND snapshot_id = ?", (scope, snapshot_id))
        return rows.records[0] if rows.records else None


class StoredDecisionAudits:
    """Audits of the newest decisions. A lost audit costs only the explanation of its decision."""

    def __init__(self, database: Database, max_audits: int = MAX_AUDITS, max_bytes: int = MAX_AUDITS_BYTES) -> None:
        self._database = database
        self._newest = NewestRows("account", ("request", "answer"), max_rows=max_audits, max_bytes=max_bytes)

    def put(self, audit: DecisionAudit) -> None:
        """Store one audit, and delete the oldest audits beyond the limits.

        An audit that is too large is not stored; one that is stored already is not changed.
        """
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
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO account"
                " (decision_id, scope, request, answer, model_version, learned_upto, facts)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                row,
            )
            deleted = self._newest.apply(connection, size)
        self._database.on_eviction("decision_audit", deleted)

    def find(self, decision_id: str) -> DecisionAudit | None:
        """Return the audit of a decision; None where there is none."""
        rows = read(self._database, AUDIT, "WHERE decision_id = ?", (decision_id,))
        return rows.records[0] if rows.records else None

    def newest(self, scope: str, limit: int, *, before_id: str = "") -> list[DecisionAudit]:
        """Return the newest audits of a scope, newest first; with `before_id` those older than this decision."""
        older = "seq < coalesce((SELECT seq FROM account WHERE decision_id = ?), 0)" if before_id else "? = ''"
        clause = f"WHERE scope = ? AND {older} ORDER BY seq DESC LIMIT ?"
        return read(self._database, AUDIT, clause, (scope, before_id, limit)).records


_IS_DEADLINE = """content LIKE '%"kind": "wait"%'"""  # as `accepted_deadline_to_json` writes it
_SUMMARIES = f"""
SELECT scope, now_s,
    (SELECT count(*) FROM promise WHERE promise.scope = ledger.scope AND NOT {_IS_DEADLINE}),
    (SELECT count(*) FROM promise WHERE promise.scope = ledger.scope AND {_IS_DEADLINE}),
    (SELECT count(*) FROM granted WHERE granted.scope = ledger.scope AND kind = 'grant'),
    (SELECT count(*) FROM planned WHERE planned.scope = ledger.scope AND kind = 'end')
FROM ledger ORDER BY scope"""  # noqa: S608 - our own names


# A ledger is replaced in one statement, and only if it has the revision that was read. Its rowid tells when it was
# written last.
_UPDATE_LEDGER = """
UPDATE ledger SET revision = revision + 1, now_s = ?, rowid = (SELECT max(rowid) + 1 FROM ledger)
WHERE scope = ? AND revision = ?"""
# The rowid of a new ledger is also the time, so that no two ledgers of a scope, one deleted before the other, ever have
# both rowid and revision in common.
_NEW_LEDGER = """
INSERT INTO ledger (rowid, scope, revision, now_s)
SELECT CASE WHEN max(rowid) >= ? THEN max(rowid) + 1 ELSE ? END, ?, 1, ?
FROM ledger WHERE TRUE ON CONFLICT DO NOTHING"""
_VERSION = "SELECT revision, rowid FROM ledger WHERE scope = ?"
_RECORDS: dict[tuple[str, str], tuple[type, ...]] = {  # by table and kind of row
    ("promise", ""): (Promise, AcceptedDeadline),
    ("granted", "grant"): (Grant,),
    ("granted", "slots"): (DeviceSlots,),
    ("planned", "end"): (EndPromise,),
    ("planned", "order"): (str,),
}
MAX_PLACE = 2**30  # of a row of a ledger; beyond it all rows are written anew


class _KnownLedger(NamedTuple):
    """A ledger as it stands in the database at one version: its revision and rowid."""

    version: tuple[int, int]
    ledger: ScopeLedger
    # By table and kind of row, and by the identity of its record: the record and its place. Records are kept alive.
    places: dict[tuple[str, str], dict[int, tuple[object, int]]]

    @property
    def last_place(self) -> int:
        """The largest place of a row."""
        return max((place for places in self.places.values() for _, place in places.values()), default=0)


def _parts(ledger: ScopeLedger) -> dict[tuple[str, str], Sequence[Any]]:
    """Return the records of a ledger by table and kind of row."""
    return {
        ("promise", ""): (*ledger.promises, *ledger.accepted_deadlines),
        ("granted", "grant"): ledger.grants,
        ("granted", "slots"): ledger.slots,
        ("planned", "end"): ledger.end_promises,
        ("planned", "order"): ledger.planned_order,
    }


def _row(table: str, kind: str, scope: str, place: int, record: Any) -> tuple[Any, ...]:
    """Return the values of a row of a ledger."""
    if isinstance(record, AcceptedDeadline):
        return scope, place, record.job_id, accepted_deadline_to_json(record)
    if table == "promise":
        return scope, place, record.action.job_id, promise_to_json(record)
    return scope, kind, place, record if isinstance(record, str) else to_json(record)


class _Placed(NamedTuple):
    """The records of one kind with their places, which records are to be written, and which places to be deleted."""

    places: dict[int, tuple[object, int]]
    written: list[tuple[int, Any]]
    deleted: list[int]


def _placed(records: Sequence[Any], before: Mapping[int, tuple[object, int]]) -> _Placed:
    """Place records in their order. Those that are there already keep their places up to the first that is not."""
    last, end = -1, max((place for _, place in before.values()), default=-1)
    places: dict[int, tuple[object, int]] = {}
    written: list[tuple[int, Any]] = []
    for record in records:
        known = before.get(id(record))
        if known is not None and not written and known[1] > last and id(record) not in places:
            last = known[1]
        else:
            last = end = max(last, end) + 1
            written.append((last, record))
        places[id(record)] = (record, last)
    kept = {place for _, place in places.values()}
    return _Placed(places, written, [place for _, place in before.values() if place not in kept])


class StoredLedgers:
    """The ledger of each scope: its promises and memory grants.

    Writes are optimistic: a write that is based on an outdated revision is refused. So two servers on one database
    cannot promise the same seat or grant the same memory twice. What was read or written last is kept, so that a ledger
    of many entries is neither read nor written again where few of them change.
    """

    def __init__(self, database: Database, decisions: StoredDecisions, max_scopes: int = MAX_SCOPES) -> None:
        self._database, self._decisions, self._max_scopes = database, decisions, max_scopes
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _KnownLedger] = OrderedDict()  # the newest, the least used first

    def read(self, scope: str) -> ScopeLedger:
        """Return the ledger of a scope, its promises, grants and slots in the order in which they were written.

        It is empty and at revision 0 where none was written.
        """
        of_scope = "WHERE scope = ? ORDER BY place", (scope,)
        known = self._known_ledger(scope)
        with self._database.snapshot() as connection:
            headers = rows_of(self._database, connection, LEDGER, "WHERE scope = ?", (scope,))
            if known and headers.records and known.version == (headers.records[0].revision, headers.last_rowid):
                return known.ledger
            promised = rows_of(self._database, connection, PROMISE, *of_scope)
            granted = rows_of(self._database, connection, GRANTED, *of_scope)
            planned = rows_of(self._database, connection, PLANNED, *of_scope)
        self._database.set_aside([*headers.unreadable, *promised.unreadable, *granted.unreadable, *planned.unreadable])
        # Without a readable header, the scope keeps its promises: its next decision writes a new header.
        header = headers.records[0] if headers.records else LedgerHeader(scope, 0, 0.0)
        ledger = ScopeLedger(
            scope=scope,
            revision=header.revision,
            now_s=header.now_s,
            promises=_of_type(promised, Promise),
            accepted_deadlines=_of_type(promised, AcceptedDeadline),
            grants=_of_type(granted, Grant),
            slots=_of_type(granted, DeviceSlots),
            end_promises=_of_type(planned, EndPromise),
            planned_order=_of_type(planned, str),
        )
        if headers.records:
            rows = {"promise": promised.records, "granted": granted.records, "planned": planned.records}
            places: dict[tuple[str, str], dict[int, tuple[object, int]]] = {
                (table, kind): {
                    id(part.record): (part.record, part.place) for part in rows[table] if isinstance(part.record, types)
                }
                for (table, kind), types in _RECORDS.items()
            }
            self._keep(_KnownLedger((header.revision, headers.last_rowid), ledger, places))
        return ledger

    def commit(self, ledger: ScopeLedger, decision: StoredDecision | None = None) -> bool:
        """Replace the ledger of a scope and store the decision that changed it: both or neither.

        `ledger.revision` is the revision that was read. Returns False, and writes nothing, when there is a newer one.
        """
        known = self._known_ledger(ledger.scope)
        with self._database.transaction() as connection:
            version = connection.execute(_VERSION, (ledger.scope,)).fetchone()
            swapped = connection.execute(_UPDATE_LEDGER, (ledger.now_s, ledger.scope, ledger.revision)).rowcount
            if not swapped and ledger.revision == 0:
                at = time.time_ns() // 1_000
                swapped = connection.execute(_NEW_LEDGER, (at, at, ledger.scope, ledger.now_s)).rowcount
            if not swapped:
                return False
            if known and (known.version != version or known.last_place > MAX_PLACE):
                known = None
            if not known:
                _delete_scopes(connection, [(ledger.scope,)], ("promise", "granted", "planned"))
            places = {
                (table, kind): self._write(connection, ledger.scope, table, kind, records, known)
                for (table, kind), records in _parts(ledger).items()
            }
            revision, rowid = connection.execute(_VERSION, (ledger.scope,)).fetchone()
            if decision is not None:
                self._decisions.put_within(connection, decision)
            if ledger.revision == 0:  # those that were written longest ago make room
                beyond = "SELECT scope FROM ledger ORDER BY rowid DESC LIMIT 1000000 OFFSET ?"
                oldest = connection.execute(beyond, (self._max_scopes,)).fetchall()
                _delete_scopes(connection, oldest, _LEDGER_TABLES)
                self._database.on_eviction("scope", len(oldest))
        self._keep(_KnownLedger((revision, rowid), replace(ledger, revision=revision), places))
        return True

    def _write(
        self,
        connection: Connection,
        scope: str,
        table: str,
        kind: str,
        records: Sequence[Any],
        known: _KnownLedger | None,
    ) -> dict[int, tuple[object, int]]:
        """Write the rows of one kind that differ from the known ones, and return the places of all."""
        placed = _placed(records, known.places[table, kind] if known else {})
        of_kind, named = ("", (scope,)) if table == "promise" else (" AND kind = ?", (scope, kind))
        connection.executemany(
            f"DELETE FROM {table} WHERE scope = ?{of_kind} AND place = ?",  # noqa: S608 - our own names
            [(*named, place) for place in placed.deleted],
        )
        columns = "scope, place, job_id, content" if table == "promise" else "scope, kind, place, content"
        connection.executemany(
            f"INSERT INTO {table} ({columns}) VALUES (?, ?, ?, ?)",  # noqa: S608 - our own names
            [_row(table, kind, scope, place, record) for place, record in placed.written],
        )
        return placed.places

    def _known_ledger(self, scope: str) -> _KnownLedger | None:
        with self._lock:
            return self._known.get(scope)

    def _keep(self, known: _KnownLedger) -> None:
        with self._lock:
            self._known[known.ledger.scope] = known
            self._known.move_to_end(known.ledger.scope)
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)

    def claim(self, scope: str, *, patience_s: float) -> AbstractContextManager[None]:
        """Wait while another server plans for a scope, and let others wait during the block: a hint, so that no plan is
        computed in vain. What `commit` says is the truth."""
        return self._database.claim(f"scope {scope}", patience_s)

    def summaries(self) -> tuple[ScopeSummary, ...]:
        """Return all scopes that have a ledger with the numbers of their entries, by name."""
        with self._database.read_connection() as connection:
            rows = connection.execute(_SUMMARIES).fetchall()
        return tuple(
            ScopeSummary(
                scope=scope,
                now_s=now_s,
                promises=promises,
                accepted_deadlines=accepted,
                grants=grants,
                end_promises=ends,
            )
            for scope, now_s, promises, accepted, grants, ends in rows
        )

    def reset(self, scope: str) -> ScopeLedger | None:
        """Delete the ledger and the decisions of a scope, and return the ledger; None where there was none."""
        ledger = self.read(scope)
        with self._database.transaction() as connection:
            _delete_scopes(connection, [(scope,)], (*_LEDGER_TABLES, "decision"))
        return ledger if ledger.revision else None

    def release_promises(
        self, job_id: str, decision_id: str, *, deadlines: bool
    ) -> tuple[Promise | AcceptedDeadline, ...]:
        """Delete the promises of a job that this decision made or repeated, and return them.

        With `deadlines`, the accepted deadlines of the job are deleted too.
        """

        def found(connection: Connection) -> list[tuple[str, int, Promise | AcceptedDeadline]]:
            rows = rows_of(self._database, connection, PROMISE, "WHERE job_id = ?", (job_id,))
            return [
                (scope, place, record)
                for scope, place, record in rows.records
                if isinstance(record, Promise | AcceptedDeadline)
                and decision_id in record.decision_ids
                and (deadlines or isinstance(record, Promise))
            ]

        with self._database.transaction() as connection:
            scopes = sorted({(scope,) for scope, _, _ in found(connection)})
            connection.executemany("UPDATE ledger SET revision = revision + 1 WHERE scope = ?", scopes)
            released = found(connection)  # again: now no other server changes these scopes
            connection.executemany("DELETE FROM promise WHERE scope = ? AND place = ?", [row[:2] for row in released])
        return tuple(record for _, _, record in released)


def _delete_scopes(connection: Connection, scopes: Iterable[tuple[str]], tables: Iterable[str]) -> None:
    """Delete the rows of scopes from tables, inside an open transaction. Each scope is a tuple of its name alone."""
    for table in tables:
        connection.executemany(f"DELETE FROM {table} WHERE scope = ?", scopes)  # noqa: S608 - our own names


def _of_type(rows: ReadRows[LedgerPart], record_type: type[T]) -> tuple[T, ...]:
    """Return the records of one type, in their order."""
    return tuple(part.record for part in rows.records if isinstance(part.record, record_type))
