"""Six Philly-derived traces on 16 V100s, or as many as are named, at loads of .5 to .95: what sharing changes by queue.

Jobs of one GPU, Gavel's measured pairs as truth and belief. The change is paired by trace; its interval is of the mean
over the six traces (Student's t), its spread that of the traces. Four of the six are resampled from the other two: the
interval is about traces of these two mixes of jobs, not about other clusters.

`python -m tests.bench.load_sweep [DEVICES [FOLDER]]` prints the table, and the means of published and resampled traces;
with a folder, an interrupted run goes on from there.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from interfere.sim.beliefs import true_beliefs
from interfere.sim.schedulers.records import PRESETS, SchedulerRecord, Sharing
from interfere.sim.uncertainty import UncertainMean
from interfere.study.engine import Runner
from interfere.study.replays import ReplayInputs, ReplayResult, ReplayTask, Scenario, results_of, run_replays
from tests.bench.philly_traces import DEVICES, GIVEN, gavel_v100, six_philly_traces
from tests.study.over_traces import change_over_traces

LOADS = (0.5, 0.65, 0.75, 0.85, 0.95)
QUEUES = tuple(PRESETS[name] for name in ("fifo-easy", "qssf-easy", "sjf-easy", "tiresias-first-fit", "srtf-first-fit"))
MATCHING_LOADS = (0.5, 0.75, 0.95)  # matching takes ten times the CPU of greedy
POPULATION = "traces, two published and four resampled from them"


def sweep_inputs(devices: int = DEVICES) -> ReplayInputs:
    """The six traces and Gavel's pairs."""
    truth = gavel_v100()
    scenario = Scenario(name="measured", truth=truth, beliefs=true_beliefs(truth))
    return ReplayInputs(worlds=tuple(six_philly_traces(0.75, devices=devices)), scenarios=(scenario,))


def sweep_tasks() -> list[ReplayTask]:
    """Queues x sharing x loads x traces."""
    wanted = [(sharing, load) for sharing in (Sharing.NONE, Sharing.GREEDY) for load in LOADS]
    wanted += [(Sharing.MATCHING, load) for load in MATCHING_LOADS]
    return [
        ReplayTask(scheduler=replace(queue, sharing=sharing), world=k, load=load)
        for sharing, load in wanted
        for queue in QUEUES
        for k in range(6)
    ]


def replayed(inputs: ReplayInputs, tasks: list[ReplayTask], runner: Runner) -> tuple[ReplayResult, ...]:
    """What the tasks come to."""
    return results_of(inputs, run_replays(inputs, tasks, runner))


def change(
    results: Sequence[ReplayResult], policy: SchedulerRecord, reference: SchedulerRecord, load: float
) -> UncertainMean | None:
    """Of the mean completion time over the traces."""
    mine, others = (
        [result for result in results if result.task.scheduler == name and result.task.load == load]
        for name in (policy, reference)
    )
    return change_over_traces(mine, others, POPULATION)


def is_published(result: ReplayResult) -> bool:
    """Is it of a trace with its own arrivals?"""
    return result.world in GIVEN


def print_changes(results: Sequence[ReplayResult], devices: int = DEVICES) -> dict[str, float]:
    """The table of changes, and of matching against greedy. Returns figures for the history."""
    figures: dict[str, float] = {}
    print(
        f"{len(results)} replays on {devices} V100s; change of mean completion time, per cent, mean over {POPULATION}"
    )
    print("[90 % interval of the mean] (90 % of the traces) mean of the published / of the resampled")
    for queue in QUEUES:
        for policy, reference in (
            (replace(queue, sharing=Sharing.GREEDY), queue),
            (replace(queue, sharing=Sharing.MATCHING), queue),
            (replace(queue, sharing=Sharing.MATCHING), replace(queue, sharing=Sharing.GREEDY)),
        ):
            for load in LOADS:
                found = change(results, policy, reference, load)
                if found is None:
                    continue
                figures[f"{policy.label} against {reference.label} at {load:g}"] = found.mean
                ends = [100 * end for end in (found.mean, found.interval.low, found.interval.high)]
                kinds = [[result for result in results if is_published(result) is kind] for kind in (True, False)]
                parts = [part.mean for kind in kinds if (part := change(kind, policy, reference, load)) is not None]
                spread = f"({100 * found.spread.low:+.1f}, {100 * found.spread.high:+.1f})"
                print(
                    f"{policy.label:30} against {reference.label:26} load {load:.2f}: {ends[0]:+6.1f} "
                    f"[{ends[1]:+.1f}, {ends[2]:+.1f}] {spread} {' / '.join(f'{100 * part:+.1f}' for part in parts)}"
                )
    return figures


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DEVICES
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    runner = Runner(folder=target, report=lambda text: print(text, file=sys.stderr))
    ran = replayed(sweep_inputs(count), sweep_tasks(), runner)
    print_changes(ran, count)
    print(f"{sum(result.cpu_s for result in ran):.0f} s of CPU")
