"""Which folder a `--data` value means: a folder, a table of the workspace, or a shipped table, in this order."""

from collections.abc import Sequence
from pathlib import Path

from interfere.data.shipped_tables import shipped_table, shipped_tables
from interfere.errors import NotFoundError


def table_folders(values: Sequence[str], work: Path) -> tuple[Path, ...]:
    """One folder per value. Raises NotFoundError that lists what there is."""
    return tuple(_folder(value, work) for value in values)


def _folder(value: str, work: Path) -> Path:
    if (named := Path(value)).is_dir():
        return named
    if (own := work / "tables" / value).is_dir():
        return own
    try:
        return shipped_table(value)
    except NotFoundError:
        found = sorted(path.name for path in (work / "tables").glob("*") if path.is_dir())
        raise NotFoundError(
            "no such table",
            value=value,
            remedy=f"give a folder, one of the workspace ({', '.join(found) or 'none'}), or one of the shipped ones "
            f"({', '.join(_shipped()) or 'none'})",
        ) from None


def _shipped() -> tuple[str, ...]:
    try:
        return shipped_tables()
    except NotFoundError:
        return ()
