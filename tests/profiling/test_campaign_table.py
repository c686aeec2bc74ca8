"""The rows of a table from the blocks of its pairs, worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.profiling.campaign_table import CampaignLabels, group_rows, pair_rows, raw_rows, write_campaign_table
from interfere.profiling.schedule import BlockEstimate, log_half_width
from interfere.records import JobProfile, MeasuredBlock, PairMeasurement, PairStatus
from tests.profiling.sample_blocks import block, group_block

LABELS = CampaignLabels(device_type="cpu-core", device_name="x", campaign="t", source="cpu")


def to_rows(*blocks: MeasuredBlock) -> tuple[PairMeasurement, ...]:
    return pair_rows(blocks, LABELS)


def test_an_unstable_pair_keeps_its_reason_and_has_no_slowdown() -> None:
    made = to_rows(*(block("a", "b", (1.5, 1.5), attempt=k, reason="gone") for k in range(3)))
    assert [row.status for row in made] == [PairStatus.UNSTABLE] * 2
    assert [row.reason for row in made] == ["gone"] * 2
    assert all(math.isnan(row.slowdown) for row in made)
    assert made[0].passes == ()


def test_a_pair_that_lost_a_pass_keeps_what_was_measured_in_the_other() -> None:
    failed = [block("a", "b", (1.5, 1.5), pass_index=1, attempt=k, reason="gone") for k in range(3)]
    made = to_rows(block("a", "b", (1.4, 1.2)), *failed)
    assert [(row.status, row.slowdown, row.passes) for row in made] == [
        (PairStatus.OK, pytest.approx(1.4), (1.4,)),
        (PairStatus.OK, pytest.approx(1.2), (1.2,)),
    ]
    both = to_rows(*(block("a", "b", (1.4, 1.2), pass_index=k) for k in range(2)))
    assert made[0].upper - made[0].lower > both[0].upper - both[0].lower


@given(rejected=st.lists(st.booleans(), min_size=6, max_size=6), error=st.floats(0.0, 3.0))
def test_whatever_was_disturbed_or_rejected_the_table_is_written_and_nothing_is_lost(
    rejected: list[bool], error: float
) -> None:
    groups = []
    for k, first in enumerate("abc"):
        of_pair = []
        for pass_index in range(2):
            reason = "gone" if rejected[2 * k + pass_index] else ""
            made = block(first, "z", (1.5, 1.2), pass_index=pass_index, reason=reason)
            sides = tuple(replace(side, log_error=error) for side in made.sides)
            of_pair += [replace(made, sides=sides, attempt=attempt) for attempt in range(3 if reason else 1)]
        groups.append(of_pair)
    profiles = [JobProfile(workload=name, device_type="cpu-core", step_time_s=0.01, source="cpu") for name in "abcz"]
    with TemporaryDirectory() as folder:
        table = write_campaign_table(Path(folder), profiles, groups, LABELS, note="")
    assert len(table.pairs) == 6
    for row in table.pairs:
        k = "abc".index(min(row.victim, row.neighbour))
        accepted = 2 - sum(rejected[2 * k : 2 * k + 2])
        assert len(row.passes) == accepted
        assert (row.status is PairStatus.OK) == (accepted > 0)
        assert bool(row.reason) == (accepted == 0)
        if accepted:
            half_width = math.log(row.upper / row.lower) / 2
            assert 1.9 * max(error, 0.01) / math.sqrt(accepted) <= half_width <= 10 * (error + 0.02)


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
    estimates = [BlockEstimate(1.5, 0.01), BlockEstimate(1.47, 0.01)]
    half = log_half_width(estimates)
    assert (a.lower, a.upper) == pytest.approx((a.slowdown * math.exp(-half), a.slowdown * math.exp(half)))
    assert a.measured_at_s == 1.7e9 + 1


def test_a_self_pair_is_one_row_with_both_sides() -> None:
    made = to_rows(block("a", "a", (1.9, 2.1)), block("a", "a", (2.0, 2.0), pass_index=1))
    assert len(made) == 1
    assert made[0].passes == pytest.approx((1.9, 2.1, 2.0, 2.0))
    assert made[0].upper < 2.2, "the interval is over blocks: both sides of one average out"


def test_one_block_has_an_interval_from_its_slices() -> None:
    row = to_rows(block("a", "b", (1.5, 1.2)))[0]
    assert row.lower < 1.5 < row.upper


def test_a_group_has_one_row_of_each_workload_with_all_its_copies() -> None:
    blocks = [
        group_block(("a", "b", "a"), (2.0, 3.0, 2.2)),
        group_block(("a", "b", "a"), (2.1, 3.1, 2.1), pass_index=1),
    ]
    a, b = group_rows(blocks, LABELS)
    assert (a.victim, a.company, a.passes) == ("a", ("a", "b"), pytest.approx((2.0, 2.2, 2.1, 2.1)))
    assert (b.victim, b.company, b.passes) == ("b", ("a", "a"), (3.0, 3.1))
    assert a.lower < a.slowdown < a.upper
    raw = raw_rows([blocks])
    assert [(row["victim"], row["company"]) for row in raw[:3]] == [
        ("a", ["a", "b"]),
        ("b", ["a", "a"]),
        ("a", ["a", "b"]),
    ]


def test_an_unstable_group_is_never_given_a_slowdown() -> None:
    failed = [group_block(("a", "b", "c"), (2.0, 2.0, 2.0), attempt=k, reason="clock") for k in range(3)]
    rows = group_rows(failed, LABELS)
    assert [(row.status, row.reason, row.company) for row in rows] == [
        (PairStatus.UNSTABLE, "clock", company) for company in (("b", "c"), ("a", "c"), ("a", "b"))
    ]


def test_rows_of_mode_priority_say_who_was_important() -> None:
    labels = replace(LABELS, mode="priority")
    blocks = [replace(block("a", "b", (1.1, 3.0), pass_index=k), mode="priority") for k in range(2)]
    rows = pair_rows(blocks, labels)
    assert [(row.victim, row.neighbour, row.important, row.slowdown) for row in rows] == [
        ("a", "b", "victim", pytest.approx(1.1)),
        ("b", "a", "neighbour", pytest.approx(3.0)),
    ]
    self_blocks = [replace(block("a", "a", (1.1, 3.0), pass_index=k), mode="priority") for k in range(2)]
    of_self = pair_rows(self_blocks, labels)
    assert [(row.important, row.passes) for row in of_self] == [("victim", (1.1, 1.1)), ("neighbour", (3.0, 3.0))]
    assert self_blocks[0].key == ("a", "a")
    assert blocks[0].key != replace(block("b", "a", (1.1, 3.0)), mode="priority").key


def test_a_job_that_the_important_one_starves_has_a_reason_and_no_slowdown() -> None:
    labels = replace(LABELS, mode="priority")
    starved = block("a", "b", (1.05, float("nan")))
    rows = pair_rows([replace(starved, mode="priority")], labels)
    assert [(row.status, row.important) for row in rows] == [
        (PairStatus.OK, "victim"),
        (PairStatus.UNSTABLE, "neighbour"),
    ]
    assert rows[0].slowdown == pytest.approx(1.05)
    assert (rows[1].passes, "too few steps beside the important job" in rows[1].reason) == ((), True)
