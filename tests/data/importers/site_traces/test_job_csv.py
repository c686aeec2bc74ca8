"""A CSV file of jobs with columns of the site's own."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.data.importing import app
from interfere.data.importers.site_traces import import_job_csv
from interfere.data.traces import read_trace
from interfere.errors import InvalidInputError, TableError

TEXT = (
    "id,submitted,began,finished,devices,what\n"
    "a,2026-11-22T10:00:00,2026-11-22T10:00:30,2026-11-22T11:00:30,2,bert\n"
    "b,2026-11-22T09:59:00+00:00,2026-11-22T10:00:00,2026-11-22T10:30:00,1,resnet50\n"
    "c,2026-11-22T10:00:00,,,1,bert\n"
    "d,2026-11-22T10:00:00,2026-11-22T10:00:00,2026-11-22T10:00:01,0,make\n"
)
COLUMNS = {
    "job_id": "id",
    "arrival": "submitted",
    "start": "began",
    "end": "finished",
    "gpus": "devices",
    "name": "what",
}


def written(folder: Path, text: str = TEXT) -> Path:
    (folder / "jobs.csv").write_text(text)
    return folder / "jobs.csv"


def test_named_columns_and_dates(tmp_path: Path) -> None:
    imported = import_job_csv(written(tmp_path), COLUMNS)
    assert imported.trace is not None
    rows = [(job.job_id, job.workload, job.arrival_s, job.gpus, job.duration_s) for job in imported.trace.jobs]
    assert rows == [("b", "resnet50", 0.0, 1, 1800.0), ("a", "bert", 60.0, 2, 3600.0)]
    assert imported.trace.start_s == 1795341540.0
    assert {notice.subject: notice.count for notice in imported.notices} == {
        "jobs without a GPU": 1,
        "jobs without times": 1,
    }


def test_seconds_and_columns_of_the_usual_names(tmp_path: Path) -> None:
    path = written(tmp_path, "job_id,arrival,gpus,duration,user\nx,5,1,60,ann\ny,7.5,4,61.5,bob\n")
    trace = import_job_csv(path, {}).trace
    assert trace is not None
    assert [(job.arrival_s, job.duration_s, job.user, job.workload) for job in trace.jobs] == [
        (5.0, 60.0, "ann", ""),
        (7.5, 61.5, "bob", ""),
    ]


def test_what_is_not_there_is_refused_with_the_columns_seen(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="column job_id: missing") as raised:
        import_job_csv(written(tmp_path), {})
    assert "found id, submitted, began, finished, devices, what" in str(raised.value)
    with pytest.raises(InvalidInputError, match="no such field of a job"):
        import_job_csv(written(tmp_path), {"cpus": "devices"})
    with pytest.raises(TableError, match=r"row 2, column submitted: seconds, or a time"):
        import_job_csv(written(tmp_path, TEXT.replace("a,2026-11-22T10", "a,22 Nov 10")), COLUMNS)
    with pytest.raises(TableError, match=r"row 2, column finished: before the job's start"):
        import_job_csv(written(tmp_path, TEXT.replace("2026-11-22T11:00:30", "2026-11-22T09:00:30")), COLUMNS)


def test_the_command(tmp_path: Path) -> None:
    words = ["csv", str(written(tmp_path)), "--out", str(tmp_path / "trace")]
    words += [word for field, column in COLUMNS.items() for word in ("--column", f"{field}={column}")]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert [job.job_id for job in read_trace(tmp_path / "trace").jobs] == ["b", "a"]
    ran = CliRunner().invoke(app, [*words, "--column", "gpus"])
    assert isinstance(ran.exception, InvalidInputError)
