"""Writes an import whole or not at all: into a folder beside the target first, which then replaces the target.

Law 1: after a failure the target is what it was before; a folder that holds anything but an earlier import is refused.
Law 2: what other sources had said of jobs and pairs in the target is kept. What the same source had said of a job is
replaced; an import of pairs or groups replaces all that its source had said.

The card beside the tables names the source files, the content, and every row that is not simply as published.
"""

import math
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from interfere.data.dataset_card import CARD_FILE, group_count_lines, group_quality_lines
from interfere.data.extra_facts import EXTRAS_FILE, ExtraFact, read_extras, write_extras
from interfere.data.facts import STATIC_SUFFIX, combine_profiles
from interfere.data.importers.import_result import ImportResult, Notice, SourceFile
from interfere.data.intended_use import intended_uses
from interfere.data.public_tables import find_public_table, public_tables
from interfere.data.quality import domain_tables, table_quality
from interfere.data.tables import GROUPS_FILE, JOBS_FILE, PAIRS_FILE, Table, read_table, write_table
from interfere.data.traces import CLUSTERS_FILE, TRACE_FILE, JobTrace, write_trace
from interfere.errors import ConflictError, UnfitError
from interfere.records import PairStatus

IMPORT_FILES = (JOBS_FILE, PAIRS_FILE, GROUPS_FILE, EXTRAS_FILE, TRACE_FILE, CLUSTERS_FILE, CARD_FILE)


def write_import(out: Path, imported: ImportResult) -> tuple[Path, ...]:
    """Write jobs, pairs and groups, or the trace, and the card; returns the files.

    Raises ConflictError where the target is no earlier import, UnfitError where it cannot be written, and TableError.
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
    """The imported table with what other sources had said in the target."""
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
    """The extras of the import, after those that the target has from other sources."""
    replaced = {job.source for job in imported.jobs} | {row.source for row in imported.measurements}
    return (*(extra for extra in read_extras(target) if extra.source not in replaced), *imported.extras)


def _card_with_earlier(target: Path, imported: ImportResult) -> str:
    """The card of the import, followed by those of the other formats whose facts the target keeps."""
    card = import_card(target.name, imported)
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


# --- the card of an import -------------------------------------------------------------------------------------------


TITLE = "# Imported"  # the first words of the card tell an imported folder from a measured one
IDENTICAL = "byte-identical to the published file"
OWN = "your own: nothing is published in this format"
DIFFERENT = "differs from every published file that this release knows"


def compare_with_published(file: SourceFile, source_format: str) -> str:
    """Whether a file has exactly the bytes of a published one of this format, in words."""
    if not any(table.kind == source_format for table in public_tables()):
        return OWN
    return IDENTICAL if find_public_table(file.sha256) else DIFFERENT


def import_card(name: str, imported: ImportResult) -> str:
    """The card as Markdown; `name` is that of the folder."""
    lines = [
        f"{TITLE} `{name}` ({imported.source_format})",
        "",
        "## Read from",
        *(
            f"- `{file.path.name}`, sha256 {file.sha256}: {compare_with_published(file, imported.source_format)}"
            for file in imported.files
        ),
        *_licence_lines(imported),
        "",
        "## How it was read",
        *(f"- {note}" for note in imported.format_notes),
        "",
        "## Not simply as published",
        *_notice_lines(imported),
        "",
        *(_trace_lines(imported.trace) if imported.trace else _table_lines(name, imported)),
        "",
    ]
    return "\n".join(lines)


def _licence_lines(imported: ImportResult) -> list[str]:
    tables = [table for file in imported.files if (table := find_public_table(file.sha256))]
    lines = [f"- {table.file}: {table.upstream}; licence: {table.licence}" for table in tables]
    lines += [f"- {table.file}: {table.note}" for table in tables if table.note]
    known_licences = sorted({table.licence for table in public_tables() if table.kind == imported.source_format})
    if len(tables) < len(imported.files):
        published = f"; published ones: {', '.join(known_licences)}" if known_licences else ""
        lines.append(f"- licence: the publisher's or yours{published}")
    return lines


def _notice_lines(imported: ImportResult) -> list[str]:
    if not imported.notices:
        return ["Nothing was dropped, flagged or repaired."]
    return [
        "| | count | what | why |",
        "|---|---|---|---|",
        *(
            f"| {notice.treatment.value} | {notice.count} | {_cell(notice.subject)} | {_cell(_why(notice))} |"
            for notice in imported.notices
        ),
    ]


def _why(notice: Notice) -> str:
    return "; ".join(filter(None, (notice.reason, notice.row_ranges)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table_lines(name: str, imported: ImportResult) -> list[str]:
    table = Table(name=name, jobs=imported.jobs, pairs=imported.pairs, groups=imported.groups)
    device_types = sorted({job.device_type for job in table.jobs})
    lines = ["## Rows", "| device type | jobs | ordered pairs | feasible | not |", "|---|---|---|---|---|"]
    for device_type in device_types:
        pairs = [pair for pair in table.pairs if pair.device_type == device_type]
        infeasible = sum(not pair.feasible for pair in pairs)
        jobs = sum(job.device_type == device_type for job in table.jobs)
        lines.append(f"| {device_type} | {jobs} | {len(pairs)} | {len(pairs) - infeasible} | {infeasible} |")
    modes = sorted({row.mode for row in table.measurements})
    lines += ["", f"Sharing mode: {', '.join(modes) or 'no pairs'}."]
    if table.groups:
        lines += ["", *group_count_lines(table)]
    if not any(pair.status is PairStatus.OK for pair in table.pairs):
        return lines
    lines += ["", "## What it may be used for", *(f"- {use.text()}" for use in intended_uses(table))]
    domains = [(title, table_quality(domain_table)) for title, domain_table in domain_tables(table)]
    icc_rows = " + ".join(str(quality.icc_rows) for _, quality in domains)
    rows = (
        (f"agreement of two passes, ICC(1,1) of log slowdown ({icc_rows} rows)", "icc"),
        ("additive fit, R² of log slowdown ~ victim + neighbour", "additive_r2"),
        ("slowdown median", "slowdown_median"),
        ("slowdown p90", "slowdown_p90"),
        ("slowdown max", "slowdown_max"),
    )
    lines += ["", "## Quality", "| figure | " + " | ".join(title for title, _ in domains) + " |"]
    lines.append("|---|" + "---|" * len(domains))
    for label, field in rows:
        values = (getattr(quality, field) for _, quality in domains)
        lines.append(f"| {label} | {' | '.join('–' if math.isnan(v) else f'{v:.3f}' for v in values)} |")
    if table.groups:
        lines += ["", *(line.replace("nan%", "–").replace("nan", "–") for line in group_quality_lines(table))]
    return lines


def _trace_lines(trace: JobTrace) -> list[str]:
    jobs = trace.jobs
    jobs_by_gpus = sorted(Counter(job.gpus for job in jobs).items())
    jobs_by_status = sorted(Counter(job.status for job in jobs if job.status).items())
    days = (jobs[-1].arrival_s - jobs[0].arrival_s) / 86_400
    distinct = {name: len({getattr(job, name) for job in jobs} - {""}) for name in ("workload", "user", "vc")}
    return [
        "## Jobs",
        f"- {len(jobs)} submissions over {days:.1f} days, {distinct['workload']} workloads, {distinct['user']} users, "
        f"{distinct['vc']} virtual clusters",
        f"- without a duration: {sum(math.isnan(job.duration_s) for job in jobs)}",
        "- by devices asked: " + ", ".join(f"{gpus}: {count}" for gpus, count in jobs_by_gpus),
        *(
            ["- by end: " + ", ".join(f"{status} {count}" for status, count in jobs_by_status)]
            if jobs_by_status
            else []
        ),
    ]
