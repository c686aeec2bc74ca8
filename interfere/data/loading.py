"""Loads a table of measurements by its name or its folder, or profiles from a file; checks the shipped tables."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import interfere
from interfere.config import load_settings
from interfere.data.importers.spreadsheet.own_table import read_profile_sheet
from interfere.data.importers.strict_reading import Faults, read_json
from interfere.data.tables import Table, read_table
from interfere.errors import InterfereError, NotFoundError, TableError, UnfitError
from interfere.file_writing import write_text
from interfere.installation import install_line
from interfere.records import JobProfile
from interfere.records.documents import from_document


def load_table(name_or_folder: str | Path, *, work: Path | None = None) -> Table:
    """Return a table of measurements: a folder, or the name of a table of the workspace or of a shipped table.

    The workspace is `work`, else the folder of the settings (`INTERFERE_WORK`, ./interfere-work). Raises NotFoundError
    that lists the known names, TableError for a damaged table, UnfitError where pyarrow is not installed.

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
    """Return the folder of a table: a folder as it is, else a table of the workspace by its name, else a shipped table.

    Raises NotFoundError that lists the known tables.
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


# --- profiles --------------------------------------------------------------------------------------------------------


def read_profiles(
    name: str, work: Path, *, mapping: Mapping[str, str], device_type: str = "", source: str = "user"
) -> tuple[JobProfile, ...]:
    """Return the profiles in a file (.csv, .parquet, .json) or, for another name, in the table of that name.

    Raises TableError with all faults of a broken file, NotFoundError where there is no such table.
    """
    path = Path(name)
    if not path.is_file():
        return read_table(table_folder(name, work)).profiles
    if path.suffix.lower() == ".json":
        return _profiles_of_json(path)
    faults = Faults()
    _, _, rows = read_profile_sheet(path, mapping, faults, device_type=device_type, source=source)
    faults.raise_all()
    return tuple(profile for _, profile in rows)


def _profiles_of_json(path: Path) -> tuple[JobProfile, ...]:
    """Return the profiles in a JSON document: one profile, a list of profiles, or an object with such a list as
    `profiles`."""
    document, _ = read_json(path)
    if isinstance(document, dict):
        document = document.get("profiles", [document])
    if not isinstance(document, list) or not document or not all(isinstance(each, dict) for each in document):
        raise TableError(
            f"{path.name}: no list of profiles",
            value=json.dumps(document)[:80],
            remedy='give [{"workload": ..., "device_type": ..., "step_time_s": ...}]',
        )
    profiles = []
    for k, each in enumerate(document, start=1):
        try:
            profiles.append(from_document(JobProfile, each))
        except InterfereError as error:
            raise TableError(
                f"{path.name}, profile {k}: {error.what}", value=str(error.value), remedy=error.remedy
            ) from None
    return tuple(profiles)


# --- shipped tables and the manifest of their checksums ---------------------------------------------------------------

MANIFEST = "manifest.json"
PACKAGE_FOLDER = Path(interfere.__file__).resolve().parent


def datasets_folder() -> Path:
    """Return the folder of the shipped tables, in an installed wheel or beside the package. Raises NotFoundError."""
    for folder in (PACKAGE_FOLDER / "_datasets", PACKAGE_FOLDER.parent / "datasets"):
        if (folder / MANIFEST).is_file():  # an unrelated library named `datasets` has none
            return folder
    raise NotFoundError(
        "there are no shipped tables beside the package",
        value=PACKAGE_FOLDER.parent / "datasets",
        remedy="clone the project or install its wheel; or measure with `interfere profile campaign`",
    )


def shipped_tables() -> tuple[str, ...]:
    """Return the names of the shipped tables."""
    return tuple(sorted(path.parent.name for path in datasets_folder().glob("*/pairs.parquet")))


def shipped_table(name: str = "cpu") -> Path:
    """Return the folder of a shipped table. Raises NotFoundError."""
    folder = datasets_folder() / name
    if not (folder / "pairs.parquet").is_file():
        raise NotFoundError(
            "no such shipped table", value=name, remedy=f"one of {', '.join(shipped_tables()) or '(none)'}"
        )
    return folder


def _digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file of each table, by its path relative to `folder`."""
    files = sorted(path for path in folder.glob("*/*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_manifest(folder: Path) -> Path:
    """Write the sha256 of every file of every table in `folder` into its manifest, and return the manifest's path."""
    text = json.dumps({"sha256": _digests(folder)}, indent=2) + "\n"
    write_text(folder / MANIFEST, text)
    return folder / MANIFEST


def check_manifest(folder: Path | None = None) -> int:
    """Check the files of the shipped tables, or of those in `folder`, against their manifest. Return their number.

    Raises TableError for a file that was changed, is missing, or is not listed.
    """
    folder = folder or datasets_folder()
    try:
        listed = json.loads((folder / MANIFEST).read_text())["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TableError(
            "the manifest cannot be read",
            value=f"{folder / MANIFEST}: {type(error).__name__}",
            remedy="restore it, or write it again with `interfere data manifest`",
        ) from None
    digests = _digests(folder)
    for name in sorted(set(listed) | set(digests)):
        if listed.get(name) != digests.get(name):
            problem = "is missing" if name not in digests else "is not listed" if name not in listed else "was changed"
            raise TableError(
                f"a shipped file {problem}",
                value=folder / name,
                remedy="restore it, or, if the change is intended, run `interfere data manifest`",
            )
    return len(digests)
