"""Where measured figures go: one JSON line a run in `tests/bench/history.jsonl`, with the commit and the processor.

A time alone says little on a borrowed machine, so every figure has a reference operation of the same run beside it.
"""

import json
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

HISTORY = Path(__file__).with_name("history.jsonl")


def record(name: str, figures: Mapping[str, float], *, history: Path = HISTORY) -> dict[str, object]:
    """Append one line; what was appended."""
    line: dict[str, object] = {
        "bench": name,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "cpu": processor(),
        "python": platform.python_version(),
        "figures": {key: round(value, 6) for key, value in figures.items()},
    }
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return line


def commit() -> str:
    """Short hash of the checkout, `+` when it has changes; empty where there is none."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(["git", *arguments], cwd=HISTORY.parent, capture_output=True, text=True, check=False)
        return ran.stdout.strip() if ran.returncode == 0 else ""

    head = git("rev-parse", "--short", "HEAD")
    return head + "+" if head and git("status", "--porcelain", "--untracked-files=no") else head


def processor() -> str:
    """Its name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def times_s(work: Callable[[], object], repeats: int, *, warm: bool = True) -> list[float]:
    """Time of each call, after one that is not counted."""
    if warm:
        work()
    times = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - start_s)
    return times


def median_s(work: Callable[[], object], repeats: int) -> float:
    """Median time of one call, after one that is not counted."""
    return float(np.median(times_s(work, repeats)))


def reference_s() -> float:
    """The reference operation: a float32 matrix product of 512 × 512."""
    left = np.random.default_rng(0).random((512, 512), dtype=np.float32)
    return median_s(lambda: left @ left, 20)
