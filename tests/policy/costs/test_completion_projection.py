"""Projected completion times: schedules worked out by hand, and what follows from repeated decisions."""

import math

import numpy as np
import pytest

from interfere.policy.costs.cluster_projection import project_cluster, running_groups
from interfere.policy.costs.completion_projection import ProjectedCluster, RunningGroup
from interfere.policy.solve.submission_order import projected_means
from tests.policy.closed_clusters import ClosedCluster, server_policy, submission_order
from tests.policy.oracle.random_clusters import RandomCluster
from tests.policy.oracle.scalar_costs import ScalarCosts

ROUNDING = 1e-9
CLUSTERS, BLOCKS = 500, 5


def cluster(runtimes: list[list[float]], classes: list[int], *, gpus: list[int] | None = None, **more: object):
    return ProjectedCluster(
        runtime_s=np.array(runtimes, dtype=np.float64),
        gpus=np.array(gpus or [1] * len(runtimes), dtype=np.int64),
        device_class=np.array(classes, dtype=np.int64),
        **more,
    )


def test_jobs_run_one_after_the_other_on_the_device_that_comes_free_soonest() -> None:
    """10, 4, 6 and 1 s on two devices: at 0, 0, 4 and 10 s."""
    jobs = cluster([[10.0], [4.0], [6.0], [1.0]], [0, 0])
    assert jobs.fifo_wait_s().tolist() == [0, 0, 4, 10]
    assert jobs.mean_completion_s() == (10 + 4 + 10 + 11) / 4
    assert jobs.fifo_starts() == [(0, (0,)), (1, (1,))]


def test_a_device_is_not_free_for_a_second_job_where_the_first_has_nothing_left_to_do() -> None:
    assert cluster([[0.0], [0.0], [3.0]], [0]).fifo_starts() == [(0, (0,))]
    ending = RunningGroup(devices=(0,), alone_s=(0.0,))
    assert cluster([[2.0]], [0], running=(ending,)).fifo_starts() == []


def test_residents_and_slower_types_and_jobs_that_may_run_nowhere() -> None:
    resident = RunningGroup(devices=(0,), alone_s=(5.0,))
    jobs = cluster([[2.0, 8.0], [2.0, math.inf], [math.inf, math.inf]], [0, 1], running=(resident,))
    assert jobs.fifo_wait_s().tolist() == [0, 5, 0]  # the first takes the free device, though it ends later there
    assert jobs.mean_completion_s() == (5 + 8 + 7) / 3


def test_a_gang_waits_for_all_its_devices_and_nobody_goes_before_it() -> None:
    resident = RunningGroup(devices=(0,), alone_s=(5.0,))
    jobs = cluster([[3.0], [1.0]], [0, 0], gpus=[2, 1], running=(resident,))
    assert jobs.fifo_wait_s().tolist() == [5, 8]


def test_co_located_jobs_end_one_after_the_other() -> None:
    """10 s at 2 × and 10 s at 1.25 ×: the second ends at 12.5 s, when the first has 3.75 s left."""
    pair = RunningGroup(devices=(0,), alone_s=(10.0, 10.0), slowdown=((1.0, 2.0), (1.25, 1.0)))
    assert pair.end_times_s() == [16.25, 12.5]
    three = RunningGroup(devices=(0,), alone_s=(1.0, 1.0, 1.0), slowdown=((1, 2, 2), (2, 1, 2), (2, 2, 1)))
    assert three.end_times_s() == [4, 4, 4]


def test_a_gang_beside_a_gang_is_one_group_and_counts_once() -> None:
    for seed in range(200):
        closed = ClosedCluster(seed)
        groups = running_groups(closed.context(), (), {})
        assert sum(len(group.alone_s) for group in groups) == len(closed.running)
        devices = [device for group in groups for device in group.devices]
        assert len(devices) == len(set(devices))


@pytest.mark.parametrize("seed", range(60))
def test_the_order_of_submission_goes_on_as_it_was_foreseen(seed: int) -> None:
    foreseen = project_cluster(ClosedCluster(seed).context()).mean_completion_s()
    assert ClosedCluster(seed).run(submission_order) == pytest.approx(foreseen, rel=ROUNDING)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_repeated_decisions_never_end_jobs_later_on_average_than_the_order_of_submission(block: int) -> None:
    """10,000 clusters: tests/soak/test_completion_time.py."""
    size, sooner = CLUSTERS // BLOCKS, 0
    for seed in range(block * size, (block + 1) * size):
        in_order = ClosedCluster(seed).run(submission_order)
        decided = ClosedCluster(seed).run(server_policy)
        assert decided <= in_order * (1 + ROUNDING), seed
        sooner += decided < in_order * (1 - ROUNDING)
    assert sooner > size / 10  # sharing where it pays ends jobs sooner


def test_waits_are_those_that_one_job_at_a_time_works_out() -> None:
    """Gangs, windows, residents in pairs, jobs that may run nowhere: the oracle's own schedule."""
    for seed in range(300):
        drawn = RandomCluster(seed)
        costs = ScalarCosts(drawn)
        expected_s = list(costs.fifo_waits_s().values())
        if not costs.is_near:
            assert project_cluster(drawn.context()).fifo_wait_s().tolist() == pytest.approx(expected_s)


def test_a_plan_that_starts_nothing_projects_the_order_of_submission() -> None:
    for seed in range(50):
        asked = ClosedCluster(seed).context()
        means = projected_means(asked, ())
        assert means.plan_s == pytest.approx(means.submission_order_s)
        assert not means.plan_is_later
