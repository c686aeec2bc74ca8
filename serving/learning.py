"""The observation log and the online model: observations are learned, stored, then acknowledged.

Law: the online model is the fold of the stored entries that were not rolled back, in their order, also after a failed
write and after a restart. The fold uses the current model and profiles: a new champion learns from every observation
again, and a better one is corrected less. Stored states only shorten the fold.
"""

import heapq
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from zipfile import BadZipFile

from interfere.errors import NotFoundError, UnavailableError
from interfere.predict.memory_guard import impossible_usage
from interfere.predict.online import state as online_state
from interfere.predict.residual import LearningResult, OnlineModel
from interfere.records import (
    JobProfile,
    MemoryUsage,
    Observation,
    ObservationResult,
    Progress,
    ReporterWeight,
    Rollback,
)
from interfere.store.json_records import observation_kind, observation_to_json
from interfere.store.protocols import (
    CheckpointRepository,
    NewObservation,
    ObservationRepository,
    RolledBackRange,
    StateCheckpoint,
)
from interfere.wire.messages import (
    Correction,
    LogEntry,
    ObservationAnswer,
    ObservationLog,
    OnlineState,
    Reported,
    ReporterState,
    Unreadable,
)
from serving.metrics import Metrics
from serving.profiles import ProfileCatalogue
from serving.recent_states import RecentStates

_log = logging.getLogger(__name__)
_STORED = (ObservationResult.APPLIED, ObservationResult.PENDING_SOLO, ObservationResult.QUARANTINED)
# Entries between stored states: 25,000 are folded in 2.5 s of one core; the state of 10,000 jobs in a million different
# pairs, the largest possible, is written in 2 s.
SNAPSHOT_EVERY = 25_000
BATCH = 5_000  # entries folded with one question to the model inside
MAX_CORRECTIONS = 20


class ObservationLedger:
    """The log of observations and the model that learned from it. Not thread-safe: the caller holds one lock."""

    def __init__(
        self,
        new_model: Callable[[], OnlineModel],
        book: ObservationRepository,
        checkpoints: CheckpointRepository,
        profiles: ProfileCatalogue,
        metrics: Metrics,
    ) -> None:
        """`new_model` makes a model that has learned nothing."""
        self._new_model, self._book, self._checkpoints = new_model, book, checkpoints
        self._profiles, self._metrics = profiles, metrics
        self._counts = book.counts()
        self._recent = RecentStates()
        self.used_bytes = book.largest_memory_usages()  # by workload and device type
        self._last_sequence = max((entry.sequence for entry in book.newest(1)), default=0)
        self.model, self._state_sequence = self._fold_log(self._last_sequence)
        self._alarms = self.model.alarm_count
        metrics.set_drifting_workloads(len(self.model.drifting_workloads()))

    @property
    def last_sequence(self) -> int:
        """Sequence number of the newest entry of the log; 0 without any."""
        return self._last_sequence

    # --- folding ----------------------------------------------------------------------------------------------------

    def _fold_log(self, upto: int) -> tuple[OnlineModel, int]:
        """The model after an entry of the log, and the entry of the stored state that the fold started from."""
        rollbacks, rewrites = self._book.rollbacks(up_to=upto), self._book.rewrites(up_to=upto)
        model, start = self._new_model(), 0
        if recent := self._recent.find(upto, rewrites):
            start, model.state = recent[0], recent[1].copy()
        for stored in self._checkpoints.find(self._key(), up_to=upto):
            if stored.sequence <= start:
                break
            # a later rollback to an earlier entry, or its undoing, invalidates the state
            if all(at <= stored.sequence or stored.sequence <= to for at, to in rewrites):
                try:
                    restored = self._new_model()
                    facts = online_state.restore_state(restored, stored.content)
                    if facts != self._facts(restored):
                        continue
                except (ValueError, KeyError, IndexError, TypeError, OSError, BadZipFile) as error:
                    _log.warning("a stored state cannot be read, the log is folded instead: %r", error)
                    continue
                model, start = restored, stored.sequence
                break
        batch: list[Progress | ReporterWeight] = []
        for entry in self._book.entries(after=start, up_to=upto):
            observation = entry.observation
            if isinstance(observation, Progress | ReporterWeight) and not _rolled_back(
                entry.sequence, observation, rollbacks
            ):
                batch.append(observation)
            if len(batch) >= BATCH:
                self._fold(model, batch)
                batch = []
        self._fold(model, batch)
        return model, start

    def _fold(self, model: OnlineModel, observations: Sequence[Progress | ReporterWeight]) -> None:
        windows = [observation for observation in observations if isinstance(observation, Progress)]
        model.prefetch(windows, self._profiles.of_workload)
        for observation in observations:
            if isinstance(observation, Progress):
                model.observe(observation, self._profiles.of_workload)
            else:
                model.weigh_reporter(observation)

    def _key(self) -> str:
        """What a stored state depends on besides the log and the profiles of its workloads."""
        return f"{online_state.FORMAT} {self._new_model().version}"

    def _facts(self, model: OnlineModel) -> str:
        """A digest of the profiles that a state was learned with: another workload's profile leaves it valid."""
        return self._profiles.digest_of(model.state.workloads())

    def profiles_registered(self, profiles: Sequence[JobProfile]) -> None:
        """Learn again what was observed of jobs that had no profile until now."""
        state = self.model.state
        unprofiled = {key[0] for key in (*state.unprofiled, *state.with_stand_in, *state.pending)}
        if any(profile.workload in unprofiled for profile in profiles):
            self._recent.clear()
            self.model, self._state_sequence = self._fold_log(self._last_sequence)

    def store_state(self) -> None:
        """Store the current state; on a full disk only the next start takes longer."""
        if self._last_sequence == self._state_sequence:
            return
        try:
            content = online_state.dump_state(self.model, facts=self._facts(self.model))
            self._checkpoints.put(StateCheckpoint(sequence=self._last_sequence, key=self._key(), content=content))
            self._state_sequence = self._last_sequence
        except UnavailableError:
            return

    # --- reporting --------------------------------------------------------------------------------------------------

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """An answer for each observation. All but rejected ones and duplicates are stored before this returns; a
        rejected one may be sent again once the reason is gone."""
        known = self._book.find(observation.observation_id for observation in reported)
        to_store: list[NewObservation] = []
        errors: list[float] = []
        answers = []
        # 1. Learn each; the savepoint lets a failed write undo it.
        self.model.set_savepoint()
        try:
            windows = [each for each in reported if isinstance(each, Progress) and each.observation_id not in known]
            self.model.prefetch(windows, self._profiles.of_workload)
            for observation in reported:
                answer, error = self._observe_one(observation, known)
                answers.append(answer)
                if not isinstance(observation, Unreadable) and answer.result in _STORED:
                    to_store.append(NewObservation(observation=observation, result=answer.result, reason=answer.reason))
                    known[observation.observation_id] = observation
                    errors.append(error)
            # 2. Store them.
            if to_store:
                self._last_sequence = self._book.append(to_store, time.time())
        except BaseException:
            self.model.restore_savepoint()  # forget what was learned but not stored
            raise
        # 3. Count them and update measured memory use.
        for stored in to_store:
            kind = observation_kind(stored.observation)
            self._counts[kind] = self._counts.get(kind, 0) + 1
            if isinstance(stored.observation, MemoryUsage):
                self._record_memory_use(stored.observation)
        self._record_metrics(answers, errors)
        # 4. A rollback folds the log again; a long log gets a new stored state.
        if any(isinstance(stored.observation, Rollback) for stored in to_store):
            self.model, self._state_sequence = self._fold_log(self._last_sequence)
            self.used_bytes = self._book.largest_memory_usages()
        self._recent.add(self._last_sequence, self.model.state)
        if self._last_sequence - self._state_sequence >= SNAPSHOT_EVERY:
            self.store_state()
        return tuple(answers)

    def _record_memory_use(self, usage: MemoryUsage) -> None:
        key = usage.workload, usage.device_type
        self.used_bytes[key] = max(usage.bytes, self.used_bytes.get(key, 0.0))

    def _record_metrics(self, answers: Sequence[ObservationAnswer], errors: Sequence[float]) -> None:
        for answer in answers:
            self._metrics.count_observation(answer.result)
        for error in errors:
            if not math.isnan(error):
                self._metrics.observe_prediction_error(error)
        frozen = self.model.drifting_workloads()
        if (alarms := self.model.alarm_count) > self._alarms:
            _log.warning(
                "change found: the levels of jobs are learned anew; undecided still: %s", ", ".join(frozen) or "none"
            )
            self._metrics.count_drift_alarms(alarms - self._alarms)
        self._alarms = alarms
        self._metrics.set_drifting_workloads(len(frozen))

    def _observe_one(self, observation: Reported, known: Mapping[str, Observation]) -> tuple[ObservationAnswer, float]:
        """The answer, and the relative error of the prediction before the observation."""
        learned = LearningResult(ObservationResult.REJECTED)
        observation_id = observation.observation_id
        if isinstance(observation, Unreadable):
            learned = LearningResult(ObservationResult.REJECTED, observation.reason)
        elif observation_id in known:
            if observation_to_json(known[observation_id]) == observation_to_json(observation):
                learned = LearningResult(ObservationResult.DUPLICATE, "this id was stored before; nothing changed")
            else:
                reason = "this id was stored with other content; give every observation an id of its own"
                learned = LearningResult(ObservationResult.REJECTED, reason)
        elif isinstance(observation, Progress):
            learned = self.model.observe(observation, self._profiles.of_workload)
        elif reason := self._refusal(observation):
            learned = LearningResult(ObservationResult.REJECTED, reason)
        else:
            learned = LearningResult(ObservationResult.APPLIED)
            if isinstance(observation, ReporterWeight):
                self.model.weigh_reporter(observation)
        answer = ObservationAnswer(
            observation_id=observation_id, result=learned.result, reason=learned.reason, weight=learned.weight
        )
        return answer, learned.error_ratio

    def _refusal(self, observation: Observation) -> str:
        """Why a memory usage, a rollback or the undoing of one cannot be taken in; "" where it can."""
        if isinstance(observation, MemoryUsage):
            return impossible_usage(observation)
        if not isinstance(observation, Rollback):
            return ""
        rollback = observation
        if rollback.to_sequence > self._last_sequence:
            return f"the log ends at {self._last_sequence}: nothing comes after {rollback.to_sequence}"
        in_force = {each.sequence for each in self._book.rollbacks()}
        if rollback.undoes and rollback.undoes not in in_force:
            return f"entry {rollback.undoes} is no rollback in force: `interfere observe log` shows their numbers"
        return ""

    # --- reading ----------------------------------------------------------------------------------------------------

    def state(self) -> OnlineState:
        """Counts: stored observations and what they taught."""
        return _state(self.model, self._counts)

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """The newest entries up to a point, and what was known there. Raises NotFoundError past the end."""
        if at is not None and at > self._last_sequence:
            raise NotFoundError("no such entry", value=at, remedy=f"the log ends at {self._last_sequence}")
        rollbacks = self._book.rollbacks(up_to=at)
        entries = tuple(
            LogEntry(
                sequence=stored.sequence,
                observation=stored.observation,
                result=stored.result,
                reason=stored.reason,
                received_s=stored.received_s,
                rolled_back=_rolled_back(stored.sequence, stored.observation, rollbacks),
            )
            for stored in self._book.newest(limit or 20, up_to=at)
        )
        model, counts = self.model, self._counts
        if at is not None and at < self._last_sequence:
            (model, _), counts = self._fold_log(at), self._book.counts(up_to=at)
        return ObservationLog(entries=entries, online=_state(model, counts), corrections=_corrections(model))


def _rolled_back(sequence: int, observation: Observation, rollbacks: Sequence[RolledBackRange]) -> bool:
    return any(rollback.covers(sequence, observation) for rollback in rollbacks)


def _state(model: OnlineModel, counts: Mapping[str, int]) -> OnlineState:
    summary = model.summary()
    reporters = tuple(
        ReporterState(
            reporter=name,
            windows=round(record.window_count),
            trust=record.trust,
            weight=model.state.reporter_weights.get(name, 1.0),
        )
        for name, record in sorted(model.state.reporters.items())
        if name
    )
    return OnlineState(
        observations=sum(counts.values()),
        pending_solo=summary["pending_solo"],
        solo_rates=summary["solo_rates"],
        corrected_jobs=summary["corrected_jobs"],
        corrected_pairs=summary["corrected_pairs"],
        quarantined=summary["quarantined"],
        alarms=summary["alarms"],
        frozen=model.drifting_workloads(),
        outcomes=counts.get("outcome", 0),
        memory_usages=counts.get("memory_usage", 0),
        reporters=reporters,
        changed_domains=tuple(sorted("/".join(key) for key, domain in model.state.domains.items() if domain.epoch)),
    )


def _corrections(model: OnlineModel) -> tuple[Correction, ...]:
    """The pairs that differ most from what the effects of their jobs alone predict."""
    pairs = (
        (victim, neighbour, effect)
        for victim, effects in model.state.pairs.items()
        for neighbour, effect in effects.items()
    )
    largest = heapq.nlargest(MAX_CORRECTIONS, pairs, key=lambda item: abs(item[2].mean))
    return tuple(
        Correction(
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            log_factor=effect.mean,
            sd=math.sqrt(effect.variance),
        )
        for (victim, device_type, mode), neighbour, effect in largest
    )
