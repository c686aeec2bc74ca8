"""Deadlines with idle edge devices on Venus: the first 300 jobs of each third of the month of four virtual clusters.

Lucid's table is the truth and what is believed, jobs without a row never share; durations are known, or known with an
error (`test_what_durations_that_are_off_cost`).

Half of the nodes of each virtual cluster are the cloud, the other half is present from 22:00 to 08:00 only, at 0.7 of
the speed; with `taken`, these are taken back at random at five minutes' notice; with `added`, they are as many nodes
more. One in five jobs has no deadline. The server without sharing is tried in the first setting only: it takes longest.
`DEADLINE_SETTINGS` names the settings to run (default: all): tight, usual, loose, taken, added.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import pytest
from rich.console import Console

from interfere.data.importers.lucid import import_lucid
from interfere.data.importers.published_traces import import_helios
from interfere.data.tables import Table
from interfere.records.limits import DEFAULT_RISK
from interfere.reports.terminal import TerminalDocument
from interfere.sim.beliefs import MatrixPredictor, noisy_beliefs, true_beliefs
from interfere.sim.edge_world import (
    CHECKPOINT_S,
    EdgeSetting,
    edge_beliefs,
    with_deadlines,
)
from interfere.sim.schedulers.records import DEADLINE_BASELINE, DEADLINE_DEFAULT, PRESETS, SchedulerRecord
from interfere.sim.schedulers.sharing import SchedulerOptions
from interfere.sim.trace_worlds import worlds_of
from interfere.sim.truth import TruthTable, truth_of
from interfere.sim.world import World
from interfere.study.comparison import Comparison, Line
from interfere.study.replay_report import DEADLINE_LEGEND, policy_tables
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.sim.resampled_traces import MAX_STRETCH_JOBS, stretches
from tests.study.studies import compared

pytestmark = pytest.mark.bench
SETTINGS = {
    "usual": ("usual", EdgeSetting()),
    "tight": ("tight", EdgeSetting()),
    "loose": ("loose", EdgeSetting()),
    "taken": ("usual", EdgeSetting(revoked=True)),
    "added": ("usual", EdgeSetting(added=True)),
}
RIVAL = f"{DEADLINE_BASELINE.label}-greedy"
ERROR = 0.2  # standard error of log slowdown
WANTED = os.environ.get("DEADLINE_SETTINGS", ",".join(SETTINGS)).split(",")


def venus(family: str, max_jobs: int = MAX_STRETCH_JOBS) -> tuple[list[World], TruthTable]:
    """The traces with deadlines, and the truth."""
    trace = import_helios(public("venus/jobs_4vc.csv"), vc_config=public("venus/vc_config.csv")).trace
    assert trace is not None
    lucid = import_lucid(public("lucid"))
    truth = truth_of(Table(name="lucid", jobs=lucid.jobs, pairs=lucid.pairs))
    worlds = worlds_of(trace, device_type=truth.device_type, mode=truth.mode, checkpoint_s=CHECKPOINT_S).worlds
    parts = [part for world in worlds for part in stretches(world, max_jobs=max_jobs)]
    return [with_deadlines(part, family, seed=0) for part in parts], truth


def replay_all(
    worlds: Sequence[World],
    truth: TruthTable,
    belief: MatrixPredictor,
    setting: EdgeSetting,
    policies: Sequence[SchedulerRecord],
    risk: float = DEFAULT_RISK,
    duration_error: float = 0.0,
) -> Comparison:
    """Every policy on every trace, shared as the truth has it and decided as is believed: without cap, on any nodes."""
    belief = edge_beliefs(belief, [job.workload for world in worlds for job in world.jobs])
    options = SchedulerOptions(whole_nodes=False, risk=risk, duration_error=duration_error)
    return compared(worlds, truth, policies, beliefs=belief, edge=setting, options=options, references=False)


def satisfaction(lines: Sequence[Line]) -> dict[str, float]:
    """Policy -> deadlines met, mean of the traces; printed with everything else."""
    for line in sorted(lines, key=lambda line: -line.satisfaction.mean if line.satisfaction else 0.0):
        met, change, best_effort = line.satisfaction, line.satisfaction_change, line.best_effort_s
        assert met is not None
        assert best_effort is not None
        against = (
            f"{change.mean:+.3f} [{change.interval.low:+.3f}, {change.interval.high:+.3f}]"
            if change is not None
            else "-"
        )
        wasted = line.score.wasted_gpu_h / line.score.used_gpu_h
        promised = f"{line.score.promised} ({line.score.broken} broken)" if line.score.promised else "-"
        print(
            f"{line.policy:32} {met.mean:.3f} [{met.interval.low:.3f}, {met.interval.high:.3f}]  {against:23}  "
            f"{best_effort.mean / 3600:7.2f} h     {wasted:6.2%}     {promised}"
        )
    return {line.policy: line.satisfaction.mean for line in lines if line.satisfaction is not None}


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.timeout(3600)
def test_deadline_satisfaction(name: str) -> None:
    family, setting = SETTINGS[name]
    worlds, truth = venus(family)
    policies = [policy for policy in DEADLINE_DEFAULT if name == "usual" or policy.sharing or not policy.is_policy]
    result = replay_all(worlds, truth, true_beliefs(truth), setting, policies)
    jobs = sum(len(setting.apply(world).jobs) for world in worlds)
    print(f"\n{name}: {len(worlds)} traces, {jobs} jobs, {truth.note()}")
    met = satisfaction(result.deadlines)
    Console(width=80).print(TerminalDocument([table for table, _ in policy_tables(result)]))
    print(DEADLINE_LEGEND)
    record(f"deadlines_{name}", met)
    assert met[DEADLINE_BASELINE.label] > met["edf-first-fit"]
    (slots,) = [line.score for line in result.deadlines if line.policy == "slots"]
    assert slots.broken <= 0.01 * slots.promised


@pytest.mark.timeout(3600)
def test_what_beliefs_that_are_off_cost() -> None:
    """Every predicted slowdown is off by 20 %, and says so; sharing is decided at several risks."""
    worlds, truth = venus("usual")
    belief = replace(noisy_beliefs(truth, ERROR, seed=0), spread=NormalDist().inv_cdf(0.95) * ERROR)
    print(f"\npredictions off by {ERROR:.0%}")
    met: dict[float, float] = {}
    for risk in (0.05, 0.25, 0.5):
        policies = [PRESETS[RIVAL], PRESETS["policy-no-promises"]]
        print(f"risk {risk:g}")
        lines = replay_all(worlds, truth, belief, EdgeSetting(), policies, risk).deadlines
        found = satisfaction(lines)
        met[risk] = found["policy-no-promises"]
    figures = {f"policy-no-promises at risk {risk:g}": share for risk, share in met.items()}
    record("deadlines_off", figures | {RIVAL: found[RIVAL]})
    assert met[0.5] > met[0.05]


DURATION_ERRORS = (0.0, 0.4)  # standard error of log run time
STRETCH_JOBS = int(os.environ.get("DEADLINE_JOBS", str(MAX_STRETCH_JOBS // 2)))  # plans take long
OFF_POLICIES = tuple(
    PRESETS[name]
    for name in (
        "edf-first-fit",
        DEADLINE_BASELINE.label,
        RIVAL,
        "slots-greedy",
        "policy-deadlines",
        "policy-no-promises",
    )
)


@pytest.mark.timeout(3600)
def test_what_durations_that_are_off_cost() -> None:
    """Every scheduler is told run times with the same error; greedy pairs only jobs that both meet their deadlines by
    these. `DEADLINE_JOBS`: at most so many jobs a stretch."""
    worlds, truth = venus("usual", max_jobs=STRETCH_JOBS)
    figures: dict[str, float] = {}
    for error in DURATION_ERRORS:
        print(f"\nrun times off by {error:.0%}, {sum(len(EdgeSetting().apply(world).jobs) for world in worlds)} jobs")
        lines = replay_all(
            worlds, truth, true_beliefs(truth), EdgeSetting(), OFF_POLICIES, duration_error=error
        ).deadlines
        figures |= {f"{policy} at {error:g}": met for policy, met in satisfaction(lines).items()}
    record("deadlines_durations_off", figures)
    assert figures[f"{RIVAL} at 0"] > figures[f"{RIVAL} at 0.4"]
    assert figures[f"{RIVAL} at 0.4"] > figures[f"{DEADLINE_BASELINE.label} at 0.4"]
