"""A real Slurm starts the next job of a place when the one before it ends, with nobody asking it to at that moment."""

from collections.abc import Callable

import pytest

from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
STEPS, STEP_S = 80, 0.1


def submit(slurm: Cluster, workload: str, remaining_s: float) -> str:
    comment = f"--comment=interfere:workload={workload};remaining_s={remaining_s:.0f}"
    return slurm.submit(workload, STEPS, comment, step_s=STEP_S)


def test_the_next_job_of_a_place_starts_without_another_round(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    slurm = cluster(nodes=1, gpus=1)
    # The first two fill the only device, and say that they are about to end as soon as they run.
    first = [submit(slurm, name, 3.0) for name in ("request-server", "rl-rollout")]
    advisor = slurm.advise(slurm.settings(server.address))
    slurm.wait_started(first)
    after = submit(slurm, "rl-rollout", STEPS * STEP_S)
    slurm.wait(lambda: bool(slurm.jobs()[after]["dependency"]))
    assert slurm.states([*first, after]) == ["RUNNING", "RUNNING", "PENDING"], "prepared while both run"
    advisor.kill()  # from here on Slurm is alone
    advisor.wait()
    slurm.wait_ended([*first, after])
    jobs = slurm.jobs()
    began_s, ends_s = jobs[after]["start_time"], [jobs[job]["end_time"] for job in first]
    assert jobs[after]["job_state"] == "COMPLETED"
    assert jobs[after]["admin_comment"].startswith("interfere:placed;to=n0/g0;")
    assert max(ends_s) <= began_s <= max(ends_s) + 3.0, "Slurm writes whole seconds, and looks once a second"
