"""Every way to pair n jobs, and which of them a run draws or a greedy scheduler takes."""

import random
from collections.abc import Iterator, Mapping, Sequence

Pairing = tuple[tuple[str, str], ...]
"""A partition of jobs into pairs, by name."""
Direction = tuple[str, str]
"""(victim, neighbour): one job, and the job beside it that slows it down."""

HELD_OUT_SHARE = 1 / 3  # of the pairs of different jobs


def all_pairings(names: Sequence[str]) -> Iterator[Pairing]:
    """Yield every partition of an even number of names into pairs: (n - 1)!! of them."""
    if not names:
        yield ()
        return
    first, others = names[0], list(names[1:])
    for k, partner in enumerate(others):
        for further_pairs in all_pairings(others[:k] + others[k + 1 :]):
            yield ((first, partner), *further_pairs)


def all_pairs(names: Sequence[str]) -> Pairing:
    """Return every pair of two different jobs. Each is in equally many pairings, so means over both are equal."""
    return tuple((a, b) for k, a in enumerate(names) for b in names[k + 1 :])


def directions(pairs: Sequence[tuple[str, str]]) -> list[Direction]:
    """Return both directions of every pair."""
    return [direction for a, b in pairs for direction in ((a, b), (b, a))]


def greedy_pairing(names: Sequence[str], slowdowns: Mapping[Direction, float]) -> Pairing:
    """Give each job in turn, of the jobs without a partner, the one with the smallest sum of both slowdowns."""
    unpaired, pairs = list(names), []
    while unpaired:
        first = unpaired.pop(0)
        partner = min(unpaired, key=lambda job: slowdowns[first, job] + slowdowns[job, first])
        unpaired.remove(partner)
        pairs.append((first, partner))
    return tuple(pairs)


def choose_held_out(names: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Draw a third of the unordered pairs of different jobs."""
    pairs = all_pairs(names)
    return sorted(random.Random(seed).sample(pairs, round(len(pairs) * HELD_OUT_SHARE)))  # noqa: S311 - no secret


def choose_random_pairing(names: Sequence[str], seed: int) -> Pairing:
    """Draw one of all pairings."""
    return random.Random(seed + 1).choice(list(all_pairings(names)))  # noqa: S311 - no secret


def distinct_pairs(*pairings: Pairing) -> list[tuple[str, str]]:
    """Return the pairs of several pairings, each once, whichever job is named first."""
    return list({frozenset(pair): pair for pairing in pairings for pair in pairing}.values())
