"""Figures of a replay: completion times, what sharing changes with its interval, and how busy the devices were."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interfere.sim.replay import Replayed
from interfere.sim.study import Line, Run

if TYPE_CHECKING:  # matplotlib is imported when a figure is drawn
    from matplotlib.figure import Figure

HOUR_S = 3600.0
SHOWN = 6  # curves in one panel that can still be told apart


def mean_by_policy(lines: Sequence[Line], title: str) -> "Figure":
    """Mean completion time as recorded, grey where nobody shares."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.3 + 0.32 * len(lines)), layout="constrained")
    axes = figure.subplots()
    hours = [line.score.mean_completion_s / HOUR_S for line in lines[::-1]]
    colours = ["C0" if line.against else "0.7" for line in lines[::-1]]
    bars = axes.barh([line.policy for line in lines[::-1]], hours, color=colours)
    axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize=8)
    axes.set(xlabel="mean completion time (hours), grey: nobody shares", title=title, xlim=(0, max(hours) * 1.12))
    return figure


def change_by_policy(lines: Sequence[Line]) -> "Figure":
    """What sharing changes, with intervals over traces."""
    from matplotlib.figure import Figure

    shown = [line for line in lines[::-1] if line.change is not None]
    figure = Figure(figsize=(7.5, 1.6 + 0.36 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for k, line in enumerate(shown):
        change = line.change
        assert change is not None
        if np.isfinite(change.low):
            axes.plot([100 * change.low, 100 * change.high], [k, k], color="C0", linewidth=2)
        axes.plot(100 * change.share, k, "o", color="C0")
    axes.axvline(0, color="0.5", linewidth=1)
    axes.set_yticks(range(len(shown)), [line.policy for line in shown])
    traces = shown[0].change.traces if shown and shown[0].change else 0
    axes.set(
        ylim=(-0.6, len(shown) - 0.4),
        xlabel="change of mean completion time by sharing (%), left is better",
        title=f"What sharing changes, 95 % interval over {traces} traces",
    )
    return figure


def completion_curves(runs: Sequence[Run], title: str) -> "Figure":
    """Share of jobs that are over within a time of their arrival, as recorded."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    styles = itertools.cycle(["-", "--", ":", "-."])
    for policy in list(dict.fromkeys(run.policy for run in runs))[-SHOWN:]:
        mine = [run.replayed.completion_s for run in runs if run.policy == policy and run.replayed is not None]
        times = np.sort(np.concatenate(mine)) / HOUR_S
        share = np.arange(1, len(times) + 1) / len(times)
        axes.step(np.maximum(times, 1 / HOUR_S), share, where="post", label=policy, linestyle=next(styles))
    axes.set(
        xscale="log", xlabel="completion time (hours, log scale)", ylabel="share of jobs", title=title, ylim=(0, 1)
    )
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    return figure


def in_use(policies: Sequence[tuple[str, Replayed]], title: str) -> "Figure":
    """Devices in use and shared over time, one panel a policy, hourly means."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 0.6 + 1.9 * len(policies)), layout="constrained")
    last_s = max(float(one.at_s[-1]) for _, one in policies)
    panels = figure.subplots(len(policies), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (policy, one) in zip(panels, policies, strict=True):
        at = np.arange(0.0, last_s, max(HOUR_S, last_s / 800))
        days, total = at[:-1] / (24 * HOUR_S), len(one.world.devices)
        for what, values in (("in use", one.busy), ("of these shared by two", one.shared)):
            panel.fill_between(days, _means(one.at_s, values, at) / total * 100, step="post", alpha=0.55, label=what)
        panel.set(ylabel="devices (%)", ylim=(0, 100), title=policy)
        panel.title.set_fontsize(9)
    panels[0].legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=2)
    panels[-1].set_xlabel("days since the first arrival")
    figure.suptitle(title)
    return figure


def _means(at_s: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean of a step function between edges."""
    area = np.concatenate([[0.0], np.cumsum(np.diff(at_s) * values[:-1])])
    held = np.interp(edges, at_s, area)
    return np.asarray(np.diff(held) / np.diff(edges))
