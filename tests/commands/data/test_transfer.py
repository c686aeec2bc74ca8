"""`data suggest` and `data transfer` as a user types them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interfere.commands.data.group import app
from interfere.data.tables import Table, write_table
from interfere.errors import InvalidInputError, NotFoundError, UnfitError
from tests.predict.transfer.test_device_transfer import NAMES, NEW, OLD, SLOW, TRUTH


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with two full tables and one of which few pairs were measured."""
    few = [pair for pair in NEW.pairs if {pair.victim, pair.neighbour} <= set(NAMES[:4])]
    for table in (OLD, SLOW, Table(name="mine", jobs=NEW.jobs, pairs=tuple(few))):
        write_table(tmp_path / "tables" / table.name, table)
    return tmp_path


def run(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_pairs_are_suggested_before_and_after_the_first_measurement(work: Path) -> None:
    first = run("suggest", "--data", "old", "--data", "slow", "--device-type", "rtx4090", "--count", 6, "--work", work)
    assert (first["device_type"], first["sources"]) == ("rtx4090", ["old, mps", "slow, mps"])
    assert len({frozenset(pair) for pair in first["pairs"]}) == 6
    then = run("suggest", "mine", "--data", "old", "--count", 4, "--work", work)
    assert all(set(pair) - set(NAMES[:4]) for pair in then["pairs"]), "pairs with a job that has none come first"


def test_what_was_not_measured_is_predicted_with_its_error(work: Path) -> None:
    got = run("transfer", "mine", "--data", "old", "--data", "slow", "--work", work)
    assert len(got["predictions"]) == 12 * 12 - 16
    assert got["hidden_pairs"]["pairs"] == 10
    error = [abs(1 / p["slowdown"] - 1 / TRUTH[p["victim"], p["neighbour"]]) for p in got["predictions"]]
    assert sum(error) / len(error) < 0.05
    shown = CliRunner().invoke(app, ["transfer", "mine", "--data", "old", "--work", str(work)])
    assert "hidden from the others" in shown.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("suggest", "--device-type", "t4"), InvalidInputError),
        (("suggest", "--data", "old"), InvalidInputError),
        (("suggest", "--data", "nowhere", "--device-type", "t4"), NotFoundError),
        (("transfer", "mine", "--data", "mine"), UnfitError),
        (("transfer", "mine", "--data", "old", "--device-type", "h100"), NotFoundError),
    ],
)
def test_what_is_missing_is_asked_for(work: Path, arguments: tuple[str, ...], kind: type[Exception]) -> None:
    done = CliRunner().invoke(app, [*arguments, "--work", str(work)])
    assert isinstance(done.exception, kind)
