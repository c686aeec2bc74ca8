"""One round of the Slurm advisor over 1,000 pending jobs: a Slurm of files, a real server with the shipped model."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import SHIPPED_MODEL, Settings
from interfere.serving.adapters.slurm.port import slurm_advisor, slurm_metrics
from interfere.serving.adapters.slurm.scontrol import SlurmCommands
from interfere.serving.adapters.slurm.settings import DeviceRule, SlurmSettings
from interfere.serving.server import start_server
from tests.bench.history import record, reference_s
from tests.serving.adapters.slurm.shims import fake, told
from tests.serving.adapters.slurm.thousand import jobs_and_nodes

pytestmark = pytest.mark.bench
LIMIT_S = 5.0  # of a round, with 1,000 pending jobs


def test_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake(tmp_path / "slurm", *jobs_and_nodes())
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    running = start_server(Settings(model=SHIPPED_MODEL, work=tmp_path / "work", port=0))
    settings = SlurmSettings(devices=(DeviceRule(type="cpu-core"),), spool=tmp_path, server=running.address)
    times, lines = [], 0
    with PolicyClient(running.address) as client:
        for _ in range(4):
            slurm = SlurmCommands(5.0)
            advisor = slurm_advisor(settings, slurm, client, slurm_metrics(), dry_run=False)  # as after a restart
            start_s = time.perf_counter()
            advisor.round()
            times.append(time.perf_counter() - start_s)
            lines = len(told(folder))
    running.stop()
    median_s, base_s = float(np.median(times[1:])), reference_s()
    record(
        "slurm advisor round 1000 pending 128 gpus",
        {
            "first_s": times[0],
            "median_s": median_s,
            "scontrol_lines": lines,
            "limit_s": LIMIT_S,
            "reference_s": base_s,
            "median_per_reference": median_s / base_s,
        },
    )
    print(f"slurm advisor round: {median_s:.3f} s, {lines} updates")
