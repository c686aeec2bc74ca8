"""Pairs of jobs that really share one core, under gap filling and its rivals: `python -m tests.bench.live_filling`.

A process for each job, pinned to the same core; this process sleeps on another. In each round every arm runs once, in
random order. The time of the high job is the wall time of its steps, its own waits included; all ratios are of the same
round, and intervals are those of the mean of log ratios over rounds (Student's t, 95 %).

Arms: alone; alone in turns (what interception and turns cost); beside the low job under SCHED_IDLE, at nice 19, in the
time slices of the scheduler; one queue (turns without priorities); priority without prediction; and gap filling. The
host of a low job in turns is at nice 19, as its session puts it.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
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
from interfere.sharing.live import LOW_NICE
from interfere.timeline.priority_scheduler import FillingRule
from tests.bench.test_sharing import not_intercepted

HIGHS = ("resnet-input", "bert-serve", "gpt-decode", "dlrm-train", "vae-train", "rl-rollout")
LOWS = ("resnet-train", "lstm-train")
MEASURED_STEPS, WARM_STEPS = 10, 2
MAX_BESIDE_IDLE, MAX_BESIDE_SLICES = 1.10, 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way in which the two jobs share the core."""

    name: str
    low_runs: bool = True
    rule: FillingRule | None = None  # of turns; None: the operating system shares the core
    low_priority: Priority = Priority.LOW
    low_idle: bool = False  # SCHED_IDLE
    low_nice: int = 0


ALONE, TURNS = Arm(name="alone", low_runs=False), Arm(name="alone, turns", low_runs=False, rule=FillingRule.BUDGET)
IDLE, SLICES = Arm(name="SCHED_IDLE", low_idle=True), Arm(name="time slices")
FILLING = Arm(name="filling", rule=FillingRule.BUDGET, low_nice=LOW_NICE)
ARMS = (
    ALONE,
    TURNS,
    IDLE,
    Arm(name="nice 19", low_nice=LOW_NICE),
    SLICES,
    Arm(name="one queue", rule=FillingRule.ANY, low_priority=Priority.HIGH),
    Arm(name="priority, no prediction", rule=FillingRule.ANY, low_nice=LOW_NICE),
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


def serve_job(name: str, priority: Priority, core: int, folder: Path, orders: Connection) -> None:
    """Build a job on a core, measure its segments alone, then obey orders until there is none."""
    import torch

    from interfere.sharing.executed_job import measure_job
    from interfere.sharing.live import Session

    torch.set_num_threads(1)
    pin_process(core)
    workload = find_workload(name)
    segments = [kernel.duration_s for steps in measure_job(workload, MEASURED_STEPS).rounds for kernel in steps.kernels]
    step = workload.build()
    with Session(priority, folder / f"{name}.{priority}.turns") as session:
        while not session.is_measured:
            step(time.sleep)
            session.end_step()
        own = session.member
        orders.send(statistics.fmean(segments))
        while (order := orders.recv()) is not None:
            with _scheduled(order), nullcontext() if order.arm.rule else not_intercepted():
                if order.arm.rule:
                    in_turns = order.arm.low_priority if order.is_low else Priority.HIGH
                    planner = replace(LIVE_SCHEDULER, rule=order.arm.rule)
                    session.member = DeviceMember(order.device, in_turns, planner)
                orders.send("begun")
                times_s, end_s = list[float](), time.monotonic() + order.seconds
                while not (orders.poll() if order.is_low else time.monotonic() > end_s):
                    start_s = time.monotonic()
                    step(time.sleep)
                    if order.arm.rule:
                        session.end_step()
                    times_s.append(time.monotonic() - start_s)
                if order.arm.rule:
                    session.member.__exit__(None, None, None)
                    session.member = own
            if order.is_low:
                orders.recv()
            kept = times_s[WARM_STEPS:] or times_s
            orders.send(Measured(steps=len(times_s), step_s=statistics.fmean(kept) if kept else math.nan))


@contextmanager
def _scheduled(order: Order) -> Iterator[None]:
    """Run the low job of an arm as the arm says."""
    policy = os.sched_getscheduler(0)
    if order.is_low and order.arm.low_idle:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, order.arm.low_nice if order.is_low else 0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))


class Jobs:
    """The processes of all jobs, one for each priority in which a job runs."""

    def __init__(self, highs: Sequence[str], lows: Sequence[str], core: int, folder: Path) -> None:
        context, self._folder, self.segment_s = multiprocessing.get_context("spawn"), folder, dict[str, float]()
        self._orders, self._processes = dict[tuple[str, Priority], Connection](), []
        for name, priority in (*product(highs, [Priority.HIGH]), *product(lows, [Priority.LOW])):
            self._orders[name, priority], theirs = context.Pipe()
            process = context.Process(target=serve_job, args=(name, priority, core, folder, theirs), daemon=True)
            process.start()
            self._processes.append(process)
            self.segment_s[name] = self._orders[name, priority].recv()  # so each measures itself alone
            print(f"{name}, {priority.name.lower()}: segments of {self.segment_s[name] * 1e3:.2f} ms", flush=True)

    def run(self, arm: Arm, high: str, low: str, seconds: float) -> tuple[Measured, Measured]:
        """Run one arm of one round; what the high and the low job did."""
        device = Path(tempfile.mktemp(dir=self._folder, suffix=".turns"))
        of_high, of_low = self._orders[high, Priority.HIGH], self._orders[low, Priority.LOW]
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
        orders = self._orders[low, Priority.LOW]
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


Rounds = dict[str, list[tuple[Measured, Measured]]]
"""What the high and the low job did in each round, by arm."""


def figures_of(high: str, low: str, times: Rounds, seconds: float, low_alone_s: float) -> list[PairFigures]:
    """Return the figures of all arms of one pair. `low_alone_s`: the step time of the low job alone."""
    step_s = {arm: [measured.step_s for measured, _ in rounds] for arm, rounds in times.items()}
    overhead = Ratio.of(step_s[TURNS.name], step_s[ALONE.name]).value
    found = []
    for arm in (each for each in ARMS if each.low_runs):
        slices = Ratio.of(step_s[arm.name], step_s[SLICES.name])
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

    @classmethod
    def of(cls, rows: Sequence[PairFigures]) -> "ArmSummary":
        return cls(
            arm=rows[0].arm,
            slowdown=statistics.median(row.slowdown for row in rows),
            worst=max(row.slowdown for row in rows),
            kept_frac=sum(row.beside_idle <= MAX_BESIDE_IDLE for row in rows) / len(rows),
            slower=sum(row.beside_slices_low > MAX_BESIDE_SLICES * row.overhead for row in rows),
            low_rate=statistics.median(row.low_rate for row in rows),
        )


COLUMNS = (
    Column("arm", of="arm"),
    Column("high, median", TIMES, of="slowdown"),
    Column("high, worst", TIMES, of="worst"),
    Column(f"high ≤ {MAX_BESIDE_IDLE:.2f} × SCHED_IDLE", percent(), of="kept_frac"),
    Column("slower than slices", COUNT, of="slower"),
    Column("low rate, median", percent(), of="low_rate"),
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
            rows += figures_of(high, low, times, given.seconds, low_alone_s[low])
            own = {row.arm: row for row in rows[-sum(arm.low_runs for arm in ARMS) :]}
            shown = ", ".join(f"{arm} {row.slowdown:.2f} ({row.low_rate:.0%})" for arm, row in own.items())
            print(f"{high} beside {low}: {shown}; overhead {rows[-1].overhead:.3f}", flush=True)
            given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        segment_s = jobs.segment_s
        jobs.close()
    summaries = [ArmSummary.of([row for row in rows if row.arm == arm.name]) for arm in ARMS if arm.low_runs]
    title = f"{len(highs) * len(lows)} pairs on one core, {given.rounds} rounds"
    emit({}, [table_of(title, COLUMNS, summaries)], as_json=False)
    for name in highs:
        overhead = statistics.median(row.overhead for row in rows if row.high == name)
        print(f"{name}: segments of {segment_s[name] * 1e3:.2f} ms, turns cost {overhead - 1:+.1%}")


if __name__ == "__main__":
    main()
