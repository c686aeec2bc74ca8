"""The report of a replay: verdicts, and a table and figures for each group of traces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interfere.records.cluster import DEFAULT_SEATS
from interfere.reports import document as report
from interfere.reports.document import Axis, Column, Document, Estimate, LinePlot, Mark, Point, Sentence, Series, Tone
from interfere.reports.numbers import COUNT, PLAIN, fixed, hours, percent
from interfere.sim.replay import Replayed
from interfere.sim.schedulers.records import DEADLINE_BASELINE
from interfere.sim.uncertainty import CONFIDENCE, UncertainMean
from interfere.sim.world import HOUR_S
from interfere.study.comparison import Comparison, Line, TraceGroup
from interfere.study.replays import ReplayResult

if TYPE_CHECKING:
    from interfere.study.replay_question import ReplayAnswer


def replay_document(answer: "ReplayAnswer") -> Document:
    """Return the report: how much the truth covers, the verdicts, and the policies on each group of traces."""
    parts: list[report.Part] = [
        Sentence("What sharing devices would have done to this trace, by policy.", tone=Tone.LEAD),
        *(Sentence(verdict, tone=Tone.GOOD) for verdict in verdicts(answer)),
        report.Items(tuple(answer.notes)),
    ]
    told: set[str] = set()
    for table, legend in policy_tables(answer.comparison, answer.product):
        inside: list[report.Part] = [table]
        if legend not in told:
            inside.append(Sentence(legend, tone=Tone.NOTE))
            told.add(legend)
        if table.title in (TraceGroup.STABLE, TraceGroup.DEADLINES):
            inside += _figures(answer.comparison, TraceGroup(table.title))
        parts.append(report.Section(table.title, tuple(inside)))
    parts += [Sentence(text, tone=Tone.NOTE) for text in _populations(answer.comparison)]
    return Document(f"Replay of {answer.study.trace.name}", tuple(parts))


# --- tables -----------------------------------------------------------------------------------------------------------


HOURS, CHANGE, SECONDS = hours(), percent(1, sign=True), fixed(1, "s", quantity="s")
POINTS = fixed(1, quantity="fraction", scale=100, sign=True)


def estimate(mean: UncertainMean | None) -> Estimate | None:
    """Return a mean with its interval as a cell; None where there is no mean."""
    return None if mean is None else Estimate(mean.mean, mean.interval.low, mean.interval.high)


def spread(mean: UncertainMean | None) -> report.Range | None:
    """Return the spread of a mean as a cell; None where there is no mean."""
    return None if mean is None else report.Range(mean.spread.low, mean.spread.high)


COLUMNS = (
    Column("policy", of="policy"),
    Column("mean", HOURS, of="score.mean_completion_s"),
    Column("against none", CHANGE, of=lambda line: estimate(line.change)),
    Column("spread", CHANGE, of=lambda line: spread(line.change)),
    Column("median", HOURS, of="score.median_completion_s", is_detail=True),
    Column("p99", HOURS, of="score.p99_completion_s", is_detail=True),
    Column("slowdown", fixed(2), of="score.mean_slowdown", is_detail=True),
    Column("waiting", HOURS, of="score.mean_waiting_s", is_detail=True),
    Column("in use", percent(), of="score.utilisation", is_detail=True),
    Column("shared", percent(), of="score.shared", is_detail=True),
    Column("past cap", percent(1), of=lambda line: line.score.past_cap if line.score.pairs else None, is_detail=True),
    Column("replay", SECONDS, of="seconds", is_detail=True),
)
LEGEND = (
    "mean, median, p99: completion time of all jobs, from arrival to end; against none: change of the mean against the "
    f"same policy without sharing, with the {CONFIDENCE:.0%} interval of this mean over other such periods (from "
    f"overlapping batches of the recorded days); spread: that of {CONFIDENCE:.0%} of single days, or of whole traces "
    "where days were redrawn; slowdown: "
    "completion time over run time without sharing; in use, shared: of device time; past cap: pairs that truly slowed "
    "a side beyond the cap"
)
DEADLINE_COLUMNS = (
    Column("policy", of="policy"),
    Column("met", percent(1), of=lambda line: estimate(line.satisfaction), is_brief=True),
    Column("against drop", POINTS, of=lambda line: estimate(line.satisfaction_change)),
    Column("effort", HOURS, of=lambda line: line.best_effort_s.mean if line.best_effort_s else None),
    Column(
        "waste",
        percent(1),
        of=lambda line: line.score.wasted_gpu_h / line.score.used_gpu_h if line.score.used_gpu_h else None,
    ),
    Column("broken", COUNT, of=lambda line: line.score.broken if line.score.promised else None),
    Column("promised", COUNT, of=lambda line: line.score.promised or None),
    Column("dropped", COUNT, of="score.dropped", is_detail=True),
    Column("in use", percent(), of="score.utilisation", is_detail=True),
    Column("shared", percent(), of="score.shared", is_detail=True),
    Column("stops", COUNT, of="score.stops", is_detail=True),
    Column("replay", SECONDS, of="seconds", is_detail=True),
)
DEADLINE_LEGEND = (
    f"met: deadlines met over all submitted jobs that have one, with the {CONFIDENCE:.0%} interval of this mean over "
    "other such periods (from overlapping batches of the recorded days); against drop: difference in points, job by "
    f"job, to {DEADLINE_BASELINE.label} (with -greedy, where the policy shares, which then pairs only where both "
    "meet their deadlines); effort: mean completion time of jobs without a deadline; waste: percentage of device time "
    "spent on jobs that missed their deadline, and on checkpoints; broken: promised deadlines that were missed"
)
SEATS_COLUMNS = (
    Column("policy", of="policy"),
    Column("mean", HOURS, of=lambda line: estimate(line.completion_s)),
    Column("worst slowdown", fixed(2), of=lambda line: estimate(line.worst_slowdown)),
    Column("of all", fixed(2), of="score.worst_slowdown", is_detail=True),
    Column("against none", CHANGE, of=lambda line: estimate(line.change), is_detail=True),
    Column("against two", CHANGE, of=lambda line: estimate(line.change_to_pairs)),
    Column("shared", percent(), of="score.shared", is_detail=True),
)
SEATS_LEGEND = (
    "worst slowdown: by company, time on devices over the time alone; of the jobs that arrive on one day the largest, "
    "averaged over days; of all: the largest of any job; against none, against two: change of the mean completion time "
    f"against the same policy without sharing, and with two jobs at most on a device; [{CONFIDENCE:.0%} intervals of "
    "these means over other such periods, from overlapping batches of the recorded days]"
)


def policy_tables(comparison: Comparison, product: Comparison | None = None) -> list[tuple[report.Table, str]]:
    """Return a table and its legend for each group of traces that exists, then for schedulers with more than two seats.

    Schedulers of deadlines are sorted best first. `product`: the comparison in which groups slow down by the product of
    their pairs.
    """
    best_first = sorted(comparison.deadlines, key=lambda line: -_satisfaction(line))
    groups: list[tuple[str, Sequence[Line], Sequence[Column], str]] = [
        (TraceGroup.STABLE, comparison.stable, COLUMNS, LEGEND),
        (TraceGroup.OVERLOADED, comparison.overloaded, COLUMNS, LEGEND),
        (TraceGroup.DEADLINES, best_first, DEADLINE_COLUMNS, DEADLINE_LEGEND),
    ]
    if product is not None:
        for ends, each in (("sum", comparison), ("product", product)):
            for kind, lines in (("stable", each.stable), ("overloaded", each.overloaded)):
                title = f"Seats, {kind} load: groups by the {ends} of their pairs unless measured"
                groups.append((title, _seated(lines), SEATS_COLUMNS, SEATS_LEGEND))
    return [(report.table_of(title, columns, lines), legend) for title, lines, columns, legend in groups if lines]


def _satisfaction(line: Line) -> float:
    return line.satisfaction.mean if line.satisfaction is not None else 0.0


def _seated(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Return the lines of schedulers with more than two seats, and of the same schedulers with two seats and without
    sharing."""
    seated = [line.scheduler for line in lines if line.scheduler.seats > DEFAULT_SEATS]
    shown = {one for scheduler in seated for one in (scheduler, scheduler.two_seats, scheduler.unshared)}
    return tuple(line for line in lines if line.scheduler in shown)


# --- sentences --------------------------------------------------------------------------------------------------------


def _populations(comparison: Comparison) -> list[str]:
    """Return, for each group of traces, the population that its intervals and spreads describe."""
    texts = []
    for group in TraceGroup:
        figures = [figure for line in comparison.of(group) if (figure := line.change or line.satisfaction) is not None]
        if figures:
            figure = next((each for each in figures if each.interval.is_known), figures[0])
            reason = f" (none: {figure.interval.missing})" if figure.interval.missing else ""
            over = f"{figure.interval.population}{reason}; spread over {figure.spread.population}"
            texts.append(f"{group}: intervals are of the {over}")
    return texts


def verdicts(answer: "ReplayAnswer") -> list[str]:
    """Return sentences that name the best policy by mean completion time and by deadlines met.

    Each is given among all policies, and among policies that could run in practice.
    """
    stable, deadlines = answer.comparison.stable, answer.comparison.deadlines
    unknown = [line for line in stable if not line.scheduler.knows_durations]
    nonpreemptive = [line for line in unknown if not line.scheduler.is_preemptive]
    texts = []
    for description, lines in (
        ("of all", stable),
        ("without knowing durations beforehand", unknown),
        ("of those, without stopping jobs", nonpreemptive),
    ):
        if lines:
            best = min(lines, key=lambda line: line.score.mean_completion_s)
            by_sharing = f", by sharing {change_text(best.change)}" if best.change else ", which shares nothing"
            texts.append(
                f"soonest {description}: {best.policy}, {HOURS.number(best.score.mean_completion_s)} h{by_sharing}"
            )
    unshared = [line for line in deadlines if not line.scheduler.sharing]
    for description, lines in (("of all", deadlines), ("without sharing", unshared)):
        if lines:
            best = max(lines, key=_satisfaction)
            met = percent(1).number(_satisfaction(best))
            ends = best.satisfaction.interval if best.satisfaction else None
            interval = f" {percent().ends(ends.low, ends.high)}" if ends and ends.is_known else ""
            texts.append(f"most deadlines met {description}: {best.policy}, {met}{interval} %")
    return texts


def change_text(change: UncertainMean) -> str:
    """Return a change of a mean as per cent, with its interval where there is one."""
    return f"{CHANGE.number(change.mean)} % {CHANGE.ends(change.interval.low, change.interval.high)}".rstrip()


# --- figures ----------------------------------------------------------------------------------------------------------


MAX_CURVES = 6  # in one plot: more cannot be told apart
CURVE_POINTS = 200  # quantiles of a curve


def _figures(comparison: Comparison, group: TraceGroup) -> list[report.Figure]:
    """Return figures of what sharing changes, of the jobs that are over within a time, and of devices over time."""
    is_dated = group is TraceGroup.DEADLINES
    recorded = [run for run in comparison.runs if not run.task.draw and (is_dated or run.load < 1)]
    world = max(recorded, key=lambda run: run.load).world
    if is_dated:
        lines = sorted(comparison.deadlines, key=lambda line: -_satisfaction(line))
        baseline = DEADLINE_BASELINE.label
        against = f"deadlines met more than by {baseline}, with sharing than by {baseline}-greedy (points)"
        changes = [(line, line.satisfaction_change) for line in lines]
        return [
            *_changes("Deadline satisfaction against the baseline", Axis(title=against, form=POINTS), changes),
            _devices((lines[0].deadlines_against, lines[0].policy), recorded, world, "the world with the highest load"),
        ]
    stable = comparison.stable
    best = min(
        (line for line in stable if line.against), key=lambda line: line.score.mean_completion_s, default=stable[0]
    )
    axis = Axis(title="change of the mean completion time by sharing (%), left is better", form=CHANGE)
    return [
        *_changes("What sharing changes", axis, [(line, line.change) for line in stable]),
        _curves(recorded),
        _devices((best.against, best.policy), recorded, world, "the busiest stable world"),
    ]


def _changes(title: str, axis: Axis, changes: Sequence[tuple[Line, UncertainMean | None]]) -> list[report.Figure]:
    """Return a figure of the change of each policy with its interval; no figure where no policy was compared."""
    known = [(line, change) for line, change in changes if change is not None]
    if not known:
        return []
    rows = tuple(
        report.PlotRow(label=line.policy, values=((Estimate(each.mean, each.interval.low, each.interval.high),),))
        for line, each in known
    )
    interval = known[0][1].interval
    title = f"{title}, {CONFIDENCE:.0%} interval of the {interval.population}" if interval.is_known else title
    return [report.RowPlot(title=title, axis=axis, series=(Series(name="change"),), rows=rows)]


def _curves(runs: Sequence[ReplayResult]) -> LinePlot:
    """Return a figure of the share of jobs that ended within a time after their arrival, of the traces as recorded."""
    policies = list(dict.fromkeys(run.policy for run in runs))[-MAX_CURVES:]
    shares = np.linspace(0.0, 1.0, CURVE_POINTS + 1)[1:]
    curves = []
    for policy in policies:
        times_s = [run.replayed.completion_s for run in runs if run.policy == policy and run.replayed is not None]
        quantiles_s = np.maximum(np.quantile(np.concatenate(times_s), shares), 1.0)
        curves.append(tuple(Point(float(x), float(y)) for x, y in zip(quantiles_s, shares, strict=True)))
    return LinePlot(
        title="Jobs over within a time of their arrival, trace as recorded",
        x=Axis(title="completion time (h, log scale)", form=hours(4), is_log=True),
        y=Axis(title="share of jobs (%)", form=percent(), high=1.0),
        series=tuple(
            Series(name=policy, mark=Mark.STEP, colour=colour)
            for policy, colour in zip(policies, report.Colour, strict=False)
        ),
        panels=(report.Panel(points=tuple(curves)),),
    )


def _devices(names: Sequence[str], recorded: Sequence[ReplayResult], world: str, which: str) -> LinePlot:
    """Return a figure of devices in use and shared over time, with one panel for each policy.

    A point is the mean of an hour, or of 1/400 of a longer trace.
    """
    by_name = {run.policy: run.replayed for run in recorded if run.world == world}
    replays = [(name, replayed) for name in names if name and (replayed := by_name[name]) is not None]
    last_s = max(float(replayed.at_s[-1]) for _, replayed in replays)
    edges_s = np.arange(0.0, last_s, max(HOUR_S, last_s / 400))
    return LinePlot(
        title=f"Devices of {world}, {which}",
        x=Axis(title="days since the first arrival", form=PLAIN),
        y=Axis(title="devices (%)", form=percent(), low=0.0, high=1.0),
        series=(
            Series(name="in use", mark=Mark.AREA),
            Series(name="of these shared by two", mark=Mark.AREA, colour=report.Colour.ORANGE),
        ),
        panels=tuple(
            report.Panel(title=policy, points=tuple(_means(replayed, kind, edges_s) for kind in ("busy", "shared")))
            for policy, replayed in replays
        ),
    )


def _means(replayed: Replayed, kind: str, edges_s: np.ndarray) -> tuple[Point, ...]:
    """Return the mean share of devices between consecutive edges, of a step function that changes at `at_s`."""
    values = getattr(replayed, kind) / len(replayed.world.devices)
    integral = np.concatenate([[0.0], np.cumsum(np.diff(replayed.at_s) * values[:-1])])
    means = np.diff(np.interp(edges_s, replayed.at_s, integral)) / np.diff(edges_s)
    days = edges_s[:-1] / (24 * HOUR_S)
    return tuple(Point(float(day), float(share)) for day, share in zip(days, means, strict=True))
