"""The section of measured groups: figures of each size, and the slowdown of every victim in its company."""

import math

from interfere.data.html_page.formatting import DASH, count_noun, format_number, format_percent, format_times
from interfere.data.html_page.html_builder import Html, html_table, tag
from interfere.data.quality import group_quality
from interfere.data.tables import Table
from interfere.records import GroupMeasurement

MAX_SHOWN = 12  # rows of the most slowed victims that are shown unfolded


def group_section(table: Table) -> list[Html]:
    """One section, or none for a table without groups."""
    if not table.groups:
        return []
    rows = sorted(table.groups, key=_order)
    figures = group_quality(table)
    headings = (
        "groups",
        "number",
        "jobs",
        "ok",
        "unstable",
        "infeasible",
        "median",
        "p90",
        "worst",
        "ICC",
        "stolen p90",
    )
    sizes = [
        (
            each.title,
            *(f"{count:,}" for count in (each.groups, each.jobs, *(count for _, count in each.rows_by_status))),
            *map(format_times, (each.slowdown_median, each.slowdown_p90, each.slowdown_max)),
            format_number(each.icc),
            format_percent(each.steal_p90, 1),
        )
        for each in figures
    ]
    parts = [
        tag("h2", "Groups of three and more"),
        tag("p", "Rows: one of each victim of each group. Company: the other jobs of its group.", class_="dim"),
        html_table(headings, sizes, numbers=frozenset(range(1, len(headings))), caption="Groups by size"),
        tag("h3", "Victims, the most slowed first"),
        _rows_table(rows[:MAX_SHOWN], "The most slowed victims"),
    ]
    if len(rows) > MAX_SHOWN:
        more = tag("summary", f"{count_noun(len(rows) - MAX_SHOWN, 'more row')}")
        parts.append(tag("details", more, _rows_table(rows[MAX_SHOWN:], "The other victims")))
    return [tag("section", *parts, id="groups")]


def _order(row: GroupMeasurement) -> tuple[object, ...]:
    """The most slowed first, those without a slowdown last; equal tables give equal orders."""
    slowdown = math.inf if math.isnan(row.slowdown) else -row.slowdown
    return slowdown, row.victim, row.company, row.device_type, row.mode, row.metric


def _rows_table(rows: list[GroupMeasurement], caption: str) -> Html:
    headings = ("victim", "company", "device, mode", "slowdown", "95 % interval", "status")
    cells = [
        (
            row.victim,
            ", ".join(row.company),
            f"{row.device_type}, {row.mode}",
            format_times(row.slowdown),
            f"{row.lower:.2f} to {row.upper:.2f}" if math.isfinite(row.lower) else DASH,
            row.reason or row.status.value,
        )
        for row in rows
    ]
    return html_table(headings, cells, numbers=frozenset({3, 4}), caption=caption)
