"""Small replays whose every time is worked out by hand."""

import math
from dataclasses import replace

import pytest

from interfere.errors import InvalidInputError, UnfitError
from interfere.records import Device
from interfere.sim.beliefs import true_beliefs
from interfere.sim.cluster import Cluster, Decision, Scheduler, Start
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.orders import Fifo, ShortestFirst
from interfere.sim.schedulers.queue import Backfill, QueueScheduler
from interfere.sim.schedulers.records import Queue, SchedulerRecord
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth
from interfere.sim.world import SimDevice, World
from interfere.testing.schedulers import MODE, USUAL, devices, job, truth
from tests.sim.small_worlds import sharings, world

GREEDY, CAPPED, PLANNED, PLANNED_CAPPED = range(1, 5)  # places in `sharings`


def ends(made: World, scheduler: Scheduler) -> dict[str, float]:
    done = replay(made, TableTruth([USUAL]), scheduler)
    return dict(zip([one.id for one in made.jobs], done.ended_s.tolist(), strict=True))


def test_one_after_the_other() -> None:
    made = world(job("a", 0, 10), job("b", 1, 5), job("c", 2, 1))
    assert ends(made, QueueScheduler(order=Fifo())) == {"a": 10, "b": 15, "c": 16}
    assert ends(made, QueueScheduler(order=ShortestFirst())) == {"a": 10, "c": 11, "b": 16}


def test_backfill_passes_a_gang_that_does_not_fit() -> None:
    made = world(job("a", 0, 10), job("gang", 1, 5, gpus=2), job("c", 2, 1), count=2)
    assert ends(made, QueueScheduler(order=Fifo(), backfill=Backfill.NONE)) == {"a": 10, "gang": 15, "c": 16}
    assert ends(made, QueueScheduler(order=Fifo())) == {"a": 10, "c": 3, "gang": 15}


def test_a_gang_waits_for_a_whole_node() -> None:
    made = World(
        name="w",
        devices=devices(4, per_node=2),
        jobs=(job("a", 0, 10), job("gang", 0, 10, gpus=2), job("c", 1, 4), job("late", 2, 1, gpus=2)),
    )
    # a is on one node, the gang on the other; c joins a's node: the late gang waits for one of the two to be empty.
    assert ends(made, QueueScheduler(order=Fifo()))["late"] == 11
    assert ends(made, QueueScheduler(order=Fifo(), whole_nodes=False))["late"] == 11
    two = World(
        name="w",
        devices=devices(4, per_node=2),
        jobs=(*(job(f"s{k}", 0, 5 + k % 2 * 5) for k in range(4)), job("late", 2, 1, gpus=2)),
    )
    # At 5 one device of each node is free: enough for who takes any two, not for who wants one node.
    assert ends(two, QueueScheduler(order=Fifo()))["late"] == 11
    assert ends(two, QueueScheduler(order=Fifo(), whole_nodes=False))["late"] == 6


@pytest.mark.parametrize("how", [GREEDY, PLANNED])
def test_two_share_until_one_ends(how: int) -> None:
    """light beside heavy 1.3, heavy beside light 1.2: from 2 on both run; the light one has done its 5 at 8.5, when the
    heavy one, at 2 + 6.5 / 1.2, has 8 - 5.4167 left."""
    made = world(job("host", 0, 10, "heavy"), job("guest", 2, 5, "light"))
    found = ends(made, QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[how]))
    assert found["guest"] == pytest.approx(2 + 5 * 1.3)
    assert found["host"] == pytest.approx(8.5 + 8 - 6.5 / 1.2)


def test_no_neighbour_slows_the_time_before_the_first_step() -> None:
    """The guest, slowed 1.3 times, needs 2 s of its 5 before it steps: it takes 2 + 3 * 1.3, and nor does it slow the
    host, by 1.2, before it steps."""
    made = world(job("host", 0, 10, "heavy"), job("guest", 2, 5, "light", idle_s=2.0))
    found = ends(made, QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[GREEDY]))
    assert found["guest"] == pytest.approx(2 + 2 + 3 * 1.3)
    assert found["host"] == pytest.approx(found["guest"] + 10 - (2 + 2 + 3 * 1.3 / 1.2))


def test_a_job_that_loads_or_ends_is_as_any_other_that_does() -> None:
    """Both load for 2 s as medium jobs: beside each other 1.6 times as long. Then the guest has 1 s of steps, and the
    host goes on; the guest ends for 1 s, as a medium job again, and keeps its place until then."""
    slowed = {
        (name, other): float(USUAL.table[i, j]) for name, i in USUAL.index.items() for other, j in USUAL.index.items()
    }
    host = job("host", 0, 20, "heavy", start_up_s=2.0)
    guest = job("guest", 0, 4, "light", start_up_s=2.0, shut_down_s=1.0)
    scheduler = QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[GREEDY])
    done = replay(world(host, guest), TableTruth([USUAL], loading_workload="medium"), scheduler)
    loaded_s = 2 * slowed["medium", "medium"]
    stepped_s = loaded_s + slowed["light", "heavy"]
    over_s = stepped_s + slowed["medium", "heavy"]
    assert [(span.start_s, span.end_s) for span in done.spans if span.job_id == "guest"] == [
        (0, pytest.approx(loaded_s)),
        (pytest.approx(loaded_s), pytest.approx(stepped_s)),
        (pytest.approx(stepped_s), pytest.approx(over_s)),
    ]
    assert [span.stepping for span in done.spans if span.job_id == "guest"] == [False, True, False]
    assert done.ended_s[1] == pytest.approx(over_s)
    host_s = (stepped_s - loaded_s) / slowed["heavy", "light"] + (over_s - stepped_s) / slowed["heavy", "medium"]
    assert done.ended_s[0] == pytest.approx(over_s + 20 - 2 - host_s)


def test_a_job_that_is_stopped_while_it_loads_loads_again() -> None:
    made = World(
        name="w",
        jobs=(job("a", 0, 10, start_up_s=4.0, shut_down_s=1.0, checkpoint_s=3.0),),
        devices=(SimDevice(device=devices(1)[0].device, windows=((0.0, 5.0), (20.0, math.inf))),),
    )
    done = replay(made, TableTruth([USUAL]), QueueScheduler(order=Fifo()))
    assert done.ended_s.tolist() == [20 + 5 + 3]
    assert [span.stepping for span in done.spans] == [False, True, False, True, False]


def test_backfill_knows_limits_in_whole_units() -> None:
    """a ends at 10, the gang waits for it; c would be over before: but its limit says a whole minute."""
    made = world(job("a", 0, 10), job("gang", 1, 5, gpus=2), job("c", 2, 1), count=2)
    record = SchedulerRecord(queue=Queue.FIFO, backfill=Backfill.EASY)
    known = true_beliefs(USUAL)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE, whole_nodes=False)
    told, rounded = (make_scheduler(record, replace(settings, limit_unit_s=unit_s)) for unit_s in (0.0, 60.0))
    assert ends(made, told) == {"a": 10, "c": 3, "gang": 15}
    assert ends(made, rounded) == {"a": 10, "gang": 15, "c": 16}


@pytest.mark.parametrize("how", [CAPPED, PLANNED_CAPPED])
def test_a_cap_keeps_them_apart(how: int) -> None:
    made = world(job("host", 0, 10, "heavy"), job("guest", 2, 5, "medium"))  # 1.5 and 1.8
    assert ends(made, QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[how])) == {"host": 10, "guest": 15}


@pytest.mark.parametrize("how", [GREEDY, PLANNED])
def test_gangs_share_with_gangs_of_their_size(how: int) -> None:
    made = world(job("host", 0, 10, gpus=2), job("small", 1, 2), job("guest", 1, 4, gpus=2), count=2)
    found = ends(made, QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[how]))
    assert found["guest"] == pytest.approx(1 + 4 * 1.1)
    assert found["small"] == pytest.approx(found["host"] + 2)


@pytest.mark.parametrize("how", [GREEDY, PLANNED])
def test_workloads_without_truth_never_share(how: int) -> None:
    made = world(job("host", 0, 10, "stranger"), job("guest", 2, 5))
    assert ends(made, QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[how])) == {"host": 10, "guest": 15}


def test_a_device_that_leaves_stops_its_job() -> None:
    there = SimDevice(device=devices(1)[0].device, windows=((0.0, 10.0), (20.0, math.inf)))
    done = _one(World(name="w", jobs=(job("a", 0, 15, checkpoint_s=1.0),), devices=(there,)))
    assert done.ended_s.tolist() == [26]  # 10 done, 5 and the checkpoint left from 20 on
    assert done.stops.tolist() == [1]
    never = SimDevice(device=devices(1)[0].device, windows=((0.0, 10.0),))
    with pytest.raises(UnfitError, match="wait for ever"):
        _one(World(name="w", jobs=(job("a", 0, 15),), devices=(never,)))


def test_a_slower_device_takes_longer() -> None:
    done = _one(World(name="w", jobs=(job("a", 0, 7),), devices=devices(1, speed=0.7)))
    assert done.ended_s.tolist() == [pytest.approx(10)]


def test_devices_in_use_over_time() -> None:
    done = replay(
        world(job("a", 0, 10), job("b", 4, 1, "heavy"), count=2),
        TableTruth([USUAL]),
        QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[GREEDY]),
    )
    assert list(zip(done.at_s, done.busy, done.shared, strict=True)) == [(0, 1, 0), (4, 2, 0), (5, 1, 0), (10, 0, 0)]


def _one(made: World) -> Replayed:
    return replay(made, TableTruth([USUAL]), QueueScheduler(order=Fifo()))


class FixedDecision:
    """A scheduler that makes a given decision at the first moment, and none later."""

    def __init__(self, *starts: Start, stops: tuple[str, ...] = ()) -> None:
        self.decision = Decision(starts=starts, stops=stops)

    def decide(self, cluster: Cluster) -> Decision:
        decision, self.decision = self.decision, Decision()
        return decision


def test_decisions_that_are_not_allowed_raise() -> None:
    jobs = (job("a", 0, 1), job("b", 0, 1, "heavy"), job("c", 0, 1), job("d", 0, 1, "stranger"))
    bound = job("e", 0, 1, pools=("x",))
    there = (*devices(2), SimDevice(device=Device(id="x", type="v100", pool="x")))

    def asked(names: str, *places: str, stops: tuple[str, ...] = ()) -> None:
        starts = [Start(job_id=name, device_ids=(place,)) for name, place in zip(names, places, strict=True)]
        made = World(name="w", jobs=(*jobs, bound), devices=there)
        replay(made, TableTruth([USUAL]), FixedDecision(*starts, stops=stops))

    with pytest.raises(ValueError, match="does not wait"):
        asked("aa", "d0", "d1")
    with pytest.raises(ValueError, match="neither free"):
        asked("abc", "d0", "d0", "d0")
    with pytest.raises(ValueError, match="must not share"):
        asked("ad", "d0", "d0")
    with pytest.raises(ValueError, match="may not run in"):
        asked("e", "d0")
    with pytest.raises(ValueError, match="does not run"):
        asked("", stops=("a",))
    with pytest.raises(ValueError, match="takes 1 devices"):
        replay(
            world(job("a", 0, 1), count=2),
            TableTruth([USUAL]),
            FixedDecision(Start(job_id="a", device_ids=("d0", "d1"))),
        )


def test_a_dropped_job_never_runs_and_only_a_waiting_job_can_be_dropped() -> None:
    class DropsAllButA:
        def decide(self, cluster: Cluster) -> Decision:
            others = [name for name in cluster.waiting if name != "a"]
            free = list(cluster.free)
            starts = [Start(job_id="a", device_ids=(free[0].id,))] if free and "a" in cluster.waiting else []
            return Decision(starts=starts, drops=others)

    done = replay(world(job("a", 0, 5), job("b", 1, 5)), TableTruth([USUAL]), DropsAllButA())
    assert done.ended_s.tolist() == [5.0, math.inf]
    cluster = Cluster(world(job("a", 0, 5)), TableTruth([USUAL]))
    with pytest.raises(ValueError, match="does not wait"):
        cluster.drop("a")


def test_worlds_that_are_not_valid() -> None:
    with pytest.raises(InvalidInputError, match="more devices than there are"):
        world(job("a", 0, 1, gpus=2))
    with pytest.raises(InvalidInputError, match="makes no step for longer than it runs"):
        job("a", 0, 1, idle_s=2.0)
    with pytest.raises(InvalidInputError, match="order of arrival"):
        world(job("a", 1, 1), job("b", 0, 1))
    with pytest.raises(InvalidInputError, match="job is in the world twice"):
        world(job("a", 0, 1), job("a", 0, 1))
    with pytest.raises(InvalidInputError, match="device is in the world twice"):
        World(name="w", jobs=(), devices=devices(1) * 2)
    with pytest.raises(InvalidInputError, match="in order and disjoint"):
        devices(1, windows=((5.0, 3.0),))
    with pytest.raises(InvalidInputError, match="must be positive"):
        devices(1, speed=0.0)


def test_load() -> None:
    assert world(job("a", 0, 10), job("b", 20, 10), count=2).load == 0.5


def test_a_pair_without_truth_has_no_slowdown() -> None:
    assert math.isnan(TableTruth([truth((1.0,), names=("only",))]).slowdown("only", ("other",), "v100"))


@pytest.mark.parametrize("how", [GREEDY, PLANNED])
def test_a_guest_that_would_outlast_its_host_waits(how: int) -> None:
    """Ends of both together: the host's 8 s left at 1.2 are 9.6 s, the guest's at 1.3 too where it runs 7.38 s."""
    for guest_s, waits in ((7.3, False), (7.4, True)):
        made = world(job("host", 0, 10, "heavy"), job("guest", 2, guest_s, "light"))
        found = ends(made, QueueScheduler(order=Fifo(), sharing=sharings(USUAL, ends_first=True)[how]))
        assert found["guest"] == pytest.approx(10 + guest_s if waits else 2 + guest_s * 1.3)
