"""`interfere replay --deadlines`: scores by scheduler, draws that are saved and read, a report, and invalid input."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from interfere.data.tables import Table
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster, read_trace, write_trace
from interfere.errors import InvalidInputError
from interfere.training.commands.replay import app
from tests.reports.html_tree import figures


@pytest.fixture(scope="module")
def trace_folder(small: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty jobs on two nodes of two devices, within five hours of an evening."""
    rng = np.random.default_rng(0)
    names = [job.workload for job in small.jobs]
    arrivals = np.cumsum(rng.exponential(450.0, 40)).tolist()
    jobs = tuple(
        TraceJob(
            job_id=f"j{k}",
            workload=names[k % len(names)],
            arrival_s=at,
            gpus=1 + k % 2,
            vc="vc",
            duration_s=float(rng.exponential(1500.0)),
        )
        for k, at in enumerate(arrivals)
    )
    clusters = (VirtualCluster(vc="vc", nodes=2, gpus_per_node=2),)
    folder = tmp_path_factory.mktemp("traces") / "made"
    write_trace(folder, JobTrace(name="made", jobs=jobs, clusters=clusters, start_s=19 * 3600.0))
    return folder


def run(*arguments: object) -> dict[str, object]:
    ran = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert ran.exit_code == 0, ran.output
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def test_scores_and_the_same_ones_from_the_same_seed(trace_folder: Path, small_folder: Path, tmp_path: Path) -> None:
    names = ("edf-first-fit", "edf-first-fit-drop-greedy", "policy-deadlines")
    words = [trace_folder, "--data", small_folder, *(word for name in names for word in ("--policy", name))]
    words += ["--set", "most_shared_gpus=2"]
    words += ["--deadlines", "loose", "--set", "seed=3"]
    first = run(*words, "--out", tmp_path)
    assert list(first["schedulers"]) == list(names)
    for (score,) in first["schedulers"].values():
        assert score["with_deadline"] == 32
        assert score["satisfaction"] == pytest.approx(score["met"] / 32)
    assert run(*words)["schedulers"] == first["schedulers"]
    more = run(*words, "--set", "added=true")
    other = run(*words, "--set", "added=true", "--set", "taken=true")
    met = [sum(score["met"] for (score,) in one["schedulers"].values()) for one in (first, more)]
    assert met[0] < met[1]
    assert other["schedulers"] != more["schedulers"]


def test_a_report_with_tables_and_plots(trace_folder: Path, small_folder: Path, tmp_path: Path) -> None:
    names = ("edf-first-fit", "edf-first-fit-drop", "slots")
    policies = [word for name in names for word in ("--policy", name)]
    words = [trace_folder, "--data", small_folder, "--deadlines", "usual", "--out", tmp_path, *policies]
    document = run(*words)
    written = ["jobs.parquet", "report.html", "runs.csv"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == written
    assert sorted(Path(path).name for path in document["files"]) == written
    page = (tmp_path / "report.html").read_text()
    assert len(figures(page)) == 2
    assert "Deadline satisfaction" in page
    assert "Worlds with deadlines and edge devices" in page
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    jobs = pq.read_table(tmp_path / "jobs.parquet").to_pandas()
    for line in document["deadlines"]:
        own = jobs[jobs.policy == line["policy"]]
        assert len(own) == 40
        met = (own.ended_s <= own.deadline_s + 1e-6)[own.deadline_s.notna()]
        assert met.sum() == line["score"]["met"]
        assert own.promised_s.notna().sum() == line["score"]["promised"]
        (satisfaction,) = (float(row["satisfaction"]) for row in rows if row["policy"] == line["policy"])
        assert line["satisfaction"]["mean"] == pytest.approx(satisfaction)
        assert line["satisfaction"]["interval"]["low"] is None  # of one day nothing follows for others
    assert document["verdicts"][0].startswith("most deadlines met of all: ")
    assert document["stable"] == document["overloaded"] == []


def test_a_trace_that_does_not_say_when_it_began_begins_at_midnight(
    trace_folder: Path, small_folder: Path, tmp_path: Path
) -> None:
    timeless = replace(read_trace(trace_folder), start_s=math.nan)
    write_trace(tmp_path / "timeless", timeless)
    words = ["--data", small_folder, "--deadlines", "usual", "--policy", "fifo-first-fit"]
    assert any("midnight" in note for note in run(tmp_path / "timeless", *words)["notes"])
    assert not any("midnight" in note for note in run(trace_folder, *words)["notes"])


def test_a_table_for_people(trace_folder: Path, small_folder: Path) -> None:
    words = [str(trace_folder), "--data", str(small_folder), "--deadlines", "tight", "--policy", "slots"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert "deadlines met" in ran.stdout
    assert "slots" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--deadlines", "never"), "unknown family"),
        (("--deadlines", "usual", "--policy", "EDF that shares"), "no such policy"),
    ],
)
def test_invalid_input_is_refused(words: tuple[str, ...], what: str, trace_folder: Path, small_folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=what):
        CliRunner().invoke(app, [str(trace_folder), "--data", str(small_folder), *words], catch_exceptions=False)
