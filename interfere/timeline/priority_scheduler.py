"""Priority with gap filling: one planner for replays of recorded timelines, for executed operators and live processes.

The stream of highest priority runs whenever it has a kernel ready; the others fill its gaps, one whole kernel at a
time. The rule that says which kernel may fill is the mechanism: FIKIT's (Wu 2023, algorithms 1 and 2), none (plain
priority), or a budget on the expected wait.

On most devices a kernel that has started runs to its end, so a filling kernel that outlasts the gap makes the high
stream wait for its rest. Where a device preempts kernels, as Linux does on a core, the high stream waits for the
preemption at most.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

from interfere.records.checks import check, number_violations, refused
from interfere.timeline.streams import NOBODY, Arbiter, KernelScheduler, StreamState, Turn

LAUNCH_S = 5e-6  # time between two launches of a host: forums.developer.nvidia.com, topic 68937
ROUNDING_S = 1e-12  # times that differ by less are equal, whatever the last bits of a sum say
# Below the 10 % that a job of high priority may lose, by what a wait that no measured gap foretold may add. Chosen
# on 12 executed pairs and judged on 12 others (docs/results.md): with 5 % the low job got half of what fits in 9 and 10
# of them, with 8 % in 12 and 10; the high job exceeded its budget by 0.05 points at most.
WAIT_BUDGET_FRAC = 0.08


class FillingRule(StrEnum):
    """Which kernel of lower priority may start in a gap."""

    FITS = "fits"  # one whose mean run time fits into what remains of the mean gap: FIKIT
    ANY = "any"  # every one: priority without prediction
    BUDGET = "budget"  # one whose expected wait the high stream can still afford


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityGapFillingScheduler(KernelScheduler):
    """The stream of highest priority runs, and the other streams fill its gaps by a rule.

    A gap whose predictions are all shorter than `epsilon_s` stays empty, unless the rule needs no prediction. Of the
    kernels that may start, the longest runs, taken from the highest priority level that has one. Every launch is
    intercepted, which may cost `overhead_frac` of each job's time alone.

    With the budget, a kernel may start where the time that the high stream has waited so far plus the wait that is
    expected of this kernel is at most `wait_budget_frac` of the progress of the high stream, or where no wait is
    expected.

    With a finite `preemption_s` a stream takes the device from kernels of lower priority, and waits `preemption_s` for
    it. The kernel that lost the device goes on in the next gap, without being asked again.
    """

    epsilon_s: float = 2 * LAUNCH_S  # in a shorter gap the host is just launching; a filling launch would come too late
    rule: FillingRule = FillingRule.FITS
    wait_budget_frac: float = WAIT_BUDGET_FRAC
    preemption_s: float = math.inf  # infinite: a kernel that has started runs to its end
    name: str = "priority"

    def __post_init__(self) -> None:
        violations = number_violations(self, "epsilon_s", "overhead_frac", "wait_budget_frac", nan=False)
        if not self.preemption_s >= 0:
            remedy = "send the time that a preemption takes, or inf where kernels run to their end"
            violations.append(refused(self, "preemption_s", "must be a number ≥ 0", remedy))
        check(violations)

    @property
    def preempts(self) -> bool:
        """Whether a stream takes the device from a kernel of lower priority that has started."""
        return self.preemption_s < math.inf

    def arbiter(self, streams: Sequence[StreamState]) -> Arbiter:  # noqa: ARG002
        """Return a scheduler in which no kernel runs yet."""
        return _GapFillingArbiter(self)

    def may_fill(self, gap: "GapState", run_s: float) -> bool:
        """Return whether a kernel of lower priority that is predicted to run `run_s` may start in this gap."""
        if self.rule == FillingRule.ANY:
            return True
        if gap.gaps_s and max(gap.gaps_s) < self.epsilon_s:
            return False
        if self.rule == FillingRule.FITS:
            return bool(gap.gaps_s) and run_s <= fmean(gap.gaps_s) - gap.elapsed_s + ROUNDING_S
        wait_s = expected_wait_s(gap.gaps_s, gap.elapsed_s, run_s, self.preemption_s)
        return wait_s <= ROUNDING_S or gap.waited_s + wait_s <= self.wait_budget_frac * gap.progress_s


class GapState(NamedTuple):
    """A gap of a stream of high priority, as the planner sees it at one moment."""

    gaps_s: tuple[float, ...]  # measured lengths of this gap, equally likely; empty where none was measured
    elapsed_s: float  # since the gap began
    waited_s: float  # how long the stream has waited for others so far
    progress_s: float  # how long it has run and been in gaps so far


def expected_wait_s(gaps_s: Sequence[float], elapsed_s: float, run_s: float, preemption_s: float = math.inf) -> float:
    """Return how long the high stream is expected to wait for a kernel of `run_s` that starts now in its gap.

    E[min(preemption, max(0, elapsed + run - G)) | G > elapsed], where the gap G takes each measured value with equal
    probability. A gap that has outlasted all of them may end at any moment: the whole run is expected, or a preemption.
    """
    rests_s = [elapsed_s + run_s - gap_s for gap_s in gaps_s if gap_s > elapsed_s] or [run_s]
    return fmean(min(preemption_s, max(0.0, rest_s)) for rest_s in rests_s)


@dataclass(slots=True)
class _GapFillingArbiter:
    mode: PriorityGapFillingScheduler
    running: int = NOBODY
    switch_end_s: float = -math.inf  # of the last preemption

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> Turn:
        has_started = self.running >= 0 and streams[self.running].ready and streams[self.running].head_started
        if has_started and not self.mode.preempts:
            return Turn(self.running)
        chosen = self._choose(now_s, streams)
        if has_started and chosen != self.running:
            self.switch_end_s = now_s + self.mode.preemption_s
        self.running = chosen
        if chosen != NOBODY and now_s < self.switch_end_s - ROUNDING_S:
            return Turn(NOBODY, self.switch_end_s)
        return Turn(chosen)

    def _choose(self, now_s: float, streams: Sequence[StreamState]) -> int:
        """Return the index of the stream that runs: the oldest launch of highest priority, else the best filler."""
        highest = max((state.stream.priority for state in streams if state.active), default=0)
        top_streams = [state for state in streams if state.active and state.stream.priority == highest]
        ready = [state for state in top_streams if state.ready]
        if ready:
            return min(ready, key=lambda state: (state.launched_s[0], state.index)).index
        return self._best_filler(now_s, top_streams, streams)

    def _best_filler(self, now_s: float, top_streams: Sequence[StreamState], streams: Sequence[StreamState]) -> int:
        """Return the index of the stream whose next kernel fills the gap best; `NOBODY` where none may."""
        gaps = [
            GapState(high.predicted_gaps_s, now_s - high.last_completion_s, high.waited_s, high.progress_s)
            for high in top_streams
        ]
        candidates = [
            (state.stream.priority, state.head_started, state.predicted_run_s, -state.index)
            for state in streams
            if state.ready
            and (state.head_started or all(self.mode.may_fill(gap, state.predicted_run_s) for gap in gaps))
        ]
        return -max(candidates)[3] if candidates else NOBODY
