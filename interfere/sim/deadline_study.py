"""Schedulers of deadlines side by side: the same worlds, the same draws, differences over traces with their intervals.

A trace is the beginning of a third of a virtual cluster's month: one says little about the next. The interval of a mean
is its bootstrap over traces, that of a difference over the differences, trace by trace.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from interfere.records.cluster import DEFAULT_RISK
from interfere.sim.beliefs import MatrixPredictor
from interfere.sim.cluster import Scheduler
from interfere.sim.deadlines import (
    DAY_S,
    HOUR_S,
    DeadlineScore,
    Draws,
    EdgeWorld,
    edge_type,
    scored,
    with_deadlines,
    with_edge,
)
from interfere.sim.replay import replay
from interfere.sim.schedulers.deadline_planner import PlannedDeadlines, TwoTypes
from interfere.sim.schedulers.deadline_queue import DeadlineQueue, EarliestDeadline, LeastLaxity, SlotAdmission
from interfere.sim.schedulers.greedy_sharing import GreedyPacking
from interfere.sim.schedulers.orders import Fifo, Order, ShortestFirst
from interfere.sim.schedulers.queue import Sharing
from interfere.sim.truth import TableTruth, TruthTable
from interfere.sim.world import World

Maker = Callable[[EdgeWorld, TwoTypes, str], Scheduler]
DRAWS, LEVEL = 2000, 0.95  # of the bootstrap
MOST_JOBS = 300  # of a trace: a plan at every event takes 5-20 s then
TO_BEAT = "EDF that drops"
LEGEND = (
    "satisfaction: deadlines met ÷ jobs that have one, mean of the traces and its 95 % interval; against: the",
    f"difference, trace by trace, to {TO_BEAT} (with sharing, where the line shares); best effort: mean time",
    "of jobs without a deadline; wasted: share of device time spent on jobs that missed theirs, and on checkpoints",
)
ORDERS: dict[str, Order] = {
    "FIFO": Fifo(),
    "SJF": ShortestFirst(),
    "EDF": EarliestDeadline(),
    "least laxity": LeastLaxity(),
}


def _queue(order: Order, *, drop: bool, share: bool) -> Maker:
    def made(edge: EdgeWorld, told: TwoTypes, mode: str) -> Scheduler:
        return DeadlineQueue(order=order, edge=edge, drop=drop, sharing=_packing(told, mode) if share else None)

    return made


def _packing(told: TwoTypes, mode: str) -> Sharing:
    return GreedyPacking(predictor=told, profiles=told.profiles, mode=mode)


def planned(*, share: bool, promise: bool, risk: float = DEFAULT_RISK) -> Maker:
    """The policy room. At a risk of a half the median decides who may share: right where only the number of deadlines
    that are met counts, since who does not start misses for certain."""
    return lambda edge, told, mode: PlannedDeadlines(
        edge=edge, predictor=told, profiles=told.profiles, mode=mode, share=share, promise=promise, risk=risk
    )


def _slots(*, share: bool) -> Maker:
    return lambda edge, told, mode: SlotAdmission(edge=edge, sharing=_packing(told, mode) if share else None)


def schedulers() -> dict[str, Maker]:
    """By name, each with and without sharing."""
    found: dict[str, Maker] = {}
    for share in (False, True):
        also = " + sharing" if share else ""
        for name, order in ORDERS.items():
            found[name + also] = _queue(order, drop=False, share=share)
        found[TO_BEAT + also] = _queue(EarliestDeadline(), drop=True, share=share)
        found["slot admission" + also] = _slots(share=share)
        found["plan" + also] = planned(share=share, promise=True)
        found["plan without promises" + also] = planned(share=share, promise=False)
    return found


def parts(world: World, start_s: float, count: int = 3, most_jobs: int = MOST_JOBS) -> list[tuple[World, float]]:
    """The first jobs of each of so many stretches of equal length, and the time of day at which each begins."""
    last_s = world.jobs[-1].arrival_s if world.jobs else 0.0
    length_s = last_s / count + 1e-6
    by_part = groupby(world.jobs, key=lambda job: int(job.arrival_s // length_s))
    return [
        (
            replace(
                world,
                name=f"{world.name}/{k + 1}",
                jobs=tuple(replace(job, arrival_s=job.arrival_s - k * length_s) for job in islice(jobs, most_jobs)),
            ),
            (start_s + k * length_s) % DAY_S,
        )
        for k, jobs in by_part
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the edge is like."""

    instead: bool = True  # half of the nodes, not half as many again
    taken: bool = False  # back at random, at five minutes' notice
    seed: int = 0

    def world(self, world: World, draws: Draws, clock_s: float) -> EdgeWorld:
        """With deadlines and edge."""
        seed = self.seed if self.taken else None
        return with_edge(with_deadlines(world, draws), clock_s=clock_s, instead=self.instead, taken=seed)


def played(edge: EdgeWorld, maker: Maker, truth: TruthTable, belief: MatrixPredictor) -> DeadlineScore:
    """One scheduler on one world, shared as the truth has it, decided as is believed."""
    told = TwoTypes(belief, [job.workload for job in edge.world.jobs])
    scheduler = maker(edge, told, truth.mode)
    tables = TableTruth([truth, replace(truth, device_type=edge_type(truth.device_type))])
    return scored(replay(edge.world, tables, scheduler), getattr(scheduler, "promised", None))


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Mean, and the bootstrap interval of it."""
    found: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    drawn_at = np.random.default_rng(seed).integers(0, len(found), (DRAWS, len(found)))
    low, high = np.quantile(found[drawn_at].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(found.mean()), float(low), float(high)


def table(scores: Mapping[str, Sequence[DeadlineScore]]) -> str:
    """One line a scheduler, best first: satisfaction, its difference to `TO_BEAT` as it shares, and the other scores.

    `scores`: of every scheduler on the same traces in the same order.
    """
    lines = [f"{'':32} satisfaction          against {TO_BEAT:16} best effort   wasted     promised"]
    order = sorted(scores, key=lambda name: -float(np.mean([one.satisfaction for one in scores[name]])))
    for name in order:
        mine = scores[name]
        rival = scores.get(TO_BEAT + (" + sharing" if name.endswith("sharing") else ""))
        mean, low, high = interval([one.satisfaction for one in mine])
        against = "-"
        if rival is not None and rival is not mine:
            more, least, most = interval([a.satisfaction - b.satisfaction for a, b in zip(mine, rival, strict=True)])
            against = f"{more:+.3f} [{least:+.3f}, {most:+.3f}]"
        jct_s = float(np.nanmean([one.best_effort_jct_s for one in mine]))
        wasted = sum(one.wasted_gpu_h for one in mine) / sum(one.used_gpu_h for one in mine)
        promised = sum(one.promised for one in mine)
        kept = f"{promised} ({sum(one.broken for one in mine)} broken)" if promised else "-"
        lines.append(
            f"{name:32} {mean:.3f} [{low:.3f}, {high:.3f}]  {against:23}  {jct_s / HOUR_S:7.2f} h     {wasted:6.2%}"
            f"     {kept}"
        )
    return "\n".join([*lines, "", *LEGEND])
