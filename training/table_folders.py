"""Finds the table folder that a `--data` value names: a path, a table of the workspace, or a shipped table."""

from collections.abc import Sequence
from pathlib import Path

from interfere.data.loading import table_folder


def find_table_folders(values: Sequence[str], work: Path) -> tuple[Path, ...]:
    """One folder per value; a path wins over the workspace `work`, which wins over the shipped tables.

    Raises NotFoundError, which lists the tables that exist.
    """
    return tuple(table_folder(value, work) for value in values)
