"""Finds the table folder that a `--data` value names: a path, a table of the workspace, or a shipped table."""

from collections.abc import Sequence
from pathlib import Path

from interfere.data.shipped_tables import shipped_table, shipped_tables
from interfere.errors import NotFoundError


def find_table_folders(values: Sequence[str], work: Path) -> tuple[Path, ...]:
    """One folder per value; a path wins over the workspace `work`, which wins over the shipped tables.

    Raises NotFoundError, which lists the tables that exist.
    """
    return tuple(_find_table_folder(value, work) for value in values)


def _find_table_folder(value: str, work: Path) -> Path:
    if (folder := Path(value)).is_dir():
        return folder
    if (workspace_table := work / "tables" / value).is_dir():
        return workspace_table
    try:
        return shipped_table(value)
    except NotFoundError:
        workspace_tables = sorted(path.name for path in (work / "tables").glob("*") if path.is_dir())
        raise NotFoundError(
            "no such table",
            value=value,
            remedy=f"give a folder, a table of the workspace ({', '.join(workspace_tables) or 'none'}), or a shipped "
            f"table ({', '.join(_shipped_table_names()) or 'none'})",
        ) from None


def _shipped_table_names() -> tuple[str, ...]:
    try:
        return shipped_tables()
    except NotFoundError:
        return ()
