"""The placement problem as arrays: which starts are possible, what each takes, and what it costs at each level.

k job classes of interchangeable jobs, t device classes of interchangeable empty devices, r classes of residents with a
free seat. Every job waits, starts alone or with another pending job on an empty device, or joins a resident. Jobs on
several devices (gangs) form one block a size: only jobs of one size can share, all blocks share the empty devices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The jobs of one size, the seats beside residents of that size, and the starts that rules allow."""

    size: int  # devices that one job takes
    demand: Ints  # int64[k]: jobs of each class
    seats: Ints  # int64[r]: free seats of each resident class
    wait_allowed: Bools  # bool[k]
    solo_allowed: Bools  # bool[t, k]
    pair_allowed: Bools  # bool[t, k, k], symmetric; the diagonal is about two jobs of one class
    seat_allowed: Bools  # bool[k, r]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """What may be placed where. Waiting is always possible."""

    blocks: tuple[Block, ...]
    capacity: Ints  # int64[t]: empty devices of each class
    max_devices: int  # empty devices that may be taken in all

    @property
    def n_jobs(self) -> int:
        """Jobs of all classes and sizes."""
        return sum(int(block.demand.sum()) for block in self.blocks)

    def row_offsets(self) -> tuple[list[int], list[int], int, int]:
        """First row of each block's jobs, first row of each block's seats, that of the capacities, and rows in all.

        Rows: the job classes of all blocks, the device classes, the device limit, the resident classes of all blocks.
        """
        jobs = np.cumsum([0, *(len(block.demand) for block in self.blocks)])
        capacity = int(jobs[-1])
        seats = capacity + len(self.capacity) + 1 + np.cumsum([0, *(len(block.seats) for block in self.blocks)])
        return jobs[:-1].tolist(), seats[:-1].tolist(), capacity, int(seats[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """What the starts of one block cost at one level; a cost of a forbidden start is never read."""

    wait: Floats  # float64[k]
    solo: Floats  # float64[t, k]
    pair: Floats  # float64[t, k, k], symmetric
    seat: Floats  # float64[k, r]: what a job adds beside a resident

    @classmethod
    def of_waiting(cls, block: Block, wait: Floats) -> "BlockCosts":
        """Only waiting costs."""
        zero = np.zeros(())
        return cls(
            wait=wait,
            solo=np.broadcast_to(zero, block.solo_allowed.shape),
            pair=np.broadcast_to(zero, block.pair_allowed.shape),
            seat=np.broadcast_to(zero, block.seat_allowed.shape),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One sum to minimise, once every level before it is as small as it can be."""

    costs: tuple[BlockCosts, ...]  # of each block
    floor: float = -np.inf  # no placement has a smaller sum: 0 where no cost is negative
    is_waiting: bool = False  # whether only waiting costs anything


class ColumnKind(IntEnum):
    """What one column of the master problem stands for."""

    WAIT = 0
    SOLO = 1
    PAIR = 2
    SEAT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """c columns, int64[c] each: the jobs i and j (i where there is one job) of a block, on a resource.

    The resource is a device class, or for a seat a resident class of the block; 0 for waiting.
    """

    block: Ints
    kind: Ints
    resource: Ints
    i: Ints
    j: Ints

    @classmethod
    def of(cls, block: int, kind: ColumnKind, resource: Ints | int, i: Ints, j: Ints | None = None) -> "Columns":
        """Columns of one kind and block."""
        i = np.asarray(i, dtype=np.int64)
        fill = np.zeros(len(i), dtype=np.int64)
        return cls(
            block=fill + block,
            kind=fill + int(kind),
            resource=fill + np.asarray(resource, dtype=np.int64),
            i=i,
            j=i if j is None else np.asarray(j, dtype=np.int64),
        )

    @classmethod
    def concatenate(cls, parts: "list[Columns]") -> "Columns":
        """All columns of the parts."""
        names = ("block", "kind", "resource", "i", "j")
        empty = np.zeros(0, dtype=np.int64)
        return cls(**{name: np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in names})

    def __len__(self) -> int:
        return len(self.block)

    def take(self, index: Ints | Bools) -> "Columns":
        """Some of the columns."""
        return Columns(
            block=self.block[index],
            kind=self.kind[index],
            resource=self.resource[index],
            i=self.i[index],
            j=self.j[index],
        )

    def keys(self) -> Ints:
        """int64[c]: equal for equal columns only."""
        key = self.block
        for part, base in ((self.kind, 4), (self.resource, 1 << 17), (self.i, 1 << 17), (self.j, 1 << 17)):
            key = key * base + part
        return key

    def costs(self, level: Level) -> Floats:
        """float64[c]: what each column costs at a level."""
        return self.costs_of(level.costs)

    def costs_of(self, costs_of_blocks: Sequence[BlockCosts]) -> Floats:
        """float64[c]: what each column costs, from the costs of each block."""
        return self._cells(np.zeros(len(self)), [(c.wait, c.solo, c.pair, c.seat) for c in costs_of_blocks])

    def allowed(self, problem: PlacementProblem) -> Bools:
        """bool[c]: does the problem allow each column?"""
        tables = [(b.wait_allowed, b.solo_allowed, b.pair_allowed, b.seat_allowed) for b in problem.blocks]
        return self._cells(np.ones(len(self), dtype=bool), tables)

    def _cells(self, out: NDArray[Any], tables: Sequence[tuple[NDArray[Any], ...]]) -> NDArray[Any]:
        """`out` with each column's cell of its block's tables (wait, solo, pair, seat)."""
        for b, (wait, solo, pair, seat) in enumerate(tables):
            for kind, at in self._by_kind(b):
                resource, i, j = self.resource[at], self.i[at], self.j[at]
                if kind is ColumnKind.WAIT:
                    out[at] = wait[i]
                elif kind is ColumnKind.SOLO:
                    out[at] = solo[resource, i]
                elif kind is ColumnKind.PAIR:
                    out[at] = pair[resource, i, j]
                else:
                    out[at] = seat[i, resource]
        return out

    def _by_kind(self, b: int) -> Iterator[tuple[ColumnKind, Ints]]:
        """The places of the columns of one block, by kind."""
        for kind in ColumnKind:
            at = np.flatnonzero((self.block == b) & (self.kind == kind))
            if len(at):
                yield kind, at


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How often each column is chosen; the columns of one class are shared out to its jobs later."""

    columns: Columns
    count: Ints  # int64[c], at least 1 each

    def value(self, level: Level) -> float:
        """The sum of the level."""
        return float(self.columns.costs(level) @ self.count)

    def merged(self) -> "Placement":
        """The same placement with every column once."""
        _, first, place = np.unique(self.columns.keys(), return_index=True, return_inverse=True)
        count = np.zeros(len(first), dtype=np.int64)
        np.add.at(count, place, self.count)
        return Placement(columns=self.columns.take(first), count=count)
