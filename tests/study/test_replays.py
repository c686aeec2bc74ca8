"""Replays as tasks: the same results wherever they run, kept and gone on with, and changes between them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.sim.beliefs import true_beliefs
from interfere.sim.edge_world import EdgeSetting
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.sharing import SchedulerOptions
from interfere.sim.uncertainty import NoInterval
from interfere.sim.world import World
from interfere.study.comparison import change_over_days
from interfere.study.engine import Runner
from interfere.study.engines.catalogue import in_processes
from interfere.study.replays import ReplayInputs, ReplayResult, ReplayTask, Scenario, results_of, run_replays
from interfere.testing.schedulers import NAMES, USUAL, job
from tests.sim.small_worlds import world
from tests.study.over_traces import change_over_traces, mean_over_traces

POLICIES = ("fifo-easy", "fifo-easy-greedy", "tiresias-first-fit", "tiresias-first-fit-greedy")


def trace(seed: int, jobs: int = 80) -> World:
    """Jobs over about six days on two devices."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.uniform(0, 6 * 86_400, jobs)).tolist()
    durations = rng.lognormal(8.5, 1.0, jobs).tolist()
    rows = zip(arrivals, durations, rng.choice(NAMES, jobs).tolist(), strict=True)
    return replace(world(*(job(f"j{k}", *row) for k, row in enumerate(rows)), count=2), name=f"w{seed}")


def inputs(*seeds: int) -> ReplayInputs:
    scenario = Scenario(name="measured", truth=USUAL, beliefs=true_beliefs(USUAL))
    return ReplayInputs(worlds=tuple(map(trace, seeds or (0, 1))), scenarios=(scenario,), keep_jobs=True)


def tasks() -> list[ReplayTask]:
    return [
        ReplayTask(scheduler=PRESETS[policy], world=k, load=load)
        for policy in POLICIES
        for k in (0, 1)
        for load in (None, 0.9)
    ]


def ran(made: ReplayInputs, wanted: Sequence[ReplayTask], runner: Runner | None = None) -> tuple[ReplayResult, ...]:
    return results_of(made, run_replays(made, list(wanted), runner or Runner()))


def without_times(results: Sequence[ReplayResult]) -> str:
    """Everything about the results but how long they took, as text."""
    return json.dumps([asdict(replace(result, seconds=0.0, cpu_s=0.0)) for result in results], default=repr)


def test_processes_and_saved_results_give_what_one_process_gives(tmp_path: Path) -> None:
    here = ran(inputs(), tasks())
    assert [result.task for result in here] == tasks()
    assert [result.load for result in here if result.task.load] == pytest.approx([0.9] * 8)
    for runner in (Runner(engine=in_processes(2), folder=tmp_path), Runner(folder=tmp_path)):
        there = ran(inputs(), tasks(), runner)
        assert without_times(here) == without_times(there)
        assert [result.replayed is not None for result in there] == [True] * 16
    completion_s = [each.replayed.completion_s for each in there if each.replayed is not None]
    for result, times_s in zip(here, completion_s, strict=True):
        assert times_s.mean() == pytest.approx(result.score.mean_completion_s)


def test_whatever_results_depend_on_is_in_the_checksum(tmp_path: Path) -> None:
    made, wanted = inputs(0), [ReplayTask(scheduler=PRESETS["fifo-easy"])]
    ran(made, wanted, Runner(folder=tmp_path))
    slower = replace(made.scenarios[0], truth=replace(USUAL, table=USUAL.table + 1))
    unsure = replace(made.scenarios[0], beliefs=replace(made.scenarios[0].beliefs, spread=0.1))
    others = (
        inputs(1),
        replace(made, seed=1),
        replace(made, counted_cap=1.4),
        replace(made, edge=EdgeSetting()),
        replace(made, online=True),
        replace(made, days_as_recorded=False),
        replace(made, options=SchedulerOptions(slice_s=1.0)),
        replace(made, scenarios=(slower,)),
        replace(made, scenarios=(unsure,)),
    )
    assert len({each.digest() for each in (made, *others)}) == 1 + len(others)
    for other in others:
        with pytest.raises(InvalidInputError, match="results of other inputs"):
            ran(other, wanted, Runner(folder=tmp_path))


def test_changes_over_days_and_over_traces_have_their_own_populations() -> None:
    results = ran(inputs(), [replace(task, load=None) for task in tasks()])
    shared = [result for result in results if result.policy == "fifo-easy-greedy"]
    alone = [result for result in results if result.policy == "fifo-easy"]
    days, traces = change_over_days(shared, alone), change_over_traces(shared, alone, "made traces")
    assert days is not None
    assert traces is not None
    by_hand = [
        one.score.mean_completion_s / other.score.mean_completion_s - 1
        for one, other in zip(shared, alone, strict=True)
    ]
    assert traces.mean == pytest.approx(np.mean(by_hand))
    assert traces.interval.population == "mean over 2 made traces"
    assert not traces.interval.is_known  # two traces say nothing about others
    both = sum(one.score.mean_completion_s * one.score.jobs for one in shared) / sum(
        o.score.mean_completion_s * o.score.jobs for o in alone
    )
    assert days.mean == pytest.approx(both - 1)
    assert days.interval.missing is NoInterval.FEW_DAYS
    assert days.interval.population == "mean over periods of a load like these 2 (12 recorded days)"


def test_days_stay_those_recorded_however_arrivals_are_stretched() -> None:
    found = ran(inputs(0), [ReplayTask(scheduler=PRESETS["fifo-easy"], load=load) for load in (None, 0.1)])
    days = [result.days for result in found if result.days is not None]
    assert [len(each.completion_s) for each in days] == [6, 6]
    assert days[0].ended.tolist() == days[1].ended.tolist()
    for result, each in zip(found, days, strict=True):
        assert each.completion_s.sum() == pytest.approx(result.score.mean_completion_s * result.score.jobs)


def test_the_interval_over_traces_covers_the_mean_of_all_traces() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        interval = mean_over_traces((-0.2 + 0.05 * rng.standard_normal(6)).tolist()).interval
        covered += interval.low <= -0.2 <= interval.high
    assert 0.86 <= covered / 400 <= 0.94
