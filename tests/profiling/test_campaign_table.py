"""The rows of a table from the blocks of its pairs, worked out by hand."""

import math

import pytest

from interfere.profiling.campaign_table import CampaignLabels, pair_rows
from interfere.records import PairBlock, PairMeasurement, PairStatus
from tests.profiling.sample_blocks import block

LABELS = CampaignLabels(device_type="cpu-core", device_name="x", campaign="t", source="cpu")


def to_rows(*blocks: PairBlock) -> tuple[PairMeasurement, ...]:
    return pair_rows(blocks, LABELS, passes=2)


def test_an_unstable_pair_keeps_its_reason_and_has_no_slowdown() -> None:
    failed = [block("a", "b", (1.5, 1.5), pass_index=1, attempt=k, reason="clock") for k in range(3)]
    made = to_rows(block("a", "b", (1.4, 1.2)), *failed)
    assert [row.status for row in made] == [PairStatus.UNSTABLE] * 2
    assert [row.reason for row in made] == ["clock"] * 2
    assert all(math.isnan(row.slowdown) for row in made)
    assert made[0].passes == (1.4,)


def test_a_pair_that_lost_only_an_extra_block_keeps_its_slowdowns() -> None:
    good = [block("a", "b", (1.4, 1.2), pass_index=k) for k in range(2)]
    lost = [block("a", "b", (3.0, 3.0), pass_index=2, attempt=k, reason="clock") for k in range(3)]
    assert [row.slowdown for row in to_rows(*good, *lost)] == pytest.approx([1.4, 1.2])


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
