"""The report of an audit as a document to pass on: the worst pair first, then what it cost, what to change, and what
to measure.

Law: names are shown as text, whatever they hold; equal reports give equal documents.
"""

import math
from collections.abc import Sequence

from interfere.data.cards.domain_summary import domain_summaries, with_sorted_rows
from interfere.data.cards.table_page import slowdown_map
from interfere.data.tables import Table
from interfere.monitoring.audit import wording
from interfere.monitoring.audit.audit import AuditReport
from interfere.monitoring.audit.report import Origin, PairCost, Side, Verdict
from interfere.records import PairMeasurement
from interfere.reports import document as doc
from interfere.reports.document import (
    Cell,
    Column,
    Document,
    Estimate,
    Items,
    Part,
    Section,
    Sentence,
    Tile,
    Tiles,
    Tone,
    Toned,
)
from interfere.reports.numbers import COUNT, DASH, JOB_HOURS, TIMES, format_hours, percent
from interfere.sharing_modes import DEFAULT_MODE

MAX_PAIRS, MAX_WORKLOADS, MAX_SHIFTS = 24, 20, 12  # rows that are shown unfolded: two rows are one pair
VERDICT_TONE = {Verdict.KEEP: Tone.GOOD, Verdict.SEPARATE: Tone.BAD, Verdict.UNSURE: Tone.UNSURE}
TITLE = "What sharing GPUs costs here"
MEASURED = doc.Series(name="measured", colour=doc.Colour.ORANGE)
PREDICTED = doc.Series(name="predicted", colour=doc.Colour.GREY, is_assumed=True)


def audit_document(report: AuditReport, source: str) -> Document:
    """The report; `source` names where the monitoring data are from."""
    return Document(
        TITLE,
        (
            Sentence(f"{wording.scope(report)}.", tone=Tone.LEAD),
            Sentence(f"{source}, {wording.span(report)}", tone=Tone.NOTE),
            Sentence(wording.total(report), lead=wording.headline(report), tone=_tone(report)),
            _key_figures(report),
            *_who_hurts_whom(report),
            *_heat_maps(report),
            _workloads(report),
            *_changes(report),
            *_next_pairs(report),
            *_groups(report),
            Section("Know before you rely on it", (Items(tuple(wording.notes(report))),)),
        ),
    )


def _tone(report: AuditReport) -> Tone:
    if any(pair.verdict is Verdict.SEPARATE for pair in report.pairs):
        return Tone.BAD
    unknown = any(side.origin is Origin.UNKNOWN for pair in report.pairs for side in pair.sides)
    return Tone.UNSURE if unknown else Tone.GOOD


def _key_figures(report: AuditReport) -> Tiles:
    known = [pair for pair in report.pairs if all(side.origin is Origin.MEASURED for side in pair.sides)]
    separate = [pair for pair in report.pairs if pair.verdict is Verdict.SEPARATE]
    saved = sum(each.lost_before - each.lost_after for each in report.repairings)
    share = report.shared_hours / report.busy_hours if report.busy_hours else math.nan
    return Tiles(
        (
            Tile(
                value=report.lost_hours,
                form=JOB_HOURS,
                label="of progress lost by sharing",
                detail="job-hours, measured and predicted",
            ),
            Tile(
                value=share,
                form=percent(),
                label="of busy device time was shared",
                detail=format_hours(report.shared_hours),
            ),
            Tile(
                value=f"{len(known)} of {len(report.pairs)}",
                label="pairs measured both ways",
                detail=f"{report.windows:,} windows",
            ),
            Tile(
                value=f"{len(separate)} of {len(report.pairs)}",
                label="pairs faster one after the other",
                detail="by the ends of both intervals",
            ),
            Tile(value=saved or DASH, form=JOB_HOURS, label="could be saved by pairing otherwise", detail="at most"),
        )
    )


def _sides(pair: PairCost) -> tuple[Side, ...]:
    """The most slowed side of a pair first; copies of one workload have one side."""
    first = pair.worst_side
    other = pair.sides[0] if pair.sides[1] is first else pair.sides[1]
    return (first, other) if pair.names[0] != pair.names[1] else (first,)


def _slowdown(side: Side) -> Estimate:
    return Estimate(side.slowdown, side.lower, side.upper)


def _who_hurts_whom(report: AuditReport) -> list[Section]:
    if not report.pairs:
        return []
    rows: list[tuple[Cell, ...]] = []
    for pair in report.pairs:
        known = all(side.origin is not Origin.UNKNOWN for side in pair.sides)
        verdict: Cell = Toned(pair.verdict.value, VERDICT_TONE[pair.verdict]) if known else "unknown"
        for k, side in enumerate(_sides(pair)):
            lost = side.lost_hours(side.slowdown)
            slowdown = math.nan if side.origin is Origin.UNKNOWN else side.slowdown
            evidence = wording.evidence(side)
            pair_cells = (pair.device_hours, lost, verdict) if k == 0 else (None, lost, None)
            rows.append((side.victim, side.company[0], slowdown, wording.interval(side), *pair_cells, evidence))
    table = doc.Table(
        title="Who hurts whom",
        columns=(
            Column("victim"),
            Column("beside"),
            Column("slowdown", TIMES),
            Column("95 % interval"),
            Column("together", JOB_HOURS),
            Column("lost", JOB_HOURS),
            Column("pair"),
            Column("from", is_detail=True),
        ),
        rows=tuple(rows),
        fold=MAX_PAIRS,
    )
    note = Sentence("The worst first. Slowdown: time beside the other ÷ time alone.", tone=Tone.NOTE)
    return [Section("Who hurts whom", (note, table, *_interval_plot(report.pairs)), anchor="pairs")]


def _interval_plot(pairs: Sequence[PairCost]) -> list[doc.RowPlot]:
    """The slowdowns with their intervals, in the order of the table; predicted ones hollow."""
    sides = [side for pair in pairs for side in _sides(pair) if side.origin is not Origin.UNKNOWN][:MAX_PAIRS]
    rows = tuple(
        doc.PlotRow(
            label=f"{side.victim} beside {side.company[0]}",
            values=((_slowdown(side),), ()) if side.origin is Origin.MEASURED else ((), (_slowdown(side),)),
        )
        for side in sides
    )
    axis = doc.Axis(title="slowdown (time beside the other ÷ time alone)", form=TIMES, is_log=True, lines=((1.0, ""),))
    title = "Slowdowns with their 95 % intervals"
    return [doc.RowPlot(title=title, axis=axis, series=(MEASURED, PREDICTED), rows=rows)] if rows else []


def _heat_maps(report: AuditReport) -> list[Section]:
    """Return one map per device type, of measured slowdowns beside one neighbour."""
    rows = tuple(
        PairMeasurement(
            victim=each.victim,
            neighbour=each.company[0],
            device_type=each.device_type,
            mode=DEFAULT_MODE,
            slowdown=min(100.0, max(0.2, each.slowdown)),
            lower=each.lower,
            upper=each.upper,
        )
        for each in report.estimates
        if len(each.company) == 1
    )
    if len(rows) < 2:
        return []
    domains = domain_summaries(with_sorted_rows(Table(name="audit", jobs=(), pairs=rows)))
    note = "Rows: the victim, most slowed first. Columns: the job beside it, most harmful first."
    maps = (slowdown_map(domain) for domain in domains)
    return [Section("All measured slowdowns", (Sentence(note, tone=Tone.NOTE), *maps), anchor="map", is_detail=True)]


def _workloads(report: AuditReport) -> Section:
    names = ("alone", "shared", "lost", "at least", "at most", "cost unknown")
    table = doc.Table(
        title="What each workload lost",
        columns=(
            Column("workload"),
            Column("device", is_detail=True),
            Column("jobs", COUNT),
            *(Column(name, JOB_HOURS) for name in names),
        ),
        rows=tuple(
            (
                each.workload,
                each.device_type,
                each.jobs,
                *(each.alone_hours, each.shared_hours, each.lost_hours, each.lost_lower, each.lost_upper),
                each.unknown_hours or None,
            )
            for each in report.workloads
        ),
        fold=MAX_WORKLOADS,
    )
    note = "Lost: hours in company · (1 - 1 ÷ slowdown), the progress alone that was not made."
    return Section("What each workload lost", (Sentence(note, tone=Tone.NOTE), table), anchor="workloads")


def _changes(report: AuditReport) -> list[Section]:
    separate = tuple(wording.separate_text(pair) for pair in report.pairs if pair.verdict is Verdict.SEPARATE)
    parts: list[Part] = [Section("Separate", (Items(separate),))] if separate else []
    columns = (Column("pair"), Column("hours now", JOB_HOURS), Column("hours then", JOB_HOURS), Column("slowdowns"))
    for each in report.repairings:
        rows = tuple(
            (
                wording.pair_text(shift.names),
                shift.hours_before,
                shift.hours_after,
                "predicted" if shift.predicted else "measured",
            )
            for shift in each.shifts
        )
        shifts = doc.Table(title="Pairs whose hours change", columns=columns, rows=rows, fold=MAX_SHIFTS)
        parts.append(Section("Pair otherwise", (Sentence(wording.repairing_text(each)), shifts)))
    return [Section("What to change", tuple(parts), anchor="change")] if parts else []


def _next_pairs(report: AuditReport) -> list[Section]:
    items = tuple(wording.next_pair_text(each) for each in report.next_pairs)
    return [Section("Measure next", (Items(items, ordered=True),), anchor="next")] if items else []


def _groups(report: AuditReport) -> list[Section]:
    columns = (
        Column("victim"),
        Column("beside"),
        Column("slowdown", TIMES),
        Column("95 % interval"),
        Column("hours", JOB_HOURS),
    )
    rows = tuple(
        (side.victim, " + ".join(side.company), side.slowdown, wording.interval(side), side.hours)
        for side in report.groups
    )
    title = "Three jobs or more on one device"
    table = doc.Table(title=title, columns=columns, rows=rows, fold=MAX_PAIRS)
    return [Section(title, (table,), anchor="groups", is_detail=True)] if rows else []
