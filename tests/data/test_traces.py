"""Traces of jobs: what is written comes back equal; what breaks a law is one error."""

from dataclasses import replace
from pathlib import Path

import pytest

from interfere.data.parquet import write_rows
from interfere.data.traces import TRACE_FILE, JobTrace, TraceJob, VirtualCluster, read_trace, trace_schema, write_trace
from interfere.errors import InvalidInputError, TableError

FIRST = TraceJob(
    job_id="1", workload="A3C", arrival_s=0.0, gpus=1, duration_s=5.0, user="u", vc="v", status="completed"
)
SECOND = TraceJob(job_id="2", workload="", arrival_s=0.0, gpus=8, total_steps=100.0)
CLUSTER = VirtualCluster(vc="v", nodes=2, gpus_per_node=8)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    write_trace(tmp_path / "own", JobTrace(name="own", jobs=(FIRST, SECOND), start_s=1.6e9, clusters=(CLUSTER,)))
    got = read_trace(tmp_path / "own")
    assert (got.name, got.start_s, got.clusters) == ("own", 1.6e9, (CLUSTER,))
    assert got.jobs[0].duration_s == 5.0
    assert got.jobs[0].total_steps != got.jobs[0].total_steps
    assert repr(got.jobs) == repr((FIRST, SECOND))


def test_jobs_out_of_order_twice_or_on_no_device_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="order of arrival"):
        JobTrace(name="x", jobs=(replace(SECOND, arrival_s=2.0), FIRST))
    with pytest.raises(InvalidInputError, match="job is in the trace twice"):
        JobTrace(name="x", jobs=(FIRST, FIRST))
    with pytest.raises(InvalidInputError, match="cluster is in the trace twice"):
        JobTrace(name="x", jobs=(FIRST,), clusters=(CLUSTER, CLUSTER))
    with pytest.raises(InvalidInputError, match="gpus"):
        replace(FIRST, gpus=0)
    with pytest.raises(InvalidInputError, match="nodes"):
        replace(CLUSTER, nodes=0)


def test_a_broken_row_is_one_error_with_its_number(tmp_path: Path) -> None:
    write_trace(tmp_path, JobTrace(name="own", jobs=(FIRST,)))
    row = {"job_id": "3", "workload": None, "arrival_s": 1.0, "gpus": None, "duration_s": None}
    write_rows(tmp_path / TRACE_FILE, [row], trace_schema())
    with pytest.raises(TableError, match=r"trace\.parquet, row 0, column gpus"):
        read_trace(tmp_path)
    write_rows(tmp_path / TRACE_FILE, [row | {"gpus": 1, "arrival_s": 2.0}, row | {"gpus": 1}], trace_schema())
    with pytest.raises(TableError, match="order of arrival"):
        read_trace(tmp_path)


def test_a_folder_without_a_trace_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"interfere data import"):
        read_trace(tmp_path)
