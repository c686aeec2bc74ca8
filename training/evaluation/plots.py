"""Figures: predicted against measured slowdowns, error by job, measured slowdowns, and the models of a leaderboard."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from interfere.errors import InvalidInputError
from interfere.training.dataset import Dataset, speed
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.leaderboard import Leaderboard

if TYPE_CHECKING:  # matplotlib is imported when a figure is drawn
    from matplotlib.figure import Figure

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


def predicted_vs_measured(dataset: Dataset, evaluations: Sequence[Evaluation]) -> "Figure":
    """One panel per evaluation; each point is an out-of-fold prediction of an ordered pair."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(evaluations), 5), layout="constrained")
    for panel, evaluation in zip(figure.subplots(1, len(evaluations), squeeze=False)[0], evaluations, strict=True):
        measured, predicted = np.exp(dataset.log_slowdown[evaluation.index]), np.exp(evaluation.predicted_log)
        limits = [min(measured.min(), predicted.min()) * 0.95, max(measured.max(), predicted.max()) * 1.05]
        panel.plot(limits, limits, color="0.6", linewidth=1, label="exact")
        panel.scatter(measured, predicted, s=14, alpha=0.6, edgecolors="none")
        panel.set(
            xlabel="measured slowdown (×)",
            ylabel="predicted slowdown (×)",
            xlim=limits,
            ylim=limits,
            aspect="equal",
            title=f"{evaluation.model}, {SPLIT_TITLES.get(evaluation.split, evaluation.split)}\n"
            f"MAE of speed {evaluation.scores.mae:.3f}, MAPE of slowdown {evaluation.scores.mape:.1f} %",
        )
        panel.legend(loc="upper left", frameon=False)
    return figure


def error_by_job(dataset: Dataset, evaluations: Sequence[Evaluation]) -> "Figure":
    """Mean |y - ŷ| of each victim, one bar per evaluation, the largest on top."""
    from matplotlib.figure import Figure

    names = dataset.workloads
    error = np.full((len(evaluations), len(names)), np.nan)
    for k, evaluation in enumerate(evaluations):
        victim = dataset.rows.victim[evaluation.index]
        speed_error = np.abs(speed(dataset.log_slowdown[evaluation.index]) - speed(evaluation.predicted_log))
        for i in np.unique(victim):
            error[k, i - 1] = speed_error[victim == i].mean()
    tested = np.flatnonzero(np.isfinite(error).any(axis=0))
    order = tested[np.argsort(np.nanmax(error[:, tested], axis=0))]
    figure = Figure(figsize=(7, 1.5 + 0.3 * len(order)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(evaluations)
    for k, evaluation in enumerate(evaluations):
        position = np.arange(len(order)) + (k - (len(evaluations) - 1) / 2) * height
        label = SPLIT_TITLES.get(evaluation.split, evaluation.split)
        axes.barh(position, error[k, order], height=height, label=label)
    axes.set(
        yticks=np.arange(len(order)),
        yticklabels=[names[i] for i in order],
        xlabel="mean |measured speed - predicted speed|\n(speed = 1 / slowdown)",
        title=f"Error by victim, {evaluations[0].model}, out of fold",
    )
    axes.legend(frameon=False, loc="lower right")
    return figure


def slowdown_heatmap(dataset: Dataset, domain: int) -> "Figure":
    """Measured slowdowns of one domain: victims are rows, neighbours are columns, unmeasured pairs are grey."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    rows = dataset.latest_rows()
    rows = rows.take(rows.domain == domain)
    present = np.unique(np.concatenate([rows.rows.victim, rows.rows.neighbour]))
    grid = np.full((len(present), len(present)), np.nan)
    entry = np.searchsorted(present, rows.rows.victim), np.searchsorted(present, rows.rows.neighbour)
    grid[entry] = np.exp(rows.log_slowdown)
    height = 3.5 + 0.42 * len(present)
    figure = Figure(figsize=(height + 1, height), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("0.85")
    low, high = np.nanmin(grid), np.nanmax(grid)
    image = axes.imshow(grid, norm=LogNorm(low, high if high > low else low * 1.01), cmap="magma_r")
    names = [dataset.workloads[i - 1] for i in present]
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    place = dataset.domains[domain]
    axes.set(xlabel="neighbour", ylabel="victim", title=f"Measured slowdown (×) on {place.device_type}, {place.mode}")
    if len(present) <= 20:
        middle = np.sqrt(low * high)
        for i, j in zip(*np.nonzero(np.isfinite(grid)), strict=True):
            colour = "white" if grid[i, j] > middle else "black"
            axes.text(j, i, f"{grid[i, j]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    bar = figure.colorbar(image, ax=axes, label="slowdown (×), log scale", shrink=0.8)
    ticks = np.geomspace(low, high, 5).tolist()
    bar.set_ticks(ticks, labels=[f"{tick:.2f}" for tick in ticks])
    bar.minorticks_off()
    return figure


def leaderboard_figure(leaderboard: Leaderboard) -> "Figure":
    """MAE of every model with its standard error; baselines are grey, the published model is red."""
    from matplotlib.figure import Figure

    rows = leaderboard.rows[::-1]
    figure = Figure(figsize=(7, 1.5 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    colours = ["C3" if row.name == leaderboard.published else "0.7" if row.baseline else "C0" for row in rows]
    errors = [0.0 if math.isnan(row.scores.mae_se) else row.scores.mae_se for row in rows]
    axes.barh([row.name for row in rows], [row.scores.mae for row in rows], xerr=errors, color=colours)
    axes.set(
        xlabel="mean |measured speed - predicted speed|, ± standard error over victims",
        title=f"{leaderboard.data}, {SPLIT_TITLES[leaderboard.split]}, facts: {leaderboard.facts}\n"
        f"baselines grey, published: {leaderboard.published}",
    )
    return figure


def make_figure_folder(folder: Path) -> None:
    """Make the folder, before the work starts. Raises InvalidInputError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".write").touch()
        (folder / ".write").unlink()
    except OSError as error:
        raise InvalidInputError(
            f"figures cannot be written there ({error.strerror or error})",
            value=str(folder),
            remedy="choose a folder you may write to with --plots",
        ) from error


def save_leaderboard_figures(leaderboards: Sequence[Leaderboard], folder: Path) -> list[Path]:
    """Draw each leaderboard, and the published model's predictions and errors by job. Returns the files."""
    files = []
    for leaderboard in leaderboards:
        published = leaderboard.row(leaderboard.published).evaluations[:1]
        figures = {
            "models": leaderboard_figure(leaderboard),
            "published": predicted_vs_measured(leaderboard.dataset, published),
            "jobs": error_by_job(leaderboard.dataset, published),
        }
        for subject, figure in figures.items():
            title = f"{leaderboard.data}_{leaderboard.split}_{leaderboard.facts}_{subject}.png"
            file = folder / re.sub(r"[^\w.-]+", "-", title)  # the name of the data is free text
            figure.savefig(file, dpi=120)
            files.append(file)
    return files
