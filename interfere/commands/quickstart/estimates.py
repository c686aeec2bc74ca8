"""The slowdowns that a run knows, each with its error: measured once, measured again, or predicted.

Each slowdown has a value and a standard error. A prediction with its interval stands in for a slowdown that was not
measured. A mean, or a difference of means, is a weighted sum of such estimates; its interval adds up four kinds of
error:

1. of each measurement, its own (from its interval), independent of the others;
2. of each measurement, what another run would find different: for this pair alone, or for all pairs of the job that is
   slowed down (its process got other memory), whichever is more;
3. of each run, what it finds larger or smaller for all pairs alike;
4. of each prediction, its own. Predictions err together (a job that is predicted too low beside one neighbour is too
   low beside another), so their errors are added up as they are: an upper bound.

Kinds 2 and 3 are learned from the pairs that a run measures twice.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, variance
from typing import NamedTuple

from interfere.profiling.schedule import NORMAL_975, T_975
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
        quantile = T_975[degrees - 1] if degrees <= len(T_975) else NORMAL_975  # of Student's t
        half_width = quantile * math.sqrt(squared_error)
        return Interval(value, value - half_width, value + half_width)
