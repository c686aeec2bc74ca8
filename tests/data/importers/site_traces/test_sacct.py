"""`sacct --parsable2`: what becomes a job, what is counted, what is refused, and a replay of the result."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.data.importing import app as importing
from interfere.data.importers.site_traces import SACCT_COLUMNS, import_sacct, read_workload_map
from interfere.data.tables import Table, write_table
from interfere.data.traces import read_trace
from interfere.errors import TableError
from interfere.records import JobProfile, PairMeasurement
from interfere.training.commands.replay import app as replaying

HEAD = "|".join(SACCT_COLUMNS) + "\n"
ROWS = (
    "10|ann|gpu|COMPLETED|2026-11-20T08:00:10|2026-11-20T08:01:00|2026-11-20T09:01:00|"
    "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|bert-base seed 1\n"
    "10.batch|||COMPLETED|2026-11-20T08:01:00|2026-11-20T08:01:00|2026-11-20T09:01:00|cpu=8,gres/gpu=2|batch\n"
    "11_3|bob|gpu|CANCELLED by 1000|2026-11-20T08:00:00|2026-11-20T08:00:00|2026-11-20T08:30:00|gres/gpu=1|resnet50\n"
    "12|bob|cpu|COMPLETED|2026-11-20T08:00:00|2026-11-20T08:00:00|2026-11-20T08:30:00|cpu=4,mem=1G|compile\n"
    "13|bob|gpu|RUNNING|2026-11-20T08:10:00|2026-11-20T08:10:00|Unknown|gres/gpu=1|resnet50\n"
    "14|cy|gpu|TIMEOUT|2026-11-20T09:00:00|2026-11-20T09:00:00|2026-11-20T10:00:00|gres/gpu=1|jupyter\n"
)
MAP = "pattern,workload\n^bert,bert\nresnet-?50,resnet50\n"


def written(folder: Path, text: str = HEAD + ROWS, patterns: str = MAP) -> tuple[Path, Path]:
    (folder / "sacct.txt").write_text(text)
    (folder / "map.csv").write_text(patterns)
    return folder / "sacct.txt", folder / "map.csv"


def test_jobs_with_gpus_that_have_ended_are_the_trace(tmp_path: Path) -> None:
    path, patterns = written(tmp_path)
    imported = import_sacct(path, workloads=read_workload_map(patterns))
    assert imported.trace is not None
    rows = [
        (job.job_id, job.workload, job.arrival_s, job.gpus, job.duration_s, job.user, job.vc, job.status)
        for job in imported.trace.jobs
    ]
    assert rows == [
        ("11_3", "resnet50", 0.0, 1, 1800.0, "bob", "gpu", "cancelled"),
        ("10", "bert", 10.0, 2, 3600.0, "ann", "gpu", "completed"),
        ("14", "", 3600.0, 1, 3600.0, "cy", "gpu", "timeout"),
    ]
    counts = {notice.subject: notice.count for notice in imported.notices}
    assert counts == {
        "rows of job steps": 1,
        "jobs without a GPU": 1,
        "jobs that have not started or ended": 1,
        "jobs whose name no pattern matches": 1,
    }
    assert "jupyter (1)" in imported.notices[-1].reason


def test_without_a_map_the_name_is_the_workload(tmp_path: Path) -> None:
    trace = import_sacct(written(tmp_path)[0]).trace
    assert trace is not None
    assert [job.workload for job in trace.jobs] == ["resnet50", "bert-base seed 1", "jupyter"]


def test_a_name_may_hold_the_delimiter_where_it_comes_last(tmp_path: Path) -> None:
    row = "15|cy|gpu|COMPLETED|2026-11-20T09:00:00|2026-11-20T09:00:00|2026-11-20T10:00:00|gres/gpu=1|resnet50 a|b\n"
    trace = import_sacct(written(tmp_path, HEAD + row)[0]).trace
    assert trace is not None
    assert [job.workload for job in trace.jobs] == ["resnet50 a|b"]
    first = HEAD.replace("|JobName", "").replace("JobID|", "JobID|JobName|")
    moved = row.replace("|resnet50 a|b", "").replace("15|", "15|resnet50 a|b|")
    with pytest.raises(TableError, match=r"row 2, column JobName: holds the delimiter") as raised:
        import_sacct(written(tmp_path, first + moved)[0])
    assert "JobName as its last column" in raised.value.remedy


def test_a_job_with_shards_of_a_gpu_counts_as_one_gpu(tmp_path: Path) -> None:
    row = ROWS.splitlines(keepends=True)[-1].replace("gres/gpu=1", "cpu=1,gres/shard=3,node=1")
    imported = import_sacct(written(tmp_path, HEAD + row)[0])
    assert imported.trace is not None
    assert [job.gpus for job in imported.trace.jobs] == [1]
    assert {notice.subject: notice.count for notice in imported.notices} == {"jobs that held shards of a GPU": 1}


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (HEAD, "JobID|State|Elapsed\n", "column User: missing: found JobID, State, Elapsed"),
        (HEAD, "JobID|State|Elapsed\n", "remedy: export it by sacct --allusers --allocations --parsable2 --starttime="),
        ("2026-11-20T09:01:00|billing", "20 Nov 09:01|billing", "row 2, column End: a time such as"),
        ("2026-11-20T09:01:00|billing", "2026-11-20T07:01:00|billing", "row 2, column End: before the job's start"),
        ("11_3|", "10|", "column JobID: a second row of this job"),
    ],
)
def test_damaged_output_is_refused(tmp_path: Path, old: str, new: str, place: str) -> None:
    path, _ = written(tmp_path, (HEAD + ROWS).replace(old, new))
    with pytest.raises(TableError) as raised:
        import_sacct(path)
    assert place in str(raised.value)


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    _, patterns = written(tmp_path, patterns="pattern,workload\nbert(,bert\n")
    with pytest.raises(TableError, match=r"row 2, column pattern: not a regular expression"):
        read_workload_map(patterns)


def test_from_sacct_to_a_replay(tmp_path: Path) -> None:
    path, patterns = written(tmp_path)
    trace, truth = tmp_path / "trace", tmp_path / "truth"
    words = ["sacct", str(path), "--workloads", str(patterns), "--out", str(trace)]
    ran = CliRunner().invoke(importing, words)
    assert ran.exit_code == 0, ran.output
    assert len(read_trace(trace).jobs) == 3
    names = ("bert", "resnet50")
    pairs = tuple(
        PairMeasurement(victim=a, neighbour=b, device_type="a100", mode="mps", slowdown=1.2)
        for a in names
        for b in names
    )
    jobs = tuple(JobProfile(workload=a, device_type="a100", step_time_s=1.0, source="made") for a in names)
    write_table(truth, Table(name="truth", jobs=jobs, pairs=pairs))
    words = [str(trace), "--data", str(truth), "--gpus", "2", "--policy", "fifo-easy-greedy", "--json"]
    ran = CliRunner().invoke(replaying, words)
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert (document["coverage"]["jobs"], document["coverage"]["known_jobs"]) == (3, 2)
    assert document["notes"][0].startswith("truth covers 66.7% of the trace's jobs and 71.4% of its GPU hours")
