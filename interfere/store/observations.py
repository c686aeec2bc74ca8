"""The observation log and the snapshots of its state, in SQLite."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from interfere.records import MemoryUsage, Observation, ObservationResult
from interfere.store.json_records import kind_of, observation_text, read_observation
from interfere.store.protocols import Kept, StoredObservation, StoredSnapshot
from interfere.store.sqlite_file import SqliteFile

AT_ONCE = 5_000  # entries in memory while the log is read
KEEP_SNAPSHOTS = 2  # the newest, and one before it in case a rollback went further
END = 2**62  # after every entry
# Usages of a job in memory while its newest are read: of most jobs the first says that it keeps to its grant.
USAGES_AT_ONCE = 8
_COLUMNS = "seq, kind, content, result, reason, received_s"
# `kind <> 'progress'` is what the index on kinds is for
_GONE = """
WITH gone AS MATERIALIZED (
    SELECT seq AS at, json_extract(content, '$.to_sequence') AS upto FROM observation
    WHERE kind <> 'progress' AND kind = 'rollback')"""
_COUNTS = "NOT EXISTS (SELECT 1 FROM gone WHERE upto < seq AND seq < at)"  # no rollback took it out
_END_S = "json_extract(content, '$.end_s')"
_USAGES = f"""{_GONE}
SELECT seq, {_END_S}, content FROM observation
WHERE kind = 'memory_usage' AND json_extract(content, '$.job_id') = :job AND {_END_S} > :after AND {_END_S} <= :end_s
AND ({_END_S} < :end_s OR seq < :seq) AND {_COUNTS} ORDER BY {_END_S} DESC, seq DESC LIMIT :most"""  # noqa: S608 - our own column names
_LARGEST = f"""{_GONE}
SELECT json_extract(content, '$.workload'), json_extract(content, '$.device_type'),
max(json_extract(content, '$.bytes')) FROM observation
WHERE kind <> 'progress' AND kind = 'memory_usage' AND {_COUNTS} GROUP BY 1, 2"""  # noqa: S608 - our own column names


class SqliteObservations:
    """Implements `ObservationBook`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def append(self, observations: Sequence[Kept], received_s: float) -> int:
        """Store all or none."""
        rows = [
            (
                one.observation.observation_id,
                observation_text(one.observation),
                kind_of(one.observation),
                one.result.value,
                one.reason,
                received_s,
            )
            for one in observations
        ]
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT INTO observation (id, content, kind, result, reason, received_s) VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )
            return int(connection.execute("SELECT coalesce(max(seq), 0) FROM observation").fetchone()[0])

    def find(self, observation_ids: Iterable[str]) -> dict[str, Observation]:
        """Those of the ids that are stored."""
        found: dict[str, Observation] = {}
        with self._file.reading() as connection:
            for some in _chunks(observation_ids, 500):  # far below SQLite's limit of host parameters
                marks = ",".join("?" * len(some))
                rows = connection.execute(f"SELECT id, kind, content FROM observation WHERE id IN ({marks})", some)  # noqa: S608 - question marks only
                found.update((key, read_observation(kind, text)) for key, kind, text in rows)
        return found

    def entries(self, *, after: int = 0, upto: int | None = None) -> Iterator[StoredObservation]:
        """In the order of arrival."""
        while True:
            with self._file.reading() as connection:
                rows = connection.execute(
                    f"SELECT {_COLUMNS} FROM observation WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",  # noqa: S608 - our own column names
                    (after, END if upto is None else upto, AT_ONCE),
                ).fetchall()
            if not rows:
                return
            yield from map(_entry, rows)
            after = rows[-1][0]

    def newest(self, limit: int, *, upto: int | None = None) -> tuple[StoredObservation, ...]:
        """Newest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM observation WHERE seq <= ? ORDER BY seq DESC LIMIT ?",  # noqa: S608 - our own column names
                (END if upto is None else upto, limit),
            ).fetchall()
        return tuple(map(_entry, rows))

    def usages(self, job_id: str, *, after_s: float) -> Iterator[MemoryUsage]:
        """Those that end last first."""
        place: dict[str, object] = {"job": job_id, "after": after_s, "end_s": END, "seq": END, "most": USAGES_AT_ONCE}
        while True:
            with self._file.reading() as connection:
                rows = connection.execute(_USAGES, place).fetchall()
            for seq, end_s, content in rows:
                usage = read_observation("memory_usage", content)
                assert isinstance(usage, MemoryUsage)
                yield usage
                place |= {"end_s": end_s, "seq": seq}
            if len(rows) < USAGES_AT_ONCE:
                return

    def largest_uses(self) -> dict[tuple[str, str], float]:
        """By workload and device type."""
        with self._file.reading() as connection:
            rows = connection.execute(_LARGEST).fetchall()
        return {(workload, device_type): size for workload, device_type, size in rows}

    def rollbacks(self, *, upto: int | None = None) -> tuple[tuple[int, int], ...]:
        """(its own sequence number, that of the last entry it leaves)."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT seq, json_extract(content, '$.to_sequence') FROM observation "
                "WHERE kind = 'rollback' AND seq <= ? ORDER BY seq",
                (END if upto is None else upto,),
            ).fetchall()
        return tuple((int(seq), int(to)) for seq, to in rows)

    def counts(self, *, upto: int | None = None) -> dict[str, int]:
        """Entries by kind; sequence numbers have no holes, so the progress is what the others leave."""
        end = END if upto is None else upto
        with self._file.reading() as connection:
            rare = connection.execute(
                "SELECT kind, count(*) FROM observation WHERE kind <> 'progress' AND seq <= ? GROUP BY kind", (end,)
            ).fetchall()
            total = connection.execute("SELECT count(*) FROM observation WHERE seq <= ?", (end,)).fetchone()[0]
        found = {str(kind): int(count) for kind, count in rare}
        return {"progress": int(total) - sum(found.values()), **found}


class SqliteSnapshots:
    """Implements `SnapshotBook`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def put(self, snapshot: StoredSnapshot) -> None:
        """Store one, forget all but the newest `KEEP_SNAPSHOTS`."""
        with self._file.transaction() as connection:
            connection.execute(
                "REPLACE INTO snapshot (seq, key, content) VALUES (?, ?, ?)",
                (snapshot.sequence, snapshot.key, snapshot.content),
            )
            connection.execute(
                "DELETE FROM snapshot WHERE rowid NOT IN (SELECT rowid FROM snapshot ORDER BY rowid DESC LIMIT ?)",
                (KEEP_SNAPSHOTS,),
            )

    def find(self, key: str, *, upto: int | None = None) -> Iterator[StoredSnapshot]:
        """Newest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT seq, key, content FROM snapshot WHERE key = ? AND seq <= ? ORDER BY seq DESC",
                (key, END if upto is None else upto),
            ).fetchall()
        return (StoredSnapshot(sequence=seq, key=key, content=content) for seq, key, content in rows)


def _entry(row: tuple[Any, ...]) -> StoredObservation:
    sequence, kind, content, result, reason, received_s = row
    return StoredObservation(
        sequence=sequence,
        observation=read_observation(kind, content),
        result=ObservationResult(result),
        reason=reason,
        received_s=received_s,
    )


def _chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    todo = list(items)
    return (todo[start : start + size] for start in range(0, len(todo), size))
