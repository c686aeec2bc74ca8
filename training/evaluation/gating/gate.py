"""The gate between challenger and champion: error of speed *and* decision regret, on rows that neither saw.

Which rows. Where at least `MIN_ROWS` rows of `MIN_WORKLOADS` workloads are of pairs that the champion's published
folder was not fitted on, those are the tests: pairs held out from this training, predicted by the challenger itself,
and pairs measured since the champion's training, predicted out of fold by the challenger; the champion predicts both
with its published graph. The trusted rows, which were measured and not observed, are tests as well: those that both
were fitted on, each predicted by folds that hid it, the champion's as published with it. Only for a champion of an
earlier release, published without them, the two model types are compared on the same folds of `pair` and `job`.

What is compared, challenger - champion, with a 90 % interval by a paired bootstrap over workloads (2,000 resamples):

    error   mean |y - ŷ| over all tests, y = 1/s clipped as in `speed`
    regret  100 · (Σ_i s_i(P) / Σ_i s_i(M) - 1), in %: s_i(X) is the measured slowdown of job i under the matching X; P
            minimises the sum of predicted slowdowns, M that of measured ones, in each domain: of all its jobs, and of
            20 random halves of them, as a queue holds only some of the jobs; sums run over all of these

A matching pairs as many jobs as it can. Only pairs measured in both directions are allowed, and a job without a partner
runs solo (s = 1). A challenger is worse if the lower end of the interval is above the tolerance. A challenger that is
worse than the champion on either, or worse in error than the mean or the additive baseline on either split, is refused.

By side. For jobs that no training row shows, error, regret and coverage of their own slowdown and of what they do to
others (`sides`) are compared on the trusted rows. A challenger that is worse in error or regret of a side by more than
twice the tolerance, or whose coverage of a side is below `MIN_COVERAGE` and by two standard errors below the
champion's, is refused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.training.evaluation.gating.comparison import (
    Difference,
    PairedPredictions,
    compare,
    compare_side,
    no_difference,
)
from interfere.training.evaluation.scores import Side

MIN_ROWS, MIN_WORKLOADS = 20, 4  # as many rows as calibrate a new device type; fewer jobs allow one matching only
# A tenth of the difference between two measurements of one pair on the public tables (.012 and .017 in speed), and more
# than the effect of another seed of LightGBM there and on the shipped table (.0006).
ERROR_TOLERANCE = 0.001
REGRET_TOLERANCE = 0.4  # %, the effect of another seed of LightGBM: .15 on Gavel's table, .37 on the shipped one
SIDE_FACTOR = 2.0  # of both tolerances: a side has half of the tests
MIN_COVERAGE = 0.85  # of 90 % intervals over the rows of a side
COVERAGE_ERRORS = 2.0  # standard errors of a coverage of .9 over the rows of a side


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTests:
    """The tests of one side of new jobs, and the coverage that each model reached on that side out of fold."""

    side: Side
    tests: PairedPredictions
    coverage: float  # of the challenger; NaN where unknown
    champion_coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SideComparison:
    """Both models on one side of new jobs."""

    side: Side
    error: Difference  # of speed
    regret: Difference  # in %
    rows: int
    coverage: float  # of the challenger's 90 % intervals; NaN where unknown
    champion_coverage: float

    def text(self) -> str:
        """All figures of both models, in one line."""
        return (
            f"{_SIDE_NAMES[self.side]}, {self.rows} rows: error of speed {self.error.text('.4f')}; regret "
            f"{self.regret.text('.2f', ' %')}; coverage {self.coverage:.3f} against {self.champion_coverage:.3f}"
        )

    def worse_scores(self) -> list[str]:
        """The scores in which the challenger is worse."""
        worse = [
            f"{name} of {_SIDE_NAMES[self.side]} {difference.text(form, unit)}"
            for name, difference, tolerance, form, unit in (
                ("error", self.error, ERROR_TOLERANCE, ".4f", ""),
                ("regret", self.regret, REGRET_TOLERANCE, ".2f", " %"),
            )
            if difference.worse(SIDE_FACTOR * tolerance)
        ]
        tolerance = COVERAGE_ERRORS * math.sqrt(0.9 * 0.1 / max(self.rows, 1))
        if self.coverage < MIN_COVERAGE and self.coverage < self.champion_coverage - tolerance:
            worse.append(
                f"coverage of {_SIDE_NAMES[self.side]} {self.coverage:.3f} against {self.champion_coverage:.3f}"
            )
        return worse


_SIDE_NAMES = {Side.OWN: "a new job's own slowdown", Side.OTHERS: "what a new job does to others"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the challenger may become champion; `reason` is one line with figures."""

    passed: bool
    reason: str
    against: str  # what it was compared with, and on which rows
    error: Difference  # of speed
    regret: Difference  # in %
    sides: tuple[SideComparison, ...] = ()  # of jobs that no training row shows


def judge(
    tests: Sequence[PairedPredictions],
    against: str,
    *,
    baselines: Sequence[tuple[str, PairedPredictions]] = (),
    sides: Sequence[SideTests] = (),
    seed: int = 0,
) -> Verdict:
    """The verdict on all tests together; `baselines` are (name and split, tests with the baseline as champion).

    Without tests (the first model of a workspace) only the baselines count.
    """
    # 1. Compare with the champion.
    error, regret = compare(tests, seed)
    compared = tuple(_compare_side(side, seed) for side in sides)
    # 2. Refuse a challenger that is worse than a baseline.
    for name, baseline_tests in baselines:
        baseline_error, _ = compare([baseline_tests], seed)
        if baseline_error.worse(ERROR_TOLERANCE):
            reason = f"refused: worse than {name}, error of speed {baseline_error.text('.4f')}"
            return Verdict(passed=False, reason=reason, against=against, error=error, regret=regret, sides=compared)
    # 3. Refuse one that is worse than the champion in either score.
    figures = f"error of speed {error.text('.4f')}; regret {regret.text('.2f', ' %')}"
    worse_sides = [text for side in compared for text in side.worse_scores()]
    worse_scores = [
        name
        for name, difference, tolerance in (("error", error, ERROR_TOLERANCE), ("regret", regret, REGRET_TOLERANCE))
        if difference.worse(tolerance)
    ]
    if worse_scores:
        reason = f"refused: worse than {against} in {' and '.join(worse_scores)}; {figures}"
    elif worse_sides:
        reason = f"refused: worse than {against} in {'; '.join(worse_sides)}"
    elif tests:
        reason = f"passed: not worse than {against}; {figures}"
    else:
        reason = f"passed: {against}, not worse than mean and additive"
    passed = not (worse_scores or worse_sides)
    return Verdict(passed=passed, reason=reason, against=against, error=error, regret=regret, sides=compared)


def refused_labels(against: str, contradiction: str) -> Verdict:
    """Return the refusal of a model whose training labels contradict the labels of an earlier training."""
    reason = f"refused: the labels contradict what {against} was trained on: {contradiction}"
    return Verdict(passed=False, reason=reason, against=against, error=no_difference(), regret=no_difference())


def _compare_side(side: SideTests, seed: int) -> SideComparison:
    error, regret = compare_side(side.side, side.tests, seed)
    return SideComparison(
        side=side.side,
        error=error,
        regret=regret,
        rows=len(side.tests),
        coverage=side.coverage,
        champion_coverage=side.champion_coverage,
    )
