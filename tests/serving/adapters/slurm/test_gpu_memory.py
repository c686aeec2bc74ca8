"""What Slurm's jobs hold on a GPU: nvidia-smi is recorded, Slurm's commands answer from files, the rest is real."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.records import MemoryUsage
from interfere.serving.adapters.node.agent import MeasuredJobs, SlurmJobs
from interfere.serving.adapters.slurm.jobs import GpuAddress, Note
from interfere.serving.adapters.slurm.port import slurm_advisor, slurm_metrics
from interfere.serving.adapters.slurm.scontrol import SlurmCommands
from interfere.serving.adapters.slurm.settings import DeviceRule
from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.facts import SETTINGS, job_row, node_row, sinfo, squeue
from tests.serving.adapters.slurm.shims import fake, told
from tests.waiting import wait_until

GIB = 2**30
UUID = "GPU-5ad6e4f2-0c1d-4b9e-8f6a-2d7c1e3b4a59"
# As `scontrol listpids JOB NODE` and `nvidia-smi --query-compute-apps --format=csv,noheader,nounits` print them.
SCONTROL = """#!/bin/sh
if [ "$1" = listpids ]; then
    echo "PID      JOBID    STEPID   LOCALID GLOBALID"
    echo "10$2      $2        batch    0       0"
elif [ "$1" = notify ]; then
    echo "$*" >> {folder}/told
else
    cat >> {folder}/told
fi
"""
SMI = """#!{python}
import sys
from pathlib import Path
if "--id={uuid}" not in sys.argv:
    sys.exit("no devices were found")
print(Path({table!r}).read_text(), end="")
"""
GRANTING = replace(
    SETTINGS,
    devices=(DeviceRule(type="cpu-core", memory_gib=80.0, granule_gib=10.0),),
    grant_patience_s=1.0,
    report_every_s=0.3,
)


def slurm_of(folder: Path, gres: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two jobs of 10 GiB each on one GPU; the folder of Slurm's commands, and the file of the driver's answer."""
    rows = []
    for job_id in (1, 2):
        note = Note(state="placed", to=GpuAddress("n0", gres), tries=1, grant_bytes=10 * GIB)
        running = {"job_state": "RUNNING", "nodes": "n0", "gres_detail": [f"shard:{gres}:1(IDX:0)"]}
        started = {"start_time": int(time.time()) - 60, "admin_comment": str(note)}
        rows.append(job_row(job_id, "rl-rollout", **running, **started))
    nodes = sinfo([node_row("n0", gres=f"gpu:{gres}:1,shard:{gres}:4")])
    commands, table = fake(folder / "slurm", squeue(rows), nodes), folder / "table.csv"
    for name, text in (
        ("scontrol", SCONTROL.format(folder=commands)),
        ("nvidia-smi", SMI.format(python=sys.executable, uuid=UUID, table=str(table))),
    ):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return commands, table


@pytest.mark.parametrize(("gres", "uuid_of"), [("g0", {"g0": UUID}), (UUID, {})], ids=["named", "type is the UUID"])
def test_a_job_above_its_grant_on_the_gpu_is_warned_and_cancelled(
    gres: str,
    uuid_of: dict[str, str],
    server: RunningServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands, table = slurm_of(tmp_path, gres, monkeypatch)
    settings = replace(GRANTING, server=server.address, spool=tmp_path)
    with PolicyClient(server.address, timeout_s=60.0) as client:
        agent = MeasuredJobs(SlurmJobs(settings, "n0", uuid_of), settings, 60.0, enforce=True)
        advisor = slurm_advisor(settings, SlurmCommands(60.0), client, slurm_metrics(), dry_run=False)
        # 1. Both hold what they were granted; a process of nobody holds much.
        table.write_text("101, python3, 9000\n102, python3, 10240\n777, python3, 50000\n")
        for _ in range(3):
            assert agent.report(client) == {}
            advisor.round()
            time.sleep(0.1)
        # 2. One takes more on the GPU; its processes on the host do not even exist here.
        table.write_text("101, python3, 12288\n102, python3, 10240\n777, python3, 50000\n")
        warned, lines = dict[str, str](), list[str]()

        def cancelled() -> bool:
            warned.update(agent.report(client))
            advisor.round()
            lines.extend(told(commands))
            time.sleep(0.2)
            return any(line.startswith("scancel") for line in lines)

        wait_until(cancelled, "the job is cancelled")
        observed = [entry.observation for entry in client.observation_log(limit=1000).entries]
    # 3. It was warned before, the reason says what it held, and nobody else was told or ended.
    assert set(warned) == {"1"}
    assert "it holds 12 GiB, more than the 10.5 GiB that its grant allows" in warned["1"]
    assert [line for line in lines if line.startswith("scancel")] == ["scancel --quiet 1"]
    (ended,) = [line for line in lines if line.startswith("update JobId=1 ")]
    assert "interfere:ended;" in ended
    assert "why=held_12_GiB_of_10_GiB_granted_for_" in ended
    told_to = [line.split()[1] for line in lines if line.startswith("notify ")]
    assert told_to == ["1", "1"]
    usages = [each for each in observed if isinstance(each, MemoryUsage)]
    assert {(each.job_id, each.device_id) for each in usages} == {("1", f"n0/{gres}"), ("2", f"n0/{gres}")}
    assert max(each.bytes for each in usages if each.job_id == "2") == 10 * GIB


def test_a_driver_that_does_not_answer_ends_nobody(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, table = slurm_of(tmp_path, "g0", monkeypatch)
    table.unlink(missing_ok=True)
    settings = replace(GRANTING, server=server.address, spool=tmp_path, grant_patience_s=0.1)
    with PolicyClient(server.address, timeout_s=60.0) as client:
        agent = MeasuredJobs(SlurmJobs(settings, "n0", {"g0": UUID}), settings, 60.0, enforce=True)
        advisor = slurm_advisor(settings, SlurmCommands(60.0), client, slurm_metrics(), dry_run=False)
        for _ in range(3):
            assert agent.report(client) == {}
            advisor.round()
            time.sleep(0.2)
        assert not [
            each for each in client.observation_log(limit=100).entries if isinstance(each.observation, MemoryUsage)
        ]
    assert not [line for line in told(commands) if "JobId=1" in line or line.startswith(("scancel", "notify"))]
