"""The page of a measurement table as a document: a section of each domain, the groups, the jobs alone, where the rows
come from, and a glossary.

Laws: names are shown as text, whatever they hold; equal tables give equal documents, whatever the order of their rows.
"""

import math
from collections.abc import Iterable, Sequence

from interfere.data.cards.dataset_card import device_notes, group_counts, group_quality_section
from interfere.data.cards.domain_section import MAX_SHOWN, PLAIN_NUMBER, domain_section, domain_title
from interfere.data.cards.domain_summary import (
    DomainSummary,
    count_censored,
    count_reasons,
    domain_summaries,
    with_sorted_rows,
)
from interfere.data.parquet import SCHEMA_VERSION
from interfere.data.tables import Table
from interfere.records import GroupMeasurement, PairStatus
from interfere.reports import document as doc
from interfere.reports.document import Column, Document, Items, Part, Section, Sentence, Tone, table_of
from interfere.reports.numbers import (
    BYTES,
    COUNT,
    DASH,
    DURATION,
    TIMES,
    NumberFormat,
    count_noun,
    fixed,
    format_date,
    percent,
)

HOW_TO_READ = (
    (
        "slowdown",
        "time of a step beside the neighbour ÷ time of the same step alone. 1 × is no effect, 2 × is half the "
        "speed. The row names who is slowed (victim), the column who runs beside it (neighbour).",
    ),
    (
        "interval",
        "the 95 % confidence interval of the mean over repeats. A row without one has too few repeats, or its "
        "source gives none.",
    ),
    (
        "ICC",
        "intraclass correlation of single blocks, ICC(1,1): the share of the variance of log slowdown that lies "
        "between pairs and not between repeats. 1 is perfect agreement, 0 is noise.",
    ),
    (
        "additive R²",
        "share of the variance of log slowdown that a number per victim and a number per neighbour "
        "explain. Near 1, two numbers per job are enough; what they do not explain has to be measured in pairs.",
    ),
    ("unstable", "measured, but refused by a check of the measurement: kept with its reason, never imputed."),
    ("infeasible", "the two jobs cannot share the device at all."),
)
# Facts that few tables have: a column appears where any job has one.
OPTIONAL_COLUMNS: tuple[tuple[str, str, NumberFormat], ...] = (
    ("static peak", "static_memory_peak_bytes", BYTES),
    ("static step", "static_step_time_s", DURATION),
    ("GPU busy", "gpu_util_frac", percent()),
    ("memory busy", "memory_util_frac", percent()),
    ("SM active", "sm_active_frac", percent()),
    ("SM occupancy", "sm_occupancy_frac", percent()),
    ("tensor active", "tensor_active_frac", percent()),
    ("DRAM active", "dram_active_frac", percent()),
    ("power, W", "power_w", fixed(0, quantity="W")),
)


def table_document(table: Table, *, sha256: str = "", notes: str = "") -> Document:
    """Return the page of a table as a document.

    `sha256` is the checksum of the table, `notes` the text of its dataset card.
    """
    table = with_sorted_rows(table)
    domains = domain_summaries(table)
    parts: list[Part] = [Sentence(_summary(table), tone=Tone.LEAD), *device_notes(table)]
    if len(domains) > 1:
        parts.append(_overview(domains))
    parts += [domain_section(domain, f"domain-{k}") for k, domain in enumerate(domains)]
    if not domains and not table.groups:
        parts.append(Sentence("The table holds profiles alone.", lead="No pairs.", tone=Tone.BAD))
    parts += [
        *_groups(table),
        Section("Jobs alone", (_profiles(table),), anchor="jobs"),
        Section("Provenance", _provenance(table, sha256, notes), anchor="provenance"),
        Section("How to read this page", (doc.Terms(HOW_TO_READ),), anchor="how"),
    ]
    return Document(table.name or "table", tuple(parts))


def _summary(table: Table) -> str:
    rows = table.measurements
    devices = sorted({job.device_type for job in table.jobs} | {row.device_type for row in rows})
    modes = sorted({row.mode for row in rows})
    on = f" on {', '.join(devices)}" if devices else ""
    shared = f", shared by {', '.join(modes)}" if modes else ""
    pairs = count_noun(len(table.pairs), "ordered pair")
    groups = len({(row.members, row.device_type, row.mode, row.metric) for row in table.groups})
    grouped = f" and {count_noun(groups, 'group')} of three and more" if groups else ""
    jobs = count_noun(len({j.workload for j in table.jobs}), "job")
    return f"{jobs}{on}{shared}: {pairs}{grouped}, measured {_dates(table)}."


def _overview(domains: Sequence[DomainSummary]) -> doc.Table:
    """Return a table with one row per domain, each linked to the domain's section."""
    anchors = {id(domain): f"domain-{k}" for k, domain in enumerate(domains)}
    columns = (
        Column("domain", of=lambda domain: doc.Link(domain_title(domain), anchors[id(domain)])),
        Column("jobs", COUNT, of=lambda domain: len(domain.names)),
        *map(_status_column, PairStatus),
        Column("not measured", COUNT, of="missing"),
        *(Column(name, TIMES, of=f"quality.slowdown_{name}") for name in ("median", "p90", "max")),
        Column("ICC", PLAIN_NUMBER, of="quality.icc"),
        Column("additive R²", PLAIN_NUMBER, of="quality.additive_r2"),
    )
    return table_of("Domains", columns, domains)


def _status_column(status: PairStatus) -> Column:
    """Return the column with the number of a domain's rows of a status."""
    return Column(status.value, COUNT, of=lambda domain: domain.quality.count(status))


def _groups(table: Table) -> list[Section]:
    """Return a section on measured groups: counts and quality of each size, and the slowdown of every victim."""
    if not table.groups:
        return []
    victims = table_of(
        "Victims, the most slowed first",
        (
            Column("victim", of="victim"),
            Column("company", of=lambda row: ", ".join(row.company)),
            Column("device, mode", of=lambda row: f"{row.device_type}, {row.mode}"),
            Column("slowdown", TIMES, of="slowdown"),
            Column(
                "95 % interval",
                TIMES,
                of=lambda row: doc.Range(row.lower, row.upper) if math.isfinite(row.lower) else math.nan,
            ),
            Column("status", of=lambda row: row.reason or row.status.value),
        ),
        sorted(table.groups, key=_most_slowed_first),
        fold=MAX_SHOWN,
    )
    note = Sentence("Rows: one of each victim of each group. Company: the other jobs of its group.", tone=Tone.NOTE)
    sizes, title = group_quality_section(table)[0].parts, "Victims, the most slowed first"
    parts = (Items(tuple(group_counts(table))), *sizes, Section(title, (note, victims)))
    return [Section("Groups of three and more", parts, anchor="groups")]


def _most_slowed_first(row: GroupMeasurement) -> tuple[object, ...]:
    """Return the sort key of a victim: the largest slowdown first, victims without a slowdown last."""
    slowdown = math.inf if math.isnan(row.slowdown) else -row.slowdown
    return slowdown, row.victim, row.company, row.device_type, row.mode, row.metric


def _profiles(table: Table) -> Part:
    """Return a table of the profiles of all jobs. A fact that no job has gets no column."""
    if not table.jobs:
        return Sentence("No profiles.", tone=Tone.NOTE)
    optional = [
        Column(name, form, of=field)
        for name, field, form in OPTIONAL_COLUMNS
        if any(math.isfinite(getattr(job, field)) for job in table.jobs)
    ]
    has_family = any(job.family for job in table.jobs)
    return table_of(
        "Profiles of jobs alone",
        (
            Column("workload", of="workload"),
            Column("device", of="device_type"),
            Column("step", DURATION, of="step_time_s"),
            Column("sd", percent(1), of=lambda job: job.step_time_sd_s / job.step_time_s),
            Column("busy", percent(), of="busy_frac"),
            Column("peak memory", BYTES, of="memory_peak_bytes"),
            Column("working set", BYTES, of="memory_working_set_bytes"),
            *optional,
            *([Column("family", of=lambda job: job.family or DASH)] if has_family else []),
            Column("source", of="source"),
        ),
        table.jobs,
    )


def _provenance(table: Table, sha256: str, notes: str) -> tuple[Part, ...]:
    """Return where a table is from: sources, machines and dates, rows by status and reason, and its dataset card."""
    rows, censored = table.measurements, count_censored(table)
    beyond = f"{count_noun(censored, 'row')}: the true slowdown lies beyond the one given" if censored else "no row"
    facts = (
        ("table", table.name),
        ("sha256 of its files", sha256),
        ("schema version", str(SCHEMA_VERSION)),
        ("source of the pairs and groups", _names(row.source for row in rows)),
        ("source of the profiles", _names(job.source for job in table.jobs)),
        ("campaign", _names(row.campaign for row in rows)),
        ("machine", _names(row.device_name for row in rows)),
        ("metric", _names(row.metric for row in rows)),
        ("measured", _dates(table)),
        ("censored", beyond),
    )
    reasons = count_reasons(table)
    parts: list[Part] = [doc.Terms(facts)]
    if reasons:
        columns = (
            Column("status", of="status.value"),
            Column("rows", COUNT, of="rows"),
            Column("reason given (the first of its kind)", of=lambda each: each.reason or DASH),
        )
        grid = table_of("Rows by status and reason", columns, reasons)
        parts.append(Section("Rows by status", (grid,)))
    if notes:
        parts.append(doc.Folded("The card written with the table", (doc.Verbatim(text=notes),)))
    return tuple(parts)


def _names(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def _dates(table: Table) -> str:
    """Return the first and the last day of the measurements in UTC, in words."""
    times_s = [row.measured_at_s for row in table.measurements if math.isfinite(row.measured_at_s)]
    if not times_s:
        return "at an unknown time"
    first, last = format_date(min(times_s)), format_date(max(times_s))
    return first if first == last else f"{first} to {last}"
