"""Tables of a replay, one for each group of traces, and the verdicts that people read first."""

from collections.abc import Callable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from interfere.data.html_page.html_builder import Html, tag
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.ratio_interval import CONFIDENCE
from interfere.sim.schedulers.names import DEADLINE_BASELINE, name_of_pairs, parse_name, reference_of
from interfere.sim.score import Score
from interfere.sim.study import Line, Study
from interfere.sim.uncertainty import Interval, UncertainMean
from interfere.training.replay.answer import Answer


def _hours(time_s: float) -> str:
    return f"{time_s / 3600:,.2f}"


def _ends(interval: Interval, digits: str = "+.1f") -> str:
    return f"[{100 * interval.low:{digits}}, {100 * interval.high:{digits}}]" if interval.is_known else ""


def _change(change: UncertainMean | None) -> str:
    """With the interval of the mean."""
    return "" if change is None else f"{100 * change.mean:+.1f} % {_ends(change.interval)}".rstrip()


def _spread(change: UncertainMean | None) -> str:
    return "" if change is None else _ends(change.spread)


def _tie_range(line: Line) -> str:
    return "" if line.tie_range_s is None else f"{_hours(line.tie_range_s[0])}-{_hours(line.tie_range_s[1])}"


def _satisfaction(line: Line) -> float:
    return line.satisfaction.mean if line.satisfaction is not None else 0.0


def _percent(share: UncertainMean | None) -> str:
    return "" if share is None else f"{100 * share.mean:.1f} {_ends(share.interval, '.0f')}".rstrip()


def _points(change: UncertainMean | None) -> str:
    return "" if change is None else f"{100 * change.mean:+.1f} {_ends(change.interval)}".rstrip()


def _wasted(score: Score) -> str:
    return f"{100 * score.wasted_gpu_h / score.used_gpu_h:.1f}" if score.used_gpu_h else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table of policies."""

    title: str
    cell: Callable[[Line], str]
    is_short: bool = False  # is it in the table of 80 characters?
    is_full: bool = True  # is it on the page?


COLUMNS = (
    Column(title="mean (h)", cell=lambda line: _hours(line.score.mean_completion_s), is_short=True),
    Column(title="against none", cell=lambda line: _change(line.change), is_short=True),
    Column(title="spread (%)", cell=lambda line: _spread(line.change), is_short=True),
    Column(title="order of ties (h)", cell=_tie_range),
    Column(title="median (h)", cell=lambda line: _hours(line.score.median_completion_s)),
    Column(title="p99 (h)", cell=lambda line: _hours(line.score.p99_completion_s)),
    Column(title="slowdown", cell=lambda line: f"{line.score.mean_slowdown:.2f}"),
    Column(title="waiting (h)", cell=lambda line: _hours(line.score.mean_waiting_s)),
    Column(title="in use", cell=lambda line: f"{line.score.utilisation:.0%}"),
    Column(title="shared", cell=lambda line: f"{line.score.shared:.0%}"),
    Column(title="past cap", cell=lambda line: f"{line.score.past_cap:.1%}" if line.score.pairs else ""),
    Column(title="replay (s)", cell=lambda line: f"{line.seconds:.1f}"),
)
LEGEND = (
    "mean, median, p99: completion time of all jobs, from arrival to end; against none: change of the mean against the "
    f"same policy without sharing, with the {CONFIDENCE:.0%} interval of this mean over other such periods (from "
    f"overlapping batches of the recorded days); spread: that of {CONFIDENCE:.0%} of single days, or of whole traces "
    "where days were redrawn; order of ties: the mean over orders of jobs submitted in one second; slowdown: "
    "completion time over run time without sharing; in use, shared: of device time; past cap: pairs that truly slowed "
    "a side beyond the cap"
)
DEADLINE_COLUMNS = (
    Column(title="met (%)", cell=lambda line: f"{100 * _satisfaction(line):.1f}", is_short=True, is_full=False),
    Column(title="met (%)", cell=lambda line: _percent(line.satisfaction)),
    Column(title="against drop", cell=lambda line: _points(line.satisfaction_change), is_short=True),
    Column(
        title="effort (h)",
        cell=lambda line: _hours(line.best_effort_s.mean) if line.best_effort_s is not None else "",
        is_short=True,
    ),
    Column(title="waste", cell=lambda line: _wasted(line.score), is_short=True),
    Column(
        title="broken",
        cell=lambda line: f"{line.score.broken}/{line.score.promised}" if line.score.promised else "",
        is_short=True,
    ),
    Column(title="dropped", cell=lambda line: f"{line.score.dropped}"),
    Column(title="in use (%)", cell=lambda line: f"{100 * line.score.utilisation:.0f}"),
    Column(title="shared (%)", cell=lambda line: f"{100 * line.score.shared:.0f}"),
    Column(title="stops", cell=lambda line: f"{line.score.stops}"),
    Column(title="replay (s)", cell=lambda line: f"{line.seconds:.1f}"),
)
DEADLINE_LEGEND = (
    f"met: deadlines met over all submitted jobs that have one, with the {CONFIDENCE:.0%} interval of this mean over "
    "other such periods (from overlapping batches of the recorded days); against drop: difference in points, job by "
    f"job, to {DEADLINE_BASELINE} (with +greedy, where the policy shares, which then pairs only where both meet their "
    "deadlines); effort: mean completion time of jobs without a deadline; waste: percentage of device time spent on "
    "jobs that missed their deadline, and on checkpoints; broken: promised deadlines that were missed, of all promised"
)


def _time(time_s: UncertainMean) -> str:
    ends = f" [{_hours(time_s.interval.low)}, {_hours(time_s.interval.high)}]" if time_s.interval.is_known else ""
    return f"{_hours(time_s.mean)}{ends}"


def _factor(factor: UncertainMean) -> str:
    ends = f" [{factor.interval.low:.2f}, {factor.interval.high:.2f}]" if factor.interval.is_known else ""
    return f"{factor.mean:.2f}{ends}"


SEATS_COLUMNS = (
    Column(title="mean (h)", cell=lambda line: _time(line.completion_s), is_short=True),
    Column(title="worst slowdown", cell=lambda line: _factor(line.worst_slowdown), is_short=True),
    Column(title="of all", cell=lambda line: f"{line.score.worst_slowdown:.2f}"),
    Column(title="against none", cell=lambda line: _change(line.change)),
    Column(title="against two", cell=lambda line: _change(line.change_to_pairs), is_short=True),
    Column(title="shared", cell=lambda line: f"{line.score.shared:.0%}"),
)
SEATS_LEGEND = (
    "worst slowdown: by company, time on devices over the time alone; of the jobs that arrive on one day the largest, "
    "averaged over days; of all: the largest of any job; against none, against two: change of the mean completion time "
    f"against the same policy without sharing, and with two jobs at most on a device; [{CONFIDENCE:.0%} intervals of "
    "these means over other such periods, from overlapping batches of the recorded days]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The policies on one group of traces."""

    title: str
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    legend: str

    def table(self) -> Table:
        """For a terminal of 80 characters."""
        table = Table(title=self.title, box=SIMPLE_HEAD, pad_edge=False, padding=0, title_justify="left")
        table.add_column("policy", overflow="fold")
        columns = [column for column in self.columns if column.is_short]
        for column in columns:
            table.add_column(column.title, justify="right", no_wrap=True)
        for line in self.lines:
            table.add_row(line.policy, *(column.cell(line) for column in columns))
        return table

    def html(self) -> Html:
        """For the page."""
        columns = [column for column in self.columns if column.is_full]
        head = tag("tr", tag("th", "policy"), *(tag("th", column.title, class_="number") for column in columns))
        rows = [
            tag(
                "tr",
                tag("th", line.policy),
                *(tag("td", column.cell(line), class_="number") for column in columns),
            )
            for line in self.lines
        ]
        return tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="plain"), class_="scroll")


STABLE = "Worlds with stable load"
OVERLOADED = "Overloaded worlds: gains there grow with the length of the trace"
DEADLINES = "Worlds with deadlines and edge devices"


def sections(study: Study, product: Study | None = None) -> list[Section]:
    """One section for each group of traces that there is, schedulers of deadlines best first; then those of seats,
    `product`: the study in which groups are the product of their pairs."""
    best_first = sorted(study.deadlines, key=lambda line: -_satisfaction(line))
    groups = [
        Section(title=STABLE, lines=study.stable, columns=COLUMNS, legend=LEGEND),
        Section(title=OVERLOADED, lines=study.overloaded, columns=COLUMNS, legend=LEGEND),
        Section(title=DEADLINES, lines=tuple(best_first), columns=DEADLINE_COLUMNS, legend=DEADLINE_LEGEND),
    ]
    if product is not None:
        for ends, each in (("sum", study), ("product", product)):
            for kind, lines in (("stable", each.stable), ("overloaded", each.overloaded)):
                title = f"Seats, {kind} load: groups by the {ends} of their pairs unless measured"
                groups.append(Section(title=title, lines=_seated(lines), columns=SEATS_COLUMNS, legend=SEATS_LEGEND))
    return [group for group in groups if group.lines]


def _seated(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The policies with more than two seats, and each with two and without sharing."""
    seated = [line.policy for line in lines if parse_name(line.policy).seats > DEFAULT_SEATS]
    names = {name for policy in seated for name in (policy, name_of_pairs(policy), reference_of(policy))}
    return tuple(line for line in lines if line.policy in names)


def summary(answer: Answer) -> Group:
    """Notes, verdicts, and a table of each group of traces."""
    parts: list[Text | Table] = [Text(answer.notes[0], style="bold"), *(Text(note) for note in answer.notes[1:])]
    parts += [Text(verdict, style="bold") for verdict in verdicts(answer)]
    groups = sections(answer.study, answer.product)
    parts += [group.table() for group in groups]
    parts += [Text(text, style="dim") for text in populations(answer.study)]
    parts += [Text(legend, style="dim") for legend in dict.fromkeys(group.legend for group in groups)]
    return Group(*parts)


def populations(study: Study) -> list[str]:
    """What the intervals and spreads of each group of traces are over."""
    texts = []
    for title, lines in ((STABLE, study.stable), (OVERLOADED, study.overloaded), (DEADLINES, study.deadlines)):
        figures = [figure for line in lines if (figure := line.change or line.satisfaction) is not None]
        if figures:
            figure = next((each for each in figures if each.interval.is_known), figures[0])
            reason = f" (none: {figure.interval.missing})" if figure.interval.missing else ""
            texts.append(f"{title}: intervals are of the {figure.interval.population}{reason}; spread over ")
            texts[-1] += figure.spread.population
    return texts


def verdicts(answer: Answer) -> list[str]:
    """Which policy ends jobs soonest on average, or meets most deadlines: of all policies, and of those that could be
    run in practice. A policy of which something was chosen on this very trace is not named."""
    stable = [line for line in answer.study.stable if line.policy not in answer.tuned]
    deadlines = [line for line in answer.study.deadlines if line.policy not in answer.tuned]
    unknown = [line for line in stable if not parse_name(line.policy).knows_durations]
    nonpreemptive = [line for line in unknown if not parse_name(line.policy).is_preemptive]
    texts = []
    for description, lines in (
        ("of all", stable),
        ("without knowing durations beforehand", unknown),
        ("of those, without stopping jobs", nonpreemptive),
    ):
        if lines:
            best = min(lines, key=lambda line: line.score.mean_completion_s)
            by_sharing = f", by sharing {_change(best.change)}" if best.change else ", which shares nothing"
            texts.append(f"soonest {description}: {best.policy}, {_hours(best.score.mean_completion_s)} h{by_sharing}")
    unshared = [line for line in deadlines if not parse_name(line.policy).sharing]
    for description, lines in (("of all", deadlines), ("without sharing", unshared)):
        if lines:
            best = max(lines, key=_satisfaction)
            texts.append(f"most deadlines met {description}: {best.policy}, {_percent(best.satisfaction)} %")
    return texts
