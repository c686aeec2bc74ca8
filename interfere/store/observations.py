"""The observation log, and checkpoints of the state that was learned from it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from interfere.records import LogEntry, MemoryUsage, Observation, Rollback
from interfere.records.documents import to_json
from interfere.records.observations import observation_kind
from interfere.store.database import Database, read
from interfere.store.rows import CHECKPOINT, OBSERVATION, NewObservation, RolledBackRange, StateCheckpoint

PAGE_ENTRIES = 1_000  # entries in memory while the log is read; other calls wait 4 ms for a page
PRUNED_AT_ONCE = 50_000  # a third of a second, while other writes wait
MAX_CHECKPOINTS = 4  # the newest, and those before it in case a rollback goes further back
LEARNING_S = 1_200.0  # that a server waits for another one to learn the log: ten million entries take it
MAX_SEQUENCE = 2**62  # above every sequence number and every time in seconds
# Memory usages of one job read at once: for most jobs the newest one already says that the job keeps to its grant.
PAGE_MEMORY_USAGES = 8


class StoredObservations:
    """The append-only log of everything that was reported. A rollback is an entry too: only `prune` deletes any.

    `up_to` is the sequence number of the last entry that is read; None reads the whole log.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        text, number = database.text, database.number
        # Entries between a rollback and the last entry it keeps are rolled back, of all reporters or of the one it
        # names, until a later entry undoes it. `kind <> 'progress'` makes SQLite use the partial index on kinds.
        self._with_rollbacks = f"""
            WITH rollbacks AS MATERIALIZED (
                SELECT seq AS rollback_seq, {number("to_sequence")} AS last_valid,
                    coalesce({text("reporter")}, '') AS of_reporter
                FROM observation
                WHERE kind <> 'progress' AND kind = 'rollback' AND coalesce({number("undoes")}, 0) = 0
                AND seq NOT IN (
                    SELECT coalesce({number("undoes")}, 0) FROM observation
                    WHERE kind <> 'progress' AND kind = 'rollback'))"""  # noqa: S608 - our own names
        not_rolled_back = f"""NOT EXISTS (SELECT 1 FROM rollbacks WHERE last_valid < seq AND seq < rollback_seq
            AND of_reporter IN ('', coalesce({text("reporter")}, '')))"""  # noqa: S608
        job, end_s = text("job_id"), number("end_s")
        self._memory_usages = f"""
            WHERE kind = 'memory_usage' AND {job} = :job AND {end_s} > :after AND {end_s} <= :end_s
            AND ({end_s} < :end_s OR seq < :seq) AND {not_rolled_back}
            ORDER BY {end_s} DESC, seq DESC LIMIT :limit"""
        self._largest_memory_usages = f"""{self._with_rollbacks}
            SELECT {text("workload")}, {text("device_type")}, max({number("bytes")}) FROM observation
            WHERE kind <> 'progress' AND kind = 'memory_usage' AND {not_rolled_back} GROUP BY 1, 2"""  # noqa: S608

    def append(self, observations: Sequence[NewObservation], received_s: float) -> int:
        """Store all observations or none, and return the sequence number of the last.

        Raises ConflictError when one of the ids is stored already.
        """
        rows = [
            (
                new.observation.observation_id,
                to_json(new.observation),
                observation_kind(new.observation),
                new.result.value,
                new.reason,
                received_s,
            )
            for new in observations
        ]
        with self._database.transaction() as connection:
            first = self._database.take_numbers(connection, "observation", len(rows))
            connection.executemany(
                "INSERT INTO observation (seq, id, content, kind, result, reason, received_s)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                ((first + k, *row) for k, row in enumerate(rows)),
            )
        return first + len(rows) - 1

    def prune(self, keep: int, *, up_to: int) -> int:
        """Delete the oldest entries beyond `keep`, and return their number. Entries after `up_to` stay, and at most
        `PRUNED_AT_ONCE` are deleted."""
        with self._database.transaction() as connection:
            first, last = connection.execute("SELECT min(seq), max(seq) FROM observation").fetchone()
            if first is None:
                return 0
            end = min(last - keep, up_to, first + PRUNED_AT_ONCE - 1)
            deleted = connection.execute("DELETE FROM observation WHERE seq <= ?", (end,)).rowcount
        self._database.on_eviction("observation", deleted)
        return deleted

    def bounds(self) -> tuple[int, int]:
        """Return the sequence numbers of the first and the last entry; zeros for an empty log."""
        with self._database.read_connection() as connection:
            first, last = connection.execute(
                "SELECT (SELECT min(seq) FROM observation), (SELECT max(seq) FROM observation)"
            ).fetchone()
        return int(first or 0), int(last or 0)

    def find(self, observation_ids: Iterable[str]) -> dict[str, Observation]:
        """Return the stored observations with one of these ids, by id."""
        stored: dict[str, Observation] = {}
        every = list(observation_ids)
        for start in range(0, len(every), 500):  # far below SQLite's limit of host parameters
            ids = every[start : start + 500]
            rows = read(self._database, OBSERVATION, f"WHERE id IN ({','.join('?' * len(ids))})", ids)
            stored.update((entry.observation.observation_id, entry.observation) for entry in rows.records)
        return stored

    def entries(self, *, after: int = 0, up_to: int | None = None) -> Iterator[LogEntry]:
        """Yield the entries after entry `after`, in the order of arrival; some thousands are in memory at once."""
        while True:
            rows = read(
                self._database,
                OBSERVATION,
                "WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
                (after, MAX_SEQUENCE if up_to is None else up_to, PAGE_ENTRIES),
            )
            if not rows:
                return
            yield from rows.records
            after = rows.last_rowid

    def newest(self, limit: int, *, up_to: int | None = None) -> tuple[LogEntry, ...]:
        """Return the last `limit` entries, newest first."""
        entries: list[LogEntry] = []
        before = MAX_SEQUENCE if up_to is None else up_to + 1
        while len(entries) < limit:
            rows = read(
                self._database, OBSERVATION, "WHERE seq < ? ORDER BY seq DESC LIMIT ?", (before, limit - len(entries))
            )
            if not rows:
                break
            entries += rows.records
            before = rows.last_rowid
        return tuple(entries)

    def memory_usages(self, job_id: str, *, after_s: float) -> Iterator[MemoryUsage]:
        """Yield the memory usages of a job that end after `after_s` and are not rolled back, latest end first."""
        parameters: dict[str, object] = {
            "job": job_id,
            "after": after_s,
            "end_s": MAX_SEQUENCE,
            "seq": MAX_SEQUENCE,
            "limit": PAGE_MEMORY_USAGES,
        }
        while True:
            rows = read(self._database, OBSERVATION, self._memory_usages, parameters, prefix=self._with_rollbacks)
            for entry in rows.records:
                if isinstance(usage := entry.observation, MemoryUsage):
                    yield usage
                    parameters |= {"end_s": usage.end_s, "seq": entry.sequence}
            if len(rows) < PAGE_MEMORY_USAGES or not rows.records:
                return

    def largest_memory_usages(self) -> dict[tuple[str, str], float]:
        """Return the largest reported bytes by (workload, device type). Rolled back entries do not count."""
        with self._database.read_connection() as connection:
            rows = connection.execute(self._largest_memory_usages).fetchall()
        return {(workload, device_type): size for workload, device_type, size in rows}

    def rollbacks(self, *, up_to: int | None = None) -> tuple[RolledBackRange, ...]:
        """Return the rollbacks that no later entry has undone, in order."""
        entries = self._rollback_entries(up_to)
        undone = {entry.undoes for _, entry in entries}
        return tuple(
            RolledBackRange(seq, entry.to_sequence, entry.reporter)
            for seq, entry in entries
            if not entry.undoes and seq not in undone
        )

    def rewrites(self, *, up_to: int | None = None) -> tuple[tuple[int, int], ...]:
        """Return (sequence number, last entry that stays valid) of each rollback in force, and of each entry that undid
        a rollback, in order.

        Rollbacks that were undone are left out. A state learned before such a rollback is valid again; a state learned
        between the rollback and its undoing is not.
        """
        entries = self._rollback_entries(up_to)
        undone = {entry.undoes for _, entry in entries}
        return tuple(
            (seq, entry.undoes - 1 if entry.undoes else entry.to_sequence)
            for seq, entry in entries
            if seq not in undone
        )

    def _rollback_entries(self, up_to: int | None) -> list[tuple[int, Rollback]]:
        rows = read(
            self._database,
            OBSERVATION,
            "WHERE kind <> 'progress' AND kind = 'rollback' AND seq <= ? ORDER BY seq",
            (MAX_SEQUENCE if up_to is None else up_to,),
        )
        return [
            (entry.sequence, entry.observation) for entry in rows.records if isinstance(entry.observation, Rollback)
        ]

    def counts(self, *, up_to: int | None = None) -> dict[str, int]:
        """Return the number of entries by kind.

        Progress windows are by far the most entries, so they are counted as the difference between all entries and the
        other kinds.
        """
        end = MAX_SEQUENCE if up_to is None else up_to
        with self._database.read_connection() as connection:
            rows = connection.execute(
                "SELECT kind, count(*) FROM observation WHERE kind <> 'progress' AND seq <= ? GROUP BY kind", (end,)
            ).fetchall()
            total = connection.execute("SELECT count(*) FROM observation WHERE seq <= ?", (end,)).fetchone()[0]
        other_kinds = {str(kind): int(count) for kind, count in rows}
        return {"progress": int(total) - sum(other_kinds.values()), **other_kinds}


class StoredCheckpoints:
    """Checkpoints that shorten the replay of the log at start-up. If all are lost, only start-up is slower."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, checkpoint: StateCheckpoint) -> None:
        """Store one checkpoint and delete all but the newest `MAX_CHECKPOINTS`."""
        with self._database.transaction(serialized="snapshot") as connection:
            connection.execute("DELETE FROM snapshot WHERE seq = ? AND key = ?", (checkpoint.sequence, checkpoint.key))
            connection.execute(
                "INSERT INTO snapshot (seq, key, content) VALUES (?, ?, ?)",
                (checkpoint.sequence, checkpoint.key, checkpoint.content),
            )
            connection.execute(
                "DELETE FROM snapshot WHERE rowid NOT IN (SELECT rowid FROM snapshot ORDER BY rowid DESC LIMIT ?)",
                (MAX_CHECKPOINTS,),
            )

    def claim(self, model_version: str) -> AbstractContextManager[None]:
        """Wait while another server learns the log with a model, and let others wait during the block: a hint, so that
        they find the checkpoint instead of learning the same again."""
        return self._database.claim(f"learning {model_version}", LEARNING_S)

    def find(self, key: str, *, up_to: int | None = None) -> Iterator[StateCheckpoint]:
        """Yield the checkpoints with this key, newest first, from log entry `up_to` backwards."""
        rows = read(
            self._database,
            CHECKPOINT,
            "WHERE key = ? AND seq <= ? ORDER BY seq DESC",
            (key, MAX_SEQUENCE if up_to is None else up_to),
        )
        return iter(rows.records)
