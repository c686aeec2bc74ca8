"""Several policies on the same traces: who is better, by how much, and how sure that is.

Each world is replayed as recorded (draw 0) and on further draws of its days, where a load is stated with all arrivals
stretched to it. Differences pair a policy that shares with the same one without sharing, trace by trace. Worlds that
are offered more than they can serve are judged apart: any gain there grows with the length of the trace; a further
draw of another world that happens to be offered too much counts nowhere.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.errors import InvalidInputError
from interfere.sim.cluster import Scheduler, Truth
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.registry import reference_of
from interfere.sim.score import Difference, Score, difference, score
from interfere.sim.trace_worlds import at_load, days_redrawn
from interfere.sim.world import World

Make = Callable[[str], Scheduler]
"""A fresh scheduler of a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy on one trace."""

    policy: str
    world: str
    draw: int  # 0: as recorded
    load: float  # offered
    score: Score
    seconds: float  # that the replay took
    replayed: Replayed | None  # of draw 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One policy on all traces of one kind."""

    policy: str
    score: Score  # of draw 0, all worlds together
    against: str  # the same without sharing; empty for one that shares nothing
    change: Difference | None  # of mean completion time, against that, over all traces
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All runs, and their lines apart for worlds with stable load and overloaded ones."""

    runs: tuple[Run, ...]
    stable: tuple[Line, ...]
    overloaded: tuple[Line, ...]
    cap: float
    dropped: tuple[str, ...]  # further draws with too much load


def study(
    worlds: Sequence[World],
    truth: Truth,
    policies: Sequence[str],
    make: Make,
    *,
    draws: int = 0,
    load: float | None = None,
    cap: float = 1.5,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> Study:
    """Replay every policy on every trace; references of policies that share are added. `cap` is what pairs past it are
    counted by. Raises InvalidInputError for no policy."""
    names = list(dict.fromkeys(name for one in policies for name in (reference_of(one), one) if name))
    if not names:
        raise InvalidInputError("no policy to replay", value="none", remedy="name one with --policy")
    say = report or (lambda _: None)
    runs: list[Run] = []
    for world in worlds:
        for draw in range(draws + 1):
            drawn = traced(world, draw, load, seed)
            for policy in names:
                started = time.perf_counter()
                done = replay(drawn, truth, make(policy))
                took = time.perf_counter() - started
                found = score([done], cap)
                runs.append(
                    Run(
                        policy=policy,
                        world=world.name,
                        draw=draw,
                        load=drawn.load,
                        score=found,
                        seconds=took,
                        replayed=done if draw == 0 else None,
                    )
                )
                say(
                    f"{world.name} draw {draw}/{draws} load {drawn.load:.2f} {policy}: mean completion "
                    f"{found.mean_completion_s:,.0f} s, {took:.1f} s"
                )
    heavy = {run.world for run in runs if run.draw == 0 and run.load >= 1}
    dropped = [f"{run.world} draw {run.draw}" for run in runs if run.world not in heavy and run.load >= 1]
    return Study(
        runs=tuple(runs),
        stable=_lines([run for run in runs if run.world not in heavy and run.load < 1], names, cap),
        overloaded=_lines([run for run in runs if run.world in heavy], names, cap),
        cap=cap,
        dropped=tuple(dict.fromkeys(dropped)),
    )


def traced(world: World, draw: int, load: float | None, seed: int) -> World:
    """One trace of a world."""
    drawn = world if draw == 0 else days_redrawn(world, seed * 1000 + draw)
    return drawn if load is None else at_load(drawn, load)


def _lines(runs: Sequence[Run], names: Sequence[str], cap: float) -> tuple[Line, ...]:
    if not runs:
        return ()
    mean: dict[str, list[float]] = {name: [] for name in names}
    for run in runs:  # in the same order of traces for every policy
        mean[run.policy].append(run.score.mean_completion_s)
    lines = []
    for name in names:
        mine = [run for run in runs if run.policy == name]
        against = reference_of(name)
        lines.append(
            Line(
                policy=name,
                score=score([run.replayed for run in mine if run.replayed is not None], cap),
                against=against,
                change=difference(mean[name], mean[against]) if against else None,
                seconds=float(np.sum([run.seconds for run in mine])),
            )
        )
    return tuple(lines)
