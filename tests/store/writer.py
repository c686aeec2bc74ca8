"""A process that writes to a store beside others, and prints what was acknowledged: `writer ADDRESS WHAT NAME COUNT`.

`WHAT` is `log` (appends of 1 to 20 observations), `ledger` (commits of promises to the scope `s`, each on the newest
revision), or one of both with `naive-` before it: the obvious port to PostgreSQL, which the laws must catch.
"""

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from interfere.errors import UnavailableError
from interfere.records import ScopeLedger
from interfere.store.database import Connection
from interfere.store.postgres import PostgresDatabase
from interfere.store.rows import NewObservation
from interfere.store.store import Store, open_store, store_address
from interfere.testing.stores import promise, window


class NaiveDatabase(PostgresDatabase):
    """The obvious port: numbers of a sequence, a ledger that is read and then written."""

    def take_numbers(self, connection: Connection, table: str, count: int) -> int:
        """Take numbers that no other transaction waits for."""
        return int(connection.execute("SELECT nextval('naive')").fetchone()[0])


def commit(store: Store, ledger: ScopeLedger, *, naive: bool) -> bool:
    """Commit a ledger; the naive way looks at the revision, and then replaces the ledger."""
    if not naive:
        return store.ledgers.commit(ledger)
    with store.database.transaction() as connection:
        row = connection.execute("SELECT revision FROM ledger WHERE scope = ?", (ledger.scope,)).fetchone()
        if (row[0] if row else 0) != ledger.revision:
            return False
        connection.execute(
            "INSERT INTO ledger (rowid, scope, revision, now_s) VALUES (0, ?, ?, 0)"
            " ON CONFLICT (scope) DO UPDATE SET revision = excluded.revision",
            (ledger.scope, ledger.revision + 1),
        )
    return True


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Pass over a database that is away for a moment."""
    try:
        yield
    except UnavailableError:
        time.sleep(0.05)


def main() -> None:
    """Write until `COUNT` writes are acknowledged, or the process is killed."""
    address, what, name, count = sys.argv[1], *sys.argv[2:4], int(sys.argv[4])
    naive = what.startswith("naive-")
    random.seed(name)
    store: Store | None = None
    while store is None:
        with patience():  # the others write already
            is_naive = what == "naive-log"
            store = Store(NaiveDatabase(address)) if is_naive else open_store(store_address(address), shared=True)
    skew_s = random.uniform(-3600.0, 3600.0)  # clocks of servers differ
    done = k = 0
    while done < count:
        k += 1
        with patience():
            if what.endswith("log"):
                ids = [f"{name}-{k}-{j}" for j in range(random.choice((1, 1, 1, 20)))]
                store.observations.append(
                    [NewObservation(observation=window(one)) for one in ids], time.time() + skew_s
                )
                print(*ids, sep="\n", flush=True)
                done += 1
            else:
                ledger = store.ledgers.read("s")
                promises = (promise(f"{name}-{k}"),)
                if commit(store, replace(ledger, promises=promises), naive=naive):
                    print(ledger.revision + 1, flush=True)
                    done += 1
    store.close()


if __name__ == "__main__":
    main()
