"""Deadlines and idle edge devices in the replay: draws, worlds, scores, and what each scheduler does, by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.records import ActionKind
from interfere.sim.beliefs import knowing
from interfere.sim.cluster import Cluster, Decision, Scheduler, Start
from interfere.sim.deadline_study import Setting, interval, parts, played, schedulers, table
from interfere.sim.deadlines import (
    CHECKPOINT_S,
    EDGE,
    EDGE_SPEED,
    FAMILIES,
    HOUR_S,
    Draws,
    EdgeWorld,
    drawn,
    edge_type,
    read_draws,
    save_draws,
    scored,
    with_deadlines,
    with_edge,
)
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.deadline_planner import PlannedDeadlines, TwoTypes
from interfere.sim.schedulers.deadline_queue import DeadlineQueue, EarliestDeadline, LeastLaxity, SlotAdmission
from interfere.sim.schedulers.greedy_sharing import GreedyPacking
from interfere.sim.schedulers.orders import Fifo, ShortestFirst
from interfere.sim.truth import TableTruth, TruthTable
from interfere.sim.world import SimJob, World
from tests.sim.small import MODE, NAMES, TYPE, USUAL, devices, job, truth, world

MIDNIGHT_S, NOON_S = 0.0, 12 * HOUR_S
FLAT = truth((1.2, 1.2, 1.2), (1.2, 1.2, 1.2), (1.2, 1.2, 1.2))


def known(*jobs: SimJob, table: TruthTable = USUAL) -> TwoTypes:
    return TwoTypes(knowing(table), [one.workload for one in jobs])


def run(edge: EdgeWorld, scheduler: Scheduler, table: TruthTable = USUAL) -> Replayed:
    return replay(edge.world, TableTruth([table, replace(table, device_type=edge_type(TYPE))]), scheduler)


def at_noon(*jobs: SimJob, count: int = 1) -> EdgeWorld:
    """The edge opens ten hours from now."""
    return with_edge(world(*jobs, count=count), clock_s=NOON_S)


def planned(edge: EdgeWorld, *, share: bool = False, table: TruthTable = USUAL) -> PlannedDeadlines:
    told = known(*edge.world.jobs, table=table)
    return PlannedDeadlines(edge=edge, predictor=told, profiles=told.profiles, mode=MODE, share=share)


def all_schedulers(edge: EdgeWorld, table: TruthTable = USUAL) -> list[Scheduler]:
    told = known(*edge.world.jobs, table=table)
    packing = GreedyPacking(predictor=told, profiles=told.profiles, mode=MODE)
    queues = [
        DeadlineQueue(edge=edge, order=order, drop=drop, sharing=sharing)
        for order in (Fifo(), ShortestFirst(), EarliestDeadline(), LeastLaxity())
        for drop in (False, True)
        for sharing in (None, packing)
    ]
    slots = [SlotAdmission(edge=edge, sharing=sharing) for sharing in (None, packing)]
    return [*queues, *slots, *(planned(edge, share=share, table=table) for share in (False, True))]


# --- draws and worlds -------------------------------------------------------------------------------------------------


def test_draws_are_of_their_family_and_read_back_as_they_were(tmp_path: Path) -> None:
    many = World(name="w", jobs=tuple(job(f"j{k}", float(k), 10.0 + k) for k in range(2000)), devices=devices(1))
    for family, (low, high) in FAMILIES.items():
        made = drawn(many, family, seed=3)
        dated = {one.id: one for one in many.jobs if one.id in made.deadline_s}
        factors = [(made.deadline_s[n] - one.arrival_s) / one.duration_s for n, one in dated.items()]
        assert low <= min(factors) < low + 0.02
        assert high - 0.02 < max(factors) <= high
        assert len(factors) == pytest.approx(1600, abs=80)
        save_draws(tmp_path / "draws.json", [made])
        assert read_draws(tmp_path / "draws.json") == (made,)
    assert drawn(many, "tight", 1) == drawn(many, "tight", 1) != drawn(many, "tight", 2)
    dated_world = with_deadlines(many, made)
    assert {one.id for one in dated_world.jobs if math.isfinite(one.deadline_s)} == set(made.deadline_s)
    assert {one.checkpoint_s for one in dated_world.jobs} == {CHECKPOINT_S}


def test_draws_of_another_world_or_no_draws_are_refused(tmp_path: Path) -> None:
    one, other = world(job("a", 0, 5), job("b", 0, 5)), world(job("a", 0, 5))
    with pytest.raises(InvalidInputError, match="another world") as raised:
        with_deadlines(other, drawn(one, "usual", 0))
    assert "w with 2 jobs" in str(raised.value)
    with pytest.raises(InvalidInputError, match="tight, usual, loose"):
        drawn(one, "none", 0)
    broken = tmp_path / "draws.json"
    listed = '{"draws": [{"world":"w","family":"x","seed":0,"jobs":1,"deadline_s":[1]}]}'
    for text in ("[1]", "{", '{"draws": [{"world": "w"}]}', listed):
        broken.write_text(text)
        with pytest.raises(InvalidInputError, match="not a file of deadlines"):
            read_draws(broken)
    with pytest.raises(InvalidInputError, match="not a file of deadlines"):
        read_draws(tmp_path / "missing.json")


def test_the_edge_is_there_at_night_slower_and_of_a_type_of_its_own() -> None:
    found = with_edge(world(job("a", 0, 5), count=8), clock_s=NOON_S)
    edge = [one for one in found.world.devices if one.device.pool == EDGE]
    assert len(found.world.devices) == 12  # two nodes of four, and one again
    assert {(one.speed, one.device.type) for one in edge} == {(EDGE_SPEED, edge_type(TYPE))}
    assert edge[0].windows[0] == (10 * HOUR_S, 20 * HOUR_S)
    assert with_edge(world(job("a", 0, 5), count=8), clock_s=MIDNIGHT_S).nights[:2] == (
        (0.0, 8 * HOUR_S),
        (22 * HOUR_S, 32 * HOUR_S),
    )
    instead = with_edge(world(job("a", 0, 5), job("b", 0, 5, gpus=5), count=8), clock_s=NOON_S, instead=True)
    assert [one.device.pool for one in instead.world.devices].count(EDGE) == 4
    assert [one.id for one in instead.world.jobs] == ["a"]
    with pytest.raises(InvalidInputError, match="cloud"):
        with_edge(world(job("a", 0, 5), count=4), clock_s=NOON_S, instead=True)


def test_a_device_that_is_taken_back_is_known_to_go_five_minutes_before() -> None:
    found = with_edge(world(job("a", 0, 1e6), count=4), clock_s=22 * HOUR_S, taken=1)
    (one, *_) = [one for one in found.world.devices if one.device.pool == EDGE]
    goes_s = one.windows[0][1]
    assert goes_s < 10 * HOUR_S
    assert found.known_s(one, goes_s - 301.0)[0] == (0.0, 10 * HOUR_S)
    assert found.known_s(one, goes_s - 299.0)[0] == (0.0, goes_s)
    assert found.known_s(one, goes_s + 1.0)[0][0] > goes_s  # gone; tonight nobody knows when it is back
    assert found.known_s(found.world.devices[0], 0.0) == ()
    again = with_edge(world(job("a", 0, 1e6), count=4), clock_s=22 * HOUR_S, taken=1)
    assert again == found
    assert all(later[0] > first[1] for first, later in zip(one.windows, one.windows[1:], strict=False))


# --- schedulers by hand -----------------------------------------------------------------------------------------------


def ended(found: Replayed) -> dict[str, float]:
    return dict(zip((one.id for one in found.world.jobs), found.ended_s.tolist(), strict=True))


def test_edf_serves_the_hopeless_first_and_who_drops_them_does_not() -> None:
    """One device, taken until 10. At 10, a (20 s) can no longer make 25; b (10 s) can make 30."""
    jobs = (job("first", 0, 10), job("a", 1, 20, deadline_s=25.0), job("b", 1, 10, deadline_s=30.0))
    edge = at_noon(*jobs)
    assert ended(run(edge, DeadlineQueue(edge=edge, order=EarliestDeadline()))) == {"first": 10, "a": 30, "b": 40}
    for scheduler in (
        DeadlineQueue(edge=edge, order=EarliestDeadline(), drop=True),
        SlotAdmission(edge=edge),
        planned(edge),
    ):
        found = run(edge, scheduler)
        assert ended(found) == {"first": 10, "a": math.inf, "b": 20}
        score = scored(found)
        assert (score.with_deadline, score.met, score.satisfaction) == (2, 1, 0.5)
        assert score.wasted_gpu_h == 0.0
        assert score.best_effort_jct_s == 10.0


def test_orders_of_laxity_and_deadline() -> None:
    jobs = (job("first", 0, 10), job("long", 1, 50, deadline_s=65.0), job("short", 1, 5, deadline_s=60.0))
    edge = at_noon(*jobs)
    assert ended(run(edge, DeadlineQueue(edge=edge, order=EarliestDeadline())))["short"] == 15
    assert ended(run(edge, DeadlineQueue(edge=edge, order=LeastLaxity())))["long"] == 60


def test_nothing_is_started_at_the_edge_that_would_be_late_there() -> None:
    """In the night both devices are free; 70 s become 100 at the edge."""
    busy, tight = job("busy", 0, 100, deadline_s=110.0), job("tight", 0, 70, deadline_s=95.0)
    edge = with_edge(world(busy, tight, job("easy", 0, 70)), clock_s=MIDNIGHT_S)
    for scheduler in (
        DeadlineQueue(edge=edge, order=EarliestDeadline(), drop=True),
        SlotAdmission(edge=edge),
        planned(edge),
    ):
        found = ended(run(edge, scheduler))
        assert found["easy"] == pytest.approx(100.0)
        assert sorted(found.values())[1:] in ([100.0, math.inf], [pytest.approx(100.0), math.inf]) or (
            found["tight"] == 70.0
        )
    late = ended(run(edge, DeadlineQueue(edge=edge, order=Fifo())))
    assert late["tight"] == pytest.approx(100.0)


def test_in_the_morning_the_edge_goes_and_a_checkpoint_is_paid() -> None:
    """Seven hours of work begin at the edge at one: 4.9 h are done at eight, when the cloud is free again."""
    jobs = (job("cloud", 0, 7 * HOUR_S), job("edge", 0, 7 * HOUR_S))
    edge = with_edge(with_deadlines(world(*jobs), _none(jobs)), clock_s=HOUR_S)
    for scheduler in (DeadlineQueue(edge=edge, order=Fifo()), SlotAdmission(edge=edge), planned(edge)):
        found = run(edge, scheduler)
        assert max(ended(found).values()) == pytest.approx((7 + 7 - 4.9) * HOUR_S + CHECKPOINT_S)
        assert found.stops.sum() == 1
        assert scored(found).wasted_gpu_h == pytest.approx(CHECKPOINT_S / HOUR_S)


def _none(jobs: tuple[SimJob, ...]) -> Draws:
    return Draws(world="w", family="usual", seed=0, deadline_s={}, jobs=len(jobs))


def test_the_plan_shares_where_both_make_it_and_only_there() -> None:
    for deadline_s, shares in ((59.0, False), (60.0, True)):  # two heavies: 2.5 times as long
        jobs = (
            job("a", 0, 24, workload="heavy", deadline_s=deadline_s + 1),
            job("b", 0, 24, workload="heavy", deadline_s=deadline_s),
        )
        edge = at_noon(*jobs)
        found = run(edge, planned(edge, share=True))
        assert bool(found.shared.max()) is shares
    blind = known(*jobs)
    packing = GreedyPacking(predictor=blind, profiles=blind.profiles, mode=MODE)
    tight = at_noon(*(replace(one, deadline_s=30.0) for one in jobs))
    assert scored(run(tight, DeadlineQueue(edge=tight, order=EarliestDeadline(), drop=True, sharing=packing))).met == 0
    assert scored(run(tight, planned(tight, share=True))).met == 1


def test_an_admitted_job_keeps_its_slot() -> None:
    """b fits in before a must start; c would make a late."""
    jobs = (
        job("first", 0, 10),
        job("a", 1, 50, deadline_s=80.0),
        job("b", 1, 20, deadline_s=40.0),
        job("c", 2, 20, deadline_s=60.0),
    )
    edge = at_noon(*jobs)
    for scheduler in (SlotAdmission(edge=edge), planned(edge)):
        found = run(edge, scheduler)
        assert ended(found) == {"first": 10, "a": 80, "b": 30, "c": math.inf}
        score = scored(found, scheduler.promised)
        assert (score.promised, score.broken) == (2, 0)


@pytest.mark.parametrize("seed", range(2))
def test_every_scheduler_to_the_end_nobody_late_who_was_promised(seed: int) -> None:
    """Twenty-five jobs and gangs on four cloud and four edge devices through two nights."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.uniform(0, 30 * HOUR_S, 25)).tolist()
    jobs = tuple(
        job(
            f"j{k}",
            at,
            float(rng.exponential(5 * HOUR_S)),
            str(rng.choice([*NAMES, "stranger"])),
            int(rng.integers(1, 4)),
        )
        for k, at in enumerate(arrivals)
    )
    plain = World(name="w", jobs=jobs, devices=devices(4))
    dated = with_deadlines(plain, drawn(plain, "usual", seed))
    edge = with_edge(dated, clock_s=NOON_S, taken=seed if seed % 2 else None)
    for scheduler in all_schedulers(edge):
        found = run(edge, scheduler)
        promised = getattr(scheduler, "promised", {})
        score = scored(found, promised)
        dropped = np.isinf(found.ended_s)
        assert all(math.isfinite(one.deadline_s) for one, gone in zip(edge.world.jobs, dropped, strict=True) if gone)
        assert score.met <= score.with_deadline
        assert 0 <= score.wasted_gpu_h <= score.used_gpu_h + found.stops.sum() * 3 * CHECKPOINT_S / HOUR_S
        if seed % 2 == 0 and not (getattr(scheduler, "sharing", None) or getattr(scheduler, "share", False)):
            assert score.broken == 0


def test_a_dropped_job_never_runs_and_only_a_waiting_one_can_be() -> None:
    class Drops:
        def decide(self, cluster: Cluster) -> Decision:
            waiting = [one for one in cluster.waiting if one != "a"]
            free = cluster.free()
            starts = [Start(job_id="a", device_ids=(free[0].id,))] if free and "a" in cluster.waiting else []
            return Decision(starts=starts, drops=waiting)

    found = replay(world(job("a", 0, 5), job("b", 1, 5)), TableTruth([USUAL]), Drops())
    assert found.ended_s.tolist() == [5.0, math.inf]
    cluster = Cluster(world(job("a", 0, 5)), TableTruth([USUAL]))
    with pytest.raises(ValueError, match="does not wait"):
        cluster.drop("a")


def test_the_plan_declines_and_its_actions_are_those_it_may_take() -> None:
    assert ActionKind.DECLINE.value == "decline"
    told = known(job("x", 0, 5, workload="new"))
    assert told.knows(edge_type(TYPE), MODE) == ""
    assert told.knows("other", MODE)
    assert told.profiles["new", edge_type(TYPE)].step_time_s == pytest.approx(1 / EDGE_SPEED)


# --- the study --------------------------------------------------------------------------------------------------------


def test_a_table_of_schedulers_on_the_parts_of_a_world() -> None:
    rng = np.random.default_rng(0)
    arrivals = np.sort(rng.uniform(0, 90 * HOUR_S, 60)).tolist()
    whole = World(
        name="w",
        devices=devices(8),
        jobs=tuple(job(f"j{k}", at, float(rng.exponential(4 * HOUR_S)), "heavy", 2) for k, at in enumerate(arrivals)),
    )
    found = parts(whole, start_s=6 * HOUR_S, most_jobs=15)
    assert [one.name for one, _ in found] == ["w/1", "w/2", "w/3"]
    assert all(len(one.jobs) <= 15 and 0 <= one.jobs[0].arrival_s < 30 * HOUR_S for one, _ in found)
    third_s = (arrivals[-1] / 3 + 6 * HOUR_S) % (24 * HOUR_S)
    assert [clock_s for _, clock_s in found] == pytest.approx(
        [6 * HOUR_S, third_s, (2 * third_s - 6 * HOUR_S) % 86400], abs=1
    )
    edges = [Setting().world(one, drawn(one, "usual", 0), clock_s) for one, clock_s in found]
    names = ("EDF", "EDF that drops", "plan + sharing")
    scores = {name: [played(edge, schedulers()[name], USUAL, knowing(USUAL)) for edge in edges] for name in names}
    lines = table(scores).split("\n\n")[0].splitlines()
    assert {line[:32].strip() for line in lines[1:]} == set(names)
    means = {name: np.mean([one.satisfaction for one in mine]) for name, mine in scores.items()}
    (edf,) = [line for line in lines if line.startswith("EDF ") and "drops" not in line]
    assert f"{means['EDF']:.3f} [" in edf
    assert f"{means['EDF'] - means['EDF that drops']:+.3f} [" in edf
    (sharing,) = [line for line in lines if line.startswith("plan")]
    assert " -  " in sharing  # its rival is not there


def test_an_interval_holds_the_mean_and_narrows_to_a_point() -> None:
    mean, low, high = interval([0.1, 0.5, 0.3, 0.9])
    assert mean == pytest.approx(0.45)
    assert low < mean < high
    assert interval([0.2, 0.2]) == pytest.approx((0.2, 0.2, 0.2))
