"""Scores worked out by hand, and intervals that behave."""

import math

import pytest

from interfere.sim.cluster import Cluster, Decision, Start
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.orders import Fifo
from interfere.sim.schedulers.queue import QueueScheduler
from interfere.sim.score import day_totals_of, group_slowdowns, score
from interfere.sim.truth import TableTruth
from interfere.sim.world import DAY_S, SimDevice, World
from interfere.testing.schedulers import USUAL, devices, job
from tests.sim.small_worlds import sharings, world


def shared() -> Replayed:
    """heavy from 0, light joins at 2: light done at 8.5, heavy at 8.5 + 8 - 6.5/1.2 = 11.0833."""
    made = world(job("host", 0, 10, "heavy"), job("guest", 2, 5, "light"))
    return replay(made, TableTruth([USUAL]), QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[1]))


def test_of_a_pair() -> None:
    end = 8.5 + 8 - 6.5 / 1.2
    found = score([shared()], cap=1.25)
    assert found.jobs == 2
    assert found.mean_completion_s == pytest.approx((end + 6.5) / 2)
    assert found.mean_slowdown == pytest.approx((end / 10 + 1) / 2)  # the short one counts as 10 s long
    assert found.mean_waiting_s == pytest.approx(0)
    assert found.utilisation == pytest.approx(1)
    assert found.shared == pytest.approx(6.5 / end)
    assert found.makespan_s == pytest.approx(end)
    assert (found.pairs, found.past_cap) == (1, 1.0)
    assert score([shared()], cap=1.3).past_cap == 0.0
    assert sorted(group_slowdowns(shared())["guest", "host"]) == [1.2, 1.3]


def test_of_waiting_and_idleness() -> None:
    done = replay(
        world(job("a", 0, 10), job("b", 5, 20), job("c", 50, 10)), TableTruth([USUAL]), QueueScheduler(order=Fifo())
    )
    found = score([done], cap=1.5)
    assert found.mean_waiting_s == pytest.approx(5 / 3)
    assert found.median_completion_s == pytest.approx(10)
    assert found.utilisation == pytest.approx(40 / 60)
    assert (found.pairs, found.shared, found.past_cap) == (0, 0, 0)
    both = score([done, shared()], cap=1.5)
    assert both.jobs == 5
    assert both.mean_completion_s == pytest.approx(
        (3 * found.mean_completion_s + 2 * score([shared()], 2).mean_completion_s) / 5
    )


def test_time_away_offers_nothing() -> None:
    there = SimDevice(device=devices(1)[0].device, windows=((0.0, 10.0), (20.0, math.inf)))
    done = replay(
        World(name="w", jobs=(job("a", 0, 15),), devices=(there,)), TableTruth([USUAL]), QueueScheduler(order=Fifo())
    )
    found = score([done], cap=1.5)
    assert found.makespan_s == 25
    assert found.utilisation == pytest.approx(1)
    assert found.mean_waiting_s == pytest.approx(10)
    assert found.stops == 1


def test_completion_times_by_day_of_arrival() -> None:
    """Nobody arrives on the second day; what a job waits counts on the day on which it arrived."""
    made = world(job("a", 0, 10), job("b", 5, 10), job("c", 2 * DAY_S, 4))
    done = replay(made, TableTruth([USUAL]), QueueScheduler(order=Fifo()))
    roomy = replay(world(*made.jobs, count=2), TableTruth([USUAL]), QueueScheduler(order=Fifo()))
    sums = day_totals_of(done).completion_change(day_totals_of(roomy))
    assert sums.numerator.tolist() == [10 + 15, 0, 4]
    assert sums.denominator.tolist() == [10 + 10, 0, 4]


def test_deadlines_and_dropped_jobs() -> None:
    """a is late, b meets its deadline, c is dropped at once, d has none."""
    jobs = (
        job("a", 0, 10, deadline_s=9.0),
        job("b", 0, 5, deadline_s=20.0),
        job("c", 0, 5, deadline_s=1.0),
        job("d", 0, 4),
    )
    done = replay(world(*jobs, count=2), TableTruth([USUAL]), FirstDropped("c"))
    found = score([done], cap=1.5)
    assert (found.jobs, found.dropped, found.with_deadline, found.met, found.satisfaction) == (4, 1, 3, 1, 1 / 3)
    assert (found.promised, found.broken) == (1, 1)
    assert found.best_effort_jct_s == pytest.approx(9.0)
    assert found.mean_completion_s == pytest.approx((10 + 5 + 9) / 3)
    assert found.used_gpu_h == pytest.approx(19 / 3600)
    assert found.wasted_gpu_h == pytest.approx(10 / 3600)
    assert found.makespan_s == 10
    days = day_totals_of(done)
    assert (days.deadlines_met().numerator.tolist(), days.deadlines_met().denominator.tolist()) == ([1], [3])
    assert days.deadlines_met(days).numerator.tolist() == [0]
    assert (days.best_effort_s.tolist(), days.best_effort.tolist()) == ([9], [1])


class FirstDropped(QueueScheduler):
    """First come, first served, but one job is dropped on arrival, and the late one is promised its deadline."""

    def __init__(self, name: str) -> None:
        super().__init__(order=Fifo())
        self.name = name

    def decide(self, cluster: Cluster) -> Decision:
        if self.name not in cluster.waiting:
            return super().decide(cluster)
        starts = [Start(job_id=name, device_ids=(f"d{k}",)) for k, name in enumerate(("a", "b"))]
        return Decision(drops=[self.name], promises=["a"], starts=starts)
