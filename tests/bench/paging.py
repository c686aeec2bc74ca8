"""The price of paging: how much slower two jobs step whose working sets together exceed the memory of their device.

    python -m tests.bench.paging [ROUNDS]

The device is a memory control group; there is no swap, so a working set is a map of a file, pages of which the kernel
drops at the limit and reads again. At oversubscription ratio ρ each of two jobs has a working set of ρ · memory / 2,
and reads all of it again and again, in blocks in random order, as passes over the parameters of a model would. What the
interpreters hold beside their maps is measured first, and added to the limit.

price(ρ) = (seconds a byte at ρ) / (seconds a byte at ρ = `RESIDENT`), the median over rounds and both jobs. Seconds in
which a job was ready and waited for a core (/proc/self/schedstat) do not count, so that other work on the machine is
left out; seconds in which it waits for pages do. Two jobs run at both ratios, so what they take from each other
otherwise is in both. "read again" is the share of the bytes that was
read from disk, with what the kernel reads around a fault, by the group's `total_pgpgin`.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from interfere.monitoring.job_memory import MemoryCgroup, cgroup_of

MIB = 2**20
DEVICE_MIB, BLOCK_BYTES = 128, 256 << 10
RESIDENT = 0.75
RATIOS = (RESIDENT, 0.95, 1.05, 1.25, 1.5, 2.0)
WINDOW_S = 4.0


def read_for(blocks: np.ndarray, rng: np.random.Generator, seconds: float) -> tuple[float, int]:
    """Read blocks for some seconds, each once before any again; the seconds without waits for a core, and the bytes."""
    start_s, waited_s, count = time.monotonic(), core_wait_s(), 0
    while time.monotonic() - start_s < seconds:
        for k in rng.permutation(len(blocks)):
            blocks[k].sum(dtype=np.int64)
            count += 1
            if time.monotonic() - start_s >= seconds:
                break
    return time.monotonic() - start_s - (core_wait_s() - waited_s), count * BLOCK_BYTES


def core_wait_s() -> float:
    """Return the seconds for which this process was ready to run and waited for a core."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def job(file: Path, seconds: float) -> None:
    """Read a mapped file to warm up, then as long again; print the seconds and the bytes of the second time."""
    blocks = np.memmap(file, dtype=np.int32, mode="r").reshape(-1, BLOCK_BYTES // 4)
    rng = np.random.default_rng(os.getpid())
    read_for(blocks, rng, seconds)
    print("warm", flush=True)
    sys.stdin.readline()
    print(*read_for(blocks, rng, seconds), flush=True)


def together(group: MemoryCgroup, files: list[Path]) -> tuple[float, float, float]:
    """Return the seconds a byte of two jobs that run at once in the group, the share of their bytes that was read
    again, and the bytes that the group holds beside the maps."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.bench.paging", "job", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=group.enter,  # noqa: PLW1509 - one thread
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        for file in files
    ]
    for each in running:
        assert each.stdout is not None
        assert each.stdout.readline() == "warm\n"
    sizes = [file.stat().st_size for file in files]
    before, beside = pages_in(group), group.working_set_bytes() - sum(sizes)
    for each in running:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    took = [tuple(map(float, each.communicate()[0].split())) for each in running]
    read_bytes = (pages_in(group) - before) * os.sysconf("SC_PAGE_SIZE")
    passed_bytes = sum(own for _, own in took)
    return median(seconds / own for seconds, own in took), read_bytes / passed_bytes, beside


def pages_in(group: MemoryCgroup) -> int:
    """Return how many pages the group was charged for since it was made."""
    rows = dict(line.split() for line in (group.folder / "memory.stat").read_text().splitlines())
    return int(rows["total_pgpgin"])


def measure(folder: Path, ratio: float, beside_bytes: float) -> tuple[float, float, float]:
    """Return what `together` does for two jobs at a ratio, in a new group of the device's memory."""
    own = cgroup_of(os.getpid())
    assert own is not None, "no memory controller of version 1 here"
    files = [folder / f"{k}" for k in range(2)]
    for file in files:
        file.write_bytes(os.urandom(BLOCK_BYTES) * max(1, round(ratio * DEVICE_MIB * MIB / 2 / BLOCK_BYTES)))
    os.sync()
    for file in files:  # what writing left in the page cache is not charged to the group
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    group = own.child(f"paging-{os.getpid()}", DEVICE_MIB * MIB + beside_bytes)
    try:
        return together(group, files)
    finally:
        group.remove()


def main(rounds: int) -> None:
    """Measure all ratios in every round, and print the table."""
    cells: dict[float, list[tuple[float, float]]] = {ratio: [] for ratio in RATIOS}
    with tempfile.TemporaryDirectory() as name:
        *_, beside_bytes = measure(Path(name), 0.01, DEVICE_MIB * MIB)
        for _ in range(rounds):
            for ratio in RATIOS:
                cells[ratio].append(measure(Path(name), ratio, beside_bytes)[:2])
                cost, share = cells[ratio][-1]
                print(
                    f"{ratio:.2f}: {cost * 2**30 * 1e3:.0f} ms/GiB, {share:.0%} read again", file=sys.stderr, flush=True
                )
    base = median(cost for cost, _ in cells[RESIDENT])
    print(f"{beside_bytes / MIB:.0f} MiB beside the maps")
    print("ratio   ms/GiB   price   read again")
    for ratio, measured in cells.items():
        cost, share = (median(column) for column in zip(*measured, strict=True))
        print(f"{ratio:5.2f} {cost * 2**30 * 1e3:8.0f} {cost / base:7.2f} {share:12.0%}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job(Path(sys.argv[2]), WINDOW_S)
    else:
        main(int((sys.argv[1:] or ["3"])[0]))
