"""Pairings of jobs, the slowdowns that a run knows, and how the chosen pairing compares with others.

It is compared with a greedy pairing, a random one, and the mean over all. Laws: both sides of a comparison have all of
their pairs, whatever was measured; a pair without a measurement stands in by its prediction; where the 95 % interval of
a difference holds zero, the comparison says that it cannot tell.

Each slowdown has a value and a standard error. A mean, or a difference of means, is a weighted sum of such estimates;
its interval adds up four kinds of error:

1. of each measurement, its own (from its interval), independent of the others;
2. of each measurement, what another run would find different: for this pair alone, or for all pairs of the job that is
   slowed down (its process got other memory), whichever is more;
3. of each run, what it finds larger or smaller for all pairs alike;
4. of each prediction, its own. Predictions err together (a job that is predicted too low beside one neighbour is too
   low beside another), so their errors are added up as they are: an upper bound.

Kinds 2 and 3 are learned from the pairs that a run measures twice.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, variance
from typing import NamedTuple

from interfere.profiling.schedule import NORMAL_975, t_quantile_975
from interfere.records import PairMeasurement, PairStatus

NORMAL_95 = 1.645  # a prediction's interval holds 90 %
# Assumed where nothing was measured twice; a few pairs measured twice outweigh it.
USUAL_PAIR_ERROR, USUAL_SHIFT = 0.02, 0.005
USUAL_WEIGHT = 4  # the usual errors weigh as much as so many pairs measured twice

Direction = tuple[str, str]
"""(victim, neighbour): one job, and the job beside it that slows it down."""


class Evidence(StrEnum):
    """The measurement or prediction that an estimate comes from."""

    FIRST = "first"  # the first measurement of all pairs
    AGAIN = "again"  # the second measurement of the compared pairings, from nothing
    PREDICTED = "predicted"


class Slowdown(NamedTuple):
    """A slowdown and the standard error of its logarithm."""

    value: float
    log_error: float


Slowdowns = Mapping[Direction, Slowdown]
Term = tuple[Evidence, Direction]
Weights = Mapping[Term, float]
"""A weighted sum of estimates."""


class BetweenRuns(NamedTuple):
    """The differences between two runs on the same pair, as standard deviations of log slowdown."""

    pair_error: float  # of one pair, beside others of the same run
    shift: float  # of all pairs of a run alike
    degrees_of_freedom: int  # that both were learned with


USUAL = BetweenRuns(USUAL_PAIR_ERROR, USUAL_SHIFT, USUAL_WEIGHT)


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval."""

    value: float
    lower: float
    upper: float


def measured_slowdowns(rows: Iterable[PairMeasurement]) -> dict[Direction, Slowdown]:
    """Return an estimate for every measured direction of two different jobs; nothing for a row without a slowdown.

    A row without an interval of its own gets the mean error of the others, or the usual error between runs.
    """
    measured = [row for row in rows if row.status is PairStatus.OK and row.victim != row.neighbour and row.slowdown > 0]
    errors = [math.log(row.upper / row.lower) / (2 * NORMAL_975) if row.lower > 0 else math.nan for row in measured]
    known = [error for error in errors if math.isfinite(error)]
    usual = fmean(known) if known else USUAL_PAIR_ERROR
    return {
        (row.victim, row.neighbour): Slowdown(row.slowdown, error if math.isfinite(error) else usual)
        for row, error in zip(measured, errors, strict=True)
    }


def predicted_slowdown(median: float, lower: float, upper: float) -> Slowdown:
    """Return the slowdown and the log error of a prediction with a 90 % interval."""
    return Slowdown(median, math.log(upper / lower) / (2 * NORMAL_95))


def learn_between_runs(first: Slowdowns, again: Slowdowns) -> BetweenRuns:
    """Return how far two runs differ beyond their own intervals, learned from the directions that were measured
    twice."""
    twice = [direction for direction in again if direction in first]
    if len(twice) < 2:
        return USUAL
    differences = [math.log(again[pair].value / first[pair].value) for pair in twice]
    own_variance = fmean(first[pair].log_error ** 2 + again[pair].log_error ** 2 for pair in twice)
    n, mean, spread = len(twice), fmean(differences), variance(differences)
    # Each difference holds the error of two runs: half of its variance is that of one.
    pair_variance = max(0.0, (spread - own_variance) / 2)
    shift_variance = max(0.0, (mean**2 - spread / n) / 2)
    weight = USUAL_WEIGHT / (USUAL_WEIGHT + n - 1)
    return BetweenRuns(
        pair_error=math.sqrt(weight * USUAL_PAIR_ERROR**2 + (1 - weight) * pair_variance),
        shift=math.sqrt((USUAL_SHIFT**2 + shift_variance) / 2),  # one run differs from another once
        degrees_of_freedom=USUAL_WEIGHT + n - 1,
    )


def difference(weights: Weights, others: Weights) -> Weights:
    """Return one weighted sum minus another; terms that both sums hold alike cancel."""
    terms = dict.fromkeys((*weights, *others))
    return {term: weight for term in terms if (weight := weights.get(term, 0.0) - others.get(term, 0.0))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The predicted and measured slowdowns of a run's jobs."""

    predicted: Slowdowns  # of every direction of two different jobs
    first: Slowdowns
    again: Slowdowns
    between_runs: BetweenRuns = USUAL

    def slowdown(self, term: Term) -> Slowdown:
        """Return the slowdown of a term: a pair of jobs in a measurement, or its prediction."""
        evidence, direction = term
        tables = {Evidence.FIRST: self.first, Evidence.AGAIN: self.again, Evidence.PREDICTED: self.predicted}
        return tables[evidence][direction]

    def term(self, direction: Direction, evidence: Evidence) -> Term:
        """Return the term of a direction: its measurement in a run, or its prediction where it was not measured."""
        measured = {Evidence.FIRST: self.first, Evidence.AGAIN: self.again}.get(evidence, {})
        return (evidence if direction in measured else Evidence.PREDICTED, direction)

    def values(self, evidence: Evidence) -> dict[Direction, float]:
        """Return the slowdown of every (victim, neighbour), measured in a run or else predicted."""
        return {pair: self.slowdown(self.term(pair, evidence)).value for pair in self.predicted}

    def stand_ins(self, wanted: Iterable[Direction], run: Evidence) -> tuple[Direction, ...]:
        """Return the (victim, neighbour) pairs that were not measured in a run."""
        return tuple(pair for pair in wanted if self.term(pair, run)[0] is Evidence.PREDICTED)

    def mean_weights(self, wanted: Iterable[Direction], evidence: Evidence) -> Weights:
        """Return the mean slowdown of (victim, neighbour) pairs as a weighted sum of estimates."""
        terms = [self.term(direction, evidence) for direction in wanted]
        return dict.fromkeys(terms, 1 / len(terms))

    def interval(self, weights: Weights) -> Interval:
        """Return a weighted sum of slowdowns with its 95 % interval."""
        contributions = {term: weight * self.slowdown(term).value for term, weight in weights.items()}
        value = math.fsum(contributions.values())
        own = of_predictions = 0.0
        by_run: dict[Evidence, float] = defaultdict(float)
        by_job: dict[tuple[Evidence, str], list[float]] = defaultdict(list)
        for (evidence, (victim, neighbour)), contribution in contributions.items():
            log_error = self.slowdown((evidence, (victim, neighbour))).log_error
            if evidence is Evidence.PREDICTED:
                of_predictions += abs(contribution) * log_error
            else:
                own += (contribution * log_error) ** 2
                by_run[evidence] += contribution
                by_job[evidence, victim].append(contribution)
        of_pairs = math.fsum(
            max(math.fsum(parts) ** 2, math.fsum(part**2 for part in parts)) for parts in by_job.values()
        )
        of_runs = math.fsum((total * self.between_runs.shift) ** 2 for total in by_run.values())
        squared_error = own + of_pairs * self.between_runs.pair_error**2 + of_runs + of_predictions**2
        degrees = self.between_runs.degrees_of_freedom
        half_width = t_quantile_975(degrees) * math.sqrt(squared_error)
        return Interval(value, value - half_width, value + half_width)


HELD_OUT_SHARE = 1 / 3  # of the pairs of different jobs
SLOWDOWN_CAP = 1.5  # a victim above this has lost a third of its speed
LONGEST_IN_MINUTES = 120  # longer times are told in hours
LONGEST_RUN_S = 86400.0  # beyond a day nobody waits for a comparison

Pairing = tuple[tuple[str, str], ...]
"""A partition of jobs into pairs, by name."""


def all_pairings(names: Sequence[str]) -> Iterator[Pairing]:
    """Yield every partition of an even number of names into pairs: (n - 1)!! of them."""
    if not names:
        yield ()
        return
    first, others = names[0], list(names[1:])
    for k, partner in enumerate(others):
        for further_pairs in all_pairings(others[:k] + others[k + 1 :]):
            yield ((first, partner), *further_pairs)


def all_pairs(names: Sequence[str]) -> Pairing:
    """Return every pair of two different jobs. All pairs are in equally many pairings, so means over both are equal."""
    return tuple((a, b) for k, a in enumerate(names) for b in names[k + 1 :])


def directions(pairs: Sequence[tuple[str, str]]) -> list[Direction]:
    """Return (victim, neighbour) both ways round for every pair of jobs."""
    return [direction for a, b in pairs for direction in ((a, b), (b, a))]


def greedy_pairing(names: Sequence[str], slowdowns: Mapping[Direction, float]) -> Pairing:
    """Return the pairing that gives each job in turn the unpaired partner with the smallest sum of both slowdowns."""
    unpaired, pairs = list(names), []
    while unpaired:
        first = unpaired.pop(0)
        partner = min(unpaired, key=lambda job: slowdowns[first, job] + slowdowns[job, first])
        unpaired.remove(partner)
        pairs.append((first, partner))
    return tuple(pairs)


def choose_held_out(names: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Return a third of the unordered pairs of different jobs, drawn at random."""
    pairs = all_pairs(names)
    return sorted(random.Random(seed).sample(pairs, round(len(pairs) * HELD_OUT_SHARE)))  # noqa: S311 - no secret


def choose_random_pairing(names: Sequence[str], seed: int) -> Pairing:
    """Return a random pairing of the jobs."""
    return random.Random(seed + 1).choice(list(all_pairings(names)))  # noqa: S311 - no secret


def distinct_pairs(*pairings: Pairing) -> list[tuple[str, str]]:
    """Return the pairs of several pairings without repeats; the order of the two jobs makes no difference."""
    return list({frozenset(pair): pair for pairing in pairings for pair in pairing}.values())


# --- comparisons ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingScore:
    """The cost of a pairing to its jobs; for several pairings, the means of the figures."""

    mean_slowdown: Interval
    worst_victim: float  # the largest slowdown
    past_cap: float  # number of pairs in which a job is slowed more than `SLOWDOWN_CAP`


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """The score of a pairing, or of the mean over all pairings, by predictions and by measurements."""

    name: str
    pairing: Pairing  # empty where the row is a mean over pairings
    predicted: PairingScore
    measured: PairingScore
    stand_ins: tuple[Direction, ...] = ()  # not measured: their predictions count as measured
    slowdowns: int = 0  # how many the row is made of


class MeasuringTime(NamedTuple):
    """The seconds of measuring behind a comparison; 0 s for measurements that came with the program."""

    seconds: float = 0.0
    longer: int = 1  # what `--longer` was


class Verdict(StrEnum):
    """The conclusion from the difference of two pairings and its interval."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "the same pairs"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The mean slowdown of the chosen pairing minus the mean slowdown of another; a negative difference is better."""

    other: str
    chosen_run_again: bool  # otherwise both sides come from the first measurement
    difference: Interval
    time: MeasuringTime

    @property
    def verdict(self) -> Verdict:
        """Whether the chosen pairing is better, by the interval of the difference."""
        lower, upper = self.difference.lower, self.difference.upper
        if lower == upper == 0:
            return Verdict.SAME
        return Verdict.BETTER if upper < 0 else Verdict.WORSE if lower > 0 else Verdict.CANNOT_TELL

    def text(self) -> str:
        """Return the comparison of the two pairings as a sentence."""
        if self.verdict is Verdict.SAME:
            return f"chosen and {self.other} are the same pairs"
        conclusion = {
            Verdict.BETTER: "the chosen pairing is better",
            Verdict.WORSE: "the chosen pairing is NOT better, it is worse",
            Verdict.CANNOT_TELL: f"cannot tell which is better; {self._remedy()}",
        }[self.verdict]
        return (
            f"chosen{' (run again)' if self.chosen_run_again else ''} minus {self.other}: "
            f"{self.difference.value:+.3f} mean slowdown, 95 % interval "
            f"[{self.difference.lower:+.3f}, {self.difference.upper:+.3f}]: {conclusion}"
        )

    def _remedy(self) -> str:
        """Return how much longer to measure until the interval excludes zero: the width of an interval shrinks as
        1/√time."""
        if not self.time.seconds:
            return "measuring them again could"
        half_width, value = (self.difference.upper - self.difference.lower) / 2, self.difference.value
        seconds = self.time.seconds * (half_width / value) ** 2 if value else math.inf
        if seconds > LONGEST_RUN_S:
            return "not even a day of measuring could, so near are they"
        factor = max(2, math.ceil(seconds / self.time.seconds))
        minutes = math.ceil(factor * self.time.seconds / 60)
        time_text = f"{minutes} minutes" if minutes <= LONGEST_IN_MINUTES else f"{minutes / 60:.0f} hours"
        return (
            f"about {time_text} of measuring could, if the difference is what it seems: "
            f"interfere quickstart --longer {factor * self.time.longer}"
        )


def compare(
    names: Sequence[str],
    chosen: Pairing,
    greedy: Pairing,
    random_pairing: Pairing,
    knowledge: Knowledge,
    time: MeasuringTime,
) -> tuple[tuple[ComparisonRow, ...], tuple[Comparison, ...]]:
    """Return the rows of the table, and the comparisons with the mean over all pairings, a greedy and a random pairing.

    Where pairs were measured a second time, the comparisons use this second measurement. The first measurement chose
    the pairing, and a value chosen for being small is partly small by chance.
    """
    # 1. The rows of the first measurement, and those of the second where there is one.
    first, run = Evidence.FIRST, Evidence.AGAIN if knowledge.again else Evidence.FIRST
    every, measured = list(all_pairings(names)), knowledge.values(first)
    by_cost = sorted(every, key=lambda pairing: fmean(measured[pair] for pair in directions(pairing)))
    rows = [
        comparison_row("chosen by matching", [chosen], knowledge, first),
        comparison_row("greedy, in order", [greedy], knowledge, first),
        comparison_row(f"random (mean of {len(every):,})", every, knowledge, first),
        comparison_row("best possible", [by_cost[0]], knowledge, first),
        comparison_row("worst possible", [by_cost[-1]], knowledge, first),
    ]
    if run is Evidence.AGAIN:
        again = {"chosen, run again": chosen, "greedy, run again": greedy, "a random one, run": random_pairing}
        rows += [comparison_row(name, [pairing], knowledge, run) for name, pairing in again.items()]

    # 2. The differences.
    weights = knowledge.mean_weights(directions(chosen), run)
    others = {"random mean": (all_pairs(names), first), "greedy": (greedy, run), "a random one": (random_pairing, run)}
    comparisons = []
    for name, (pairs, evidence) in others.items():
        subtracted = knowledge.mean_weights(directions(pairs), evidence)
        interval = knowledge.interval(difference(weights, subtracted))
        is_again = run is Evidence.AGAIN
        comparisons.append(Comparison(other=name, chosen_run_again=is_again, difference=interval, time=time))
    return tuple(rows), tuple(comparisons)


def comparison_row(name: str, pairings: Sequence[Pairing], knowledge: Knowledge, run: Evidence) -> ComparisonRow:
    """Return the row of a pairing, or of the mean over several, as measured in a run."""
    wanted = list(dict.fromkeys(direction for pairing in pairings for direction in directions(pairing)))

    def score(evidence: Evidence) -> PairingScore:
        values = knowledge.values(evidence)
        worst = [[max(values[pair], values[pair[::-1]]) for pair in pairing] for pairing in pairings]
        return PairingScore(
            # Every pair is in equally many of all pairings, so the mean over these is the mean over all pairs.
            mean_slowdown=knowledge.interval(knowledge.mean_weights(wanted, evidence)),
            worst_victim=fmean(map(max, worst)),
            past_cap=fmean(sum(victim > SLOWDOWN_CAP for victim in victims) for victims in worst),
        )

    return ComparisonRow(
        name=name,
        pairing=pairings[0] if len(pairings) == 1 else (),
        predicted=score(Evidence.PREDICTED),
        measured=score(run),
        stand_ins=knowledge.stand_ins(wanted, run),
        slowdowns=len(wanted),
    )
