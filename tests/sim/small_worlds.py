"""Small worlds, made by hand or drawn, and schedulers of every kind for them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from interfere.records import ObjectiveKind
from interfere.sim.beliefs import true_beliefs
from interfere.sim.cluster import Scheduler
from interfere.sim.schedulers.estimates import History
from interfere.sim.schedulers.orders import Fifo, LeastAttained, ShortestFirst
from interfere.sim.schedulers.planner import PlannedScheduler, PlannedSharing, ServerPlanner
from interfere.sim.schedulers.preemptive import PreemptiveScheduler
from interfere.sim.schedulers.queue import Backfill, QueueScheduler
from interfere.sim.schedulers.sharing import GreedySharing, GuestPlacement, SchedulerSettings
from interfere.sim.truth import TruthTable
from interfere.sim.world import SimDevice, SimJob, World
from interfere.testing.schedulers import MODE, NAMES, devices, job, truth

NO_SLOWDOWN = truth((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))


def world(*jobs: SimJob, count: int = 1, clock_s: float = 0.0, **options: Any) -> World:
    """Jobs on `count` devices; `clock_s`: time of day at second 0."""
    return World(name="w", jobs=jobs, devices=devices(count, **options), clock_s=clock_s)


def sharings(table: TruthTable, *, ends_first: bool = False) -> list[GuestPlacement | None]:
    """No sharing, and each way to share, with and without a cap. `ends_first`: must guests end before their hosts?

    Pairs may share even where they do less than one after the other: every decision occurs.
    """
    known = true_beliefs(table)
    usual = SchedulerSettings(
        predictor=known,
        profiles=known.profiles,
        mode=MODE,
        guest_ends_first=ends_first,
        min_joint_throughput=0.0,
    )
    capped = replace(usual, max_slowdown=1.3)
    return [
        None,
        GreedySharing(settings=usual),
        GreedySharing(settings=replace(capped, max_shared_gpus=1)),
        PlannedSharing(planner=ServerPlanner(settings=usual)),
        PlannedSharing(planner=ServerPlanner(settings=capped)),
    ]


def schedulers(table: TruthTable) -> list[Callable[[], Scheduler]]:
    """Makers of schedulers of every kind."""
    known, ways = true_beliefs(table), range(len(sharings(table)))
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE)
    queues = [
        lambda order=order, fill=fill, k=k: QueueScheduler(order=order, backfill=fill, sharing=sharings(table)[k])
        for order in (Fifo(), ShortestFirst())
        for fill in Backfill
        for k in ways
    ]
    preemptive = [
        lambda order=order, fill=fill, k=k: PreemptiveScheduler(order=order, backfill=fill, sharing=sharings(table)[k])
        for order in (ShortestFirst(remaining=True), LeastAttained(threshold_s=8.0))
        for fill in (False, True)
        for k in ways
    ]
    planned = [
        lambda share=share, objective=objective: PlannedScheduler(
            planner=ServerPlanner(settings=settings, objective=objective),
            order=ShortestFirst(),
            share=share,
        )
        for share in (False, True)
        for objective in (ObjectiveKind.TOTAL_SLOWDOWN, ObjectiveKind.COMPLETION_TIME)
    ]
    history = [lambda: QueueScheduler(order=ShortestFirst(estimate=History(), per_gpu=True))]
    return [*queues, *preemptive, *planned, *history]


slowdowns = st.floats(1.0, 3.0).map(lambda value: round(value, 3)) | st.just(math.nan)
tables = st.lists(st.tuples(slowdowns, slowdowns, slowdowns), min_size=3, max_size=3).map(lambda rows: truth(*rows))


@st.composite
def worlds(draw: st.DrawFn, *, gangs: bool = True, windows: bool = False, strangers: bool = True) -> World:
    """Up to ten jobs on up to five devices."""
    count = draw(st.integers(1, 5))
    gaps = draw(st.lists(st.integers(0, 20), min_size=1, max_size=10))
    arrivals = np.cumsum(gaps).tolist()
    names = [*NAMES, "stranger"] if strangers else NAMES
    jobs = [
        job(
            f"j{k}",
            float(arrival_s),
            draw(st.integers(0, 60)) / 2,
            draw(st.sampled_from(names)),
            draw(st.integers(1, count)) if gangs else 1,
            checkpoint_s=draw(st.sampled_from([0.0, 1.5])),
        )
        for k, arrival_s in enumerate(arrivals)
    ]
    present = devices(count, per_node=draw(st.integers(1, 4)))
    if windows:
        present = (
            SimDevice(device=present[0].device, windows=((0.0, draw(st.integers(1, 40))), (50.0, math.inf))),
            *present[1:],
        )
    return World(name="drawn", jobs=tuple(jobs), devices=present)
