"""Figures of a replay: completion times, what sharing changes, deadlines met, and how busy the devices were."""

from collections.abc import Sequence

import numpy as np

from interfere.reports.document import (
    Axis,
    Colour,
    Estimate,
    Figure,
    LinePlot,
    Mark,
    Panel,
    PlotRow,
    Point,
    RowPlot,
    Series,
)
from interfere.reports.numbers import PLAIN, NumberFormat, fixed, hours, percent
from interfere.sim.ratio_interval import CONFIDENCE
from interfere.sim.replay import Replayed
from interfere.sim.schedulers.records import DEADLINE_BASELINE
from interfere.sim.uncertainty import UncertainMean
from interfere.study.comparison import Line
from interfere.study.replays import ReplayResult

HOUR_S = 3600.0
MAX_CURVES = 6  # in one plot: more cannot be told apart
CURVE_POINTS = 200  # quantiles of a curve
SHARES = Series(name="with sharing", mark=Mark.BAR)
UNSHARED = Series(name="without sharing", mark=Mark.BAR, colour=Colour.GREY)


def completion_figures(lines: Sequence[Line], runs: Sequence[ReplayResult]) -> list[Figure]:
    """Mean and distribution of completion times, what sharing changes, and the devices of the busiest world."""
    recorded = [run for run in runs if run.task.is_recorded and run.load < 1]
    best = min(
        (line for line in lines if line.against), key=lambda line: line.score.mean_completion_s, default=lines[0]
    )
    world = max(recorded, key=lambda run: run.load).world
    names = [name for name in (best.against, best.policy) if name]
    means = [(line.policy, bool(line.against), Estimate(line.score.mean_completion_s)) for line in lines]
    changes = [(line.policy, line.change) for line in lines if line.change is not None]
    return [
        _bars("Mean completion time, trace as recorded", "mean completion time (h)", hours(), means),
        *_changes(
            "What sharing changes",
            "change of the mean completion time by sharing (%), left is better",
            percent(1, sign=True),
            changes,
        ),
        _curves(recorded),
        _devices(names, recorded, world, f"Devices of {world}, the busiest stable world"),
    ]


def deadline_figures(lines: Sequence[Line], runs: Sequence[ReplayResult]) -> list[Figure]:
    """Deadlines met, more or fewer than by the baseline, and the devices of the world with the highest load."""
    recorded = [run for run in runs if run.task.is_recorded]
    world = max(recorded, key=lambda run: run.load).world
    names = [name for name in (lines[0].deadlines_against, lines[0].policy) if name]
    met = [(line, line.satisfaction) for line in lines if line.satisfaction is not None]
    population = f", {CONFIDENCE:.0%} interval of the {met[0][1].interval.population}" if met else ""
    known = population if met and met[0][1].interval.is_known else ""
    against = (
        f"deadlines met more than by {DEADLINE_BASELINE.label}, with sharing than by {DEADLINE_BASELINE.label}-greedy "
        "(points), right is better"
    )
    return [
        _bars(
            f"Deadline satisfaction{known}",
            "deadlines met, of all submitted jobs that have one (%)",
            percent(1),
            [(line.policy, bool(line.scheduler.sharing), _estimate(share)) for line, share in met],
        ),
        *_changes(
            "Deadline satisfaction against the baseline",
            against,
            fixed(1, quantity="fraction", scale=100, sign=True),
            [(line.policy, line.satisfaction_change) for line in lines if line.satisfaction_change is not None],
        ),
        _devices(names, recorded, world, f"Devices of {world}, the world with the highest load"),
    ]


def _estimate(mean: UncertainMean) -> Estimate:
    return Estimate(mean.mean, mean.interval.low, mean.interval.high)


def _bars(title: str, axis: str, form: NumberFormat, values: Sequence[tuple[str, bool, Estimate]]) -> RowPlot:
    """Return one bar for each (policy, whether it shares, value). Bars of policies that do not share are grey."""
    return RowPlot(
        title=title,
        axis=Axis(title=axis, form=form),
        series=(SHARES, UNSHARED) if any(shares for _, shares, _ in values) else (UNSHARED,),
        rows=tuple(
            PlotRow(label=policy, values=((value,), ()) if shares else ((), (value,)))
            for policy, shares, value in values
        )
        if any(shares for _, shares, _ in values)
        else tuple(PlotRow(label=policy, values=((value,),)) for policy, _, value in values),
    )


def _changes(title: str, axis: str, form: NumberFormat, changes: Sequence[tuple[str, UncertainMean]]) -> list[Figure]:
    """One point and interval for each policy; no figure where nothing was compared."""
    if not changes:
        return []
    interval = changes[0][1].interval
    known = f", {CONFIDENCE:.0%} interval of the {interval.population}" if interval.is_known else ""
    rows = tuple(PlotRow(label=policy, values=((_estimate(change),),)) for policy, change in changes)
    return [
        RowPlot(title=f"{title}{known}", axis=Axis(title=axis, form=form), series=(Series(name="change"),), rows=rows)
    ]


def _curves(runs: Sequence[ReplayResult]) -> LinePlot:
    """Share of jobs that have ended within a time after their arrival, of the traces as recorded."""
    policies = list(dict.fromkeys(run.policy for run in runs))[-MAX_CURVES:]
    shares = np.linspace(0.0, 1.0, CURVE_POINTS + 1)[1:]
    curves = []
    for policy in policies:
        times_s = [run.replayed.completion_s for run in runs if run.policy == policy and run.replayed is not None]
        quantiles_s = np.maximum(np.quantile(np.concatenate(times_s), shares), 1.0)
        curves.append(tuple(Point(float(x), float(y)) for x, y in zip(quantiles_s, shares, strict=True)))
    return LinePlot(
        title="Jobs over within a time of their arrival, trace as recorded",
        x=Axis(title="completion time (h, log scale)", form=hours(4), is_log=True),
        y=Axis(title="share of jobs (%)", form=percent(), high=1.0),
        series=tuple(
            Series(name=policy, mark=Mark.STEP, colour=colour) for policy, colour in zip(policies, Colour, strict=False)
        ),
        panels=(Panel(points=tuple(curves)),),
    )


def _devices(names: Sequence[str], recorded: Sequence[ReplayResult], world: str, title: str) -> LinePlot:
    """Devices in use and shared over time, one panel a policy; means of an hour, or of 1/400 of a longer trace."""
    by_name = {run.policy: run.replayed for run in recorded if run.world == world}
    replays = [(name, replayed) for name in names if (replayed := by_name[name]) is not None]
    last_s = max(float(replayed.at_s[-1]) for _, replayed in replays)
    edges_s = np.arange(0.0, last_s, max(HOUR_S, last_s / 400))
    return LinePlot(
        title=title,
        x=Axis(title="days since the first arrival", form=PLAIN),
        y=Axis(title="devices (%)", form=percent(), low=0.0, high=1.0),
        series=(
            Series(name="in use", mark=Mark.AREA),
            Series(name="of these shared by two", mark=Mark.AREA, colour=Colour.ORANGE),
        ),
        panels=tuple(
            Panel(title=policy, points=tuple(_means(replayed, kind, edges_s) for kind in ("busy", "shared")))
            for policy, replayed in replays
        ),
    )


def _means(replayed: Replayed, kind: str, edges_s: np.ndarray) -> tuple[Point, ...]:
    """Share of devices between consecutive edges: means of a step function that takes its values from `at_s` on."""
    values = getattr(replayed, kind) / len(replayed.world.devices)
    integral = np.concatenate([[0.0], np.cumsum(np.diff(replayed.at_s) * values[:-1])])
    means = np.diff(np.interp(edges_s, replayed.at_s, integral)) / np.diff(edges_s)
    days = edges_s[:-1] / (24 * HOUR_S)
    return tuple(Point(float(day), float(share)) for day, share in zip(days, means, strict=True))
