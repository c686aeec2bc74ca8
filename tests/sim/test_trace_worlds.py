"""Worlds from traces: nothing lost, loads as asked."""

import math
from dataclasses import replace

import pytest

from interfere.data.traces import JobTrace, TraceJob, VirtualCluster
from interfere.errors import InvalidInputError
from interfere.sim.trace_worlds import redraw_days, scale_to_load, worlds_of

CLUSTERS = (VirtualCluster(vc="x", nodes=2, gpus_per_node=4), VirtualCluster(vc="y", nodes=1, gpus_per_node=1))


def one(name: str, arrival_s: float, gpus: int = 1, duration_s: float = 10.0, vc: str = "x") -> TraceJob:
    return TraceJob(job_id=name, workload="w", arrival_s=arrival_s, gpus=gpus, duration_s=duration_s, vc=vc)


TRACE = JobTrace(
    name="t",
    jobs=(
        one("a", 0),
        one("b", 0, gpus=8),
        one("long", 5, gpus=9),
        one("c", 5, vc="y"),
        one("nowhere", 6, vc="z"),
        one("unknown", 7, duration_s=math.nan),
        one("d", 20),
    ),
    clusters=CLUSTERS,
)


def test_every_job_is_somewhere() -> None:
    found = worlds_of(TRACE, device_type="v100", mode="mps")
    assert [[job.id for job in world.jobs] for world in found.worlds] == [["a", "b", "d"], ["c"]]
    assert [len(world.devices) for world in found.worlds] == [8, 1]
    assert found.worlds[0].node_gpus == 4
    assert dict(found.left_out) == {
        "larger than their virtual cluster": 1,
        "in a virtual cluster without devices": 1,
        "without a duration": 1,
    }
    assert "left out: 1 larger" in found.note()


def test_a_note_counts_worlds_in_words_that_agree() -> None:
    trace = replace(TRACE, clusters=())
    one = worlds_of(trace, device_type="v", mode="mps", clusters=(VirtualCluster(vc="x", nodes=1, gpus_per_node=8),))
    assert "jobs in 1 world (" in one.note()


def test_devices_for_a_trace_that_has_none() -> None:
    bare = JobTrace(name="bare", jobs=TRACE.jobs)
    with pytest.raises(InvalidInputError, match="which devices"):
        worlds_of(bare, device_type="v", mode="mps")
    found = worlds_of(bare, device_type="v", mode="mps", clusters=(VirtualCluster(vc="all", nodes=1, gpus_per_node=9),))
    assert [job.id for job in found.worlds[0].jobs] == ["a", "b", "long", "c", "nowhere", "d"]
    empty = JobTrace(name="empty", jobs=(one("u", 0, duration_s=math.nan),), clusters=CLUSTERS)
    with pytest.raises(InvalidInputError, match="no job") as raised:
        worlds_of(empty, device_type="v", mode="mps")
    assert "1 without a duration" in str(raised.value)


def test_loads() -> None:
    world = worlds_of(TRACE, device_type="v", mode="mps").worlds[0]
    assert world.load == pytest.approx((10 + 80 + 10) / (8 * 20))
    assert scale_to_load(world, 0.5).load == pytest.approx(0.5)


def test_arrivals_that_cannot_be_stretched() -> None:
    at_once = JobTrace(name="t", jobs=(one("a", 0), one("b", 0)), clusters=CLUSTERS)
    with pytest.raises(InvalidInputError, match="cannot be stretched"):
        scale_to_load(worlds_of(at_once, device_type="v", mode="mps").worlds[0], 0.5)


def test_idle_days_are_never_all_there_is() -> None:
    jobs = (one("first", 0), one("last", 40 * 86_400.0))
    world = worlds_of(JobTrace(name="t", jobs=jobs, clusters=CLUSTERS), device_type="v", mode="mps").worlds[0]
    assert all(redraw_days(world, seed).jobs for seed in range(20))


def test_redraw_days() -> None:
    day = 86_400.0
    jobs = tuple(one(f"{d}-{k}", d * day + 600 * k, duration_s=d + 1.0) for d in range(6) for k in range(d + 1))
    world = worlds_of(JobTrace(name="t", jobs=jobs, clusters=CLUSTERS), device_type="v", mode="mps").worlds[0]
    drawn = redraw_days(world, seed=1)
    assert drawn == redraw_days(world, seed=1)
    assert {redraw_days(world, seed).jobs for seed in range(5)} != {drawn.jobs}
    for k in range(6):
        today = [job for job in drawn.jobs if job.arrival_s // day == k]
        (length,) = {job.duration_s for job in today}
        assert [job.arrival_s - k * day for job in today] == [600.0 * n for n in range(int(length))]
