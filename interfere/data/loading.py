"""Load a table of measurements by its name or its folder."""

from pathlib import Path

from interfere.config import load_settings
from interfere.data.shipped_tables import shipped_table, shipped_tables
from interfere.data.tables import Table, read_table
from interfere.errors import NotFoundError, UnfitError
from interfere.installation import install_line


def load_table(name_or_folder: str | Path, *, work: Path | None = None) -> Table:
    """Return a table of measurements: a folder, or the name of a table of the workspace or of a shipped one.

    The workspace is `work`, else that of the settings (`INTERFERE_WORK`, ./interfere-work). Raises NotFoundError that
    lists the names there are, TableError for a damaged table, UnfitError where pyarrow is not installed.

    >>> from interfere import load_table
    >>> table = load_table("cpu")
    >>> len(table.jobs), len(table.pairs)
    (16, 256)
    >>> worst = max(table.ok_pairs, key=lambda pair: pair.slowdown)
    >>> f"{worst.victim} beside {worst.neighbour}: {worst.slowdown:.1f} ×"
    'gnn-train beside stream: 2.7 ×'
    """
    folder = table_folder(name_or_folder, load_settings(work=work).work)
    try:
        return read_table(folder)
    except ModuleNotFoundError as error:
        what = f"reading a table needs '{error.name}', which is not installed"
        raise UnfitError(what, value=folder, remedy=install_line("train")) from None


def table_folder(name_or_folder: str | Path, work: Path) -> Path:
    """Return the folder itself, else that of a table of the workspace, else that of a shipped table.

    Raises NotFoundError that lists the tables there are.
    """
    if (folder := Path(name_or_folder)).is_dir():
        return folder
    if (folder := work / "tables" / name_or_folder).is_dir():
        return folder
    try:
        return shipped_table(str(name_or_folder))
    except NotFoundError:
        own = sorted(path.name for path in (work / "tables").glob("*") if path.is_dir())
        raise NotFoundError(
            "no such table",
            value=name_or_folder,
            remedy=f"give a folder, a table of the workspace ({', '.join(own) or 'none'}), or a shipped table "
            f"({', '.join(_shipped_names()) or 'none'})",
        ) from None


def _shipped_names() -> tuple[str, ...]:
    try:
        return shipped_tables()
    except NotFoundError:
        return ()
