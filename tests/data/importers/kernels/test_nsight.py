"""Nsight Compute's CSV in its raw and details pages and as a derivative: laws on small files, and a real one."""

import math
from pathlib import Path

import pytest

from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.kernels.kernel_files import import_kernels
from interfere.errors import InvalidInputError, TableError
from tests.data.importers.public_files import public

RAW = """==PROF== Connected to process 42
loss 0.5
"ID","Process ID","Kernel Name","Block Size","Grid Size","device__attribute_display_name","dram__bytes_read.sum",\
"dram__bytes_write.sum","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum",\
"sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","Kbyte","byte","%","usecond","%","%"
"0","42","gemm","(128, 1, 1)","(80, 2, 1)","NVIDIA A100-SXM4-40GB","2,000.00","500","40","1,000.50","30","50"
"1","42","gemm","(128, 1, 1)","(80, 2, 1)","NVIDIA A100-SXM4-40GB","2,000.00","500","60","2,000.50","50","n/a"
"2","42","gemm","(128, 1, 1)","(1, 1, 1)","NVIDIA A100-SXM4-40GB","n/a","500","1","10","1","2"
==PROF== Disconnected from process 42
"""
LONG_HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)


def line(launch: int, metric: str, unit: str, value: str, kernel: str = "gemm") -> str:
    return (
        f'"{launch}","42","p","h","{kernel}","1","7","(128, 1, 1)","(80, 2, 1)","0","8.0","Speed Of Light",'
        f'"{metric}","{unit}","{value}"\n'
    )


LONG = LONG_HEAD + "".join(
    line(launch, *metric)
    for launch, us in ((0, "1,000.50"), (1, "2,000.50"))
    for metric in (
        ("Duration", "us", us),
        ("DRAM Throughput", "%", "40"),
        ("DRAM Throughput", "Gbyte/s", "999.5"),
        ("Compute (SM) Throughput", "%", "30"),
        ("Achieved Occupancy", "%", "50"),
        ("Registers Per Thread", "register/thread", "64"),
    )
)


def read(folder: Path, text: str, **options: object) -> ImportResult:
    (folder / "net.csv").write_text(text)
    return import_kernels("nsight", folder / "net.csv", **options)  # type: ignore[arg-type] # options by name, for brevity


def counts(imported: ImportResult) -> dict[str, int]:
    return {notice.subject: notice.count for notice in imported.notices}


def test_the_raw_page_with_its_units(tmp_path: Path) -> None:
    got = read(tmp_path, RAW)
    (job,) = got.jobs
    assert (job.workload, job.device_type, job.source) == ("net", "a100", "nsight")
    gemm, small = job.kernels
    assert (gemm.name, gemm.grid, gemm.block, gemm.count) == ("gemm", (80, 2, 1), (128, 1, 1), 2.0)
    assert gemm.mean_s == pytest.approx(1.5005e-3)
    assert gemm.sd_s == pytest.approx(math.sqrt(0.5) * 1e-3)
    assert gemm.bytes == pytest.approx(2_000_500)
    assert (gemm.memory_frac, gemm.compute_frac, gemm.occupancy_frac) == pytest.approx((0.5, 0.4, 0.5))
    assert (small.grid, small.count) == ((1, 1, 1), 1.0)
    assert math.isnan(small.bytes)
    assert job.step_time_s == pytest.approx(3.011e-3)
    assert counts(got)["lines outside of the table"] == 3
    assert counts(got)["values that Nsight Compute could not give"] == 2


def test_the_details_page_says_the_same(tmp_path: Path) -> None:
    (job,) = read(tmp_path, LONG, device_type="a100").jobs
    (gemm,) = job.kernels
    assert (gemm.grid, gemm.block, gemm.count) == ((80, 2, 1), (128, 1, 1), 2.0)
    assert gemm.mean_s == pytest.approx(1.5005e-3)
    assert (gemm.memory_frac, gemm.compute_frac, gemm.occupancy_frac) == pytest.approx((0.4, 0.3, 0.5))


def test_a_derivative_with_renamed_columns(tmp_path: Path) -> None:
    head = "id,Kernel Name,duration,Compute throughput,DRAM throughput,Achieved occupancy,slowdown\n"
    text = head + "1,gemm,2000,30,40,50,1.7\n"
    got = read(tmp_path, text, device_type="a100")
    (gemm,) = got.jobs[0].kernels
    assert (gemm.mean_s, gemm.compute_frac, gemm.memory_frac) == pytest.approx((2e-6, 0.3, 0.4))
    assert counts(got)["columns of net.csv: id, slowdown"] == 2


def test_several_steps_in_one_file_are_counted_by_step(tmp_path: Path) -> None:
    (job,) = read(tmp_path, RAW, steps=2).jobs
    assert [kernel.count for kernel in job.kernels] == [1.0, 0.5]
    assert job.step_time_s == pytest.approx(1.5055e-3)
    (timed,) = read(tmp_path, RAW, steps=2, step_time_s=3.011e-3).jobs
    assert timed.busy_frac == pytest.approx(0.5)


def test_names_too_long_for_a_record_are_cut_and_stay_distinct(tmp_path: Path) -> None:
    one, two = "void k<" + "float, " * 60 + "1>", "void k<" + "float, " * 60 + "2>"
    text = LONG_HEAD + line(0, "Duration", "us", "1", one) + line(1, "Duration", "us", "1", two)
    got = read(tmp_path, text, device_type="a100")
    names = [kernel.name for kernel in got.jobs[0].kernels]
    assert len(set(names)) == 2
    assert all(len(name) == 256 for name in names)
    assert counts(got)["launches with a name that is too long"] == 2


def test_a_file_that_names_no_device_needs_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="--device-type"):
        read(tmp_path, LONG)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (RAW.replace('"1,000.50"', '"1.000,50"'), "row 5, column gpu__time_duration.sum: a number"),
        (RAW.replace('"1,000.50"', '"-3"'), "row 5, column gpu__time_duration.sum: out of range"),
        (RAW.replace('"1,000.50"', '"1e309"'), "row 5, column gpu__time_duration.sum: out of range"),
        (RAW.replace('"1,000.50"', '"n/a"'), "row 5, column Kernel Name: this launch has no duration"),
        (RAW.replace("usecond", "fortnight"), "row 5, column gpu__time_duration.sum: unit"),
        (RAW.replace('"40","1,000.50"', '"400","1,000.50"'), "row 5, column gpu__dram_throughput"),
        (RAW.replace("gpu__time_duration.sum", "time"), "column gpu__time_duration.sum: missing"),
        (RAW.replace("(80, 2, 1)", "80x2", 1), "row 5, column Grid Size"),
        (RAW.replace("(80, 2, 1)", "(99999999999, 2, 1)", 1), "row 5, column Grid Size"),
        (RAW.replace('"Kernel Name"', '"Kernel"'), "column Kernel Name: missing"),
        (RAW.replace('"30","50"', '"30"'), "row 5, column sm__warps_active"),
        (RAW.replace('"ID","Process ID"', '"ID","ID"'), "row 3, column ID: named twice"),
        (RAW[: RAW.index('"1","42"')].rsplit('"0"', 1)[0], "row 4: no launches"),
        (RAW[: RAW.index("(128, 1, 1)") + 3], "the last row has no line end"),
        (LONG[:-3], "row 13: the last row has no line end"),
        (LONG.replace('"Metric Unit"', '"Unit"'), "column Metric Unit: missing"),
        (LONG + line(0, "Duration", "us", "1"), "row 14, column ID: a launch that ended above"),
        (LONG + line(1, "Duration", "us", "1"), "row 14, column Metric Name: given twice"),
        (LONG + line(1, "Duration", "us", "1", "conv"), "row 14, column Kernel Name: another kernel"),
        (LONG_HEAD, "row 2: no rows"),
        ("nothing of the kind\n", "column Kernel Name: missing"),
    ],
)
def test_an_edited_file_is_one_error_that_names_the_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(TableError) as caught:
        read(tmp_path, text, device_type="a100")
    assert "net.csv, row" in str(caught.value)
    assert place in str(caught.value)
    assert caught.value.remedy


def test_the_published_derivative() -> None:
    (job,) = import_kernels("nsight", public("echo/merged_features.csv"), device_type="a100").jobs
    assert sum(kernel.count for kernel in job.kernels) == 619
    assert len(job.kernels) == 26
    assert job.step_time_s == pytest.approx(math.fsum(k.count * k.mean_s for k in job.kernels))
    assert all(0 <= kernel.memory_frac <= 1 for kernel in job.kernels)
