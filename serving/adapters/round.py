"""One round of an adapter: read the scheduler, ask the policy server, change jobs, report measurements.

A scheduler is a port of four methods (`SchedulerPort`); all other code is the same for every scheduler. Rounds are
stateless: the memory of earlier rounds (places of jobs that have ended, ids that were reported) only saves work, or is
read again after a restart. After an error a round does nothing more, and the scheduler places jobs by itself.
"""

import logging
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from interfere.client import PolicyClient
from interfere.errors import InterfereError, InvalidInputError, UnavailableError
from interfere.records import Action, ActionKind, Limits, MemoryUsage, Plan, Snapshot
from interfere.serving.adapters.journal import Journal
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.observations import DecidedJob, Decision, LostTime, MemoryReports, Rejection, Reporter
from interfere.serving.adapters.problem import TAKES_PLACE, Problem, check_plan_subjects
from interfere.serving.adapters.settings import AdapterSettings
from interfere.serving.adapters.windows import J, MarkSource, Run, WindowRules
from interfere.tracing import span, start_tracing

_log = logging.getLogger("interfere.adapters")
PLAN_ROUNDS = 5  # for which a plan is kept while nothing happens
STARTS_AND_WAITS = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT})
P = TypeVar("P", bound=Problem[Any])
C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[J, C]):
    """The state of the scheduler that a round reads, at one moment."""

    at_s: float
    scopes: tuple[str, ...]  # decided one after the other
    runs: tuple[Run[J], ...] = ()
    decided_jobs: tuple[DecidedJob[J], ...] = ()
    repairs: tuple[C, ...] = ()  # changes of jobs that an earlier round left half done: they come first
    memory_usages: tuple[MemoryUsage, ...] = ()  # windows that were measured since the last reading


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChanges(Generic[J, C]):
    """The decisions that a scheduler carries out of a plan, and the changes of jobs that carry them out."""

    decisions: tuple[Decision[J], ...]
    changes: tuple[C, ...]


class SchedulerPort(Protocol[J, P, C]):
    """A scheduler as a round of the adapter sees it.

    `J`, `P` and `C` are the scheduler's own records of a job, of a decision problem and of a change.

    Every method may raise InterfereError; the next round then reads what was done.
    """

    name: str  # begins the ids of observations and the names of metrics
    limits: Limits  # of every request
    rules: WindowRules  # how windows are cut
    dry_run: bool  # change nothing, report nothing

    def read(self) -> Reading[J, C]:
        """Read jobs and devices. The next calls are about what was read now."""

    def problem(self, scope: str, lost_s: Callable[[str], float]) -> P:
        """Return the decision problem of one scope. Seats that earlier scopes of the same round filled are taken.

        `lost_s`: the seconds that a running job has lost to the jobs beside it, by job id; see `remaining_s_of`.
        """

    def planned_changes(self, problem: P, plan: Plan | None) -> PlannedChanges[J, C]:
        """Return the changes that carry out a plan, without applying them. The plan is None where no decision was
        requested."""

    def apply(self, changes: Sequence[C]) -> tuple[Rejection, ...]:
        """Carry out changes in order, and return those that the scheduler rejected. In a dry run nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[J, C]):
    """The report of one round."""

    at_s: float
    decisions: tuple[Decision[J], ...]
    changes: tuple[C, ...]
    rejected: tuple[Rejection, ...]
    left_out: Counter[str]
    observations: Counter[str]


class Advisor(Generic[J, P, C]):
    """Advises one cluster, round by round."""

    def __init__(
        self,
        port: SchedulerPort[J, P, C],
        client: PolicyClient,
        marks: MarkSource[J],
        settings: AdapterSettings,
        metrics: AdapterMetrics,
    ) -> None:
        self.port, self.client, self.metrics = port, client, metrics
        self._reporter = Reporter(port.name, settings.cluster, port.rules, marks, Journal(settings.journal))
        self._lost_time, self._memory = LostTime(), MemoryReports()
        self._kept_s = PLAN_ROUNDS * settings.interval_s
        self._last: dict[str, tuple[Hashable, float, Plan]] = {}  # by scope: jobs and devices, until when, the plan

    def round(self) -> Round[J, C]:
        """Run one round and return its report. Raises InterfereError where the scheduler or the server does not answer.

        The next round completes an interrupted one.
        """
        # 1. Read the scheduler, report what jobs hold, and repair what an earlier round left half done.
        reading = self.port.read()
        self._reporter.see(reading.runs, reading.decided_jobs, reading.at_s)
        self._lost_time.advance(reading.runs, reading.at_s)
        if not self.port.dry_run:
            self._memory.send(self.client, reading.memory_usages)
        changes, rejected = list(reading.repairs), list(self._apply(reading.repairs))
        decisions, left_out = list[Decision[J]](), Counter[str]()
        # 2. Decide and apply, scope by scope.
        for scope in reading.scopes:
            problem = self.port.problem(scope, self._lost_time.of)
            left_out += problem.left_out
            planned = self.port.planned_changes(problem, self._plan(problem, reading.at_s))
            self._lost_time.predict(each for each in planned.decisions if each.action.kind in TAKES_PLACE)
            rejected += self._apply(planned.changes)
            changes += planned.changes
            decisions += planned.decisions
        # 3. Report what was measured.
        return Round(
            at_s=reading.at_s,
            decisions=tuple(decisions),
            changes=tuple(changes),
            rejected=tuple(rejected),
            left_out=left_out,
            observations=Counter() if self.port.dry_run else self._report(decisions, rejected, reading.at_s),
        )

    def _plan(self, problem: P, now_s: float) -> Plan | None:
        """Return the server's plan. A plan in which all jobs wait is kept for some rounds while jobs and devices are
        the same, or until it asks to be renewed; not where running jobs may be stopped, which depends on more."""
        snapshot = problem.snapshot
        if snapshot is None:
            return None
        jobs_and_devices = _jobs_and_devices(snapshot)
        kept, until_s, plan = self._last.get(snapshot.scope, (None, 0.0, None))
        if plan is not None and kept == jobs_and_devices and now_s < until_s:
            return plan
        plan = self.client.match(replace(snapshot, limits=self.port.limits))
        check_plan_subjects(plan, snapshot)
        self._last.pop(snapshot.scope, None)
        if self.port.limits.allowed <= STARTS_AND_WAITS and all(each.kind is ActionKind.WAIT for each in plan.actions):
            asked_for_s = math.inf if math.isnan(plan.resolve_at_s) else plan.resolve_at_s
            self._last[snapshot.scope] = jobs_and_devices, min(now_s + self._kept_s, asked_for_s), plan
        return plan

    def _apply(self, changes: Sequence[C]) -> tuple[Rejection, ...]:
        return self.port.apply(changes) if changes else ()

    def _report(self, decisions: Sequence[Decision[J]], rejected: Sequence[Rejection], now_s: float) -> Counter[str]:
        try:
            results = self._reporter.report(self.client, decisions, rejected, now_s)
        except InterfereError as error:  # placements stay; a later round reports the windows
            _log.warning("nothing reported in this round: %s", error.one_line)
            results = Counter({"undelivered": 1})
        for result, count in results.items():
            self.metrics.add("observations_total", "result", result, by=count)
        return results


def _jobs_and_devices(snapshot: Snapshot) -> Hashable:
    """Return what of a snapshot changes with events, and not with time alone."""
    devices = ((device.id, device.seats, tuple(job.id for job in device.residents)) for device in snapshot.devices)
    return tuple(job.id for job in snapshot.pending), tuple(devices)


def decisions_of(actions: Sequence[Action], jobs: dict[str, J], decision_id: str) -> tuple[Decision[J], ...]:
    """Return the actions about known jobs as decisions. Others are left out, and logged where they ask for a change."""
    for action in actions:
        if action.job_id not in jobs and action.kind is not ActionKind.KEEP:
            _log.warning("nothing is done about %s, whose note has no grant; %s", action.job_id, action.reason)
    known = (action for action in actions if action.job_id in jobs)
    return tuple(Decision(job=jobs[action.job_id], action=action, decision_id=decision_id) for action in known)


def one_round(advisor: Advisor[J, P, C]) -> Round[J, C] | None:
    """Run one round and return its report; None where the round failed, so that the scheduler places jobs by itself."""
    metrics = advisor.metrics
    try:
        done = advisor.round()
    except InterfereError as error:
        kinds = {UnavailableError: "unavailable", InvalidInputError: "invalid"}
        metrics.add("rounds_total", "result", next((v for k, v in kinds.items() if isinstance(error, k)), "refused"))
        _log.warning("no advice in this round: %s", error.one_line)
    except Exception:  # a bug of the adapter must not end the advice
        metrics.add("rounds_total", "result", "bug")
        _log.exception("a round failed; the loop goes on")
    else:
        metrics.add("rounds_total", "result", "ok")
        metrics.set("last_success_timestamp_seconds", done.at_s)
        metrics.replace(f"left_to_{advisor.port.name}", "reason", done.left_out)
        return done
    return None


def run_rounds(
    advisor: Advisor[J, P, C],
    interval_s: float,
    stop: threading.Event,
    report: Callable[[Round[J, C]], None],
    *,
    may_decide: Callable[[], bool] = lambda: True,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Run rounds until `stop` is set. A failed round does not end the loop; `after` is called after each round."""
    start_tracing()
    while not stop.is_set():
        start_s = time.monotonic()
        with span(f"round of {advisor.port.name}"):
            if may_decide() and (done := one_round(advisor)) is not None:
                report(done)
        advisor.metrics.set("round_seconds", time.monotonic() - start_s)
        after()
        stop.wait(max(0.0, interval_s - (time.monotonic() - start_s)))


def repeat(name: str, interval_s: float, act: Callable[[], Any], stop: threading.Event) -> None:
    """Call a function again and again, with pauses, until stopped. Errors of the function are logged under `name`."""
    while not stop.is_set():
        try:
            act()
        except InterfereError as error:
            _log.warning("%s: %s", name, error.one_line)
        except Exception:  # a bug must not end the work of a thread
            _log.exception("%s failed; it is tried again", name)
        stop.wait(interval_s)


def stop_on_signals(stop: threading.Event | None = None) -> threading.Event:
    """Let SIGTERM and Ctrl-C set an event, and return it: the given one, or a new one."""
    stop = stop or threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
