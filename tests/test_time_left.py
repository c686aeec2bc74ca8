"""The time left of many tasks, and its line."""

import pytest

from interfere.time_left import TimeLeft, clock_text, read_time_left, time_left_line


@pytest.mark.parametrize("seconds", [0.0, 9.0, 59.0, 60.0, 3601.0])
@pytest.mark.parametrize("before", ["", "3/80 · ", "      [2/6] "])
def test_a_line_is_read_as_it_was_written(seconds: float, before: str) -> None:
    assert read_time_left(f"{before}{time_left_line(seconds, 'gemm · stream')}\n") == (seconds, "gemm · stream")


@pytest.mark.parametrize("line", ["", "warning: 3 of 4", "12 left · x", "at 12:30 nothing is left"])
def test_other_lines_are_none(line: str) -> None:
    assert read_time_left(line) is None


def test_seconds_are_rounded_to_whole_ones() -> None:
    assert (clock_text(59.6), clock_text(-3.0)) == ("1:00", "0:00")


def test_the_time_left_is_that_of_tasks_of_the_same_kind() -> None:
    now, lines = [0.0], list[str]()
    clock = TimeLeft(lines.append, every_s=10.0, now_s=lambda: now[0])
    for kind, count in (("fast", 3), ("slow", 2)):
        clock.expect(kind, count)
    assert clock.seconds == 0.0
    now[0] += 2.0
    clock.finish("fast", "the first")
    assert clock.seconds == pytest.approx(2 * 2.0 + 2 * 2.0)  # nothing is known of slow ones yet
    now[0] += 30.0
    clock.finish("slow", "the second")
    assert clock.seconds == pytest.approx(2 * 2.0 + 30.0)
    for kind, seconds in (("fast", 1.0), ("fast", 3.0), ("slow", 20.0)):
        now[0] += seconds
        clock.finish(kind)
    assert clock.seconds == 0.0
    # Nothing is said while most of the tasks are of kinds that were never timed.
    assert lines == ["0:34 left · the second", "0:00 left · slow"]


def test_after_a_minute_a_guess_is_better_than_nothing() -> None:
    now, lines = [0.0], list[str]()
    clock = TimeLeft(lines.append, now_s=lambda: now[0])
    for kind in ("one", "two", "three"):
        clock.expect(kind)
    now[0] += 61.0
    clock.finish("one")
    assert lines == ["2:02 left · one"]
