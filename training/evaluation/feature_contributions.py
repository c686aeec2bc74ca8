"""What each feature contributes to the trees' answers: mean |TreeSHAP value| over the training rows, in log slowdown.

LightGBM's `pred_contrib` (Lundberg et al. 2020, "From local explanations to global understanding with explainable AI
for trees"): per row the contributions and the mean answer add up to the prediction.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from training.dataset import Dataset
from training.models.ensemble import FittedEnsemble
from training.models.gbdt import FittedGbdt, filled
from training.models.model import FittedModel

if TYPE_CHECKING:  # matplotlib is imported when a figure is drawn
    from matplotlib.figure import Figure

SHOWN = 20  # bars of the figure

Contributions = tuple[tuple[str, float], ...]  # feature, mean |contribution|; the largest first


def trees_of(model: FittedModel) -> FittedGbdt | None:
    """The trees that a model is or has."""
    if isinstance(model, FittedEnsemble):
        return model.gbdt
    return model if isinstance(model, FittedGbdt) else None


def contributions(trees: FittedGbdt, dataset: Dataset) -> Contributions:
    """Of every pair column."""
    size = np.abs(row_contributions(trees, dataset)[:, :-1]).mean(axis=0)
    order = np.argsort(-size, kind="stable")
    return tuple((dataset.pair_names[k], float(size[k])) for k in order)


def row_contributions(trees: FittedGbdt, dataset: Dataset) -> NDArray[np.float64]:
    """float64[p, f + 1]; the last column is the mean answer. Every row adds up to its prediction."""
    import lightgbm

    booster = lightgbm.Booster(model_str=trees.model_text)
    found = booster.predict(filled(dataset.rows.pairs), pred_contrib=True, num_threads=1)
    return np.asarray(found, dtype=np.float64)


def contributions_figure(name: str, found: Contributions) -> "Figure":
    """The largest ones as bars."""
    from matplotlib.figure import Figure

    shown = found[:SHOWN][::-1]
    figure = Figure(figsize=(8, 1.5 + 0.28 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh([feature for feature, _ in shown], [size for _, size in shown])
    axes.set(
        xlabel="mean |contribution| to log slowdown,\nover the training rows",  # names of features leave little room
        title=f"What the trees of {name} go by\n({len(shown)} of {len(found)} features)",
    )
    return figure
