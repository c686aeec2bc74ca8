"""Random snapshots decided in two processes that hash differently, in one of them shuffled: the same plans."""

import hashlib
import os
import subprocess
import sys

import pytest

from tests.policy.oracle.random_clusters import RandomCluster
from tests.policy.oracle.seats import SeatedCluster
from tests.policy.test_determinism import UNITS, answer, shuffled, with_times

SNAPSHOTS = 40 * int(os.environ.get("SOAK_ROUNDS", "3"))  # make soak: 2,000


def digest(shuffles: bool) -> str:
    """The plans of all snapshots, half of them with devices of several seats, each search with some work units."""
    found = hashlib.sha256()
    for seed in range(SNAPSHOTS):
        cluster = (RandomCluster, SeatedCluster)[seed % 2]
        asked = with_times(cluster(seed).context(), seed, UNITS[seed % len(UNITS)])
        found.update(answer(shuffled(asked, seed) if shuffles else asked).encode())
    return found.hexdigest()


@pytest.mark.timeout(1800)
def test_shuffled_in_another_process_the_plans_are_the_same() -> None:
    plans = [
        subprocess.run(
            [sys.executable, "-c", f"from tests.soak.test_determinism import digest; print(digest({shuffles}))"],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed, shuffles in ((1, False), (2, True))
    ]
    assert len(plans[0].strip()) == 64
    assert plans[0] == plans[1]
