"""Which folder a `--data` value means: a folder, a table of the workspace, or a shipped table, in this order."""

from collections.abc import Sequence
from pathlib import Path

from interfere.data.loading import table_folder


def table_folders(values: Sequence[str], work: Path) -> tuple[Path, ...]:
    """Return one folder per value. Raises NotFoundError that lists the tables there are."""
    return tuple(table_folder(value, work) for value in values)
