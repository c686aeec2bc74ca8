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
from interfere.predict.acceptance.score import speed
from interfere.predict.intervals import Intervals
from interfere.reports.document import Column, Section
from interfere.reports.document import Table as Grid
from interfere.reports.numbers import fixed, percent
from interfere.sharing_modes import DEFAULT_MODE
from interfere.training.dataset import Dataset, PairRows
from interfere.training.evaluation.candidates import FAMILY_GROUPS
from interfere.training.evaluation.cross_validation import (
    cross_fold_interval,
    evaluate_models,
    fold_of_tests,
    tested_rows,
    unseen_sides,
)
from interfere.training.evaluation.interval_calibration import abstention_threshold, partners_of_tests
from interfere.training.evaluation.splits import Fold, folds
from interfere.training.models.completed import ENCODER, CompletedModel, FittedCompleted, jobs_of_rows


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
) -> tuple[PoorProfileScore, ...]:
    """Return the scores of the model for each entry of `PROFILES` that hides a fact of this dataset.

    The scores with all facts come first. `measured_columns` are those that jobs have without static facts: where there
    are fewer than the dataset has, jobs without static facts are scored too.
    """
    split_folds = folds(dataset, split, seed, count)
    fitted = [model.fit(dataset.take(fold.train), seed) for fold in split_folds]
    full = _predictions(dataset, split_folds, fitted, PROFILES["all facts"])
    absent = np.asarray(np.isnan(np.concatenate(jobs_of_rows(dataset.rows))).all(axis=0)).tolist()
    threshold = _abstention_threshold(dataset, model, seed)
    has_fact = {name for name, nowhere in zip(COLUMNS, absent, strict=True) if not nowhere} - OF_THE_DEVICE
    fitted_without: dict[frozenset[str], float] = {}  # error, by the facts that are left
    scores = []
    for facts, columns in {**PROFILES, NO_STATIC: measured_columns}.items():
        if facts == "all facts" or has_fact - columns:
            left = frozenset(has_fact & columns)
            if facts in FITTED_WITHOUT and left not in fitted_without:
                fitted_without[left] = _error_fitted_without(dataset, model, split_folds, columns, seed)
            poor = _predictions(dataset, split_folds, fitted, columns)
            error = fitted_without[left] if facts in FITTED_WITHOUT else math.nan
            scores.append(_score(dataset, split_folds, facts, full, poor, threshold, error))
    return tuple(scores)


def hide_facts(dataset: Dataset, fold: Fold, visible: frozenset[str]) -> PairRows:
    """Return the test rows of a fold, where jobs that no training row shows keep the `visible` columns only."""
    return _with_facts(dataset.rows.take(fold.test), visible, *unseen_sides(dataset, fold))


def _with_facts(
    rows: PairRows, visible: frozenset[str], victims: NDArray[np.bool_], neighbours: NDArray[np.bool_]
) -> PairRows:
    """Return the rows, of which the selected victims and neighbours keep the `visible` columns only."""
    hidden = np.array([name not in visible | OF_THE_DEVICE for name in COLUMNS])
    kept = (
        np.where(selected[:, None] & hidden, np.float32(np.nan), jobs)
        for selected, jobs in zip((victims, neighbours), jobs_of_rows(rows), strict=True)
    )
    return replace(rows, pairs=ENCODER.encode_pairs(*kept))


def _error_fitted_without(
    dataset: Dataset, model: CompletedModel, split_folds: tuple[Fold, ...], visible: frozenset[str], seed: int
) -> float:
    """Return the MAE of speed of a model that is fitted and asked with the `visible` columns of all jobs."""
    every = np.ones(len(dataset), dtype=bool)
    poor = replace(dataset, rows=_with_facts(dataset.rows, visible, every, every))
    errors = []
    for fold in split_folds:
        predicted_log = model.fit(poor.take(fold.train), seed).predict(poor.rows.take(fold.test))
        errors.append(np.abs(speed(dataset.log_slowdown[fold.test]) - speed(predicted_log)))
    return float(np.concatenate(errors).mean())


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


def _predictions(
    dataset: Dataset, split_folds: tuple[Fold, ...], fitted: list[FittedCompleted], visible: frozenset[str]
) -> tuple[Floats, Floats]:
    """Return log slowdown and novelty of the tests of all folds, asked with the `visible` columns of unseen jobs."""
    rows = [hide_facts(dataset, fold, visible) for fold in split_folds]
    predicted_log = np.concatenate([model.predict(r) for model, r in zip(fitted, rows, strict=True)])
    return predicted_log, np.concatenate([model.novelty(r) for model, r in zip(fitted, rows, strict=True)])


def _abstention_threshold(dataset: Dataset, model: CompletedModel, seed: int) -> float:
    """Return the threshold that training would publish; infinite where the rows have no families to hide."""
    try:
        (family,) = evaluate_models(dataset, (model,), splits=("family",), seed=seed, count=FAMILY_GROUPS)
    except UnfitError:
        return math.inf
    return abstention_threshold(dataset, family)


def _score(
    dataset: Dataset,
    split_folds: tuple[Fold, ...],
    facts: str,
    full: tuple[Floats, Floats],
    poor: tuple[Floats, Floats],
    threshold: float,
    error_fitted_without: float,
) -> PoorProfileScore:
    """Return the scores of predictions from poor profiles; `full` and `poor` are (log slowdown, novelty) of each test.

    Intervals come from the predictions from full profiles in the other folds.
    """
    index = tested_rows(split_folds)
    low, high = cross_fold_interval(
        dataset,
        index,
        full[0],
        fold_of_tests(split_folds),
        novelty=full[1],
        partners=np.concatenate([partners_of_tests(dataset, fold) for fold in split_folds]),
        asked=poor,
    )
    predicted_log, novelty = poor
    measured_log = dataset.log_slowdown[index]
    error = np.abs(speed(measured_log) - speed(predicted_log))
    rule = Intervals(calibrated=False, levels=np.zeros(0), grids=np.zeros(0), abstains_above=threshold)
    answered = ~rule.abstains(novelty, predicted_log)
    inside = (low <= measured_log) & (measured_log <= high)

    def mean(values: NDArray[Any], selected: NDArray[np.bool_]) -> float:
        return float(values[selected].mean()) if selected.any() else math.nan

    return PoorProfileScore(
        facts=facts,
        mae=float(error.mean()),
        mae_fitted_without=error_fitted_without,
        abstained=float(1.0 - answered.mean()),
        mae_answered=mean(error, answered),
        mae_abstained=mean(error, ~answered),
        coverage=mean(inside, answered),
    )
