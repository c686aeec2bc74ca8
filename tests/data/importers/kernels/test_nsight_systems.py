"""Nsight Systems exports: real SQLite files with NVIDIA's published schema, written here; none comes from a GPU."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from interfere.data.importers.kernels.kernel_files import import_kernels
from interfere.errors import TableError

SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, registersPerThread INTEGER, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, "end" INTEGER, eventType INTEGER, text TEXT, textId INTEGER);
"""


def report(path: Path, *, gpu: str = "NVIDIA H100 80GB HBM3", devices: tuple[int, ...] = (0,)) -> Path:
    """Two steps of 1,000 ns: a kernel of 300 ns, a gap of 100 ns, a copy of 200 ns."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA)
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(1, "void gemm<float>(int)"), (2, "gemm"), (3, "step")]
        )
        for device in devices:
            for begin in (5_000, 6_000):
                row = (begin, begin + 300, device, 1, 7, 1, 1, 1, 2, 32, 132, 1, 1, 256, 1, 1)
                database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 16)})", row)
                copy = (begin + 400, begin + 600, device, 4096, 1)
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?)", copy)
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, ?, 132)", (gpu,))
        marks = [(5_000, 6_000, 59, "step", None), (6_000, 7_000, 59, None, 3), (5_100, 5_200, 59, "other", None)]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", marks)
        database.commit()
    return path


def test_a_report_becomes_a_profile(tmp_path: Path) -> None:
    got = import_kernels("nsys", report(tmp_path / "llama.sqlite"), step_range="step")
    (job,) = got.jobs
    assert (job.workload, job.device_type, job.source) == ("llama", "h100", "nsys")
    assert job.step_time_s == pytest.approx(1e-6)
    gemm, copy = job.kernels
    assert (gemm.name, gemm.grid, gemm.block, gemm.count) == ("void gemm<float>(int)", (132, 1, 1), (256, 1, 1), 1.0)
    assert (gemm.mean_s, gemm.gap_s) == (pytest.approx(300e-9), pytest.approx(100e-9))
    assert (copy.name, copy.bytes) == ("memcpy", 4096.0)
    assert job.busy_frac == pytest.approx(0.5)
    assert "never yet from a report of a GPU of ours" in " ".join(got.format_notes)


def test_without_marked_steps_their_number_counts(tmp_path: Path) -> None:
    path = report(tmp_path / "r.sqlite", devices=(0, 1))
    got = import_kernels("nsys", path, steps=2, name="mine", device_type="h100-pcie")
    (job,) = got.jobs
    assert (job.workload, job.device_type) == ("mine", "h100-pcie")
    assert job.step_time_s == pytest.approx(800e-9), "from the first launch to the last, two steps"
    assert [notice.count for notice in got.notices] == [1, 1, 1]


def test_a_report_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = report(tmp_path / "r.sqlite")
    with pytest.raises(TableError, match=r"r.sqlite, table NVTX_EVENTS: no such range"):
        import_kernels("nsys", path, step_range="epoch")
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM TARGET_INFO_GPU")
        database.commit()
    with pytest.raises(TableError, match="does not name its GPU"):
        import_kernels("nsys", path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        database.commit()
    with pytest.raises(TableError, match="table CUPTI_ACTIVITY_KIND_KERNEL: missing"):
        import_kernels("nsys", path)
    path.write_bytes(b"no database, but long enough to be taken for one" * 100)
    with pytest.raises(TableError, match="not a readable SQLite export"):
        import_kernels("nsys", path)
    with pytest.raises(TableError, match="cannot be read"):
        import_kernels("nsys", tmp_path / "none.sqlite")
