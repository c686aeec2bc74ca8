"""The additive model of a table, fitted by least squares, and the noise of single passes.

The additive model is `log slowdown[i, j] = mean + victim[i] + neighbour[j] + residual[i, j]`. Rows that share a victim
or a neighbour, directly or through other rows, form a connected group; between groups no row says how their jobs
compare. Law: within a group the effects of each side sum to zero over its names, so `mean + victim[i]` is the log
slowdown of i beside an average neighbour of its group, also where rows are missing.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.data.tables import Table
from interfere.records import NAN, PairMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEffect:
    """The additive effect of a job on the slowdown, as the victim or as the neighbour of a pair."""

    name: str
    log_slowdown: float  # beside an average job of the other side, in its group
    group: int  # 0 is the group with the most rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveFit:
    """The additive model fitted to n rows. Without rows, numbers are NaN and tuples empty."""

    r2: float  # NaN where nothing varies
    victim_effects: tuple[JobEffect, ...]  # by name
    neighbour_effects: tuple[JobEffect, ...]  # by name
    residuals: tuple[float, ...]  # of log slowdown [n], in the order of the rows

    @property
    def group_count(self) -> int:
        """The number of groups of jobs that no row connects."""
        return len({effect.group for effect in self.victim_effects})


def fit_additive(victims: Sequence[str], neighbours: Sequence[str], log_slowdown: Sequence[float]) -> AdditiveFit:
    """Fit the additive model to n rows, each connected group by itself."""
    y = np.asarray(log_slowdown, dtype=np.float64)
    groups = np.asarray(_connected_groups(victims, neighbours), dtype=np.int64)
    residuals = np.zeros(len(y))
    victim_effects: list[JobEffect] = []
    neighbour_effects: list[JobEffect] = []
    for group in range(int(groups.max()) + 1 if len(y) else 0):
        # 1. Design matrix: a column of ones, then an indicator column for each victim and each neighbour.
        rows = np.flatnonzero(groups == group)
        columns, names_by_side = [np.ones((len(rows), 1))], []
        for row_names in (victims, neighbours):
            names, index = np.unique(np.asarray(row_names)[rows], return_inverse=True)
            indicators = np.zeros((len(rows), len(names)))
            indicators[np.arange(len(rows)), index] = 1.0
            columns.append(indicators)
            names_by_side.append(names.tolist())
        design = np.hstack(columns)
        # 2. Least squares of minimum norm, which makes the effects of each side sum to zero.
        solution = np.linalg.lstsq(design, y[rows], rcond=None)[0]
        residuals[rows] = y[rows] - design @ solution
        # 3. Each effect beside an average job of the other side.
        split = 1 + len(names_by_side[0])
        of_victims, of_neighbours = solution[1:split], solution[split:]
        for effects, names, own, other_side in (
            (victim_effects, names_by_side[0], of_victims, of_neighbours),
            (neighbour_effects, names_by_side[1], of_neighbours, of_victims),
        ):
            levels = (solution[0] + other_side.mean() + own).tolist()
            effects += [
                JobEffect(name=name, log_slowdown=level, group=group) for name, level in zip(names, levels, strict=True)
            ]
    varies = len(y) > 0 and bool(np.ptp(y))
    return AdditiveFit(
        r2=1.0 - float((residuals**2).sum() / ((y - y.mean()) ** 2).sum()) if varies else NAN,
        victim_effects=tuple(sorted(victim_effects, key=lambda effect: effect.name)),
        neighbour_effects=tuple(sorted(neighbour_effects, key=lambda effect: effect.name)),
        residuals=tuple(residuals.tolist()),
    )


def _connected_groups(victims: Sequence[str], neighbours: Sequence[str]) -> list[int]:
    """Return the number of each row's connected group. Group 0 has the most rows; ties go by the first victim's
    name."""
    parent: dict[tuple[bool, str], tuple[bool, str]] = {}

    def root(node: tuple[bool, str]) -> tuple[bool, str]:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for victim, neighbour in zip(victims, neighbours, strict=True):
        first_root, second_root = sorted((root((False, victim)), root((True, neighbour))))
        parent[second_root] = first_root
    roots = [root((False, victim)) for victim in victims]
    by_size = sorted(Counter(roots).items(), key=lambda item: (-item[1], item[0]))
    group_of = {group_root: group for group, (group_root, _) in enumerate(by_size)}
    return [group_of[row_root] for row_root in roots]


def fit_table(table: Table) -> AdditiveFit:
    """Fit the additive model to the valid pairs of a table. The residuals are in the order of `table.ok_pairs`."""
    pairs = table.ok_pairs
    return fit_additive(
        [pair.victim for pair in pairs],
        [pair.neighbour for pair in pairs],
        [math.log(pair.slowdown) for pair in pairs],
    )


def replicate_sd(pairs: Sequence[PairMeasurement]) -> float:
    """Return the standard deviation of the log slowdown of single passes, pooled within rows; NaN where no row has two
    passes.

    The two sides of a self pair are replicates of each other: often the only ones of a published table.
    """
    squares, degrees_of_freedom = 0.0, 0
    for pair in pairs:
        logs = np.log(pair.passes)
        if len(logs) >= 2:
            squares += float(((logs - logs.mean()) ** 2).sum())
            degrees_of_freedom += len(logs) - 1
    return math.sqrt(squares / degrees_of_freedom) if degrees_of_freedom else NAN
