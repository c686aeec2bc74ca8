"""The contribution of each feature to the predictions of the trees: mean |TreeSHAP value| over the training rows.

LightGBM's `pred_contrib` (Lundberg et al. 2020, "From local explanations to global understanding with explainable AI
for trees"), in log slowdown: the contributions of a row and the mean prediction add up to the row's prediction.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import Dataset
from interfere.training.models.believed import FittedBelieved
from interfere.training.models.completed import FittedCompleted
from interfere.training.models.ensemble import FittedEnsemble
from interfere.training.models.gbdt import FittedGbdt, fill_missing
from interfere.training.models.protocols import FittedModel

if TYPE_CHECKING:  # matplotlib is imported when a figure is drawn
    from matplotlib.figure import Figure

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


def contributions_figure(name: str, contributions: Contributions) -> "Figure":
    """Bars of the largest contributions of the model `name`."""
    from matplotlib.figure import Figure

    shown = contributions[:MAX_BARS][::-1]
    figure = Figure(figsize=(8, 1.5 + 0.28 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh([feature for feature, _ in shown], [size for _, size in shown])
    axes.set(
        xlabel="mean |contribution| to log slowdown,\nover the training rows",  # two lines: feature names are wide
        title=f"Largest contributions to the trees of {name}\n({len(shown)} of {len(contributions)} features)",
    )
    return figure
