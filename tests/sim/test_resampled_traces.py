"""Laws of traces resampled with Poisson arrivals."""

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.sim.world import World
from interfere.testing.schedulers import job
from tests.sim.resampled_traces import resample_with_poisson_arrivals
from tests.sim.small_worlds import world

LENGTHS = (30.0, 600.0, 90_000.0)


def bursty(count: int = 60) -> World:
    """Three bursts of jobs of one to four devices."""
    rows = [(f"j{k}", (k // 20) * 50_000.0, LENGTHS[k % 3], "light", 1 + k % 4) for k in range(count)]
    return world(*(job(*row, user=f"u{row[0]}", deadline_s=row[1] + 2 * row[2]) for row in rows), count=8)


def drawn(seed: int = 0, load: float = 0.75, jobs: int | None = None) -> World:
    return resample_with_poisson_arrivals(bursty(), load=load, rng=np.random.default_rng(seed), jobs=jobs)


@pytest.mark.parametrize("load", [0.5, 0.95, 1.4])
@pytest.mark.parametrize("jobs", [2, 60, 500])
def test_the_offered_load_is_the_target(load: float, jobs: int) -> None:
    made = drawn(load=load, jobs=jobs)
    assert made.load == pytest.approx(load, rel=1e-9)
    assert len(made.jobs) == jobs
    assert made.devices == bursty().devices


def test_every_job_is_one_of_the_trace_with_its_distance_to_the_deadline() -> None:
    given = {one.id: one for one in bursty().jobs}
    for one in drawn(jobs=300).jobs:
        source = given[one.id.partition("-")[2]]
        assert (one.duration_s, one.gpus, one.workload, one.user) == (
            source.duration_s,
            source.gpus,
            source.workload,
            source.user,
        )
        assert one.deadline_s - one.arrival_s == pytest.approx(2 * one.duration_s)


def test_the_same_generator_gives_the_same_trace_and_another_one_another() -> None:
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_gaps_are_those_of_a_poisson_process() -> None:
    """Their deviation is their mean, where the trace's own is several times as large."""
    gaps = np.diff([one.arrival_s for one in drawn(jobs=4000).jobs])
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1)
    recorded = np.diff([one.arrival_s for one in bursty().jobs])
    assert recorded.std() / recorded.mean() > 3


@pytest.mark.parametrize(("load", "jobs"), [(0.0, None), (-1.0, None), (float("nan"), None), (0.5, 1), (0.5, 0)])
def test_what_makes_no_trace_is_refused(load: float, jobs: int | None) -> None:
    with pytest.raises(InvalidInputError):
        drawn(load=load, jobs=jobs)
