"""What re-pairing running jobs brings and costs: six Philly-derived traces of one-GPU jobs on Gavel's V100 pairs.

Matching against greedy with the same moves, predictions, costs and hysteresis, and against the same queue that never
moves a running job. Intervals are 90 % t intervals of the mean change over the six traces: two as published, four of
jobs resampled from these two with Poisson arrivals. Every assignment of the matching is proved, so that the value of
the greedy one on the same problem says how much any other re-pairing under these costs could still gain.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from scipy.special import stdtrit

from interfere.data.importers.lucid import import_lucid
from interfere.data.importers.published_traces import import_helios
from interfere.data.tables import Table
from interfere.data.traces import VirtualCluster
from interfere.matching.rematching import Rematching, RematchingProblem, rematch
from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.preemptive import RematchingScheduler
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.trace_worlds import worlds_of
from interfere.sim.truth import TableTruth, truth_of
from interfere.sim.world import World
from tests.bench.cheapest_pairs import rematch_by_cheapest_pairs
from tests.bench.greedy_rematching import rematch_greedily
from tests.bench.history import record
from tests.bench.philly_traces import CHECKPOINT_S, gavel_v100, six_philly_traces
from tests.data.importers.public_files import public
from tests.sim.resampled_traces import resample_with_poisson_arrivals

pytestmark = pytest.mark.bench
LOADS = (0.75, 0.85, 0.95)
LOAD_THAT_NEEDS_SHARING = 1.2  # of what jobs ask for alone: a queue that must be packed
MATCHING, GREEDY, CHEAPEST = "rematch-matching", "rematch greedily", "rematch by cheapest pairs"
RIVALS = {GREEDY: rematch_greedily, CHEAPEST: rematch_by_cheapest_pairs}
KINDS = ("first-fit", "first-fit-greedy", CHEAPEST, GREEDY, MATCHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one replay."""

    completion_s: float
    stops: float  # a job, moves included
    cpu_s: float
    assignments: int
    greedy_loss: float = 0.0  # of matching: share by which greedy assignments of the same problems were worth less


@dataclass(slots=True)
class ComparedWithGreedy:
    """Solves exactly, and adds up what the greedy assignments of the same problems are worth."""

    best: float = 0.0
    greedy: float = 0.0

    def __call__(self, problem: RematchingProblem) -> Rematching:
        """The best assignment."""
        found = rematch(problem)
        self.best += found.value
        self.greedy += rematch_greedily(problem).value
        return found


def outcome(world: World, order: str, kind: str) -> Outcome:
    """Replay one trace under the order with this kind of sharing."""
    truth = gavel_v100()
    known = true_beliefs(truth)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=truth.mode)
    scheduler = make_scheduler(PRESETS[f"{order}-{MATCHING if kind in RIVALS else kind}"], settings)
    if isinstance(scheduler, RematchingScheduler) and kind in RIVALS:
        scheduler.solve = RIVALS[kind]
    compared = ComparedWithGreedy()
    if isinstance(scheduler, RematchingScheduler) and kind == MATCHING:
        scheduler.solve = compared
    started_s = time.process_time()
    replayed = replay(world, TableTruth([truth]), scheduler)
    return Outcome(
        completion_s=float(replayed.completion_s.mean()),
        stops=float(replayed.stops.mean()),
        cpu_s=time.process_time() - started_s,
        assignments=scheduler.assignments if isinstance(scheduler, RematchingScheduler) else 0,
        greedy_loss=1 - compared.greedy / compared.best if compared.best else 0.0,
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
    loads = (*LOADS, LOAD_THAT_NEEDS_SHARING) if order == "fifo" else LOADS
    for load in loads:
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
        loss = float(np.mean([one.greedy_loss for one in of[MATCHING]]))
        print(f"{order} load {load}: greedy assignments of the same problems are worth {loss:.3%} less")
    record(f"rematching-{order}", figures)
    assert all(figures[f"{load} against first-fit"] < 0 for load in loads)
    assert all(figures[f"{load} against {GREEDY}"] < 0.02 for load in loads)


@pytest.mark.timeout(7200)
def test_what_a_month_costs() -> None:
    """23,859 jobs resampled from Venus on 1,080 devices, an assignment every 300 s where anything changed."""
    trace = import_helios(public("venus/jobs_4vc.csv"), vc_config=public("venus/vc_config.csv")).trace
    pairs = import_lucid(public("lucid"))
    truth = truth_of(Table(name="lucid", jobs=pairs.jobs, pairs=pairs.pairs))
    assert trace is not None
    pool = VirtualCluster(vc="pool", nodes=135, gpus_per_node=8)
    (recorded,) = worlds_of(
        replace(trace, clusters=()),
        device_type=truth.device_type,
        mode=truth.mode,
        clusters=(pool,),
        checkpoint_s=CHECKPOINT_S,
    ).worlds
    world = resample_with_poisson_arrivals(recorded, load=0.95, rng=np.random.default_rng(0), jobs=23_859)
    known = true_beliefs(truth)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=truth.mode)
    for policy in ("fifo-first-fit", f"fifo-{MATCHING}"):
        scheduler = make_scheduler(PRESETS[policy], settings)
        started_s = time.process_time()
        replay(world, TableTruth([truth]), scheduler)
        cpu_s = time.process_time() - started_s
        assignments = scheduler.assignments if isinstance(scheduler, RematchingScheduler) else 0
        print(f"{len(world.jobs)} jobs, {policy}: {cpu_s:.1f} s of CPU, {assignments} assignments")
        record("rematching-month", {f"{policy} cpu s": cpu_s, f"{policy} assignments": assignments})
