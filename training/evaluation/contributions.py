"""What each feature and each table contributes to a training.

Features: the mean |TreeSHAP value| of the trees over the training rows. LightGBM's `pred_contrib` (Lundberg et al.
2020, "From local explanations to global understanding with explainable AI for trees"), in log slowdown: the
contributions of a row and the mean prediction add up to the row's prediction.

Tables: the error on trusted rows of the other tables, with the table and without it. The rows are those of the folds of
`pair`: each is predicted by a model whose training rows hide its pair in every table. Rows that were observed, or
translated from another software stack, are no tests. Campaigns are compared and translated within the training rows of
each fold, with and without the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.reports.document import Axis, Estimate, Mark, PlotRow, RowPlot, Series
from interfere.reports.numbers import fixed
from interfere.time_left import TimeLeft
from interfere.training.campaigns import align_campaigns
from interfere.training.dataset import Dataset
from interfere.training.evaluation.gating.comparison import Difference, PairedPredictions, compare
from interfere.training.evaluation.splits import MIN_TRAIN_ROWS, Fold, folds
from interfere.training.models.believed import FittedBelieved
from interfere.training.models.completed import FittedCompleted
from interfere.training.models.ensemble import FittedEnsemble
from interfere.training.models.gbdt import FittedGbdt, fill_missing
from interfere.training.models.protocols import FittedModel, ModelSettings

MAX_BARS = 20  # of the figure

Contributions = tuple[tuple[str, float], ...]  # (feature, mean |contribution|), the largest first


def trees_of(model: FittedModel) -> FittedGbdt | None:
    """The trees of a model: itself, or the member of an ensemble; None for a model without trees."""
    if isinstance(model, (FittedCompleted, FittedBelieved)):
        return trees_of(model.inner)
    if isinstance(model, FittedEnsemble):
        return model.gbdt
    return model if isinstance(model, FittedGbdt) else None


def mean_contributions(trees: FittedGbdt, dataset: Dataset) -> Contributions:
    """Mean |contribution| of every pair column that the trees read over the rows, the largest first."""
    size = np.abs(row_contributions(trees, dataset)[:, :-1]).mean(axis=0)
    order = np.argsort(-size, kind="stable")
    return tuple((dataset.pair_columns[k], float(size[k])) for k in order)


def row_contributions(trees: FittedGbdt, dataset: Dataset) -> NDArray[np.float64]:
    """float64[p, columns + 1]; the last column is the mean prediction, and every row adds up to its prediction."""
    import lightgbm

    booster = lightgbm.Booster(model_str=trees.model_text)
    values = booster.predict(fill_missing(dataset.rows.pairs[:, : trees.columns]), pred_contrib=True, num_threads=1)
    return np.asarray(values, dtype=np.float64)


def contributions_figure(name: str, contributions: Contributions) -> RowPlot:
    """Bars of the largest contributions of the model `name`."""
    shown = contributions[:MAX_BARS]
    return RowPlot(
        title=f"Largest contributions to the trees of {name} ({len(shown)} of {len(contributions)} features)",
        axis=Axis(title="mean |contribution| to log slowdown, over the training rows", form=fixed(4)),
        series=(Series(name="contribution", mark=Mark.BAR),),
        rows=tuple(PlotRow(label=feature, values=((Estimate(size),),)) for feature, size in shown),
    )


TABLE_TASK = "tables"
MIN_TESTS = 20  # rows; as many calibrate a new device type

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContribution:
    """The effect of one table on the predictions of trusted rows of all other tables."""

    table: str
    rows: int  # of the table
    tests: int  # trusted rows of the other tables; 0 where too few to tell
    error: Difference  # of speed: `challenger` with the table, `champion` without it

    @property
    def effect(self) -> str:
        """`helps`, `harms`, or the reason why the effect is unknown."""
        if not self.tests:
            return f"cannot be judged: under {MIN_TESTS} trusted rows in other tables"
        return "helps" if self.error.high < 0 else "harms" if self.error.low > 0 else "neither helps nor harms clearly"

    def text(self) -> str:
        """A line about the effect, for people."""
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
        rows = dataset.take(tests)
        error, _ = compare(
            [
                PairedPredictions(
                    domain=rows.domain,
                    victim=rows.rows.victim,
                    neighbour=rows.rows.neighbour,
                    measured=rows.log_slowdown,
                    challenger=whole[tests],
                    champion=without[tests],
                )
            ],
            seed,
        )
        contributions.append(
            TableContribution(table=names[table], rows=int((~others).sum()), tests=int(tests.sum()), error=error)
        )
        if clock is not None:
            clock.finish(TABLE_TASK, f"what table {names[table]} adds")
    return tuple(contributions)


def _predict(
    dataset: Dataset, pair_folds: Sequence[Fold], kept: NDArray[np.bool_], model: ModelSettings, seed: int
) -> Floats:
    """Out-of-fold log slowdowns, float64[p], of models fitted on the kept rows; NaN where too few of them train."""
    predicted = np.full(len(dataset), np.nan)
    for fold in pair_folds:
        train = fold.train[kept[fold.train]]
        if len(train) >= MIN_TRAIN_ROWS:
            fitted = model.fit(align_campaigns(dataset.take(train))[0], seed)
            predicted[fold.test] = fitted.predict(dataset.rows.take(fold.test))
    return predicted
