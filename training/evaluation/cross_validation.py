"""Cross-validates models: out-of-fold predictions, their calibrated intervals, and scores, on every split."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from interfere import __version__
from interfere.errors import UnfitError
from interfere.predict.intervals import abstention_score
from interfere.study.engine import Document, Runner
from interfere.training.baselines.baseline import Baseline, FittedBaseline, PartialBaseline
from interfere.training.dataset import Dataset, PairRows, speed
from interfere.training.evaluation.scores import PredictionInterval, ScoredRows, Scores, mae, score
from interfere.training.evaluation.splits import SELECTION_SPLITS, SPLITS_OF_UNLIKE_FOLDS, Fold, folds
from interfere.training.interval_calibration import HIGH, LOW, fit_intervals, partner_counts, selectivity
from interfere.training.models.completed import CompletedModel, FittedCompleted, complete_dataset
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.protocols import FittedModel, ModelSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
IN_THIS_PROCESS = Runner()  # keeps no results, reports no progress
FOLDS_FOLDER = Path("folds")  # of the workspace, where an interrupted cross-validation goes on from
UNFIT = "unfit"  # key in the document of a fold whose training rows do not suffice; no name of a model


@runtime_checkable
class NoveltyModel(Protocol):
    """A fitted model that tells how far a pair is from the jobs of training."""

    def novelty(self, rows: PairRows) -> Floats:
        """float64[p] in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldScore:
    """The score of one fold of one evaluation."""

    hides: str  # the hidden family or device type; "" for a random fold
    rows: int
    mae: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The predictions of one model on one split. `t`: number of tests. The split `job` tests a row once for each of its
    jobs."""

    split: str
    model: str
    scores: Scores
    index: Ints  # int64[t]: rows of the dataset
    fold: Ints  # int64[t]
    predicted_log: Floats  # float64[t]: log slowdown
    novelty: Floats  # float64[t]; 0 for a model without a measure of novelty
    partners: Ints  # int64[t]: measured partners, in the training rows, of the less known of the two jobs
    subject: Ints  # int64[t]: the job that each row tests
    folds: tuple[FoldScore, ...]
    per_device: tuple[tuple[str, float], ...]  # (device type, MAE)
    selectivity: float  # mean error of the tenth of the tests with the largest abstention scores ÷ that of the rest
    stand_in: float  # share of the tests on which a baseline predicts the mean because it lacks its inputs

    def residual(self, dataset: Dataset) -> Floats:
        """log s - log ŝ, float64[t]."""
        return np.asarray(dataset.log_slowdown[self.index] - self.predicted_log)


Evaluations = tuple[Evaluation, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossValidation:
    """Models that are to be scored on one split of one dataset. Raises UnfitError where the rows cannot be split."""

    dataset: Dataset
    models: Sequence[ModelSettings | Baseline]
    split: str
    seed: int = 0
    count: int | None = None  # of folds, as in `folds`
    required: bool = True  # is it an error where the training rows of a fold do not suffice for a model?
    about: str = ""  # the table and the facts, in words
    folds: tuple[Fold, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folds", folds(self.dataset, self.split, self.seed, self.count))

    def text(self) -> str:
        """A description of the validation, in words."""
        about = f"{self.about}, " if self.about else ""
        return f"{about}{self.split} split, seed {self.seed}"

    def fold_text(self, fold: int) -> str:
        """Describe one fold in words."""
        return f"{self.text()}, fold {fold + 1} of {len(self.folds)}"

    def digest(self) -> str:
        """A checksum of all that its results depend on, the version of this package included."""
        content = hashlib.sha256(f"{__version__} {self.split} {self.seed} {self.count}".encode())
        for model in self.models:
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            content.update(f"{kind} {model if is_dataclass(model) else model.name}".encode())
        content.update(repr((self.dataset.fingerprint, self.dataset.workloads, self.dataset.domains)).encode())
        for column in fields(Dataset):
            if isinstance(values := getattr(self.dataset, column.name), np.ndarray):
                content.update(np.ascontiguousarray(values).tobytes())
        for part in fields(PairRows):
            content.update(np.ascontiguousarray(getattr(self.dataset.rows, part.name)).tobytes())
        return content.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTask:
    """One fold of one cross-validation: all models are fitted on its training rows."""

    validation: int  # index among the validations of a run
    fold: int


def cross_validate(validations: Sequence[CrossValidation], runner: Runner = IN_THIS_PROCESS) -> list[Evaluations]:
    """The evaluations of each validation, in the order of its models; all folds are tasks of one run.

    Raises UnfitError where the training rows of a fold do not suffice for a model; one that is not required has no
    evaluations then.
    """
    tasks = [FoldTask(validation=k, fold=fold) for k, each in enumerate(validations) for fold in range(len(each.folds))]
    digest = hashlib.sha256("".join(each.digest() for each in validations).encode()).hexdigest()
    done = runner.inside(digest[:16]).run(
        predict_fold,
        tuple(validations),
        tasks,
        digest=lambda: digest,
        describe=lambda task, _: validations[task.validation].fold_text(task.fold),
    )
    if done.interrupted:
        raise KeyboardInterrupt
    evaluations: list[Evaluations] = []
    for k, validation in enumerate(validations):
        documents = [done.documents[FoldTask(validation=k, fold=fold)] for fold in range(len(validation.folds))]
        if not validation.required and any(UNFIT in document for document in documents):
            evaluations.append(())
            continue
        tests = [_fold_tests(document) for document in documents]
        of_models = [
            assemble_evaluation(validation, model.name, [fold_tests[model.name] for fold_tests in tests])
            for model in validation.models
        ]
        for one in of_models:
            runner.say(f"{validation.text()}, {one.model}: MAE of speed {one.scores.mae:.4f}")
        evaluations.append(tuple(of_models))
    return evaluations


def evaluate_models(
    dataset: Dataset,
    models: Sequence[ModelSettings | Baseline],
    *,
    splits: Sequence[str] = SELECTION_SPLITS,
    seed: int = 0,
    count: int | None = None,
    runner: Runner = IN_THIS_PROCESS,
) -> Evaluations:
    """Cross-validate every model on every split, in the order split, model; `count` as in `folds`."""
    validations = [
        CrossValidation(dataset=dataset, models=models, split=split, seed=seed, count=count) for split in splits
    ]
    return tuple(chain.from_iterable(cross_validate(validations, runner)))


def predict_fold(validations: Sequence[CrossValidation], task: FoldTask) -> Document:
    """Fit the models on the training rows of one fold. Model -> its predictions for the test rows, as arrays; where
    the rows do not suffice for a model, why."""
    validation = validations[task.validation]
    fold, dataset = validation.folds[task.fold], validation.dataset
    try:
        fitted = fit_all(validation.models, dataset.take(fold.train), validation.seed)
    except UnfitError as error:
        return {UNFIT: [error.what, str(error.value), error.remedy]}
    return {name: asdict(_predict_fold(dataset, fold, model)) for name, model in fitted.items()}


def _fold_tests(document: Document) -> dict[str, "_FoldTests"]:
    """The predictions in a document of `predict_fold`. Raises the UnfitError that is told there."""
    if UNFIT in document:
        what, value, remedy = document[UNFIT]
        raise UnfitError(what, value=value, remedy=remedy)
    return {name: _FoldTests(**arrays) for name, arrays in document.items()}


def fit_all(
    models: Sequence[ModelSettings | Baseline], dataset: Dataset, seed: int
) -> Mapping[str, FittedModel | FittedBaseline]:
    """Fit every model, by name; the ensemble takes a Gaussian process that is fitted here already."""
    fitted: dict[str, FittedModel | FittedBaseline] = {}
    settings = {model.name: model for model in models}
    for model in models:
        fitted[model.name] = _with_fitted_gp(model, settings, fitted, dataset, seed) or model.fit(dataset, seed)
    return fitted


def _with_fitted_gp(
    model: ModelSettings | Baseline,
    settings: Mapping[str, ModelSettings | Baseline],
    fitted: Mapping[str, FittedModel | FittedBaseline],
    dataset: Dataset,
    seed: int,
) -> FittedCompleted | None:
    """The ensemble of the Gaussian process that is fitted here already; None for another model, or without one."""
    gp = fitted.get("gp")
    if not (isinstance(model, CompletedModel) and isinstance(model.inner, EnsembleModel)):
        return None
    if settings.get("gp") != CompletedModel(inner=model.inner.gp) or not isinstance(gp, FittedCompleted):
        return None
    trees = model.inner.gbdt.fit(complete_dataset(dataset, gp.completion), seed)
    return FittedCompleted(inner=model.inner.combine(gp.inner, trees), completion=gp.completion)


def assemble_evaluation(validation: CrossValidation, name: str, tests: Sequence["_FoldTests"]) -> Evaluation:
    """Score the out-of-fold predictions of one model."""
    # 1. Pool the predictions for the test rows of each fold.
    dataset, split, split_folds = validation.dataset, validation.split, validation.folds
    index = np.concatenate([fold.test for fold in split_folds])
    fold_index = np.repeat(np.arange(len(split_folds)), [len(fold.test) for fold in split_folds])
    predicted_log = np.concatenate([test.predicted_log for test in tests])
    novelty = np.concatenate([test.novelty for test in tests])
    partners = np.concatenate([test.partners for test in tests])

    # 2. Calibrate the intervals of each fold on the residuals of the others.
    low, high = cross_fold_interval(dataset, index, predicted_log, fold_index, novelty=novelty, partners=partners)
    interval = PredictionInterval(low=low, high=high, subject=np.concatenate([test.subject for test in tests]))

    # 3. Score. Where the folds test different unseen jobs, only predictions of one fold may be ranked together.
    rows = scored_rows(dataset, index, predicted_log, fold_index, unlike_folds=split in SPLITS_OF_UNLIKE_FOLDS)
    return Evaluation(
        split=split,
        model=name,
        scores=score(rows, interval),
        index=index,
        fold=fold_index,
        predicted_log=predicted_log,
        novelty=novelty,
        partners=partners,
        subject=interval.subject,
        folds=tuple(
            FoldScore(hides=fold.hides, rows=len(fold.test), mae=mae(take_rows(rows, fold_index == k)))
            for k, fold in enumerate(split_folds)
        ),
        per_device=mae_per_device(dataset, index, rows),
        selectivity=selectivity(
            abstention_score(novelty, predicted_log),
            np.abs(speed(rows.measured_log) - speed(predicted_log)),
        ),
        stand_in=float(1 - np.concatenate([test.has_inputs for test in tests]).mean()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoldTests:
    """Predictions for the test rows of one fold; one entry per test in every array."""

    predicted_log: Floats
    novelty: Floats
    partners: Ints  # measured partners, in the training rows, of the less known job
    subject: Ints  # the job that each row tests
    has_inputs: NDArray[np.bool_]  # False where a baseline predicts the mean instead


def _predict_fold(dataset: Dataset, fold: Fold, model: FittedModel | FittedBaseline) -> _FoldTests:
    rows = dataset.rows.take(fold.test)
    counts = partner_counts(dataset.take(fold.train))
    return _FoldTests(
        predicted_log=model.predict(rows),
        novelty=model.novelty(rows) if isinstance(model, NoveltyModel) else np.zeros(len(rows)),
        partners=np.minimum(counts[rows.domain, rows.victim], counts[rows.domain, rows.neighbour]),
        subject=subject_jobs(dataset, fold),
        has_inputs=model.has_inputs(rows) if isinstance(model, PartialBaseline) else np.ones(len(rows), dtype=bool),
    )


def cross_fold_interval(
    dataset: Dataset, index: Ints, predicted_log: Floats, fold: Ints, *, novelty: Floats, partners: Ints
) -> tuple[Floats, Floats]:
    """(low, high) log slowdown of the 90 % interval of each test, calibrated on the residuals of all other folds.

    NaN where there is one fold only.
    """
    low, high = np.full(len(fold), np.nan), np.full(len(fold), np.nan)
    residual, domain = dataset.log_slowdown[index] - predicted_log, dataset.domain[index] + 1
    for k in np.unique(fold):
        tests, others = fold == k, fold != k
        if others.any():
            intervals = fit_intervals(
                residual[others],
                novelty=novelty[others],
                partners=partners[others],
                domain=domain[others],
                domains=len(dataset.domains),
            )
            facts = {"novelty": novelty[tests], "partners": partners[tests], "domain": domain[tests]}
            low[tests] = predicted_log[tests] + intervals.quantile(LOW, **facts)
            high[tests] = predicted_log[tests] + intervals.quantile(HIGH, **facts)
    return low, high


def scored_rows(dataset: Dataset, index: Ints, predicted_log: Floats, fold: Ints, *, unlike_folds: bool) -> ScoredRows:
    """Return the predictions for the rows `index` with their measurements. Rows of two domains or tables are never
    compared.

    With `unlike_folds`, predictions of two folds are not ranked together either. A choice among partners is always made
    within one fold, whose predictions come from one fitted model.
    """

    def group(*further_keys: Ints) -> Ints:
        keys = np.stack([dataset.domain[index], dataset.table[index], *further_keys])
        return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)

    return ScoredRows(
        measured_log=dataset.log_slowdown[index],
        predicted_log=predicted_log,
        victim=dataset.rows.victim[index],
        neighbour=dataset.rows.neighbour[index],
        comparison_group=group(fold) if unlike_folds else group(),
        choice_group=group(fold),
    )


def subject_jobs(dataset: Dataset, fold: Fold) -> Ints:
    """Return int64[t]: the job of each test row that occurs in no training row; the victim where both jobs occur."""
    train, test = dataset.rows.take(fold.train), dataset.rows.take(fold.test)
    seen = np.concatenate([train.victim, train.neighbour])
    neighbour_is_new = np.isin(test.victim, seen) & ~np.isin(test.neighbour, seen)
    return np.where(neighbour_is_new, test.neighbour, test.victim)


def mae_per_device(dataset: Dataset, index: Ints, rows: ScoredRows) -> tuple[tuple[str, float], ...]:
    types = np.array([domain.device_type for domain in dataset.domains])[dataset.domain[index]]
    return tuple((name, mae(take_rows(rows, types == name))) for name in sorted(set(types.tolist())))


def take_rows(rows: ScoredRows, mask: NDArray[np.bool_]) -> ScoredRows:
    return ScoredRows(
        measured_log=rows.measured_log[mask],
        predicted_log=rows.predicted_log[mask],
        victim=rows.victim[mask],
        neighbour=rows.neighbour[mask],
        comparison_group=rows.comparison_group[mask],
        choice_group=rows.choice_group[mask],
    )
