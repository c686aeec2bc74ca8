"""Figures of a replay: completion times, what sharing changes, deadlines met, and how busy the devices were."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interfere.sim.ratio_interval import CONFIDENCE
from interfere.sim.replay import Replayed
from interfere.sim.schedulers.names import DEADLINE_BASELINE, parse_name
from interfere.sim.study import Line
from interfere.sim.study_runs import Run
from interfere.sim.uncertainty import UncertainMean

if TYPE_CHECKING:  # matplotlib is imported when a figure is drawn
    from matplotlib.figure import Figure

HOUR_S = 3600.0
MAX_CURVES = 6  # in one panel: more cannot be told apart
SHARES, UNSHARED = "C0", "0.7"  # colours of policies that share, and that do not


def mean_by_policy(lines: Sequence[Line], title: str) -> "Figure":
    """Mean completion time of the traces as recorded, grey for policies that do not share."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.3 + 0.32 * len(lines)), layout="constrained")
    axes = figure.subplots()
    hours = [line.score.mean_completion_s / HOUR_S for line in lines[::-1]]
    colours = [SHARES if line.against else UNSHARED for line in lines[::-1]]
    bars = axes.barh([line.policy for line in lines[::-1]], hours, color=colours)
    axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize=8)
    axes.set(xlabel="mean completion time (hours), grey: without sharing", title=title, xlim=(0, max(hours) * 1.12))
    return figure


def change_by_policy(lines: Sequence[Line]) -> "Figure":
    """What sharing changes in the mean completion time, with intervals of the mean."""
    changes = [(line.policy, line.change) for line in lines if line.change is not None]
    population = changes[0][1].interval.population if changes else ""
    return _changes_figure(
        [_percentages(policy, change) for policy, change in changes],
        "change of mean completion time by sharing (%), left is better",
        f"What sharing changes, {CONFIDENCE:.0%} interval of the {population}",
    )


def _percentages(policy: str, figure: UncertainMean) -> tuple[str, float, float, float]:
    return policy, 100 * figure.mean, 100 * figure.interval.low, 100 * figure.interval.high


def satisfaction_by_policy(lines: Sequence[Line]) -> "Figure":
    """Deadlines met, with intervals of the mean, grey for policies that do not share."""
    from matplotlib.figure import Figure

    shown = [(line, line.satisfaction) for line in lines[::-1] if line.satisfaction is not None]
    population = shown[0][1].interval.population if shown else ""
    figure = Figure(figsize=(7.5, 1.3 + 0.32 * len(shown)), layout="constrained")
    axes = figure.subplots()
    shares = [100 * share.mean for _, share in shown]
    colours = [SHARES if parse_name(line.policy).sharing else UNSHARED for line, _ in shown]
    axes.barh([line.policy for line, _ in shown], shares, color=colours)
    for k, (_, share) in enumerate(shown):
        if share.interval.is_known:
            axes.plot([100 * share.interval.low, 100 * share.interval.high], [k, k], color="0.2", linewidth=1.5)
        axes.text(102, k, f"{100 * share.mean:.1f}", va="center", fontsize=8)
    interval = f", {CONFIDENCE:.0%} interval of the {population}" if shown and shown[0][1].interval.is_known else ""
    axes.set(xlabel="deadlines met, of all submitted jobs that have one (%)\ngrey: without sharing", xlim=(0, 112))
    figure.suptitle(f"Deadline satisfaction{interval}")
    return figure


def satisfaction_change_by_policy(lines: Sequence[Line]) -> "Figure":
    """Deadlines met more or fewer than by the baseline, with intervals of the mean."""
    changes = [(line.policy, line.satisfaction_change) for line in lines if line.satisfaction_change is not None]
    interval = ""
    if changes and changes[0][1].interval.is_known:
        interval = f", {CONFIDENCE:.0%} interval of the {changes[0][1].interval.population}"
    return _changes_figure(
        [_percentages(policy, change) for policy, change in changes],
        f"deadlines met more than by {DEADLINE_BASELINE}\n(for policies that share: by {DEADLINE_BASELINE}+greedy)\n"
        "in percentage points, right is better",
        f"Deadline satisfaction against the baseline{interval}",
    )


def _changes_figure(changes: Sequence[tuple[str, float, float, float]], xlabel: str, title: str) -> "Figure":
    """One point and interval per policy: `changes` are (policy, mean, low, high), the first on top."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.6 + 0.36 * len(changes)), layout="constrained")
    axes = figure.subplots()
    for k, (_, mean, low, high) in enumerate(changes[::-1]):
        if np.isfinite(low):
            axes.plot([low, high], [k, k], color=SHARES, linewidth=2)
        axes.plot(mean, k, "o", color=SHARES)
    axes.axvline(0, color="0.5", linewidth=1)
    axes.set_yticks(range(len(changes)), [policy for policy, *_ in changes[::-1]])
    axes.set(ylim=(-0.6, len(changes) - 0.4), xlabel=xlabel)
    figure.suptitle(title)
    return figure


def completion_curves(runs: Sequence[Run], title: str) -> "Figure":
    """Share of jobs that have ended within a time after their arrival, of the traces as recorded."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    styles = itertools.cycle(["-", "--", ":", "-."])
    for policy in list(dict.fromkeys(run.policy for run in runs))[-MAX_CURVES:]:
        completion_s = [run.replayed.completion_s for run in runs if run.policy == policy and run.replayed is not None]
        times = np.sort(np.concatenate(completion_s)) / HOUR_S
        share = np.arange(1, len(times) + 1) / len(times)
        axes.step(np.maximum(times, 1 / HOUR_S), share, where="post", label=policy, linestyle=next(styles))
    axes.set(
        xscale="log", xlabel="completion time (hours, log scale)", ylabel="share of jobs", title=title, ylim=(0, 1)
    )
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    return figure


def in_use(policies: Sequence[tuple[str, Replayed]], title: str) -> "Figure":
    """Devices in use and shared over time, one panel a policy; means of an hour, or of 1/800 of a longer trace."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 0.6 + 1.9 * len(policies)), layout="constrained")
    last_s = max(float(replayed.at_s[-1]) for _, replayed in policies)
    panels = figure.subplots(len(policies), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (policy, replayed) in zip(panels, policies, strict=True):
        edges_s = np.arange(0.0, last_s, max(HOUR_S, last_s / 800))
        days, total = edges_s[:-1] / (24 * HOUR_S), len(replayed.world.devices)
        for label, devices in (("in use", replayed.busy), ("of these shared by two", replayed.shared)):
            percent = _means(replayed.at_s, devices, edges_s) / total * 100
            panel.fill_between(days, percent, step="post", alpha=0.55, label=label)
        panel.set(ylabel="devices (%)", ylim=(0, 100))
        panel.set_title(policy, loc="left", fontsize=9)
    panels[0].legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=2)
    panels[-1].set_xlabel("days since the first arrival")
    figure.suptitle(title)
    return figure


def _means(at_s: np.ndarray, values: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """Means of a step function, which takes `values` from `at_s` on, between consecutive edges."""
    integral = np.concatenate([[0.0], np.cumsum(np.diff(at_s) * values[:-1])])
    return np.asarray(np.diff(np.interp(edges_s, at_s, integral)) / np.diff(edges_s))
