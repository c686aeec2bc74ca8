"""Comparisons of schedulers on made worlds, without folders."""

import math
from collections.abc import Sequence

from interfere.sim.beliefs import MatrixPredictor, true_beliefs
from interfere.sim.edge_world import EdgeSetting, edge_truth
from interfere.sim.schedulers.records import SchedulerRecord
from interfere.sim.schedulers.sharing import SchedulerOptions
from interfere.sim.truth import Composition, TruthTable
from interfere.sim.world import World
from interfere.study.comparison import Comparison, compare, on_whole_traces, trace_tasks, with_references
from interfere.study.engine import Runner
from interfere.study.replays import ReplayInputs, ReplayTask, Scenario, results_of, run_replays

SERVERS = SchedulerOptions()  # as the server has it by default


def compared(
    worlds: Sequence[World],
    truth: TruthTable,
    schedulers: Sequence[SchedulerRecord],
    *,
    draws: int = 0,
    load: float | None = None,
    beliefs: MatrixPredictor | None = None,
    edge: EdgeSetting | None = None,
    options: SchedulerOptions = SERVERS,
    composition: Composition = Composition.SUM,
    references: bool = True,
    runner: Runner | None = None,
) -> Comparison:
    """The schedulers and, but for `references`, what they are compared with; believed is the truth if nothing else."""
    truths = (truth,) if edge is None else edge_truth(truth)
    scenario = Scenario(name="made", truth=truths[0], further_truths=truths[1:], beliefs=beliefs or true_beliefs(truth))
    inputs = ReplayInputs(
        worlds=tuple(worlds), scenarios=(scenario,), edge=edge, options=options, days_as_recorded=False, keep_jobs=True
    )
    records = with_references(schedulers) if references else tuple(schedulers)
    plain = ReplayTask(scheduler=records[0], load=load, max_slowdown=math.inf, composition=composition)
    tasks = trace_tasks(plain, records, worlds, draws=draws)
    done = run_replays(inputs, tasks, runner or Runner())
    runs = on_whole_traces(results_of(inputs, done), tasks) if done.interrupted else results_of(inputs, done)
    dated = [world.name for world in worlds if world.has_deadlines]
    return compare(runs, with_deadlines=dated)
