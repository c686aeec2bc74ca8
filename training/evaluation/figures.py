"""Figures of a training: predicted against measured slowdowns, error by job, measured slowdowns, and features.

The contribution of a feature is the mean |TreeSHAP value| of the trees over the training rows. LightGBM's
`pred_contrib` (Lundberg et al. 2020, "From local explanations to global understanding with explainable AI for trees")
gives it in log slowdown: the contributions of a row and the mean prediction add up to the row's prediction.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.acceptance.score import speed
from interfere.reports.document import (
    Absence,
    Axis,
    Colour,
    Estimate,
    HeatCell,
    HeatMap,
    LinePlot,
    Mark,
    Panel,
    PlotRow,
    Point,
    RowPlot,
    Series,
)
from interfere.reports.numbers import TIMES, fixed, format_times
from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.models.gbdt import FittedGbdt, fill_missing

SPLIT_TITLES = {
    "pair": "unseen pair of known jobs",
    "job": "one job never seen",
    "family": "one family never seen",
    "neighbour": "neighbour never seen as one",
    "device": "device type with 20 pairs seen",
    "time": "pairs measured later",
    "sparse10": "10 % of pairs seen",
    "sparse20": "20 % of pairs seen",
    "sparse40": "40 % of pairs seen",
}
ERROR_TITLE = "mean |measured speed - predicted speed|, speed = 1 / slowdown"
ERROR = fixed(4)
MAX_BARS = 20  # of the contributions that a figure shows

Contributions = tuple[tuple[str, float], ...]  # (feature, mean |contribution|), the largest first


def predicted_vs_measured(dataset: Dataset, evaluations: Sequence[Evaluation]) -> LinePlot:
    """Return one panel per evaluation, in which each point is an out-of-fold prediction of an ordered pair."""
    return LinePlot(
        title="Predicted against measured slowdowns, out of fold",
        x=Axis(title="measured slowdown (×)", form=TIMES, is_log=True),
        y=Axis(title="predicted slowdown (×)", form=TIMES, is_log=True),
        series=(Series(name="ordered pair"),),
        panels=tuple(_scatter(dataset, evaluation) for evaluation in evaluations),
        is_square=True,
    )


def _scatter(dataset: Dataset, evaluation: Evaluation) -> Panel:
    names, rows = dataset.workloads, dataset.rows
    points = []
    for k, log_predicted in zip(evaluation.index, evaluation.predicted_log, strict=True):
        measured, predicted = math.exp(dataset.log_slowdown[k]), math.exp(log_predicted)
        pair = f"{names[rows.victim[k] - 1]} beside {names[rows.neighbour[k] - 1]}"
        label = f"{pair}: measured {format_times(measured)}, predicted {format_times(predicted)}"
        points.append(Point(measured, predicted, label=label))
    scores, split = evaluation.scores, SPLIT_TITLES.get(evaluation.split, evaluation.split)
    title = f"{evaluation.model}, {split}: MAE of speed {scores.mae:.3f}, MAPE of slowdown {scores.mape:.1f} %"
    return Panel(title=title, points=(tuple(points),))


def error_by_job(dataset: Dataset, evaluations: Sequence[Evaluation]) -> RowPlot:
    """Return the mean |y - ŷ| of each victim as bars, one per evaluation, with the largest on top."""
    names = dataset.workloads
    error = np.full((len(evaluations), len(names)), np.nan)
    for k, evaluation in enumerate(evaluations):
        victim = dataset.rows.victim[evaluation.index]
        speed_error = np.abs(speed(dataset.log_slowdown[evaluation.index]) - speed(evaluation.predicted_log))
        for i in np.unique(victim):
            error[k, i - 1] = speed_error[victim == i].mean()
    tested = np.flatnonzero(np.isfinite(error).any(axis=0))
    order = tested[np.argsort(-np.nanmax(error[:, tested], axis=0), kind="stable")]
    return RowPlot(
        title=f"Error by victim, {evaluations[0].model}, out of fold",
        axis=Axis(title=ERROR_TITLE, form=ERROR),
        series=tuple(
            Series(name=SPLIT_TITLES.get(evaluation.split, evaluation.split), mark=Mark.BAR, colour=colour)
            for evaluation, colour in zip(evaluations, Colour, strict=False)
        ),
        rows=tuple(
            PlotRow(
                label=names[i],
                values=tuple((Estimate(float(each[i])),) if np.isfinite(each[i]) else () for each in error),
            )
            for i in order
        ),
    )


def slowdown_map(dataset: Dataset, domain: int) -> HeatMap:
    """Return the measured slowdowns of one domain as a heat map: victims are rows, neighbours are columns."""
    rows = dataset.latest_rows()
    rows = rows.take(rows.domain == domain)
    pairs = zip(rows.rows.victim, rows.rows.neighbour, np.exp(rows.log_slowdown), strict=True)
    measured = {(dataset.workloads[i - 1], dataset.workloads[j - 1]): float(slowdown) for i, j, slowdown in pairs}
    present = np.unique(np.concatenate([rows.rows.victim, rows.rows.neighbour]))
    names = tuple(dataset.workloads[i - 1] for i in present)
    cells = {}
    for victim in names:
        for neighbour in names:
            slowdown = measured.get((victim, neighbour))
            said = "not measured" if slowdown is None else format_times(slowdown)
            absence = Absence.MISSING if slowdown is None else None
            label = f"{victim} beside {neighbour}: {said}"
            cells[victim, neighbour] = HeatCell(math.nan if slowdown is None else slowdown, label, absence)
    place = dataset.domains[domain]
    return HeatMap(
        title=f"Measured slowdown (×) on {place.device_type}, {place.mode}",
        row_axis="victim",
        column_axis="beside",
        unit="times alone",
        rows=names,
        columns=names,
        cells=cells,
    )


def mean_contributions(trees: FittedGbdt, dataset: Dataset) -> Contributions:
    """Return the mean |contribution| over the rows of every pair column that the trees read, the largest first."""
    size = np.abs(row_contributions(trees, dataset)[:, :-1]).mean(axis=0)
    order = np.argsort(-size, kind="stable")
    return tuple((dataset.pair_columns[k], float(size[k])) for k in order)


def row_contributions(trees: FittedGbdt, dataset: Dataset) -> NDArray[np.float64]:
    """Return the contributions of every column to each row's prediction, float64[p, columns + 1].

    The last column is the mean prediction; every row adds up to its prediction.
    """
    import lightgbm

    booster = lightgbm.Booster(model_str=trees.model_text)
    values = booster.predict(fill_missing(dataset.rows.pairs[:, : trees.columns]), pred_contrib=True, num_threads=1)
    return np.asarray(values, dtype=np.float64)


def contributions_figure(name: str, contributions: Contributions) -> RowPlot:
    """Return a bar plot of the largest contributions of features to the model `name`."""
    shown = contributions[:MAX_BARS]
    return RowPlot(
        title=f"Largest contributions to the trees of {name} ({len(shown)} of {len(contributions)} features)",
        axis=Axis(title="mean |contribution| to log slowdown, over the training rows", form=fixed(4)),
        series=(Series(name="contribution", mark=Mark.BAR),),
        rows=tuple(PlotRow(label=feature, values=((Estimate(size),),)) for feature, size in shown),
    )
