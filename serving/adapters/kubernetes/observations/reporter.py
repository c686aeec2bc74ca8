"""Reports to the policy server what pods measured and how decisions ended; the ids make it safe to report twice.

Steps come from `MarkSource`s: the sidecars' marks, a Prometheus, or any other watcher of running jobs.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from interfere.client import PolicyClient
from interfere.progress import Mark
from interfere.records import JobProfile, Observation, Outcome, OutcomeKind, Progress
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.changes import RejectedChange
from interfere.serving.adapters.kubernetes.observations.journal import Journal
from interfere.serving.adapters.kubernetes.observations.predicted import predicted_slowdowns
from interfere.serving.adapters.kubernetes.observations.stays import Stay, Stays, colocation_windows, progress
from interfere.serving.adapters.kubernetes.offers import number
from interfere.serving.adapters.kubernetes.records import ClusterState, Pod, PodState
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings


class MarkSource(Protocol):
    """Where the steps of pods come from."""

    def marks(self, stay: Stay, now_s: float) -> Sequence[Mark]:
        """Recent marks of a stay, oldest first; none where nothing is known."""

    def complete_until_s(self, now_s: float) -> float:
        """The time up to which all marks are there: a window that ends later is not measured yet."""


class CombinedMarks:
    """Of each stay the marks of the first source that has any. Implements MarkSource."""

    def __init__(self, sources: Sequence[MarkSource]) -> None:
        self._sources = sources

    def marks(self, stay: Stay, now_s: float) -> Sequence[Mark]:
        """As `MarkSource.marks`."""
        return next(filter(None, (source.marks(stay, now_s) for source in self._sources)), ())

    def complete_until_s(self, now_s: float) -> float:
        """As `MarkSource.complete_until_s`."""
        return min(source.complete_until_s(now_s) for source in self._sources)


class Reporter:
    """Remembers stays and what was reported of them."""

    def __init__(self, settings: KubernetesSettings, source: MarkSource, journal: Journal) -> None:
        self._settings, self._source, self._journal = settings, source, journal
        self._stays, self._reported, self._profiled = Stays(), set[str](), set[tuple[str, str]]()
        self._pods: tuple[Pod, ...] = ()
        self._journalled: set[tuple[str, str]] = set()

    def see(self, state: ClusterState, now_s: float) -> None:
        """Take in the cluster of one moment."""
        self._stays.see(state, now_s)
        self._pods = state.pods

    def decided(self, pod: Pod, device: str, slowdown: float, decision_id: str, now_s: float) -> None:
        """Write a first decision about a pod into the journal."""
        if (pod.uid, "decision") not in self._journalled and device:
            self._journalled.add((pod.uid, "decision"))
            self._journal.write(
                kind="decision",
                at_s=now_s,
                pod=pod.key,
                uid=pod.uid,
                workload=pod.workload,
                device=device,
                predicted_slowdown=None if math.isnan(slowdown) else slowdown,
                decision=decision_id,
            )

    def report(self, client: PolicyClient, rejected: Sequence[RejectedChange], now_s: float) -> Counter[str]:
        """Report what is new. Raises InterfereError where the server does not answer."""
        # 1. Windows and outcomes that were not reported yet.
        windows = {
            window.observation_id(self._settings.cluster): window
            for window in colocation_windows(self._stays.all(), self._settings, now_s)
        }
        outcomes = {each.observation_id: each for each in self._outcomes(now_s)}
        observations: list[Observation] = []
        complete_until_s = self._source.complete_until_s(now_s)
        for name, window in windows.items():
            if name not in self._reported and window.end_s <= complete_until_s:
                company_marks = [mark for each in window.company for mark in self._source.marks(each, now_s)]
                marks = self._source.marks(window.stay, now_s)
                measured = progress(window, marks, company_marks, self._settings)
                observations += [measured] if measured else []
        observations += [each for name, each in outcomes.items() if name not in self._reported]
        observations += [_refused(each, self._settings, now_s) for each in rejected if each.change.device_id]
        # 2. Deliver them.
        self._journal_stays()
        results = Counter[str]()
        if observations:
            measured_windows = [each for each in observations if isinstance(each, Progress)]
            predicted = predicted_slowdowns(client, measured_windows) if self._journal.is_kept else {}
            for answer in client.observe(observations):
                results[answer.result.value] += 1
                self._reported.add(answer.observation_id)
            for each in measured_windows:
                self._journal_progress(each, predicted.get(each.observation_id))
            self._register_profiles(client, [each for each in measured_windows if not each.company])
        self._reported &= {*windows, *outcomes}
        present = {pod.uid for pod in self._pods} | {stay.pod.uid for stay in self._stays.all()}
        self._journalled = {key for key in self._journalled if key[0] in present}
        return results

    def _outcomes(self, now_s: float) -> list[Outcome]:
        """How decisions and pods ended, from the pods alone, so that a restart reports the same."""
        stay_of, reported = {stay.pod.uid: stay for stay in self._stays.all()}, list[Outcome]()
        for pod in self._pods:
            prefix, planned = f"kubernetes/{self._settings.cluster}/{pod.uid}", pod.note(names.DEVICE)
            decision, stay = pod.note(names.DECISION), stay_of.get(pod.uid)
            if pod.note(names.STATE) == PodState.PLACED and planned and stay is not None:
                hit = stay.gpu.id == planned
                reported.append(
                    Outcome(
                        observation_id=f"{prefix}/started",
                        job_id=pod.id,
                        kind=OutcomeKind.APPLIED if hit else OutcomeKind.LOST_RACE,
                        at_s=stay.start_s,
                        decision_id=decision,
                        device_id=planned,
                        reason="" if hit else f"it started on {stay.gpu.id}",
                    )
                )
            if pod.ended and decision:
                reported.append(
                    Outcome(
                        observation_id=f"{prefix}/ended",
                        job_id=pod.id,
                        kind=OutcomeKind.ENDED,
                        at_s=pod.ended_s or number(pod.note(names.DECIDED_AT)) or now_s,
                        decision_id=decision,
                        reason=end_reason(pod),
                    )
                )
        return reported

    def _journal_stays(self) -> None:
        """Write where each pod ran, once."""
        for stay in self._stays.all():
            if (stay.pod.uid, "bound") not in self._journalled and stay.pod.workload:
                self._journalled.add((stay.pod.uid, "bound"))
                pod = stay.pod
                self._journal.write(kind="bound", at_s=stay.start_s, pod=pod.key, uid=pod.uid, device=stay.gpu.id)

    def _journal_progress(self, window: Progress, predicted: float | None) -> None:
        self._journal.write(
            kind="window",
            at_s=window.end_s,
            uid=window.job_id.rpartition("/")[2],
            workload=window.workload,
            device_type=window.device_type,
            company=list(window.company),
            step_time_s=(window.end_s - window.start_s) / window.steps,
            predicted_slowdown=predicted,
        )

    def _register_profiles(self, client: PolicyClient, solo_windows: Sequence[Progress]) -> None:
        """Register the solo step time of a workload as its first profile: from then on it may be paired."""
        sums: dict[tuple[str, str], tuple[float, float]] = {}
        for window in solo_windows:
            key = window.workload, window.device_type
            steps, seconds = sums.get(key, (0.0, 0.0))
            sums[key] = steps + window.steps, seconds + window.end_s - window.start_s
        for key, (steps, seconds) in sums.items():
            if key in self._profiled:
                continue
            if not client.list_profiles(workload=key[0], device_type=key[1]):
                step_time_s = seconds / steps
                client.register_profiles(
                    [JobProfile(workload=key[0], device_type=key[1], step_time_s=step_time_s, source="kubernetes")]
                )
            self._profiled.add(key)


def end_reason(pod: Pod) -> str:
    """Why a pod ended, in the words of the other adapters."""
    known = {"Succeeded": "completed", "OOMKilled": "out of memory", "Evicted": "evicted", "Error": "failed"}
    return known.get(pod.end_reason, pod.end_reason.lower() or "ended")[:200]


def _refused(rejected: RejectedChange, settings: KubernetesSettings, now_s: float) -> Outcome:
    change = rejected.change
    return Outcome(
        observation_id=f"kubernetes/{settings.cluster}/{change.pod.uid}/refused/{change.decision_id}",
        job_id=change.pod.id,
        kind=OutcomeKind.LOST_RACE if rejected.lost_race else OutcomeKind.REFUSED,
        at_s=now_s,
        decision_id=change.decision_id,
        reason="".join(c for c in rejected.message if c.isprintable()) or "no reason given",
    )
