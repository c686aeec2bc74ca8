"""Every registered scheduler does what `conformance` demands, on worlds of every kind."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from interfere.sim.beliefs import true_beliefs
from interfere.sim.cluster import Scheduler
from interfere.sim.edge_world import EdgeSetting, draw_deadlines, edge_beliefs, edge_truth, with_deadlines
from interfere.sim.schedulers.records import PRESETS, Queue, SchedulerRecord, Sharing
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth
from interfere.sim.world import HOUR_S, SimDevice, SimJob, World
from tests.sim.schedulers.conformance import Contract, check_scheduler
from tests.sim.small_worlds import MODE, NAMES, USUAL, devices, job

MAX_SLOWDOWN, MAX_SHARED_GPUS = 1.5, 2
BELIEFS = edge_beliefs(true_beliefs(USUAL), ["stranger"])
SETTINGS = SchedulerSettings(
    predictor=BELIEFS,
    profiles=BELIEFS.profiles,
    mode=MODE,
    max_slowdown=MAX_SLOWDOWN,
    max_shared_gpus=MAX_SHARED_GPUS,
)
TRUTH = TableTruth(edge_truth(USUAL))
SEATED = (
    replace(PRESETS["fifo-matching"], seats=3),
    replace(PRESETS["sjf-easy-matching"], seats=4),
    SchedulerRecord(queue=Queue.POLICY, sharing=Sharing.MATCHING, one_gpu=True, seats=3),
)
TESTED = (*(record for record in PRESETS.values() if not record.one_gpu), *SEATED)


def jobs(seed: int, count: int, max_gpus: int, mean_s: float) -> tuple[SimJob, ...]:
    """Jobs of every workload in a queue that builds up; some arrive together."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.integers(0, count // 2, count)).tolist()
    return tuple(
        job(
            f"j{k}",
            arrival * mean_s / 3,
            float(rng.exponential(mean_s)),
            str(rng.choice([*NAMES, "stranger"])),
            int(rng.integers(1, max_gpus + 1)),
            checkpoint_s=mean_s / 100,
        )
        for k, arrival in enumerate(arrivals)
    )


def gangs() -> World:
    """Gangs of up to four on two nodes of two devices."""
    return World(name="gangs", jobs=jobs(0, 8, 4, 100.0), devices=devices(4, per_node=2))


def one_device() -> World:
    """Single devices asked for, and one that there is; one job may not be stopped."""
    first, *others = jobs(1, 8, 1, 100.0)
    return World(name="one", jobs=(replace(first, preemptible=False), *others), devices=devices(1))


def pools() -> World:
    """Two pools; some jobs may run in one only."""
    present = tuple(
        replace(device, device=replace(device.device, pool="xy"[k % 2])) for k, device in enumerate(devices(4))
    )
    allowed = ((), ("x",), ("y",))
    bound = tuple(replace(one, pools=allowed[k % 3]) for k, one in enumerate(jobs(2, 8, 2, 100.0)))
    return World(name="pools", jobs=bound, devices=present)


def windows() -> World:
    """A device that leaves and returns, without deadlines."""
    leaving = SimDevice(device=devices(1)[0].device, windows=((0.0, 90.0), (150.0, 400.0), (600.0, 1e9)))
    return World(name="windows", jobs=jobs(3, 8, 2, 100.0), devices=(leaving, *devices(3)[1:]))


def deadlines() -> World:
    """Deadlines on devices that are always present."""
    world = World(name="deadlines", jobs=jobs(1, 8, 2, 100.0), devices=devices(3))
    return with_deadlines(world, draw_deadlines(world, "usual", seed=0))


def edge() -> World:
    """Deadlines, and edge devices through a night in which they are taken back."""
    world = World(name="edge", jobs=jobs(5, 8, 2, 3 * HOUR_S), devices=devices(4, per_node=1), clock_s=20 * HOUR_S)
    dated = with_deadlines(world, draw_deadlines(world, "loose", seed=0))
    return EdgeSetting(revoked=True, seed=1).apply(dated)


@pytest.mark.parametrize("world", [gangs, one_device, pools, windows, deadlines, edge])
@pytest.mark.parametrize("record", TESTED, ids=lambda record: record.label)
def test_every_scheduler_on_every_world(record: SchedulerRecord, world: Callable[[], World]) -> None:
    contract = Contract(record=record, beliefs=BELIEFS, max_slowdown=MAX_SLOWDOWN, max_shared_gpus=MAX_SHARED_GPUS)

    def make() -> Scheduler:
        return make_scheduler(record, SETTINGS)

    check_scheduler(make, contract, world(), TRUTH)


def test_the_worlds_make_schedulers_do_everything() -> None:
    """On these worlds jobs share, are stopped, dropped and promised; else the suite would prove little."""

    def done(name: str, world: World) -> tuple[bool, bool, bool, bool]:
        contract = Contract(PRESETS[name], BELIEFS, MAX_SLOWDOWN, MAX_SHARED_GPUS)
        replayed = check_scheduler(lambda: make_scheduler(PRESETS[name], SETTINGS), contract, world, TRUTH)
        return (
            any(span.partner_id for span in replayed.spans),
            bool(replayed.stops.sum()),
            bool(np.isinf(replayed.ended_s).any()),
            bool(np.isfinite(replayed.promised_s).any()),
        )

    assert all(done("srtf-first-fit-greedy", gangs())[:2])
    for name in ("slots-greedy", "policy-deadlines"):
        assert all(done(name, deadlines())[k] for k in (0, 2, 3))
    assert done("fifo-first-fit", edge())[1]
