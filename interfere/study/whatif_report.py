"""The report of a what-if question: what sharing changes under each queue, what is not known, and what to measure.

Laws: how much of the trace is covered comes before any gain; a figure shows nothing that a table does not say.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interfere.records.cluster import DEFAULT_SEATS
from interfere.reports.document import (
    Axis,
    Cell,
    Code,
    Colour,
    Column,
    Document,
    Items,
    LinePlot,
    Mark,
    Panel,
    Part,
    Point,
    Section,
    Sentence,
    Series,
    Table,
    Tile,
    Tiles,
    Tone,
    table_of,
)
from interfere.reports.numbers import COUNT, DASH, PLAIN, fixed, hours, percent
from interfere.sim.schedulers.records import Sharing
from interfere.sim.truth import Composition
from interfere.sim.uncertainty import CONFIDENCE
from interfere.study.comparison import Line, TraceGroup
from interfere.study.questions import StudyInputs
from interfere.study.replay_report import CHANGE, HOURS, change_text, estimate, spread

if TYPE_CHECKING:
    from interfere.study.whatif_question import PlacementComparison, WhatIfAnswer

SAME_SHARE = 0.01  # greedy within this of matching: the cheaper one is recommended
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
    Series(name="the trace's own load", mark=Mark.DIAMOND, colour=Colour.INK),
    Series(name="jobs on several GPUs share too, by an assumption", colour=Colour.ORANGE, is_assumed=True),
)
SCENARIOS = {
    "alone": "run alone",
    "median": "share as the median measured pair",
    "worst": "share as the worst measured pair",
}
ASSUMED_GANGS = "gangs (assumed)"


def whatif_document(answer: "WhatIfAnswer") -> Document:
    """Return the report: the known facts, the answer, its evidence, and the pairs to measure."""
    text, tone = verdict(answer)
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
            Sentence(text, lead="Answer.", tone=tone),
            _key_figures(answer),
            Sentence(population_text(answer), tone=Tone.NOTE),
            *_by_load(answer),
            _by_queue(answer),
            *_by_seats(answer),
            _placement(answer),
            _missing(answer),
            Section("Know before you rely on it", (Items(tuple(warnings(answer))),)),
        ),
    )


# --- sentences --------------------------------------------------------------------------------------------------------


def coverage_text(inputs: StudyInputs) -> str:
    """Return a sentence on the share of the trace that the slowdowns cover. A reader needs it before any gain."""
    coverage = inputs.coverage
    source = "The model predicts slowdowns of" if inputs.is_predicted else "Measured slowdowns cover"
    text = f"{source} {coverage.job_share:.1%} of the jobs and {coverage.gpu_h_share:.1%} of the GPU hours"
    if coverage.has_gangs:
        share = coverage.known_gang_gpu_h / coverage.known_gpu_h
        text += (
            f"; {share:.1%} of these hours are of jobs on several GPUs, which no table measured in pairs: they share "
            "only where a line says so"
        )
    if inputs.is_predicted:
        text = f"{text}; nothing of it is measured: every figure below is as good as these predictions"
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in inputs.left_out)
    return f"{text}; jobs left out of all this: {left_out}" if left_out else text


def _main_effects(answer: "WhatIfAnswer") -> list[Line]:
    """Return the effects of greedy placement in stable worlds, under each queue at the trace's own load.

    Where all worlds are overloaded, return the effects at the highest load of the study.
    """
    plain = [line for line in answer.effects if answer.is_plain(line) and line.scheduler.sharing is Sharing.GREEDY]
    own = [line for line in plain if line.task.load is None and line.group is TraceGroup.STABLE]
    if own:
        return own
    loads = [line.task.load for line in plain if line.task.load is not None]
    return [line for line in plain if loads and line.task.load == max(loads)]


def verdict(answer: "WhatIfAnswer") -> tuple[str, Tone]:
    """Return the first sentence, and its tone: good, bad or unsure."""
    effects = _main_effects(answer)
    if not effects or effects[0].change is None:
        return "No replay was finished that compares sharing with none.", Tone.UNSURE
    first, change = effects[0], effects[0].change
    load = first.task.load
    at = f"its own load ({first.load:.2f})" if load is None else f"a load of {load:g}"
    if all(line.score.shared == 0 for line in effects):
        return f"At {at} no job would share: devices are free whenever one arrives.", Tone.UNSURE
    text = (
        f"At {at}, sharing two jobs a GPU would change the mean completion time by {change_text(change)} under "
        f"{first.against}"
    )
    others = [f"{line.against} {change_text(line.change)}" for line in effects[1:] if line.change is not None]
    if others:
        text += f"; {', '.join(others)}"
    ends = change.interval
    if not ends.is_known:
        return f"{text}. No interval: {ends.missing}.", Tone.UNSURE
    if ends.high < 0 or ends.low > 0:
        return f"{text}.", Tone.GOOD if ends.high < 0 else Tone.BAD
    return f"{text}. Under {first.against} the interval holds 0: no change can be told from none.", Tone.UNSURE


def population_text(answer: "WhatIfAnswer") -> str:
    """Return a sentence on the populations that the intervals and spreads describe."""
    changes = [line.change for line in _main_effects(answer) if line.change is not None]
    if not changes:
        return ""
    change = next((each for each in changes if each.interval.is_known), changes[0])
    reason = f", none here: {change.interval.missing}" if change.interval.missing else ""
    return (
        f"In brackets: {CONFIDENCE:.0%} interval of the {change.interval.population}{reason}; it is from overlapping "
        "batches of these days and says nothing about other clusters. Spread: what "
        f"{CONFIDENCE:.0%} of {change.spread.population} bring."
    )


def placement_text(comparisons: "Sequence[PlacementComparison]") -> str:
    """Return a sentence on which placement to choose, greedy or matching."""
    if not comparisons:
        return "Greedy placement and matching were not compared."
    gap = min(comparisons, key=lambda each: each.difference)
    greedy_cpu_s = sum(each.greedy.cpu_s for each in comparisons)
    cost = f"takes {sum(each.matching.cpu_s for each in comparisons) / max(greedy_cpu_s, 1e-9):.1f} × the CPU time"
    at = f"{gap.matching.against} at load {gap.matching.load:.2f}"
    if gap.difference < -SAME_SHARE:
        sooner = f"{-100 * gap.difference:.1f} %"
        return f"Matching ends jobs up to {sooner} sooner than greedy placement ({at}); it {cost}."
    return (
        f"Greedy placement is within 1 % of matching wherever they were compared (at best "
        f"{CHANGE.number(gap.difference)} %, {at}), and matching {cost}: choose greedy, the simpler one."
    )


def scenario_text(answer: "WhatIfAnswer") -> str:
    """Return a sentence on how much the workloads without truth could change the answer."""
    inputs = answer.inputs
    if not inputs.unknown or inputs.is_predicted:
        return ""
    queue = answer.study.schedulers[0].label
    parts = [
        f"{change_text(line.change)} if they {SCENARIOS[inputs.replays.scenarios[line.task.scenario].name]}"
        for line in answer.effects
        if line.against == queue
        and _is_uncapped_greedy(line)
        and line.task.load is None
        and line.group is TraceGroup.STABLE
        and not answer.gangs_share(line)
        and line.change is not None
    ]
    share = sum(each.gpu_h for each in inputs.unknown) / max(inputs.coverage.gpu_h, 1e-12)
    head = f"Workloads without a measured pair have {share:.0%} of the GPU hours"
    return f"{head}; under {queue}: {', '.join(parts)}." if parts else f"{head}."


def _is_uncapped_greedy(line: Line) -> bool:
    return line.scheduler.sharing is Sharing.GREEDY and math.isinf(line.task.max_slowdown)


def warnings(answer: "WhatIfAnswer") -> list[str]:
    """Return the warnings that a reader needs before relying on the report."""
    oracle = [record.label for record in answer.study.schedulers if record.knows_durations]
    more_seats = ", more only where a line says so" if answer.study.seats else ""
    texts = [
        *answer.notes,
        "Durations are those of the trace, and the scheduler knows slowdowns as they are: a real one errs in both.",
        f"Two jobs share a device at most{more_seats}. Pairs whose memory does not fit are formed unless the table "
        "says so.",
    ]
    if oracle:
        known = f"{', '.join(oracle)}: the queue knows how long jobs will run, as users' limits at best tell."
        texts.insert(-1, known)
    if answer.inputs.coverage.has_gangs:
        texts.append(
            "Jobs on several GPUs share only in the lines that say so, and there slow down as on one GPU: nobody "
            "measured that."
        )
    if any(line.group is TraceGroup.OVERLOADED for line in answer.effects):
        texts.append("Worlds with an own load of 1 or more stand apart: gains there grow with the length of the trace.")
    texts.append(f"{answer.replays} of {answer.planned} replays, {answer.cpu_s:.0f} s of CPU.")
    return texts


# --- sections ---------------------------------------------------------------------------------------------------------


def _key_figures(answer: "WhatIfAnswer") -> Tiles:
    coverage = answer.inputs.coverage
    main = next(iter(_main_effects(answer)), None)
    change = main.change if main else None
    interval = CHANGE.ends(change.interval.low, change.interval.high) if change else ""
    without = f"{hours(1).text(main.reference.mean_completion_s)} without" if main and main.reference else DASH
    return Tiles(
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
            Tile(value=answer.load, form=LOAD, label="offered load", detail="1 = all devices busy all the time"),
            Tile(
                value=change.mean if change else DASH,
                form=CHANGE,
                label=f"mean completion time, {main.against}" if main else "mean completion time",
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


def _by_load(answer: "WhatIfAnswer") -> list[Section]:
    """Return a plot and a table of the change by load, for greedy placement without a cap on stable worlds."""
    shown = [
        line
        for line in answer.effects
        if _is_uncapped_greedy(line)
        and not line.task.scenario
        and line.group is TraceGroup.STABLE
        and line.change is not None
    ]
    if not shown:
        return []
    loads = sorted({line.task.load for line in shown if line.task.load is not None})
    rows: list[tuple[Cell, ...]] = []
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
    table = Table(
        title="Change of the mean completion time by greedy sharing without a cap, by load (%)",
        columns=(Column("queue"), *(Column(heading, change, is_brief=True) for heading in headings)),
        rows=tuple(rows),
    )
    return [Section("What sharing would bring, by load", (Sentence(LOAD_LEGEND), _load_plot(answer, shown), table))]


def _load_plot(answer: "WhatIfAnswer", lines: Sequence[Line]) -> LinePlot:
    """Return a plot of the change by load with one panel for each queue."""
    loads = [line.load for line in lines]
    series = LOAD_SERIES if answer.inputs.coverage.has_gangs else LOAD_SERIES[:2]

    def points(queue: str, place: int) -> tuple[Point, ...]:
        return tuple(
            Point(
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
    return LinePlot(
        title="Change of the mean completion time by load",
        x=Axis(title="offered load", form=PLAIN, low=min(loads) - 0.05, high=max(loads) + 0.05),
        y=Axis(title="change (%)", form=CHANGE),
        series=series,
        panels=tuple(
            Panel(title=queue, points=tuple(points(queue, place) for place in range(len(series)))) for queue in queues
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
    return Section(title, (Sentence(CAP_LEGEND), table_of(title, columns, sorted(shown, key=lambda e: _place(e)[:2]))))


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


def _placement(answer: "WhatIfAnswer") -> Section:
    seconds = fixed(1, "s", quantity="s")
    columns = (
        Column("queue", of="matching.against"),
        Column("load", LOAD, of="matching.load"),
        Column("greedy", HOURS, of="greedy.score.mean_completion_s"),
        Column("matching", HOURS, of="matching.score.mean_completion_s"),
        Column("difference", CHANGE, of="difference"),
        Column("CPU of greedy", seconds, of="greedy.cpu_s"),
        Column("of matching", seconds, of="matching.cpu_s"),
    )
    table = table_of("Greedy placement beside matching", columns, answer.comparisons)
    text = Sentence(placement_text(answer.comparisons))
    return Section("Greedy placement or matching", (text, *([table] if table.rows else [])))


def _missing(answer: "WhatIfAnswer") -> Section:
    share = percent().text(answer.missing.unmeasured_share)
    text = (
        f"Of the hours in which jobs would meet if everybody shared with whoever is there, {share} are of pairs that "
        f"nobody measured. {scenario_text(answer)}"
    )
    parts: list[Part] = [Sentence(text.rstrip())]
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
        command = Code("interfere profile command --spec jobs.toml")
        note = Sentence((order, command, " measures your own programs."), tone=Tone.NOTE)
        parts.append(Section("Measure these pairs first", (table, note)))
    return Section("What is not known, and what to measure", tuple(parts))
