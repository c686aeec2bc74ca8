"""A real Slurm, and a real server that knows the four workloads of the tests."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Progress
from interfere.serving.server import RunningServer, start_server
from tests.serving.adapters.slurm.cluster import Cluster
from tests.waiting import free_port

SHIPPED = Path(__file__).parents[4] / "interfere" / "predict" / "default"
DEVICE = "cpu-core"
STEP_S = 0.1  # of every workload alone
# Slowdown of the row beside the column: what every job does to itself. The shipped model knows the four, and expects
# less: 1.26 for gemm beside request-server, 2.05 beside itself, 1.13 for request-server beside rl-rollout, ...
TRUTH = {
    "gemm": {"gemm": 2.4, "resnet-train": 2.5, "request-server": 1.4, "rl-rollout": 1.3},
    "resnet-train": {"gemm": 2.5, "resnet-train": 2.5, "request-server": 1.55, "rl-rollout": 1.45},
    "request-server": {"gemm": 1.2, "resnet-train": 1.35, "request-server": 1.15, "rl-rollout": 1.2},
    "rl-rollout": {"gemm": 1.15, "resnet-train": 1.2, "request-server": 1.3, "rl-rollout": 1.15},
}

# ... and one that no model has heard of.
TABLE = {name: row | {"mine": 1.3} for name, row in TRUTH.items()} | {"mine": dict.fromkeys([*TRUTH, "mine"], 1.4)}


def needs_slurm() -> None:
    """Skip without the daemons; where REQUIRE_ALL is set (CI) that is a failure."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "scontrol") if not shutil.which(name)]
    packages = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
    why = f"Slurm is missing ({', '.join(missing)}): apt-get install {packages}"
    if not missing and os.getuid() != 0:
        missing, why = ["root"], "Slurm's daemons of these tests run as root"
    if missing and os.environ.get("REQUIRE_ALL"):
        pytest.fail(why)
    if missing:
        pytest.skip(why)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start clusters, each stopped at the end."""
    needs_slurm()
    started: list[Cluster] = []

    def start(name: str = "cluster", **options: object) -> Cluster:
        one = Cluster(**({"folder": tmp_path / name} | options))  # type: ignore[arg-type]
        started.append(one)
        one.start()
        (one.shared / "table.json").write_text(json.dumps(TABLE))
        return one

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """The shipped model, which knows the four workloads and its own measurements of them, and how fast each ran alone
    here: what their steps beside others are measured against."""
    running = start_server(Settings(model=SHIPPED, work=tmp_path / "work", port=free_port(), grace_s=1.0))
    with PolicyClient(running.address) as client:
        client.observe(
            [
                Progress(
                    observation_id=f"earlier/{name}",
                    job_id="earlier",
                    workload=name,
                    device_type=DEVICE,
                    start_s=0.0,
                    end_s=60.0,
                    steps=60.0 / STEP_S,
                )
                for name in TRUTH
            ]
        )
    yield running
    running.stop()
