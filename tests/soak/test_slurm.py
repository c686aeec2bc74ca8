"""kill -9 of the Slurm advisor at random moments, on a real Slurm: every job starts once, none is left behind."""

import os
import random
import time
from collections.abc import Callable

import pytest

from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.conftest import TRUTH, cluster, server

__all__ = ["cluster", "server"]  # fixtures

pytestmark = pytest.mark.slurm
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "3"))  # make soak: 50


def test_jobs_start_once_whenever_the_advisor_dies(cluster: Callable[..., Cluster], server: RunningServer) -> None:
    rng, slurm = random.Random(int(os.environ.get("SOAK_SEED", "0"))), cluster()
    settings = slurm.settings(server.address, interval_s=0.1)
    ids: list[str] = []
    for _ in range(ROUNDS):
        advisor = slurm.advise(settings)
        slurm.next_round()
        for _ in range(rng.randint(1, 3)):
            ids.append(slurm.submit(rng.choice([*TRUTH]), 5))
            time.sleep(rng.uniform(0.0, 0.2))
        advisor.kill()
        advisor.wait()
    slurm.advise(settings)
    slurm.wait_ended(ids)
    assert set(slurm.states(ids)) == {"COMPLETED"}
    runs = slurm.runs()
    assert [len(runs[one]) for one in ids] == [1] * len(ids)
