"""What predictions are worth: six Philly-derived traces on 16 V100s, shared as different beliefs about pairs advise.

Beliefs: Gavel's measured pairs; these with an error; a model that never saw 30 or 90 % of the pairs; nothing but the
mean of all pairs. The truth is Gavel's in every case. Caps are on believed slowdowns. One-GPU jobs, greedy placement.

`python -m tests.bench.belief_sweep [LOAD]` prints the table.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

from interfere.data.importers.gavel import import_gavel
from interfere.data.tables import Table
from interfere.sim.beliefs import mean_beliefs, noisy_beliefs, true_beliefs
from interfere.sim.schedulers.records import PRESETS, Sharing
from interfere.study.engine import Runner
from interfere.study.replays import ReplayInputs, ReplayResult, ReplayTask, Scenario
from interfere.training.study_models import fit_beliefs
from tests.bench.load_sweep import POPULATION, replayed
from tests.bench.philly_traces import gavel_v100, six_philly_traces
from tests.data.importers.public_files import public
from tests.study.over_traces import change_over_traces

LOAD = 0.85
QUEUES = (PRESETS["sjf-easy"], PRESETS["tiresias-first-fit"])
CAPS = (1.25, 1.5, math.inf)


def belief_inputs() -> ReplayInputs:
    """The six traces, and each belief as a scenario of its own."""
    truth = gavel_v100()
    read = import_gavel(public("gavel/oracle_throughputs.json"))
    table = Table(name="gavel", jobs=read.jobs, pairs=read.pairs)
    beliefs = {"measured": true_beliefs(truth)}
    beliefs |= {f"error {error:.0%}": noisy_beliefs(truth, error, seed=0) for error in (0.1, 0.2, 0.4)}
    for hidden in (0.3, 0.9):
        beliefs[f"model, {hidden:.0%} hidden"] = fit_beliefs(table, truth, hide=hidden, seed=0).predictor
    beliefs["mean of all pairs"] = mean_beliefs(truth)
    scenarios = tuple(Scenario(name=name, truth=truth, beliefs=belief) for name, belief in beliefs.items())
    return ReplayInputs(worlds=tuple(six_philly_traces(0.75)), scenarios=scenarios)


def belief_tasks(inputs: ReplayInputs, load: float = LOAD) -> list[ReplayTask]:
    """Queues x traces without sharing, and with it by every belief and cap."""
    traces = range(len(inputs.worlds))
    tasks = [ReplayTask(scheduler=queue, world=k, load=load) for queue in QUEUES for k in traces]
    return tasks + [
        ReplayTask(
            scheduler=replace(queue, sharing=Sharing.GREEDY), world=k, load=load, scenario=scenario, max_slowdown=cap
        )
        for queue in QUEUES
        for scenario in range(len(inputs.scenarios))
        for cap in CAPS
        for k in traces
    ]


def print_beliefs(inputs: ReplayInputs, results: Sequence[ReplayResult]) -> dict[str, float]:
    """Change of the mean completion time and pairs past 1.5 by belief and cap. Returns figures for the history."""
    figures: dict[str, float] = {}
    print(f"change of mean completion time, per cent, mean over {POPULATION}; pairs past 1.5")
    for queue in QUEUES:
        alone = [result for result in results if result.task.scheduler == queue]
        for k, scenario in enumerate(inputs.scenarios):
            for cap in CAPS:
                mine = [
                    result
                    for result in results
                    if (result.task.scheduler, result.task.scenario, result.task.max_slowdown)
                    == (replace(queue, sharing=Sharing.GREEDY), k, cap)
                ]
                found = change_over_traces(mine, alone, POPULATION)
                if found is None:
                    continue
                past = sum(result.score.past_cap for result in mine) / len(mine)
                figures[f"{queue.label} {scenario.name} cap {cap:g}"] = found.mean
                print(
                    f"{queue.label:20} {scenario.name:20} cap {cap:4g}: {100 * found.mean:+6.1f} "
                    f"[{100 * found.interval.low:+.1f}, {100 * found.interval.high:+.1f}]  past 1.5: {past:.1%}"
                )
    return figures


if __name__ == "__main__":
    offered = float(sys.argv[1]) if len(sys.argv) > 1 else LOAD
    made = belief_inputs()
    ran = replayed(made, belief_tasks(made, offered), Runner(report=lambda text: print(text, file=sys.stderr)))
    print_beliefs(made, ran)
    print(f"load {offered:g}, {sum(result.cpu_s for result in ran):.0f} s of CPU")
