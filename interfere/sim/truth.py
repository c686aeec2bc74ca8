"""What really happens when two jobs share: slowdowns of a measured table, and what is done where it is silent.

A speed above that alone comes from a wrong time alone (21 % of Lucid's): slowdowns are clipped at 1. A gang beside a
gang slows as one device of each does: no table says more. A pair without a row of either side must not share.
Law: what was clipped, filled and left out is counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.errors import InvalidInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthTable:
    """Of n workloads on one device type in one mode."""

    device_type: str
    mode: str
    workloads: tuple[str, ...]
    table: Floats  # float64[n, n] ≥ 1: victim i beside neighbour j; NaN where the two must not share
    clipped: int = 0  # ordered pairs faster than alone
    filled: int = 0  # ordered pairs that a model stands in for, where somebody filled them
    silent: int = 0  # ordered pairs that must not share for want of a row, of either side

    @property
    def place(self) -> dict[str, int]:
        """Of each workload."""
        return {name: k for k, name in enumerate(self.workloads)}

    def note(self) -> str:
        """What was done to the table, in one line."""
        n = len(self.workloads) ** 2
        return (
            f"truth: {len(self.workloads)} workloads on {self.device_type}, {self.mode}; of {n} ordered pairs "
            f"{self.clipped} clipped at 1, {self.filled} filled by a model, {self.silent} without truth "
            "never share"
        )


def truth_of(table: Table, *, device_type: str = "", mode: str = "") -> TruthTable:
    """The truth in a table. Names of its device type and mode may be left out where it has one. Raises
    InvalidInputError where it has none or several."""
    rows = [row for row in table.pairs if not device_type or row.device_type == device_type]
    rows = [row for row in rows if not mode or row.mode == mode]
    found = sorted({(row.device_type, row.mode) for row in rows})
    if len(found) != 1:
        has = sorted({f"{row.device_type}, {row.mode}" for row in table.pairs})
        raise InvalidInputError(
            f"table {table.name}: one device type and mode is the truth of a replay",
            value="; ".join(f"{kind}, {how}" for kind, how in found) or f"{device_type} {mode}: no row",
            remedy=f"name one of: {'; '.join(has)}",
        )
    (device_type, mode) = found[0]
    names = sorted({name for row in rows for name in (row.victim, row.neighbour)})
    at = {name: k for k, name in enumerate(names)}
    slowdown = np.full((len(names), len(names)), np.nan)
    misfit = np.zeros_like(slowdown, dtype=bool)
    for row in rows:
        slowdown[at[row.victim], at[row.neighbour]] = row.slowdown
        misfit[at[row.victim], at[row.neighbour]] |= not row.feasible
    misfit |= misfit.T
    slowdown[misfit] = np.nan
    clipped = int((slowdown < 1).sum())
    slowdown = np.where(slowdown < 1, 1.0, slowdown)
    silent = np.isnan(slowdown + slowdown.T) & ~misfit
    slowdown[silent] = np.nan
    return TruthTable(
        device_type=device_type,
        mode=mode,
        workloads=tuple(names),
        table=slowdown,
        clipped=clipped,
        silent=int(silent.sum()),
    )


class TableTruth:
    """Answers the cluster from a truth table, or from several of different device types."""

    def __init__(self, tables: Iterable[TruthTable]) -> None:
        self._known = {
            one.device_type: {
                (victim, neighbour): float(one.table[i, j])
                for victim, i in one.place.items()
                for neighbour, j in one.place.items()
            }
            for one in tables
        }

    def slowdown(self, victim: str, neighbour: str, device_type: str) -> float:
        """NaN where nothing is known."""
        return self._known.get(device_type, {}).get((victim, neighbour), np.nan)
