"""Answers a what-if question: reads, replays, and says what sharing would change and what is not known."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interfere.sim.sweeps.running import Engine, in_this_process, run_sweep
from interfere.sim.sweeps.tasks import SweepInputs
from interfere.training.replay.coverage import Coverage
from interfere.training.whatif.effects import Effect, PlacementComparison, effects_of, placement_comparisons
from interfere.training.whatif.inputs import UnknownWorkload, gpu_hours, read_inputs
from interfere.training.whatif.missing_pairs import MissingTruth, missing_truth
from interfere.training.whatif.plan import plan_tasks
from interfere.training.whatif.question import WhatIf


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """Everything that the report shows."""

    question: WhatIf
    trace: str
    load: float  # offered, mean over worlds weighted by jobs
    coverage: Coverage
    left_out: tuple[tuple[str, int], ...]  # jobs that cannot be replayed: reason, number
    is_predicted: bool  # are slowdowns predictions of a model?
    unknown: tuple[UnknownWorkload, ...]
    effects: tuple[Effect, ...]
    comparisons: tuple[PlacementComparison, ...]
    missing: MissingTruth
    notes: tuple[str, ...]
    replays: int
    planned: int
    interrupted: bool
    cpu_s: float


def answer_whatif(
    question: WhatIf,
    *,
    engine: Engine = in_this_process,
    folder: Path | None = None,
    report: Callable[[str], None] | None = None,
) -> WhatIfAnswer:
    """Read, replay and compare. `folder`: where results are kept, so that an interrupted run goes on later.

    Raises what `read_inputs` and `run_sweep` raise, and KeyboardInterrupt where nothing was done before it.
    """
    inputs = read_inputs(question)
    notes = [*inputs.notes]
    if report is not None:
        report(inputs.coverage.note())
        for note in notes:
            report(note)
    swept = run_sweep(
        SweepInputs(worlds=inputs.worlds, scenarios=inputs.scenarios, seed=question.seed),
        plan_tasks(question, inputs),
        engine=engine,
        folder=folder,
        report=report,
    )
    effects = effects_of(swept.results, inputs)
    hours = gpu_hours(inputs.worlds)
    jobs = sum(len(world.jobs) for world in inputs.worlds)
    return WhatIfAnswer(
        question=question,
        trace=inputs.trace,
        load=sum(world.load * len(world.jobs) for world in inputs.worlds) / jobs,
        coverage=inputs.coverage,
        left_out=inputs.left_out,
        is_predicted=inputs.is_predicted,
        unknown=inputs.unknown,
        effects=effects,
        comparisons=placement_comparisons(effects),
        missing=missing_truth(inputs.measured, inputs.tried, hours, question.pairs),
        notes=tuple(notes),
        replays=len(swept.results),
        planned=swept.tasks,
        interrupted=swept.interrupted,
        cpu_s=sum(result.cpu_s for result in swept.results),
    )
