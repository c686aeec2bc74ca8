"""Laws of `forced_pairs`: its pairs are in every partition, and it refuses none that exists."""

import numpy as np
import pytest

from interfere.matching.forced_pairs import forced_pairs
from tests.matching.test_exact import partitions


def graph(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    i, j = np.nonzero(np.triu(rng.random((n, n)) < rng.choice([0.2, 0.35, 0.5]), 1))
    return i, j, rng.random(n) < rng.choice([0.6, 1.0])


def allowed(i: np.ndarray, j: np.ndarray, must: np.ndarray) -> list[set[tuple[int, ...]]]:
    edges = set(zip(i.tolist(), j.tolist(), strict=True))
    return [
        {g for g in groups if len(g) == 2}
        for groups in partitions(list(range(len(must))))
        if all(g in edges if len(g) == 2 else not must[g[0]] for g in groups)
    ]


def test_forced_pairs_are_in_every_partition_and_open_edges_hold_the_rest() -> None:
    refused = chosen = 0
    for seed in range(600):
        i, j, must = graph(seed)
        every = allowed(i, j, must)
        found = forced_pairs(i, j, must)
        if found is None:
            refused += 1
            assert every == [], seed
            continue
        pairs = {(int(min(a, b)), int(max(a, b))) for a, b in zip(*found[:2], strict=True)}
        chosen += len(pairs)
        remaining = set(zip(i[found[2]].tolist(), j[found[2]].tolist(), strict=True))
        for groups in every:
            assert pairs <= groups, seed
            assert groups - pairs <= remaining, seed
    assert refused > 100
    assert chosen > 100


@pytest.mark.parametrize(
    ("edges", "n"),
    [([(0, 1), (1, 2), (0, 2)], 3), ([(0, 2), (1, 2)], 3), ([(0, 1)], 3)],
    ids=["three in a ring", "two want the same one", "one has nobody"],
)
def test_impossible_problems_are_found_without_a_search(edges: list[tuple[int, int]], n: int) -> None:
    i, j = np.array(edges).T
    assert forced_pairs(i, j, np.ones(n, dtype=bool)) is None


def test_a_chain_is_forced_from_its_end() -> None:
    i, j = np.arange(5), np.arange(1, 6)
    one, other, remaining = forced_pairs(i, j, np.ones(6, dtype=bool))
    assert sorted(zip(one.tolist(), other.tolist(), strict=True)) == [(0, 1), (2, 3), (4, 5)]
    assert not remaining.any()
