"""What holds for every scheduler on every world."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.orders import Fifo
from interfere.sim.schedulers.queue import QueueScheduler
from interfere.sim.schedulers.registry import RoundScheduler
from interfere.sim.truth import TableTruth, TruthTable
from interfere.sim.world import World
from interfere.testing.schedulers import devices, job
from tests.sim.small_worlds import NO_SLOWDOWN, schedulers, sharings, tables, worlds
from tests.sim.small_worlds import world as made

SMALL = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@settings(SMALL, max_examples=150)
@given(st.data(), worlds(windows=True), tables)
def test_work_is_conserved_under_every_scheduler(data: st.DataObject, world: World, table: TruthTable) -> None:
    makers = schedulers(table)
    make = makers[data.draw(st.integers(0, len(makers) - 1))]
    truth = TableTruth([table])
    done = replay(world, truth, make())
    _work_is_conserved(done)
    _nobody_is_third(done)
    _slowdowns_are_the_truth(done, truth)
    for k, one in enumerate(world.jobs):
        assert done.started_s[k] >= one.arrival_s
        assert done.completion_s[k] >= one.duration_s - 1e-6
    again = replay(world, truth, make())
    assert again.ended_s.tolist() == done.ended_s.tolist()
    assert again.spans == done.spans


def _work_is_conserved(done: Replayed) -> None:
    served = {one.id: 0.0 for one in done.world.jobs}
    for span in done.spans:
        assert span.end_s > span.start_s
        served[span.job_id] += span.rate * (span.end_s - span.start_s)
    for k, one in enumerate(done.world.jobs):
        assert served[one.id] == pytest.approx(one.duration_s + int(done.stops[k]) * one.checkpoint_s, abs=1e-6)


def _nobody_is_third(done: Replayed) -> None:
    there = {one.device.id: one for one in done.world.devices}
    by_device: dict[str, list[tuple[float, float]]] = {}
    for span in done.spans:
        for name in span.device_ids:
            by_device.setdefault(name, []).append((span.start_s, span.end_s))
            assert there[name].present_until_s(span.start_s) >= span.end_s
    for spans in by_device.values():
        moments = sorted({time for span in spans for time in span})
        for earlier, later in itertools.pairwise(moments):
            assert sum(start <= earlier and later <= end for start, end in spans) <= 2


def _slowdowns_are_the_truth(done: Replayed, truth: TableTruth) -> None:
    jobs = {one.id: one for one in done.world.jobs}
    for span in done.spans:
        if span.partner_id:
            one, other = jobs[span.job_id], jobs[span.partner_id]
            assert span.slowdown == truth.slowdown(one.workload, (other.workload,), "v100")
            assert one.gpus == other.gpus == len(span.device_ids)
        assert span.rate == 1 / span.slowdown


@SMALL
@given(worlds(), tables, st.integers(0, 4), st.tuples(*[st.floats(0.0, 0.45)] * 2))
def test_phases_that_change_no_slowdown_change_nothing(
    world: World, table: TruthTable, how: int, shares: tuple[float, float]
) -> None:
    phased = replace(
        world,
        jobs=tuple(
            replace(one, start_up_s=shares[0] * one.duration_s, shut_down_s=shares[1] * one.duration_s)
            for one in world.jobs
        ),
    )
    plain, done = (
        replay(each, TableTruth([table]), QueueScheduler(order=Fifo(), sharing=sharings(table)[how]))
        for each in (world, phased)
    )
    _work_is_conserved(done)
    assert done.ended_s == pytest.approx(plain.ended_s, abs=1e-6)


@SMALL
@given(worlds(gangs=False, strangers=False))
def test_sharing_that_costs_nothing_ends_nothing_later(world: World) -> None:
    """First come, first served on one device a job: twice the places start everybody no later."""
    alone = replay(world, TableTruth([NO_SLOWDOWN]), QueueScheduler(order=Fifo()))
    for sharing in sharings(NO_SLOWDOWN)[1::2]:
        shared = replay(world, TableTruth([NO_SLOWDOWN]), QueueScheduler(order=Fifo(), sharing=sharing))
        assert (shared.ended_s <= alone.ended_s + 1e-6).all()


@settings(SMALL, max_examples=10)
@given(worlds())
def test_an_idle_cluster_runs_everything_at_once(world: World) -> None:
    count = sum(one.gpus for one in world.jobs)
    roomy = World(name="roomy", jobs=world.jobs, devices=devices(count, per_node=count))
    for make in schedulers(NO_SLOWDOWN):
        done = replay(roomy, TableTruth([NO_SLOWDOWN]), make())
        assert done.completion_s == pytest.approx([one.duration_s for one in world.jobs], abs=1e-6)


def test_one_server_waits_as_the_formula_says() -> None:
    """M/M/1: time in the system is 1 / (μ - λ)."""
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(1 / 0.6, 10_000))
    jobs = [job(f"j{k}", at, rng.exponential(1.0)) for k, at in enumerate(arrivals.tolist())]
    done = replay(made(*jobs), TableTruth([NO_SLOWDOWN]), QueueScheduler(order=Fifo()))
    assert done.completion_s.mean() == pytest.approx(1 / (1 - 0.6), rel=0.08)
    busy = np.diff(done.at_s, append=done.at_s[-1]) @ done.busy / done.at_s[-1]
    assert busy == pytest.approx(0.6, rel=0.03)


@SMALL
@given(worlds(), tables, st.integers(0, 4), st.sampled_from([0.7, 3.0, 50.0]))
def test_nothing_starts_between_two_rounds(world: World, table: TruthTable, how: int, round_s: float) -> None:
    inner = QueueScheduler(order=Fifo(), sharing=sharings(table)[how])
    done = replay(world, TableTruth([table]), RoundScheduler(inner=inner, round_s=round_s))
    _work_is_conserved(done)
    rounds = done.started_s / round_s
    assert rounds == pytest.approx(np.round(rounds), abs=1e-5)
    assert (done.started_s >= [one.arrival_s for one in world.jobs]).all()
