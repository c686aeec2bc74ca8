"""Every model on every split, out of fold, side by side; and which of them training would publish.

The champion has the lowest ½ · (MAE on `pair` + MAE on `job`), both out of fold, with a preference for the ensemble;
see `champion_of`. Pairs that were held out by the caller are no part of it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from interfere.errors import UnfitError
from training.baselines.baseline import Baseline, Choosy, FittedBaseline
from training.dataset import Dataset, Rows
from training.evaluation.scores import Answers, Interval, Scores, mae, score
from training.evaluation.splits import CHOOSING, FOLDS_APART, Fold, folds
from training.models.catalogue import MODELS
from training.models.ensemble import EnsembleModel
from training.models.gbdt import FittedGbdt
from training.models.gp import FittedGp
from training.models.intervals import HIGH, LOW, grids_of, partner_counts
from training.models.model import FittedModel, ModelSettings

Report = Callable[[str], None]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PREFERENCE = 0.05  # about the standard error of the MAE over jobs on both public tables
INNER_FOLDS = 2  # of the training rows that choose what to publish: a choice needs the order of models, not figures
LEGEND = (
    "MAE ± its standard error over victims, RMSE and 90th percentile of the error of speed, MAPE of slowdown, R² of "
    "log slowdown, mean Spearman per victim, regret of the partner chosen for each job, among those that one fitted "
    "model answered and among all, coverage and mean width (in speed) of the 90 % interval over all rows and those of "
    "the worst tenth of jobs, and coverage of the job that nine of ten surpass"
)
COLUMNS = (  # field, heading, format
    ("mae", "MAE", ".4f"),
    ("mae_se", "±", ".4f"),
    ("rmse", "RMSE", ".4f"),
    ("p90", "P90", ".4f"),
    ("mape", "MAPE %", ".2f"),
    ("r2", "R²", ".3f"),
    ("spearman", "Spearman", ".3f"),
    ("regret", "regret %", ".2f"),
    ("regret_all", "of all %", ".2f"),
    ("coverage", "coverage", ".3f"),
    ("width", "width", ".3f"),
    ("worst_coverage", "worst 10 %", ".3f"),
    ("worst_width", "their width", ".3f"),
    ("tenth_coverage", "tenth job", ".3f"),
    ("rows", "rows", "d"),
)


@runtime_checkable
class WithNovelty(Protocol):
    """A fitted model that knows how far from its jobs it is asked."""

    def novelty(self, rows: Rows) -> Floats:
        """float64[p] in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldScore:
    """One fold of one evaluation."""

    hides: str  # the family or device type; "" for a random part
    rows: int
    mae: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One model on one split. `t` tests: in the `job` split a row is tested once for each of its jobs."""

    split: str
    model: str
    scores: Scores
    index: Ints  # int64[t]: rows of the dataset
    fold: Ints  # int64[t]
    predicted_log: Floats  # float64[t]
    novelty: Floats  # float64[t]; 0 from a model that cannot tell
    partners: Ints  # int64[t]: measured partners, in the training rows, of the less known of the two jobs
    folds: tuple[FoldScore, ...]
    per_device: tuple[tuple[str, float], ...]  # device type, MAE
    stand_in: float  # share of the tests that a baseline left to the mean, for want of its inputs

    def residual(self, dataset: Dataset) -> Floats:
        """log s - log ŝ, float64[t]."""
        return np.asarray(dataset.log_slowdown[self.index] - self.predicted_log)


def evaluate_models(
    dataset: Dataset,
    models: Sequence[ModelSettings | Baseline],
    *,
    splits: Sequence[str] = CHOOSING,
    seed: int = 0,
    count: int | None = None,
    report: Report = lambda _: None,
) -> tuple[Evaluation, ...]:
    """Out-of-fold predictions and scores, by split, then model; `count` as in `folds`."""
    found = []
    for split in splits:
        parts = folds(dataset, split, seed, count)
        fitted = [fit_all(models, dataset.take(part.train), seed) for part in parts]
        for model in models:
            found.append(assembled(dataset, model.name, split, parts, [fold[model.name] for fold in fitted]))
            report(f"{split} split, {model.name}: MAE of speed {found[-1].scores.mae:.4f}")
    return tuple(found)


def out_of_fold(
    dataset: Dataset, model: ModelSettings | Baseline, split: str, parts: Sequence[Fold], seed: int
) -> Evaluation:
    """One model, fitted once per fold."""
    fitted = [model.fit(dataset.take(part.train), seed) for part in parts]
    return assembled(dataset, model.name, split, parts, fitted)


def fit_all(
    models: Sequence[ModelSettings | Baseline], dataset: Dataset, seed: int
) -> Mapping[str, FittedModel | FittedBaseline]:
    """Every model by name; an ensemble of models fitted here already is put together, not fitted again."""
    fitted: dict[str, FittedModel | FittedBaseline] = {}
    settings = {model.name: model for model in models}
    for model in models:
        gp, gbdt = fitted.get("gp"), fitted.get("gbdt")
        if (
            isinstance(model, EnsembleModel)
            and (settings.get("gp"), settings.get("gbdt")) == (model.gp, model.gbdt)
            and isinstance(gp, FittedGp)
            and isinstance(gbdt, FittedGbdt)
        ):
            fitted[model.name] = model.of(gp, gbdt)
        else:
            fitted[model.name] = model.fit(dataset, seed)
    return fitted


def assembled(
    dataset: Dataset,
    name: str,
    split: str,
    parts: Sequence[Fold],
    fitted: Sequence[FittedModel | FittedBaseline],
) -> Evaluation:
    """Out-of-fold answers of one model, given its fits to the training rows of each fold."""
    predicted, known, novelty, partners, subjects = [], [], [], [], []
    for part, model in zip(parts, fitted, strict=True):
        rows = dataset.rows.take(part.test)
        predicted.append(model.predict(rows))
        known.append(model.answers(rows) if isinstance(model, Choosy) else np.ones(len(rows), dtype=bool))
        novelty.append(model.novelty(rows) if isinstance(model, WithNovelty) else np.zeros(len(rows)))
        counts = partner_counts(dataset.take(part.train))
        partners.append(np.minimum(counts[rows.domain, rows.victim], counts[rows.domain, rows.neighbour]))
        subjects.append(subject_of(dataset, part))
    index = np.concatenate([part.test for part in parts])
    fold = np.repeat(np.arange(len(parts)), [len(part.test) for part in parts])
    predicted_log = np.concatenate(predicted)
    # Where folds ask about different new jobs, only answers of one fold may be ranked together.
    answers = answers_of(dataset, index, predicted_log, fold, apart=split in FOLDS_APART)
    far, seen = np.concatenate(novelty), np.concatenate(partners)
    low, high = cross_interval(dataset, index, predicted_log, fold, novelty=far, partners=seen)
    interval = Interval(low=low, high=high, subject=np.concatenate(subjects))
    return Evaluation(
        split=split,
        model=name,
        scores=score(answers, interval),
        index=index,
        fold=fold,
        predicted_log=predicted_log,
        novelty=far,
        partners=seen,
        folds=tuple(
            FoldScore(hides=part.hides, rows=len(part.test), mae=mae(_only(answers, fold == k)))
            for k, part in enumerate(parts)
        ),
        per_device=_per_device(dataset, index, answers),
        stand_in=float(1 - np.concatenate(known).mean()),
    )


def cross_interval(
    dataset: Dataset, index: Ints, predicted_log: Floats, fold: Ints, *, novelty: Floats, partners: Ints
) -> tuple[Floats, Floats]:
    """(low, high) log slowdown, calibrated on the residuals of all other folds; NaN with one fold."""
    low, high = np.full(len(fold), np.nan), np.full(len(fold), np.nan)
    residual, domain = dataset.log_slowdown[index] - predicted_log, dataset.domain[index] + 1
    for k in np.unique(fold):
        here = fold == k
        if not here.all():
            grids = grids_of(
                residual[~here],
                novelty=novelty[~here],
                partners=partners[~here],
                domain=domain[~here],
                domains=len(dataset.domains),
            )
            asked = {"novelty": novelty[here], "partners": partners[here], "domain": domain[here]}
            low[here] = predicted_log[here] + grids.quantile(LOW, **asked)
            high[here] = predicted_log[here] + grids.quantile(HIGH, **asked)
    return low, high


def answers_of(dataset: Dataset, index: Ints, predicted_log: Floats, fold: Ints, *, apart: bool) -> Answers:
    """Predictions for the rows `index` beside what was measured; nothing is compared across domains or tables.

    `apart`: answers of two folds may not be ranked together either. A choice is one model's in any case.
    """

    def kinds(*more: Ints) -> Ints:
        keys = np.stack([dataset.domain[index], dataset.table[index], *more])
        return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)

    return Answers(
        measured_log=dataset.log_slowdown[index],
        predicted_log=predicted_log,
        victim=dataset.rows.victim[index],
        neighbour=dataset.rows.neighbour[index],
        context=kinds(fold) if apart else kinds(),
        chooser=kinds(fold),
    )


def champion_of(evaluations: Sequence[Evaluation]) -> str:
    """Name of the model with the lowest mean of its MAE over the splits; the simpler one of equals.

    The ensemble is taken unless another is better by more than `PREFERENCE`: it is the one that is steered where jobs
    are unlike those seen, which these splits hardly show, and choosing among six by small differences is noise.
    """
    names = [name for name in MODELS if any(e.model == name for e in evaluations)]
    errors = {name: float(np.mean([e.scores.mae for e in evaluations if e.model == name])) for name in names}
    best = min(names, key=lambda name: errors[name])
    preferred = EnsembleModel.name
    return preferred if errors.get(preferred, math.inf) <= (1 + PREFERENCE) * errors[best] else best


def published_model(dataset: Dataset, models: Sequence[ModelSettings], seed: int) -> str:
    """Name of the model that training on these rows would publish.

    `dataset` holds training rows only: the choice is made on `INNER_FOLDS` folds of each of the splits `pair` and `job`
    of them, so far as they can be split, and never sees what will be tested. The simplest model where they cannot.
    """
    found: list[Evaluation] = []
    for split in CHOOSING if len(models) > 1 else ():
        try:
            found += evaluate_models(dataset, models, splits=(split,), seed=seed, count=INNER_FOLDS)
        except UnfitError:
            continue
    return champion_of(found) if found else models[0].name


def markdown(scores: Sequence[tuple[str, str, Scores]]) -> str:
    """Table of (split, model, scores)."""
    headings, cells = cells_of([one for _, _, one in scores])
    lines = [f"| split | model | {' | '.join(headings)} |", "|---|---|" + "---|" * len(headings)]
    for (split, model, _), row in zip(scores, cells, strict=True):
        lines.append(f"| {split} | {model} | {' | '.join(row)} |")
    return "\n".join(lines)


def cells_of(scores: Sequence[Scores]) -> tuple[list[str], list[list[str]]]:
    """Headings and one row of texts per score; columns without any number are left out, - where there is none."""
    values = [asdict(one) for one in scores]
    shown = [column for column in COLUMNS if not all(math.isnan(row[column[0]]) for row in values)]
    rows = [["-" if math.isnan(row[name]) else format(row[name], form) for name, _, form in shown] for row in values]
    return [heading for _, heading, _ in shown], rows


def subject_of(dataset: Dataset, part: Fold) -> Ints:
    """int64[t]: the job that no training row shows, the victim where both were seen."""
    train, test = dataset.rows.take(part.train), dataset.rows.take(part.test)
    seen = np.concatenate([train.victim, train.neighbour])
    asks_neighbour = np.isin(test.victim, seen) & ~np.isin(test.neighbour, seen)
    return np.where(asks_neighbour, test.neighbour, test.victim)


def _per_device(dataset: Dataset, index: Ints, answers: Answers) -> tuple[tuple[str, float], ...]:
    types = np.array([domain.device_type for domain in dataset.domains])[dataset.domain[index]]
    return tuple((name, mae(_only(answers, types == name))) for name in sorted(set(types.tolist())))


def _only(answers: Answers, rows: NDArray[np.bool_]) -> Answers:
    return Answers(
        measured_log=answers.measured_log[rows],
        predicted_log=answers.predicted_log[rows],
        victim=answers.victim[rows],
        neighbour=answers.neighbour[rows],
        context=answers.context[rows],
        chooser=answers.chooser[rows],
    )
