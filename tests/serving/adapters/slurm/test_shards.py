"""A real Slurm with four shards a GPU: three and more jobs run beside each other, with grants, and one is ended."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.records import MemoryUsage
from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.conftest import DEVICE

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
GIB = 2.0**30


def test_jobs_fill_the_shards_of_a_gpu_and_the_one_that_overuses_its_grant_is_cancelled(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    slurm = cluster(nodes=1, shards=4, window_s=30.0)  # on a busy machine, too, the advisor looks in time
    settings = slurm.settings(server.address, "memory_gib = 16", "granule_gib = 4", grant_patience_s=3.0)
    slurm.advise(settings)
    slurm.next_round()
    ids = [slurm.submit("rl-rollout", 900, memory_gib=4.0) for _ in range(6)]
    # 1. Six start on the eight shards of two GPUs, at least three on one, each with its grant in its comment.
    slurm.wait_started(ids)
    rows = slurm.jobs()
    devices = [str(rows[name]["gres_detail"][0]).split(":")[1] for name in ids]
    assert max(devices.count(name) for name in set(devices)) >= 3
    assert all(f"grant={int(4 * GIB)}" in rows[name]["admin_comment"] for name in ids)
    # 2. One holds more than that for longer than the site's patience: Slurm cancels it, and says why.
    guilty = ids[1]
    slurm.next_round()
    begin_s = time.time()
    with PolicyClient(server.address) as client:

        def cancelled() -> bool:
            now_s = time.time()
            used = MemoryUsage(
                observation_id=f"m{now_s}",
                job_id=guilty,
                workload="rl-rollout",
                device_type=DEVICE,
                bytes=7.0 * GIB,
                min_bytes=7.0 * GIB,
                start_s=begin_s,
                end_s=now_s,
            )
            client.observe([used])
            time.sleep(0.5)
            return slurm.states([guilty]) == ["CANCELLED"]

        slurm.wait(cancelled)
    assert "interfere:ended;" in slurm.jobs()[guilty]["admin_comment"]
    assert "held_7_GiB_of_4_GiB_granted" in slurm.jobs()[guilty]["admin_comment"]
    said = Path(slurm.folder / f"out.{guilty}").read_text()
    assert "interfere ends this job: held_7_GiB_of_4_GiB_granted" in said
    assert set(slurm.states([name for name in ids if name != guilty])) == {"RUNNING"}
