"""The report of a what-if question: what sharing changes under each queue, what is not known, and what to measure.

Laws: how much of the trace is covered comes before any gain; a figure shows nothing that a table does not say.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interfere.records.cluster import DEFAULT_SEATS
from interfere.reports import document as report
from interfere.reports.document import Axis, Colour, Column, Document, Section, Sentence, Series, Tile, Tone, table_of
from interfere.reports.numbers import COUNT, DASH, PLAIN, fixed, hours, percent
from interfere.sim.schedulers.queue import Backfill
from interfere.sim.schedulers.records import Queue, SchedulerRecord, Sharing
from interfere.sim.truth import Composition
from interfere.study.comparison import Line, TraceGroup
from interfere.study.replay_report import CHANGE, HOURS, change_text, estimate, spread
from interfere.study.whatif_findings import LATER_SHARE
from interfere.study.whatif_sentences import (
    coverage_text,
    is_uncapped_greedy,
    main_change,
    main_effects,
    population_text,
    scenario_text,
    verdict,
    warnings,
)

if TYPE_CHECKING:
    from interfere.study.whatif_question import WhatIfAnswer

MAX_UNKNOWN = 10  # workloads without truth that are listed unfolded
SURE_SHARE = 0.5  # of GPU hours: below, the coverage is shown as a doubt
ASSUMED_SHIFT = 0.007  # of the assumed marks beside the measured ones, in load
LOAD = fixed(2)
LOAD_LEGEND = (
    "Change of the mean completion time of all jobs by greedy placement, two jobs a GPU, against the same queue "
    "without sharing. Below 0: jobs end sooner. Lines are the intervals of the mean, cut at the edge of the plot."
)
CAP_LEGEND = (
    "A cap is the largest predicted slowdown that a job may suffer by sharing. Past 1.5 ×: pairs that truly slowed a "
    "side by more. Shared: of busy device time, with two jobs."
)
GROUPS = (
    "Three and more jobs on a device, under queues that stop no job: matching alone forms such groups. One that nobody "
    "measured slows each job down by the sum of its pairs, 1 + Σ (s - 1), or by their product; measured groups lie "
    "between the two."
)
LOAD_SERIES = (
    Series(name="arrivals stretched to this load"),
    Series(name="the trace's own load", mark=report.Mark.DIAMOND, colour=Colour.INK),
    Series(name="jobs on several GPUs share too, by an assumption", colour=Colour.ORANGE, is_assumed=True),
)
ASSUMED_GANGS = "gangs (assumed)"
ORDERS = {
    Queue.FIFO: "first come, first served",
    Queue.SJF: "the shortest job first, by its true run time",
    Queue.QSSF: "the least expected GPU time first, by what the same user and size took before",
    Queue.TIRESIAS: "the job that had least GPU time so far first; running jobs are stopped for it",
    Queue.SRTF: "the shortest remaining time first, by true run times; running jobs are stopped for it",
}
BACKFILLS = {
    Backfill.NONE: "nobody passes the first",
    Backfill.EASY: "others pass where that does not delay the first",
    Backfill.FIRST_FIT: "others pass where they fit",
}


def whatif_document(answer: "WhatIfAnswer") -> Document:
    """Return the report: the known facts, the answer, its evidence, and the pairs to measure."""
    (first, *rest), tone = verdict(answer)
    inputs = answer.inputs
    is_sure = inputs.coverage.gpu_h_share >= SURE_SHARE and not inputs.is_predicted and not inputs.left_out
    interrupted = Sentence(
        "", lead=f"Interrupted: {answer.replays} of {answer.planned} replays were done.", tone=Tone.BAD
    )
    return Document(
        f"What sharing GPUs would do to {inputs.trace}",
        (
            Sentence(f"{coverage_text(inputs)}.", lead="Known.", tone=Tone.GOOD if is_sure else Tone.UNSURE),
            *([interrupted] if answer.interrupted else []),
            Sentence(first, lead="Answer.", tone=tone),
            *([report.Items(tuple(rest))] if rest else []),
            _key_figures(answer),
            Sentence(population_text(answer), tone=Tone.NOTE),
            *_by_load(answer),
            *_by_group(answer),
            *_by_server(answer),
            _by_queue(answer),
            *_by_seats(answer),
            _missing(answer),
            Section("Know before you rely on it", (report.Items(tuple(warnings(answer))),)),
        ),
    )


# --- sections ---------------------------------------------------------------------------------------------------------


def _key_figures(answer: "WhatIfAnswer") -> report.Tiles:
    coverage = answer.inputs.coverage
    main = next(iter(main_effects(answer)), None)
    change = main_change(answer, main) if main and main.change else None
    interval = CHANGE.ends(change.interval.low, change.interval.high) if change else ""
    months = " over months at such loads" if answer.over_loads else ""
    saved = (
        Tile(
            value=f"{each.with_sharing} of {each.devices}",
            label=f"{'GPUs' if len(answer.saved) == 1 else each.device_type} to give back at equal service",
            detail=f"{each.without_sharing} without sharing",
        )
        for each in answer.saved
    )
    without = f"{hours(1).text(main.reference.mean_completion_s)} without" if main and main.reference else DASH
    return report.Tiles(
        (
            Tile(
                value=coverage.gpu_h_share,
                form=percent(),
                label="of the GPU hours covered",
                detail=f"{coverage.gpu_h:,.0f} GPU hours",
            ),
            Tile(
                value=coverage.job_share, form=percent(), label="of the jobs covered", detail=f"{coverage.jobs:,} jobs"
            ),
            *saved,
            Tile(value=answer.load, form=LOAD, label="offered load", detail="1 = all devices busy all the time"),
            Tile(
                value=change.mean if change else DASH,
                form=CHANGE,
                label=f"mean completion time{months}, {main.against}" if main else "mean completion time",
                detail=interval or "no interval",
            ),
            Tile(
                value=main.score.mean_completion_s if main else DASH,
                form=hours(1),
                label="mean completion time with sharing",
                detail=without,
            ),
        )
    )


def _by_group(answer: "WhatIfAnswer") -> list[Section]:
    """Return a section on the jobs that end later; empty where that is not known."""
    if not answer.later:
        return []
    columns = (
        Column("of", of="kind"),
        Column("jobs", of="name"),
        Column("how many", COUNT, of="jobs"),
        Column(f"over {LATER_SHARE:.0%} later", percent(1), of="later_share"),
        Column("sooner", percent(1), of=lambda group: group.sooner / group.jobs),
    )
    queue = answer.study.schedulers[0].label
    table = table_of(f"Jobs that end later, under {queue}", columns, answer.later)
    legend = (
        "From arrival to end, at the trace's own load, each job beside itself without sharing. Of users and workloads "
        "those are shown who have most jobs that end later."
    )
    return [Section("Who would end later", (Sentence(legend), table))]


def _by_server(answer: "WhatIfAnswer") -> list[Section]:
    """Return a section on one week under the server's decisions; empty where that was not replayed."""
    if not answer.week:
        return []
    columns = (
        Column("scheduler", of="scheduler.label"),
        Column("mean", HOURS, of="score.mean_completion_s"),
        Column("change of mean", CHANGE, of="change"),
        Column("nine in ten wait at most", hours(1), of="score.p90_waiting_s"),
        Column("shared", percent(), of="score.shared"),
    )
    first = answer.week[0]
    legend = (
        f"The server's own decisions ({answer.week[-1].scheduler.label}) beside the first queue, on the week of the "
        f"trace whose load is nearest to its mean, {first.score.jobs:,} jobs. The server is told run "
        "times, as users' limits at best tell them. One week: no interval."
    )
    table = table_of("One week under the server's decisions", columns, answer.week)
    return [Section("What interfere's own decisions would bring", (Sentence(legend), table))]


def _by_load(answer: "WhatIfAnswer") -> list[Section]:
    """Return a plot and a table of the change by load, for greedy placement without a cap on stable worlds."""
    shown = [
        line
        for line in answer.effects
        if is_uncapped_greedy(line)
        and not line.task.scenario
        and line.group is TraceGroup.STABLE
        and line.change is not None
    ]
    if not shown:
        return []
    loads = sorted({line.task.load for line in shown if line.task.load is not None})
    rows: list[tuple[report.Cell, ...]] = []
    for queue, gangs in dict.fromkeys((line.against, answer.gangs_share(line)) for line in shown):
        changes = {
            line.task.load: estimate(line.change)
            for line in shown
            if (line.against, answer.gangs_share(line)) == (queue, gangs)
        }
        label = f"{queue}, {ASSUMED_GANGS}" if gangs else queue
        rows.append((label, *(changes.get(load, math.nan) for load in [None, *loads])))
    change = fixed(1, quantity="fraction", scale=100, sign=True)  # the title says per cent
    headings = (f"own ({answer.load:.2f})", *(f"{load:g}" for load in loads))
    table = report.Table(
        title="Change of the mean completion time by greedy sharing without a cap, by load (%)",
        columns=(Column("queue"), *(Column(heading, change, is_brief=True) for heading in headings)),
        rows=tuple(rows),
    )
    return [Section("What sharing would bring, by load", (Sentence(LOAD_LEGEND), _load_plot(answer, shown), table))]


def _load_plot(answer: "WhatIfAnswer", lines: Sequence[Line]) -> report.LinePlot:
    """Return a plot of the change by load with one panel for each queue."""
    loads = [line.load for line in lines]
    series = LOAD_SERIES if answer.inputs.coverage.has_gangs else LOAD_SERIES[:2]

    def points(queue: str, place: int) -> tuple[report.Point, ...]:
        return tuple(
            report.Point(
                line.load + (ASSUMED_SHIFT if answer.gangs_share(line) else 0.0),
                line.change.mean,
                line.change.interval.low,
                line.change.interval.high,
                f"load {line.load:.2f}: {change_text(line.change)}",
            )
            for line in lines
            if line.change is not None
            and line.against == queue
            and place == (2 if answer.gangs_share(line) else 1 if line.task.load is None else 0)
        )

    names = [record.label for record in answer.study.schedulers]
    queues = [queue for queue in names if any(line.against == queue for line in lines)]
    return report.LinePlot(
        title="Change of the mean completion time by load",
        x=Axis(title="offered load", form=PLAIN, low=min(loads) - 0.05, high=max(loads) + 0.05),
        y=Axis(title="change (%)", form=CHANGE),
        series=series,
        panels=tuple(
            report.Panel(title=queue, points=tuple(points(queue, place) for place in range(len(series))))
            for queue in queues
        ),
    )


QUEUE, OFFERED = Column("queue", of="against"), Column("load", LOAD, of="load")
MEAN = Column("mean", HOURS, of="score.mean_completion_s")
P99 = Column("99 % of jobs within", hours(1), of="score.p99_completion_s", is_detail=True)
CHANGE_OF_MEAN = Column("change of mean", CHANGE, of=lambda line: estimate(line.change))


def _by_queue(answer: "WhatIfAnswer") -> Section:
    """Return the effects at the trace's own load and at the load at which caps were compared, overloaded worlds
    last."""

    def placement(line: Line) -> str:
        words = (
            str(line.scheduler.sharing),
            ASSUMED_GANGS if answer.gangs_share(line) else "",
            f"cap {line.task.max_slowdown:g}" if math.isfinite(line.task.max_slowdown) else "",
            _overloaded(line),
        )
        return ", ".join(filter(None, words))

    capped = {line.task.load for line in answer.effects if math.isfinite(line.task.max_slowdown)}
    pairs = [line for line in answer.effects if line.scheduler.seats == DEFAULT_SEATS and not line.task.scenario]
    shown = [line for line in pairs if line.task.load in capped | {None}]
    columns = (
        QUEUE,
        OFFERED,
        Column("placement", of=placement),
        CHANGE_OF_MEAN,
        Column("spread", percent(0, sign=True), of=lambda line: spread(line.change), is_detail=True),
        MEAN,
        P99,
        Column("shared", percent(), of="score.shared", is_detail=True),
        Column("past 1.5 ×", percent(), of="score.past_cap"),
    )
    title = "By queue and cap"
    queues = report.Terms(tuple((record.label, queue_text(record)) for record in answer.study.schedulers))
    return Section(
        title, (queues, Sentence(CAP_LEGEND), table_of(title, columns, sorted(shown, key=lambda e: _place(e)[:2])))
    )


def queue_text(record: SchedulerRecord) -> str:
    """Return in words how a queue orders jobs; empty for an order without words."""
    return f"{ORDERS[record.queue]}; {BACKFILLS[record.backfill]}" if record.queue in ORDERS else ""


def _overloaded(line: Line) -> str:
    return "overloaded" if line.group is TraceGroup.OVERLOADED else ""


def _place(line: Line) -> tuple[bool, float, str]:
    """Return the order of an effect in a table: stable worlds before overloaded ones, then by load and by queue."""
    return line.group is TraceGroup.OVERLOADED, line.task.load or 0.0, line.against


def _by_seats(answer: "WhatIfAnswer") -> list[Section]:
    """Return a section on more than two seats. In each queue and load the effect of two seats comes first.

    Empty where the study did not ask for more seats.
    """

    def seats(line: Line) -> str:
        by = f", by {line.task.composition}" if line.scheduler.seats > DEFAULT_SEATS else ""
        return ", ".join(filter(None, (f"{line.scheduler.seats}{by}", _overloaded(line))))

    def order(line: Line) -> tuple[bool, float, str, int, bool]:
        return (*_place(line), line.scheduler.seats, line.task.composition is not Composition.SUM)

    seated = {_place(line) for line in answer.effects if line.scheduler.seats > DEFAULT_SEATS}
    shown = [line for line in answer.effects if line.scheduler.sharing is Sharing.MATCHING and _place(line) in seated]
    if not shown:
        return []
    columns = (
        QUEUE,
        OFFERED,
        Column("jobs a device", of=seats),
        CHANGE_OF_MEAN,
        Column("against two", CHANGE, of=lambda line: estimate(line.change_to_pairs)),
        Column("mean", HOURS, of="score.mean_completion_s", is_detail=True),
        P99,
        Column("shared", percent(), of="score.shared", is_detail=True),
    )
    table = table_of("By jobs a device, under matching", columns, sorted(shown, key=order))
    return [Section("More than two jobs a device", (Sentence(GROUPS), table))]


def _missing(answer: "WhatIfAnswer") -> Section:
    share = percent().text(answer.missing.unmeasured_share)
    text = (
        f"Of the hours in which jobs would meet if everybody shared with whoever is there, {share} are of pairs that "
        f"nobody measured. {scenario_text(answer)}"
    )
    parts: list[report.Part] = [Sentence(text.rstrip())]
    if answer.inputs.unknown:
        columns = (
            Column("workload without a measured pair", of=lambda each: each.workload or "(no workload named)"),
            Column("jobs", COUNT, of="jobs"),
            Column("GPU hours", COUNT, of="gpu_h"),
        )
        parts.append(table_of("Workloads without truth", columns, answer.inputs.unknown, fold=MAX_UNKNOWN))
    if answer.missing.pairs:
        pair_columns = (
            Column("pair", of="text"),
            Column("GPU hours in which they would meet", COUNT, of="gpu_h"),
            Column("speeds known to ±", fixed(2), of="error_now"),
            Column("lowers the error of all by", percent(1), of="narrows"),
        )
        table = table_of("Pairs to measure first", pair_columns, answer.missing.pairs)
        order = "In the order of what they tell about this trace, each as if those before it had been measured: "
        command = report.Code("interfere profile command --spec jobs.toml")
        note = Sentence((order, command, " measures your own programs."), tone=Tone.NOTE)
        parts.append(Section("Measure these pairs first", (table, note)))
    return Section("What is not known, and what to measure", tuple(parts))
