"""Completion times over 10,000 closed clusters: never a later mean than in order of submission, one after the other."""

import os

import pytest

from tests.policy.closed_clusters import ClosedCluster, server_policy, submission_order

CLUSTERS = 200 * int(os.environ.get("SOAK_ROUNDS", "3"))  # make soak: 10,000
ROUNDING = 1e-9


@pytest.mark.timeout(1800)
def test_repeated_decisions_never_end_jobs_later_on_average_than_the_order_of_submission() -> None:
    gains, later = [], []
    for seed in range(1_000, 1_000 + CLUSTERS):
        in_order, decided = (ClosedCluster(seed).run(policy) for policy in (submission_order, server_policy()))
        gains.append(1 - decided / in_order)
        if decided > in_order * (1 + ROUNDING):
            later.append(seed)
    print(f"{CLUSTERS} clusters, mean gain {sum(gains) / len(gains):.1%}, largest {max(gains):.1%}, later: {later}")
    assert later == []
