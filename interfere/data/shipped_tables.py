"""The tables that ship with the project, and the manifest that says they are whole."""

import hashlib
import json
from pathlib import Path

import interfere
from interfere.data.parquet import replace_file
from interfere.errors import NotFoundError, TableError

MANIFEST = "manifest.json"
PACKAGE = Path(interfere.__file__).resolve().parent


def datasets_folder() -> Path:
    """`interfere/_datasets` of an installed wheel, else `datasets/` beside the package. Raises NotFoundError."""
    for folder in (PACKAGE / "_datasets", PACKAGE.parent / "datasets"):
        if (folder / MANIFEST).is_file():  # an installed library named datasets has none
            return folder
    raise NotFoundError(
        "no shipped tables beside the package",
        value=PACKAGE.parent / "datasets",
        remedy="clone the project or install its wheel; or measure with `interfere profile campaign`",
    )


def shipped_tables() -> tuple[str, ...]:
    """Names of the shipped tables."""
    return tuple(sorted(path.parent.name for path in datasets_folder().glob("*/pairs.parquet")))


def shipped_table(name: str = "cpu") -> Path:
    """Folder of a shipped table. Raises NotFoundError."""
    folder = datasets_folder() / name
    if not (folder / "pairs.parquet").is_file():
        raise NotFoundError(
            "no such shipped table", value=name, remedy=f"one of {', '.join(shipped_tables()) or '(none)'}"
        )
    return folder


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.glob("*/*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_manifest(folder: Path) -> Path:
    """List the sha256 of every file of every table in `folder`."""
    text = json.dumps({"sha256": _digests(folder)}, indent=2) + "\n"
    replace_file(folder / MANIFEST, lambda temporary: Path(temporary).write_text(text))
    return folder / MANIFEST


def check_manifest(folder: Path | None = None) -> int:
    """Number of files that were checked. Raises TableError for a file that is changed, missing or not listed."""
    folder = folder or datasets_folder()
    try:
        listed = json.loads((folder / MANIFEST).read_text())["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TableError(
            "the manifest cannot be read",
            value=f"{folder / MANIFEST}: {type(error).__name__}",
            remedy="restore it, or write it again with `interfere data manifest`",
        ) from None
    found = _digests(folder)
    for name in sorted(set(listed) | set(found)):
        if listed.get(name) != found.get(name):
            what = "is missing" if name not in found else "is not listed" if name not in listed else "was changed"
            raise TableError(
                f"a shipped file {what}",
                value=folder / name,
                remedy="restore it, or, if the change is meant, run `interfere data manifest`",
            )
    return len(found)
