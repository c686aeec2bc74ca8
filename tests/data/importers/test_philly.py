"""Gavel's Philly-derived traces: laws on small files in the format, and the real ones."""

import json
import math
from pathlib import Path

import pytest

from interfere.data.importers.published_traces import import_philly
from interfere.errors import InvalidInputError, TableError
from tests.data.importers.public_files import public

LINES = (
    "A3C\tcd %s/a3c && python3 main.py\t--max-steps\t0\t1000\t0.000000\t1\n"
    "LM (batch size 5)\tcd %s/lm && python3 main.py --bptt 35\t--steps\t1\t500\t20.5\t2\n"
    "LM (batch size 5)\tcd %s/lm && python3 main.py --bptt 35\t--steps\t1\t500\t10.5\t4\n"
)
RATES = {"v100": {"('A3C', 1)": {"null": 4.0}, "('LM (batch size 5)', 2)": {"null": 10.0}}}


def write(folder: Path, text: str = LINES) -> Path:
    path = folder / "some.trace"
    path.write_text(text)
    (folder / "rates.json").write_text(json.dumps(RATES))
    return path


def test_durations_follow_from_the_throughput_on_that_many_devices(tmp_path: Path) -> None:
    got = import_philly(write(tmp_path), throughputs=tmp_path / "rates.json")
    assert got.trace is not None
    jobs = {job.job_id: job for job in got.trace.jobs}
    assert list(jobs) == ["1", "3", "2"]
    assert (jobs["1"].duration_s, jobs["2"].duration_s) == (250.0, 50.0)
    assert math.isnan(jobs["3"].duration_s)
    assert (jobs["3"].total_steps, jobs["3"].gpus, jobs["3"].arrival_s) == (500.0, 4, 10.5)
    counts = {notice.subject: notice.count for notice in got.notices}
    assert counts == {"of 3 jobs have no duration": 1, "jobs listed after a later one": 1}


def test_without_throughputs_no_duration_is_made_up(tmp_path: Path) -> None:
    got = import_philly(write(tmp_path))
    assert got.trace is not None
    assert all(math.isnan(job.duration_s) for job in got.trace.jobs)
    assert got.notices[0].count == 3


def test_a_device_type_without_throughputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="h100"):
        import_philly(write(tmp_path), throughputs=tmp_path / "rates.json", device_type="h100")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("\t500\t", "\tfive\t", "row 2, column total_steps"),
        ("\t500\t", "\t0\t", "row 2, column total_steps"),
        ("\t20.5\t", "\t20,5\t", "row 2, column arrival"),
        ("\t20.5\t", "\t-1\t", "row 2, column arrival"),
        ("\t4\n", "\t0\n", "row 3, column gpus"),
        ("\t4\n", "\n", "row 3, column gpus: missing"),
        ("\t4\n", "\t4", "row 3: the last row has no line end"),
        ("\t", ",", "row 1: columns separated by commas, not by tabs"),
        ("\t4\n", "\t4\t1\n", "row 3: more fields"),
    ],
)
def test_an_edited_file_is_one_error_that_names_the_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    with pytest.raises(TableError) as caught:
        import_philly(write(tmp_path, LINES.replace(old, new)))
    assert f"some.trace, {place}" in str(caught.value)


@pytest.mark.parametrize(("name", "jobs", "alone"), [("103959", 986, 500), ("7f04ca", 972, 394)])
def test_the_published_files(name: str, jobs: int, alone: int) -> None:
    path = public(f"gavel/philly_{name}.trace")
    got = import_philly(path, throughputs=path.with_name("oracle_throughputs.json"))
    assert got.trace is not None
    assert len(got.trace.jobs) == jobs
    # The oracle file has one-device throughputs only: exactly the one-device jobs get a duration.
    assert sum(not math.isnan(job.duration_s) for job in got.trace.jobs) == alone


@pytest.mark.parametrize(
    ("text", "what", "seen"),
    [
        ('{"jobs": [], "owner": "a"}', "JSON, not rows of columns separated by tabs", "keys seen: jobs, owner"),
        ('[{"jobid": "j1", "user": "u"}]', "JSON, not", "keys seen: jobid, user"),
        ('{"jobid": "j1"}\n{"jobid": "j2"}\n', "JSON, not", "keys seen: jobid"),
        ('[\n  {"jobid": "j1",\n', "JSON, not", "breaks off"),
        ("<!doctype html><p>Not found</p>", "markup", "<!doctype html>"),
        (
            "JobID|Submit|Start|End",
            "separated by vertical bars, not by tabs",
            "columns seen: JobID, Submit, Start, End",
        ),
        ("id,submitted,gpus\nj1,0,1\n", "separated by commas, not by tabs", "columns seen: id, submitted, gpus"),
    ],
)
def test_a_file_of_another_format_is_named_with_what_was_seen_in_it(
    tmp_path: Path, text: str, what: str, seen: str
) -> None:
    with pytest.raises(TableError, match=what) as raised:
        import_philly(write(tmp_path, text))
    assert seen in str(raised.value)
    assert "job_type" in raised.value.remedy


def test_a_trace_whose_last_row_breaks_off_is_still_called_truncated(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="row 3: the last row has no line end: the file is truncated"):
        import_philly(write(tmp_path, LINES.rstrip("\n")))
