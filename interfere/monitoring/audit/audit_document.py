"""The report of an audit as a document to pass on: the worst pair first, then what it cost, what to change, and what
to measure.

Law: names are shown as text, whatever they hold; equal reports give equal documents.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from interfere.data.cards.domain_section import slowdown_map
from interfere.data.cards.domain_summary import domain_summaries, with_sorted_rows
from interfere.data.tables import Table
from interfere.monitoring.audit.advice import CompanyChange, MatchReplay, NextPair, Reason, Separation
from interfere.monitoring.audit.audit import AuditReport, WorkloadCost
from interfere.monitoring.audit.keeping_apart import orders, orders_section
from interfere.monitoring.audit.known_slowdowns import Origin, PairCost, PairVerdict, VictimCost
from interfere.monitoring.audit.slowdowns import Baseline
from interfere.monitoring.reading import NotMeasured
from interfere.records import PairMeasurement
from interfere.reports import document as doc
from interfere.reports.document import Column, Document, Estimate, Items, Section, Sentence, Tone
from interfere.reports.numbers import (
    COUNT,
    DASH,
    JOB_HOURS,
    TIMES,
    NumberFormat,
    count_noun,
    fixed,
    format_slowdown,
    percent,
)
from interfere.reports.numbers import format_hours as hours
from interfere.sharing_modes import DEFAULT_MODE

MAX_PAIRS, MAX_WORKLOADS, MAX_SHIFTS = 24, 20, 12  # rows that are shown unfolded: two rows are one pair
VERDICT_TONE = {PairVerdict.KEEP: Tone.GOOD, PairVerdict.SEPARATE: Tone.BAD, PairVerdict.UNSURE: Tone.UNSURE}
WEEK_HOURS = 168
GPU_HOURS = fixed(1, sign=True)
TITLE = "What sharing GPUs costs here"
MEASURED = doc.Series(name="measured", colour=doc.Colour.ORANGE)
PREDICTED = doc.Series(name="predicted", colour=doc.Colour.GREY, is_assumed=True)


COVERAGE_CLAIM = (
    "Intervals are meant to hold the true slowdown 95 times in 100. On simulated days with planted slowdowns, "
    "restarts, gaps and renamed pods at least 9 in 10 did; your site may have causes that no simulation has."
)
BASELINE_NOTE = (
    "A slowdown compares a workload's rate in company with its rate alone on the same device type: of the same jobs "
    "where they were seen alone, else of other jobs of that workload, which widens the interval."
)
OTHER_CAUSES = (
    "Alone means alone on the GPU: CPUs, disks and networks may have been shared, and counters of requests follow the "
    "load. A service whose requests all get answered in time shows no slowdown here, though its latency may suffer."
)
HIDDEN_SHARING = (
    "No device was seen shared, but the counters of many jobs belong to none on a device: dcgm-exporter names one pod "
    "of a shared GPU unless KUBERNETES_VIRTUAL_GPUS=true. What sharing cost is unknown."
)
APART_NOTE = (
    "Each pair is the one that gains most after those above it. A GPU hour is the progress of a job alone on a GPU in "
    "one hour. The hours of workloads that are kept apart are spread over the company that they had otherwise, so "
    "every job still runs."
)
MATCH_ASSUMPTIONS = (
    "Every job starts when it did and ends when it did, and none is moved. No more GPUs of a type are taken than were "
    "in use at that moment.",
    "Match knows the slowdowns of this report from the start. The interval covers their errors, nothing else.",
    "Any two jobs fit into the memory of a GPU, and any GPU of the type would have done for a job.",
)
REASONS = {
    Reason.NEVER_ALONE: "measure it with {alone} alone as well: without that nobody knows what sharing costs it",
    Reason.NEVER_TOGETHER: "never seen together; it may be better than what is paired now",
    Reason.UNCERTAIN: "the width of its interval is worth most, for the hours it runs",
}
NOT_MEASURED = {
    NotMeasured.NO_COUNTER: "no counter of steps",
    NotMeasured.STOOD_STILL: "made no step",
    NotMeasured.TOO_FEW_SAMPLES: "too few samples of the counter",
    NotMeasured.NEIGHBOUR_STOOD_STILL: "beside a job that made no step",
    NotMeasured.SEVERAL_DEVICES: "with a job on several devices",
}


def audit_document(report: AuditReport, source: str, match: MatchReplay | None = None) -> Document:
    """Return the report of an audit as a document; `source` names the origin of the monitoring data, `match` is what
    Match would have done."""
    return Document(
        TITLE,
        (
            Sentence(f"{scope(report)}.", tone=Tone.LEAD),
            Sentence(f"{source}, {span(report)}", tone=Tone.NOTE),
            Sentence(total(report), lead=headline(report), tone=_tone(report)),
            _key_figures(report, match),
            *_who_hurts_whom(report),
            *_heat_maps(report),
            _workloads(report),
            *_changes(report, match),
            *_next_pairs(report),
            *_groups(report),
            Section("Know before you rely on it", (Items(tuple(notes(report))),)),
        ),
    )


def _tone(report: AuditReport) -> Tone:
    if any(pair.verdict is PairVerdict.SEPARATE for pair in report.pairs):
        return Tone.BAD
    return Tone.GOOD if not report.hides_sharing and all(pair.is_known for pair in report.pairs) else Tone.UNSURE


def _key_figures(report: AuditReport, match: MatchReplay | None) -> doc.Tiles:
    known = sum(all(side.origin is Origin.MEASURED for side in pair.sides) for pair in report.pairs)
    separate = sum(pair.verdict is PairVerdict.SEPARATE for pair in report.pairs)
    apart = [each for each in report.separations if each.is_certain]
    share, every = report.shared_hours / report.busy_hours if report.busy_hours else math.nan, len(report.pairs)

    lost = report.lost_hours if _is_any_cost_known(report) else DASH
    by_apart = apart[-1].total.gain / report.weeks if apart else DASH
    by_match = match.change.gain / match.weeks if match else DASH
    tiles: tuple[tuple[float | str, NumberFormat | None, str, str], ...] = (
        (lost, JOB_HOURS, "of progress lost by sharing", "job-hours, measured and predicted"),
        (share, percent(), "of busy device time was shared", hours(report.shared_hours)),
        (f"{known} of {every}", None, "pairs measured both ways", f"{report.windows:,} windows"),
        (f"{separate} of {every}", None, "pairs faster one after the other", "by the ends of both intervals"),
        (by_apart, GPU_HOURS, "GPU hours a week", "by keeping pairs apart"),
        (by_match, GPU_HOURS, "GPU hours a week", "by Match at each start"),
    )
    return doc.Tiles(
        tuple(doc.Tile(value=value, form=form, label=label, detail=detail) for value, form, label, detail in tiles)
    )


def _sides(pair: PairCost) -> tuple[VictimCost, ...]:
    """Return the costs of both victims of a pair, the most slowed first; a pair of two copies of one workload has one
    cost."""
    first = pair.worst_side
    other = pair.sides[0] if pair.sides[1] is first else pair.sides[1]
    return (first, other) if pair.names[0] != pair.names[1] else (first,)


def _slowdown(side: VictimCost) -> Estimate:
    return Estimate(side.slowdown, side.lower, side.upper)


def _who_hurts_whom(report: AuditReport) -> list[Section]:
    if not report.pairs:
        return []
    rows: list[tuple[doc.Cell, ...]] = []
    for pair in report.pairs:
        verdict: doc.Cell = doc.Toned(pair.verdict.value, VERDICT_TONE[pair.verdict]) if pair.is_known else "unknown"
        for k, side in enumerate(_sides(pair)):
            lost = side.lost_hours(side.slowdown)
            slowdown = math.nan if side.origin is Origin.UNKNOWN else side.slowdown
            pair_cells = (pair.device_hours, lost, verdict) if k == 0 else (None, lost, None)
            rows.append((side.victim, side.company[0], slowdown, interval(side), *pair_cells, evidence(side)))
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
    """Return a plot of the slowdowns and their intervals in the order of the table; predicted slowdowns are hollow."""
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
    """Return one map for each device type: the measured slowdowns of all pairs."""
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
    columns = (
        Column("workload", of="workload"),
        Column("device", of="device_type", is_detail=True),
        Column("jobs", COUNT, of="jobs"),
        Column("alone", JOB_HOURS, of="alone_hours"),
        Column("shared", JOB_HOURS, of="shared_hours"),
        Column("lost", JOB_HOURS, of=lambda cost: cost.lost_hours if cost.is_any_known else None),
        Column("at least", JOB_HOURS, of=lambda cost: cost.lost_lower if cost.is_any_known else None),
        Column("at most", JOB_HOURS, of=lambda cost: cost.lost_upper if cost.is_any_known else None),
        Column("cost unknown", JOB_HOURS, of=lambda cost: cost.unknown_hours or None),
    )
    title = "What each workload lost"
    table = doc.table_of(title, columns, report.workloads, fold=MAX_WORKLOADS)
    note = "Lost: hours in company · (1 - 1 ÷ slowdown), the progress alone that was not made."
    return Section(title, (Sentence(note, tone=Tone.NOTE), table), anchor="workloads")


def _changes(report: AuditReport, match: MatchReplay | None) -> list[Section]:
    parts: list[doc.Part] = [*_keep_apart(report), *_matched(match)]
    return [Section("What to change", tuple(parts), anchor="change")] if parts else []


def _keep_apart(report: AuditReport) -> list[Section]:
    """Return which pairs to keep apart, what that gains, and what to type; no section where no pair is known."""
    certain = [each for each in report.separations if each.is_certain]
    if not any(pair.is_known for pair in report.pairs):
        return []
    if not certain:
        return [Section("Keep apart", (Sentence(undecided_text(report)),))]
    columns = (
        Column("keep", of="victim"),
        Column("apart from", of="neighbour"),
        Column("gain a week", JOB_HOURS, of=lambda each: _weekly(each.change, report.weeks)),
        Column("in all", JOB_HOURS, of=lambda each: each.total.gain / report.weeks),
        Column("together", JOB_HOURS, of="device_hours"),
        Column("device", of="device_type", is_detail=True),
    )
    table = doc.table_of("Keep apart", columns, certain)
    parts: list[doc.Part] = [Sentence(apart_text(report, certain)), table, Sentence(APART_NOTE, tone=Tone.NOTE)]
    typed = orders(certain, report.estimates)
    return [Section("Keep apart", tuple(parts)), *([orders_section(typed)] if typed else [])]


def _matched(match: MatchReplay | None) -> list[Section]:
    """Return what Match would have done; no section where it was not asked."""
    if match is None:
        return []
    columns = (
        Column("pair", of=lambda shift: pair_text(shift.names)),
        Column("hours now", JOB_HOURS, of="hours_before"),
        Column("hours then", JOB_HOURS, of="hours_after"),
        Column("slowdowns", of=lambda shift: "predicted" if shift.predicted else "measured"),
    )
    shifts = doc.table_of("Pairs whose hours change", columns, match.change.shifts, fold=MAX_SHIFTS)
    text = Sentence(match_text(match))
    return [Section("What Match would have done", (text, Items(tuple(match_assumptions(match))), shifts))]


def _weekly(change: CompanyChange, weeks: float) -> Estimate:
    return Estimate(change.gain / weeks, change.lower / weeks, change.upper / weeks)


def _gain_text(change: CompanyChange, weeks: float) -> str:
    gain, *ends = _weekly(change, weeks)[:3]
    digits = 1 if abs(gain) >= 1 else 2
    low, high = (f"{each:,.{digits}f}" for each in ends)
    return f"{gain:+,.{digits}f} GPU hours a week ({low} to {high})"


def _next_pairs(report: AuditReport) -> list[Section]:
    items = tuple(next_pair_text(each) for each in report.next_pairs)
    return [Section("Measure next", (Items(items, ordered=True),), anchor="next")] if items else []


def _groups(report: AuditReport) -> list[Section]:
    """Return a section on workloads beside several neighbours; no section where no device had three jobs."""
    columns = (
        Column("victim", of="victim"),
        Column("beside", of=lambda side: " + ".join(side.company)),
        Column("slowdown", TIMES, of="slowdown"),
        Column("95 % interval", of=interval),
        Column("hours", JOB_HOURS, of="hours"),
    )
    title = "Three jobs or more on one device"
    table = doc.table_of(title, columns, report.groups, fold=MAX_PAIRS)
    return [Section(title, (table,), anchor="groups", is_detail=True)] if report.groups else []


# --- sentences --------------------------------------------------------------------------------------------------------


def span(report: AuditReport) -> str:
    """Return the span of time that was audited, in words."""
    first, last = (
        datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M") for at_s in (report.start_s, report.end_s)
    )
    return f"{first} to {last} UTC"


def scope(report: AuditReport) -> str:
    """Return a sentence on the amount of data that the audit has read."""
    share = report.shared_hours / report.busy_hours if report.busy_hours else 0.0
    return (
        f"{count_noun(report.devices, 'device')}, {count_noun(report.jobs, 'job')} of "
        f"{count_noun(len({each.workload for each in report.workloads}), 'workload')}; "
        f"{hours(report.busy_hours)} of devices in use, {hours(report.shared_hours)} of them shared ({share:.0%})"
    )


def headline(report: AuditReport) -> str:
    """Return the sentence that sums up the audit: the worst pair, or why none is known."""
    pair = next((pair for pair in report.pairs if pair.worst_side.origin is Origin.MEASURED), None)
    if report.hides_sharing:
        return HIDDEN_SHARING
    if report.shared_hours == 0:
        return "No device was shared in this time, so sharing cost nothing."
    if pair is None:
        return "Which jobs shared a device is known, but not what it cost them: see what to do below."
    worst = pair.worst_side
    text = f"{worst.victim} ran {format_slowdown(worst.slowdown)} times slower beside {worst.company[0]}"
    return f"{text} ({interval(worst)}), {hours(pair.device_hours)} together: the worst pair of this site."


def total(report: AuditReport) -> str:
    """Return a sentence with the total cost of sharing and its bounds."""
    low, high = sum(each.lost_lower for each in report.workloads), sum(each.lost_upper for each in report.workloads)
    unknown = sum(each.unknown_hours for each in report.workloads)
    if unknown > 0 and not _is_any_cost_known(report):
        return f"What sharing cost is unknown for all {hours(unknown)} of jobs in company."
    text = f"Sharing cost {hours(report.lost_hours)} of jobs' progress, between {hours(low)} and {hours(high)}."
    return text + (f" For another {hours(unknown)} of jobs in company the cost is unknown." if unknown > 0 else "")


def _is_any_cost_known(report: AuditReport) -> bool:
    return any(each.is_any_known for each in report.workloads if each.shared_hours > 0)


def interval(side: VictimCost) -> str:
    """Return the 95 % interval of a victim's slowdown in words, marked where it is predicted."""
    if side.origin is Origin.UNKNOWN:
        return "unknown"
    text = f"{format_slowdown(side.lower)} to {format_slowdown(side.upper)}"
    return text if side.origin is Origin.MEASURED else f"{text}, predicted"


def evidence(side: VictimCost) -> str:
    """Return the evidence for a workload's slowdown, in words."""
    if side.origin is Origin.UNKNOWN:
        return "never seen alone, or no counter"
    if side.origin is Origin.PREDICTED:
        return "predicted from other pairs"
    where = "same jobs" if side.baseline is Baseline.SAME_JOBS else "other jobs"
    return f"{count_noun(side.episodes, 'time')}; alone: {where}"


def pair_text(names: tuple[str, str]) -> str:
    """Return the names of two workloads, joined by a plus."""
    return f"{names[0]} + {names[1]}"


def apart_text(report: AuditReport, certain: Sequence[Separation]) -> str:
    """Return a sentence on what keeping pairs apart gains, and how much of it the first pair brings."""
    total, first = certain[-1].total, certain[0]
    if len(certain) == 1:
        return f"Kept apart, this pair gains {_gain_text(total, report.weeks)}; no other adds much for certain."
    share = first.change.gain / total.gain
    return f"Kept apart, these pairs gain {_gain_text(total, report.weeks)}; the first alone brings {share:.0%} of it."


def undecided_text(report: AuditReport) -> str:
    """Return a sentence for a site where no pair is certainly worth keeping apart."""
    if not report.separations:
        return "No pair is worth keeping apart: the same workloads would lose as much beside others."
    best = report.separations[0]
    return (
        f"Cannot tell whether keeping any pair apart helps: the best, {best.victim} from {best.neighbour}, would gain "
        f"{_gain_text(best.change, report.weeks)}."
    )


def match_text(match: MatchReplay) -> str:
    """Return a sentence with what Match would have gained, beside what happened."""
    change, lost = match.change, hours(match.change.lost_after)
    verdict = "" if change.lower > 0 or change.upper < 0 else " Whether it gains at all, nobody can tell."
    length = hours(match.weeks * WEEK_HOURS)
    return (
        f"Asked at {count_noun(match.decisions, 'start')} in {length}, Match would have lost {lost} "
        f"of progress instead of {hours(change.lost_before)}, on GPUs in use for {hours(change.device_hours_after)} "
        f"instead of {hours(change.device_hours_before)}: {_gain_text(change, match.weeks)}.{verdict}"
    )


def match_assumptions(match: MatchReplay) -> list[str]:
    """Return what the replay with Match takes for granted."""
    lines = list(MATCH_ASSUMPTIONS)
    if match.left_out_hours >= 0.05:
        lines.append(
            f"Left out: {hours(match.left_out_hours)} of GPUs with a cost that is unknown, a job on several GPUs, or "
            "three jobs on one."
        )
    if match.waited_hours > 0:
        lines.append(f"For {hours(match.waited_hours)} of jobs Match found no place; they count as lost in full.")
    return lines


def next_pair_text(each: NextPair) -> str:
    """Return a sentence with a pair that is worth measuring, and the reason."""
    reason = REASONS[each.reason].format(alone=" and ".join(each.never_alone))
    if each.never_alone and each.reason is Reason.NEVER_TOGETHER:
        reason += f"; run {' and '.join(each.never_alone)} alone as well"
    return f"{pair_text(each.names)} on {each.device_type}: {reason} ({hours(each.hours_at_stake)} at stake)"


def load_note(each: WorkloadCost) -> str:
    """Return a note that input or load changes a workload's rate beside the same neighbours."""
    return (
        f"{each.workload}: its rate varies by {each.noise_sd:.0%} from one time to the next in the same company, so "
        "load or input confounds what sharing cost it."
    )


def notes(report: AuditReport) -> list[str]:
    """Return the warnings that a reader needs before relying on the report, the most specific first."""
    lines = [report.hint] if report.hint else []
    if not report.progress:
        lines.append("No counter of steps was named (--progress), so nothing is known of what sharing cost.")
    elif report.counted_jobs < report.jobs:
        lines.append(f"The counter shows steps of {report.counted_jobs:,} of {report.jobs:,} jobs.")
    lines += [load_note(each) for each in report.workloads if each.moved_by_load]
    never = sorted({each.workload for each in report.workloads if each.alone_hours == 0 and each.shared_hours > 0})
    if never:
        lines.append(f"Never seen alone, so without a baseline: {', '.join(never)}. What is said of them is predicted.")
    if report.not_measured:
        counts = ", ".join(f"{count} {NOT_MEASURED[reason]}" for reason, count in report.not_measured)
        lines.append(f"Sides of windows without a rate, of {report.windows} windows: {counts}.")
    lines += [f"Left out: {count} {what}." for what, count in report.left_out]
    return [*lines, BASELINE_NOTE, COVERAGE_CLAIM, OTHER_CAUSES]
