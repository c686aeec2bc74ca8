"""From an empty spreadsheet to a served prediction, with the commands alone: template, import, card, train, serve."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interfere.data.loading import shipped_table
from interfere.data.tables import Table, read_table
from tests.waiting import PATIENCE_S

INTERFERE = (sys.executable, "-m", "interfere")
JOBS = 8
pytestmark = pytest.mark.journey


def interfere(cwd: Path, *arguments: object) -> Any:
    """The JSON document of a command that succeeds."""
    done = subprocess.run(
        [*INTERFERE, *map(str, arguments), "--json"], cwd=cwd, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def served(cwd: Path) -> Iterator[str]:
    """The address of a server on the workspace's champion."""
    command = [*INTERFERE, "serve", "--port", "0", "--json", "--model", "interfere-work/models/champion"]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    try:
        yield str(json.loads(process.stdout.readline())["address"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()


def fill(path: Path, cells: dict[tuple[str, str], dict[str, float]]) -> None:
    """Write measured values into the empty cells, by the first two columns of a row."""
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    for row in rows:
        for name, value in cells.get((row[0], row[1]), {}).items():
            row[head.index(name)] = repr(value)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def measured(table: Table, names: list[str]) -> dict[tuple[str, str], dict[str, float]]:
    """Step times in ms of a real table: alone, and of both sides of each pair."""
    alone = {job.workload: job.step_time_s * 1e3 for job in table.jobs}
    beside = {(p.victim, p.neighbour): alone[p.victim] * p.slowdown for p in table.ok_pairs}
    cells = {(name, "alone"): {"step_time_ms": alone[name]} for name in names}
    for k, first in enumerate(names):
        for second in names[k:]:
            both = {"step_time_ms": beside[first, second]}
            both |= {"neighbour_step_time_ms": beside[second, first]} if first != second else {}
            cells[first, second] = both
    return cells


def test_from_an_empty_spreadsheet_to_a_served_prediction(tmp_path: Path) -> None:
    table = read_table(shipped_table("cpu"))
    names = [job.workload for job in table.jobs][:JOBS]
    # 1. An empty template, filled in with what a real campaign measured.
    options = [text for name in names for text in ("--job", name)]
    interfere(tmp_path, "data", "template", "sheets", *options, "--device-type", "rtx4090", "--mode", "timeslice")
    cells = measured(table, names)
    fill(tmp_path / "sheets" / "pairs.csv", cells)
    jobs = {(name, "rtx4090"): {"step_time_ms": cells[name, "alone"]["step_time_ms"]} for name in names}
    fill(tmp_path / "sheets" / "jobs.csv", jobs)
    # 2. Import it, and look at it.
    files = ("sheets/pairs.csv", "--profiles", "sheets/jobs.csv", "--name", "mine")
    done = interfere(tmp_path, "data", "import", "table", *files)
    assert (done["jobs"], done["pairs"], done["infeasible"]) == (JOBS, JOBS * JOBS, 0)
    imported = read_table(tmp_path / "interfere-work" / "tables" / "mine")
    truth = {(p.victim, p.neighbour): p.slowdown for p in table.ok_pairs}
    assert all(p.slowdown == pytest.approx(truth[p.victim, p.neighbour], rel=1e-9) for p in imported.pairs)
    assert "rtx4090" in interfere(tmp_path, "data", "card", "mine")["card"]
    # 3. Train on it, serve what was published, and ask.
    trained = interfere(tmp_path, "train", "--data", "mine")
    assert trained["rows"] == JOBS * JOBS
    with served(tmp_path) as address:
        asked = ("--victim", names[0], "--neighbour", names[1], "--device-type", "rtx4090", "--target", address)
        (answer,) = interfere(tmp_path, "predict", *asked)["predictions"]
        assert answer["slowdown"] == pytest.approx(truth[names[0], names[1]], rel=0.02)
        # 4. A job that is new to the server is registered from a sheet, and is answered for.
        (tmp_path / "new.csv").write_text("workload,step_time_ms\nnewcomer,12\n")
        registered = interfere(
            tmp_path, "profiles", "register", "new.csv", "--device-type", "rtx4090", "--target", address
        )
        assert [each["workload"] for each in registered["registered"]] == ["newcomer"]
        asked = ("--victim", "newcomer", "--neighbour", names[1], "--device-type", "rtx4090", "--target", address)
        (answer,) = interfere(tmp_path, "predict", *asked)["predictions"]
        assert answer["source"] == "model"
