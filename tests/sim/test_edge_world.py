"""Deadlines and edge devices: deadlines are of their family; the edge is present as announced."""

import math

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.sim.beliefs import true_beliefs
from interfere.sim.edge_world import (
    EDGE,
    EDGE_SPEED,
    FAMILIES,
    EdgeSetting,
    edge_beliefs,
    edge_truth,
    edge_type,
    with_deadlines,
)
from interfere.sim.trace_worlds import redraw_days, scale_to_load
from interfere.sim.world import HOUR_S, World
from interfere.testing.schedulers import MODE, TYPE, USUAL, devices, job
from tests.sim.small_worlds import world

MIDNIGHT_S, NOON_S = 0.0, 12 * HOUR_S


def test_deadlines_are_of_their_family_and_of_their_seed() -> None:
    many = World(name="w", jobs=tuple(job(f"j{k}", float(k), 10.0 + k) for k in range(2000)), devices=devices(1))
    for family, (low, high) in FAMILIES.items():
        dated = [one for one in with_deadlines(many, family, seed=3).jobs if one.has_deadline]
        factors = [(one.deadline_s - one.arrival_s) / one.duration_s for one in dated]
        assert low <= min(factors) < low + 0.02
        assert high - 0.02 < max(factors) <= high
        assert len(factors) == pytest.approx(1600, abs=80)
    assert with_deadlines(many, "tight", 1) == with_deadlines(many, "tight", 1) != with_deadlines(many, "tight", 2)
    assert not many.has_deadlines
    with pytest.raises(InvalidInputError, match="tight, usual, loose"):
        with_deadlines(many, "none", 0)


def test_a_deadline_keeps_its_distance_from_the_arrival() -> None:
    jobs = tuple(job(f"j{k}", 50_000.0 * k, 1000.0, deadline_s=50_000.0 * k + 1500.0) for k in range(9))
    dated = World(name="w", jobs=(*jobs, job("free", 450_000.0, 1.0)), devices=devices(1))
    for trace in (redraw_days(dated, seed=3), scale_to_load(dated, 0.5)):
        slack = [one.deadline_s - one.arrival_s for one in trace.jobs if one.has_deadline]
        assert slack == pytest.approx([1500.0] * len(slack))
        assert len(slack) < len(trace.jobs) or "free" not in str([one.id for one in trace.jobs])


def test_the_edge_is_present_at_night_slower_and_of_a_type_of_its_own() -> None:
    noon = EdgeSetting(added=True).apply(world(job("a", 0, 5), count=8, clock_s=NOON_S))
    edge = [device for device in noon.devices if device.device.pool == EDGE]
    assert len(noon.devices) == 12  # two nodes of four, and one again
    assert {(device.speed, device.device.type) for device in edge} == {(EDGE_SPEED, edge_type(TYPE))}
    assert edge[0].windows[0] == (10 * HOUR_S, 20 * HOUR_S)
    midnight = EdgeSetting(added=True).apply(world(job("a", 0, 5), count=8, clock_s=MIDNIGHT_S))
    assert midnight.devices[-1].windows[:2] == ((0.0, 8 * HOUR_S), (22 * HOUR_S, 32 * HOUR_S))
    both = world(job("a", 0, 5), job("b", 0, 5, gpus=5), count=8, clock_s=NOON_S)
    replaced = EdgeSetting().apply(both)
    assert [device.device.pool for device in replaced.devices].count(EDGE) == 4
    assert [one.id for one in replaced.jobs] == ["a"]  # the gang is larger than the cloud
    assert [one.id for one in EdgeSetting(added=True).apply(both).jobs] == ["a", "b"]
    with pytest.raises(InvalidInputError, match="cloud"):
        EdgeSetting().apply(world(job("a", 0, 5), count=4, clock_s=NOON_S))


def test_a_device_that_is_taken_back_is_known_to_leave_five_minutes_before() -> None:
    evening = world(job("a", 0, 1e6), count=4, clock_s=22 * HOUR_S)
    setting = EdgeSetting(added=True, revoked=True, seed=1)
    revoked = setting.apply(evening)
    device = next(device for device in revoked.devices if device.device.pool == EDGE)
    leaves_s = device.windows[0][1]
    assert leaves_s < 10 * HOUR_S
    assert device.known_windows(leaves_s - 301.0)[0] == (0.0, 10 * HOUR_S)
    assert device.known_windows(leaves_s - 299.0)[0] == (0.0, leaves_s)
    assert device.known_windows(leaves_s + 1.0)[0][0] > leaves_s  # absent; tonight nobody knows when it returns
    assert revoked.devices[0].known_windows(0.0) == ()
    assert setting.apply(evening) == revoked
    assert all(later[0] > first[1] for first, later in zip(device.windows, device.windows[1:], strict=False))


def test_windows_that_nobody_announced_are_known_as_they_come_true() -> None:
    (device,) = devices(1, windows=((0.0, 10.0), (20.0, math.inf)))
    assert device.known_windows(5.0) == ((0.0, 10.0), (20.0, math.inf))
    assert device.known_windows(15.0) == ((20.0, math.inf),)
    (leaving,) = devices(1, windows=((0.0, 10.0),))
    assert leaving.known_windows(15.0) == ((math.inf, math.inf),)  # never again


def test_the_load_counts_devices_by_speed_while_they_are_present() -> None:
    jobs = (job("a", 0, 10), job("b", 20, 10))
    present = (*devices(1), *(device for device in devices(2, windows=((0.0, 10.0),), speed=0.5)[1:]))
    assert World(name="w", jobs=jobs, devices=present).load == pytest.approx(20 / (20 + 0.5 * 10))


def test_truth_and_beliefs_at_the_edge() -> None:
    beliefs = edge_beliefs(true_beliefs(USUAL), ["new", "light", ""])
    assert beliefs.knows(edge_type(TYPE), MODE) == ""
    assert beliefs.knows("other", MODE)
    assert beliefs.profiles["new", edge_type(TYPE)].step_time_s == pytest.approx(1 / EDGE_SPEED)
    assert np.isnan(beliefs.slowdown[:, beliefs.index["new"], 0]).all()
    assert [table.device_type for table in edge_truth(USUAL)] == [TYPE, edge_type(TYPE)]
