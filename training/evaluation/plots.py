"""Figures: predicted against measured, error by job, the measured slowdowns themselves, and all models of a board."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from interfere.errors import InvalidInputError
from training.dataset import Dataset
from training.evaluation.cross_validation import Evaluation
from training.evaluation.leaderboard import Board
from training.evaluation.scores import speed

if TYPE_CHECKING:  # matplotlib is imported when a figure is drawn
    from matplotlib.figure import Figure

MEANING = {
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
    """One panel per evaluation: each point an ordered pair, out of fold."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(evaluations), 5), layout="constrained")
    for panel, one in zip(figure.subplots(1, len(evaluations), squeeze=False)[0], evaluations, strict=True):
        measured, predicted = np.exp(dataset.log_slowdown[one.index]), np.exp(one.predicted_log)
        edges = [min(measured.min(), predicted.min()) * 0.95, max(measured.max(), predicted.max()) * 1.05]
        panel.plot(edges, edges, color="0.6", linewidth=1, label="exact")
        panel.scatter(measured, predicted, s=14, alpha=0.6, edgecolors="none")
        panel.set(
            xlabel="measured slowdown (×)",
            ylabel="predicted slowdown (×)",
            xlim=edges,
            ylim=edges,
            aspect="equal",
            title=f"{one.model}, {MEANING.get(one.split, one.split)}\nMAE of speed {one.scores.mae:.3f},"
            f" MAPE of slowdown {one.scores.mape:.1f} %",
        )
        panel.legend(loc="upper left", frameon=False)
    return figure


def error_by_job(dataset: Dataset, evaluations: Sequence[Evaluation]) -> "Figure":
    """Mean |y - ŷ| of each victim, one bar per evaluation, the worst on top."""
    from matplotlib.figure import Figure

    names = dataset.workloads
    error = np.full((len(evaluations), len(names)), np.nan)
    for k, one in enumerate(evaluations):
        apart = np.abs(speed(dataset.log_slowdown[one.index]) - speed(one.predicted_log))
        for i in np.unique(dataset.rows.victim[one.index]):
            error[k, i - 1] = apart[dataset.rows.victim[one.index] == i].mean()
    tested = np.flatnonzero(np.isfinite(error).any(axis=0))
    order = tested[np.argsort(np.nanmax(error[:, tested], axis=0))]
    figure = Figure(figsize=(7, 1.5 + 0.3 * len(order)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(evaluations)
    for k, one in enumerate(evaluations):
        place = np.arange(len(order)) + (k - (len(evaluations) - 1) / 2) * height
        axes.barh(place, error[k, order], height=height, label=MEANING.get(one.split, one.split))
    axes.set(
        yticks=np.arange(len(order)),
        yticklabels=[names[i] for i in order],
        xlabel="mean |measured speed - predicted speed|\n(speed = 1 / slowdown)",
        title=f"Error by victim, {evaluations[0].model}, out of fold",
    )
    axes.legend(frameon=False, loc="lower right")
    return figure


def slowdown_heatmap(dataset: Dataset, domain: int) -> "Figure":
    """Measured slowdowns of one domain: victims down, neighbours across, grey where nothing was measured."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    rows = dataset.latest()
    rows = rows.take(rows.domain == domain)
    present = np.unique(np.concatenate([rows.rows.victim, rows.rows.neighbour]))
    grid = np.full((len(present), len(present)), np.nan)
    at = np.searchsorted(present, rows.rows.victim), np.searchsorted(present, rows.rows.neighbour)
    grid[at] = np.exp(rows.log_slowdown)
    side = 3.5 + 0.42 * len(present)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("0.85")
    low, high = np.nanmin(grid), np.nanmax(grid)
    image = axes.imshow(grid, norm=LogNorm(low, high if high > low else low * 1.01), cmap="magma_r")
    names = [dataset.workloads[i - 1] for i in present]
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    where = dataset.domains[domain]
    axes.set(xlabel="neighbour", ylabel="victim", title=f"Measured slowdown (×) on {where.device_type}, {where.mode}")
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


def errors_of_models(board: Board) -> "Figure":
    """MAE of every line with its standard error, baselines grey, the published model dark."""
    from matplotlib.figure import Figure

    lines = board.lines[::-1]
    figure = Figure(figsize=(7, 1.5 + 0.3 * len(lines)), layout="constrained")
    axes = figure.subplots()
    colours = ["C3" if line.name == board.published else "0.7" if line.baseline else "C0" for line in lines]
    spread = [0.0 if math.isnan(line.scores.mae_se) else line.scores.mae_se for line in lines]
    axes.barh([line.name for line in lines], [line.scores.mae for line in lines], xerr=spread, color=colours)
    axes.set(
        xlabel="mean |measured speed - predicted speed|, ± standard error over victims",
        title=f"{board.data}, {MEANING[board.split]}, facts: {board.facts}\n"
        f"baselines grey, published: {board.published}",
    )
    return figure


def figure_folder(folder: Path) -> None:
    """Make the folder before the work starts. Raises InvalidInputError where it cannot be written."""
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


def save_boards(boards: Sequence[Board], folder: Path) -> list[Path]:
    """Per board: errors of all models, and the published one's predictions and errors by job. Returns the files."""
    made = []
    for board in boards:
        published = board.line(board.published).evaluations[:1]
        figures = {
            "models": errors_of_models(board),
            "published": predicted_vs_measured(board.dataset, published),
            "jobs": error_by_job(board.dataset, published),
        }
        for kind, figure in figures.items():
            name = re.sub(
                r"[^\w.-]+", "-", f"{board.data}_{board.split}_{board.facts}_{kind}.png"
            )  # names are free text
            figure.savefig(folder / name, dpi=120)
            made.append(folder / name)
    return made
