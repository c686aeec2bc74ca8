"""Every model on every split, out of fold, side by side; and which of them is best.

The champion has the lowest ½ · (MAE on `pair` + MAE on `job`), both out of fold; the simpler model wins a tie. Pairs
that were held out by the caller are no part of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import read_table
from training.dataset import Dataset, build_dataset, require_enough
from training.facts import Facts, views
from training.intervals import cross_coverage
from training.model import ModelSettings
from training.models import MODELS, chosen
from training.scores import Answers, Scores, score
from training.splits import CHOOSING, FOLDS_APART, Fold, folds

Report = Callable[[str], None]
LEGEND = (
    "MAE of speed, MAPE of slowdown, R² of log slowdown, mean Spearman per victim, regret of each job's best partner, "
    "coverage of the 90 % interval"
)
COLUMNS = (  # field, heading, format
    ("mae", "MAE", ".4f"),
    ("mape", "MAPE %", ".2f"),
    ("r2", "R²", ".3f"),
    ("spearman", "Spearman", ".3f"),
    ("regret", "regret %", ".2f"),
    ("coverage", "coverage", ".3f"),
    ("rows", "rows", "d"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One model on one split. `t` tests: in the `job` split a row is tested once for each of its jobs."""

    split: str
    model: str
    scores: Scores
    index: NDArray[np.int64]  # int64[t]: rows of the dataset
    fold: NDArray[np.int64]  # int64[t]
    predicted_log: NDArray[np.float64]  # float64[t]

    def residual(self, dataset: Dataset) -> NDArray[np.float64]:
        """log s - log ŝ, float64[t]."""
        return np.asarray(dataset.log_slowdown[self.index] - self.predicted_log)


def evaluate_models(
    dataset: Dataset,
    models: Sequence[ModelSettings],
    *,
    splits: Sequence[str] = CHOOSING,
    seed: int = 0,
    report: Report = lambda _: None,
) -> tuple[Evaluation, ...]:
    """Out-of-fold predictions and scores, by split, then model."""
    found = []
    for split in splits:
        parts = folds(dataset, split, seed)
        for model in models:
            found.append(out_of_fold(dataset, model, split, parts, seed))
            report(f"{split} split, {model.name}: MAE of speed {found[-1].scores.mae:.4f}")
    return tuple(found)


def out_of_fold(dataset: Dataset, model: ModelSettings, split: str, parts: Sequence[Fold], seed: int) -> Evaluation:
    """One model, fitted once per fold."""
    predicted = [model.fit(dataset.take(part.train), seed).predict(dataset.rows.take(part.test)) for part in parts]
    index = np.concatenate([part.test for part in parts])
    fold = np.repeat(np.arange(len(parts)), [len(part.test) for part in parts])
    predicted_log = np.concatenate(predicted)
    # Where folds ask about different new jobs, only answers of one fold may be ranked together.
    answers = answers_of(dataset, index, predicted_log, fold if split in FOLDS_APART else np.zeros_like(fold))
    residual = answers.measured_log - predicted_log
    scores = score(answers, coverage=cross_coverage(residual, fold))
    return Evaluation(split=split, model=model.name, scores=scores, index=index, fold=fold, predicted_log=predicted_log)


def answers_of(
    dataset: Dataset, index: NDArray[np.int64], predicted_log: NDArray[np.float64], apart: NDArray[np.int64]
) -> Answers:
    """Predictions for the rows `index` beside what was measured; contexts never mix domains, tables or `apart`."""
    keys = np.stack([dataset.domain[index], dataset.table[index], apart])
    return Answers(
        measured_log=dataset.log_slowdown[index],
        predicted_log=predicted_log,
        victim=dataset.rows.victim[index],
        neighbour=dataset.rows.neighbour[index],
        context=np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1),
    )


def champion_of(evaluations: Sequence[Evaluation]) -> str:
    """Name of the model with the lowest mean of its MAE over the splits; the simpler one of equals."""
    names = [name for name in MODELS if any(e.model == name for e in evaluations)]
    return min(names, key=lambda name: float(np.mean([e.scores.mae for e in evaluations if e.model == name])))


def evaluate(
    tables: Sequence[Path],
    *,
    seed: int = 0,
    models: str = "",
    splits: Sequence[str] = CHOOSING,
    facts: Sequence[Facts] = tuple(Facts),
    report: Report = lambda _: None,
) -> dict[Facts, tuple[Evaluation, ...]]:
    """Read tables and evaluate on each choice of facts; nothing is written.

    Raises TableError, UnfitError or InvalidInputError.
    """
    wanted = chosen(models)
    found = {}
    for view in views([read_table(path) for path in tables], facts):
        dataset = build_dataset(view.tables, view.encoder)
        require_enough(dataset)
        report(f"facts: {view.facts}")
        found[view.facts] = evaluate_models(dataset, wanted, splits=splits, seed=seed, report=report)
    return found


def markdown(scores: Sequence[tuple[str, str, Scores]]) -> str:
    """Table of (split, model, scores)."""
    lines = [
        "| split | model | " + " | ".join(heading for _, heading, _ in COLUMNS) + " |",
        "|---|---|" + "---|" * len(COLUMNS),
    ]
    for split, model, one in scores:
        values = asdict(one)
        cells = ["-" if values[name] != values[name] else format(values[name], form) for name, _, form in COLUMNS]
        lines.append(f"| {split} | {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
