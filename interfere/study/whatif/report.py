"""A what-if answer as a document for people, and as facts for programs.

Laws: how much of the trace is covered comes before any gain; a figure shows nothing that a table does not say.
"""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interfere.records.cluster import DEFAULT_SEATS
from interfere.reports.document import (
    Axis,
    Cell,
    Code,
    Colour,
    Column,
    Document,
    Estimate,
    Items,
    LinePlot,
    Mark,
    Panel,
    Part,
    Point,
    Range,
    Section,
    Sentence,
    Series,
    Table,
    Tile,
    Tiles,
    Tone,
)
from interfere.reports.numbers import COUNT, DASH, PLAIN, fixed, hours, percent
from interfere.sim.schedulers.records import Sharing
from interfere.sim.truth import Composition
from interfere.sim.uncertainty import UncertainMean
from interfere.study.study import study_facts
from interfere.study.whatif import wording
from interfere.study.whatif.effects import Effect, WhatIfFindings

MAX_UNKNOWN = 10  # workloads without truth that are listed unfolded
SURE_SHARE = 0.5  # of GPU hours: below, the coverage is shown as a doubt
ASSUMED_SHIFT = 0.007  # of the assumed marks beside the measured ones, in load
LOAD_LEGEND = (
    "Change of the mean completion time of all jobs by greedy placement, two jobs a GPU, against the same queue "
    "without sharing. Below 0: jobs end sooner. Lines are the intervals of the mean, cut at the edge of the plot."
)
CAP_LEGEND = (
    "A cap is the largest predicted slowdown that a job may suffer by sharing. Past 1.5 ×: pairs that truly slowed a "
    "side by more. Shared: of busy device time, with two jobs."
)
CHANGE, LOAD, HOURS = percent(1, sign=True), fixed(2), hours()
LOAD_SERIES = (
    Series(name="arrivals stretched to this load"),
    Series(name="the trace's own load", mark=Mark.DIAMOND, colour=Colour.INK),
    Series(name="jobs on several GPUs share too, by an assumption", colour=Colour.ORANGE, is_assumed=True),
)


def whatif_document(answer: WhatIfFindings) -> Document:
    """Return the report: the known facts, the answer, its evidence, and the pairs to measure."""
    text, tone = wording.verdict(answer)
    is_sure = answer.coverage.gpu_h_share >= SURE_SHARE and not answer.is_predicted and not answer.left_out
    interrupted = Sentence(
        "", lead=f"Interrupted: {answer.replays} of {answer.planned} replays were done.", tone=Tone.BAD
    )
    return Document(
        f"What sharing GPUs would do to {answer.trace}",
        (
            Sentence(f"{wording.coverage_text(answer)}.", lead="Known.", tone=Tone.GOOD if is_sure else Tone.UNSURE),
            *([interrupted] if answer.interrupted else []),
            Sentence(text, lead="Answer.", tone=tone),
            _key_figures(answer),
            Sentence(wording.population_text(answer), tone=Tone.NOTE),
            *_by_load(answer),
            _by_queue(answer),
            *_by_seats(answer),
            _placement(answer),
            _missing(answer),
            Section("Know before you rely on it", (Items(tuple(wording.notes(answer))),)),
        ),
    )


def whatif_facts(answer: WhatIfFindings, page: Path | None = None) -> dict[str, Any]:
    """Everything that was found, for programs. A cap of null is none; a target load of null is the trace's own."""
    text, tone = wording.verdict(answer)
    coverage = {
        "left_out": dict(answer.left_out),
        "is_predicted": answer.is_predicted,
        "text": wording.coverage_text(answer),
    }
    return {
        "question": study_facts(answer.study),
        "trace": answer.trace,
        "load": answer.load,
        "coverage": answer.coverage.facts() | coverage,
        "verdict": text,
        "tone": tone.value,
        "placement": wording.placement_text(answer.comparisons),
        "scenarios": wording.scenario_text(answer),
        "populations": wording.population_text(answer),
        "effects": [_effect_facts(effect) for effect in answer.effects],
        "comparisons": [asdict(each) | {"difference": each.difference} for each in answer.comparisons],
        "unknown": [asdict(each) for each in answer.unknown],
        "missing": asdict(answer.missing),
        "notes": wording.notes(answer),
        "replays": answer.replays,
        "planned": answer.planned,
        "interrupted": answer.interrupted,
        "page": str(page) if page is not None else None,
    }


def _effect_facts(effect: Effect) -> dict[str, Any]:
    cap = effect.max_slowdown
    return asdict(effect) | {"max_slowdown": cap if math.isfinite(cap) else None}


def _key_figures(answer: WhatIfFindings) -> Tiles:
    coverage = answer.coverage
    main = next(iter(wording.main_effects(answer)), None)
    change = main.change if main else None
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
                label=f"mean completion time, {main.queue}" if main else "mean completion time",
                detail=wording.interval(change) or "no interval",
            ),
            Tile(
                value=main.mean_completion_s if main else DASH,
                form=hours(1),
                label="mean completion time with sharing",
                detail=f"{hours(1).text(main.reference_completion_s)} without" if main else DASH,
            ),
        )
    )


def _estimate(change: UncertainMean | None) -> Estimate | None:
    return None if change is None else Estimate(change.mean, change.interval.low, change.interval.high)


def is_by_load(effect: Effect) -> bool:
    """Is an effect shown by load: greedy placement without a cap, of worlds with stable load?"""
    plain = math.isinf(effect.max_slowdown) and not effect.is_other_scenario and not effect.overloaded
    return plain and effect.sharing is Sharing.GREEDY and effect.change is not None


def _by_load(answer: WhatIfFindings) -> list[Section]:
    shown = [effect for effect in answer.effects if is_by_load(effect)]
    if not shown:
        return []
    loads = sorted({effect.target_load for effect in shown if effect.target_load is not None})
    rows: list[tuple[Cell, ...]] = []
    for queue, gangs in dict.fromkeys((effect.queue, effect.gangs_share) for effect in shown):
        changes = {e.target_load: _estimate(e.change) for e in shown if (e.queue, e.gangs_share) == (queue, gangs)}
        label = f"{queue}, gangs (assumed)" if gangs else queue
        rows.append((label, *(changes.get(load, math.nan) for load in [None, *loads])))
    change = fixed(1, quantity="fraction", scale=100, sign=True)  # the title says per cent
    headings = (f"own ({answer.load:.2f})", *(f"{load:g}" for load in loads))
    table = Table(
        title="Change of the mean completion time by greedy sharing without a cap, by load (%)",
        columns=(Column("queue"), *(Column(heading, change, is_brief=True) for heading in headings)),
        rows=tuple(rows),
    )
    return [Section("What sharing would bring, by load", (Sentence(LOAD_LEGEND), _load_plot(answer, shown), table))]


def _load_plot(answer: WhatIfFindings, effects: list[Effect]) -> LinePlot:
    """One panel for each queue, all on the same axes."""
    loads = [effect.load for effect in effects]
    series = LOAD_SERIES if answer.coverage.has_gangs else LOAD_SERIES[:2]

    def points(queue: str, place: int) -> tuple[Point, ...]:
        return tuple(
            Point(
                effect.load + (ASSUMED_SHIFT if effect.gangs_share else 0.0),
                effect.change.mean,
                effect.change.interval.low,
                effect.change.interval.high,
                f"load {effect.load:.2f}: {wording.change_text(effect.change)}",
            )
            for effect in effects
            if effect.change is not None
            and effect.queue == queue
            and place == (2 if effect.gangs_share else 1 if effect.target_load is None else 0)
        )

    names = [record.label for record in answer.study.schedulers]
    queues = [queue for queue in names if any(effect.queue == queue for effect in effects)]
    return LinePlot(
        title="Change of the mean completion time by load",
        x=Axis(title="offered load", form=PLAIN, low=min(loads) - 0.05, high=max(loads) + 0.05),
        y=Axis(title="change (%)", form=CHANGE),
        series=series,
        panels=tuple(
            Panel(title=queue, points=tuple(points(queue, place) for place in range(len(series)))) for queue in queues
        ),
    )


def effect_label(effect: Effect) -> str:
    """Return a label for the placement of jobs."""
    words: list[str] = [effect.sharing]
    if effect.gangs_share:
        words.append("gangs (assumed)")
    if math.isfinite(effect.max_slowdown):
        words.append(f"cap {effect.max_slowdown:g}")
    if effect.is_other_scenario:
        words.append(f"unknown {effect.scenario}")
    if effect.overloaded:
        words.append("overloaded")
    return ", ".join(words)


def _by_queue(answer: WhatIfFindings) -> Section:
    """The effects at the trace's own load and at the one at which caps were compared, overloaded worlds last."""
    capped = {effect.target_load for effect in answer.effects if math.isfinite(effect.max_slowdown)}
    pairs = [effect for effect in answer.effects if effect.seats == DEFAULT_SEATS and not effect.is_other_scenario]
    shown = [effect for effect in pairs if effect.target_load in capped | {None}]
    table = Table(
        title="By queue and cap",
        columns=(
            Column("queue"),
            Column("load", LOAD),
            Column("placement"),
            Column("change of mean", CHANGE),
            Column("spread", percent(0, sign=True), is_detail=True),
            Column("mean", HOURS),
            Column("99 % of jobs within", hours(1), is_detail=True),
            Column("shared", percent(), is_detail=True),
            Column("past 1.5 ×", percent()),
        ),
        rows=tuple(
            (
                effect.queue,
                effect.load,
                effect_label(effect),
                _estimate(effect.change),
                Range(effect.change.spread.low, effect.change.spread.high) if effect.change else None,
                effect.mean_completion_s,
                effect.p99_completion_s,
                effect.shared,
                effect.past_cap,
            )
            for effect in sorted(shown, key=lambda effect: (effect.overloaded, effect.target_load or 0.0))
        ),
    )
    return Section("By queue and cap", (Sentence(CAP_LEGEND), table))


def seats_label(effect: Effect) -> str:
    """Return a label for the number of jobs on a device and the composition of groups from pairs."""
    overloaded = ", overloaded" if effect.overloaded else ""
    return f"{effect.seats}{f', by {effect.composition}' if effect.seats > DEFAULT_SEATS else ''}{overloaded}"


def _by_seats(answer: WhatIfFindings) -> list[Section]:
    """Return a section on more than two seats. In each queue and load the effect of two seats comes first.

    Empty where the study did not ask for more seats.
    """

    def place(effect: Effect) -> tuple[bool, float, str]:
        return effect.overloaded, effect.target_load or 0.0, effect.queue

    seated = {place(effect) for effect in answer.effects if effect.seats > DEFAULT_SEATS}
    shown = [effect for effect in answer.effects if effect.sharing is Sharing.MATCHING and place(effect) in seated]
    if not shown:
        return []
    table = Table(
        title="By jobs a device, under matching",
        columns=(
            Column("queue"),
            Column("load", LOAD),
            Column("jobs a device"),
            Column("change of mean", CHANGE),
            Column("against two", CHANGE),
            Column("mean", HOURS, is_detail=True),
            Column("99 % of jobs within", hours(1), is_detail=True),
            Column("shared", percent(), is_detail=True),
        ),
        rows=tuple(
            (
                effect.queue,
                effect.load,
                seats_label(effect),
                _estimate(effect.change),
                _estimate(effect.change_to_pairs),
                effect.mean_completion_s,
                effect.p99_completion_s,
                effect.shared,
            )
            for effect in sorted(shown, key=lambda e: (*place(e), e.seats, e.composition != Composition.SUM))
        ),
    )
    return [Section("More than two jobs a device", (Sentence(wording.GROUPS), table))]


def _placement(answer: WhatIfFindings) -> Section:
    seconds = fixed(1, "s", quantity="s")
    table = Table(
        title="Greedy placement beside matching",
        columns=(
            Column("queue"),
            Column("load", LOAD),
            Column("greedy", HOURS),
            Column("matching", HOURS),
            Column("difference", CHANGE),
            Column("CPU of greedy", seconds),
            Column("of matching", seconds),
        ),
        rows=tuple(
            (
                each.queue,
                each.load,
                each.greedy_s,
                each.matching_s,
                each.difference,
                each.greedy_cpu_s,
                each.matching_cpu_s,
            )
            for each in answer.comparisons
        ),
    )
    text = Sentence(wording.placement_text(answer.comparisons))
    return Section("Greedy placement or matching", (text, *([table] if table.rows else [])))


def _missing(answer: WhatIfFindings) -> Section:
    share = percent().text(answer.missing.unmeasured_share)
    text = (
        f"Of the hours in which jobs would meet if everybody shared with whoever is there, {share} are of pairs that "
        f"nobody measured. {wording.scenario_text(answer)}"
    )
    parts: list[Part] = [Sentence(text.rstrip())]
    if answer.unknown:
        unknown = Table(
            title="Workloads without truth",
            columns=(Column("workload without a measured pair"), Column("jobs", COUNT), Column("GPU hours", COUNT)),
            rows=tuple((each.workload or "(no workload named)", each.jobs, each.gpu_h) for each in answer.unknown),
            fold=MAX_UNKNOWN,
        )
        parts.append(unknown)
    if answer.missing.pairs:
        columns = (
            Column("pair"),
            Column("GPU hours in which they would meet", COUNT),
            Column("speeds known to ±", fixed(2)),
            Column("lowers the error of all by", percent(1)),
        )
        pairs = tuple(
            (wording.pair_name(pair.names), pair.gpu_h, pair.error_now, pair.narrows) for pair in answer.missing.pairs
        )
        order = "In the order of what they tell about this trace, each as if those before it had been measured: "
        command = Code("interfere profile command --spec jobs.toml")
        note = Sentence((order, command, " measures your own programs."), tone=Tone.NOTE)
        parts.append(
            Section(
                "Measure these pairs first", (Table(title="Pairs to measure first", columns=columns, rows=pairs), note)
            )
        )
    return Section("What is not known, and what to measure", tuple(parts))
