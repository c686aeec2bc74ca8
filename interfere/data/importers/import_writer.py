"""Writes an import and its dataset card whole or not at all: into a folder beside the target, which it then replaces.

Law 1: after a failure the target is what it was before; a folder that holds anything but an earlier import is refused.
Law 2: what other sources had said of jobs and pairs in the target is kept. What the same source had said of a job is
replaced; an import of pairs or groups replaces all that its source had said.
"""

import math
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from interfere.data.cards.dataset_card import (
    CARD_FILE,
    group_quality_section,
    quality_tables,
    table_facts,
)
from interfere.data.facts import STATIC_SUFFIX, combine_profiles
from interfere.data.importers.import_result import ImportResult, SourceFile
from interfere.data.public_tables import find_public_table, public_tables
from interfere.data.quality import intended_uses
from interfere.data.tables import (
    EXTRAS_FILE,
    GROUPS_FILE,
    JOBS_FILE,
    PAIRS_FILE,
    ExtraFact,
    Table,
    read_extras,
    read_table,
    write_extras,
    write_table,
)
from interfere.data.traces import CLUSTERS_FILE, TRACE_FILE, JobTrace, write_trace
from interfere.errors import ConflictError, UnfitError
from interfere.records import PairStatus
from interfere.reports import document as doc
from interfere.reports.document import Code, Column, Document, Items, Part, Section, Sentence
from interfere.reports.numbers import COUNT
from interfere.reports.text_forms import markdown

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


# --- card of an import ------------------------------------------------------------------------------------------------

TITLE = "# Imported"  # the first words of the card tell an imported folder from a measured one
IDENTICAL = "byte-identical to the published file"
OWN = "your own: nothing is published in this format"
DIFFERENT = "differs from every published file that this release knows"


def compare_with_published(file: SourceFile, source_format: str) -> str:
    """Return a text that says whether a file has exactly the bytes of a published file of this format."""
    if not any(table.kind == source_format for table in public_tables()):
        return OWN
    return IDENTICAL if find_public_table(file.sha256) else DIFFERENT


def import_card(name: str, imported: ImportResult) -> Document:
    """Return the dataset card of an import; `name` is the name of its folder."""
    files = (
        (
            Code(file.path.name),
            f", sha256 {file.sha256}: {compare_with_published(file, imported.source_format)}",
        )
        for file in imported.files
    )
    return Document(
        ("Imported ", Code(name), f" ({imported.source_format})"),
        (
            Section("Read from", (Items((*files, *_licence_lines(imported))),)),
            Section("How it was read", (Items(tuple(imported.format_notes)),)),
            Section("Not simply as published", (_notices(imported),)),
            *(_trace_parts(imported.trace) if imported.trace else _table_parts(name, imported)),
        ),
    )


def _licence_lines(imported: ImportResult) -> list[str]:
    tables = [table for file in imported.files if (table := find_public_table(file.sha256))]
    lines = [f"{table.file}: {table.upstream}; licence: {table.licence}" for table in tables]
    lines += [f"{table.file}: {table.note}" for table in tables if table.note]
    known_licences = sorted({table.licence for table in public_tables() if table.kind == imported.source_format})
    if len(tables) < len(imported.files):
        published = f"; published ones: {', '.join(known_licences)}" if known_licences else ""
        lines.append(f"licence: the publisher's or yours{published}")
    return lines


def _notices(imported: ImportResult) -> Part:
    if not imported.notices:
        return Sentence("Nothing was dropped, flagged or repaired.")
    rows = tuple(
        (
            notice.treatment.value,
            notice.count,
            notice.subject,
            "; ".join(filter(None, (notice.reason, notice.row_ranges))),
        )
        for notice in imported.notices
    )
    columns = (Column("treatment"), Column("count", COUNT), Column("what"), Column("why"))
    return doc.Table(title="Not simply as published", columns=columns, rows=rows)


def _table_parts(name: str, imported: ImportResult) -> list[Part]:
    table = Table(name=name, jobs=imported.jobs, pairs=imported.pairs, groups=imported.groups)
    parts: list[Part] = [Section("Rows", (Items(table_facts(table)),))]
    if any(pair.status is PairStatus.OK for pair in table.pairs):
        uses = Items(tuple(use.text() for use in intended_uses(table)))
        parts += [Section("What it may be used for", (uses,)), Section("Quality", quality_tables(table))]
        parts += group_quality_section(table)
    return parts


def _trace_parts(trace: JobTrace) -> list[Part]:
    jobs = trace.jobs
    jobs_by_gpus = sorted(Counter(job.gpus for job in jobs).items())
    jobs_by_status = sorted(Counter(job.status for job in jobs if job.status).items())
    days = (jobs[-1].arrival_s - jobs[0].arrival_s) / 86_400
    distinct = {name: len({getattr(job, name) for job in jobs} - {""}) for name in ("workload", "user", "vc")}
    lines = [
        f"{len(jobs)} submissions over {days:.1f} days, {distinct['workload']} workloads, {distinct['user']} users, "
        f"{distinct['vc']} virtual clusters",
        f"without a duration: {sum(math.isnan(job.duration_s) for job in jobs)}",
        "by devices asked: " + ", ".join(f"{gpus}: {count}" for gpus, count in jobs_by_gpus),
    ]
    if jobs_by_status:
        lines.append("by end: " + ", ".join(f"{status} {count}" for status, count in jobs_by_status))
    return [Section("Jobs", (Items(tuple(lines)),))]
