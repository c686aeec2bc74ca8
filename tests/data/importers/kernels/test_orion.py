"""Orion's kernel profiles: laws on small files in the format, and the real ones."""

import math
from pathlib import Path

import pytest

from interfere.data.importers.kernels.kernel_files import import_kernels
from interfere.errors import InvalidInputError, TableError
from tests.data.importers.public_files import public

HEAD = "Name,Profile,Memory_footprint,SM_usage,Duration\n"
ROWS = "Conv,1,0,98,1000\nConv,1,0,98,3000\nConv,1,0,49,500\nBatchNorm,0,0,2862,2000\nvoid at::native::x,-1,0,1,10\n"


def write(folder: Path, text: str = HEAD + ROWS, name: str = "net_4_fwd.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_launches_of_one_identity_are_one_kernel_with_mean_spread_and_count(tmp_path: Path) -> None:
    got = import_kernels("orion", write(tmp_path))
    (job,) = got.jobs
    assert (job.workload, job.device_type, job.source) == ("net_4_fwd", "v100", "orion")
    first, narrow, norm, other = job.kernels
    assert (first.name, first.sm_used, first.count, first.compute_bound) == ("Conv", 98.0, 2.0, 1.0)
    assert first.mean_s == pytest.approx(2e-6)
    assert first.sd_s == pytest.approx(math.sqrt(2) * 1e-6)
    assert (narrow.sm_used, narrow.count) == (49.0, 1.0)
    assert math.isnan(narrow.sd_s)
    assert (norm.compute_bound, norm.sm_used) == (0.0, 2862.0)
    assert math.isnan(other.compute_bound)
    assert {notice.subject: notice.count for notice in got.notices} == {
        "of 5 launches are of unknown kind": 1,
        "profiles whose step time is the sum of their kernels": 1,
    }


def test_the_sum_of_the_kernels_stands_in_for_an_unmeasured_step_time(tmp_path: Path) -> None:
    path = write(tmp_path)
    (summed,) = import_kernels("orion", path).jobs
    assert summed.step_time_s == pytest.approx(6.51e-6)
    assert math.isnan(summed.busy_frac)
    (timed,) = import_kernels("orion", path, step_time_s=13.02e-6).jobs
    assert timed.step_time_s == 13.02e-6
    assert timed.busy_frac == pytest.approx(0.5)
    (overlapping,) = import_kernels("orion", path, step_time_s=1e-6).jobs
    assert math.isnan(overlapping.busy_frac)


def test_a_folder_is_one_profile_a_file(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, name="other.csv")
    assert [job.workload for job in import_kernels("orion", tmp_path, device_type="h100").jobs] == [
        "net_4_fwd",
        "other",
    ]
    with pytest.raises(InvalidInputError, match="one file"):
        import_kernels("orion", tmp_path, name="mine")
    with pytest.raises(InvalidInputError, match="one file"):
        import_kernels("orion", tmp_path, step_time_s=1.0)
    assert import_kernels("orion", tmp_path / "other.csv", name="mine").jobs[0].workload == "mine"
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=r"no \*\.csv in the folder"):
        import_kernels("orion", tmp_path / "empty")


def test_a_footprint_of_unknown_unit_is_counted_and_left_out(tmp_path: Path) -> None:
    got = import_kernels("orion", write(tmp_path, HEAD + "Conv,1,64,98,1000\n"))
    assert math.isnan(got.jobs[0].memory_peak_bytes)
    assert any("footprint" in notice.subject for notice in got.notices)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("1,0,98,3000", "2,0,98,3000", "row 3, column Profile"),
        ("1,0,98,3000", "1,0,many,3000", "row 3, column SM_usage"),
        ("1,0,98,3000", "1,0,0,3000", "row 3, column SM_usage"),
        ("1,0,98,3000", "1,0,98,0", "row 3, column Duration"),
        ("1,0,98,3000", "1,0,98,nan", "row 3, column Duration"),
        ("1,0,98,3000", "1,0,98", "row 3, column Duration: missing"),
        ("Duration", "Duration_ns", "row 1, column Duration: missing"),
    ],
)
def test_an_edited_file_is_one_error_that_names_the_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    with pytest.raises(TableError) as caught:
        import_kernels("orion", write(tmp_path, (HEAD + ROWS).replace(old, new)))
    assert f"net_4_fwd.csv, {place}" in str(caught.value)


def test_the_published_files() -> None:
    got = import_kernels("orion", public("orion"))
    assert len(got.jobs) == 6
    for job in got.jobs:
        assert job.step_time_s == pytest.approx(math.fsum(k.count * k.mean_s for k in job.kernels))
    assert sum(k.count for job in got.jobs for k in job.kernels) == 7512
