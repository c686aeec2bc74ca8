"""The schedule of a campaign: passes, repeats after rejected blocks, more blocks for wide intervals, resuming."""

from itertools import islice

from interfere.profiling.measurement_log import BlocksByGroup
from interfere.profiling.schedule import (
    BlockSchedule,
    all_pairs,
    is_unstable,
    lost_passes,
    next_attempt,
    pass_order,
    pending_blocks,
    remaining_blocks,
)
from interfere.records import group_key
from tests.profiling.sample_blocks import block

SCHEDULE = BlockSchedule(groups=all_pairs(("a", "b", "c")), passes=2, max_blocks=4, seed=7)


def run(
    schedule: BlockSchedule, measured: BlocksByGroup, *, noise: float = 0.0, limit: int = 1000
) -> list[tuple[str, str]]:
    """Follow the schedule to its end (or for `limit` blocks) with accepted blocks, every second `noise` higher."""
    done = []
    for request in islice(pending_blocks(schedule, measured), limit):
        slowdown = 1.5 * (1 + noise * (request.pass_index % 2))
        made = block(*request.members, (slowdown, slowdown), pass_index=request.pass_index, attempt=request.attempt)
        measured.setdefault(made.key, []).append(made)
        done.append(request.members)
    return done


def test_every_unordered_pair_with_itself() -> None:
    assert SCHEDULE.groups == (("a", "a"), ("a", "b"), ("a", "c"), ("b", "b"), ("b", "c"), ("c", "c"))


def test_quiet_pairs_get_their_passes_and_no_more() -> None:
    measured: BlocksByGroup = {}
    assert len(run(SCHEDULE, measured)) == 2 * 6
    assert all(len(known) == 2 for known in measured.values())
    assert sum(remaining_blocks(SCHEDULE, measured).values()) == 0


def test_noisy_pairs_get_more_up_to_the_limit() -> None:
    measured: BlocksByGroup = {}
    assert len(run(SCHEDULE, measured, noise=0.2)) == 4 * 6
    assert sum(remaining_blocks(SCHEDULE, measured).values()) == 0


def test_a_pass_visits_all_pairs_in_another_order_with_swapped_roles() -> None:
    first, second = pass_order(SCHEDULE, 0), pass_order(SCHEDULE, 1)
    assert sorted(first) == sorted(SCHEDULE.groups)
    assert sorted(members[::-1] for members in second) == sorted(SCHEDULE.groups)
    assert first != [members[::-1] for members in second]
    assert pass_order(SCHEDULE, 0) == first


def test_an_interrupted_schedule_continues_as_it_would_have_gone_on() -> None:
    uninterrupted = run(SCHEDULE, {}, noise=0.2)
    measured: BlocksByGroup = {}
    assert run(SCHEDULE, measured, noise=0.2, limit=5) + run(SCHEDULE, measured, noise=0.2) == uninterrupted


def test_a_rejected_block_is_repeated_twice_at_the_end_of_its_pass() -> None:
    schedule = BlockSchedule(groups=SCHEDULE.groups, passes=1, max_blocks=1, seed=7)
    measured: BlocksByGroup = {}
    visited = []
    for request in pending_blocks(schedule, measured):
        assert request.earlier == tuple(measured.get(group_key(request.members), ()))
        reason = "stolen" if set(request.members) == {"a", "b"} else ""
        made = block(
            *request.members, (1.5, 1.5), pass_index=request.pass_index, attempt=request.attempt, reason=reason
        )
        measured.setdefault(made.key, []).append(made)
        visited.append((request.members, request.attempt))
    assert visited[6:] == [(("a", "b"), 1), (("a", "b"), 2)]
    assert lost_passes(measured[("a", "b")]) == (0,)
    assert is_unstable(measured[("a", "b")])
    assert next_attempt(SCHEDULE, measured[("a", "b")], 1) is None
    assert sum(remaining_blocks(schedule, measured).values()) == 0


def test_a_pair_that_lost_only_an_extra_block_is_stable_and_gets_no_more() -> None:
    good = [block("a", "b", (1.4, 1.2), pass_index=k) for k in range(2)]
    lost = [block("a", "b", (3.0, 3.0), pass_index=2, attempt=k, reason="clock") for k in range(3)]
    assert not is_unstable([*good, *lost])
    assert next_attempt(SCHEDULE, [*good, *lost], 3) is None
