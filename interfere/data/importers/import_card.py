"""The dataset card of an import: its source files, its content, and every row that is not simply as published."""

import math
from collections import Counter

from interfere.data.cards.dataset_card import group_counts, group_quality_section, quality_table
from interfere.data.importers.import_result import ImportResult, SourceFile
from interfere.data.intended_use import intended_uses
from interfere.data.public_tables import find_public_table, public_tables
from interfere.data.tables import Table
from interfere.data.traces import JobTrace
from interfere.records import PairStatus
from interfere.reports import document as doc
from interfere.reports.document import Code, Column, Document, Items, Part, Section, Sentence
from interfere.reports.numbers import COUNT

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
    rows = []
    for device_type in sorted({job.device_type for job in table.jobs}):
        pairs = [pair for pair in table.pairs if pair.device_type == device_type]
        infeasible = sum(not pair.feasible for pair in pairs)
        jobs = sum(job.device_type == device_type for job in table.jobs)
        rows.append((device_type, jobs, len(pairs), len(pairs) - infeasible, infeasible))
    counts = ("jobs", "ordered pairs", "feasible", "not")
    columns = (Column("device type"), *(Column(heading, COUNT) for heading in counts))
    modes = ", ".join(sorted({row.mode for row in table.measurements})) or "no pairs"
    groups = [Items(tuple(group_counts(table)))] if table.groups else []
    grid = doc.Table(title="Rows", columns=columns, rows=tuple(rows))
    parts: list[Part] = [Section("Rows", (grid, Sentence(f"Sharing mode: {modes}."), *groups))]
    if any(pair.status is PairStatus.OK for pair in table.pairs):
        uses = Items(tuple(use.text() for use in intended_uses(table)))
        parts += [Section("What it may be used for", (uses,)), Section("Quality", (quality_table(table),))]
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
