"""The report of an audit as text for a terminal."""

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from interfere.data.html_page.formatting import format_times
from interfere.monitoring.audit import wording
from interfere.monitoring.audit.audit import AuditReport
from interfere.monitoring.audit.report import Origin, PairCost, Side, Verdict

MAX_PAIRS, MAX_WORKLOADS, MAX_SHIFTS = 12, 10, 6
VERDICT_STYLE = {Verdict.KEEP: "green", Verdict.SEPARATE: "red", Verdict.UNSURE: "yellow"}


def report_text(report: AuditReport, source: str) -> Group:
    """The summary: the worst first, then what it cost, what to change, what to measure."""
    parts: list[Text | Table | Padding] = [
        Text(f"{source}, {wording.span(report)}", style="dim"),
        Text(wording.scope(report), style="dim"),
        Text(),
        Text(wording.headline(report), style="bold"),
    ]
    if any(side.origin is not Origin.UNKNOWN for pair in report.pairs for side in pair.sides):
        parts.append(Text(wording.total(report)))
    if report.pairs:
        parts += [Text(), _pairs(report)]
        if len(report.pairs) > MAX_PAIRS:
            parts.append(
                Text(f"  and {len(report.pairs) - MAX_PAIRS} other pairs: on the page, or with --json", style="dim")
            )
        parts += [Text(), _workloads(report)]
    changes = [wording.separate_text(pair) for pair in report.pairs if pair.verdict is Verdict.SEPARATE]
    if changes or report.repairings:
        parts += [Text(), Text("What to change", style="bold")]
        parts += [_item(text) for text in changes]
    for each in report.repairings:
        parts.append(_item(wording.repairing_text(each)))
        for shift in each.shifts[:MAX_SHIFTS]:
            predicted = " (predicted)" if shift.predicted else ""
            change = f"{wording.hours(shift.hours_before)} → {wording.hours(shift.hours_after)}"
            parts.append(Padding(Text(f"{wording.pair_text(shift.names)}: {change}{predicted}"), (0, 0, 0, 6)))
    if report.next_pairs:
        parts += [Text(), Text("Measure next", style="bold")]
        parts += [_item(wording.next_pair_text(each)) for each in report.next_pairs]
    parts += [Text(), Text("Know before you rely on it", style="bold")]
    parts += [_item(line) for line in wording.notes(report)]
    return Group(*parts)


def _item(text: str) -> Padding:
    return Padding(Text(f"• {text}"), (0, 0, 0, 2))


def _pairs(report: AuditReport) -> Table:
    table = Table(title="Who hurts whom", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("victim", "beside"):
        table.add_column(name, style="bold" if name == "victim" else "")
    for name in ("slowdown", "95 % interval", "together", "lost"):
        table.add_column(name, justify="right", no_wrap=name != "95 % interval")
    table.add_column("verdict of the pair")
    for pair in report.pairs[:MAX_PAIRS]:
        first = pair.worst_side
        other = pair.sides[0] if pair.sides[1] is first else pair.sides[1]
        _add_side(table, pair, first, verdict=True)
        if pair.names[0] != pair.names[1]:
            _add_side(table, pair, other, verdict=False)
    return table


def _add_side(table: Table, pair: PairCost, side: Side, *, verdict: bool) -> None:
    known = side.origin is not Origin.UNKNOWN
    shown = known and all(each.origin is not Origin.UNKNOWN for each in pair.sides)
    table.add_row(
        Text(side.victim),
        Text(side.company[0]),
        format_times(side.slowdown) if known else "?",
        wording.interval(side),
        wording.hours(pair.device_hours) if verdict else "",
        wording.hours(side.lost_hours(side.slowdown)),
        Text(pair.verdict.value, style=VERDICT_STYLE[pair.verdict]) if verdict and shown else "",
    )


def _workloads(report: AuditReport) -> Table:
    table = Table(title="What each workload lost", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("workload", style="bold")
    for name in ("jobs", "alone", "shared", "lost", "at least", "at most", "cost unknown"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in report.workloads[:MAX_WORKLOADS]:
        table.add_row(
            Text(each.workload),
            str(each.jobs),
            wording.hours(each.alone_hours),
            wording.hours(each.shared_hours),
            wording.hours(each.lost_hours),
            wording.hours(each.lost_lower),
            wording.hours(each.lost_upper),
            wording.hours(each.unknown_hours) if each.unknown_hours else "",
        )
    return table
