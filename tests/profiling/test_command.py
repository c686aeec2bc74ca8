"""`interfere profile` as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.data.tables import read_table
from interfere.profiling.workloads import BUILT_IN

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")

MY_JOBS = """
import time
from interfere.profiling import Workload

def nap():
    def build():
        def step(pause):
            print("the user's own words")
            sum(range(20_000))
            pause(0.002)
        return step
    return Workload(name="nap", description="counts and naps", build=build)
"""


def interfere(*arguments: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "interfere", "profile", *map(str, arguments)]
    environment = {**os.environ, **env}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240)


def test_workloads_lists_the_built_ins(tmp_path: Path) -> None:
    listed = json.loads(interfere("workloads", "--json", cwd=tmp_path).stdout)["workloads"]
    assert [row["name"] for row in listed] == list(BUILT_IN)
    assert "resnet-train" in interfere("workloads", cwd=tmp_path).stdout


def test_solo_of_a_users_job_in_the_current_folder_beside_a_hostile_one(tmp_path: Path) -> None:
    (tmp_path / "my_jobs.py").write_text(MY_JOBS)
    for name in ("training", "numpy"):  # folders that would hide a library, were the current folder first on the path
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('hostile code ran')")
    done = interfere(
        "solo",
        "--jobs",
        "my_jobs:nap,gemm",
        "--core",
        max(os.sched_getaffinity(0)),
        "--solo-s",
        "0.5",
        "--json",
        cwd=tmp_path,
        INTERFERE_WORK=str(tmp_path / "work"),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    folder = tmp_path / "work" / "tables" / "alone"
    assert document["table"] == str(folder)
    assert [job["workload"] for job in document["jobs"]] == ["my_jobs:nap", "gemm"]
    assert read_table(folder).pairs == ()
    assert "the user's own words" in (folder / "raw" / "workers.log").read_text()
    shown = interfere("solo", "--jobs", "my_jobs:nap,gemm", cwd=tmp_path, INTERFERE_WORK=str(tmp_path / "work"))
    assert "my_jobs:nap" in shown.stdout


def test_pairs_measures_the_chosen_ones(tmp_path: Path) -> None:
    arguments = (
        "pairs",
        "gemm+request-server",
        "gemm+gemm",
        "--quick",
        "--passes",
        "1",
        "--block-s",
        "0.8",
        "--seed",
        "3",
        "--solo-s",
        "0.5",
        "--name",
        "few",
        "--work",
        tmp_path / "w",
    )
    done = interfere(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one CPU core, time-sliced" in done.stdout
    rows = {(p.victim, p.neighbour) for p in read_table(tmp_path / "w" / "tables" / "few").pairs}
    assert rows == {("gemm", "request-server"), ("request-server", "gemm"), ("gemm", "gemm")}
    assert " left" in done.stderr, "progress goes to standard error"
    fresh = interfere(*arguments, "--fresh", "--json", cwd=tmp_path)
    assert fresh.returncode == 1
    assert json.loads(fresh.stdout)["error"]["code"] == "ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        (("campaign", "--jobs", "gemn"), "no such workload: gemn", 1),
        (("pairs", "gemm"), "not a pair", 1),
        (("campaign", "--core", "4096"), "core 4096", 1),
        (("campaign", "--out", "/proc/nowhere"), "cannot write here", 1),
        (("campaign", "--max-blocks", "0"), "--max-blocks", 2),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...], said: str, status: int
) -> None:
    done = interfere(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.parquet"))
