"""What a table owes to its victims and neighbours alone, and how far each row lies from that.

`log slowdown[i, j] = mean + victim[i] + neighbour[j] + rest`, least squares over the rows that were measured. Law: the
effects of each side sum to zero over its names, so `exp(mean + victim[i])` is what i suffers beside an average
neighbour, also where rows are missing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.records import NAN, PairMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveFit:
    """One fit over n rows, all in log slowdown. No rows: NaN and empty."""

    r2: float  # NaN where nothing varies
    mean: float
    victims: tuple[tuple[str, float], ...]  # effect of each name as a victim, by name
    neighbours: tuple[tuple[str, float], ...]  # and as a neighbour
    residuals: tuple[float, ...]  # [n], in the order of the rows


def fit_additive(victims: Sequence[str], neighbours: Sequence[str], log_slowdown: Sequence[float]) -> AdditiveFit:
    """The fit of n rows. Where rows leave effects undetermined, the smallest ones that fit."""
    y = np.asarray(log_slowdown, dtype=np.float64)
    if not len(y):
        return AdditiveFit(r2=NAN, mean=NAN, victims=(), neighbours=(), residuals=())
    rows, columns, sides = np.arange(len(y)), [np.ones((len(y), 1))], []
    for names in (victims, neighbours):
        side, index = np.unique(np.asarray(names), return_inverse=True)
        dummies = np.zeros((len(y), len(side)))
        dummies[rows, index] = 1.0
        columns.append(dummies)
        sides.append(side)
    design = np.hstack(columns)
    solution = np.linalg.lstsq(design, y, rcond=None)[0]
    residuals = y - design @ solution
    split = 1 + len(sides[0])
    suffered, caused = solution[1:split], solution[split:]
    return AdditiveFit(
        r2=1.0 - float((residuals**2).sum() / ((y - y.mean()) ** 2).sum()) if np.ptp(y) else NAN,
        mean=float(solution[0] + suffered.mean() + caused.mean()),
        victims=_named(sides[0], suffered),
        neighbours=_named(sides[1], caused),
        residuals=tuple(residuals.tolist()),
    )


def _named(names: NDArray[np.str_], effects: NDArray[np.floating[Any]]) -> tuple[tuple[str, float], ...]:
    return tuple(zip(names.tolist(), (effects - effects.mean()).tolist(), strict=True))


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
