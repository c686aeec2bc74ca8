"""Durations and moments as people type them."""

import pytest

from interfere.errors import InvalidInputError
from interfere.time_text import duration_s, moment_s, start_s

END_S = 1_793_404_800.0  # 2026-10-31


def test_durations() -> None:
    texts = ("500ms", "90s", "15m", "1.5h", "30d", " 2h ")
    assert [duration_s(text) for text in texts] == [0.5, 90.0, 900.0, 5400.0, 2_592_000.0, 7200.0]
    for text in ("", "30", "-3m", "soon", "1w", "1h30m"):
        with pytest.raises(InvalidInputError, match="not a duration"):
            duration_s(text)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("2026-10-30", END_S - 86_400),
        ("2026-10-30T18:00", END_S - 21_600),
        ("2026-10-30T20:00+02:00", END_S - 21_600),
        ("1793404799.5", END_S - 0.5),
        ("6h", END_S - 21_600),
        ("0s", END_S),
    ],
)
def test_a_moment_is_a_date_unix_seconds_or_a_duration_before_the_end(text: str, expected_s: float) -> None:
    assert moment_s(text, END_S) == expected_s
    if expected_s < END_S:
        assert start_s(text, END_S) == expected_s


def test_what_is_no_moment_and_a_span_that_is_empty_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="not a time"):
        moment_s("yesterday", END_S)
    for text in ("0s", "2026-10-31", "2026-11-01"):
        with pytest.raises(InvalidInputError, match="at 2026-10-31T00:00:00"):
            start_s(text, END_S)
