"""An independent check of a placement and of the bounds that its prices prove, level by level.

It shares no code with the search: costs, feasibility and bounds are computed again, start by start, from the problem
and the prices. A bound that rests on an integer program is not proved by prices; the check says how far these reach.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.matching.master.lexicographic import LevelCertificate
from interfere.matching.master.problem import Block, BlockCosts, ColumnKind, Level, Placement, PlacementProblem
from interfere.matching.master.tolerance import LEVEL_TOLERANCE

EQUAL = 1e-9  # relative: sums of the same numbers in another order
REACH = 1e-9  # of the largest price: starts of a reduced cost up to this beyond the gap count as possible


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelsVerification:
    """Findings about a placement. `problems` is empty when everything that was claimed is true."""

    values: tuple[float, ...]  # of each level, computed again
    bounds: tuple[float, ...]  # that the prices prove of each level
    problems: tuple[str, ...]


def verify_levels(
    problem: PlacementProblem, levels: Sequence[Level], placement: Placement, certificates: Sequence[LevelCertificate]
) -> LevelsVerification:
    """Check that a placement is allowed, what each level comes to, and which bounds the prices prove."""
    problems = list(_broken_limits(problem, placement))
    values = tuple(_value(level.costs, placement) for level in levels)
    bounds = []
    open_starts = set(_starts(problem))
    used_up = _UsedUp(problem)
    for level, value, certificate in zip(levels, values, certificates, strict=True):
        slack = EQUAL * max(1e-300, abs(value))
        if abs(value - certificate.value) > slack:
            problems.append(f"a level comes to {value:.12g}, not {certificate.value:.12g}")
        bound, reduced = _proved_bound(problem, level, levels, certificate, open_starts)
        bounds.append(max(bound, level.floor))
        if certificate.linear_bound > bound + slack:
            problems.append(f"the prices prove {bound:.12g} of a level, {certificate.linear_bound:.12g} is claimed")
        if bound > value + slack:
            problems.append(f"the prices prove {bound:.12g}, above the value {value:.12g}: they are wrong")
        # The levels below are about placements that are as good at this one.
        largest = max((abs(x) for x in certificate.all_prices()), default=0.0)
        negligible = REACH * max(largest, 1e-300)
        problems += used_up.unjustified(certificate, negligible)
        if value - bound <= LEVEL_TOLERANCE * abs(value):
            used_up.add(certificate, negligible)
        gap = max(0.0, value - bound) + negligible
        open_starts = {start for start in open_starts if reduced[start] <= gap}
    return LevelsVerification(values=values, bounds=tuple(bounds), problems=tuple(problems))


class _UsedUp:
    """The devices and seats that every placement uses up which is as good at the levels so far."""

    def __init__(self, problem: PlacementProblem) -> None:
        self._rows = np.zeros(len(problem.capacity) + 1 + sum(len(block.seats) for block in problem.blocks), dtype=bool)

    def unjustified(self, certificate: LevelCertificate, negligible: float) -> list[str]:
        """What is wrong with the signs of the prices: only what is used up in any case may have a positive one."""
        positive = _device_prices(certificate) > negligible
        return ["a price is positive without need"] if (positive & ~self._rows[: len(positive)]).any() else []

    def add(self, certificate: LevelCertificate, negligible: float) -> None:
        """A level without gap is as good only where everything that has a price is used up."""
        prices = _device_prices(certificate)
        self._rows[: len(prices)] |= np.abs(prices) > negligible


def _device_prices(certificate: LevelCertificate) -> np.ndarray:
    prices = certificate.prices
    if prices is None:
        return np.zeros(0)
    return np.concatenate([prices.capacity, [prices.max_devices], *prices.seats])


Start = tuple[int, ColumnKind, int, int, int]  # block, kind, resource, i, j


def _starts(problem: PlacementProblem) -> Iterator[Start]:
    """Every start that is allowed."""
    for b, block in enumerate(problem.blocks):
        for i in range(len(block.demand)):
            if block.wait_allowed[i]:
                yield b, ColumnKind.WAIT, 0, i, i
            for r in range(len(block.seats)):
                if block.seat_allowed[i, r]:
                    yield b, ColumnKind.SEAT, r, i, i
            for t in range(len(problem.capacity)):
                if block.solo_allowed[t, i]:
                    yield b, ColumnKind.SOLO, t, i, i
                for j in range(i, len(block.demand)):
                    if block.pair_allowed[t, i, j]:
                        yield b, ColumnKind.PAIR, t, i, j


def _cost(costs: Sequence[BlockCosts], start: Start) -> float:
    b, kind, resource, i, j = start
    if kind is ColumnKind.WAIT:
        return float(costs[b].wait[i])
    if kind is ColumnKind.SOLO:
        return float(costs[b].solo[resource, i])
    if kind is ColumnKind.PAIR:
        return float(costs[b].pair[resource, i, j])
    return float(costs[b].seat[i, resource])


def _chosen(placement: Placement) -> Iterator[tuple[Start, int]]:
    columns = placement.columns
    for k, count in enumerate(placement.count.tolist()):
        kind = ColumnKind(int(columns.kind[k]))
        yield (int(columns.block[k]), kind, int(columns.resource[k]), int(columns.i[k]), int(columns.j[k])), count


def _value(costs: Sequence[BlockCosts], placement: Placement) -> float:
    return sum(_cost(costs, start) * count for start, count in _chosen(placement))


def _broken_limits(problem: PlacementProblem, placement: Placement) -> Iterator[str]:
    """What the placement does that it may not."""
    placed = [np.zeros(len(block.demand), dtype=np.int64) for block in problem.blocks]
    seated = [np.zeros(len(block.seats), dtype=np.int64) for block in problem.blocks]
    taken = np.zeros(len(problem.capacity), dtype=np.int64)
    allowed = set(_starts(problem))
    for start, count in _chosen(placement):
        b, kind, resource, i, j = start
        if start not in allowed or count < 1:
            yield f"start {start} is not allowed"
        placed[b][i] += count
        if kind is ColumnKind.PAIR:
            placed[b][j] += count
        if kind is ColumnKind.SEAT:
            seated[b][resource] += count
        elif kind is not ColumnKind.WAIT:
            taken[resource] += count * problem.blocks[b].size
    for b, block in enumerate(problem.blocks):
        if (placed[b] != block.demand).any():
            yield f"jobs of size {block.size} are not placed exactly once"
        if (seated[b] > block.seats).any():
            yield f"more than the free seats of size {block.size} are taken"
    if (taken > problem.capacity).any() or taken.sum() > problem.max_devices:
        yield "more than the empty devices are taken"


def _proved_bound(
    problem: PlacementProblem,
    level: Level,
    levels: Sequence[Level],
    certificate: LevelCertificate,
    open_starts: set[Start],
) -> tuple[float, dict[Start, float]]:
    """The bound that the prices prove, or the floor without prices; the reduced cost of every open start."""
    prices = certificate.prices
    if prices is None:
        return level.floor, {start: _cost(level.costs, start) for start in open_starts}
    reduced: dict[Start, float] = {}
    worst = [np.zeros(len(block.demand)) for block in problem.blocks]
    for start in open_starts:
        b, kind, resource, i, j = start
        cost = _cost(level.costs, start)
        for k, price in zip(certificate.limited, prices.limits.tolist(), strict=True):
            cost -= price * _cost(levels[k].costs, start)
        cost -= prices.jobs[b][i] + (prices.jobs[b][j] if kind is ColumnKind.PAIR else 0.0)
        if kind is ColumnKind.SEAT:
            cost -= prices.seats[b][resource]
        elif kind is not ColumnKind.WAIT:
            cost -= problem.blocks[b].size * (prices.capacity[resource] + prices.max_devices)
        reduced[start] = float(cost)
        share = min(0.0, float(cost)) / (2 if kind is ColumnKind.PAIR else 1)
        for job in (i, j):
            worst[b][job] = min(worst[b][job], share)
    bound = float(problem.capacity @ prices.capacity) + problem.max_devices * prices.max_devices
    bound += sum(limit * price for limit, price in zip(certificate.limit_values, prices.limits.tolist(), strict=True))
    for b, block in enumerate(problem.blocks):
        bound += _block_value(block, prices.jobs[b], prices.seats[b], worst[b])
    return bound, reduced


def _block_value(block: Block, jobs: np.ndarray, seats: np.ndarray, worst: np.ndarray) -> float:
    return float(block.demand @ jobs) + float(block.seats @ seats) + float(block.demand @ worst)
