"""Studies of several schedulers: traces are paired, overload and deadlines are groups of their own."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.sim.beliefs import true_beliefs
from interfere.sim.edge_world import EdgeSetting, edge_beliefs, with_deadlines
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.sharing import SchedulerOptions
from interfere.sim.uncertainty import UncertainMean
from interfere.sim.world import HOUR_S, World
from interfere.study.comparison import Comparison
from interfere.study.engine import Runner
from interfere.testing.schedulers import USUAL, devices, job
from tests.sim.resampled_traces import stretches
from tests.sim.small_worlds import world
from tests.study.studies import compared

KNOWN = true_beliefs(USUAL)
EDGE_KNOWN = edge_beliefs(KNOWN, ["heavy"])


def test_sharing_is_compared_trace_by_trace() -> None:
    day = 86_400.0
    busy = world(*(job(f"j{k}", k * day / 40, day / 50, "light") for k in range(120)))
    flood = World(name="flood", jobs=tuple(job(f"f{k}", float(k), 100) for k in range(20)), devices=devices(1))
    progress: list[str] = []
    found = compared(
        [busy, flood], USUAL, [PRESETS["sjf-first-fit-greedy"]], draws=2, runner=Runner(report=progress.append)
    )
    assert [line.policy for line in found.stable] == ["sjf-first-fit", "sjf-first-fit-greedy"]
    assert [line.policy for line in found.overloaded] == ["sjf-first-fit", "sjf-first-fit-greedy"]
    assert len(found.runs) == len(progress) == 2 * 3 * 2
    change = found.overloaded[1].change
    assert change is not None
    assert change.mean < -0.2  # two light ones at 1.1 do 1.8 times the work
    assert found.stable[0].change is None
    loaded = compared([busy], USUAL, [PRESETS["fifo"]], draws=1, load=0.5)
    assert [run.load for run in loaded.runs] == pytest.approx([0.5, 0.5])


def month() -> World:
    """Sixty gangs of two within ninety hours, from six in the morning on."""
    rng = np.random.default_rng(0)
    arrivals = np.sort(rng.uniform(0, 90 * HOUR_S, 60)).tolist()
    jobs = (job(f"j{k}", at, float(rng.exponential(4 * HOUR_S)), "heavy", 2) for k, at in enumerate(arrivals))
    return World(name="w", devices=devices(8), jobs=tuple(jobs), clock_s=6 * HOUR_S)


def test_stretches_begin_at_their_time_of_day() -> None:
    whole = month()
    parts = stretches(whole, max_jobs=15)
    assert [part.name for part in parts] == ["w/1", "w/2", "w/3"]
    assert all(len(part.jobs) <= 15 and 0 <= part.jobs[0].arrival_s < 30 * HOUR_S for part in parts)
    third_s = (whole.jobs[-1].arrival_s / 3 + 6 * HOUR_S) % (24 * HOUR_S)
    assert [part.clock_s for part in parts] == pytest.approx(
        [6 * HOUR_S, third_s, (2 * third_s - 6 * HOUR_S) % 86400], abs=1
    )


def test_schedulers_of_deadlines_are_compared_with_edf_that_drops() -> None:
    worlds = [with_deadlines(part, "usual", seed=0) for part in stretches(month(), max_jobs=15)]
    names = ("edf-first-fit", "edf-first-fit-drop", "policy-deadlines")
    result = compared(
        worlds,
        USUAL,
        [PRESETS[name] for name in names],
        beliefs=EDGE_KNOWN,
        edge=EdgeSetting(),
        options=SchedulerOptions(whole_nodes=False),
        references=False,
    )
    assert result.stable == result.overloaded == ()
    edf, baseline, server = result.deadlines
    assert [line.policy for line in result.deadlines] == list(names)
    satisfaction = {name: [run.score.satisfaction for run in result.runs if run.policy == name] for name in names}
    for line in result.deadlines:
        assert line.satisfaction is not None
        assert line.satisfaction.mean == pytest.approx(line.score.satisfaction)
        assert line.satisfaction.spread.population == "3 traces"
        assert np.min(satisfaction[line.policy]) <= line.satisfaction.spread.low
    assert edf.satisfaction_change is not None
    assert edf.satisfaction_change.mean == pytest.approx(edf.score.satisfaction - baseline.score.satisfaction)
    assert edf.deadlines_against == "edf-first-fit-drop"
    assert baseline.satisfaction_change is None  # it is the baseline
    assert server.satisfaction_change is None  # its baseline, which shares, was not replayed
    assert edf.best_effort_s is not None
    assert edf.score.with_deadline == sum(run.score.with_deadline for run in result.runs if run.policy == names[0])
    assert edf.change is None  # nothing shares


def test_completion_times_are_not_compared_where_jobs_are_dropped() -> None:
    late = world(job("a", 0, 10), job("b", 0, 10, deadline_s=12.0), job("c", 5, 10), job("d", 90, 1))
    result = compared([late], USUAL, [PRESETS["fifo-drop-greedy"]])
    assert [line.policy for line in result.deadlines] == ["fifo-drop", "fifo-drop-greedy"]
    assert result.deadlines[0].score.dropped == 1
    assert result.deadlines[1].change is None


def test_redraws_change_the_spread_and_not_the_interval_of_the_mean() -> None:
    """Two weeks of jobs; the mean and its interval are of the days as recorded, however many redraws there are."""
    rng = np.random.default_rng(3)
    arrivals = np.sort(rng.uniform(0, 14 * 24 * HOUR_S, 600)).tolist()
    weeks = World(
        name="weeks",
        devices=devices(2),
        jobs=tuple(job(f"j{k}", at, float(rng.exponential(0.8 * HOUR_S)), "light") for k, at in enumerate(arrivals)),
    )

    def change(draws: int) -> UncertainMean:
        result = compared([weeks], USUAL, [PRESETS["fifo-first-fit-greedy"]], draws=draws)
        (line,) = [line for line in (*result.stable, *result.overloaded) if line.change is not None]
        assert line.change is not None
        return line.change

    none, four = change(0), change(4)
    assert none.mean < 0
    assert none.interval.is_known
    assert (four.mean, four.interval) == (none.mean, none.interval)
    assert none.spread.population == "14 recorded days"
    assert four.spread.population.endswith("traces")


def test_an_interrupt_keeps_the_traces_that_are_done() -> None:
    """Two policies on two worlds: stopped in the second world, the first one's lines are as without it."""
    calm = world(*(job(f"j{k}", 100.0 * k, 50) for k in range(20)))
    worlds = [calm, replace(calm, name="second")]

    def stop_after(count: int) -> tuple[Comparison, list[str]]:
        told: list[str] = []

        def report(text: str) -> None:
            told.append(text)
            if len(told) == count:
                raise KeyboardInterrupt

        return compared(worlds, USUAL, [PRESETS["fifo"], PRESETS["sjf-easy"]], runner=Runner(report=report)), told

    stopped, told = stop_after(3)
    assert [(run.world, run.policy) for run in stopped.runs] == [("w", "fifo"), ("w", "sjf-easy")]
    assert stopped.stable[0].score.jobs == 20
    assert " left · 1 of 4: w load " in told[0]
    whole, told = stop_after(0)
    assert len(whole.runs) == 4
    assert told[-1].startswith("0:00 left · 4 of 4: ")
