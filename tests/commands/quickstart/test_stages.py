"""The stages of the quickstart as commands: what is told of one that fails."""

import pytest

from interfere.commands.quickstart.stages import _failure

REMEDY = "  remedy: one step must be shorter than that: split it"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["warning: a", "error: no such table", "  remedy: import one"], "no such table"),
        (
            ["warning: workload bert-serve did not answer within 60 s", REMEDY],
            "workload bert-serve did not answer within 60 s",
        ),
        (["Killed"], "Killed"),
        ([], "no message"),
    ],
)
def test_a_failed_command_is_told_by_its_error_else_by_its_last_warning_else_by_its_last_line(
    lines: list[str], told: str
) -> None:
    assert _failure(lines) == told
