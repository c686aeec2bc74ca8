"""Onboarding: a site's commands alone, then batches of the pairs that teach most, until budget or target; then a model.

After each batch the belief about all pairs is computed anew from everything measured, and the next batch is chosen by
it. Run again after it was killed, an onboarding goes on where it stopped: what was measured is never measured again.

Law: a batch is written before its first pair is measured, so a run that was killed goes on with the same pairs.
Law: a reported number is the one that the published model serves. Where no model could be trained it is the
measurement, else the belief.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from interfere.data.tables import Table
from interfere.errors import TableError
from interfere.features.pair import FeatureEncoder
from interfere.file_writing import write_text
from interfere.predict.onnx import load_model, with_measurements
from interfere.predict.transfer.first_predictions import predict_first, read_first_predictions, write_first_predictions
from interfere.predict.transfer.pair_belief import PairBelief, site_belief, site_profiles
from interfere.predict.transfer.process import Floats, all_pairs
from interfere.predict.transfer.suggestions import Suggestion
from interfere.profiling.measurer import JobFailure, MeasuredTable, MeasuringProgress, Report
from interfere.profiling.measurer import measure as measure_jobs
from interfere.profiling.programs.profiler import CommandConfig
from interfere.records import PairBatch, Source
from interfere.sharing_modes import SharingMode

BELIEF = "belief"  # source of an answer that no model published


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardedPair:
    """The slowdown of a victim beside a neighbour: with its 95 % interval if it was measured, else with 90 %."""

    victim: str
    neighbour: str
    slowdown: float
    lower: float
    upper: float
    source: str  # measured, model or belief


def published_answers(
    folder: Path, jobs: Sequence[str], device_type: str, mode: SharingMode
) -> tuple[OnboardedPair, ...]:
    """Return the answers of a published model for all ordered pairs of the jobs, each victim beside all neighbours in
    turn.
    """
    model = load_model(folder, FeatureEncoder())
    victims, neighbours = all_pairs(len(jobs))
    answer = with_measurements(model, folder).predict_pairs(
        PairBatch(
            jobs=tuple(model.profiles[name, device_type] for name in jobs),
            victim=victims,
            neighbour=neighbours,
            device_type=device_type,
            mode=mode,
            allow_extrapolation=True,
        )
    )
    return tuple(
        OnboardedPair(
            victim=jobs[i],
            neighbour=jobs[j],
            slowdown=float(answer.median[k]),
            lower=float(answer.lower[k]),
            upper=float(answer.upper[k]),
            source=answer.source[k].value,
        )
        for k, (i, j) in enumerate(zip(victims.tolist(), neighbours.tolist(), strict=True))
    )


def believed_answers(known: PairBelief) -> tuple[OnboardedPair, ...]:
    """Return the measurements, and what is believed of all other ordered pairs, in the order of `published_answers`."""
    predicted = known.predict([(victim, neighbour) for victim in known.jobs for neighbour in known.jobs])
    return tuple(
        OnboardedPair(
            victim=each.victim,
            neighbour=each.neighbour,
            slowdown=known.measured.get((each.victim, each.neighbour), each.slowdown),
            lower=each.lower,
            upper=each.upper,
            source=Source.MEASURED.value if (each.victim, each.neighbour) in known.measured else BELIEF,
        )
        for each in predicted
    )


def slowdown_matrix(answers: Sequence[OnboardedPair], jobs: int) -> Floats:
    """Return float64[n, n]: the slowdown of the row's job beside the column's."""
    return np.array([each.slowdown for each in answers]).reshape(jobs, jobs)


FILE = "onboarding.json"
Pair = tuple[str, str]


@dataclass(slots=True)
class Batches:
    """Batches of chosen pairs, and the seconds that measuring has taken, over all runs."""

    path: Path
    batches: list[tuple[Pair, ...]] = field(default_factory=list)
    spent_s: float = 0.0

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Return the chosen pairs of all batches."""
        return tuple(pair for batch in self.batches for pair in batch)

    def add(self, batch: tuple[Pair, ...]) -> None:
        """Add a batch of chosen pairs."""
        self.batches.append(batch)
        self.save()

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"batches": self.batches, "spent_s": round(self.spent_s, 3)}, indent=2) + "\n"
        write_text(self.path, text)


def read_batches(table: Path) -> Batches:
    """Return the batches of a table's folder; none where nothing was chosen. Raises TableError for a damaged file."""
    path = table / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        batches = [tuple((str(a), str(b)) for a, b in batch) for batch in content["batches"]]
        return Batches(path=path, batches=batches, spent_s=float(content["spent_s"]))
    except FileNotFoundError:
        return Batches(path=path)
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"{FILE} is not a file that onboarding wrote",
            value=f"{path}: {error}",
            remedy="delete it: pairs are then chosen anew, and those measured already count",
        ) from None


PAIRS_A_BATCH = 3  # a suggestion made as if the two before it were measured loses little, and the refit takes a second
ALONE_SHARE = 0.5  # of the budget: commands start once alone, not several times, where that would take more
NEXT = 3  # pairs that the summary suggests


@dataclass(frozen=True, slots=True, kw_only=True)
class OnboardingConfig:
    """The jobs of an onboarding, its time budget, and the accuracy at which it stops."""

    campaign: CommandConfig  # its `pairs` are ignored: they are chosen here
    model: Path  # that predicts before anything is measured
    budget_s: float = math.inf  # of measuring, over all runs in the folder
    target: float = 0.0  # expected mean absolute error of speed at which it stops; 0: never
    max_pairs: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The accuracy of the predictions for all pairs, after a number of measured pairs."""

    pairs: int  # unordered, measured
    expected_error: float  # mean absolute error of speed over all pairs, measured ones included
    left_out_error: float  # of the measured pairs, each predicted from the others; NaN below three

    def text(self) -> str:
        """Return a line about the assessment."""
        told = f"{self.pairs} pairs measured: expected error of speed {self.expected_error:.3f}"
        if math.isfinite(self.left_out_error):
            told += f", each measured pair predicted from the others {self.left_out_error:.3f}"
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKnowledge:
    """The interference of one job: the slowdown that it suffers and causes, and the error, as means over the other
    jobs."""

    name: str
    step_time_s: float  # alone
    suffered: float  # its own slowdown
    caused: float  # theirs
    error: float  # expected absolute error of its own speed and of theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of an onboarding, and the pairs that it would measure next."""

    table: Table
    failures: tuple[JobFailure, ...]
    assessments: tuple[Assessment, ...]
    reason: str  # why it stopped
    next_pairs: tuple[Suggestion, ...]
    known: PairBelief

    @property
    def measured_pairs(self) -> int:
        """Return the number of unordered pairs with a slowdown."""
        return self.assessments[-1].pairs

    def knowledge(self, answers: Sequence[OnboardedPair]) -> list[JobKnowledge]:
        """Return the slowdowns and the expected error of every job, from the answers for all ordered pairs."""
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
    """Return the measurements of the commands alone and of chosen pairs, batch by batch, until budget or target.

    Raises UnfitError where fewer than two commands can be measured.
    """
    batches = read_batches(config.campaign.out)
    config = with_time_for_pairs(config)
    note(budget_text(config, batches.spent_s))
    result = _run(config, batches, report, measure)
    assessments: list[Assessment] = []
    while True:
        known = _belief(config, result.table)
        assessment = _assess(known)
        assessments.append(assessment)
        note(assessment.text())
        reason = _reason_to_stop(config, batches, known, assessment)
        count = NEXT if reason else _batch_size(config, batches, known)
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
    """Return a line about a pair to measure."""
    first, second = suggestion.pair
    often = f"; {suggestion.chosen:.0%} of likely matchings pair them" if suggestion.chosen >= 0.1 else ""
    return (
        f"  next: {first} + {second}: its speeds are known to ± {suggestion.error_now:.3f}, "
        f"measuring it is expected to lower the error of all pairs by {suggestion.gain:.0%}{often}"
    )


def _run(config: OnboardingConfig, batches: Batches, report: Report, measure: MeasureJobs) -> MeasuredTable:
    """Measure what is missing of the commands and the chosen pairs, and add the time to the spent budget."""
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
    """Return the belief given all measurements, whose prior is the model's predictions from before the first
    measurement."""
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


def with_time_for_pairs(config: OnboardingConfig) -> OnboardingConfig:
    """Return the onboarding with as many starts of each command alone as take `ALONE_SHARE` of the budget, one at
    least."""
    once_s = _alone_s(config) / config.campaign.repeats
    repeats = int(min(config.campaign.repeats, max(1.0, ALONE_SHARE * config.budget_s / once_s)))
    return replace(config, campaign=replace(config.campaign, repeats=repeats))


def budget_text(config: OnboardingConfig, spent_s: float) -> str:
    """Return a line on the time that measuring is expected to take, before anything is known of the commands."""
    alone_s, pair_s = _alone_s(config), _pair_s(config)
    commands = len(config.campaign.commands)
    text = f"about {_time_text(alone_s)} for {commands} commands alone, {_time_text(pair_s)} for a pair"
    if spent_s:
        return f"{text}; {_time_text(spent_s)} of the budget are spent"
    if alone_s + pair_s > config.budget_s:
        needed = f"{math.ceil((alone_s + PAIRS_A_BATCH * pair_s) / 60)}m"
        return f"{text}: the budget of {_time_text(config.budget_s)} may end before the first pair; --budget {needed}"
    return text if math.isinf(config.budget_s) else f"{text}; the budget: {_time_text(config.budget_s)}"


def _time_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _alone_s(config: OnboardingConfig) -> float:
    """Return the seconds that running all commands alone is expected to take."""
    return len(config.campaign.commands) * config.campaign.expected_solo_s()


def _pair_s(config: OnboardingConfig) -> float:
    """Return the seconds that measuring a pair is expected to take."""
    return config.campaign.passes * config.campaign.expected_block_s(config.campaign.names[:1] * 2)


def pairs_in_budget(config: OnboardingConfig, batches: Batches) -> float:
    """Return the pairs, and the part of a pair, for which the budget leaves time, by how long all took so far."""
    expected_s = _alone_s(config) + len(batches.pairs) * _pair_s(config)
    pair_s = _pair_s(config) * max(1.0, batches.spent_s / expected_s)
    return (config.budget_s - batches.spent_s) / pair_s


def _batch_size(config: OnboardingConfig, batches: Batches, known: PairBelief) -> int:
    left = math.inf if config.max_pairs is None else config.max_pairs - len(known.tried)
    return int(min(PAIRS_A_BATCH, left, pairs_in_budget(config, batches)))


def _reason_to_stop(config: OnboardingConfig, batches: Batches, known: PairBelief, now: Assessment) -> str:
    """Return the reason why no further batch is measured; empty where measuring continues."""
    n = len(known.jobs)
    if len(known.tried) >= n * (n + 1) // 2:
        return "every pair was measured"
    if config.max_pairs is not None and len(known.tried) >= config.max_pairs:
        return f"the {config.max_pairs} pairs asked for were measured"
    # An expectation alone may be wrong: it counts once each job was in a pair, and the measured pairs confirm it.
    if now.pairs >= (n + 1) // 2 and max(now.expected_error, now.left_out_error) <= config.target:
        return f"the target of {config.target:g} is reached"
    if pairs_in_budget(config, batches) < 1:
        return f"the budget is spent: {batches.spent_s / 60:.1f} of {config.budget_s / 60:.1f} minutes"
    return ""
