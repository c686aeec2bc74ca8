"""The last sections of the page: profiles of jobs alone, the provenance of the rows, and a glossary."""

import math
from collections.abc import Callable, Iterable

from interfere.data.html_page.domain_summary import count_censored, count_reasons
from interfere.data.html_page.formatting import (
    DASH,
    count_noun,
    format_bytes,
    format_date,
    format_duration,
    format_number,
    format_percent,
)
from interfere.data.html_page.html_builder import Html, html_table, join, tag
from interfere.data.schema import SCHEMA_VERSION
from interfere.data.tables import Table
from interfere.records import JobProfile

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
OPTIONAL_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("static peak", "static_memory_peak_bytes", format_bytes),
    ("static step", "static_step_time_s", format_duration),
    ("GPU busy", "gpu_util_frac", format_percent),
    ("memory busy", "memory_util_frac", format_percent),
    ("SM active", "sm_active_frac", format_percent),
    ("SM occupancy", "sm_occupancy_frac", format_percent),
    ("tensor active", "tensor_active_frac", format_percent),
    ("DRAM active", "dram_active_frac", format_percent),
    ("power, W", "power_w", lambda value: format_number(value, 0)),
)


def solo_profiles_table(table: Table) -> Html:
    """The profiles of all jobs; facts that no job has get no column."""
    if not table.jobs:
        return tag("p", "No profiles.", class_="dim")
    columns: list[tuple[str, Callable[[JobProfile], str]]] = [
        ("workload", lambda j: j.workload),
        ("device", lambda j: j.device_type),
        ("step", lambda j: format_duration(j.step_time_s)),
        ("sd", lambda j: format_percent(j.step_time_sd_s / j.step_time_s, 1)),
        ("busy", lambda j: format_percent(j.busy_frac)),
        ("peak memory", lambda j: format_bytes(j.memory_peak_bytes)),
        ("working set", lambda j: format_bytes(j.memory_working_set_bytes)),
    ]
    for name, field, as_text in OPTIONAL_COLUMNS:
        if any(math.isfinite(getattr(job, field)) for job in table.jobs):
            columns.append((name, _fact_formatter(field, as_text)))
    if any(job.family for job in table.jobs):
        columns.append(("family", lambda j: j.family or DASH))
    numbers = frozenset(k for k, (name, _) in enumerate(columns) if name not in ("workload", "device", "family"))
    columns.append(("source", lambda j: j.source))
    rows = [tuple(make(job) for _, make in columns) for job in table.jobs]
    return html_table(tuple(name for name, _ in columns), rows, numbers=numbers, caption="Profiles of jobs alone")


def _fact_formatter(field: str, as_text: Callable[[float], str]) -> Callable[[JobProfile], str]:
    return lambda job: as_text(getattr(job, field))


def provenance(table: Table, sha256: str, notes: str) -> list[Html]:
    """Sources, machines and dates; rows by status and reason; the dataset card of the table."""
    rows = table.measurements
    censored = count_censored(table)
    facts = [
        ("table", table.name),
        ("sha256 of its files", sha256),
        ("schema version", str(SCHEMA_VERSION)),
        ("source of the pairs and groups", _names(row.source for row in rows)),
        ("source of the profiles", _names(job.source for job in table.jobs)),
        ("campaign", _names(row.campaign for row in rows)),
        ("machine", _names(row.device_name for row in rows)),
        ("metric", _names(row.metric for row in rows)),
        ("measured", measurement_dates(table)),
        (
            "censored",
            f"{count_noun(censored, 'row')}: the true slowdown lies beyond the one given" if censored else "no row",
        ),
    ]
    reasons = [(r.status.value, f"{r.rows:,}", r.reason or DASH) for r in count_reasons(table)]
    by_status = html_table(
        ("status", "rows", "reason given (the first of its kind)"),
        reasons,
        numbers=frozenset({1}),
        caption="Rows by status and reason",
    )
    parts = [definition_list(facts), *([tag("h3", "Rows by status"), by_status] if reasons else [])]
    if notes:
        parts.append(tag("details", tag("summary", "The card written with the table"), tag("pre", notes)))
    return parts


def _names(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def measurement_dates(table: Table) -> str:
    """The first and the last day of the measurements, in UTC."""
    rows = table.measurements
    times_s = [row.measured_at_s for row in rows if math.isfinite(row.measured_at_s)]
    if not times_s:
        return "at an unknown time"
    first, last = format_date(min(times_s)), format_date(max(times_s))
    return first if first == last else f"{first} to {last}"


def definition_list(entries: Iterable[tuple[str, str]]) -> Html:
    """A list of terms and their values; an empty value is shown as a dash."""
    return tag("dl", *(join((tag("dt", name), tag("dd", value or DASH))) for name, value in entries))
