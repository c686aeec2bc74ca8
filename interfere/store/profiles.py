"""Registered job profiles, stored under the id of their content."""

from collections.abc import Container, Iterator, Sequence

from interfere.errors import LimitError
from interfere.records import JobProfile
from interfere.records.documents import to_json
from interfere.store.database import Database, rows_of
from interfere.store.rows import PROFILE

MAX_PROFILES = 20_000  # a site's workloads on its device types
MAX_PROFILES_OF_CALLER = MAX_PROFILES // 2  # so that no caller takes the places of all others


class StoredProfiles:
    """Job profiles, stored under the id of their content."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, profiles: Sequence[JobProfile], caller: str = "") -> tuple[str, ...]:
        """Store all profiles or none, and return their ids in order. A profile that is stored again becomes the
        newest. `caller`: who registers them; a profile counts for whoever registered it first.

        Raises LimitError where there are too many, of all callers or of this one.
        """
        rows = [(profile.profile_id, to_json(profile)) for profile in profiles]
        with self._database.transaction(serialized="profile") as connection:
            for profile_id, content in rows:  # deleted first, so that it becomes the newest
                connection.execute("DELETE FROM profile WHERE id = ?", (profile_id,))
                connection.execute("INSERT INTO profile (id, content) VALUES (?, ?)", (profile_id, content))
            registered = [(profile_id, caller) for profile_id, _ in rows]
            connection.executemany("INSERT INTO registered VALUES (?, ?) ON CONFLICT DO NOTHING", registered)
            counts = (
                ("too many profiles", "SELECT count(*) FROM profile", (), MAX_PROFILES),
                (
                    "too many profiles of one caller",
                    "SELECT count(*) FROM profile JOIN registered USING (id) WHERE caller = ? AND caller <> ''",
                    (caller,),
                    MAX_PROFILES_OF_CALLER,
                ),
            )
            for what, query, arguments, most in counts:
                if (count := connection.execute(query, arguments).fetchone()[0]) > most:
                    raise LimitError(what, value=count, remedy=f"at most {most:,}: interfere profiles remove")
        return tuple(profile_id for profile_id, _ in rows)

    def version(self) -> tuple[int, int]:
        """Return what changes whenever profiles are stored or removed."""
        with self._database.read_connection() as connection:
            last, count = connection.execute("SELECT coalesce(max(seq), 0), count(*) FROM profile").fetchone()
        return int(last), int(count)

    def all(self) -> Iterator[JobProfile]:
        """Yield every profile that can be read, oldest first."""
        return (profile for _, profile in self.read() if isinstance(profile, JobProfile))

    def remove(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove profiles, and return the ids that were stored."""
        with self._database.transaction() as connection:
            connection.executemany("DELETE FROM registered WHERE id = ?", [(each,) for each in profile_ids])
            return tuple(
                profile_id
                for profile_id in profile_ids
                if connection.execute("DELETE FROM profile WHERE id = ?", (profile_id,)).rowcount
            )

    def read(self, known: Container[str] = ()) -> Iterator[tuple[str, JobProfile | str | None]]:
        """Return every id with its profile, oldest first.

        In place of an unreadable profile stands the reason. In place of a known id's profile stands None, since the
        content of an id never changes.
        """
        with self._database.snapshot() as connection:
            ids = connection.execute("SELECT seq, id FROM profile ORDER BY seq").fetchall()
            read = {
                seq: rows_of(self._database, connection, PROFILE, "WHERE seq = ?", (seq,))
                for seq, id_ in ids
                if id_ not in known
            }
        for seq, profile_id in ids:
            if seq not in read:
                yield profile_id, None
            elif read[seq].records:
                yield profile_id, read[seq].records[0]
            else:
                row = read[seq].unreadable[0]
                yield row.name, f"cannot be read ({row.reason})"
