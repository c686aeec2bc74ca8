"""What a table owes to its victims and neighbours alone, and how far each row lies from that.

`log slowdown[i, j] = mean + victim[i] + neighbour[j] + rest`, least squares over the rows that were measured. Rows that
share a victim or a neighbour, directly or through others, form a group; between groups no row says how their jobs
compare. Law: within a group the effects of each side sum to zero over its names, so `mean + victim[i]` is what i
suffers beside an average neighbour of its group, also where rows are missing.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.data.tables import Table
from interfere.records import NAN, PairMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One job on one side of its pairs."""

    name: str
    log_slowdown: float  # beside an average job of the other side, in its group
    group: int  # 0 has the most rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveFit:
    """One fit over n rows. No rows: NaN and empty."""

    r2: float  # NaN where nothing varies
    suffers: tuple[Effect, ...]  # each victim, by name
    causes: tuple[Effect, ...]  # each neighbour, by name
    residuals: tuple[float, ...]  # log slowdown [n], in the order of the rows

    @property
    def groups(self) -> int:
        """Sets of jobs that no row connects."""
        return len({effect.group for effect in self.suffers})


def fit_additive(victims: Sequence[str], neighbours: Sequence[str], log_slowdown: Sequence[float]) -> AdditiveFit:
    """The fit of n rows, each group by itself."""
    y = np.asarray(log_slowdown, dtype=np.float64)
    groups = np.asarray(_groups(victims, neighbours), dtype=np.int64)
    residuals = np.zeros(len(y))
    suffers: list[Effect] = []
    causes: list[Effect] = []
    for group in range(int(groups.max()) + 1 if len(y) else 0):
        rows = np.flatnonzero(groups == group)
        columns, sides = [np.ones((len(rows), 1))], []
        for names in (victims, neighbours):
            side, index = np.unique(np.asarray(names)[rows], return_inverse=True)
            dummies = np.zeros((len(rows), len(side)))
            dummies[np.arange(len(rows)), index] = 1.0
            columns.append(dummies)
            sides.append(side.tolist())
        design = np.hstack(columns)
        solution = np.linalg.lstsq(design, y[rows], rcond=None)[0]
        residuals[rows] = y[rows] - design @ solution
        split = 1 + len(sides[0])
        first, second = solution[1:split], solution[split:]
        for effects, names, own, other in ((suffers, sides[0], first, second), (causes, sides[1], second, first)):
            levels = (solution[0] + other.mean() + own).tolist()
            effects += [Effect(name=n, log_slowdown=v, group=group) for n, v in zip(names, levels, strict=True)]
    varies = len(y) > 0 and bool(np.ptp(y))
    return AdditiveFit(
        r2=1.0 - float((residuals**2).sum() / ((y - y.mean()) ** 2).sum()) if varies else NAN,
        suffers=tuple(sorted(suffers, key=lambda effect: effect.name)),
        causes=tuple(sorted(causes, key=lambda effect: effect.name)),
        residuals=tuple(residuals.tolist()),
    )


def _groups(victims: Sequence[str], neighbours: Sequence[str]) -> list[int]:
    """Group of each row: the largest is 0, equal ones by their first victim's name."""
    parent: dict[tuple[bool, str], tuple[bool, str]] = {}

    def root(node: tuple[bool, str]) -> tuple[bool, str]:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for victim, neighbour in zip(victims, neighbours, strict=True):
        one, other = sorted((root((False, victim)), root((True, neighbour))))
        parent[other] = one
    roots = [root((False, victim)) for victim in victims]
    rank = {
        found: k for k, (found, _) in enumerate(sorted(Counter(roots).items(), key=lambda item: (-item[1], item[0])))
    }
    return [rank[found] for found in roots]


def fit_of(table: Table) -> AdditiveFit:
    """The fit of a table's ok rows, in their order."""
    ok = table.ok_pairs
    return fit_additive([p.victim for p in ok], [p.neighbour for p in ok], [math.log(p.slowdown) for p in ok])


def replicate_sd(pairs: Sequence[PairMeasurement]) -> float:
    """Pooled standard deviation of the log slowdown of one pass within its row; NaN where no row has two.

    Both sides of a self pair are replicates of one another: often the only ones of a published table.
    """
    squares, freedom = 0.0, 0
    for pair in pairs:
        logs = np.log(pair.passes)
        if len(logs) >= 2:
            squares += float(((logs - logs.mean()) ** 2).sum())
            freedom += len(logs) - 1
    return math.sqrt(squares / freedom) if freedom else NAN
