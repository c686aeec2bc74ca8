"""What re-pairing running jobs brings and costs: six Philly-derived traces of one-GPU jobs on Gavel's V100 pairs.

Matching against greedy with the same moves, predictions, costs and hysteresis, and against the same queue that never
moves a running job. Intervals are 90 % t intervals of the mean change over the six traces: two as published, four of
jobs resampled from these two with Poisson arrivals.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scipy.special import stdtrit

from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.registry import SchedulerSettings, make_scheduler
from interfere.sim.schedulers.repairing.scheduler import RepairingScheduler
from interfere.sim.truth import TableTruth
from interfere.sim.world import World
from tests.bench.cheapest_pairs import repair_by_cheapest_pairs
from tests.bench.history import record
from tests.bench.philly_traces import gavel_v100, six_philly_traces

pytestmark = pytest.mark.bench
LOADS = (0.75, 0.85, 0.95)
GREEDY, MATCHING, CHEAPEST = "repair+greedy", "repair+matching", "repair by cheapest pairs"
KINDS = ("first-fit", "first-fit+greedy", CHEAPEST, GREEDY, MATCHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one replay."""

    completion_s: float
    stops: float  # a job, moves included
    cpu_s: float
    assignments: int


def outcome(world: World, order: str, kind: str) -> Outcome:
    """Replay one trace under the order with this kind of sharing."""
    truth = gavel_v100()
    known = true_beliefs(truth)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=truth.mode)
    scheduler = make_scheduler(f"{order}+{GREEDY if kind == CHEAPEST else kind}", settings)
    if isinstance(scheduler, RepairingScheduler) and kind == CHEAPEST:
        scheduler.solve = repair_by_cheapest_pairs
    started_s = time.process_time()
    replayed = replay(world, TableTruth([truth]), scheduler)
    return Outcome(
        completion_s=float(replayed.completion_s.mean()),
        stops=float(replayed.stops.mean()),
        cpu_s=time.process_time() - started_s,
        assignments=scheduler.assignments if isinstance(scheduler, RepairingScheduler) else 0,
    )


def mean_change(outcomes: Sequence[Outcome], references: Sequence[Outcome]) -> tuple[float, float, float]:
    """Mean relative change of mean completion time over the traces, and its 90 % interval."""
    pairs = zip(outcomes, references, strict=True)
    changes = np.array([one.completion_s / other.completion_s - 1 for one, other in pairs])
    half = float(stdtrit(len(changes) - 1, 0.95) * changes.std(ddof=1) / np.sqrt(len(changes)))
    return float(changes.mean()), float(changes.mean() - half), float(changes.mean() + half)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("order", ["fifo", "tiresias", "srtf"])
def test_matching_against_greedy(order: str) -> None:
    figures: dict[str, float] = {}
    for load in LOADS:
        worlds = six_philly_traces(load)
        of = {kind: [outcome(world, order, kind) for world in worlds] for kind in KINDS}
        change = partial(mean_change, of[MATCHING])
        for kind in KINDS:
            mean, low, high = change(of[kind])
            stops = float(np.mean([one.stops for one in of[kind]]))
            cpu_s = float(np.sum([one.cpu_s for one in of[kind]]))
            print(
                f"{order} load {load} {kind:24}: completion of {MATCHING} against it {mean:+.1%} [{low:+.1%}, "
                f"{high:+.1%}], {stops:.2f} stops a job, {cpu_s:.1f} s of CPU, "
                f"{sum(one.assignments for one in of[kind])} assignments"
            )
            figures |= {f"{load} against {kind}": mean, f"{load} {kind} stops": stops, f"{load} {kind} cpu s": cpu_s}
    record(f"repairing-{order}", figures)
    assert all(figures[f"{load} against first-fit"] < 0 for load in LOADS)
    assert all(figures[f"{load} against {GREEDY}"] < 0.02 for load in LOADS)
