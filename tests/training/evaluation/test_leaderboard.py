"""Leaderboards from the library, as a document and by the command."""

import io
import json
import math
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.cli import main
from interfere.data.tables import Table, write_table
from interfere.errors import InvalidInputError, TableError, UnfitError
from interfere.reports.text_forms import markdown
from interfere.study.engine import Runner
from interfere.time_left import read_time_left
from interfere.training.baselines import BASELINES
from interfere.training.evaluation.fewer_facts import FactSet
from interfere.training.evaluation.leaderboard import evaluate_tables, mean_scores
from interfere.training.evaluation.runs import leaderboard_documents, leaderboards_report
from interfere.training.evaluation.splits import folds
from interfere.training.models.catalogue import select_models
from tests.training.selection import select_on_training_rows
from tests.training.worlds import additive, as_if_traced, world

ALL = (FactSet.ALL,)


def test_every_baseline_is_scored_whatever_models_are_asked_for_and_nothing_is_written(small_folder: Path) -> None:
    before = sorted(small_folder.parent.rglob("*"))
    lines: list[str] = []
    (leaderboard,) = evaluate_tables(
        [small_folder], models="gbdt", splits=("pair",), facts=ALL, runner=Runner(report=lines.append)
    )
    assert sorted(small_folder.parent.rglob("*")) == before
    assert [row.name for row in leaderboard.rows] == [*(b.name for b in BASELINES), "gbdt"]
    assert [row.baseline for row in leaderboard.rows] == [True] * len(BASELINES) + [False]
    folds_told = [left for line in lines if (left := read_time_left(line))]
    assert "pair split, seed 0, fold 1 of 5" in folds_told[0][1], "what is left is said"
    assert folds_told[-1][0] == 0
    assert len(lines) - len(folds_told) >= len(leaderboard.rows)
    cells = next(
        row for row in markdown(leaderboards_report([leaderboard])).splitlines() if row.startswith("| mean")
    ).split(" | ")
    assert cells[1] == f"{leaderboard.rows[0].scores.mae:.4f}"


def test_figures_are_means_over_the_seeds(small_folder: Path) -> None:
    both, first, second = (
        evaluate_tables([small_folder], models="mean", splits=("job",), facts=ALL, seeds=seeds)[0]
        .row("additive")
        .scores
        for seeds in ((3, 4), (3,), (4,))
    )
    assert both.mae == pytest.approx((first.mae + second.mae) / 2)
    assert both.mae_se == pytest.approx((first.mae_se + second.mae_se) / 2)
    assert isinstance(both.rows, int)
    known = mean_scores([replace(first, spearman=math.nan), replace(first, spearman=0.5)])
    assert known.spearman == 0.5


def test_a_split_or_seed_named_twice_counts_once(small_folder: Path) -> None:
    (leaderboard,) = evaluate_tables([small_folder], models="mean", splits=("pair", "pair"), facts=ALL, seeds=(3, 3))
    assert leaderboard.seeds == (3,)
    assert len(leaderboard.rows[0].evaluations) == 1


def test_the_published_model_is_the_choice_of_the_first_fold_s_training_rows(small_folder: Path) -> None:
    (leaderboard,) = evaluate_tables([small_folder], models="gbdt", splits=("job",), facts=ALL, seeds=(2, 0))
    training = leaderboard.dataset.take(folds(leaderboard.dataset, "job", 2)[0].train)
    assert leaderboard.published == select_on_training_rows(training, select_models("mean,additive,gbdt"), 2)


def test_bad_requests_are_refused_before_anything_is_fitted(small_folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(InvalidInputError, match="choose among mean, additive, gbdt, mlp"):
        evaluate_tables([small_folder], models="mean,oracle")
    with pytest.raises(UnfitError, match="two device types"):
        evaluate_tables([small_folder], models="mean", splits=("pair", "device"), runner=Runner(report=said.append))
    with pytest.raises(TableError):
        evaluate_tables([tmp_path / "nowhere"])
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    write_table(tiny, world(additive, 3))
    with pytest.raises(UnfitError, match="at least 10"):
        evaluate_tables([tiny])
    assert said == []


def test_fewer_facts_are_scored_beside_all_of_them(small: Table, small_folder: Path, tmp_path: Path) -> None:
    traced = replace(small, jobs=tuple(as_if_traced(job) for job in small.jobs))
    write_table(tmp_path / "traced", traced)
    measured = evaluate_tables([small_folder], models="mean", splits=("pair",))
    found = evaluate_tables([tmp_path / "traced"], models="gbdt", splits=("pair",))
    # The table as measured has no static facts to leave out.
    assert [leaderboard.facts for leaderboard in measured] == [FactSet.ALL, FactSet.UTILISATION]
    assert [leaderboard.facts for leaderboard in found] == list(FactSet)
    mean, gbdt = (
        {leaderboard.facts: leaderboard.row(name).scores.mae for leaderboard in found} for name in ("mean", "gbdt")
    )
    assert len(set(mean.values())) == 1  # reads no fact
    assert len(set(gbdt.values())) == 3
    (document,) = leaderboard_documents(found)
    assert document["facts"] == "all"
    assert [fewer["facts"] for fewer in document["fewer_facts"]] == ["without-static", "utilisation"]
    assert markdown(leaderboards_report(found)).count("\n## ") == 3


def test_a_table_of_ten_jobs_on_one_device_without_families_counters_or_times(tmp_path: Path) -> None:
    bare = world(additive, 10)
    jobs = tuple(replace(j, busy_frac=math.nan, busy_s=(), idle_s=(), kernels=()) for j in bare.jobs)
    write_table(tmp_path / "bare", replace(bare, jobs=jobs))
    splits = ("pair", "job", "family", "neighbour", "sparse10", "sparse20", "sparse40")
    leaderboards = evaluate_tables([tmp_path / "bare"], models="mean", splits=splits, facts=ALL)
    assert [leaderboard.split for leaderboard in leaderboards] == list(splits)
    for leaderboard in leaderboards:
        assert all(math.isfinite(row.scores.mae) for row in leaderboard.rows)
    with pytest.raises(UnfitError, match="split by time"):
        evaluate_tables([tmp_path / "bare"], models="mean", splits=("time",), facts=ALL)


def test_one_table_and_split_is_one_document(small_folder: Path, tmp_path: Path) -> None:
    made = run(
        "evaluate",
        "--data",
        f"mine={small_folder}",
        "--split",
        "job",
        "--models",
        "mean",
        "--folds",
        "3",
        "--seed",
        "1",
        "--seed",
        "2",
        "--facts",
        "utilisation",
        "--plots",
        str(tmp_path / "plots"),
        "--json",
    )
    assert (made["data"], made["split"], made["seeds"], made["facts"]) == ("mine", "job", [1, 2], "utilisation")
    assert made["fewer_facts"] == []
    mean, additive_line = made["models"][:2]
    assert made["published"] in {"mean", "additive"}
    assert (mean["name"], mean["baseline"]) == ("mean", True)
    assert list(mean["per_device"]) == ["cpu-core"]
    assert [part["seed"] for part in additive_line["folds"]] == [1, 1, 1, 2, 2, 2]
    pooled = sum(part["mae"] * part["rows"] for part in additive_line["folds"][:3]) / additive_line["rows"]
    other = sum(part["mae"] * part["rows"] for part in additive_line["folds"][3:]) / additive_line["rows"]
    assert additive_line["mae"] == pytest.approx((pooled + other) / 2)
    pictures = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert pictures == ["mine_job_utilisation.html"]


def test_tables_of_one_name_are_scored_together_and_others_apart(small_folder: Path) -> None:
    data = [f"both={small_folder}", str(small_folder), f"both={small_folder}"]
    options = ["--split", "pair", "--models", "mean", "--facts", "all", "--json"]
    both, alone = run("evaluate", *(text for value in data for text in ("--data", value)), *options)
    assert (both["data"], alone["data"]) == ("both", "small")
    assert both["models"][0]["rows"] == 2 * alone["models"][0]["rows"]


def test_the_printed_table_is_markdown_with_equal_cells_in_all_lines(small_folder: Path) -> None:
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as stop:
        main(["evaluate", "--data", str(small_folder), "--split", "pair", "--models", "mean", "--facts", "all"])
    assert stop.value.code == 0
    rows = [line for line in printed.getvalue().splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(BASELINES)
    assert len({row.count("|") for row in rows}) == 1


def run(*arguments: str) -> dict:
    """The JSON document that a command prints; it must end well."""
    with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0
    return json.loads(printed.getvalue())
