"""Cross-validation: models predict the tests of folds whose rows they were not fitted on, and are scored on them.

The folds of a split are tasks of an engine, and their predictions are kept in a folder: a run that was stopped goes on
from there.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere import __version__
from interfere.errors import UnfitError
from interfere.predict.acceptance.score import speed
from interfere.predict.intervals import abstention_score
from interfere.study.engine import Document, Runner
from interfere.training.dataset import Dataset, PairRows, RowColumns
from interfere.training.evaluation.interval_calibration import HIGH, LOW, fit_intervals, partners_of_tests, selectivity
from interfere.training.evaluation.scores import PredictionInterval, ScoredRows, Scores, mae, score
from interfere.training.evaluation.splits import SELECTION_SPLITS, SPLITS, SPLITS_OF_UNLIKE_FOLDS, Fold, folds
from interfere.training.models.completed import CompletedModel, FittedCompleted, complete_dataset
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.protocols import (
    DerivedModel,
    FittedPredictor,
    IntervalModel,
    NoveltyModel,
    PartialModel,
    ScoredModel,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

IN_THIS_PROCESS = Runner()  # keeps no results, reports no progress
FOLDS_FOLDER = Path("folds")  # of the workspace, where an interrupted cross-validation goes on from
UNFIT = "unfit"  # key in the document of a fold whose training rows do not suffice; no name of a model


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
    parts: tuple[Fold, ...]  # whose test rows were predicted, each by a model fitted on its training rows
    predicted_log: Floats  # float64[t]: log slowdown
    low: Floats  # float64[t]: ends of the 90 % interval, log slowdown; NaN where there is none
    high: Floats
    novelty: Floats  # float64[t]; 0 for a model without a measure of novelty
    partners: Ints  # int64[t]: measured partners, in the training rows, of the less known of the two jobs
    subject: Ints  # int64[t]: the job that each row tests
    folds: tuple[FoldScore, ...]
    per_device: tuple[tuple[str, float], ...]  # (device type, MAE)
    selectivity: float  # mean error of the tenth of the tests with the largest abstention scores ÷ that of the rest
    stand_in: float  # share of the tests on which a baseline predicts the mean because it lacks its inputs

    @property
    def index(self) -> Ints:
        """Return the row of the dataset that each test is of, int64[t]."""
        return tested_rows(self.parts)

    @property
    def fold(self) -> Ints:
        """Return the place among `parts` of each test's fold, int64[t]."""
        return fold_of_tests(self.parts)

    def residual(self, dataset: Dataset) -> Floats:
        """Return measured minus predicted log slowdown of each test, float64[t]."""
        return np.asarray(dataset.log_slowdown[self.index] - self.predicted_log)


Evaluations = tuple[Evaluation, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossValidation:
    """Models that are to be scored on one split of one dataset. Raises UnfitError where the rows cannot be split."""

    dataset: Dataset
    models: Sequence[ScoredModel]
    split: str
    seed: int = 0
    count: int | None = None  # of folds, as in `folds`
    required: bool = True  # is it an error where the training rows of a fold do not suffice for a model?
    about: str = ""  # the table and the facts, in words
    version: str = ""  # of published splits: folds that do not depend on the seed
    folds: tuple[Fold, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folds", folds(self.dataset, self.split, self.seed, self.count, self.version))

    def text(self) -> str:
        """Return a description of the validation, in words."""
        about = f"{self.about}, " if self.about else ""
        return f"{about}{self.split} split, seed {self.seed}"

    def fold_text(self, fold: int) -> str:
        """Return a description of one fold in words."""
        return f"{self.text()}, fold {fold + 1} of {len(self.folds)}"

    def digest(self) -> str:
        """Return a checksum of everything that the results depend on, the version of this package included."""
        content = hashlib.sha256(f"{__version__} {self.split} {self.seed} {self.count} {self.version}".encode())
        for model in self.models:
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            content.update(f"{kind} {model if is_dataclass(model) else model.name}".encode())
        content.update(repr((self.dataset.fingerprint, self.dataset.workloads, self.dataset.domains)).encode())
        for fold in self.folds:  # a split of one's own may be another one under the same name
            content.update(fold.train.tobytes() + fold.test.tobytes())
        for column in fields(Dataset):
            if isinstance(values := getattr(self.dataset, column.name), np.ndarray):
                content.update(np.ascontiguousarray(values).tobytes())
        for part in fields(PairRows):
            content.update(np.ascontiguousarray(getattr(self.dataset.rows, part.name)).tobytes())
        return content.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTask:
    """A task of a cross-validation: all models are fitted on the training rows of one fold and predict its test
    rows."""

    validation: int  # index among the validations of a run
    fold: int


def cross_validate(validations: Sequence[CrossValidation], runner: Runner = IN_THIS_PROCESS) -> list[Evaluations]:
    """Return the evaluations of each validation, in the order of its models. All folds are tasks of one run.

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
            scored_evaluation(
                validation.dataset,
                validation.split,
                model.name,
                validation.folds,
                FoldTests.concatenated([fold_tests[model.name] for fold_tests in tests]),
            )
            for model in validation.models
        ]
        for one in of_models:
            runner.say(f"{validation.text()}, {one.model}: MAE of speed {one.scores.mae:.4f}")
        evaluations.append(tuple(of_models))
    return evaluations


def evaluate_models(
    dataset: Dataset,
    models: Sequence[ScoredModel],
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
    """Return the predictions of every model for the test rows of one fold, as arrays by model name.

    Where the training rows do not suffice for a model, return the reason under `UNFIT`.
    """
    import scipy.linalg  # noqa: F401 - it brings a BLAS of its own, and a limit holds for those that are loaded
    from threadpoolctl import threadpool_limits

    validation = validations[task.validation]
    fold, dataset = validation.folds[task.fold], validation.dataset
    # Sums of several threads differ in their last digits: with one, a fold is the same on every machine and engine.
    with threadpool_limits(1):
        try:
            fitted = fit_all(validation.models, dataset.take(fold.train), validation.seed)
        except UnfitError as error:
            return {UNFIT: [error.what, str(error.value), error.remedy]}
        return {name: asdict(_predict_fold(dataset, fold, model)) for name, model in fitted.items()}


def _fold_tests(document: Document) -> dict[str, "FoldTests"]:
    """Return the predictions in a document of `predict_fold`. Raises the UnfitError that the document describes."""
    if UNFIT in document:
        what, value, remedy = document[UNFIT]
        raise UnfitError(what, value=value, remedy=remedy)
    return {name: FoldTests(**arrays) for name, arrays in document.items()}


def fit_all(models: Sequence[ScoredModel], dataset: Dataset, seed: int) -> Mapping[str, FittedPredictor]:
    """Return every model fitted on the dataset, by name; a model that stands on one fitted here already reuses it."""
    fitted: dict[str, FittedPredictor] = {}
    settings = {model.name: model for model in models}
    for model in models:
        if isinstance(model, DerivedModel):
            fitted[model.name] = model.fit_beside(fitted, dataset, seed)
        else:
            fitted[model.name] = _with_fitted_gp(model, settings, fitted, dataset, seed) or model.fit(dataset, seed)
    return fitted


def _with_fitted_gp(
    model: ScoredModel,
    settings: Mapping[str, ScoredModel],
    fitted: Mapping[str, FittedPredictor],
    dataset: Dataset,
    seed: int,
) -> FittedCompleted | None:
    """Return the fitted ensemble `model` around the Gaussian process that is in `fitted` already.

    None for a model that is no ensemble, and where that Gaussian process is missing.
    """
    gp = fitted.get("gp")
    if not (isinstance(model, CompletedModel) and isinstance(model.inner, EnsembleModel)):
        return None
    if settings.get("gp") != CompletedModel(inner=model.inner.gp) or not isinstance(gp, FittedCompleted):
        return None
    trees = model.inner.gbdt.fit(complete_dataset(dataset, gp.completion), seed)
    return FittedCompleted(inner=model.inner.combine(gp.inner, trees), completion=gp.completion)


def tested_rows(parts: Sequence[Fold]) -> Ints:
    """Return the test rows of all folds, one fold after another, int64[t]."""
    return np.concatenate([fold.test for fold in parts])


def fold_of_tests(parts: Sequence[Fold]) -> Ints:
    """Return the place of the fold of each test row, in the order of `tested_rows`, int64[t]."""
    return np.repeat(np.arange(len(parts)), [len(fold.test) for fold in parts])


def scored_evaluation(
    dataset: Dataset, split: str, model: str, parts: Sequence[Fold], tests: "FoldTests"
) -> Evaluation:
    """Return the evaluation of the predictions for the tests of all folds, with scores.

    The interval of a test is calibrated on the residuals of the other folds, unless the model has one of its own.
    """
    # 1. Calibrate the intervals of each fold on the residuals of the others.
    index, fold = tested_rows(parts), fold_of_tests(parts)
    novelty, partners, predicted_log = tests.novelty, tests.partners, tests.predicted_log
    low, high = cross_fold_interval(dataset, index, predicted_log, fold, novelty=novelty, partners=partners)
    low, high = (np.where(np.isfinite(own), own, other) for own, other in zip(tests.ends.T, (low, high), strict=True))
    # 2. Score. Where the folds test different unseen jobs, only predictions of one fold may be ranked together.
    rows = scored_rows(
        dataset, index, predicted_log, fold, unlike_folds=split in SPLITS_OF_UNLIKE_FOLDS or split not in SPLITS
    )
    return Evaluation(
        split=split,
        model=model,
        scores=score(rows, PredictionInterval(low=low, high=high, subject=tests.subject)),
        parts=tuple(parts),
        predicted_log=predicted_log,
        low=low,
        high=high,
        novelty=novelty,
        partners=partners,
        subject=tests.subject,
        folds=tuple(
            FoldScore(hides=part.hides, rows=len(part.test), mae=mae(rows.take(fold == k)))
            for k, part in enumerate(parts)
        ),
        per_device=mae_per_device(dataset, index, rows),
        selectivity=selectivity(
            abstention_score(novelty, predicted_log),
            np.abs(speed(rows.measured_log) - speed(predicted_log)),
        ),
        stand_in=float(1 - tests.has_inputs.mean()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTests(RowColumns):
    """The predictions of one model for the test rows of one or more folds, with one entry per test."""

    predicted_log: Floats
    novelty: Floats
    partners: Ints  # measured partners, in the training rows, of the less known job
    subject: Ints  # the job that each row tests
    has_inputs: NDArray[np.bool_]  # False where a baseline predicts the mean instead
    ends: Floats  # float64[t, 2]: ends of the model's own 90 % interval, log slowdown; NaN without one


def _predict_fold(dataset: Dataset, fold: Fold, model: FittedPredictor) -> FoldTests:
    rows = dataset.rows.take(fold.test)
    interval = model.interval(rows, (LOW, HIGH)) if isinstance(model, IntervalModel) else None
    return FoldTests(
        predicted_log=model.predict(rows),
        novelty=model.novelty(rows) if isinstance(model, NoveltyModel) else np.zeros(len(rows)),
        partners=partners_of_tests(dataset, fold),
        subject=subject_jobs(dataset, fold),
        has_inputs=model.has_inputs(rows) if isinstance(model, PartialModel) else np.ones(len(rows), dtype=bool),
        ends=np.full((len(rows), 2), np.nan) if interval is None else np.sort(interval, axis=1),
    )


def cross_fold_interval(
    dataset: Dataset,
    index: Ints,
    predicted_log: Floats,
    fold: Ints,
    *,
    novelty: Floats,
    partners: Ints,
    asked: tuple[Floats, Floats] | None = None,
) -> tuple[Floats, Floats]:
    """Return the ends (low, high) of the 90 % interval of each test, in log slowdown; NaN where there is one fold only.

    The interval of a test is calibrated on the residuals of all other folds. `asked` are other predictions of the same
    tests, with their novelty, that the intervals are for; without it they are for `predicted_log`.
    """
    low, high = np.full(len(fold), np.nan), np.full(len(fold), np.nan)
    residual, domain = dataset.log_slowdown[index] - predicted_log, dataset.domain[index] + 1
    asked_log, asked_novelty = asked or (predicted_log, novelty)
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
            facts = {"novelty": asked_novelty[tests], "partners": partners[tests], "domain": domain[tests]}
            low[tests] = asked_log[tests] + intervals.quantile(LOW, **facts)
            high[tests] = asked_log[tests] + intervals.quantile(HIGH, **facts)
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
    new_victim, new_neighbour = unseen_sides(dataset, fold)
    victim, neighbour = dataset.rows.victim[fold.test], dataset.rows.neighbour[fold.test]
    return np.where(new_neighbour & ~new_victim, neighbour, victim)


def unseen_sides(dataset: Dataset, fold: Fold) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each test row whether its victim, and whether its neighbour, occurs in no training row, bool[t]."""
    victim, neighbour = dataset.rows.victim, dataset.rows.neighbour
    seen = np.concatenate([victim[fold.train], neighbour[fold.train]])
    return ~np.isin(victim[fold.test], seen), ~np.isin(neighbour[fold.test], seen)


def mae_per_device(dataset: Dataset, index: Ints, rows: ScoredRows) -> tuple[tuple[str, float], ...]:
    types = np.array([domain.device_type for domain in dataset.domains])[dataset.domain[index]]
    return tuple((name, mae(rows.take(types == name))) for name in sorted(set(types.tolist())))
