"""A spreadsheet as a user types it in: template, dry run, import, card and facts."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interfere.commands.data.group import app
from interfere.data.tables import read_table
from interfere.errors import ConflictError, TableError


def run(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def fill(folder: Path) -> None:
    """Fill the empty cells of both files: the step times alone, then those beside each other."""
    with (folder / "jobs.csv").open(newline="") as file:
        head, *jobs = csv.reader(file)
    facts = {"step_time_ms": "10", "gpu_util_percent": "50", "memory_peak_gib": "2", "family": "CNN"}
    write(
        folder / "jobs.csv",
        [head, *([facts.get(name, cell) for name, cell in zip(head, row, strict=True)] for row in jobs)],
    )
    with (folder / "pairs.csv").open(newline="") as file:
        head, *pairs = csv.reader(file)
    write(
        folder / "pairs.csv",
        [head, *([*row[:4], *(("10", "") if row[1] == "alone" else ("15", "20"))] for row in pairs)],
    )


def write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.parametrize("shape", ["long", "wide"])
def test_a_template_that_is_filled_in_imports(tmp_path: Path, shape: str) -> None:
    jobs = ("--job", "a", "--job", "b")
    written = run("template", tmp_path, *jobs, "--shape", shape, "--value", "step_time_ms", "--mode", "mps")
    assert written["files"] == [str(tmp_path / "pairs.csv"), str(tmp_path / "jobs.csv")]
    if shape == "wide":
        (tmp_path / "pairs.csv").write_text("step_time_ms,a,b,alone\na,15,20,10\nb,15,15,10\n")
    else:
        fill(tmp_path)
    options = ("--profiles", tmp_path / "jobs.csv", "--work", tmp_path, "--name", "mine")
    conditions = ("--device-type", "a100-80gb", "--mode", "mps") if shape == "wide" else ()
    dry = run("import", "table", tmp_path / "pairs.csv", *options, *conditions, "--dry-run")
    assert not (tmp_path / "tables").exists()
    assert {"victim", "neighbour"} <= {use["role"] for use in dry["columns"]}
    done = run("import", "table", tmp_path / "pairs.csv", *options, *conditions)
    assert (done["jobs"], done["pairs"]) == (2, 4)
    table = read_table(tmp_path / "tables" / "mine")
    assert {round(pair.slowdown, 9) for pair in table.pairs} <= {1.5, 1.732050808, 2.0}
    assert {pair.mode for pair in table.pairs} == {"mps"}
    assert "Table `mine`" in run("card", "mine", "--work", tmp_path)["card"]


def test_roles_may_follow_the_file_and_extras_are_shown_with_the_facts(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("a,b,rel\nx,y,0.5\n")
    (tmp_path / "j.csv").write_text("workload,step_time_ms,dropout\nx,5,0.1\ny,6,\n")
    roles = ("--column", "victim=a", "neighbour=b", "speed=rel")
    run(
        "import",
        "table",
        tmp_path / "p.csv",
        *roles,
        "--profiles",
        tmp_path / "j.csv",
        "--device-type",
        "t4",
        "--work",
        tmp_path,
    )
    assert read_table(tmp_path / "tables" / "p").pairs[0].slowdown == 2.0
    shown = run("facts", "x", "p", "--work", tmp_path)
    assert shown["extras"] == [{"name": "dropout", "value": "0.1", "device_type": "t4", "source": "user"}]


def test_a_template_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("mine")
    done = CliRunner().invoke(app, ["template", str(tmp_path)])
    assert isinstance(done.exception, ConflictError)
    assert (tmp_path / "jobs.csv").read_text() == "mine"
    assert not (tmp_path / "pairs.csv").exists()


def test_decimal_commas_and_all_faults_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("victim\tneighbour\tslowdown\nx\ty\t1,5\ny\tx\t2,25\n")
    conditions = ("--device-type", "t4", "--work", tmp_path)
    run("import", "table", tmp_path / "p.csv", *conditions, "--decimal", ",")
    assert [pair.slowdown for pair in read_table(tmp_path / "tables" / "p").pairs] == [1.5, 2.25]
    refused = CliRunner().invoke(app, ["import", "table", str(tmp_path / "p.csv"), *map(str, conditions)])
    assert isinstance(refused.exception, TableError)
    assert [(fault.field, fault.what) for fault in refused.exception.violations] == [
        (f"p.csv, row {row}, column slowdown", "a number expected") for row in (2, 3)
    ]
    assert "--decimal ," in str(refused.exception)
