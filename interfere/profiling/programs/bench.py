"""Runs commands alone and in pairs, one start after the other, and hands the facts to the reading.

A block of the pair (A, B) is A · AB · B: A starts and warms up, its window alone; B starts and warms up beside it, the
shared window; A is ended, B's window alone. So each window alone lies beside the shared one, in the same start of the
same process, and every block starts both anew: what differs from start to start is in the spread between blocks.

Why no SIGSTOP: it would save the start-ups, but it stops the processes of a GPU job, not the device: kernels queued
before it go on, memory stays taken, and watchdogs of collectives see a dead rank. A window "alone" would not be one. So
the neighbour of a window alone does not exist.

Law: a command that does not do what a measurement needs is a Refusal with its reason, never an endless wait.
"""

import math
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from interfere.errors import UnfitError
from interfere.profiling.pairs import kept_chunks
from interfere.profiling.programs.output import last_lines
from interfere.profiling.programs.reading import (
    MIN_MARKS,
    MIN_STEPS,
    RunFacts,
    nothing,
    profile,
    read_pair,
    run_facts,
)
from interfere.profiling.programs.run import Run
from interfere.profiling.programs.spec import Command
from interfere.profiling.protocol import EDGE_S, MAX_STEAL, RETRIES, Window
from interfere.profiling.raw import Block
from interfere.profiling.worker import probe_s
from interfere.records import NAN, JobProfile

POLL_S = 0.05
# Readings 3 s apart on a virtual machine with busy neighbours: single ones differed by more than 2 % in three of eight
# cases, medians of five in one of eight. Nine take 0.1 s.
PROBES = 9
SPARE_STEPS = 2  # of a window: one is cut at either end


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How every command is run."""

    device_type: str
    core: int | None  # pin to this core; None: the environment decides what the device is
    window_s: float  # at least; longer until there are steps enough
    limit_s: float  # for a start with its warm-up, and for a window
    grace_s: float  # between SIGTERM and SIGKILL


class Refusal(Exception):  # noqa: N818 - not an error of ours: what the command did
    """A command did not do what a measurement needs."""

    def __init__(self, run: Run, what: str) -> None:
        self.run, self.what = run, what
        super().__init__(what)

    @property
    def reason(self) -> str:
        """One line with the last words of the log; ask for it when the run is closed, the log is whole then."""
        words = last_lines(self.run.log)
        return f"{self.run.name} {self.what}; " + (f"its log ends: {words}" if words else "it printed nothing")


class Bench:
    """Where commands are run: numbered folders below `folder`, under the same conditions for all."""

    def __init__(self, folder: Path, conditions: Conditions) -> None:
        self.folder, self.conditions = folder, conditions

    def solo(self, command: Command, repeats: int) -> tuple[JobProfile, float]:
        """The profile from `repeats` starts, and the share of the core that third processes took.

        A disturbed start is repeated, then kept. Raises UnfitError for a command that cannot be measured.
        """
        kept: list[tuple[RunFacts, Window]] = []
        for _ in range(repeats):
            best: tuple[float, RunFacts, Window] | None = None
            for _ in range(1 + RETRIES):
                facts, window = self._alone(command)
                _, steal, reason = profile([(facts, window)], self.conditions.device_type, pinned=self._pinned)
                if reason:
                    raise UnfitError(
                        f"command {command.name} cannot be measured", value=reason, remedy=f"see {self.folder}"
                    )
                if best is None or steal < best[0]:
                    best = (steal, facts, window)
                if not steal > MAX_STEAL:  # NaN: nobody knows
                    break
            assert best is not None
            kept.append(best[1:])
        found, steal, reason = profile(kept, self.conditions.device_type, pinned=self._pinned)
        assert found is not None, reason
        return found, steal

    def block(self, pair: tuple[Command, Command], *, pass_index: int, attempt: int) -> Block:
        """One block A · AB · B. A refused one says why and holds what there is."""
        started_s, before_s = time.time(), self._probe_s()
        names = (pair[0].name, pair[1].name)
        sides = (nothing(names[0]), nothing(names[1]))
        windows: list[Window] = []
        steal = drift = NAN
        chunks: tuple[tuple[tuple[float, ...], ...], ...] = ((), ())
        try:
            runs = self._windows(pair, windows)
        except Refusal as refusal:
            reason = refusal.reason
        else:
            drift = self._probe_s() / before_s - 1
            first, second = (_facts(run) for run in runs)
            sides, steal, reason = read_pair((first, second), windows, drift, pinned=self._pinned)
            chunks = kept_chunks((first.trace, second.trace), windows)
        return Block(
            pass_index=pass_index,
            attempt=attempt,
            started_at_s=started_s,
            window_s=max((window.end_s - window.start_s for window in windows), default=self.conditions.window_s),
            sides=sides,
            steal_frac=steal,
            drift_frac=drift,
            reason=reason,
            chunks=chunks,  # type: ignore[arg-type]  # two of each
        )

    @property
    def _pinned(self) -> bool:
        return self.conditions.core is not None

    def _alone(self, command: Command) -> tuple[RunFacts, Window]:
        try:
            with self._run(command) as run:
                self._warm(run)
                window = self._window("A", run, may_end=True)
        except Refusal as refusal:
            raise UnfitError(
                f"command {command.name} cannot be measured",
                value=refusal.reason,
                remedy=f"run it by itself: {command.line}; all it printed is in {refusal.run.log}",
            ) from None
        return _facts(run), window

    def _windows(self, pair: tuple[Command, Command], windows: list[Window]) -> tuple[Run, Run]:
        with ExitStack() as stack:
            first = stack.enter_context(self._run(pair[0]))
            self._warm(first)
            windows.append(self._window("A", first))
            second = stack.enter_context(self._run(pair[1]))
            self._warm(second, first)
            windows.append(self._window("AB", first, second))
            first.close()
            windows.append(self._window("B", second))
        return first, second

    def _run(self, command: Command) -> Run:
        number = sum(1 for _ in self.folder.glob("*")) if self.folder.is_dir() else 0
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in command.name)[:64]
        folder = self.folder / f"{number:04d}-{plain}"
        return Run(command, folder, core=self.conditions.core, grace_s=self.conditions.grace_s)

    def _warm(self, run: Run, *beside: Run) -> None:
        """Until the start-up and the first steps of `run` are over."""
        begin = time.monotonic()
        while True:
            _look((run, *beside))
            steps, _ = run.steps_since(0.0)
            since_s = time.monotonic() - run.marks[0].monotonic_s if run.marks else -math.inf
            if steps >= run.command.warm_steps and since_s >= run.command.warm_s:
                return
            if time.monotonic() - begin > self.conditions.limit_s:
                raise Refusal(run, _never_warm(run, steps, self.conditions.limit_s))

    def _window(self, phase: str, *runs: Run, may_end: bool = False) -> Window:
        """At least `window_s`, and until each run has made steps enough."""
        begin, limit_s = time.monotonic(), max(self.conditions.limit_s, self.conditions.window_s)
        while True:
            try:
                _look(runs)
            except Refusal as refusal:
                ended = refusal.run.ended
                # A short program that did its work counts, when it held steps enough.
                if may_end and ended and ended.exit_code == 0 and _enough(refusal.run, begin):
                    return Window(phase=phase, start_s=begin, end_s=ended.monotonic_s)
                raise
            now = time.monotonic()
            wanting = [run for run in runs if not _enough(run, begin)]
            if now - begin >= self.conditions.window_s and not wanting:
                return Window(phase=phase, start_s=begin, end_s=now)
            if now - begin > limit_s:
                steps, marks = wanting[0].steps_since(begin + EDGE_S)
                what = f"made {steps:g} steps with {marks} marks in a window of {limit_s:g} s"
                raise Refusal(wanting[0], f"{what}, {MIN_STEPS} and {MIN_MARKS} are needed")

    def _probe_s(self) -> float:
        """What the clock of the measured core gives now, while nothing of ours runs there."""
        if self.conditions.core is None:
            return NAN
        at_home = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.conditions.core})
        try:
            return statistics.median(probe_s() for _ in range(PROBES))
        finally:
            os.sched_setaffinity(0, at_home)


def _never_warm(run: Run, steps: float, limit_s: float) -> str:
    if run.marks:
        return f"made {steps:g} steps after its first within {limit_s:g} s (a higher --limit-s gives it more time)"
    remedy = "mark its steps with interfere.progress, or give a --step-regex that its output matches"
    return f"marked no step within {limit_s:g} s ({remedy})"


def _enough(run: Run, start_s: float) -> bool:
    steps, marks = run.steps_since(start_s + EDGE_S)
    return steps >= MIN_STEPS + SPARE_STEPS and marks >= MIN_MARKS


def _look(runs: Sequence[Run]) -> None:
    """Wait a moment and see how the runs are. Raises Refusal when one has ended."""
    time.sleep(POLL_S)
    for run in runs:
        run.refresh()
        if run.ended:
            lived_s = run.ended.monotonic_s - run.started_s
            steps = run.marks[-1].steps if run.marks else 0
            raise Refusal(run, f"ended by itself after {lived_s:.1f} s and {steps:g} steps, {run.ended}")


def _facts(run: Run) -> RunFacts:
    """The arrays of a closed run."""
    end_s = run.ended.monotonic_s if run.ended else run.closed_s
    return run_facts(run.name, run.marks, run.samples(), run.started_s, end_s)
