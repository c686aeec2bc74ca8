"""Onboarding: a site's commands alone, then batches of the pairs that teach most, until budget or target; then a model.

After each batch the belief about all pairs is computed anew from everything measured, and the next batch is chosen by
it. Run again after it was killed, an onboarding goes on where it stopped: what was measured is never measured again.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.predict.transfer.first_predictions import predict_first, read_first_predictions, write_first_predictions
from interfere.predict.transfer.pair_belief import PairBelief
from interfere.predict.transfer.site_belief import site_belief, site_profiles
from interfere.predict.transfer.suggestions import Suggestion
from interfere.profiling.measurer import JobFailure, MeasuredTable, MeasuringProgress, Report
from interfere.profiling.measurer import measure as measure_jobs
from interfere.profiling.programs.config import CommandConfig
from interfere.training.onboarding.answers import PairAnswer, slowdown_matrix
from interfere.training.onboarding.batches import Batches, read_batches

PAIRS_A_BATCH = 3  # a suggestion made as if the two before it were measured loses little, and the refit takes a second
START_S = 3.0  # of a command, beside its windows, for the time that a batch will take
NEXT = 3  # pairs that the summary suggests


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardingConfig:
    """What to bring in, how long it may take, and when it is good enough."""

    campaign: CommandConfig  # its `pairs` are ignored: they are chosen here
    model: Path  # that predicts before anything is measured
    budget_s: float = math.inf  # of measuring, over all runs in the folder
    target: float = 0.0  # expected mean absolute error of speed at which it stops; 0: never
    max_pairs: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """How well all pairs are known after so many."""

    pairs: int  # unordered, measured
    expected_error: float  # mean absolute error of speed over all pairs, measured ones included
    left_out_error: float  # of the measured pairs, each predicted from the others; NaN below three

    def text(self) -> str:
        """One line."""
        told = f"{self.pairs} pairs measured: expected error of speed {self.expected_error:.3f}"
        if math.isfinite(self.left_out_error):
            told += f", each measured pair predicted from the others {self.left_out_error:.3f}"
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKnowledge:
    """What is known of one job beside the others: means over them."""

    name: str
    step_time_s: float  # alone
    suffered: float  # its own slowdown
    caused: float  # theirs
    error: float  # expected absolute error of its own speed and of theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an onboarding measured, and what it would measure next."""

    table: Table
    failures: tuple[JobFailure, ...]
    assessments: tuple[Assessment, ...]
    reason: str  # why it stopped
    next_pairs: tuple[Suggestion, ...]
    known: PairBelief

    @property
    def measured_pairs(self) -> int:
        """Unordered pairs with a slowdown."""
        return self.assessments[-1].pairs

    def knowledge(self, answers: Sequence[PairAnswer]) -> list[JobKnowledge]:
        """What is known of every job, by the answers for all ordered pairs."""
        error = self.known.expected_errors
        slowdown = slowdown_matrix(answers, len(self.known.jobs))
        step_times_s = {job.workload: job.step_time_s for job in self.table.jobs}
        return [
            JobKnowledge(
                name=name,
                step_time_s=step_times_s[name],
                suffered=float(slowdown[k].mean()),
                caused=float(slowdown[:, k].mean()),
                error=float((error[k].mean() + error[:, k].mean()) / 2),
            )
            for k, name in enumerate(self.known.jobs)
        ]


MeasureJobs = Callable[[CommandConfig, Report], MeasuredTable]
"""Measures what is missing of the commands and pairs."""


def measure_site(
    config: OnboardingConfig,
    report: Report,
    note: Callable[[str], None],
    measure: MeasureJobs = measure_jobs,
) -> Measured:
    """Measure the commands alone and the chosen pairs. Raises UnfitError where fewer than two can be measured."""
    batches = read_batches(config.campaign.out)
    result = _run(config, batches, report, measure)
    assessments: list[Assessment] = []
    while True:
        known = _belief(config, result.table)
        assessment = _assess(known)
        assessments.append(assessment)
        note(assessment.text())
        reason = _reason_to_stop(config, batches, known, assessment)
        count = NEXT if reason else _batch_size(config, known)
        suggestions = known.suggest(count, seed=config.seed)
        if reason or not suggestions:
            break
        for suggestion in suggestions:
            note(suggestion_text(suggestion))
        batches.add(tuple(suggestion.pair for suggestion in suggestions))
        result = _run(config, batches, report, measure)
    return Measured(
        table=result.table,
        failures=result.failures,
        assessments=tuple(assessments),
        reason=reason,
        next_pairs=tuple(suggestions),
        known=known,
    )


def suggestion_text(suggestion: Suggestion) -> str:
    """One line about a pair to measure."""
    first, second = suggestion.pair
    often = f"; {suggestion.chosen:.0%} of likely matchings pair them" if suggestion.chosen >= 0.1 else ""
    return (
        f"  next: {first} + {second}: its speeds are known to ± {suggestion.error_now:.3f}, "
        f"measuring it lowers the error of all pairs by {suggestion.gain:.0%}{often}"
    )


def _run(config: OnboardingConfig, batches: Batches, report: Report, measure: MeasureJobs) -> MeasuredTable:
    """Measure what is missing of the commands and the chosen pairs, and count the time."""
    start_s = time.monotonic()

    def spent(progress: MeasuringProgress) -> None:
        nonlocal start_s
        now_s = time.monotonic()
        batches.spent_s, start_s = batches.spent_s + now_s - start_s, now_s
        report(progress)

    try:
        return measure(replace(config.campaign, pairs=batches.pairs), spent)
    finally:
        batches.spent_s += time.monotonic() - start_s
        batches.save()


def _belief(config: OnboardingConfig, table: Table) -> PairBelief:
    """The belief after what was measured, from what the model predicted before the first measurement."""
    campaign, folder = config.campaign, config.campaign.out
    names = tuple(command.name for command in campaign.commands)
    before = read_first_predictions(folder)
    profiles = site_profiles(table, campaign.device_type, names)
    model = load_model(config.model, FeatureEncoder())
    first = predict_first(before, model, profiles, campaign.device_type, campaign.mode)
    if first is not before:
        write_first_predictions(folder, first)
    return site_belief(table, model, device_type=campaign.device_type, mode=campaign.mode, jobs=names, first=first)


def _assess(known: PairBelief) -> Assessment:
    return Assessment(
        pairs=len({frozenset(pair) for pair in known.measured}),
        expected_error=float(known.expected_errors.mean()),
        left_out_error=known.hidden_pair_score().speed_error,
    )


def _batch_size(config: OnboardingConfig, known: PairBelief) -> int:
    left = math.inf if config.max_pairs is None else config.max_pairs - len(known.tried)
    return int(min(PAIRS_A_BATCH, left))


def _reason_to_stop(config: OnboardingConfig, batches: Batches, known: PairBelief, now: Assessment) -> str:
    """Why no further batch is measured; empty to go on."""
    n = len(known.jobs)
    if len(known.tried) >= n * (n + 1) // 2:
        return "every pair was measured"
    if config.max_pairs is not None and len(known.tried) >= config.max_pairs:
        return f"the {config.max_pairs} pairs asked for were measured"
    # An expectation alone may be wrong: it counts once each job was in a pair, and the measured pairs confirm it.
    if now.pairs >= (n + 1) // 2 and max(now.expected_error, now.left_out_error) <= config.target:
        return f"the target of {config.target:g} is reached"
    batch_s = PAIRS_A_BATCH * config.campaign.passes * (2 * START_S + 3 * config.campaign.window_s)
    if batches.spent_s + batch_s > config.budget_s:
        return f"the budget is spent: {batches.spent_s / 60:.1f} of {config.budget_s / 60:.1f} minutes"
    return ""
