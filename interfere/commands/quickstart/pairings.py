"""Every way to pair n jobs, scored by a table of slowdowns: what a pairing is worth beside chance and greed."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from interfere.records import PairMeasurement

Pairing = tuple[tuple[str, str], ...]
Table = Mapping[tuple[str, str], float]
"""(victim, neighbour) -> slowdown."""

PAST = 1.5  # a victim past this has lost a third of its speed
Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What pairings cost their jobs; for several pairings, the mean of each figure."""

    mean_slowdown: float
    worst_victim: float
    past_cap: float  # pairs in which a job is slowed past `PAST`


def all_pairings(names: Sequence[str]) -> Iterator[Pairing]:
    """Every partition of an even number of names into pairs: (n - 1)!! of them."""
    if not names:
        yield ()
        return
    first, rest = names[0], list(names[1:])
    for k, other in enumerate(rest):
        for tail in all_pairings(rest[:k] + rest[k + 1 :]):
            yield ((first, other), *tail)


def worth(pairing: Pairing, table: Table) -> Worth:
    """Figures of one pairing; NaN where the table lacks one of its pairs."""
    both = [(table.get((a, b), math.nan), table.get((b, a), math.nan)) for a, b in pairing]
    victims = [s for pair in both for s in pair]
    return Worth(
        mean_slowdown=math.fsum(victims) / len(victims),
        worst_victim=math.nan if any(map(math.isnan, victims)) else max(victims),
        past_cap=math.nan if any(map(math.isnan, victims)) else float(sum(max(pair) > PAST for pair in both)),
    )


def mean_worth(pairings: Sequence[Pairing], table: Table) -> Worth:
    """Mean of each figure over pairings."""
    each = [worth(pairing, table) for pairing in pairings]
    return Worth(
        mean_slowdown=math.fsum(w.mean_slowdown for w in each) / len(each),
        worst_victim=math.fsum(w.worst_victim for w in each) / len(each),
        past_cap=math.fsum(w.past_cap for w in each) / len(each),
    )


def by(table: Table) -> Callable[[Pairing], float]:
    """Key that orders pairings by mean slowdown."""
    return lambda pairing: worth(pairing, table).mean_slowdown


def greedy_pairing(names: Sequence[str], table: Table) -> Pairing:
    """Each job in its turn takes the partner that is cheapest for the two, of those left."""
    left, pairs = list(names), []
    while left:
        first = left.pop(0)
        partner = min(left, key=lambda other: table[first, other] + table[other, first])
        left.remove(partner)
        pairs.append((first, partner))
    return tuple(pairs)


def slowdowns(rows: Sequence[PairMeasurement]) -> dict[tuple[str, str], float]:
    """Measured slowdown of every ordered pair that has one."""
    return {(row.victim, row.neighbour): row.slowdown for row in rows if not math.isnan(row.slowdown)}


def block_noise(rows: Sequence[PairMeasurement]) -> float:
    """Standard deviation of log slowdown between blocks of the same pair, pooled over all rows."""
    squares, freedom = [], 0
    for row in rows:
        logs = [math.log(value) for value in row.passes]
        if len(logs) > 1 and not math.isnan(row.slowdown):
            centre = math.fsum(logs) / len(logs)
            squares += [(value - centre) ** 2 for value in logs]
            freedom += len(logs) - 1
    return math.sqrt(math.fsum(squares) / freedom) if freedom else math.nan


def mean_and_error(rows: Sequence[PairMeasurement], noise: float) -> tuple[float, float]:
    """Mean slowdown of rows and its standard error: each row is known to noise / √blocks of its value."""
    values = [row.slowdown for row in rows]
    spread = math.fsum((row.slowdown * noise) ** 2 / max(1, len(row.passes)) for row in rows)
    return math.fsum(values) / len(values), math.sqrt(spread) / len(values)
