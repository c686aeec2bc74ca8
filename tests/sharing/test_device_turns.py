"""Turns of real processes on one device: who waits for whom, and that nobody waits for the dead or the stopped."""

import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from interfere.errors import InvalidInputError, UnfitError
from interfere.sharing.device_turns import MAX_MEMBERS, DeviceMember, device_file
from interfere.timeline.priority_scheduler import FillingRule, PriorityGapFillingScheduler
from tests.sharing.live_members import ForkedMember, spin
from tests.waiting import wait_until

ANY = PriorityGapFillingScheduler(rule=FillingRule.ANY)
FITS = PriorityGapFillingScheduler(rule=FillingRule.FITS)
PREEMPTING = PriorityGapFillingScheduler(rule=FillingRule.ANY, preemption_s=1e-4)
LONG_S = 1_000.0  # predicted: such a lease does not end during a test
Report = Callable[[str], None]


def hold(member: DeviceMember, report: Report) -> None:
    """Take a turn and never end it."""
    member.take_turn(LONG_S)
    report("holds")
    time.sleep(LONG_S)


def hold_briefly(member: DeviceMember, report: Report) -> None:
    """Take a turn with the shortest lease and never end it."""
    member.take_turn(0.0)
    report("holds")
    time.sleep(LONG_S)


def work(member: DeviceMember, report: Report) -> None:
    """Take one turn after the other."""
    while True:
        member.take_turn(LONG_S)
        spin(2e-4)
        member.end_turn(())
        report("turn")


def work_twenty_turns(member: DeviceMember, report: Report) -> None:
    for _ in range(20):
        member.take_turn(LONG_S)
        start_ns = time.monotonic_ns()
        spin(1e-3)
        report(f"{start_ns} {time.monotonic_ns()}")
        member.end_turn(())


@pytest.mark.parametrize(("scheduler", "priorities"), [(ANY, (0, 1, 1)), (PREEMPTING, (1, 1, 1))])
def test_turns_of_different_members_never_overlap(
    tmp_path: Path, scheduler: PriorityGapFillingScheduler, priorities: tuple[int, ...]
) -> None:
    members = [ForkedMember(tmp_path / "core", priority, scheduler, work_twenty_turns) for priority in priorities]
    assert [member.join() for member in members] == [0, 0, 0]
    spans = sorted(tuple(map(int, line.split())) for member in members for line in member.reports)
    assert len(spans) == 60
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize("scheduler", [ANY, PREEMPTING])
@pytest.mark.parametrize("killed_priority", [0, 1])
def test_nobody_is_blocked_by_a_member_that_is_killed(
    tmp_path: Path, killed_priority: int, scheduler: PriorityGapFillingScheduler
) -> None:
    """Twenty members of each priority are killed, with the turn in their hands, while they wait, or anywhere else."""
    draw = random.Random(0)
    path = tmp_path / "core"
    with ForkedMember(path, 1 - killed_priority, scheduler, work) as survivor:
        for round_number in range(20):
            body = (hold, work)[round_number % 2]
            with ForkedMember(path, killed_priority, scheduler, body) as victim:
                wait_until(lambda victim=victim: victim.reports, "the other takes a turn")
                time.sleep(draw.uniform(0.0, 2e-3))  # anywhere in its loop
                victim.kill()
                turns = len(survivor.reports)
                wait_until(lambda turns=turns: len(survivor.reports) > turns + 1, "the survivor goes on")


def test_a_preempting_member_waits_for_no_member_of_lower_priority_wherever_that_is_stopped(tmp_path: Path) -> None:
    """Twenty times a low member is stopped: with a turn in its hands, in the middle of asking for one, anywhere."""
    draw, path = random.Random(0), tmp_path / "core"
    with DeviceMember(path, 1, PREEMPTING) as high:
        for round_number in range(20):
            with ForkedMember(path, 0, PREEMPTING, (hold, work)[round_number % 2]) as low:
                wait_until(lambda low=low: low.reports, "the low one takes a turn")
                time.sleep(draw.uniform(0.0, 2e-3))
                low.stop()
                for _ in range(3):
                    high.take_turn(0.0)
                    assert high._member.state == 3, "it never entered the state of waiting"
                    high.end_turn(())


def test_what_a_member_overtakes_is_paid_from_its_budget_and_keeps_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "core"
    with DeviceMember(path, 1, PREEMPTING) as high, ForkedMember(path, 0, PREEMPTING, hold) as low:
        wait_until(lambda: low.reports)
        for k in range(1, 4):
            high.take_turn(0.0)
            assert high.waited_s == pytest.approx(k * PREEMPTING.preemption_s)
            high.end_turn(())
        with ForkedMember(path, 0, PREEMPTING, hold) as second:
            wait_until(lambda: high._region.members[second_place(high)].state == 2, "the second one waits")
            assert not second.reports, "the turn of the first low member is not over"
            low.kill()
            wait_until(lambda: second.reports, "now it runs")
        assert high.waited_s == pytest.approx(3 * PREEMPTING.preemption_s)


def second_place(member: DeviceMember) -> int:
    """The place of the member that joined last."""
    return max(range(MAX_MEMBERS), key=lambda place: member._region.members[place].joined_ns)


def test_a_low_member_starts_nothing_while_a_preempting_one_runs(tmp_path: Path) -> None:
    path = tmp_path / "core"
    with DeviceMember(path, 1, PREEMPTING) as high:
        high.take_turn(LONG_S)
        with ForkedMember(path, 0, PREEMPTING, hold) as low:
            wait_until(lambda: high._region.members[1].state == 2, "it waits")
            assert not low.reports
            high.end_turn((LONG_S,))
            wait_until(lambda: low.reports, "it fills the gap")


def test_a_dead_member_of_highest_priority_hides_nobody(tmp_path: Path) -> None:
    """The gap of the living member of priority 1 counts, also where one of priority 2 has died."""
    path, is_dead = tmp_path / "core", tmp_path / "dead"

    def stay(member: DeviceMember, report: Report) -> None:
        report("joined")
        time.sleep(LONG_S)

    def hold_later(member: DeviceMember, report: Report) -> None:
        report("joined")
        wait_until(is_dead.exists)
        hold(member, report)

    with DeviceMember(path, 1, FITS) as middle, ForkedMember(path, 0, FITS, hold_later) as low:
        wait_until(lambda: low.reports)
        with ForkedMember(path, 2, FITS, stay) as dead:
            wait_until(lambda: dead.reports)
        middle.take_turn(0.0)
        middle.end_turn((1e-3,))
        is_dead.touch()
        wait_until(lambda: middle._region.members[1].state in (2, 3), "it has asked")
        assert low.reports == ["joined"], "nothing fits into the gap of the living one"


def test_a_stopped_member_loses_its_turn_with_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "core"
    with ForkedMember(path, 1, ANY, hold_briefly) as stopped:
        wait_until(lambda: stopped.reports)
        stopped.stop()
        with DeviceMember(path, 0, ANY) as member:
            member.take_turn(0.0)
            assert member.holds_turn


def test_a_stopped_member_that_waits_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "core"

    def wait_for_turn(member: DeviceMember, report: Report) -> None:
        report("asks")
        member.take_turn(0.0)

    with DeviceMember(path, 0, ANY) as member:
        member.take_turn(LONG_S)
        with ForkedMember(path, 1, ANY, wait_for_turn) as high:
            wait_until(lambda: high.reports)
            wait_until(lambda: member._region.members[1].state == 2, "it waits")
            high.stop()
            member.end_turn(())
            member.take_turn(0.0)
            assert member.holds_turn


def test_a_low_member_starts_only_what_fits_the_gap_that_the_high_one_published(tmp_path: Path) -> None:
    path = tmp_path / "core"

    def publish(member: DeviceMember, report: Report) -> None:
        member.take_turn(1.0)
        member.end_turn((LONG_S,))
        report("in gap")
        time.sleep(LONG_S)

    with ForkedMember(path, 1, FITS, publish) as high:
        wait_until(lambda: high.reports)
        with DeviceMember(path, 0, FITS) as low:
            low.take_turn(LONG_S / 2)
            low.end_turn(())
            refused = threading.Thread(target=low.take_turn, args=(LONG_S * 2,), daemon=True)
            refused.start()
            wait_until(lambda: low._member.state == 2, "it waits")
            assert not low.holds_turn
            high.kill()  # and with it what it forbade
            refused.join(timeout=120.0)
            assert low.holds_turn


def test_a_process_joins_once_and_a_device_has_a_limit_of_members(tmp_path: Path) -> None:
    path = tmp_path / "core"
    with DeviceMember(path, 0), pytest.raises(InvalidInputError, match="already"):
        DeviceMember(path, 0)
    with DeviceMember(path, 0):
        pass  # it left, so it may join again

    def stay(member: DeviceMember, report: Report) -> None:
        report("joined")
        time.sleep(LONG_S)

    members = [ForkedMember(path, 0, ANY, stay) for _ in range(MAX_MEMBERS)]
    try:
        for member in members:
            wait_until(lambda member=member: member.reports)
        with pytest.raises(UnfitError, match="too many"):
            DeviceMember(path, 0)
        members[3].kill()
        with DeviceMember(path, 0) as late:
            assert late.index < MAX_MEMBERS
    finally:
        for member in members:
            member.kill()


def test_bad_priorities_files_and_versions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="priority"):
        DeviceMember(tmp_path / "core", 10)
    (tmp_path / "core").write_bytes(b"\x07" + bytes(8192))
    with pytest.raises(UnfitError, match="another version"):
        DeviceMember(tmp_path / "core", 0)
    (tmp_path / "link").symlink_to(tmp_path / "core")
    with pytest.raises(OSError, match="link"):
        DeviceMember(tmp_path / "link", 0)


def test_the_file_of_a_device_is_the_users_own() -> None:
    path = device_file("test-core")
    assert path.parent.stat().st_mode & 0o077 == 0
