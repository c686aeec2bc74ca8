"""Pairings and their scores, by hand."""

import pytest

from interfere.commands.quickstart.pairings import (
    Evidence,
    Knowledge,
    Slowdown,
    all_pairings,
    all_pairs,
    comparison_row,
    directions,
    distinct_pairs,
    greedy_pairing,
)

NAMES = ("a", "b", "c", "d")
TABLE = {(v, n): 1.0 + 0.1 * i + 0.2 * j for i, v in enumerate(NAMES) for j, n in enumerate(NAMES) if v != n}


@pytest.mark.parametrize(("n", "count"), [(2, 1), (4, 3), (6, 15), (8, 105)])
def test_there_are_odd_factorial_many_pairings(n: int, count: int) -> None:
    every = list(all_pairings([str(k) for k in range(n)]))
    assert len({frozenset(map(frozenset, pairing)) for pairing in every}) == len(every) == count
    assert all(sorted(name for pair in pairing for name in pair) == [str(k) for k in range(n)] for pairing in every)


def test_the_score_of_a_pairing_by_hand() -> None:
    measured = {pair: Slowdown(value, 0.01) for pair, value in TABLE.items()}
    knowledge = Knowledge(predicted=measured, first=measured, again={})
    found = comparison_row("", [(("a", "b"), ("c", "d"))], knowledge, Evidence.FIRST).measured  # a|b 1.2, b|a 1.1, ...
    assert found.mean_slowdown.value == pytest.approx(1.45)
    assert (found.worst_victim, found.past_cap) == (pytest.approx(1.8), 1.0)


def test_mean_over_all_pairings_is_the_mean_over_all_pairs() -> None:
    means = [sum(TABLE[pair] for pair in directions(pairing)) / 4 for pairing in all_pairings(NAMES)]
    every = [TABLE[pair] for pair in directions(all_pairs(NAMES))]
    assert sum(means) / len(means) == pytest.approx(sum(every) / len(every))


def test_greedy_takes_the_cheapest_partner_in_turn() -> None:
    costs = {(v, n): 2.0 for v in NAMES for n in NAMES} | {("a", "c"): 1.0, ("c", "a"): 1.0}
    assert greedy_pairing(NAMES, costs) == (("a", "c"), ("b", "d"))


def test_a_pair_of_several_pairings_is_run_once() -> None:
    assert distinct_pairs((("a", "b"), ("c", "d")), (("b", "a"), ("c", "d"))) == [("b", "a"), ("c", "d")]
