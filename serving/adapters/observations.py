"""Reports to the policy server how fast jobs ran and how decisions ended, under ids that make repeated reports
harmless."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from interfere.client import PolicyClient
from interfere.errors import InterfereError
from interfere.records import Action, JobProfile, MemoryUsage, Observation, Outcome, OutcomeKind, Progress
from interfere.serving.adapters.journal import Journal
from interfere.serving.adapters.windows import (
    ColocationWindow,
    J,
    MarkSource,
    Residencies,
    Residency,
    Run,
    WindowRules,
    colocation_windows,
    progress,
)

_log = logging.getLogger("interfere.adapters")
MAX_USAGES = 10_000  # windows of memory that are kept until the server has them
MAX_REFUSALS = 1_000  # that are kept until the server has them; everything else is read again from the scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[J]):
    """The server's decision for one job."""

    job: J
    action: Action
    decision_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A change of a job that the scheduler did not take."""

    job_id: str
    message: str
    lost_race: bool  # the job had started, ended or changed before; else the scheduler refused the change


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedJob(Generic[J]):
    """The history of a job with a decision, as its scheduler reports it. Times are Unix seconds; 0: the event did not
    happen."""

    job: J
    decision_id: str
    device_id: str = ""  # where it was placed, to start
    started_s: float = 0.0
    started_on: str = ""  # where it started; empty: where it was seen to run
    ended_s: float = 0.0
    end_reason: str = ""
    missed_s: float = 0.0  # it had not started by then, and lost its place
    missed_reason: str = ""
    tries: int = 0  # placements so far


def outcomes(
    decided_jobs: Iterable[DecidedJob[J]], prefix: str, residencies: Iterable[Residency[J]] = ()
) -> tuple[Outcome, ...]:
    """Return the events of decided jobs as outcomes (applied, lost race, ended). `prefix`: name of scheduler and
    cluster."""
    residency_of = {
        residency.job.history_id: residency
        for residency in sorted(residencies, key=lambda residency: residency.start_s)
        if residency.is_certain
    }
    reported: list[Outcome] = []
    for decided in decided_jobs:
        events: list[tuple[str, OutcomeKind, float, str]] = []
        if decided.missed_s:
            events.append((f"late/{decided.tries}", OutcomeKind.LOST_RACE, decided.missed_s, decided.missed_reason))
        residency = residency_of.get(decided.job.history_id)
        started_on = decided.started_on or (residency.place.device_id if residency else "")
        if decided.device_id and started_on:
            started_s = decided.started_s or (residency.start_s if residency else 0.0)
            if started_on == decided.device_id:
                events.append(("started", OutcomeKind.APPLIED, started_s, ""))
            else:
                events.append(("started", OutcomeKind.LOST_RACE, started_s, f"it started on {started_on}"))
        if decided.ended_s:
            events.append(("ended", OutcomeKind.ENDED, decided.ended_s, decided.end_reason))
        reported += [
            Outcome(
                observation_id=f"{prefix}/{decided.job.history_id}/{name}",
                job_id=decided.job.id,
                kind=kind,
                at_s=at_s,
                decision_id=decided.decision_id,
                device_id="" if kind is OutcomeKind.ENDED else decided.device_id,
                reason=reason,
            )
            for name, kind, at_s, reason in events
        ]
    return tuple(reported)


class MemoryReports:
    """Reports windows of memory, and those of earlier calls that no server has yet."""

    def __init__(self) -> None:
        self._unsent: tuple[MemoryUsage, ...] = ()

    def send(self, client: PolicyClient, usages: Sequence[MemoryUsage]) -> None:
        """Send windows. Raises InterfereError where the server does not answer."""
        self._unsent = (*self._unsent, *usages)[-MAX_USAGES:]
        if self._unsent:
            client.observe(self._unsent)
            self._unsent = ()


class Reporter(Generic[J]):
    """Remembers the residencies of jobs and the observations of them that were already reported."""

    def __init__(self, scheduler: str, cluster: str, rules: WindowRules, marks: MarkSource[J], journal: Journal):
        self._scheduler, self._prefix, self._rules = scheduler, f"{scheduler}/{cluster}", rules
        self._marks, self._journal, self._residencies = marks, journal, Residencies[J](rules.lookback_s)
        self._decided_jobs: tuple[DecidedJob[J], ...] = ()
        self._reported, self._profiled = set[str](), set[tuple[str, str]]()
        self._journalled: set[tuple[str, str]] = set()
        self._refusals: dict[str, Observation] = {}  # that no server has yet

    def see(self, runs: Iterable[Run[J]], decided_jobs: Iterable[DecidedJob[J]], now_s: float) -> None:
        """Take in the runs and the decided jobs of one moment."""
        self._residencies.see(runs, now_s)
        self._decided_jobs = tuple(decided_jobs)

    def report(
        self, client: PolicyClient, decisions: Sequence[Decision[J]], rejected: Sequence[Rejection], now_s: float
    ) -> Counter[str]:
        """Report new windows and outcomes, and return the number of observations by the server's answer.

        Raises InterfereError where the server does not answer.
        """
        # 1. Windows of constant co-location and outcomes that were not reported yet, and changes rejected just now.
        complete_until_s = self._marks.complete_until_s(now_s)
        windows = {
            window.observation_id(self._prefix): window
            for window in colocation_windows(self._residencies.all(), self._rules, now_s)
        }
        measured = [
            (window, found)
            for name, window in windows.items()
            if name not in self._reported and window.end_s <= complete_until_s
            if (found := progress(window, self._marks, self._rules, self._prefix, now_s)) is not None
        ]
        outcome_of = {
            each.observation_id: each for each in outcomes(self._decided_jobs, self._prefix, self._residencies.all())
        }
        observations: list[Observation] = [found for _, found in measured]
        observations += [each for name, each in outcome_of.items() if name not in self._reported]
        self._refusals |= {each.observation_id: each for each in self._refused(decisions, rejected, now_s)}
        self._refusals = dict(list(self._refusals.items())[-MAX_REFUSALS:])
        observations += self._refusals.values()
        # 2. Deliver them; a prediction that is compared with a window must not have learnt from it.
        self._journal_places(decisions, now_s)
        results = Counter[str]()
        if observations:
            progresses = [found for _, found in measured]
            predicted = predicted_slowdowns(client, progresses) if self._journal.is_kept else {}
            for answer in client.observe(observations):
                results[answer.result.value] += 1
                self._reported.add(answer.observation_id)
                self._refusals.pop(answer.observation_id, None)
            for window, found in measured:
                self._journal_window(window, found, predicted.get(found.observation_id))
            self._register_profiles(client, [each for each in progresses if not each.company])
        self._reported &= {*windows, *outcome_of}
        return results

    def _refused(
        self, decisions: Sequence[Decision[J]], rejected: Sequence[Rejection], now_s: float
    ) -> list[Observation]:
        """Return outcomes of the decisions whose changes the scheduler rejected."""
        decision_of = {each.job.id: each for each in decisions if each.action.device_id}
        return [
            Outcome(
                observation_id=f"{self._prefix}/{decision.job.history_id}/refused/{decision.decision_id}",
                job_id=each.job_id,
                kind=OutcomeKind.LOST_RACE if each.lost_race else OutcomeKind.REFUSED,
                at_s=now_s,
                decision_id=decision.decision_id,
                reason="".join(c for c in each.message if c.isprintable())[:200] or "no reason given",
            )
            for each in rejected
            if (decision := decision_of.get(each.job_id)) is not None
        ]

    def _journal_places(self, decisions: Sequence[Decision[J]], now_s: float) -> None:
        """Write the first decision about each job, and where each job ran, once."""
        for decision in decisions:
            slowdown = decision.action.slowdown
            if decision.action.device_id and self._is_first(decision.job, "decision"):
                self._journal.write(
                    kind="decision",
                    at_s=now_s,
                    job=decision.job.id,
                    uid=decision.job.history_id,
                    workload=decision.job.workload,
                    device=decision.action.device_id,
                    predicted_slowdown=None if math.isnan(slowdown) else slowdown,
                    decision=decision.decision_id,
                )
        for residency in self._residencies.all():
            if residency.workload and self._is_first(residency.job, "bound"):
                place = residency.place.device_id
                self._journal.write(
                    kind="bound",
                    at_s=residency.start_s,
                    job=residency.job.id,
                    uid=residency.job.history_id,
                    device=place,
                )
        jobs = [each.job for each in decisions] + [each.job for each in self._decided_jobs]
        present = {job.history_id for job in jobs} | {residency.job.history_id for residency in self._residencies.all()}
        self._journalled = {key for key in self._journalled if key[0] in present}

    def _is_first(self, job: J, kind: str) -> bool:
        """Return whether the journal has no such entry of the job yet, and record the entry as present."""
        key = job.history_id, kind
        is_first = key not in self._journalled
        self._journalled.add(key)
        return is_first

    def _journal_window(self, window: ColocationWindow[J], found: Progress, predicted: float | None) -> None:
        self._journal.write(
            kind="window",
            at_s=found.end_s,
            uid=window.residency.job.history_id,
            workload=found.workload,
            device_type=found.device_type,
            company=list(found.company),
            step_time_s=(found.end_s - found.start_s) / found.steps,
            predicted_slowdown=predicted,
        )

    def _register_profiles(self, client: PolicyClient, solo_windows: Sequence[Progress]) -> None:
        """Register the solo step time of a workload as its first profile: from then on it may be paired."""
        sums: dict[tuple[str, str], tuple[float, float]] = {}
        for window in solo_windows:
            key = window.workload, window.device_type
            steps, seconds = sums.get(key, (0.0, 0.0))
            sums[key] = steps + window.steps, seconds + window.end_s - window.start_s
        for (workload, device_type), (steps, seconds) in sums.items():
            if (workload, device_type) in self._profiled:
                continue
            if not client.list_profiles(workload=workload, device_type=device_type):
                step_time_s, source = seconds / steps, self._scheduler
                profile = JobProfile(workload=workload, device_type=device_type, step_time_s=step_time_s, source=source)
                client.register_profiles([profile])
            self._profiled.add((workload, device_type))


def predicted_slowdowns(client: PolicyClient, windows: Sequence[Progress]) -> dict[str, float]:
    """Return the predicted median slowdown of each window with neighbours, by observation id. Windows for which the
    server abstains are left out."""
    found: dict[str, float] = {}
    situations = {(each.device_type, each.mode) for each in windows if each.company}
    for device_type, mode in sorted(situations):
        own = [each for each in windows if each.company and (each.device_type, each.mode) == (device_type, mode)]
        jobs, groups = list[str](), list[tuple[int, ...]]()
        for each in own:
            groups.append(tuple(range(len(jobs), len(jobs) + 1 + len(each.company))))
            jobs += [each.workload, *each.company]
        try:
            answer = client.predict(jobs, pairs=groups, device_type=device_type, mode=mode)
        except InterfereError as error:  # the windows are reported all the same
            _log.warning("no predictions for the journal: %s", error.one_line)
            continue
        medians = zip(own, answer.prediction.median, strict=True)
        found |= {each.observation_id: float(median) for each, median in medians if not math.isnan(median)}
    return found


MAX_PREDICTIONS = 10_000  # newest ones, that are kept


class LostTime:
    """Adds up, from reading to reading, what each job loses to those beside it, as predicted: dt (1 - 1 / slowdown).

    A job that says what it takes alone needs longer beside others. Without this a job that shares a device seems to be
    at its end long before it is, and others wait for it. After a restart of the adapter or of the job it begins at 0,
    and neighbours without a prediction cost nothing.
    """

    def __init__(self) -> None:
        self._slowdown_of: dict[tuple[str, frozenset[str]], float] = {}  # by job and its company
        self._lost_s: dict[str, tuple[str, float]] = {}  # by job: of which run, and how much
        self._read_s = 0.0

    def predict(self, decisions: Iterable[Decision[Any]]) -> None:
        """Take in the predicted slowdowns of the jobs that start beside others, and of those others."""
        for decision in decisions:
            action = decision.action
            company = action.slowdown_of_partners
            members = {action.job_id: action.slowdown, **company}
            for job_id, slowdown in members.items():
                if company and slowdown > 0:  # not NaN
                    self._slowdown_of[job_id, frozenset(members) - {job_id}] = slowdown

    def advance(self, runs: Iterable[Run[Any]], now_s: float) -> None:
        """Add the time since the last reading, or since the jobs began to run together. `runs`: all of this reading."""
        elapsed_s = max(0.0, now_s - self._read_s) if self._read_s else 0.0
        self._read_s = now_s
        running = [run for run in runs if math.isinf(run.end_s)]
        runs_on: dict[str, list[Run[Any]]] = {}
        for run in running:
            for place in run.places:
                runs_on.setdefault(place.device_id, []).append(run)
        lost_s = dict[str, tuple[str, float]]()
        for run in running:
            members = [each for place in run.places for each in runs_on[place.device_id]]
            company = frozenset(each.job.id for each in members) - {run.job.id}
            slowdown = self._slowdown_of.get((run.job.id, company), 1.0)
            together_s = min([elapsed_s, *(max(0.0, now_s - each.start_s) for each in members)])
            run_id, before_s = self._lost_s.get(run.job.id, ("", 0.0))
            kept_s = before_s if run_id == run.job.run_id else 0.0
            lost_s[run.job.id] = run.job.run_id, kept_s + together_s * max(0.0, 1.0 - 1.0 / slowdown)
        self._lost_s = lost_s
        if len(self._slowdown_of) > 2 * MAX_PREDICTIONS:
            self._slowdown_of = dict(list(self._slowdown_of.items())[-MAX_PREDICTIONS:])

    def of(self, job_id: str) -> float:
        """Return what a running job has lost so far, in seconds; 0 where nothing is known."""
        return self._lost_s.get(job_id, ("", 0.0))[1]
