"""Write an import whole or not at all: into a folder beside the target first, which then takes its place.

Law: after a failure the target is what it was before; a folder that holds anything but an earlier import is refused.
"""

import shutil
import tempfile
from pathlib import Path

from interfere.data.dataset_card import CARD
from interfere.data.importers.import_card import TITLE, import_card
from interfere.data.importers.import_result import Imported
from interfere.data.tables import JOBS, PAIRS, Table, write_table
from interfere.data.traces import CLUSTERS, TRACE, write_trace
from interfere.errors import ConflictError, UnfitError

OURS = (JOBS, PAIRS, TRACE, CLUSTERS, CARD)


def write_import(out: Path, imported: Imported) -> tuple[Path, ...]:
    """Write jobs and pairs, or the trace, and the card; the files. Raises ConflictError, UnfitError, TableError."""
    check_target(out)
    target = out.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise _cannot(out, error) from None
    try:
        folder = staged / target.name
        folder.mkdir()
        if imported.trace is not None:
            write_trace(folder, imported.trace)
        else:
            write_table(folder, Table(name=target.name, jobs=imported.jobs, pairs=imported.pairs))
        (folder / CARD).write_text(import_card(target.name, imported), encoding="utf-8")
        names = sorted(path.name for path in folder.iterdir())
        if target.exists():
            target.rename(staged / "before")
        folder.rename(target)
    except OSError as error:
        if (staged / "before").exists() and not target.exists():
            (staged / "before").rename(target)
        raise _cannot(out, error) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return tuple(out / name for name in names)


def check_target(out: Path) -> None:
    """Refuse a target that holds something else than an earlier import."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConflictError("the target is a file", value=out, remedy="name a folder that is new or empty")
    found = sorted(path.name for path in out.iterdir())
    card = out / CARD
    imported = card.is_file() and card.read_text(encoding="utf-8", errors="replace").startswith(TITLE)
    foreign = [name for name in found if name not in OURS or not imported]
    if foreign:
        raise ConflictError(
            "the target holds something else than an earlier import",
            value=f"{out}: {', '.join(foreign[:4])}",
            remedy="name a folder that is new or empty",
        )


def _cannot(out: Path, error: OSError) -> UnfitError:
    return UnfitError("cannot write here", value=f"{out}: {error.strerror or error}", remedy="choose another folder")
