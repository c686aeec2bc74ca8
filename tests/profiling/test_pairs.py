"""The plan of a campaign and the rows made of its blocks."""

import math
from itertools import islice

import pytest

from interfere.profiling.pairs import (
    Plan,
    all_pairs,
    blocks_left,
    is_unstable,
    lost_passes,
    next_attempt,
    order,
    rows,
    stretch,
    todo,
)
from interfere.profiling.protocol import LONGER_REMEDY
from interfere.profiling.raw import Block
from interfere.records import PairMeasurement, PairStatus
from tests.profiling.traces import block

PLAN = Plan(pairs=all_pairs(("a", "b", "c")), passes=2, max_blocks=4, seed=7)
Blocks = dict[frozenset[str], list[Block]]


def run(plan: Plan, measured: Blocks, *, noise: float = 0.0, limit: int = 1000) -> list[tuple[str, str]]:
    """Follow the plan to its end (or for `limit` blocks) with blocks that pass; every second one is `noise` higher."""
    done = []
    for pair, pass_index, attempt in islice(todo(plan, measured), limit):
        value = 1.5 * (1 + noise * (pass_index % 2))
        known = measured.setdefault(frozenset(pair), [])
        known.append(block(*pair, (value, value), pass_index=pass_index, attempt=attempt))
        done.append(pair)
    return done


def to_rows(*blocks: Block) -> tuple[PairMeasurement, ...]:
    return rows(blocks, passes=2, device_type="cpu-core", device_name="x", campaign="t", source="cpu")


def test_every_unordered_pair_with_itself() -> None:
    assert PLAN.pairs == (("a", "a"), ("a", "b"), ("a", "c"), ("b", "b"), ("b", "c"), ("c", "c"))


def test_quiet_pairs_get_their_passes_and_no_more() -> None:
    measured: Blocks = {}
    assert len(run(PLAN, measured)) == 2 * 6
    assert all(len(known) == 2 for known in measured.values())
    assert blocks_left(PLAN, measured) == 0


def test_noisy_pairs_get_more_up_to_the_limit() -> None:
    measured: Blocks = {}
    assert len(run(PLAN, measured, noise=0.2)) == 4 * 6
    assert blocks_left(PLAN, measured) == 0


def test_a_pass_visits_all_pairs_in_another_order_with_swapped_roles() -> None:
    first, second = order(PLAN, 0), order(PLAN, 1)
    assert sorted(first) == sorted(PLAN.pairs)
    assert sorted((b, a) for a, b in second) == sorted(PLAN.pairs)
    assert first != [(b, a) for a, b in second]
    assert order(PLAN, 0) == first


def test_an_interrupted_plan_continues_as_it_would_have_gone_on() -> None:
    whole = run(PLAN, {}, noise=0.2)
    measured: Blocks = {}
    assert run(PLAN, measured, noise=0.2, limit=5) + run(PLAN, measured, noise=0.2) == whole


def test_a_refused_block_is_repeated_twice_at_the_end_of_its_pass() -> None:
    plan = Plan(pairs=PLAN.pairs, passes=1, max_blocks=1, seed=7)
    measured: Blocks = {}
    visited = []
    for pair, pass_index, attempt in todo(plan, measured):
        reason = "stolen" if frozenset(pair) == {"a", "b"} else ""
        made = block(*pair, (1.5, 1.5), pass_index=pass_index, attempt=attempt, reason=reason)
        measured.setdefault(frozenset(pair), []).append(made)
        visited.append((pair, attempt))
    assert visited[6:] == [(("a", "b"), 1), (("a", "b"), 2)]
    assert lost_passes(measured[frozenset("ab")]) == (0,)
    assert is_unstable(measured[frozenset("ab")], 1)
    assert next_attempt(PLAN, measured[frozenset("ab")], 1) is None
    assert blocks_left(plan, measured) == 0


def test_an_unstable_pair_keeps_its_reason_and_has_no_slowdown() -> None:
    failed = [block("a", "b", (1.5, 1.5), pass_index=1, attempt=k, reason="clock") for k in range(3)]
    made = to_rows(block("a", "b", (1.4, 1.2)), *failed)
    assert [row.status for row in made] == [PairStatus.UNSTABLE] * 2
    assert [row.reason for row in made] == ["clock"] * 2
    assert all(math.isnan(row.slowdown) for row in made)
    assert made[0].passes == (1.4,)


def test_a_pair_that_lost_only_an_extra_block_keeps_what_it_has_and_gets_no_more() -> None:
    good = [block("a", "b", (1.4, 1.2), pass_index=k) for k in range(2)]
    lost = [block("a", "b", (3.0, 3.0), pass_index=2, attempt=k, reason="clock") for k in range(3)]
    assert [row.slowdown for row in to_rows(*good, *lost)] == pytest.approx([1.4, 1.2])
    assert not is_unstable([*good, *lost], 2)
    assert next_attempt(PLAN, [*good, *lost], 3) is None


def test_two_rows_of_a_pair_whichever_role_each_had() -> None:
    made = to_rows(block("a", "b", (1.5, 1.2)), block("b", "a", (1.2 * 1.02, 1.5 * 0.98), pass_index=1))
    a, b = made
    assert (a.victim, a.neighbour, b.victim, b.neighbour) == ("a", "b", "b", "a")
    assert a.passes == pytest.approx((1.5, 1.47))
    assert b.passes == pytest.approx((1.2, 1.224))
    assert a.slowdown == pytest.approx(math.sqrt(1.5 * 1.47))
    half = 12.706 * abs(math.log(1.5 / 1.47)) / math.sqrt(2) / math.sqrt(2)
    assert (a.lower, a.upper) == pytest.approx((a.slowdown * math.exp(-half), a.slowdown * math.exp(half)))
    assert a.measured_at_s == 1.7e9 + 1


def test_a_self_pair_is_one_row_with_both_sides() -> None:
    made = to_rows(block("a", "a", (1.9, 2.1)), block("a", "a", (2.0, 2.0), pass_index=1))
    assert len(made) == 1
    assert made[0].passes == pytest.approx((1.9, 2.1, 2.0, 2.0))
    assert made[0].upper < 2.2, "the interval is over blocks: both sides of one average out"


def test_one_block_has_no_interval() -> None:
    assert math.isnan(to_rows(block("a", "b", (1.5, 1.2)))[0].lower)


def test_blocks_grow_only_after_too_few_steps() -> None:
    short = block("a", "b", (1.0, 1.0), reason=f"a: 2 whole steps; {LONGER_REMEDY}")
    assert stretch([]) == 1.0
    assert stretch([block("a", "b", (1.0, 1.0), reason="the clock drifted")]) == 1.0
    assert stretch([short, short]) == 2.0
