"""Imports a spreadsheet from Python: a DataFrame or a file, with keyword arguments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.spreadsheet import own_table
from interfere.data.importers.spreadsheet.sheet import SpreadsheetSource


def import_spreadsheet(
    pairs: SpreadsheetSource,
    profiles: "SpreadsheetSource | None" = None,
    *,
    columns: Mapping[str, str] | None = None,
    out: Path | None = None,
    **options: Any,
) -> ImportResult:
    """Return the jobs and ordered pairs of a CSV or Parquet file or a DataFrame; write them as a table to `out`.

    `columns` gives the role of columns by their name; `options` are fields of `SpreadsheetOptions`: `device_type`,
    `mode`, `metric`, `value` (of a matrix) and more. `docs/own-tables.md` explains the roles. Raises TableError, which
    names row, column and remedy, and InvalidInputError.

    >>> import pandas as pd
    >>> from interfere import import_spreadsheet
    >>> frame = pd.DataFrame({"job_a": ["bert"], "job_b": ["gpt"], "slowdown": [1.4]})
    >>> roles = {"job_a": "victim", "job_b": "neighbour"}
    >>> imported = import_spreadsheet(frame, columns=roles, device_type="a100-80gb", mode="mps")
    >>> [(pair.victim, pair.neighbour, pair.slowdown) for pair in imported.pairs]
    [('bert', 'gpt', 1.4)]
    """
    chosen = own_table.SpreadsheetOptions(mapping=dict(columns or {}), **options)
    imported = own_table.import_spreadsheet(pairs, profiles, chosen).imported
    if out is not None:
        from interfere.data.importers.import_writer import write_import

        write_import(out, imported)
    return imported
