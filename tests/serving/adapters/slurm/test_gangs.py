"""A real Slurm keeps nodes for the next gang: a long job is placed on the others, where Slurm would backfill it."""

from collections.abc import Callable

import pytest

from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def test_a_long_job_is_not_kept_from_the_nodes_that_a_gang_does_not_take(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    slurm = cluster(nodes=2, gpus=2)
    holder = slurm.sbatch("sleep 600", "--gres=gpu:1", "--nodelist=n0", "--time=10")
    slurm.wait_started([holder])
    gang = slurm.sbatch("sleep 1", "--gres=gpu:2", "--nodelist=n0", "--time=10")
    slurm.wait(lambda: slurm.jobs()[gang]["state_reason"] == "Resources")
    long = slurm.submit("request-server", 10, "--time=600")
    slurm.advise(slurm.settings(server.address))
    slurm.wait_ended([long])
    assert slurm.jobs()[long]["nodes"] == "n1"
    assert slurm.jobs()[long]["admin_comment"].startswith("interfere:placed;to=n1/")
    assert slurm.states([holder, gang]) == ["RUNNING", "PENDING"]
