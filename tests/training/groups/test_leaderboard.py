"""`interfere evaluate` on a table with groups: groups held out, jobs held out, beside the default, sum and product."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.cli import main
from interfere.data.tables import Table, write_table
from interfere.training.evaluation.fewer_facts import FactSet
from interfere.training.evaluation.leaderboard import evaluate_tables
from interfere.training.groups.evaluation import evaluate_groups, groups_parts
from tests.training.groups.test_evaluation import table


def stored(folder: Path, made: Table) -> Path:
    folder.mkdir()
    write_table(folder, made)
    return folder


def test_groups_are_scored_with_groups_and_with_jobs_held_out(tmp_path: Path) -> None:
    made = table(noise=0.02)
    folder = stored(tmp_path / "made", made)
    with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as stop:
        main(["evaluate", "--data", str(folder), "--models", "additive", "--split", "job", "--facts", "all", "--json"])
    assert stop.value.code == 0
    of_groups, of_jobs = json.loads(printed.getvalue())["groups"]
    assert (of_groups["split"], of_groups["model"], of_groups["mae_pairs"]) == ("group", "", None)
    assert (of_jobs["split"], of_jobs["model"]) == ("job", "additive")
    for each in (of_groups, of_jobs):
        assert [score["size"] for score in each["scores"]] == [3, 4, 0]
    *_, every = of_groups["scores"]
    assert every["cases"] == len(made.groups)
    assert every["mae"] < 0.5 * min(every["mae_default"], every["mae_sum"], every["mae_product"])
    assert every["mae"] == every["mae_known_pairs"]
    assert 0.85 <= every["coverage"] <= 0.98
    *_, every = of_jobs["scores"]
    assert every["mae_known_pairs"] < every["mae"], "pairs that are predicted cost more than measured ones"


def test_what_cannot_be_scored_is_not_shown(tmp_path: Path) -> None:
    made = table(noise=0.02)
    for name, groups in (("none", ()), ("few", made.groups[:6])):
        folder = stored(tmp_path / name, replace(made, groups=groups))
        leaderboards = evaluate_tables([folder], name=name, models="mean", splits=("pair",), facts=(FactSet.ALL,))
        assert evaluate_groups(leaderboards, {name: [folder]}) == ()
    assert groups_parts(()) == []
