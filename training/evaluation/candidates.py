"""The candidates of one training: every model cross-validated, fitted on all rows and scored, and their champion.

The champion has the lowest mean of its MAE on `pair`, `job` and `family`, each out of fold, with a preference for the
ensemble. Pairs that the caller holds out take no part.

What a table adds: the error on trusted rows of the other tables, with the table and without it. The rows are those of
the folds of `pair`: each is predicted by a model whose training rows hide its pair in every table. Rows that were
observed, or translated from another software stack, are no tests. Campaigns are compared and translated within the
training rows of each fold, with and without the table.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, UnfitError
from interfere.study.engine import Runner
from interfere.time_left import TimeLeft
from interfere.training.campaigns import align_campaigns
from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import (
    IN_THIS_PROCESS,
    CrossValidation,
    Evaluation,
    Evaluations,
    cross_validate,
    scored_rows,
)
from interfere.training.evaluation.gate import Difference, compare, paired
from interfere.training.evaluation.interval_calibration import HIGH, LOW
from interfere.training.evaluation.scores import PredictionInterval, Scores, score
from interfere.training.evaluation.splits import MIN_TRAIN_ROWS, Fold, folds
from interfere.training.models.catalogue import MODELS
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.protocols import FittedModel, ModelSettings

ENSEMBLE_PREFERENCE = 0.05  # relative; about the standard error of the MAE over jobs on both public tables
INNER_FOLDS = 2  # of nested selection, which needs only the order of the models, not exact figures
REQUIRED = ("pair", "job")  # splits of training that the rows must allow
FAMILY_GROUPS = 3  # of families that training hides in turn: a group for each would double the time of a training
# Splits that training evaluates every model on, with their number of folds; None is that of `evaluate`.
TRAINING_SPLITS: Mapping[str, int | None] = {"pair": None, "job": None, "family": FAMILY_GROUPS}
HELD_OUT = "held_out"  # name of the split in the scores
GATE, REQUEST = "gate", "request"  # what selected a champion
TABLE_TASK = "tables"
MIN_TESTS = 20  # rows that tell whether a table helps; as many calibrate a new device type

SplitScore = tuple[str, str, Scores]  # (split, model, scores)


def select_champion(evaluations: Sequence[Evaluation]) -> str:
    """Return the name of the model with the lowest MAE, averaged over the splits. Among equal models the simplest wins.

    Models outside the catalogue count as the least simple.

    The ensemble is selected unless another model is better by more than `ENSEMBLE_PREFERENCE`. Its weights adapt to
    jobs unlike the training jobs, which these splits hardly test, and smaller differences among six models are noise.
    """
    evaluated = dict.fromkeys(evaluation.model for evaluation in evaluations)
    names = sorted(evaluated, key=lambda name: list(MODELS).index(name) if name in MODELS else len(MODELS))
    errors = {name: float(np.mean([e.scores.mae for e in evaluations if e.model == name])) for name in names}
    best = min(names, key=lambda name: errors[name])
    preferred = EnsembleModel.name
    return preferred if errors.get(preferred, math.inf) <= (1 + ENSEMBLE_PREFERENCE) * errors[best] else best


def training_validations(dataset: Dataset, models: Sequence[ModelSettings], seed: int) -> list[CrossValidation]:
    """Return the cross-validations of a training. Raises UnfitError where the rows do not allow the splits `pair` and
    `job`."""
    return possible_validations(dataset, models, TRAINING_SPLITS, seed, required=REQUIRED)


def possible_validations(
    dataset: Dataset,
    models: Sequence[ModelSettings],
    splits: Mapping[str, int | None],
    seed: int,
    *,
    required: Collection[str] = (),
    about: str = "",
) -> list[CrossValidation]:
    """Return a cross-validation on each split that the rows allow.

    Raises UnfitError where a required split is impossible.
    """
    validations = []
    for split, count in splits.items():
        try:
            validations.append(
                CrossValidation(
                    dataset=dataset,
                    models=models,
                    split=split,
                    seed=seed,
                    count=count,
                    required=split in required,
                    about=about,
                )
            )
        except UnfitError:
            if split in required:
                raise
    return validations


def nested_validations(
    dataset: Dataset, models: Sequence[ModelSettings], seed: int, about: str = ""
) -> list[CrossValidation]:
    """Return the cross-validations that select a model on training rows alone. Empty where there is only one model.

    They are `INNER_FOLDS` folds of each of the `TRAINING_SPLITS` that the rows allow.
    """
    splits = dict.fromkeys(TRAINING_SPLITS, INNER_FOLDS) if len(models) > 1 else {}
    return possible_validations(dataset, models, splits, seed, about=about)


def selected_model(found: Sequence[Evaluations], models: Sequence[ModelSettings]) -> str:
    """Name of the model that these evaluations select; the simplest one where the rows allowed none."""
    evaluations = list(chain.from_iterable(found))
    return select_champion(evaluations) if evaluations else models[0].name


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All models of one training by name, with their validations and scores."""

    dataset: Dataset  # the rows that every model is fitted on
    settings: Mapping[str, ModelSettings]
    fitted: Mapping[str, FittedModel]
    evaluations: tuple[Evaluation, ...]  # out of fold, of every model
    champion: str
    selected_by: str  # "gate", the rule of `select_champion`, or "request", the user who trains
    seed: int
    held_out: tuple[SplitScore, ...] = ()  # of every model, where pairs were held out

    @property
    def scores(self) -> tuple[SplitScore, ...]:
        """Return the scores on the splits `pair`, `job`, `family`, and `held_out` where pairs were held out."""
        return (*((each.split, each.model, each.scores) for each in self.evaluations), *self.held_out)

    @property
    def champion_model(self) -> FittedModel:
        """Return the fitted model of the champion."""
        return self.fitted[self.champion]

    @property
    def champion_evaluations(self) -> tuple[Evaluation, ...]:
        """Return the out-of-fold evaluations of the champion, one per split."""
        return tuple(evaluation for evaluation in self.evaluations if evaluation.model == self.champion)


def train_candidates(
    dataset: Dataset,
    held_out: Dataset,
    settings: Mapping[str, ModelSettings],
    *,
    seed: int,
    requested: str = "",
    runner: Runner = IN_THIS_PROCESS,
) -> Candidates:
    """Cross-validate all models, select the champion, fit all of them on `dataset`, and score them on `held_out`.

    `requested` names the champion in place of the selection; every fit is a task of `clock`. Raises InvalidInputError
    for an unknown name.
    """
    require_model(requested, settings)
    # 1. Cross-validate every model.
    validations = training_validations(dataset, tuple(settings.values()), seed)
    evaluations = tuple(chain.from_iterable(cross_validate(validations, runner)))
    # 2. Select the champion.
    champion = requested or select_champion(evaluations)
    # 3. Fit every model on all rows.
    runner.say(f"champion: {champion}; fitting every model on all rows")
    fitted = {}
    for name, model in settings.items():
        fitted[name] = model.fit(dataset, seed)
        if runner.clock is not None:
            runner.clock.finish(name, f"all pairs: {name}")
    # 4. Score every model on the held-out pairs.
    pair_residuals = {e.model: e.residual(dataset) for e in evaluations if e.split == "pair"}
    return Candidates(
        dataset=dataset,
        settings=settings,
        fitted=fitted,
        evaluations=evaluations,
        champion=champion,
        selected_by=REQUEST if requested else GATE,
        seed=seed,
        held_out=held_out_scores(fitted, held_out, pair_residuals),
    )


def require_model(name: str, settings: Collection[str]) -> None:
    """Raise InvalidInputError for a name that is none of the models; "" leaves the choice to the selection."""
    if name and name not in settings:
        raise InvalidInputError("unknown model", value=name, remedy=f"choose among {', '.join(settings)}")


def held_out_scores(
    fitted: Mapping[str, FittedModel], held_out: Dataset, pair_residuals: Mapping[str, NDArray[np.float64]]
) -> tuple[SplitScore, ...]:
    """Return scores on the newest row of each held-out pair; intervals by quantiles of the model's `pair` residuals."""
    newest = held_out.latest_rows()
    if len(newest) == 0:
        return ()
    index = np.arange(len(newest))
    scores = []
    for name, model in fitted.items():
        rows = scored_rows(newest, index, model.predict(newest.rows), np.zeros_like(index), unlike_folds=False)
        low, high = np.quantile(pair_residuals[name], [LOW, HIGH])
        interval = PredictionInterval(low=rows.predicted_log + low, high=rows.predicted_log + high, subject=rows.victim)
        scores.append((HELD_OUT, name, score(rows, interval)))
    return tuple(scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContribution:
    """The effect of one table on the predictions of trusted rows of all other tables."""

    table: str
    rows: int  # of the table
    tests: int  # trusted rows of the other tables; 0 where too few to tell
    error: Difference  # of speed: `challenger` with the table, `champion` without it

    @property
    def effect(self) -> str:
        """Return `helps`, `harms`, or the reason why the effect is unknown."""
        if not self.tests:
            return f"cannot be judged: under {MIN_TESTS} trusted rows in other tables"
        return "helps" if self.error.high < 0 else "harms" if self.error.low > 0 else "neither helps nor harms clearly"

    def text(self) -> str:
        """Return a line about the effect, for people."""
        line = f"table {self.table} ({self.rows} rows) {self.effect}"
        if not self.tests:
            return line
        return (
            f"{line}: error of speed on {self.tests} trusted rows of the others {self.error.challenger:.4f} with it, "
            f"{self.error.champion:.4f} without (difference {self.error.low:+.4f} to {self.error.high:+.4f})"
        )


def table_contributions(
    dataset: Dataset, names: Sequence[str], model: ModelSettings, seed: int, clock: TimeLeft | None = None
) -> tuple[TableContribution, ...]:
    """Return one entry per table with rows, if there are at least two such tables. `dataset` has no translated rows.

    Each table is a task of `clock`, of the kind `TABLE_TASK`.
    """
    present = [int(table) for table in np.unique(dataset.table)]
    if len(present) < 2:
        return ()
    trusted = ~(dataset.observed | align_campaigns(dataset)[0].aligned)
    pair_folds = folds(dataset, "pair", seed)
    whole = _predict(dataset, pair_folds, np.ones(len(dataset), dtype=bool), model, seed)
    contributions = []
    for table in present:
        others = dataset.table != table
        tests = trusted & others
        without = _predict(dataset, pair_folds, others, model, seed) if tests.sum() >= MIN_TESTS else whole * np.nan
        tests &= np.isfinite(whole) & np.isfinite(without)
        error, _ = compare([paired(dataset, tests, whole[tests], without[tests])], seed)
        contributions.append(
            TableContribution(table=names[table], rows=int((~others).sum()), tests=int(tests.sum()), error=error)
        )
        if clock is not None:
            clock.finish(TABLE_TASK, f"what table {names[table]} adds")
    return tuple(contributions)


def _predict(
    dataset: Dataset, pair_folds: Sequence[Fold], kept: NDArray[np.bool_], model: ModelSettings, seed: int
) -> NDArray[np.float64]:
    """Return out-of-fold log slowdowns, float64[p], of models fitted on the kept rows; NaN where too few train."""
    predicted = np.full(len(dataset), np.nan)
    for fold in pair_folds:
        train = fold.train[kept[fold.train]]
        if len(train) >= MIN_TRAIN_ROWS:
            fitted = model.fit(align_campaigns(dataset.take(train))[0], seed)
            predicted[fold.test] = fitted.predict(dataset.rows.take(fold.test))
    return predicted
