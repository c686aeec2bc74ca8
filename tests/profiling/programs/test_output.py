"""The log never outgrows its bounds, and steps are found however the output is cut into pieces."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.profiling.programs.supervision import (
    HEAD_BYTES,
    LINE_BYTES,
    TAIL_BYTES,
    BoundedLog,
    StepScanner,
    last_lines,
)


@pytest.mark.parametrize("size", [0, 10, HEAD_BYTES, HEAD_BYTES + 7, HEAD_BYTES + TAIL_BYTES, 9 * HEAD_BYTES + 1])
@pytest.mark.parametrize("piece", [1000, 65_536, 10 * HEAD_BYTES])
def test_head_and_tail_stay_and_the_rest_is_counted(tmp_path: Path, size: int, piece: int) -> None:
    whole = b"".join(b"%015d\n" % k for k in range(size // 16 + 1))[:size]
    log = BoundedLog(tmp_path / "log")
    for start in range(0, size, piece):
        log.add(whole[start : start + piece])
        assert log.tail_bytes <= TAIL_BYTES + piece, "memory is bounded too"
    assert (tmp_path / "log").read_bytes() == whole[:HEAD_BYTES], "the head is on disk at once"
    log.close()
    kept = (tmp_path / "log").read_bytes()
    dropped = max(0, size - HEAD_BYTES - TAIL_BYTES)
    assert log.dropped_bytes == dropped
    if dropped:
        note = f"\n[interfere dropped {dropped} bytes of output here]\n".encode()
        assert kept == whole[:HEAD_BYTES] + note + whole[-TAIL_BYTES:]
    else:
        assert kept == whole


TEXT = b"step 1\rstep 2\r\nwarn\nstep 2 again\nstep 30\nstep 4\nstep x\n"


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_cutting_the_stream_changes_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TEXT)]
    pieces = [TEXT[a:b] for a, b in pairwise(edges)]
    counter = StepScanner(r"step (\S+)")
    # 1, then 2, repeated, then 30; an epoch of 4 steps after that; the word is no counter.
    assert sum(map(counter.count_steps, pieces)) == 1 + 1 + 0 + 28 + 4
    plain = StepScanner("step")
    assert sum(map(plain.count_steps, pieces)) == 6


def test_an_endless_line_is_searched_at_its_beginning_only() -> None:
    scanner = StepScanner("step")
    assert sum(scanner.count_steps(b"step" + b"x" * 60_000) for _ in range(100)) == 0
    assert len(scanner.open_line) <= LINE_BYTES
    assert scanner.count_steps(b"\n") == 1


def test_last_words_are_one_printable_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(
        b"x\n" * 10_000 + "Traceback\n\n  naïve\x1b[31m\xa0\rValueError\n".encode() + b"\xff"
    )
    assert last_lines(tmp_path / "log") == "x | Traceback | naïve?[31m | ValueError | �"
    assert last_lines(tmp_path / "nothing") == ""
