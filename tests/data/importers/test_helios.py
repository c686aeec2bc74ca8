"""Helios job traces: laws on small files in the format, and the real one."""

import math
from pathlib import Path

import pytest

from interfere.data.importers.published_traces import import_helios
from interfere.data.traces import JobTrace, VirtualCluster
from interfere.errors import TableError
from tests.data.importers.public_files import public

HEAD = "job_id,user,vc,gpu_num,cpu_num,state,submit_time,duration,dataset,model,batchsize,amp,speed\n"
ROWS = (
    "1,ann,vcA,1,4,COMPLETED,2020-09-01 00:00:10,60,CIFAR-10,VGG,32,1,100.0\n"
    "2,bob,vcB,8,4,FAILED,2020-09-01 00:00:10,0,LSUN,DCGAN,64,0,100.0\n"
    "3,bob,vcA,0,4,COMPLETED,2020-09-01 00:00:00,5,LSUN,DCGAN,64,0,100.0\n"
    "4,bob,vcA,64,4,CANCELLED,2020-09-01 00:00:05,5,LSUN,DCGAN,64,0,100.0\n"
)


def read(folder: Path, text: str = HEAD + ROWS, config: str = "vc,num\nvcA,2\n") -> tuple[JobTrace, dict[str, int]]:
    (folder / "jobs.csv").write_text(text)
    (folder / "vc.csv").write_text(config)
    got = import_helios(folder / "jobs.csv", vc_config=folder / "vc.csv")
    assert got.trace is not None
    return got.trace, {notice.subject: notice.count for notice in got.notices}


def test_jobs_come_in_order_of_arrival_with_the_names_of_lucids_pairs(tmp_path: Path) -> None:
    trace, _ = read(tmp_path)
    assert [(job.job_id, job.arrival_s) for job in trace.jobs] == [("4", 0.0), ("1", 5.0), ("2", 5.0)]
    assert trace.start_s == 1598918405.0
    job = trace.jobs[1]
    assert job.workload == "VGG CIFAR-10 bs32 amp1"
    assert (job.gpus, job.duration_s, job.user, job.vc, job.status) == (1, 60.0, "ann", "vcA", "completed")
    assert trace.clusters == (VirtualCluster(vc="vcA", nodes=2, gpus_per_node=8),)


def test_every_row_that_is_not_as_published_is_counted(tmp_path: Path) -> None:
    _, found = read(tmp_path)
    assert found == {
        "jobs without a GPU": 1,
        "jobs in the same second as an earlier one": 1,
        "jobs listed after a later one": 1,
        "jobs of a virtual cluster that the configuration lacks": 1,
        "jobs that ask for more devices than their virtual cluster has": 1,
        "columns: cpu_num, speed": 2,
    }


def test_a_file_without_configurations_leaves_the_workload_open(tmp_path: Path) -> None:
    lines = [line.split(",")[:8] for line in (HEAD + ROWS).splitlines()]
    trace, found = read(tmp_path, "".join(",".join(line) + "\n" for line in lines))
    assert {job.workload for job in trace.jobs} == {""}
    assert found["jobs without a named configuration"] == 3


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("2020-09-01 00:00:05", "01.09.2020 00:00", "row 5, column submit_time"),
        (",60,", ",-60,", "row 2, column duration"),
        (",60,", ",1e999,", "row 2, column duration"),
        ("vcB,8", "vcB,8.5", "row 3, column gpu_num"),
        ("2,bob", "1,bob", "row 3, column job_id: a second row"),
        ("4,bob,vcA,64", "4,bob,vcA", "row 5, column speed: missing"),
        ("submit_time", "submitted", "row 1, column submit_time: missing"),
    ],
)
def test_an_edited_file_is_one_error_that_names_the_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    with pytest.raises(TableError) as caught:
        read(tmp_path, (HEAD + ROWS).replace(old, new))
    assert f"jobs.csv, {place}" in str(caught.value)


def test_a_virtual_cluster_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"vc\.csv, row 3, column vc"):
        read(tmp_path, config="vc,num\nvcA,2\nvcA,3\n")


def test_the_published_file() -> None:
    path = public("venus/jobs_4vc.csv")
    got = import_helios(path, vc_config=path.with_name("vc_config.csv"))
    assert got.trace is not None
    assert len(got.trace.jobs) == 8104
    assert {(c.vc, c.nodes) for c in got.trace.clusters} == {("vcWoR", 5), ("vcvGl", 20), ("vcKeu", 12), ("vcYVn", 11)}
    assert not any(math.isnan(job.duration_s) for job in got.trace.jobs)
    assert len({job.workload for job in got.trace.jobs}) == 66
