"""Values of a spreadsheet that are no known fact: kept beside the table under their own names, so that none is lost.

Law: no model and no feature reads them, and the table's digest does not depend on them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interfere.data.parquet import read_rows, records_of_rows, write_rows
from interfere.data.schema import record_schema
from interfere.records.documents import to_document

EXTRAS_FILE = "extras.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraFact:
    """The value of a spreadsheet's column that is no known fact, with the job or the ordered pair of its row."""

    workload: str
    neighbour: str = ""  # "" where the value is about the job alone
    device_type: str
    source: str
    name: str  # of the column
    value: str  # as written


def write_extras(folder: Path, extras: Sequence[ExtraFact]) -> None:
    """Write the extra facts of a table into its folder, without duplicates; no file where there are no extra facts."""
    if extras:
        rows = [to_document(extra) | {"number": _number(extra.value)} for extra in dict.fromkeys(extras)]
        write_rows(folder / EXTRAS_FILE, rows, record_schema(ExtraFact, number=float))


def read_extras(folder: Path) -> tuple[ExtraFact, ...]:
    """Return the extra facts in a table's folder; empty where there are none. Raises TableError for a damaged file."""
    if not (folder / EXTRAS_FILE).is_file():
        return ()
    rows = read_rows(folder / EXTRAS_FILE, record_schema(ExtraFact, number=float))
    return records_of_rows(folder / EXTRAS_FILE, rows, ExtraFact, derived=("number",))


def _number(text: str) -> float | None:
    """Return the finite number that a text spells; None where the text is no finite number."""
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None
