"""What stands behind the figures: jobs alone, where the rows come from, and what the words mean."""

import math
from collections.abc import Callable, Iterable

from interfere.data.html_page.domain_section import table
from interfere.data.html_page.domain_summary import censored, reasons
from interfere.data.html_page.formatting import DASH, day, figure, gib, plural, seconds, share
from interfere.data.html_page.html_builder import Html, join, tag
from interfere.data.schema import VERSION
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
        "where the mean over more repeats would lie, 95 times in 100. A row without one has too few repeats, "
        "or its source gives none.",
    ),
    (
        "ICC",
        "intraclass correlation of single blocks, ICC(1,1): the share of the variance of log slowdown that lies "
        "between pairs and not between repeats. 1 is perfect agreement, 0 is noise.",
    ),
    (
        "additive R²",
        "share of the variance of log slowdown that a number per victim and a number per neighbour "
        "explain. Near 1, knowing each job alone is enough; what is left needs pairs.",
    ),
    ("unstable", "measured, but a gate refused it: kept with its reason, never filled in."),
    ("infeasible", "the two cannot share the device at all."),
)
# Facts of few tables: a column appears where any job has one.
OPTIONAL: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("static peak", "static_memory_peak_bytes", gib),
    ("static step", "static_step_time_s", seconds),
    ("GPU busy", "gpu_util_frac", share),
    ("memory busy", "memory_util_frac", share),
    ("SM active", "sm_active_frac", share),
    ("SM occupancy", "sm_occupancy_frac", share),
    ("tensor active", "tensor_active_frac", share),
    ("DRAM active", "dram_active_frac", share),
    ("power, W", "power_w", lambda value: figure(value, 0)),
)


def jobs_alone(of: Table) -> Html:
    """Profiles; facts that no job has take no column."""
    if not of.jobs:
        return tag("p", "No profiles.", class_="dim")
    columns: list[tuple[str, Callable[[JobProfile], str]]] = [
        ("workload", lambda j: j.workload),
        ("device", lambda j: j.device_type),
        ("step", lambda j: seconds(j.step_time_s)),
        ("sd", lambda j: share(j.step_time_sd_s / j.step_time_s, 1)),
        ("busy", lambda j: share(j.busy_frac)),
        ("peak memory", lambda j: gib(j.memory_peak_bytes)),
        ("working set", lambda j: gib(j.memory_working_set_bytes)),
    ]
    for name, field, as_text in OPTIONAL:
        if any(math.isfinite(getattr(job, field)) for job in of.jobs):
            columns.append((name, _fact(field, as_text)))
    if any(job.family for job in of.jobs):
        columns.append(("family", lambda j: j.family or DASH))
    numbers = frozenset(k for k, (name, _) in enumerate(columns) if name not in ("workload", "device", "family"))
    columns.append(("source", lambda j: j.source))
    rows = [tuple(make(job) for _, make in columns) for job in of.jobs]
    return table(tuple(name for name, _ in columns), rows, numbers=numbers, caption="Profiles of jobs alone")


def _fact(field: str, as_text: Callable[[float], str]) -> Callable[[JobProfile], str]:
    return lambda job: as_text(getattr(job, field))


def provenance(of: Table, sha256: str, notes: str) -> list[Html]:
    """Sources, machines, dates; rows by status and reason; the card that came with the table."""
    beyond = censored(of)
    facts = [
        ("table", of.name),
        ("sha256 of its files", sha256),
        ("schema version", str(VERSION)),
        ("source of the pairs", _names(pair.source for pair in of.pairs)),
        ("source of the profiles", _names(job.source for job in of.jobs)),
        ("campaign", _names(pair.campaign for pair in of.pairs)),
        ("machine", _names(pair.device_name for pair in of.pairs)),
        ("metric", _names(pair.metric for pair in of.pairs)),
        ("measured", measured_when(of)),
        ("censored", f"{plural(beyond, 'row')}: the true slowdown lies beyond the one given" if beyond else "no row"),
    ]
    rows = [(r.status.value, f"{r.rows:,}", r.reason or DASH) for r in reasons(of)]
    by_status = table(
        ("status", "rows", "reason given (the first of its kind)"),
        rows,
        numbers=frozenset({1}),
        caption="Rows by status and reason",
    )
    parts = [listed(facts), *([tag("h3", "Rows by status"), by_status] if rows else [])]
    if notes:
        parts.append(tag("details", tag("summary", "The card written with the table"), tag("pre", notes)))
    return parts


def _names(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))


def measured_when(of: Table) -> str:
    """First and last day, UTC."""
    times = [pair.measured_at_s for pair in of.pairs if math.isfinite(pair.measured_at_s)]
    if not times:
        return "at an unknown time"
    first, last = day(min(times)), day(max(times))
    return first if first == last else f"{first} to {last}"


def listed(pairs: Iterable[tuple[str, str]]) -> Html:
    """Terms and what they are; an empty one is a dash."""
    return tag("dl", *(join((tag("dt", name), tag("dd", value or DASH))) for name, value in pairs))
