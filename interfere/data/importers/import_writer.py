"""Writes an import whole or not at all: into a folder beside the target first, which then replaces the target.

Law 1: after a failure the target is what it was before; a folder that holds anything but an earlier import is refused.
Law 2: what other sources had said of jobs and pairs in the target is kept. What the same source had said of a job is
replaced; an import of pairs or groups replaces all that its source had said.
"""

import shutil
import tempfile
from pathlib import Path

from interfere.data.cards.dataset_card import CARD_FILE
from interfere.data.extra_facts import EXTRAS_FILE, ExtraFact, read_extras, write_extras
from interfere.data.facts import STATIC_SUFFIX, combine_profiles
from interfere.data.importers.import_card import TITLE, import_card
from interfere.data.importers.import_result import ImportResult
from interfere.data.tables import GROUPS_FILE, JOBS_FILE, PAIRS_FILE, Table, read_table, write_table
from interfere.data.traces import CLUSTERS_FILE, TRACE_FILE, write_trace
from interfere.errors import ConflictError, UnfitError
from interfere.reports.markdown import markdown

IMPORT_FILES = (JOBS_FILE, PAIRS_FILE, GROUPS_FILE, EXTRAS_FILE, TRACE_FILE, CLUSTERS_FILE, CARD_FILE)


def write_import(out: Path, imported: ImportResult) -> tuple[Path, ...]:
    """Write jobs, pairs and groups, or the trace, and the card into `out`. Return the paths of the files.

    Raises ConflictError where `out` holds anything but an earlier import, UnfitError where it cannot be written, and
    TableError.
    """
    check_target(out)
    target = out.resolve()
    # 1. Write everything into a new folder beside the target.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise _write_error(out, error) from None
    try:
        folder = staging / target.name
        folder.mkdir()
        if imported.trace is not None:
            write_trace(folder, imported.trace)
        else:
            write_table(folder, _with_earlier_facts(target, imported))
            write_extras(folder, _with_earlier_extras(target, imported))
        (folder / CARD_FILE).write_text(_card_with_earlier(target, imported), encoding="utf-8")
        names = sorted(path.name for path in folder.iterdir())
        # 2. Replace the target; put it back when that fails.
        if target.exists():
            target.rename(staging / "before")
        folder.rename(target)
    except OSError as error:
        if (staging / "before").exists() and not target.exists():
            (staging / "before").rename(target)
        raise _write_error(out, error) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return tuple(out / name for name in names)


def _with_earlier_facts(target: Path, imported: ImportResult) -> Table:
    """Return the imported table together with the facts of other sources in the target folder."""
    earlier = read_table(target) if (target / JOBS_FILE).exists() else Table(name=target.name, jobs=(), pairs=())
    replaced = {row.source for row in imported.measurements}
    profiles = [each for each in earlier.profiles if each.source.removesuffix(STATIC_SUFFIX) not in replaced]
    pairs = [pair for pair in earlier.pairs if pair.source not in replaced]
    groups = [group for group in earlier.groups if group.source not in replaced]
    combined = combine_profiles((*profiles, *imported.jobs))
    return Table(
        name=target.name,
        jobs=combined.jobs,
        pairs=(*pairs, *imported.pairs),
        groups=(*groups, *imported.groups),
        sources=combined.sources,
    )


def _with_earlier_extras(target: Path, imported: ImportResult) -> tuple[ExtraFact, ...]:
    """Return the extra facts that the target folder has from other sources, then those of the import."""
    replaced = {job.source for job in imported.jobs} | {row.source for row in imported.measurements}
    return (*(extra for extra in read_extras(target) if extra.source not in replaced), *imported.extras)


def _card_with_earlier(target: Path, imported: ImportResult) -> str:
    """Return the card of this import, followed by the cards of imports in other formats whose facts stay in the target
    folder."""
    card = markdown(import_card(target.name, imported))
    path = target / CARD_FILE
    if imported.trace is not None or not path.is_file() or not (target / JOBS_FILE).exists():
        return card
    earlier = path.read_text(encoding="utf-8").split(f"{TITLE} `")[1:]
    others = [f"{TITLE} `{text}" for text in earlier if f"({imported.source_format})" not in text.splitlines()[0]]
    return "\n".join((card, *others))


def check_target(out: Path) -> None:
    """Raise ConflictError where the target exists and is not an earlier import."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConflictError("the target is a file", value=out, remedy="name a folder that is new or empty")
    names = sorted(path.name for path in out.iterdir())
    card = out / CARD_FILE
    is_import = card.is_file() and card.read_text(encoding="utf-8", errors="replace").startswith(TITLE)
    foreign = [name for name in names if name not in IMPORT_FILES or not is_import]
    if foreign:
        raise ConflictError(
            "the target holds something else than an earlier import",
            value=f"{out}: {', '.join(foreign[:4])}",
            remedy="name a folder that is new or empty",
        )


def _write_error(out: Path, error: OSError) -> UnfitError:
    return UnfitError("cannot write here", value=f"{out}: {error.strerror or error}", remedy="choose another folder")
