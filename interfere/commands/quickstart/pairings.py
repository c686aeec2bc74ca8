"""Every way to pair n jobs, and what each costs them by a table of slowdowns."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from interfere.records import PairMeasurement

Pairing = tuple[tuple[str, str], ...]
"""A partition of jobs into pairs, by name."""
Slowdowns = Mapping[tuple[str, str], float]
"""(victim, neighbour) → slowdown."""

SLOWDOWN_CAP = 1.5  # a victim above this has lost a third of its speed
Z95 = 1.96  # quantile of the normal distribution: 95 % lie within so many standard errors


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingScore:
    """What a pairing costs its jobs; for several pairings, the mean of each figure."""

    mean_slowdown: float
    worst_victim: float  # the largest slowdown
    past_cap: float  # number of pairs in which a job is slowed more than `SLOWDOWN_CAP`


def all_pairings(names: Sequence[str]) -> Iterator[Pairing]:
    """Yield every partition of an even number of names into pairs: (n - 1)!! of them."""
    if not names:
        yield ()
        return
    first, others = names[0], list(names[1:])
    for k, partner in enumerate(others):
        for further_pairs in all_pairings(others[:k] + others[k + 1 :]):
            yield ((first, partner), *further_pairs)


def score_pairing(pairing: Pairing, slowdowns: Slowdowns) -> PairingScore:
    """Return the figures of one pairing; NaN where a slowdown of one of its pairs is missing."""
    by_pair = [(slowdowns.get((a, b), math.nan), slowdowns.get((b, a), math.nan)) for a, b in pairing]
    victims = [slowdown for pair in by_pair for slowdown in pair]
    incomplete = any(map(math.isnan, victims))
    return PairingScore(
        mean_slowdown=math.fsum(victims) / len(victims),
        worst_victim=math.nan if incomplete else max(victims),
        past_cap=math.nan if incomplete else float(sum(max(pair) > SLOWDOWN_CAP for pair in by_pair)),
    )


def mean_score(pairings: Sequence[Pairing], slowdowns: Slowdowns) -> PairingScore:
    """Return the mean of each figure over pairings."""
    scores = [score_pairing(pairing, slowdowns) for pairing in pairings]
    return PairingScore(
        mean_slowdown=math.fsum(score.mean_slowdown for score in scores) / len(scores),
        worst_victim=math.fsum(score.worst_victim for score in scores) / len(scores),
        past_cap=math.fsum(score.past_cap for score in scores) / len(scores),
    )


def by_mean_slowdown(slowdowns: Slowdowns) -> Callable[[Pairing], float]:
    """Return the sort key that orders pairings by their mean slowdown."""
    return lambda pairing: score_pairing(pairing, slowdowns).mean_slowdown


def greedy_pairing(names: Sequence[str], slowdowns: Slowdowns) -> Pairing:
    """Give each job in turn, of the jobs without a partner, the one with the smallest sum of both slowdowns."""
    unpaired, pairs = list(names), []
    while unpaired:
        first = unpaired.pop(0)
        partner = min(unpaired, key=lambda job: slowdowns[first, job] + slowdowns[job, first])
        unpaired.remove(partner)
        pairs.append((first, partner))
    return tuple(pairs)


def measured_slowdowns(rows: Sequence[PairMeasurement]) -> dict[tuple[str, str], float]:
    """Return the measured slowdown of every ordered pair that has one."""
    return {(row.victim, row.neighbour): row.slowdown for row in rows if not math.isnan(row.slowdown)}


def block_noise(rows: Sequence[PairMeasurement]) -> float:
    """Return the standard deviation of log slowdown between blocks of the same pair, pooled over all rows."""
    squares, degrees_of_freedom = [], 0
    for row in rows:
        logs = [math.log(value) for value in row.passes]
        if len(logs) > 1 and not math.isnan(row.slowdown):
            centre = math.fsum(logs) / len(logs)
            squares += [(value - centre) ** 2 for value in logs]
            degrees_of_freedom += len(logs) - 1
    return math.sqrt(math.fsum(squares) / degrees_of_freedom) if degrees_of_freedom else math.nan


def mean_and_error(rows: Sequence[PairMeasurement], noise: float) -> tuple[float, float]:
    """Return the mean slowdown of rows and its standard error, where a row's is noise / √blocks of its value."""
    slowdowns = [row.slowdown for row in rows]
    variance = math.fsum((row.slowdown * noise) ** 2 / max(1, len(row.passes)) for row in rows)
    return math.fsum(slowdowns) / len(slowdowns), math.sqrt(variance) / len(slowdowns)
