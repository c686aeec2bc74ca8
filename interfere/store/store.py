"""A server's store: all tables of one database, opened and closed together.

Law 1: when a write returns, it is on disk; when it raises, nothing of it is.
Law 2: observations are only ever appended, each id once, and are read back in the order in which they were appended.
Law 3: a store that is reopened reads as it was left.
Law 4: where several processes write, readers miss nothing, and no write is lost: each sees the log in one order.

Every method raises UnavailableError when the database is away, full or locked, and UnfitError when it cannot be used at
all.
"""

from interfere.store.database import Database
from interfere.store.decisions import StoredDecisionAudits, StoredDecisions, StoredLedgers
from interfere.store.observations import StoredCheckpoints, StoredObservations
from interfere.store.profiles import StoredProfiles

MAX_DECISIONS = 10_000  # a retry comes within minutes; at one decision a second this is almost three hours


class Store:
    """The tables of a database. Thread-safe."""

    def __init__(self, database: Database, max_decisions: int = MAX_DECISIONS) -> None:
        self.database = database
        self.profiles = StoredProfiles(database)
        self.observations = StoredObservations(database)
        self.checkpoints = StoredCheckpoints(database)
        self.audits = StoredDecisionAudits(database)
        self.decisions = StoredDecisions(database, max_decisions)
        self.ledgers = StoredLedgers(database, self.decisions)

    def close(self) -> None:
        """Close the database. May be called twice."""
        self.database.close()
