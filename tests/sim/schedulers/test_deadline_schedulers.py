"""Schedulers of deadlines on a cluster with idle edge devices, worked out by hand, and laws for all of them."""

import math

import numpy as np
import pytest

from interfere.sim.beliefs import true_beliefs
from interfere.sim.cluster import Scheduler
from interfere.sim.edge_world import CHECKPOINT_S, EdgeSetting, edge_beliefs, edge_truth, with_deadlines
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.score import score
from interfere.sim.truth import TableTruth, TruthTable
from interfere.sim.world import HOUR_S, SimJob, World
from interfere.testing.schedulers import MODE, NAMES, USUAL, devices, job
from tests.sim.small_worlds import world

NOON_S = 12 * HOUR_S
EDGE_ADDED = EdgeSetting(added=True)
EDF, EDF_DROP, SLOTS, PLAN = "edf-first-fit", "edf-first-fit-drop", "slots", "policy-deadlines-alone"
OF_DEADLINES = (EDF_DROP, SLOTS, PLAN)  # heed deadlines when they start jobs


def scheduler(name: str, edge: World, table: TruthTable = USUAL, duration_error: float = 0.0) -> Scheduler:
    """Without cap or least joint throughput, on any nodes."""
    beliefs = edge_beliefs(true_beliefs(table), [one.workload for one in edge.jobs])
    settings = SchedulerSettings(
        predictor=beliefs,
        profiles=beliefs.profiles,
        mode=MODE,
        max_slowdown=math.nan,
        min_joint_throughput=0.0,
        guest_ends_first=False,
        whole_nodes=False,
        duration_error=duration_error,
    )
    return make_scheduler(PRESETS[name], settings)


def run(edge: World, name: str, table: TruthTable = USUAL) -> Replayed:
    return replay(edge, TableTruth(edge_truth(table)), scheduler(name, edge, table))


def at_noon(*jobs: SimJob, count: int = 1) -> World:
    """The edge opens ten hours from now."""
    return EDGE_ADDED.apply(world(*jobs, count=count, clock_s=NOON_S))


def ends(replayed: Replayed) -> dict[str, float]:
    return dict(zip((one.id for one in replayed.world.jobs), replayed.ended_s.tolist(), strict=True))


def test_edf_runs_infeasible_jobs_first_and_schedulers_that_drop_do_not() -> None:
    """One device, taken until 10. At 10, a (20 s) can no longer make 25; b (10 s) can make 30."""
    jobs = (job("first", 0, 10), job("a", 1, 20, deadline_s=25.0), job("b", 1, 10, deadline_s=30.0))
    edge = at_noon(*jobs)
    assert ends(run(edge, EDF)) == {"first": 10, "a": 30, "b": 40}
    for name in OF_DEADLINES:
        replayed = run(edge, name)
        assert ends(replayed) == {"first": 10, "a": math.inf, "b": 20}
        found = score([replayed], cap=1.5)
        assert (found.with_deadline, found.met, found.satisfaction, found.dropped) == (2, 1, 0.5, 1)
        assert found.wasted_gpu_h == 0.0
        assert found.best_effort_jct_s == 10.0
        assert found.mean_completion_s == pytest.approx((10 + 19) / 2)  # of jobs that end


def test_the_order_of_deadlines() -> None:
    jobs = (job("first", 0, 10), job("long", 1, 50, deadline_s=65.0), job("short", 1, 5, deadline_s=60.0))
    edge = at_noon(*jobs)
    assert ends(run(edge, EDF))["short"] == 15
    assert ends(run(edge, "fifo-first-fit"))["short"] == 65


def test_nothing_is_started_at_the_edge_that_would_be_late_there() -> None:
    """In the night both devices are free; 70 s become 100 at the edge."""
    busy, tight = job("busy", 0, 100, deadline_s=110.0), job("tight", 0, 70, deadline_s=95.0)
    edge = EDGE_ADDED.apply(world(busy, tight, job("easy", 0, 70)))
    for name in OF_DEADLINES:
        found = ends(run(edge, name))
        assert found["easy"] == pytest.approx(100.0)
        assert sorted(found.values())[1:] in ([100.0, math.inf], [pytest.approx(100.0), math.inf]) or (
            found["tight"] == 70.0
        )
    late = ends(run(edge, "fifo-first-fit"))
    assert late["tight"] == pytest.approx(100.0)


def test_in_the_morning_the_edge_leaves_and_a_checkpoint_is_paid() -> None:
    """Seven hours of work begin at the edge at one: 4.9 h are done at eight, when the cloud is free again."""
    jobs = (job(name, 0, 7 * HOUR_S, checkpoint_s=CHECKPOINT_S) for name in ("cloud", "edge"))
    edge = EDGE_ADDED.apply(world(*jobs, clock_s=HOUR_S))
    for name in ("fifo-first-fit", SLOTS, PLAN):
        replayed = run(edge, name)
        assert max(ends(replayed).values()) == pytest.approx((7 + 7 - 4.9) * HOUR_S + CHECKPOINT_S)
        assert replayed.stops.sum() == 1
        assert score([replayed], cap=1.5).wasted_gpu_h == pytest.approx(CHECKPOINT_S / HOUR_S)


def test_the_server_shares_where_both_jobs_meet_their_deadlines_and_only_there() -> None:
    """Together two light jobs end after 26.4 s, one after the other after 48 s."""
    for deadline_s, shares in ((26.0, False), (26.5, True)):
        jobs = (job("a", 0, 24, deadline_s=deadline_s + 1), job("b", 0, 24, deadline_s=deadline_s))
        replayed = run(at_noon(*jobs), "policy-deadlines")
        assert bool(replayed.shared.max()) is shares
        assert score([replayed], cap=1.5).met == 1 + shares
    heavy = at_noon(*(job(name, 0, 24, workload="heavy", deadline_s=30.0) for name in "ab"))
    for name in ("edf-first-fit-drop-greedy", "policy-deadlines"):
        assert score([run(heavy, name)], cap=1.5).met == 1  # one after the other: the second is late


@pytest.mark.parametrize("name", ["edf-first-fit-drop-greedy", "policy-no-promises", "policy-deadlines"])
def test_a_short_job_that_cannot_wait_starts_before_two_that_share_and_can(name: str) -> None:
    sharing = [job(one, 0, 60, workload="light", deadline_s=300.0) for one in ("a", "b")]
    short = job("short", 0, 10, workload="light", deadline_s=10.1)
    assert score([run(at_noon(*sharing, short), name)], cap=1.5).met == 3


def test_an_admitted_job_keeps_its_slot() -> None:
    """b fits in before a must start; c would make a late."""
    jobs = (
        job("first", 0, 10),
        job("a", 1, 50, deadline_s=80.0),
        job("b", 1, 20, deadline_s=40.0),
        job("c", 2, 20, deadline_s=60.0),
    )
    for name in (SLOTS, PLAN):
        replayed = run(at_noon(*jobs), name)
        assert ends(replayed) == {"first": 10, "a": 80, "b": 30, "c": math.inf}
        found = score([replayed], cap=1.5)
        assert (found.promised, found.broken) == (2, 0)


@pytest.mark.parametrize("seed", range(2))
def test_no_promised_deadline_is_missed_without_sharing_and_revocations(seed: int) -> None:
    """Twenty-five jobs and gangs on four cloud and four edge devices through two nights."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.uniform(0, 30 * HOUR_S, 25)).tolist()
    jobs = tuple(
        job(
            f"j{k}",
            arrival_s,
            float(rng.exponential(5 * HOUR_S)),
            str(rng.choice([*NAMES, "stranger"])),
            int(rng.integers(1, 4)),
            checkpoint_s=CHECKPOINT_S,
        )
        for k, arrival_s in enumerate(arrivals)
    )
    plain = World(name="w", jobs=jobs, devices=devices(4), clock_s=NOON_S)
    dated = with_deadlines(plain, "usual", seed=seed)
    edge = EdgeSetting(added=True, revoked=bool(seed % 2), seed=seed).apply(dated)
    orders = [f"{order}-first-fit" for order in ("fifo", "sjf", "edf")]
    queues = [order + drop for order in orders for drop in ("", "-drop")]
    names = [name + sharing for name in (*queues, SLOTS) for sharing in ("", "-greedy")]
    for name in (*names, PLAN, "policy-deadlines"):
        replayed = run(edge, name)
        found = score([replayed], cap=1.5)
        dropped = np.isinf(replayed.ended_s)
        assert all(one.has_deadline for one, is_dropped in zip(edge.jobs, dropped, strict=True) if is_dropped)
        assert found.met <= found.with_deadline
        assert 0 <= found.wasted_gpu_h <= found.used_gpu_h + found.stops * 3 * CHECKPOINT_S / HOUR_S
        if seed % 2 == 0 and not PRESETS[name].sharing:
            assert found.broken == 0


def test_a_greedy_pair_of_a_scheduler_that_drops_meets_both_deadlines() -> None:
    """Beside heavy a light guest makes its host 1.2 times slower: 10 s of it end by 11 alone, with the guest not."""
    for deadline_s, guest_s in ((11.0, 15.0), (13.0, 5 * 1.3)):
        host = job("host", 0, 10, "heavy", deadline_s=deadline_s)
        found = ends(run(world(host, job("guest", 0, 5, "light")), "edf-first-fit-drop-greedy"))
        assert found["guest"] == pytest.approx(guest_s)
        assert found["host"] <= deadline_s
    late = world(job("host", 0, 10, "heavy"), job("guest", 0, 5, "light", deadline_s=6.0))
    assert ends(run(late, "edf-first-fit-drop-greedy"))["guest"] in (5.0, math.inf)


NOISY = (EDF_DROP, f"{EDF_DROP}-greedy", SLOTS, "policy-deadlines")


@pytest.mark.parametrize("name", NOISY)
def test_run_times_with_an_error_are_what_a_scheduler_of_deadlines_goes_by(name: str) -> None:
    """Jobs end in other order or at other times; none is lost, and next to no error changes next to nothing."""
    rng = np.random.default_rng(5)
    rows = zip(np.sort(rng.uniform(0, 4000, 40)).tolist(), rng.lognormal(6, 1, 40).tolist(), strict=True)
    drawn = world(*(job(f"j{k}", *row, workload=NAMES[k % 3]) for k, row in enumerate(rows)), count=3, clock_s=NOON_S)
    edge = EDGE_ADDED.apply(with_deadlines(drawn, "usual", seed=1))
    truths = TableTruth(edge_truth(USUAL))
    exact, none, off = (replay(edge, truths, scheduler(name, edge, USUAL, error)) for error in (0.0, 1e-12, 0.8))
    assert np.allclose(exact.ended_s, none.ended_s)
    assert not np.array_equal(exact.ended_s, off.ended_s)
    assert not np.isnan(off.ended_s).any()


def test_a_deadline_is_given_up_only_where_an_optimistic_run_time_misses_it() -> None:
    """Run times of 10 s told with an error of .5: at most a tenth of the jobs, told far too long, are given up at once,
    where an estimate that is taken at its word gives up a third of them."""
    jobs = [job(f"j{k}", 1000.0 * k, 10.0, deadline_s=1000.0 * k + 12.0) for k in range(300)]
    edge = at_noon(*jobs)
    lost = np.isinf(replay(edge, TableTruth(edge_truth(USUAL)), scheduler(EDF_DROP, edge, USUAL, 0.5)).ended_s).mean()
    assert 0.005 < lost < 0.1
