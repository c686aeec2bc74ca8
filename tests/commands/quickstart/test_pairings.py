"""Scores of pairings and their comparison, by hand."""

import math

import pytest

from interfere.commands.quickstart.comparison import DifferenceFromRandom, compare_pairings, difference_from_random
from interfere.commands.quickstart.pairings import (
    all_pairings,
    block_noise,
    greedy_pairing,
    mean_score,
    score_pairing,
)
from interfere.errors import UnfitError
from interfere.records import PairMeasurement, PairStatus

NAMES = ("a", "b", "c", "d")
TABLE = {(v, n): 1.0 + 0.1 * i + 0.2 * j for i, v in enumerate(NAMES) for j, n in enumerate(NAMES)}


def row(victim: str, neighbour: str, *passes: float, status: PairStatus = PairStatus.OK) -> PairMeasurement:
    value = math.exp(sum(map(math.log, passes)) / len(passes)) if status is PairStatus.OK else math.nan
    return PairMeasurement(
        victim=victim,
        neighbour=neighbour,
        device_type="cpu-core",
        mode="timeslice",
        slowdown=value,
        passes=passes,
        status=status,
        reason="" if status is PairStatus.OK else "stolen core",
    )


@pytest.mark.parametrize(("n", "count"), [(2, 1), (4, 3), (6, 15), (8, 105)])
def test_there_are_odd_factorial_many_pairings(n: int, count: int) -> None:
    every = list(all_pairings([str(k) for k in range(n)]))
    assert len({frozenset(map(frozenset, pairing)) for pairing in every}) == len(every) == count
    assert all(sorted(name for pair in pairing for name in pair) == [str(k) for k in range(n)] for pairing in every)


def test_the_score_of_a_pairing_by_hand() -> None:
    found = score_pairing((("a", "b"), ("c", "d")), TABLE)  # a|b 1.2, b|a 1.1, c|d 1.8, d|c 1.7
    assert found.mean_slowdown == pytest.approx(1.45)
    assert (found.worst_victim, found.past_cap) == (pytest.approx(1.8), 1.0)


def test_mean_over_all_pairings_is_the_mean_over_all_pairs() -> None:
    every = list(all_pairings(NAMES))
    cross = [value for (v, n), value in TABLE.items() if v != n]
    assert mean_score(every, TABLE).mean_slowdown == pytest.approx(sum(cross) / len(cross))


def test_greedy_takes_the_cheapest_partner_in_turn() -> None:
    costs = {(v, n): 2.0 for v in NAMES for n in NAMES} | {("a", "c"): 1.0, ("c", "a"): 1.0}
    assert greedy_pairing(NAMES, costs) == (("a", "c"), ("b", "d"))


def test_noise_is_pooled_over_rows() -> None:
    rows = [row("a", "b", 1.0, math.exp(0.2)), row("b", "a", 2.0, 2.0)]
    assert block_noise(rows) == pytest.approx(math.sqrt(0.02 / 2))
    assert math.isnan(block_noise([row("a", "b", 1.5)]))


def test_unstable_rows_are_left_out_never_filled() -> None:
    rows = [row("a", "b", 1.2, 1.2), row("b", "a", 1.4, 1.4), row("a", "a", 9.0, 9.0)]
    rows.append(row("a", "c", 1.0, status=PairStatus.UNSTABLE))
    found = difference_from_random([row("a", "b", 1.1, 1.3), rows[-1]], rows)
    assert found.value == pytest.approx(math.sqrt(1.1 * 1.3) - 1.3)
    assert found.lower < found.value < found.upper


def test_a_run_without_one_complete_pairing_says_so() -> None:
    with pytest.raises(UnfitError, match="no pairing"):
        compare_pairings(NAMES, (("a", "b"), ("c", "d")), TABLE, {("a", "b"): 1.2})


def test_unmeasured_pairs_show_as_absent_and_best_is_of_the_measured() -> None:
    measured = {key: value for key, value in TABLE.items() if set(key) != {"a", "b"}}
    chosen, greedy, chance, best, worst = compare_pairings(NAMES, (("a", "b"), ("c", "d")), TABLE, measured)
    assert math.isnan(chosen.measured.mean_slowdown)
    assert chance.name == "random (mean of 2)"
    assert best.measured.mean_slowdown <= worst.measured.mean_slowdown
    assert greedy.pairing


@pytest.mark.parametrize(
    ("low", "high", "word"), [(-0.2, -0.1, "beat the random"), (0.1, 0.2, "worse"), (-0.1, 0.1, "NOT beat")]
)
def test_the_verdict_says_whichever_way_it_went(low: float, high: float, word: str) -> None:
    assert word in DifferenceFromRandom(value=(low + high) / 2, lower=low, upper=high).verdict
