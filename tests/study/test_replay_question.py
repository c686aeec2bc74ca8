"""`interfere replay` from folders to a report, and what it says of input that will not do."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from interfere.data.tables import Table
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster, write_trace
from interfere.errors import InvalidInputError
from interfere.sim.schedulers.records import PRESETS, preset
from interfere.study.questions import ask
from interfere.study.replay_question import ReplayAnswer
from interfere.study.study import Study
from interfere.training.commands.replay import app
from interfere.training.study_models import TrainedModels
from tests.reports.html_tree import figures


def asked(study: Study) -> ReplayAnswer:
    answer = ask(study, TrainedModels())
    assert isinstance(answer, ReplayAnswer)
    return answer


@pytest.fixture(scope="module")
def trace_folder(small: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two virtual clusters, one of them flooded, on the workloads of the small table."""
    rng = np.random.default_rng(0)
    names = [job.workload for job in small.jobs]
    arrivals = np.cumsum(rng.exponential(1000.0, 160)).tolist()
    jobs = [
        TraceJob(
            job_id=f"j{k}",
            workload=names[k % len(names)],
            arrival_s=at,
            gpus=1 + k % 2,
            user=f"u{k % 3}",
            duration_s=float(rng.exponential(900.0 if k % 4 else 9000.0)),
            vc="calm" if k % 4 else "flooded",
        )
        for k, at in enumerate(arrivals)
    ]
    clusters = (
        VirtualCluster(vc="calm", nodes=1, gpus_per_node=2),
        VirtualCluster(vc="flooded", nodes=1, gpus_per_node=1),
    )
    folder = tmp_path_factory.mktemp("traces") / "made"
    write_trace(folder, JobTrace(name="made", jobs=tuple(jobs), clusters=clusters))
    return folder


def test_from_folders_to_a_report(trace_folder: Path, small_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    ran = CliRunner().invoke(
        app,
        [
            str(trace_folder),
            "--data",
            str(small_folder),
            "--policy",
            "sjf-first-fit-matching",
            "--policy",
            "fifo",
            "--draws",
            "1",
            "--out",
            str(out),
            "--json",
        ],
    )
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    names = ["sjf-first-fit", "sjf-first-fit-matching-one-gpu", "sjf-first-fit-matching", "fifo"]
    assert [line["policy"] for line in found["stable"]] == names
    assert found["notes"][0].startswith("truth covers 100.0% of the trace's jobs and 100.0% of its GPU hours; ")
    assert found["coverage"]["known_gang_jobs"] > 0
    assert found["overloaded"][0]["score"]["jobs"] == 40
    assert any("clipped at 1" in note for note in found["notes"])
    assert found["stable"][2]["change"]["spread"]["population"] == "2 traces"
    assert (
        found["stable"][2]["change"]["interval"]["population"]
        == "mean over periods of a load like this one (3 recorded days)"
    )
    best = min(found["stable"], key=lambda line: line["score"]["mean_completion_s"])
    assert found["verdicts"][0].startswith(f"soonest of all: {best['policy']}, ")
    assert [verdict.partition(":")[0] for verdict in found["verdicts"][1:]] == [
        "soonest without knowing durations beforehand",
        "soonest of those, without stopping jobs",
    ]
    assert all(": fifo, " in verdict for verdict in found["verdicts"][1:])
    with (out / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 4
    assert {row["policy"] for row in rows} == set(names)
    jobs = pq.read_table(out / "jobs.parquet").to_pandas()
    assert len(jobs) == 160 * 4
    fifo = jobs[(jobs.policy == "fifo") & (jobs.world == "calm")]
    mean = found["stable"][3]["score"]["mean_completion_s"]
    assert (fifo.ended_s - fifo.arrival_s).mean() == pytest.approx(mean)
    page = (out / "report.html").read_text()
    assert len(figures(page)) == 3
    assert "Worlds with stable load" in page
    assert 'src="http' not in page
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == ["jobs.parquet", "report.html", "runs.csv"]


def test_a_table_for_people(trace_folder: Path, small_folder: Path) -> None:
    ran = CliRunner().invoke(
        app,
        [
            str(trace_folder),
            "--data",
            str(small_folder),
            "--policy",
            "srtf-first-fit-greedy",
            "--set",
            "whole_nodes=false",
        ],
    )
    assert ran.exit_code == 0, ran.output
    assert "srtf-first-fit-greedy" in ran.stdout
    assert "Overloaded worlds" in ran.stdout
    assert "mean completion" in ran.stderr
    assert max(map(len, ran.stdout.splitlines())) <= 80


@pytest.mark.parametrize("online", [False, True])
def test_decided_by_a_model(trace_folder: Path, small_folder: Path, online: bool) -> None:
    answer = asked(
        Study(
            trace=trace_folder,
            table=small_folder,
            schedulers=(PRESETS["fifo-first-fit-greedy"],),
            predict="model",
            online=online,
        )
    )
    assert "pairs hidden" in answer.notes[-1]
    assert answer.comparison.stable[-1].score.pairs > 0


def test_what_is_believed_decides(trace_folder: Path, small_folder: Path) -> None:
    """An error and ignorance make other pairs; a cap of 1 makes none."""

    def mean(**rest: object) -> float:
        question = Study(
            trace=trace_folder, table=small_folder, schedulers=(PRESETS["sjf-first-fit-matching"],), **rest
        )  # type: ignore[arg-type]
        return asked(question).comparison.stable[-1].score.mean_completion_s

    known = mean()
    assert mean(predict="mean", caps=(9.0,)) != known
    assert mean(error=0.5) != known
    assert mean(most_shared_gpus=1) != known
    capped = asked(
        Study(trace=trace_folder, table=small_folder, schedulers=(PRESETS["sjf-first-fit-matching"],), caps=(1.0,))
    )
    assert capped.comparison.stable[-1].score.pairs == 0


def test_guests_end_first_only_where_asked(trace_folder: Path, small_folder: Path) -> None:
    common = {"trace": trace_folder, "table": small_folder, "schedulers": (PRESETS["fifo-first-fit-greedy"],)}
    stays, ruled = asked(Study(**common)), asked(Study(**common, guest_may_stay=False))
    assert any("guests end first" in note for note in ruled.notes)
    assert not any("guests end first" in note for note in stays.notes)
    assert ruled.comparison.stable[-1].score.pairs < stays.comparison.stable[-1].score.pairs


def test_loads_and_devices_of_a_trace_without(trace_folder: Path, small_folder: Path, tmp_path: Path) -> None:
    jobs = tuple(TraceJob(job_id=f"{k}", workload="gemm", arrival_s=k, gpus=1, duration_s=5) for k in range(20))
    write_trace(tmp_path / "bare", JobTrace(name="bare", jobs=jobs))
    common = {"trace": tmp_path / "bare", "table": small_folder, "schedulers": (PRESETS["fifo"],)}
    with pytest.raises(InvalidInputError, match="would change nothing"):  # all within one day
        asked(Study(**common, gpus=4, draws=1))
    found = asked(Study(**common, gpus=4, per_node=2, loads=(0.5,)))
    assert found.comparison.runs[0].load == pytest.approx(0.5)
    assert found.comparison.runs[0].world == "all"
    answer = asked(Study(**common, gpus=4, per_node=2, fill=True))
    assert any("0 filled by a model" in note for note in answer.notes)  # nothing was missing
    with pytest.raises(InvalidInputError, match="which devices"):
        asked(Study(**common))
    with pytest.raises(InvalidInputError, match="do not fill"):
        asked(Study(**common, gpus=5, per_node=2))
    with pytest.raises(InvalidInputError, match="says which devices"):
        asked(Study(trace=trace_folder, table=small_folder, gpus=4))


def test_invalid_options_are_refused(trace_folder: Path, small_folder: Path) -> None:
    common = {"trace": trace_folder, "table": small_folder}
    with pytest.raises(InvalidInputError, match="no such policy"):
        asked(Study(**common, schedulers=(preset("best"),)))
    with pytest.raises(InvalidInputError, match="an error is put on the truth"):
        asked(Study(**common, predict="mean", error=0.1))
    with pytest.raises(InvalidInputError, match="share of pairs"):
        asked(Study(**common, predict="model", hide=1.0))
    with pytest.raises(InvalidInputError, match="one device type and mode"):
        asked(Study(**common, device_type="h100"))
