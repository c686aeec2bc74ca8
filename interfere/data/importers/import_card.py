"""The card of an import: what it was read from, what is in it, and every row that is not simply as published."""

import math
from collections import Counter

from interfere.data.importers.import_result import Imported, SourceFile
from interfere.data.public_tables import public_tables, published
from interfere.data.quality import quality
from interfere.data.tables import Table
from interfere.data.traces import JobTrace
from interfere.records import PairStatus

TITLE = "# Imported"  # what tells such a folder from a measured one
SAME, OTHER = "byte-identical to the published file", "differs from every published file that this release knows"


def comparison(file: SourceFile) -> str:
    """Is it the published file, byte by byte?"""
    return SAME if published(file.sha256) else OTHER


def import_card(name: str, imported: Imported) -> str:
    """Markdown."""
    lines = [
        f"{TITLE} `{name}` ({imported.kind})",
        "",
        "## Read from",
        *(f"- `{file.path.name}`, sha256 {file.sha256}: {comparison(file)}" for file in imported.files),
        *_licence(imported),
        "",
        "## How it was read",
        *(f"- {fact}" for fact in imported.facts),
        "",
        "## Not simply as published",
        *_notices(imported),
        "",
        *(_trace(imported.trace) if imported.trace else _table(name, imported)),
        "",
    ]
    return "\n".join(lines)


def _licence(imported: Imported) -> list[str]:
    tables = [table for file in imported.files if (table := published(file.sha256))]
    lines = [f"- {table.file}: {table.upstream}; licence: {table.licence}" for table in tables]
    lines += [f"- {table.file}: {table.note}" for table in tables if table.note]
    known = sorted({table.licence for table in public_tables() if table.kind == imported.kind})
    if len(tables) < len(imported.files):
        lines.append("- licence: the publisher's or yours" + (f"; published ones: {', '.join(known)}" if known else ""))
    return lines


def _notices(imported: Imported) -> list[str]:
    if not imported.notices:
        return ["Nothing was dropped, flagged or repaired."]
    return [
        "| | count | what | why |",
        "|---|---|---|---|",
        *(f"| {one.fate.value} | {one.count} | {_cell(one.what)} | {_cell(one.why)} |" for one in imported.notices),
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(name: str, imported: Imported) -> list[str]:
    table = Table(name=name, jobs=imported.jobs, pairs=imported.pairs)
    devices = sorted({job.device_type for job in table.jobs})
    lines = ["## Rows", "| device type | jobs | ordered pairs | feasible | not |", "|---|---|---|---|---|"]
    for device in devices:
        pairs = [pair for pair in table.pairs if pair.device_type == device]
        misfits = sum(not pair.feasible for pair in pairs)
        jobs = sum(job.device_type == device for job in table.jobs)
        lines.append(f"| {device} | {jobs} | {len(pairs)} | {len(pairs) - misfits} | {misfits} |")
    lines += ["", f"Sharing mode: {', '.join(sorted({pair.mode for pair in table.pairs})) or 'no pairs'}."]
    if not any(pair.status is PairStatus.OK for pair in table.pairs):
        return lines
    found = quality(table)
    figures = (
        (f"agreement of two passes, ICC(1,1) of log slowdown ({found.icc_rows} rows)", found.icc),
        ("additive fit, R² of log slowdown ~ victim + neighbour, all device types as one", found.additive_r2),
        ("slowdown median", found.slowdown_median),
        ("slowdown p90", found.slowdown_p90),
        ("slowdown max", found.slowdown_max),
    )
    shown = (f"| {what} | {'–' if math.isnan(value) else f'{value:.3f}'} |" for what, value in figures)
    return [*lines, "", "## Quality", "| figure | value |", "|---|---|", *shown]


def _trace(trace: JobTrace) -> list[str]:
    jobs = trace.jobs
    by_gpus = sorted(Counter(job.gpus for job in jobs).items())
    statuses = sorted(Counter(job.status for job in jobs if job.status).items())
    days = (jobs[-1].arrival_s - jobs[0].arrival_s) / 86_400
    kinds = {name: len({getattr(job, name) for job in jobs} - {""}) for name in ("workload", "user", "vc")}
    return [
        "## Jobs",
        f"- {len(jobs)} submissions over {days:.1f} days, {kinds['workload']} workloads, {kinds['user']} users, "
        f"{kinds['vc']} virtual clusters",
        f"- without a duration: {sum(math.isnan(job.duration_s) for job in jobs)}",
        "- by devices asked: " + ", ".join(f"{gpus}: {count}" for gpus, count in by_gpus),
        *(["- by end: " + ", ".join(f"{status} {count}" for status, count in statuses)] if statuses else []),
    ]
