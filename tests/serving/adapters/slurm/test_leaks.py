"""On a real Slurm: a job that leaks is measured by its node's agent, warned, and ended by `scancel`; nobody else is.

Host memory is measured for real, GPU memory by a recorded nvidia-smi that names the jobs' real processes.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.records import MemoryUsage, Outcome
from interfere.serving.server import RunningServer
from tests.serving.adapters.node import hog
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.test_gpu_memory import SMI, UUID
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.slurm]
PATIENCE_S, SAMPLE_S = 8.0, 1.0  # a busy machine decides within the patience


def test_a_leaking_job_is_warned_and_cancelled_and_nobody_else(
    cluster: Callable[..., Cluster], server: RunningServer, tmp_path: Path
) -> None:
    slurm = cluster(nodes=1, window_s=30.0)  # on a busy machine, too, the advisor looks in time
    grants = ("memory_gib = 1", "granule_gib = 0.0625")
    settings = slurm.settings(server.address, *grants, grant_patience_s=PATIENCE_S)
    slurm.advise(settings)
    slurm.next_round()

    def submit(name: str, leak: int, *options: str) -> str:
        command = f"exec {sys.executable} {hog.__file__} 20 {leak} {tmp_path / name}"
        return slurm.run("sbatch", "--parsable", f"--output={tmp_path}/out.%j", *options, "--wrap", command).strip()

    # 1. Two jobs with grants of 64 MiB, one of which leaks, and a job that asks for no advice and holds more.
    asking = "--gres=shard:1", "--comment=interfere:workload=rl-rollout;memory_gib=0.0625"
    leak, neighbour, foreign = submit("leak", 80, *asking), submit("neighbour", 0, *asking), submit("foreign", 80)
    slurm.wait_started([leak, neighbour, foreign])
    # 2. The agent of the node.
    config = tmp_path / "agent.toml"
    device = '[[devices]]\nid = "0"\ntype = "cpu-core"\nmemory_gib = 1\n'
    times = f"interval_s = {SAMPLE_S}\nmax_gap_s = 20\n"
    config.write_text(f'node = "n0"\njobs = "{tmp_path / "jobs"}"\nserver = "{server.address}"\n{times}{device}')
    agent = [sys.executable, "-m", "interfere", "agent", "--config", str(config), "--slurm", str(settings)]
    with (tmp_path / "agent.out").open("w") as out:
        slurm.running.append(subprocess.Popen([*agent, "--enforce", "--json"], env=slurm.env, stdout=out, stderr=out))
    # 3. The job that leaks is cancelled, and says why: in its comment, its standard error and its outcome.
    slurm.wait(lambda: slurm.states([leak]) == ["CANCELLED"])
    comment = slurm.jobs()[leak]["admin_comment"]
    assert comment.startswith("interfere:ended;")
    assert "_GiB_of_0.0625_GiB_granted_for_" in comment
    said = (tmp_path / f"out.{leak}").read_text()
    assert said.index("interfere warns this job: it holds ") < said.index("interfere ends this job: held_")
    with PolicyClient(server.address, timeout_s=60.0) as client:

        def observed(kind: type, job: str) -> list:  # type: ignore[type-arg]
            entries = client.observation_log(limit=1000).entries
            return [e.observation for e in entries if isinstance(e.observation, kind) and e.observation.job_id == job]

        wait_until(lambda: any("granted for" in each.reason for each in observed(Outcome, leak)), "the reason")
        # 4. It was above its grant for the patience, and for two samples more at most when the advisor looked.
        above = [each for each in observed(MemoryUsage, leak) if each.min_bytes > 1.05 * 2**26]
        assert sum(each.end_s - each.start_s for each in above) >= PATIENCE_S
        # 5. Nobody else was told or ended.
        assert slurm.states([neighbour, foreign]) == ["RUNNING", "RUNNING"]
        assert observed(MemoryUsage, foreign) == []
        lines = (tmp_path / "agent.out").read_text().splitlines()
        told = {notice["job"] for line in lines if line.startswith("{") for notice in json.loads(line)["notices"]}
        assert told == {leak}
        (line,) = [each for each in client.grants(scope="test/main").grants if each.job_id == neighbour]
        assert line.times_exceeded == 0


def test_a_job_above_its_grant_on_its_gpu_is_warned_and_cancelled(
    cluster: Callable[..., Cluster], server: RunningServer, tmp_path: Path
) -> None:
    slurm = cluster(nodes=1, gpus=1, gres=(UUID,), window_s=30.0)
    grants = ("memory_gib = 80", "granule_gib = 10")
    settings = slurm.settings(server.address, *grants, grant_patience_s=PATIENCE_S)
    slurm.advise(settings)
    slurm.next_round()
    # 1. Two jobs of 10 GiB each share the GPU, whose GRES type is its UUID; on the host they hold a few MiB.
    options = "--gres=shard:1", "--comment=interfere:workload=rl-rollout;memory_gib=10"
    commands = (f"echo $$ > {tmp_path}/{name}.pid; exec sleep 600" for name in ("leak", "neighbour"))
    leak, neighbour = (slurm.sbatch(command, f"--output={tmp_path}/out.%j", *options) for command in commands)
    slurm.wait_started([leak, neighbour])
    files = [tmp_path / f"{name}.pid" for name in ("leak", "neighbour")]
    slurm.wait(lambda: all(file.exists() and file.read_text().strip() for file in files))
    pids = [file.read_text().strip() for file in files]
    # 2. The driver says that both hold what they were granted, and then that one holds more.
    table, program = tmp_path / "table.csv", tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI.format(python=sys.executable, uuid=UUID, table=str(table)))
    program.chmod(0o755)
    table.write_text(f"{pids[0]}, python3, 12288\n{pids[1]}, python3, 10240\n")
    config = tmp_path / "agent.toml"
    times = f"interval_s = {SAMPLE_S}\nmax_gap_s = 20\n"
    config.write_text(f'node = "n0"\njobs = "{tmp_path / "jobs"}"\nserver = "{server.address}"\n{times}')
    agent = [sys.executable, "-m", "interfere", "agent", "--config", str(config), "--slurm", str(settings), "--enforce"]
    env = slurm.env | {"PATH": f"{program.parent}:{slurm.env['PATH']}"}
    with (tmp_path / "agent.out").open("w") as out:
        slurm.running.append(subprocess.Popen(agent, env=env, stdout=out, stderr=out))
    # 3. It is cancelled, and says why; the neighbour runs on.
    slurm.wait(lambda: slurm.states([leak]) == ["CANCELLED"])
    comment = slurm.jobs()[leak]["admin_comment"]
    assert comment.startswith(f"interfere:ended;to=n0/{UUID};")
    assert "why=held_12_GiB_of_10_GiB_granted_for_" in comment
    said = (tmp_path / f"out.{leak}").read_text()
    assert said.index("interfere warns this job: it holds 12 GiB") < said.index("interfere ends this job: held_12_GiB")
    assert slurm.states([neighbour]) == ["RUNNING"]
    assert "interfere" not in (tmp_path / f"out.{neighbour}").read_text()
