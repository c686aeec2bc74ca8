"""Reads what servers observed from the observation log in their store, as one more table to train on."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from interfere.data.tables import Table
from interfere.records import JobProfile
from interfere.store.observed_table import observed_table
from interfere.store.sqlite import SqliteStore
from interfere.strict_json import json_value

OBSERVED_TABLE = "observed"  # name of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMeasurements:
    """The pairs and groups that a server's observation log measures."""

    table: Table | None  # None where no row of it is ok
    windows: int  # observation windows that became passes of a row
    without_facts: tuple[str, ...]  # jobs whose rows are missing because they have no profile
    digest: str  # sha256 of the table's facts; "" without a table

    @property
    def pairs(self) -> int:
        """Number of ordered pairs that can be trained on."""
        return 0 if self.table is None else len(self.table.ok_pairs)

    @property
    def group_rows(self) -> int:
        """Number of victims in groups of three and more that can be trained on."""
        return 0 if self.table is None else len(self.table.ok_groups)


def read_observations(store: Path, profiles: tuple[JobProfile, ...]) -> ObservedMeasurements:
    """Read a store, which a server may hold open; without a store there are no observations.

    `profiles`, oldest first, stand in for jobs that were not registered with the server. Raises as `SqliteStore` does.
    """
    if not store.exists():
        return ObservedMeasurements(table=None, windows=0, without_facts=(), digest="")
    opened = SqliteStore(store, read_only=True)
    try:
        export = observed_table(opened, profiles, name=OBSERVED_TABLE)
    finally:
        opened.close()
    table = export.table if export.table.ok_pairs or export.table.ok_groups else None
    return ObservedMeasurements(
        table=table,
        windows=export.windows,
        without_facts=export.without_facts,
        digest="" if table is None else _facts_digest(table),
    )


def _facts_digest(table: Table) -> str:
    """sha256 over jobs, pairs and groups without the campaign, which names the log's last entry: an entry that changes
    no row changes no digest."""
    facts = [job.to_dict() for job in table.jobs]
    facts += [json_value(asdict(replace(row, campaign=""))) for row in table.measurements]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
