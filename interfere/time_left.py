"""The time left for work made of many tasks, and the line of progress that shows it.

The line reads `m:ss left · text`, possibly after other text. Programs that start a command read the line from the
command's standard error.
"""

import re
import time
from collections import Counter
from collections.abc import Callable

KNOWN_SHARE = 0.9  # of the waiting tasks must be of kinds that were timed, or the estimate is a guess
LONGEST_SILENCE_S = 60.0  # after which a guess is better than nothing

_LINE = re.compile(r"(?:^|\s)(\d+):(\d\d) left · (.*)$")


def clock_text(seconds: float) -> str:
    """Return seconds as `m:ss`.

    >>> clock_text(125.4)
    '2:05'
    """
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"


def time_left_line(seconds: float, text: str) -> str:
    """Return the line of progress of a command.

    >>> time_left_line(65, "gemm beside stream")
    '1:05 left · gemm beside stream'
    """
    return f"{clock_text(seconds)} left · {text}"


def read_time_left(line: str) -> tuple[float, str] | None:
    """Return the seconds left and the text of a line of progress; None for any other line.

    >>> read_time_left("3/80 · 1:05 left · gemm beside stream")
    (65.0, 'gemm beside stream')
    """
    found = _LINE.search(line.rstrip())
    return (60.0 * int(found[1]) + int(found[2]), found[3]) if found else None


class TimeLeft:
    """Estimates the time left for the remaining tasks of several kinds; tasks of one kind take about equally long.

    Law: no time is left when every expected task is finished. A kind without a finished task counts with the mean time
    of the other kinds.
    """

    def __init__(
        self,
        report: Callable[[str], None] = lambda _: None,
        *,
        every_s: float = 10.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`report` takes a line of progress, at most one `every_s`."""
        self._report, self._every_s, self._now_s = report, every_s, now_s
        self._waiting: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()
        self._spent_s: Counter[str] = Counter()
        self._mark_s = now_s()
        self._last_line_s = self._next_line_s = self._mark_s

    def expect(self, kind: str, count: int = 1) -> None:
        """Expect further tasks of a kind."""
        self._waiting[kind] += count

    def finish(self, kind: str, text: str = "") -> None:
        """Count a task as finished that began when the previous task ended, and report the time left."""
        now_s = self._now_s()
        self._spent_s[kind] += now_s - self._mark_s  # type: ignore[assignment]  # a counter of seconds
        self._finished[kind] += 1
        self._waiting[kind] = max(0, self._waiting[kind] - 1)
        self._mark_s = now_s
        waiting, known = self._waiting.total(), sum(self._waiting[each] for each in self._finished)
        is_known = known >= KNOWN_SHARE * waiting or now_s - self._last_line_s >= LONGEST_SILENCE_S
        if is_known and now_s >= self._next_line_s:
            self._last_line_s, self._next_line_s = now_s, now_s + self._every_s
            self._report(time_left_line(self.seconds, text or kind))

    @property
    def seconds(self) -> float:
        """Return the time left; zero before any task is finished."""
        means = {kind: self._spent_s[kind] / count for kind, count in self._finished.items()}
        usual = sum(means.values()) / len(means) if means else 0.0
        return sum(count * means.get(kind, usual) for kind, count in self._waiting.items())
