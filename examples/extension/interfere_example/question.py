"""Which queue has the shortest tail? `interfere study` with question = "question_example:TailQuestion"."""

from dataclasses import dataclass, replace

from interfere.reports.document import Column, Document, Table
from interfere.reports.numbers import hours
from interfere.sim.schedulers.records import PRESETS
from interfere.study.questions import read_inputs
from interfere.study.replays import ReplayTask


class TailQuestion:
    """Every scheduler on every world as recorded."""

    def resolved(self, study):
        return replace(study, schedulers=study.schedulers or (PRESETS["fifo-easy"], PRESETS["sjf-easy"]))

    def inputs(self, study, models):
        return read_inputs(study, models)

    def plan(self, study, inputs):
        worlds = range(len(inputs.worlds))
        return inputs.replays, [ReplayTask(scheduler=one, world=k) for k in worlds for one in study.schedulers]

    def answer(self, study, inputs, results, *, planned, interrupted):
        tails = {(run.world, run.policy): run.score.p99_completion_s for run in results}
        return TailAnswer(interrupted=interrupted, tails=tails)


@dataclass(frozen=True)
class TailAnswer:
    """(world, queue) -> seconds within which 99 % of its jobs are over."""

    interrupted: bool
    tails: dict

    def document(self):
        rows = tuple((world, queue, tail_s) for (world, queue), tail_s in self.tails.items())
        columns = (Column("world"), Column("queue"), Column("99 % of jobs within", hours()))
        return Document("Tails", (Table(title="Tails", columns=columns, rows=rows),))

    def facts(self, files):
        return {"tails": [[*place, tail_s] for place, tail_s in self.tails.items()]}

    def write(self, folder):
        return []
