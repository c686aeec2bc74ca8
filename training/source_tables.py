"""Reads the tables of a training, and refuses one whose measurement blocks disagree."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interfere.data.quality import MIN_ICC, table_quality
from interfere.data.tables import Table, read_table, table_digest
from interfere.errors import UnfitError


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTables:
    """The tables that a training reads, with their provenance; one entry per table in every field."""

    tables: tuple[Table, ...]
    icc: tuple[float, ...]  # agreement of two measurement blocks; NaN for a single block
    digests: tuple[str, ...]  # sha256


def read_source_tables(paths: Sequence[Path]) -> SourceTables:
    """Read all tables. Raises TableError for a broken table, UnfitError for one whose blocks disagree."""
    tables = tuple(read_table(path) for path in paths)
    agreement = tuple(table_quality(table).icc for table in tables)
    for table, icc in zip(tables, agreement, strict=True):
        if icc < MIN_ICC:  # NaN, from single blocks, passes: it is no evidence of disagreement
            raise UnfitError(
                f"table {table.name}: its passes disagree, a model would learn noise",
                value=f"ICC {icc:.2f} between blocks, at least {MIN_ICC} is needed",
                remedy="measure again on a quiet machine with more passes: interfere profile campaign",
            )
    return SourceTables(tables=tables, icc=agreement, digests=tuple(table_digest(path) for path in paths))
