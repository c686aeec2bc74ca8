"""Profiles from any file that holds some: a table, a sheet of jobs alone, or JSON documents of profiles."""

import json
from collections.abc import Mapping
from pathlib import Path

from interfere.data.importers.spreadsheet.profile_sheet import read_profile_rows
from interfere.data.importers.spreadsheet.sheet import read_sheet
from interfere.data.importers.strict_reading import Faults, read_json
from interfere.data.loading import table_folder
from interfere.data.tables import read_table
from interfere.errors import InterfereError, TableError
from interfere.records import JobProfile
from interfere.records.documents import from_document


def read_profiles(
    name: str, work: Path, *, mapping: Mapping[str, str], device_type: str = "", source: str = "user"
) -> tuple[JobProfile, ...]:
    """The profiles in a file (.csv, .parquet, .json), or what every source says in a table, by folder or name.

    Raises TableError with all faults of a broken file, NotFoundError for a table that there is not.
    """
    path = Path(name)
    if not path.is_file():
        return read_table(table_folder(name, work)).profiles
    if path.suffix.lower() == ".json":
        return _profiles_of_json(path)
    faults = Faults()
    _, rows = read_profile_rows(read_sheet(path, faults), mapping, faults, device_type=device_type, source=source)
    faults.raise_all()
    return tuple(each.profile for each in rows)


def _profiles_of_json(path: Path) -> tuple[JobProfile, ...]:
    """One profile, a list of profiles, or an object whose `profiles` are such a list."""
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
