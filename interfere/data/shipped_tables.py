"""The measurement tables that ship with the project, and the manifest of their checksums."""

import hashlib
import json
from pathlib import Path

import interfere
from interfere.errors import NotFoundError, TableError
from interfere.file_writing import write_atomically

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
    write_atomically(folder / MANIFEST, lambda temporary: Path(temporary).write_text(text))
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
