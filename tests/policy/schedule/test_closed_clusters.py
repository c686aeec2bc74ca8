"""Closed clusters with true predictions: repeated decisions, and the order of submission followed to the end."""

import math

import pytest

from interfere.policy.schedule.from_context import scheduling_instance
from interfere.policy.schedule.heuristics import ALONE, schedule_in_order
from tests.policy.closed_clusters import ClosedCluster, server_policy, submission_order

CLUSTERS, BLOCKS = 60, 6
ROUNDING = 1e-6


@pytest.mark.parametrize("seed", range(60))
def test_the_order_of_submission_goes_on_as_it_was_planned(seed: int) -> None:
    """What happens is what the schedule says: residents end when they should, and each job when its turn is over."""
    closed = ClosedCluster(seed)
    instance = scheduling_instance(closed.context(), {}, shares=False)
    assert instance is not None
    planned = schedule_in_order(instance.problem, range(instance.problem.pending), ALONE)
    mean_s = math.fsum(planned.end_s.tolist()) / len(planned.end_s)
    assert closed.run(submission_order) == pytest.approx(mean_s, rel=ROUNDING)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_repeated_decisions_never_end_jobs_later_on_average_than_the_order_of_submission(block: int) -> None:
    """10,000 clusters: tests/soak/test_completion_time.py."""
    size, sooner = CLUSTERS // BLOCKS, 0
    for seed in range(block * size, (block + 1) * size):
        in_order = ClosedCluster(seed).run(submission_order)
        decided = ClosedCluster(seed).run(server_policy())
        assert decided <= in_order * (1 + ROUNDING), seed
        sooner += decided < in_order * (1 - ROUNDING)
    assert sooner > size / 10  # sharing where it pays ends jobs sooner
