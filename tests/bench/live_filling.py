"""Pairs of jobs that really share one core, under gap filling and its rivals: `python -m tests.bench.live_filling`.

A process for each job, pinned to the same core; this process sleeps on another. In each round every arm runs once, in
random order. The time of the high job is the wall time of its steps, its own waits included; all ratios are of the same
round, and intervals are those of the mean of log ratios over rounds (Student's t, 95 %).

Arms: alone; alone in turns (what interception and turns cost); beside the low job under SCHED_IDLE, at nice 19, in the
time slices of the scheduler; one queue (turns without priorities); filling in which the high job waits for the operator
that runs, with the low job at nice 19; priority without prediction; and filling as it is served. In the last two the
low job is in the idle class, as its session puts it.

Predicted: a replay of the steps that both jobs measured alone, by the planner of the arm.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path

from scipy.stats import t as student

from interfere.commands.output import emit
from interfere.profiling.affinity import allowed_cores, avoid_cores, pick_core, pin_process
from interfere.profiling.workloads import find_workload
from interfere.reports.document import Column, table_of
from interfere.reports.numbers import COUNT, TIMES, percent
from interfere.sharing.device_turns import LIVE_SCHEDULER, DeviceMember, Priority
from interfere.sharing.executed_job import MeasuredJob
from interfere.timeline.mode_comparison import HIGH_PRIORITY, LOW_PRIORITY
from interfere.timeline.priority_scheduler import FillingRule, PriorityGapFillingScheduler
from interfere.timeline.replay_engine import replay
from tests.bench.test_sharing import not_intercepted

HIGHS = ("resnet-input", "bert-serve", "gpt-decode", "dlrm-train", "vae-train", "rl-rollout")
LOWS = ("resnet-train", "lstm-train")
MEASURED_STEPS, WARM_STEPS = 10, 2
MAX_BESIDE_IDLE, MAX_BESIDE_SLICES = 1.10, 1.02


class Role(StrEnum):
    """A kind of process."""

    HIGH = "high"
    LOW = "low"
    WHOLE = "low, whole operators"  # takes a turn for each operator, which nobody interrupts


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way in which the two jobs share the core."""

    name: str
    low_runs: bool = True
    scheduler: PriorityGapFillingScheduler | None = None  # of turns; None: the operating system shares the core
    low_role: Role = Role.LOW
    low_priority: Priority = Priority.LOW
    low_idle: bool = False  # SCHED_IDLE
    low_nice: int = 0  # beyond the high job's


LOW_NICE = 19  # the lowest: sched(7)
WAITING = PriorityGapFillingScheduler(rule=FillingRule.BUDGET, wait_budget_frac=0.04)
ANY_WAITING = PriorityGapFillingScheduler(rule=FillingRule.ANY)
ANY_PREEMPTING = PriorityGapFillingScheduler(rule=FillingRule.ANY, preemption_s=LIVE_SCHEDULER.preemption_s)
ALONE, TURNS = Arm(name="alone", low_runs=False), Arm(name="alone, turns", low_runs=False, scheduler=LIVE_SCHEDULER)
IDLE, SLICES = Arm(name="SCHED_IDLE", low_idle=True), Arm(name="time slices")
FILLING = Arm(name="filling", scheduler=LIVE_SCHEDULER, low_idle=True)
ARMS = (
    ALONE,
    TURNS,
    IDLE,
    Arm(name="nice 19", low_nice=LOW_NICE),
    SLICES,
    Arm(name="one queue", scheduler=ANY_WAITING, low_role=Role.WHOLE, low_priority=Priority.HIGH),
    Arm(name="filling, waiting", scheduler=WAITING, low_role=Role.WHOLE, low_nice=LOW_NICE),
    Arm(name="priority, no prediction", scheduler=ANY_PREEMPTING, low_idle=True),
    FILLING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a job's process is to do: steps of an arm, for `seconds` or (0) until it is told to stop."""

    arm: Arm
    device: Path
    is_low: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a job did in one arm of one round."""

    steps: int
    step_s: float  # mean wall time of a step; NaN without any


def serve_job(name: str, role: Role, core: int, folder: Path, orders: Connection) -> None:
    """Build a job on a core, measure its segments alone, then obey orders until there is none."""
    import torch

    from interfere.sharing.executed_job import measure_job
    from interfere.sharing.live import Session

    torch.set_num_threads(1)
    pin_process(core)
    workload, nice = find_workload(name), os.getpriority(os.PRIO_PROCESS, 0)
    alone = measure_job(workload, MEASURED_STEPS)
    step = workload.build()
    priority = Priority.HIGH if role == Role.HIGH else Priority.LOW
    scheduler = WAITING if role == Role.WHOLE else LIVE_SCHEDULER
    with Session(priority, folder / f"{name}.{role}.turns", scheduler) as session:
        while not session.is_measured:
            step(time.sleep)
            session.end_step()
        own = session.member
        orders.send((alone.segment_starts, alone.rounds, alone.first_gap_s))
        while (order := orders.recv()) is not None:
            planner = order.arm.scheduler
            _schedule(order, nice)
            with nullcontext() if planner else not_intercepted():
                if planner:
                    in_turns = order.arm.low_priority if order.is_low else Priority.HIGH
                    session.member = DeviceMember(order.device, in_turns, planner)
                orders.send("begun")
                times_s, end_s = list[float](), time.monotonic() + order.seconds
                while not (orders.poll() if order.is_low else time.monotonic() > end_s):
                    start_s = time.monotonic()
                    step(time.sleep)
                    if planner:
                        session.end_step()
                    times_s.append(time.monotonic() - start_s)
                if planner:
                    session.member.__exit__(None, None, None)
                    session.member = own
            if order.is_low:
                orders.recv()
            kept = times_s[WARM_STEPS:] or times_s
            orders.send(Measured(steps=len(times_s), step_s=statistics.fmean(kept) if kept else math.nan))


def _schedule(order: Order, nice: int) -> None:
    """Run the job as the arm says. `nice`: of all jobs that the arm does not change."""
    is_idle = order.is_low and order.arm.low_idle
    os.sched_setscheduler(0, os.SCHED_IDLE if is_idle else os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, nice + (order.arm.low_nice if order.is_low else 0))


class Jobs:
    """The processes of all jobs, one for each role in which a job runs."""

    def __init__(self, highs: Sequence[str], lows: Sequence[str], core: int, folder: Path) -> None:
        context, self._folder = multiprocessing.get_context("spawn"), folder
        self.alone = dict[str, MeasuredJob]()
        self._orders, self._processes = dict[tuple[str, Role], Connection](), []
        for name, role in (*product(highs, [Role.HIGH]), *product(lows, [Role.LOW, Role.WHOLE])):
            self._orders[name, role], theirs = context.Pipe()
            process = context.Process(target=serve_job, args=(name, role, core, folder, theirs), daemon=True)
            process.start()
            self._processes.append(process)
            starts, rounds, first_gap_s = self._orders[name, role].recv()  # so each measures itself alone
            self.alone[name] = MeasuredJob(
                workload=find_workload(name), segment_starts=starts, rounds=rounds, first_gap_s=first_gap_s
            )
            print(f"{name}, {role}: segments of {self.segment_s(name) * 1e3:.2f} ms", flush=True)

    def segment_s(self, name: str) -> float:
        """Return the mean length of the segments of a job."""
        return statistics.fmean(kernel.duration_s for kernel in self.alone[name].all_rounds.kernels)

    def predict(self, arm: Arm, high: str, low: str) -> tuple[float, float]:
        """Return the slowdown of the high job and the rate of the low one that the planner of an arm predicts; NaN
        without a planner."""
        scheduler = ANY_PREEMPTING if arm == IDLE else arm.scheduler
        if scheduler is None or arm.low_priority != Priority.LOW:
            return math.nan, math.nan
        streams = [
            self.alone[high].predicted_stream(HIGH_PRIORITY, by_place=True, endless=False),
            self.alone[low].predicted_stream(LOW_PRIORITY, by_place=True, endless=True),
        ]
        result = replay(streams, scheduler)
        return result.outcomes[0].slowdown, result.outcomes[1].alone_s / result.end_s

    def run(self, arm: Arm, high: str, low: str, seconds: float) -> tuple[Measured, Measured]:
        """Run one arm of one round; what the high and the low job did."""
        device = Path(tempfile.mktemp(dir=self._folder, suffix=".turns"))
        of_high, of_low = self._orders[high, Role.HIGH], self._orders[low, arm.low_role]
        if arm.low_runs:
            of_low.send(Order(arm=arm, device=device, is_low=True))
            of_low.recv()
        of_high.send(Order(arm=arm, device=device, is_low=False, seconds=seconds))
        of_high.recv()
        measured, beside = of_high.recv(), Measured(steps=0, step_s=math.nan)
        if arm.low_runs:
            of_low.send("stop")
            beside = of_low.recv()
        return measured, beside

    def low_alone_s(self, low: str, seconds: float) -> float:
        """Return the step time of a low job that runs alone."""
        orders = self._orders[low, Role.LOW]
        orders.send(Order(arm=ALONE, device=self._folder, is_low=False, seconds=seconds))
        orders.recv()
        measured = orders.recv()
        return float(measured.step_s)

    def close(self) -> None:
        """End the processes."""
        for orders in self._orders.values():
            orders.send(None)
        for process in self._processes:
            process.join(20)
            process.kill()


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio of two times with its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, above: Sequence[float], below: Sequence[float]) -> "Ratio":
        logs = [math.log(one / two) for one, two in zip(above, below, strict=True)]
        mean, half = statistics.fmean(logs), math.nan
        if len(logs) > 1:
            half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
        return cls(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFigures:
    """The figures of one pair under one arm."""

    high: str
    low: str
    arm: str
    slowdown: float  # of the high job, against alone
    beside_idle: float  # its time ÷ that beside SCHED_IDLE
    beside_slices: float  # its time ÷ that in time slices, and the lower end of the interval
    beside_slices_low: float
    overhead: float  # alone in turns ÷ alone
    low_rate: float  # steps of the low job a second ÷ alone
    predicted_slowdown: float
    predicted_low_rate: float


Rounds = dict[str, list[tuple[Measured, Measured]]]
"""What the high and the low job did in each round, by arm."""


def figures_of(high: str, low: str, times: Rounds, seconds: float, low_alone_s: float, jobs: Jobs) -> list[PairFigures]:
    """Return the figures of all arms of one pair. `low_alone_s`: the step time of the low job alone."""
    step_s = {arm: [measured.step_s for measured, _ in rounds] for arm, rounds in times.items()}
    overhead = Ratio.of(step_s[TURNS.name], step_s[ALONE.name]).value
    found = []
    for arm in (each for each in ARMS if each.low_runs):
        slices = Ratio.of(step_s[arm.name], step_s[SLICES.name])
        predicted_slowdown, predicted_low_rate = jobs.predict(arm, high, low)
        found.append(
            PairFigures(
                high=high,
                low=low,
                arm=arm.name,
                slowdown=Ratio.of(step_s[arm.name], step_s[ALONE.name]).value,
                beside_idle=Ratio.of(step_s[arm.name], step_s[IDLE.name]).value,
                beside_slices=slices.value,
                beside_slices_low=slices.low,
                overhead=overhead,
                low_rate=statistics.fmean(beside.steps for _, beside in times[arm.name]) * low_alone_s / seconds,
                predicted_slowdown=predicted_slowdown,
                predicted_low_rate=predicted_low_rate,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """What one arm reached over all pairs."""

    arm: str
    slowdown: float  # of the high job, median
    worst: float
    kept_frac: float  # pairs in which it took at most MAX_BESIDE_IDLE times what it took beside SCHED_IDLE
    slower: int  # pairs in which it was certainly slower than in time slices, beyond what turns cost it alone
    low_rate: float  # median
    predicted_slowdown: float  # median
    predicted_low_rate: float  # median

    @classmethod
    def of(cls, rows: Sequence[PairFigures]) -> "ArmSummary":
        return cls(
            arm=rows[0].arm,
            slowdown=statistics.median(row.slowdown for row in rows),
            worst=max(row.slowdown for row in rows),
            kept_frac=sum(row.beside_idle <= MAX_BESIDE_IDLE for row in rows) / len(rows),
            slower=sum(row.beside_slices_low > MAX_BESIDE_SLICES * row.overhead for row in rows),
            low_rate=statistics.median(row.low_rate for row in rows),
            predicted_slowdown=statistics.median(row.predicted_slowdown for row in rows),
            predicted_low_rate=statistics.median(row.predicted_low_rate for row in rows),
        )


COLUMNS = (
    Column("arm", of="arm"),
    Column("high, median", TIMES, of="slowdown"),
    Column("high, worst", TIMES, of="worst"),
    Column(f"high ≤ {MAX_BESIDE_IDLE:.2f} × SCHED_IDLE", percent(), of="kept_frac"),
    Column("slower than slices", COUNT, of="slower"),
    Column("low rate, median", percent(), of="low_rate"),
    Column("predicted: high", TIMES, of="predicted_slowdown"),
    Column("predicted: low", percent(), of="predicted_low_rate"),
)


def main() -> None:
    """Run all pairs, print the table, and write every round to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--high", default=",".join(HIGHS))
    parser.add_argument("--low", default=",".join(LOWS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.8, help="of the high job, in each arm of each round")
    parser.add_argument("--out", type=Path, default=Path("live-filling.json"))
    given = parser.parse_args()
    highs, lows = given.high.split(","), given.low.split(",")
    core, draw, rows = pick_core(allowed_cores()[-1]), random.Random(0), list[PairFigures]()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, avoid_cores(core):
        jobs = Jobs(highs, lows, core, Path(folder))
        low_alone_s = {low: jobs.low_alone_s(low, given.seconds) for low in lows}
        for high, low in product(highs, lows):
            times: dict[str, list[tuple[Measured, Measured]]] = {arm.name: [] for arm in ARMS}
            for _ in range(given.rounds):
                for arm in draw.sample(ARMS, len(ARMS)):
                    times[arm.name].append(jobs.run(arm, high, low, given.seconds))
            rows += figures_of(high, low, times, given.seconds, low_alone_s[low], jobs)
            own = {row.arm: row for row in rows[-sum(arm.low_runs for arm in ARMS) :]}
            shown = ", ".join(f"{arm} {row.slowdown:.2f} ({row.low_rate:.0%})" for arm, row in own.items())
            print(f"{high} beside {low}: {shown}; overhead {rows[-1].overhead:.3f}", flush=True)
            given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        segment_s = {name: jobs.segment_s(name) for name in highs}
        jobs.close()
    summaries = [ArmSummary.of([row for row in rows if row.arm == arm.name]) for arm in ARMS if arm.low_runs]
    title = f"{len(highs) * len(lows)} pairs on one core, {given.rounds} rounds"
    emit({}, [table_of(title, COLUMNS, summaries)], as_json=False)
    for name in highs:
        overhead = statistics.median(row.overhead for row in rows if row.high == name)
        print(f"{name}: segments of {segment_s[name] * 1e3:.2f} ms, turns cost {overhead - 1:+.1%}")


if __name__ == "__main__":
    main()
