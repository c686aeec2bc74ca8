"""How often the interval over loads covers the true gain on months as they fall.

    python -m tests.bench.uneven_months FOLDER

For each process of `tests.sim.uneven_months` and each of two queues: months at their own load, and some of them, as
`interfere whatif` replays them, stretched to `LOADS`; of these the intervals are judged. The true gain is that of all
months together whose load is below 1. Results are kept in a folder, from which the same command goes on. A gain of zero
is planted by exchanging the times with and without sharing in runs of three days drawn at random: there it counts how
often the answer would be that sharing pays. A star marks the processes that the interval was chosen on.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.trace_worlds import asked_by_day, scale_to_load
from interfere.sim.truth import TableTruth
from interfere.sim.uncertainty import (
    RELATIVE_CHANGE,
    DaySums,
    LoadResponse,
    UncertainMean,
    mean_over_days,
    mean_over_loads,
)
from interfere.study.engine import Document, Runner
from interfere.study.engines.catalogue import engine_of
from interfere.study.whatif_findings import PAYS
from interfere.testing.schedulers import MODE, USUAL
from tests.sim.uneven_months import CHOSEN_ON, DAYS, FURTHER, OTHERS, PROCESSES, UnevenProcess

QUEUES = ("fifo-easy", "tiresias-first-fit")
LOADS = (0.5, 0.75, 0.95)
SETS = {"usual": PROCESSES, "others": OTHERS, "further": FURTHER}
BY_NAME = {process.name: process for processes in SETS.values() for process in processes}
IN_PATHS = str.maketrans(" /", "--")
RUN_DAYS = 3  # in which the roles are exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthTask:
    """One month of one process, at its own load or at another."""

    process: str
    seed: int
    load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthGain:
    """One month under one queue: its sums by day at every load, and its gain."""

    response: LoadResponse

    @property
    def own(self) -> DaySums:
        """The sums at the month's own load."""
        return self.response.at[self.response.load]

    def exchanged(self, seed: int) -> "MonthGain":
        """Return the month with the times of about half of its days exchanged, the same days at every load."""
        days = len(self.response.work)
        is_kept = np.repeat(np.random.default_rng(seed).random(-(-days // RUN_DAYS)) < 0.5, RUN_DAYS)[:days]
        at = {
            load: DaySums(
                numerator=np.where(is_kept, sums.numerator, sums.denominator),
                denominator=np.where(is_kept, sums.denominator, sums.numerator),
            )
            for load, sums in self.response.at.items()
        }
        return MonthGain(response=LoadResponse(work=self.response.work, load=self.response.load, at=at))

    def over_loads(self) -> UncertainMean:
        """Return the change over months at loads like this one's."""
        return mean_over_loads([self.response], RELATIVE_CHANGE, subtract=1.0)

    def at_equal_load(self) -> UncertainMean:
        """Return the change over months of this one's load."""
        return mean_over_days([self.own], RELATIVE_CHANGE, subtract=1.0)


def replay_month(_: None, task: MonthTask) -> Document:
    """Return sums by recorded day of arrival: work, and under each queue completion times without and with sharing."""
    month = BY_NAME[task.process].month(task.seed)
    trace = month if task.load is None else scale_to_load(month, task.load)
    days = np.array([job.arrival_s for job in month.jobs]) // 86_400
    known = true_beliefs(USUAL)
    settings = SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE)
    document: Document = {"load": month.load, "work": asked_by_day(month)}
    for queue in QUEUES:
        both = [
            replay(trace, TableTruth([USUAL]), make_scheduler(PRESETS[name], settings)).completion_s
            for name in (queue, f"{queue}-greedy")
        ]
        document[queue] = np.array([np.bincount((days - days.min()).astype(int), weights=each) for each in both])
    return document


def month_gains(process: UnevenProcess, months: int, judged: int, runner: Runner) -> dict[str, list[MonthGain]]:
    """Return the months of a process whose load is below 1, by queue: the first `judged` at `LOADS` too."""
    tasks = [
        MonthTask(process=process.name, seed=seed, load=load)
        for seed in range(months)
        for load in (None, *(LOADS if seed < judged else ()))
    ]
    inputs = f"{DAYS} days, {process.devices} devices, {process.per_day} jobs a day of {process.median_s} s, slowdowns "
    done = runner.inside(process.name.translate(IN_PATHS)).run(
        replay_month,
        None,
        tasks,
        digest=lambda: f"{inputs}{USUAL.table.tolist()}",
        describe=lambda task, _: repr(task),
    )
    found: dict[str, list[MonthGain]] = {queue: [] for queue in QUEUES}
    for seed in range(months):
        own = done.documents[MonthTask(process=process.name, seed=seed)]
        replayed = [own, *(done.documents[task] for task in tasks if task.seed == seed and task.load is not None)]
        for queue in QUEUES if own["load"] < 1 else ():
            at = {
                load: DaySums(numerator=document[queue][1], denominator=document[queue][0])
                for load, document in zip((own["load"], *LOADS), replayed, strict=False)
            }
            found[queue].append(MonthGain(response=LoadResponse(work=own["work"], load=own["load"], at=at)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthCoverage:
    """How often the intervals of one process under one queue are right."""

    months: int  # whose intervals are judged
    load_deviation: float
    true_gain: float
    covered: float
    width: float  # mean
    at_equal_load: float  # covered by the interval of months of an equal load
    false_pays: float  # of the months without a gain


def coverage_of(months: Sequence[MonthGain]) -> MonthCoverage:
    """Return the coverage of the gain of all these months together by the intervals of those at several loads."""
    sums = np.array([(month.own.numerator.sum(), month.own.denominator.sum()) for month in months]).sum(axis=0)
    true = float(sums[0] / sums[1]) - 1
    judged = [month for month in months if len(month.response.at) > 1]
    intervals = [month.over_loads().interval for month in judged]
    equal = [month.at_equal_load().interval for month in judged]
    zero = [month.exchanged(seed).over_loads() for seed, month in enumerate(judged)]
    return MonthCoverage(
        months=len(judged),
        load_deviation=float(np.std([month.response.load for month in months])),
        true_gain=true,
        covered=float(np.mean([each.low <= true <= each.high for each in intervals])),
        width=float(np.mean([each.high - each.low for each in intervals])),
        at_equal_load=float(np.mean([each.low <= true <= each.high for each in equal])),
        false_pays=float(np.mean([each.interval.high < 0 and each.mean <= PAYS for each in zero])),
    )


def main() -> None:
    """Print one line for each process and queue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where results are kept")
    parser.add_argument("--processes", choices=SETS, default="usual", help="those of `tests.sim.uneven_months`")
    parser.add_argument("--months", type=int, default=100, help="of each process, which make the true gain")
    parser.add_argument("--judged", type=int, default=60, help="of these, whose intervals are judged")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    runner = Runner(engine=engine_of(given.workers), folder=given.folder)
    found = []
    for process in SETS[given.processes]:
        star = "*" if process.name in CHOSEN_ON else ""
        for queue, months in month_gains(process, given.months, given.judged, runner).items():
            each = coverage_of(months)
            found.append(each)
            print(
                f"{process.name}{star}, {queue}: {each.months} months, load ± {each.load_deviation:.2f}, true gain "
                f"{each.true_gain:+.1%}: covered {each.covered:.0%}, width {each.width:.2f} (at equal load "
                f"{each.at_equal_load:.0%}); without a gain it pays {each.false_pays:.1%}",
                flush=True,
            )
    inside = sum(0.85 <= each.covered <= 0.95 for each in found)
    print(
        f"85 to 95 % on {inside} of {len(found)}; all: {np.mean([each.covered for each in found]):.1%}, width "
        f"{np.mean([each.width for each in found]):.2f}, pays {np.mean([each.false_pays for each in found]):.1%}"
    )


if __name__ == "__main__":
    main()
