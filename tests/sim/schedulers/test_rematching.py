"""Re-pairing in replays: laws on drawn worlds, and what it does on small ones made by hand."""

import math

import pytest
from hypothesis import given, settings

from interfere.sim.beliefs import true_beliefs
from interfere.sim.cluster import Cluster, Decision, Scheduler
from interfere.sim.replay import replay
from interfere.sim.schedulers.preemptive import RematchingScheduler
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth, TruthTable
from interfere.sim.world import World
from interfere.testing.schedulers import MODE, USUAL, job, truth
from tests.sim.small_worlds import tables, world, worlds

SLICE_S = 7.0
NAMES = ("fifo-rematch-matching", "tiresias-rematch-matching", "srtf-rematch-matching")


def scheduler(name: str, table: TruthTable, slice_s: float = SLICE_S) -> Scheduler:
    """One of the registry, that believes the truth."""
    known = true_beliefs(table)
    return make_scheduler(
        PRESETS[name], SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE, slice_s=slice_s)
    )


class Watching:
    """Records the moves that another scheduler decides, and checks that none comes too soon."""

    def __init__(self, inner: Scheduler) -> None:
        self.inner = inner
        self.moves: list[tuple[float, str]] = []
        self._since_s: dict[str, float] = {}

    def decide(self, cluster: Cluster) -> Decision:
        """What the other decides."""
        decision = self.inner.decide(cluster)
        started = {start.job_id for start in decision.starts}
        for job_id in started & set(decision.stops):
            assert cluster.jobs[job_id].job.gpus == 1
            assert cluster.now_s - self._since_s[job_id] >= SLICE_S
            self.moves.append((cluster.now_s, job_id))
        self._since_s |= dict.fromkeys(started, cluster.now_s)
        return decision


@given(worlds(), tables)
@settings(max_examples=25, deadline=None)
def test_every_job_ends_nothing_moves_twice_within_a_slice_and_replays_are_alike(
    drawn: World, table: TruthTable
) -> None:
    for name in NAMES:
        runs = []
        for _ in range(2):
            watching = Watching(scheduler(name, table))
            preempts = not name.startswith("fifo")
            runs.append(replay(drawn, TableTruth([table]), watching.inner if preempts else watching))
            if not preempts:
                assert sum(runs[-1].stops) == len(watching.moves)  # under FIFO nobody goes back to the queue
        first, second = runs
        assert all(math.isfinite(end_s) for end_s in first.ended_s)
        assert first.ended_s.tolist() == second.ended_s.tolist()
        assert first.stops.tolist() == second.stops.tolist()


def test_two_pairs_change_partners_once_that_pays() -> None:
    """Heavy jobs run beside each other at half speed; when light ones come, each gets one."""
    table = truth((1.9, 1.1), (1.1, 1.9), names=("heavy", "light"))
    jobs = [job(f"h{k}", 0.0, 5000.0, "heavy", checkpoint_s=20.0) for k in range(4)]
    jobs += [job(f"l{k}", 1000.0, 5000.0, "light", checkpoint_s=20.0) for k in range(4)]
    made = world(*jobs, count=4)
    watching = Watching(scheduler("fifo-rematch-matching", table))
    rematched = replay(made, TableTruth([table]), watching)
    assert rematched.completion_s.tolist() == pytest.approx([5500.0] * 8, rel=0.1)
    partners = {frozenset((span.job_id[0], span.partner_id[:1])) for span in rematched.spans if span.partner_id}
    assert partners == {frozenset("hl")}


def test_a_running_job_moves_to_make_room_and_pays_its_checkpoint() -> None:
    """Two jobs that share well run alone; a third that shares with nobody gets a device once they share."""
    table = truth((1.05, 3.0), (3.0, 3.0), names=("light", "heavy"))
    jobs = [job("a", 0.0, 4000.0, checkpoint_s=30.0), job("b", 0.0, 4000.0, checkpoint_s=30.0)]
    made = world(*jobs, job("c", 2000.0, 1000.0, "heavy"), count=2)
    watching = Watching(scheduler("fifo-rematch-matching", table))
    rematched = replay(made, TableTruth([table]), watching)
    assert watching.moves[0][0] == 2000.0
    assert rematched.started_s[2] == 2000.0
    assert sum(rematched.stops) == len(watching.moves)
    kept = replay(made, TableTruth([table]), scheduler("fifo-first-fit-greedy", table))
    assert rematched.completion_s.mean() < kept.completion_s.mean()


def test_nobody_moves_where_the_checkpoint_costs_more_than_is_gained() -> None:
    table = truth((1.05, 3.0), (3.0, 3.0), names=("light", "heavy"))
    jobs = [job("a", 0.0, 4000.0, checkpoint_s=5000.0), job("b", 0.0, 4000.0, checkpoint_s=5000.0)]
    made = world(*jobs, job("c", 2000.0, 1000.0, "heavy"), count=2)
    rematched = replay(made, TableTruth([table]), scheduler("fifo-rematch-matching", table))
    assert rematched.stops.tolist() == [0, 0, 0]
    assert rematched.started_s[2] == 4000.0


def test_nothing_is_solved_where_nothing_changes() -> None:
    made = world(*(job(f"j{k}", 0.0, 1e6, "heavy") for k in range(3)), count=2)
    rematching = scheduler("fifo-rematch-matching", USUAL)
    replay(made, TableTruth([USUAL]), rematching)
    assert isinstance(rematching, RematchingScheduler)
    assert rematching.assignments <= 2 * len(made.jobs) + 2
