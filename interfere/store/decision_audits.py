"""What decisions were made from, in SQLite, packed."""

import zlib

from interfere.store.protocols import Account
from interfere.store.sqlite_file import SqliteFile

KEEP_ACCOUNTS = 1_000  # of 1,000 jobs each 32 KB, packed in 0.6 ms; who asks why asks within the hour


class SqliteAccounts:
    """Implements `AccountBook`."""

    def __init__(self, file: SqliteFile, keep: int = KEEP_ACCOUNTS) -> None:
        self._file, self._keep = file, keep

    def put(self, account: Account) -> None:
        """Store one, forget those past the newest to keep."""
        row = (
            account.decision_id,
            account.scope,
            zlib.compress(account.request, 1),
            zlib.compress(account.answer, 1),
            account.model_version,
            account.learned_upto,
            account.facts,
        )
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO account"
                " (decision_id, scope, request, answer, model_version, learned_upto, facts)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            connection.execute("DELETE FROM account WHERE seq <= (SELECT max(seq) FROM account) - ?", (self._keep,))

    def find(self, decision_id: str) -> Account | None:
        """What a decision was made from."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT scope, request, answer, model_version, learned_upto, facts FROM account WHERE decision_id = ?",
                (decision_id,),
            ).fetchone()
        return row and Account(
            decision_id=decision_id,
            scope=row[0],
            request=zlib.decompress(row[1]),
            answer=zlib.decompress(row[2]),
            model_version=row[3],
            learned_upto=row[4],
            facts=row[5],
        )
