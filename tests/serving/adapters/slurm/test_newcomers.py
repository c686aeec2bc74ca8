"""A workload that nobody knows runs alone, is profiled from its steps, and may then be paired, if the site lets it."""

from collections.abc import Callable

import pytest

from interfere.client import PolicyClient
from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.conftest import DEVICE, STEP_S

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def test_an_unknown_workload_runs_alone_first_and_is_paired_once_its_steps_were_seen(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    slurm = cluster(nodes=1)
    first = slurm.submit("mine", 100, step_s=0.05)
    others = [slurm.submit("rl-rollout", 20) for _ in range(3)]
    advisor = slurm.advise(slurm.settings(server.address, allow_extrapolation=True))
    slurm.wait_ended([first])
    (run,) = slurm.runs()[first]
    assert run["company"] == {}
    with PolicyClient(server.address) as client:
        slurm.wait(lambda: bool(client.list_profiles(workload="mine", device_type=DEVICE)))
        (profile,) = client.list_profiles(workload="mine", device_type=DEVICE)
        answer = client.predict(["mine", "request-server"], device_type=DEVICE)
    told = answer.prediction
    assert (told.upper > 2 * told.lower).all(), "a step time alone tells little, and the interval says so"
    assert profile.source == "slurm"
    assert profile.step_time_s == pytest.approx(0.05, rel=0.3)
    slurm.wait_ended(others)
    again = [slurm.submit(name, 20) for name in ("mine", "request-server", "request-server", "request-server")]
    slurm.wait_ended(again)
    (run,) = slurm.runs()[again[0]]
    assert [name.partition(".")[2] for name in run["company"]] == ["request-server"]
    assert advisor.poll() is None
    assert profile.step_time_s < STEP_S
