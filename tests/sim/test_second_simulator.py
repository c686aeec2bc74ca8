"""The simulator agrees to the second with one that shares no code with it, on three traces."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from interfere.data.importers.published_traces import import_helios, import_philly
from interfere.data.traces import JobTrace, VirtualCluster
from interfere.sim.beliefs import true_beliefs
from interfere.sim.edge_world import with_deadlines
from interfere.sim.replay import replay
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.trace_worlds import scale_to_load, worlds_of
from interfere.sim.truth import TableTruth
from interfere.sim.world import SimJob, World
from interfere.testing.schedulers import MODE, TYPE, USUAL, devices, job
from tests.data.importers.public_files import public
from tests.sim.second_simulator import SecondSimulator, Submission

KNOWN = true_beliefs(USUAL)
SETTINGS = SchedulerSettings(predictor=KNOWN, profiles=KNOWN.profiles, mode=MODE)
SCHEDULERS = [
    *((order, backfill) for order in ("fifo", "sjf", "edf") for backfill in ("none", "first-fit", "easy")),
    ("srtf", "first-fit"),
    ("tiresias", "first-fit"),
]
CHECKPOINT_S = 62.0
MAX_JOBS = 450  # of a trace: the second simulator looks at every job at every event


def of_trace(trace: JobTrace | None, name: str, clusters: tuple[VirtualCluster, ...] = ()) -> World:
    """The first jobs of a virtual cluster, with deadlines, jobs of one second in order of their ids."""
    assert trace is not None
    made = worlds_of(trace, device_type=TYPE, mode=MODE, clusters=clusters, checkpoint_s=CHECKPOINT_S)
    (world,) = [world for world in made.worlds if world.name == name]
    first = sorted(world.jobs, key=lambda one: (one.arrival_s, one.id))[:MAX_JOBS]
    world = replace(world, jobs=tuple(first))
    return with_deadlines(world, "usual", seed=0)


def venus() -> World:
    """The beginning of a month of gangs of up to 32 devices (a reconstruction from public simulator logs)."""
    return of_trace(import_helios(public("venus/jobs_4vc.csv"), vc_config=public("venus/vc_config.csv")).trace, "vcWoR")


def philly() -> World:
    """Durations that are no whole seconds, on four nodes of four, at a load of 0.9."""
    path = public("gavel/philly_103959.trace")
    trace = import_philly(path, throughputs=public("gavel/oracle_throughputs.json")).trace
    world = of_trace(trace, "all", (VirtualCluster(vc="all", nodes=4, gpus_per_node=4),))
    return scale_to_load(world, 0.9)


def drawn() -> World:
    """Jobs that wait long, on five nodes of four; many arrive in the same second."""
    rng = np.random.default_rng(5)
    arrivals = np.sort(rng.integers(0, 20_000, 250)).tolist()
    jobs: list[SimJob] = [
        job(
            f"j{k:03}",
            float(at),
            float(rng.integers(1, 2500)),
            gpus=int(rng.choice([1, 1, 1, 2, 3, 4, 8, 9])),
            checkpoint_s=CHECKPOINT_S,
        )
        for k, at in enumerate(arrivals)
    ]
    world = World(name="drawn", jobs=tuple(jobs), devices=devices(20))
    return with_deadlines(world, "loose", seed=1)


@pytest.mark.parametrize("make", [venus, philly, drawn])
def test_both_simulators_agree(make: Callable[[], World]) -> None:
    world = make()
    nodes: dict[str, int] = {}
    for device in world.devices:
        nodes[device.device.node] = nodes.get(device.device.node, 0) + 1
    for order, backfill in SCHEDULERS:
        submissions = [
            Submission(
                id=one.id,
                arrival_s=one.arrival_s,
                gpus=one.gpus,
                duration_s=one.duration_s,
                deadline_s=one.deadline_s,
                checkpoint_s=one.checkpoint_s,
            )
            for one in world.jobs
        ]
        expected = SecondSimulator(submissions, list(nodes.values()), order, backfill).run()
        name = order if backfill == "none" else f"{order}-{backfill}"
        found = replay(world, TableTruth([USUAL]), make_scheduler(PRESETS[name], SETTINGS))
        differences = found.ended_s - np.array([expected[one.id] for one in world.jobs])
        assert np.abs(differences).max() < 1e-3, (name, int((np.abs(differences) > 1e-3).sum()))
        waited = found.ended_s - [one.arrival_s + one.duration_s for one in world.jobs]
        assert (waited > 1).mean() > 0.02, name  # else nothing was compared


def test_the_second_simulator_by_hand() -> None:
    """Two devices: a to 10, the gang b waits for both until 10; c (5 s) fits before, d (20 s) would delay it."""
    jobs = [("a", 0.0, 1, 10.0), ("b", 1.0, 2, 5.0), ("d", 2.0, 1, 20.0), ("c", 3.0, 1, 5.0)]

    def ends(order: str, backfill: str) -> dict[str, float]:
        made = [Submission(id=name, arrival_s=at, gpus=gpus, duration_s=time_s) for name, at, gpus, time_s in jobs]
        return SecondSimulator(made, [2], order, backfill).run()

    assert ends("fifo", "none") == {"a": 10, "b": 15, "d": 35, "c": 20}
    assert ends("fifo", "first-fit") == {"a": 10, "b": 27, "d": 22, "c": 15}
    assert ends("fifo", "easy") == {"a": 10, "b": 15, "d": 35, "c": 8}
    assert ends("srtf", "first-fit") == {"a": 15, "b": 6, "d": 31, "c": 11}
