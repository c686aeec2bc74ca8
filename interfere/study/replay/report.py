"""The report of a replay as a document: the verdicts that people read first, and a section for each group of traces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from interfere.records.cluster import DEFAULT_SEATS
from interfere.reports.document import (
    Cell,
    Column,
    Document,
    Estimate,
    Items,
    Part,
    Range,
    Section,
    Sentence,
    Table,
    Tone,
)
from interfere.reports.numbers import COUNT, fixed, hours, percent
from interfere.sim.edge_world import DeadlineDraws
from interfere.sim.ratio_interval import CONFIDENCE
from interfere.sim.schedulers.records import DEADLINE_BASELINE
from interfere.sim.uncertainty import UncertainMean
from interfere.study.comparison import Comparison, Line
from interfere.study.coverage import Coverage
from interfere.study.replay.figures import completion_figures, deadline_figures
from interfere.study.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFindings:
    """The comparison of schedulers, with the facts that a reader needs to judge it."""

    study: Study  # resolved, with the schedulers that were replayed
    coverage: Coverage
    comparison: Comparison  # groups that nobody measured are the sum of their pairs
    product: Comparison | None  # the same where they are the product; None where two jobs at most share a device
    notes: tuple[str, ...]  # truth, trace, predictions: what was clipped, filled, left out
    interrupted: bool
    deadline_draws: tuple[DeadlineDraws, ...] = ()  # one a world; empty without deadlines
    tuned: Mapping[str, str] = field(default_factory=dict)  # policy -> what of it was chosen on this very trace


HOURS, CHANGE, SECONDS = hours(), percent(1, sign=True), fixed(1, "s", quantity="s")
POINTS = fixed(1, quantity="fraction", scale=100, sign=True)
MeanOf = Callable[[Line], UncertainMean | None]
PolicyColumn = tuple[Column, Callable[[Line], Cell]]


def _uncertain(mean_of: MeanOf) -> Callable[[Line], Cell]:
    """The cell of a mean with its interval; nothing where there is no mean."""

    def cell(line: Line) -> Cell:
        mean = mean_of(line)
        return None if mean is None else Estimate(mean.mean, mean.interval.low, mean.interval.high)

    return cell


def _spread(line: Line) -> Cell:
    return None if line.change is None else Range(line.change.spread.low, line.change.spread.high)


COLUMNS: tuple[PolicyColumn, ...] = (
    (Column("mean", HOURS), lambda line: line.score.mean_completion_s),
    (Column("against none", CHANGE), _uncertain(lambda line: line.change)),
    (Column("spread", CHANGE), _spread),
    (
        Column("order of ties", HOURS, is_detail=True),
        lambda line: Range(*line.tie_range_s) if line.tie_range_s else None,
    ),
    (Column("median", HOURS, is_detail=True), lambda line: line.score.median_completion_s),
    (Column("p99", HOURS, is_detail=True), lambda line: line.score.p99_completion_s),
    (Column("slowdown", fixed(2), is_detail=True), lambda line: line.score.mean_slowdown),
    (Column("waiting", HOURS, is_detail=True), lambda line: line.score.mean_waiting_s),
    (Column("in use", percent(), is_detail=True), lambda line: line.score.utilisation),
    (Column("shared", percent(), is_detail=True), lambda line: line.score.shared),
    (Column("past cap", percent(1), is_detail=True), lambda line: line.score.past_cap if line.score.pairs else None),
    (Column("replay", SECONDS, is_detail=True), lambda line: line.seconds),
)
LEGEND = (
    "mean, median, p99: completion time of all jobs, from arrival to end; against none: change of the mean against the "
    f"same policy without sharing, with the {CONFIDENCE:.0%} interval of this mean over other such periods (from "
    f"overlapping batches of the recorded days); spread: that of {CONFIDENCE:.0%} of single days, or of whole traces "
    "where days were redrawn; order of ties: the mean over orders of jobs submitted in one second; slowdown: "
    "completion time over run time without sharing; in use, shared: of device time; past cap: pairs that truly slowed "
    "a side beyond the cap"
)
DEADLINE_COLUMNS: tuple[PolicyColumn, ...] = (
    (Column("met", percent(1), is_brief=True), _uncertain(lambda line: line.satisfaction)),
    (Column("against drop", POINTS), _uncertain(lambda line: line.satisfaction_change)),
    (Column("effort", HOURS), lambda line: line.best_effort_s.mean if line.best_effort_s is not None else None),
    (
        Column("waste", percent(1)),
        lambda line: line.score.wasted_gpu_h / line.score.used_gpu_h if line.score.used_gpu_h else None,
    ),
    (Column("broken", COUNT), lambda line: line.score.broken if line.score.promised else None),
    (Column("promised", COUNT), lambda line: line.score.promised if line.score.promised else None),
    (Column("dropped", COUNT, is_detail=True), lambda line: line.score.dropped),
    (Column("in use", percent(), is_detail=True), lambda line: line.score.utilisation),
    (Column("shared", percent(), is_detail=True), lambda line: line.score.shared),
    (Column("stops", COUNT, is_detail=True), lambda line: line.score.stops),
    (Column("replay", SECONDS, is_detail=True), lambda line: line.seconds),
)
DEADLINE_LEGEND = (
    f"met: deadlines met over all submitted jobs that have one, with the {CONFIDENCE:.0%} interval of this mean over "
    "other such periods (from overlapping batches of the recorded days); against drop: difference in points, job by "
    f"job, to {DEADLINE_BASELINE.label} (with -greedy, where the policy shares, which then pairs only where both "
    "meet their deadlines); effort: mean completion time of jobs without a deadline; waste: percentage of device time "
    "spent on jobs that missed their deadline, and on checkpoints; broken: promised deadlines that were missed"
)
SEATS_COLUMNS: tuple[PolicyColumn, ...] = (
    (Column("mean", HOURS), _uncertain(lambda line: line.completion_s)),
    (Column("worst slowdown", fixed(2)), _uncertain(lambda line: line.worst_slowdown)),
    (Column("of all", fixed(2), is_detail=True), lambda line: line.score.worst_slowdown),
    (Column("against none", CHANGE, is_detail=True), _uncertain(lambda line: line.change)),
    (Column("against two", CHANGE), _uncertain(lambda line: line.change_to_pairs)),
    (Column("shared", percent(), is_detail=True), lambda line: line.score.shared),
)
SEATS_LEGEND = (
    "worst slowdown: by company, time on devices over the time alone; of the jobs that arrive on one day the largest, "
    "averaged over days; of all: the largest of any job; against none, against two: change of the mean completion time "
    f"against the same policy without sharing, and with two jobs at most on a device; [{CONFIDENCE:.0%} intervals of "
    "these means over other such periods, from overlapping batches of the recorded days]"
)
STABLE = "Worlds with stable load"
OVERLOADED = "Overloaded worlds: gains there grow with the length of the trace"
DEADLINES = "Worlds with deadlines and edge devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """The policies on one group of traces."""

    title: str
    lines: tuple[Line, ...]
    columns: tuple[PolicyColumn, ...]
    legend: str

    def table(self) -> Table:
        """Return the table with one row per policy."""
        return Table(
            title=self.title,
            columns=(Column("policy"), *(column for column, _ in self.columns)),
            rows=tuple((line.policy, *(cell(line) for _, cell in self.columns)) for line in self.lines),
        )


def replay_document(answer: ReplayFindings) -> Document:
    """The report: how much the truth covers, the verdicts, and the policies on each group of traces."""
    parts: list[Part] = [
        Sentence("What sharing devices would have done to this trace, by policy.", tone=Tone.LEAD),
        *(Sentence(verdict, tone=Tone.GOOD) for verdict in verdicts(answer)),
        Items(tuple(answer.notes)),
    ]
    told: set[str] = set()
    for group in policy_tables(answer.comparison, answer.product):
        inside: list[Part] = [group.table()]
        if group.legend not in told:
            inside.append(Sentence(group.legend, tone=Tone.NOTE))
            told.add(group.legend)
        if group.title == STABLE:
            inside += completion_figures(group.lines, answer.comparison.runs)
        if group.title == DEADLINES:
            inside += deadline_figures(group.lines, answer.comparison.runs)
        parts.append(Section(group.title, tuple(inside)))
    parts += [Sentence(text, tone=Tone.NOTE) for text in populations(answer.comparison)]
    return Document(f"Replay of {answer.study.trace.name}", tuple(parts))


def policy_tables(comparison: Comparison, product: Comparison | None = None) -> list[PolicyTable]:
    """Return one table for each group of traces that exists, then tables of the schedulers with more than two seats.

    Schedulers of deadlines are sorted best first. `product`: the comparison in which groups slow down by the product of
    their pairs.
    """
    best_first = sorted(comparison.deadlines, key=lambda line: -_satisfaction(line))
    groups = [
        PolicyTable(title=STABLE, lines=comparison.stable, columns=COLUMNS, legend=LEGEND),
        PolicyTable(title=OVERLOADED, lines=comparison.overloaded, columns=COLUMNS, legend=LEGEND),
        PolicyTable(title=DEADLINES, lines=tuple(best_first), columns=DEADLINE_COLUMNS, legend=DEADLINE_LEGEND),
    ]
    if product is not None:
        for ends, each in (("sum", comparison), ("product", product)):
            for kind, lines in (("stable", each.stable), ("overloaded", each.overloaded)):
                title = f"Seats, {kind} load: groups by the {ends} of their pairs unless measured"
                groups.append(
                    PolicyTable(title=title, lines=_seated(lines), columns=SEATS_COLUMNS, legend=SEATS_LEGEND)
                )
    return [group for group in groups if group.lines]


def _satisfaction(line: Line) -> float:
    return line.satisfaction.mean if line.satisfaction is not None else 0.0


def _seated(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The policies with more than two seats, and each with two and without sharing."""
    seated = [line.scheduler for line in lines if line.scheduler.seats > DEFAULT_SEATS]
    shown = {one for scheduler in seated for one in (scheduler, scheduler.two_seats, scheduler.unshared)}
    return tuple(line for line in lines if line.scheduler in shown)


def populations(comparison: Comparison) -> list[str]:
    """Return, for each group of traces, the population that its intervals and spreads describe."""
    texts = []
    for title, lines in (
        (STABLE, comparison.stable),
        (OVERLOADED, comparison.overloaded),
        (DEADLINES, comparison.deadlines),
    ):
        figures = [figure for line in lines if (figure := line.change or line.satisfaction) is not None]
        if figures:
            figure = next((each for each in figures if each.interval.is_known), figures[0])
            reason = f" (none: {figure.interval.missing})" if figure.interval.missing else ""
            texts.append(f"{title}: intervals are of the {figure.interval.population}{reason}; spread over ")
            texts[-1] += figure.spread.population
    return texts


def verdicts(answer: ReplayFindings) -> list[str]:
    """Return sentences that name the best policy by mean completion time and by deadlines met.

    Each is given among all policies, and among policies that could run in practice. Policies with a constant chosen on
    this very trace are excluded.
    """
    stable = [line for line in answer.comparison.stable if line.policy not in answer.tuned]
    deadlines = [line for line in answer.comparison.deadlines if line.policy not in answer.tuned]
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
            by_sharing = f", by sharing {_change_text(best.change)}" if best.change else ", which shares nothing"
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


def _change_text(change: UncertainMean) -> str:
    ends = CHANGE.ends(change.interval.low, change.interval.high)
    return f"{CHANGE.number(change.mean)} % {ends}".rstrip()
