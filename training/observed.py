"""What servers observed, read from their store beside them, as one more table to learn from."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from interfere.data.tables import Table
from interfere.records import JobProfile
from interfere.store.export import observed_table
from interfere.store.sqlite import SqliteStore
from interfere.strict_json import json_value

NAME = "observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All that the log still teaches; `table` is None where no row of it is ok."""

    table: Table | None
    windows: int  # that became passes
    without_facts: tuple[str, ...]  # jobs whose rows are missing for want of a profile
    digest: str  # of the rows; "" without any

    @property
    def pairs(self) -> int:
        """Ordered pairs that can be learned from."""
        return 0 if self.table is None else len(self.table.ok_pairs)


def read_observations(store: Path, profiles: tuple[JobProfile, ...]) -> Observations:
    """Of a store that a server may hold open; none where there is no store yet. Raises as `SqliteStore`.

    `profiles` are the facts of jobs that nobody registered with the server, oldest first.
    """
    if not store.exists():
        return Observations(table=None, windows=0, without_facts=(), digest="")
    opened = SqliteStore(store, read_only=True)
    try:
        found = observed_table(opened, profiles, name=NAME)
    finally:
        opened.close()
    usable = found.table if found.table.ok_pairs else None
    return Observations(
        table=usable,
        windows=found.windows,
        without_facts=found.without_facts,
        digest="" if usable is None else _digest(usable),
    )


def _digest(table: Table) -> str:
    """sha256 of the facts: entries of the log that change no row (a campaign names its last one) change nothing."""
    content = [job.to_dict() for job in table.jobs]
    content += [json_value(asdict(replace(pair, campaign=""))) for pair in table.pairs]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
