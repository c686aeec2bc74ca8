"""What a site must collect for which accuracy: models on all facts of the jobs, and on fewer.

Fact ablation fits and asks the models with fewer facts; `utilisation` keeps what a site can collect without profiling:
step times, monitoring counters and memory.

Poor profiles: models fitted on well-described jobs are asked about unseen jobs of which less is known. Of every job
that a fold hides, the profile is reduced to some facts; its neighbours of training keep theirs. Beside the error of
some stands that of the same model fitted without the hidden facts. Intervals are those of the full profiles: calibrated
on the other folds, wider by the novelty that missing facts bring. The threshold of abstention is the one that training
learns on this table's families.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.facts import STATIC, STATIC_SUFFIX, combine_profiles, split_static
from interfere.data.tables import Table
from interfere.errors import UnfitError
from interfere.features.job import COLUMNS, FACT_GROUPS, UTILISATION_COLUMNS
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed_error
from interfere.predict.intervals import Intervals
from interfere.reports.document import Column, Section
from interfere.reports.document import Table as Grid
from interfere.reports.numbers import fixed, percent
from interfere.sharing_modes import DEFAULT_MODE
from interfere.study.engine import Runner
from interfere.training.dataset import Dataset, PairRows
from interfere.training.evaluation.candidates import FAMILY_GROUPS
from interfere.training.evaluation.cross_validation import (
    IN_THIS_PROCESS,
    Evaluation,
    cross_fold_interval,
    evaluate_models,
)
from interfere.training.evaluation.interval_calibration import abstention_threshold
from interfere.training.models.completed import ENCODER, CompletedModel, FittedCompleted, jobs_of_rows
from interfere.training.models.protocols import FittedPredictor, ScoredModel


class FactSet(StrEnum):
    """Which facts of a profile the models may read."""

    ALL = "all"
    MEASURED = "without-static"  # without what was traced from the architecture that a name stands for
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True, kw_only=True)
class AblatedTables:
    """Tables and encoder that show one fact set only."""

    facts: FactSet
    tables: tuple[Table, ...]
    encoder: FeatureEncoder


def ablate_facts(tables: Sequence[Table], fact_sets: Sequence[FactSet] = tuple(FactSet)) -> tuple[AblatedTables, ...]:
    """Return the tables under each fact set; `without-static` only where the tables have static facts."""
    measured = tuple(map(_without_static, tables))
    has_static = any(job.source.endswith(STATIC_SUFFIX) for table in tables for job in table.jobs)
    ablations = (
        AblatedTables(facts=FactSet.ALL, tables=tuple(tables), encoder=FeatureEncoder()),
        AblatedTables(facts=FactSet.MEASURED, tables=measured, encoder=FeatureEncoder()),
        AblatedTables(
            facts=FactSet.UTILISATION, tables=measured, encoder=FeatureEncoder(visible_columns=UTILISATION_COLUMNS)
        ),
    )
    return tuple(
        ablation
        for ablation in ablations
        if ablation.facts in fact_sets and (has_static or ablation.facts is not FactSet.MEASURED)
    )


def _without_static(table: Table) -> Table:
    """Return the table without facts from static traces. A job with no other facts keeps its static facts."""
    rows = [part for row in table.profiles for part in split_static(row)]
    measured = {(row.workload, row.device_type) for row in rows if row.source != STATIC}
    kept = [row for row in rows if row.source != STATIC or (row.workload, row.device_type) not in measured]
    combined = combine_profiles(kept)
    return replace(table, jobs=combined.jobs, sources=combined.sources)


STEP_TIME = "log_step_time_s"
OF_THE_DEVICE = frozenset(name for name in COLUMNS if name.startswith(("device_", "mode_")))  # known of any job
PROFILES: Mapping[str, frozenset[str]] = {  # the columns that are left of an unseen job's profile
    "all facts": frozenset(COLUMNS),
    "no timeline": frozenset(COLUMNS) - (frozenset(FACT_GROUPS["activity"][0]) - {STEP_TIME}),
    "no kernels": frozenset(COLUMNS) - frozenset(FACT_GROUPS["kernels"][0]),
    "no occupancy": frozenset(COLUMNS) - frozenset(FACT_GROUPS["occupancy"][0]),
    "no counters": frozenset(COLUMNS) - frozenset(FACT_GROUPS["counters"][0]),
    "no memory": frozenset(COLUMNS) - frozenset(FACT_GROUPS["memory"][0]),
    "no operations or traffic": frozenset(COLUMNS) - frozenset(FACT_GROUPS["roofline"][0]),
    "utilisation and memory": UTILISATION_COLUMNS,
    "step time alone": frozenset({STEP_TIME}),
}

NO_STATIC = "no static traces"  # a profile of `score_poor_profiles`, whose columns depend on the tables
FITTED_WITHOUT = (NO_STATIC, "utilisation and memory", "step time alone")  # a model is fitted so too

Floats = NDArray[np.float64]


def columns_without_static(tables: Sequence[Table]) -> frozenset[str]:
    """Return the columns that any job of the tables has without its static facts."""
    jobs = [job for table in map(_without_static, tables) for job in table.jobs if job.source != STATIC]
    rows = [ENCODER.encode_jobs([job], job.device_type, DEFAULT_MODE)[0] for job in jobs]
    return frozenset(name for k, name in enumerate(COLUMNS) if any(np.isfinite(row[k]) for row in rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoorProfileScore:
    """One model on unseen jobs with the same facts left, over all folds of a split."""

    facts: str  # key of `PROFILES`, or `NO_STATIC`
    mae: float  # mean |y - ŷ| of speed over all tests, answered or not
    mae_fitted_without: float  # of the model fitted on jobs that all lack the other facts; NaN where none was fitted
    abstained: float  # share of the tests that the model abstains from
    mae_answered: float  # NaN where none is answered
    mae_abstained: float  # NaN where all are answered
    coverage: float  # share of the answered tests inside their 90 % interval


def score_poor_profiles(
    dataset: Dataset,
    model: CompletedModel,
    split: str,
    seed: int,
    count: int | None = None,
    measured_columns: frozenset[str] = frozenset(COLUMNS),
    runner: Runner = IN_THIS_PROCESS,
) -> tuple[PoorProfileScore, ...]:
    """Return the scores of the model for each entry of `PROFILES` that hides a fact of this dataset.

    The scores with all facts come first. `measured_columns` are those that jobs have without static facts: where there
    are fewer than the dataset has, jobs without static facts are scored too.
    """
    # 1. Find which profiles hide a fact that a job of this dataset has.
    present = np.asarray(np.isfinite(np.concatenate(jobs_of_rows(dataset.rows))).any(axis=0)).tolist()
    has_fact = {name for name, somewhere in zip(COLUMNS, present, strict=True) if somewhere} - OF_THE_DEVICE
    visible_of = {
        facts: tuple(sorted(has_fact & columns))
        for facts, columns in {**PROFILES, NO_STATIC: measured_columns}.items()
        if facts == "all facts" or has_fact - columns
    }
    # 2. Cross-validate the model, the same asked about poorer profiles, and those that are fitted on less.
    asked = {facts: OnFewerFacts(model=model, visible=visible) for facts, visible in visible_of.items()}
    refitted = {facts: replace(each, is_refitted=True) for facts, each in asked.items() if facts in FITTED_WITHOUT}
    models: tuple[ScoredModel, ...] = (model, *asked.values(), *refitted.values())
    every = {each.name: each for each in models}
    evaluations = evaluate_models(
        dataset, tuple(every.values()), splits=(split,), seed=seed, count=count, runner=runner
    )
    by_name = {each.model: each for each in evaluations}
    # 3. Score them.
    threshold = _abstention_threshold(dataset, model, seed, runner)
    return tuple(
        _score(
            dataset,
            facts,
            by_name[model.name],
            by_name[each.name],
            threshold,
            by_name[refitted[facts].name].scores.mae if facts in refitted else math.nan,
        )
        for facts, each in asked.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFewerFacts:
    """A model that is asked about jobs that no training row shows with some columns of theirs alone.

    A refitted one is fitted and asked with these columns of all jobs.
    """

    model: CompletedModel
    visible: tuple[str, ...]  # columns
    is_refitted: bool = False

    @property
    def name(self) -> str:
        """Return the name of the model, and the columns."""
        return f"{self.model.name} {'fitted on' if self.is_refitted else 'asked with'} {', '.join(self.visible)}"

    def fit(self, dataset: Dataset, seed: int) -> "FittedOnFewerFacts":
        """Fit the model."""
        return self.fit_beside({}, dataset, seed)

    def fit_beside(self, fitted: Mapping[str, FittedPredictor], dataset: Dataset, seed: int) -> "FittedOnFewerFacts":
        """Fit the model; one that was fitted on all facts already is asked with fewer."""
        visible, nobody = frozenset(self.visible), np.zeros(0, dtype=np.int64)
        if self.is_refitted:
            inner, seen = self.model.fit(replace(dataset, rows=hide_facts(dataset.rows, visible, nobody)), seed), nobody
        else:
            found = fitted.get(self.model.name)
            inner = found if isinstance(found, FittedCompleted) else self.model.fit(dataset, seed)
            seen = np.unique(np.concatenate([dataset.rows.victim, dataset.rows.neighbour]))
        return FittedOnFewerFacts(name=self.name, inner=inner, visible=visible, seen=seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedOnFewerFacts:
    """A fitted model that is asked about all but the `seen` jobs with the `visible` columns alone."""

    name: str
    inner: FittedCompleted
    visible: frozenset[str]
    seen: NDArray[np.int64]

    def predict(self, rows: PairRows) -> Floats:
        """Return predicted log slowdowns, float64[p]."""
        return self.inner.predict(hide_facts(rows, self.visible, self.seen))

    def novelty(self, rows: PairRows) -> Floats:
        """Return the novelty of each pair, float64[p] in [0, 1]."""
        return self.inner.novelty(hide_facts(rows, self.visible, self.seen))


def hide_facts(rows: PairRows, visible: frozenset[str], seen: NDArray[np.int64]) -> PairRows:
    """Return the rows, in which all but the `seen` jobs keep the `visible` columns only."""
    hidden = np.array([name not in visible | OF_THE_DEVICE for name in COLUMNS])
    kept = (
        np.where(~np.isin(identity, seen)[:, None] & hidden, np.float32(np.nan), jobs)
        for identity, jobs in zip((rows.victim, rows.neighbour), jobs_of_rows(rows), strict=True)
    )
    return replace(rows, pairs=ENCODER.encode_pairs(*kept))


def poor_profiles_section(title: str, scores: tuple[PoorProfileScore, ...]) -> Section:
    """Return the scores as a table with one row for each set of known facts."""
    error, share = fixed(4), percent()
    columns = (
        Column("facts of an unseen job"),
        Column("MAE", error),
        Column("MAE fitted without", error),
        Column("abstains", share),
        Column("MAE answered", error),
        Column("MAE abstained", error),
        Column("90 % covers", share),
    )
    rows = tuple(
        (row.facts, row.mae, row.mae_fitted_without, row.abstained, row.mae_answered, row.mae_abstained, row.coverage)
        for row in scores
    )
    return Section(title, (Grid(title=title, columns=columns, rows=rows),))


def _abstention_threshold(dataset: Dataset, model: CompletedModel, seed: int, runner: Runner) -> float:
    """Return the threshold that training would publish; infinite where the rows have no families to hide."""
    try:
        (family,) = evaluate_models(
            dataset, (model,), splits=("family",), seed=seed, count=FAMILY_GROUPS, runner=runner
        )
    except UnfitError:
        return math.inf
    return abstention_threshold(dataset, family)


def _score(
    dataset: Dataset, facts: str, full: Evaluation, poor: Evaluation, threshold: float, error_fitted_without: float
) -> PoorProfileScore:
    """Return the scores of the predictions from poor profiles.

    Intervals come from the predictions from full profiles in the other folds.
    """
    low, high = cross_fold_interval(
        dataset,
        full.index,
        full.predicted_log,
        full.fold,
        novelty=full.novelty,
        partners=full.partners,
        asked=(poor.predicted_log, poor.novelty),
    )
    measured_log = dataset.log_slowdown[poor.index]
    error = speed_error(measured_log, poor.predicted_log)
    rule = Intervals(calibrated=False, levels=np.zeros(0), grids=np.zeros(0), abstains_above=threshold)
    answered = ~rule.abstains(poor.novelty, poor.predicted_log)
    inside = (low <= measured_log) & (measured_log <= high)

    def mean(values: NDArray[Any], selected: NDArray[np.bool_]) -> float:
        return float(values[selected].mean()) if selected.any() else math.nan

    return PoorProfileScore(
        facts=facts,
        mae=poor.scores.mae,
        mae_fitted_without=error_fitted_without,
        abstained=float(1.0 - answered.mean()),
        mae_answered=mean(error, answered),
        mae_abstained=mean(error, ~answered),
        coverage=mean(inside, answered),
    )
