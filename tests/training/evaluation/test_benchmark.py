"""The benchmark by its command: published splits, models of others, tables for pandas, two runs compared."""

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from interfere.cli import main
from interfere.data.tables import Table, write_table
from interfere.training.commands.evaluate import NAMES
from interfere.training.evaluation.cross_validation import FOLDS_FOLDER
from interfere.training.models.catalogue import MODELS

MODEL = """
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.impute import SimpleImputer


def neighbours():
    return make_pipeline(SimpleImputer(), KNeighborsRegressor(3))
"""


def run(*arguments: str) -> tuple[int, Any, str]:
    """Exit status, JSON document and notes of a command."""
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as stop,
    ):
        main([*arguments, "--json"])
    return int(stop.value.code or 0), json.loads(out.getvalue() or "null"), err.getvalue()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"benchmark_model_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"{name}:neighbours"


def evaluate(folder: Path, work: Path, models: str, files: tuple[Path, Path], *options: str) -> tuple[int, Any, str]:
    common = ("--facts", "all", "--work", str(work), "--out", *map(str, files), "--models", models)
    return run("evaluate", "--data", str(folder), *common, *options)


def test_latencies_of_services_have_a_board_of_their_own(small: Table, tmp_path: Path) -> None:
    """Rows of latencies are scored by themselves: those of steps neither train nor test beside them."""
    services = {row.victim for row in small.pairs[:12]}
    rows = [
        replace(
            row, metric="latency_p99", slowdown=2 * row.slowdown, lower=1.9 * row.slowdown, upper=2.1 * row.slowdown
        )
        for row in small.pairs
        if row.victim in services
    ]
    (folder := tmp_path / "services").mkdir()
    write_table(folder, replace(small, pairs=(*small.pairs, *rows)))
    found = {}
    for metric in ("step_time_mean", "latency_p99"):
        files = tmp_path / f"scores-{metric}.csv", tmp_path / f"rows-{metric}.csv"
        options = ("--metric", metric, "--split", "service_pair")
        status, board, _ = evaluate(folder, tmp_path / "work", "additive", files, *options)
        assert (status, board["metric"]) == (0, metric)
        tests = found[metric] = pd.read_csv(files[1]).query("model == 'additive'")
        assert set(tests["metric"]) == {metric}
        (additive,) = (each for each in board["models"] if each["name"] == "additive")
        error = (tests["median"] / tests["truth"] - 1).abs().median()
        assert additive["median_error"] == pytest.approx(error)
    assert (len(found["step_time_mean"]), len(found["latency_p99"])) == (len(small.pairs), len(rows))
    assert found["latency_p99"]["truth"].min() > found["step_time_mean"]["truth"].min()
    status, _, notes = run("evaluate", "--compare", *(str(tmp_path / f"rows-{metric}.csv") for metric in found))
    assert (status, "share no test" in notes) == (1, True)
    status, _, notes = run("evaluate", "--data", str(folder), "--metric", "latency_p95")
    assert (status, "latency_p50" in notes) == (1, True)


def test_a_run_is_two_tables_for_pandas_and_the_board_says_the_same(
    small_folder: Path, tmp_path: Path, package: str
) -> None:
    files = tmp_path / "scores.parquet", tmp_path / "rows.parquet"
    status, boards, notes = evaluate(small_folder, tmp_path / "work", f"mean,{package}", files, "--splits", "v1")
    assert status == 0
    splits = [board["split"] for board in boards]
    assert splits[:2] == ["pair", "job"]
    assert {board["splits_version"] for board in boards} == {"v1"}
    assert "no split device" in notes
    assert "the table is none of the published ones" in notes
    scores, rows = (pd.read_parquet(path) for path in files)
    assert scores["split"].drop_duplicates().tolist() == splits
    for board in boards:
        for model in board["models"]:
            key = (rows["split"] == board["split"]) & (rows["model"] == model["name"])
            tests = rows[key]
            error = (1 / tests["truth"]).clip(0.05, 1.6) - (1 / tests["median"]).clip(0.05, 1.6)
            assert error.abs().mean() == pytest.approx(model["mae"])
            assert len(tests) == model["rows"]
            assert tests["fold"].nunique() == len(model["folds"])
            if np.isfinite(tests["low"]).all():
                inside = (tests["low"] <= tests["truth"]) & (tests["truth"] <= tests["high"])
                assert inside.mean() == pytest.approx(model["coverage"])
    sources = dict(zip(scores["model"], scores["source"], strict=True))
    assert "OSDI 2020" in sources["gavel-completion"]
    assert sources[package] == ""


def test_two_runs_are_compared_test_by_test(small_folder: Path, tmp_path: Path, package: str) -> None:
    before, after = ((tmp_path / f"s{k}.csv", tmp_path / f"r{k}.{end}") for k, end in enumerate(("parquet", "csv")))
    for files, models in ((before, "mean"), (after, f"mean,{package}")):
        assert evaluate(small_folder, tmp_path / "work", models, files, "--split", "pair")[0] == 0
    status, document, _ = run("evaluate", "--compare", str(before[1]), str(after[1]))
    assert status == 0
    found = {(each["first"], each["second"]): each for each in document["comparisons"]}
    same = found["additive", "additive"]["error"]
    assert same["low"] == same["high"] == 0.0
    (best, ours) = next((each, found[each]) for each in found if each[1] == package)
    by_model = pd.read_csv(after[0]).set_index("model")["mae"]
    assert best[0] == by_model.drop(package).idxmin()
    assert ours["error"]["challenger"] == pytest.approx(by_model[package])
    assert ours["tests"] == len(pd.read_parquet(before[1]).query("model == 'mean'"))
    other = tmp_path / "s2.csv", tmp_path / "r2.csv"
    assert evaluate(small_folder, tmp_path / "work", "mean", other, "--split", "job")[0] == 0
    status, document, _ = run("evaluate", "--compare", str(before[1]), str(other[1]))
    assert (status, document["error"]["what"]) == (1, "the two runs share no test")
    status, document, _ = run("evaluate", "--compare", str(before[1]), str(before[0]))
    assert (status, document["error"]["what"]) == (1, "no rows of a run")


def test_a_split_of_ones_own_stands_on_the_board(
    small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def halves(frame, seed):\n    yield range(len(frame) // 2), range(len(frame) // 2, len(frame))\n"
    (tmp_path / "own_halves.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    status, board, _ = run(
        *("evaluate", "--data", str(small_folder), "--split", "own_halves:halves", "--models", "mean"),
        *("--facts", "all", "--plots", "plots"),
    )
    assert (status, board["split"]) == (0, "own_halves:halves")
    assert len(board["models"][0]["folds"]) == 1
    assert len(list((tmp_path / "plots").iterdir())) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "no table to score on"),
        (("--data", "cpu", "--splits", "v9"), "published splits"),
        (("--data", "cpu", "--splits", "v1", "--folds", "2"), "published splits"),
        (("--data", "cpu", "--splits", "v1", "--poor-profiles"), "published splits"),
        (("--data", "cpu", "--out", "/nowhere/s.parquet", "/nowhere/r.parquet"), "the tables of a run"),
        (("--data", "cpu", "--models", "nowhere:Model"), "no such model"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_fitted(options: tuple[str, ...], expected: str) -> None:
    status, document, notes = run("evaluate", *options)
    assert (status, document["error"]["what"].startswith(expected)) == (1, True)
    assert "left ·" not in notes


def test_an_interrupted_run_goes_on_where_it_was_and_a_failing_model_ends_it_at_once(
    small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
from pathlib import Path
from sklearn.dummy import DummyRegressor
FITTED = Path(__file__).with_name("fitted")

class Model(DummyRegressor):
    def fit(self, X, y):
        with FITTED.open("a") as file:
            file.write("x")
        if len(FITTED.read_text()) == 3:
            raise {error}
        return super().fit(X, y)
"""
    monkeypatch.syspath_prepend(str(tmp_path))
    files, model = (tmp_path / "scores.csv", tmp_path / "rows.csv"), "interrupted_model:Model"
    (tmp_path / "interrupted_model.py").write_text(text.format(error="KeyboardInterrupt"))
    assert evaluate(small_folder, tmp_path / "work", model, files, "--split", "pair")[0] == 130
    assert list((tmp_path / "work" / FOLDS_FOLDER).rglob("*.jsonl"))
    status, board, notes = evaluate(small_folder, tmp_path / "work", model, files, "--split", "pair")
    assert (status, "left ·" in notes) == (0, True)
    assert re.search(r"^2 of \d+ were done before", notes, re.MULTILINE)
    assert (tmp_path / "fitted").read_text() == "x" * 6  # the fold that was interrupted, and the three after it
    assert len(next(each for each in board["models"] if each["name"] == model)["folds"]) == 5


def test_names_in_help_are_those_of_the_catalogue() -> None:
    assert tuple(MODELS) == NAMES
