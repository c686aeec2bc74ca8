"""The observation log and the online model: observations are learned, stored, published, then acknowledged.

Law: the online model is the fold of the stored entries that were not rolled back, in their order, also after a failed
write and after a restart. The fold uses the current model and profiles: a new champion learns from every observation
again, and a better one is corrected less. Stored states only shorten the fold. Readers see `published`, which never
changes: one writer replaces it.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zipfile import BadZipFile

from interfere.errors import NotFoundError, UnavailableError
from interfere.predict.online import state as online_state
from interfere.predict.online.snapshot import snapshot_of
from interfere.predict.residual import LearningResult, OnlineModel
from interfere.records import JobProfile, MemoryUsage, Observation, ObservationResult, Progress, Rollback
from interfere.store.json_records import observation_kind, observation_to_json
from interfere.store.protocols import CheckpointRepository, NewObservation, ObservationRepository, StateCheckpoint
from interfere.time_budget import check_interruption
from interfere.wire.messages import (
    Correction,
    LogEntry,
    ObservationAnswer,
    ObservationLog,
    OnlineState,
    Reported,
    Unreadable,
)
from serving.metrics import Metrics
from serving.profiles import ProfileCatalogue

_log = logging.getLogger(__name__)
_STORED = (ObservationResult.APPLIED, ObservationResult.PENDING_SOLO, ObservationResult.QUARANTINED)
# Entries between stored states: 25,000 are folded in 2.5 s of one core; the state of 10,000 jobs in a million different
# pairs, the largest possible, is written in 2 s.
SNAPSHOT_EVERY = 25_000
MAX_ENTRIES = 10_000_000  # of the log: 4 GB; beyond, the oldest are forgotten, and a new model learns from the others
BATCH = 5_000  # entries folded with one question to the model inside
MAX_CORRECTIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedState:
    """What was learned from the log up to one of its entries. Nothing in it changes: any thread may read it."""

    model: OnlineModel
    last_sequence: int  # of the log's newest entry; 0 without any
    counts: Mapping[str, int]  # entries by kind
    used_bytes: Mapping[tuple[str, str], float]  # largest measured memory by (workload, device type)

    def summary(self) -> OnlineState:
        """Counts: stored observations and what they taught."""
        return _state(self.model, self.counts)


class ObservationLedger:
    """The log of observations and the model that learned from it.

    Not thread-safe: one writer at a time reports and registers. `published` and `log` are for any thread.
    """

    def __init__(
        self,
        new_model: Callable[[], OnlineModel],
        book: ObservationRepository,
        checkpoints: CheckpointRepository,
        profiles: ProfileCatalogue,
        metrics: Metrics,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        """`new_model` makes a model that has learned nothing; `max_entries` of the log are kept."""
        self._max_entries = max_entries
        self._new_model, self._book, self._checkpoints = new_model, book, checkpoints
        self._profiles, self._metrics = profiles, metrics
        self._last_sequence = max((entry.sequence for entry in book.newest(1)), default=0)
        self._counts = book.counts(up_to=self._last_sequence)
        self._used_bytes = book.largest_memory_usages()
        self._model, self._state_sequence = self._fold_log(self._last_sequence)
        self._alarms = self._model.alarm_count
        metrics.set_drifting_workloads(len(self._model.drifting_workloads()))
        self.published = self._learned_state()

    def _learned_state(self) -> LearnedState:
        """A copy of what is known now, for readers."""
        return LearnedState(
            model=snapshot_of(self._model),
            last_sequence=self._last_sequence,
            counts=dict(self._counts),
            used_bytes=dict(self._used_bytes),
        )

    # --- folding ----------------------------------------------------------------------------------------------------

    def _fold_log(self, upto: int) -> tuple[OnlineModel, int]:
        """The model after an entry of the log, and the entry of the stored state that the fold started from."""
        rollbacks = self._book.rollbacks(up_to=upto)
        model, start = self._new_model(), 0
        for stored in self._checkpoints.find(self._key(), up_to=upto):
            # a later rollback to an earlier entry invalidates the state
            if all(at <= stored.sequence or stored.sequence <= to for at, to in rollbacks):
                try:
                    online_state.restore_state(model, stored.content)
                except (ValueError, KeyError, IndexError, TypeError, OSError, BadZipFile) as error:
                    _log.warning("a stored state cannot be read, the log is folded instead: %r", error)
                    model = self._new_model()
                    continue
                start = stored.sequence
                break
        batch: list[Progress] = []
        for after, last in _valid_spans(start, upto, rollbacks):
            for entry in self._book.entries(after=after, up_to=last):
                if isinstance(entry.observation, Progress):
                    batch.append(entry.observation)
                if len(batch) >= BATCH:
                    self._fold(model, batch)
                    batch = []
        self._fold(model, batch)
        return model, start

    def catch_up(self) -> None:
        """Learn what others appended to the log since."""
        after, newest = self._last_sequence, max((entry.sequence for entry in self._book.newest(1)), default=0)
        if newest == after:
            return
        entries = list(self._book.entries(after=after, up_to=newest))
        forgotten = entries[0].sequence > after + 1
        if forgotten or any(isinstance(entry.observation, Rollback) for entry in entries):
            self._model, self._state_sequence = self._fold_log(newest)
        else:
            self._fold(self._model, [e.observation for e in entries if isinstance(e.observation, Progress)])
        self._last_sequence = newest
        self._counts, self._used_bytes = self._book.counts(up_to=newest), self._book.largest_memory_usages()
        self.published = self._learned_state()

    def _fold(self, model: OnlineModel, windows: Sequence[Progress]) -> None:
        check_interruption()
        model.prefetch(windows, self._profiles.of_workload)
        for window in windows:
            model.observe(window, self._profiles.of_workload)

    def _key(self) -> str:
        """What a stored state depends on besides the log."""
        return f"{online_state.FORMAT} {self._new_model().version} {self._profiles.digest()}"

    def use_profiles(self, profiles: ProfileCatalogue, *, changed: Sequence[JobProfile]) -> None:
        """Resolve workloads with another catalogue; what was observed of jobs that it profiles first is learned again.

        `changed`: the profiles that this catalogue has and the one before had not, or the other way round.
        """
        known_before = {profile.profile_id for profile in changed if self._profiles.knows(profile.profile_id)}
        self._profiles = profiles
        unprofiled = {(workload, device_type) for workload, device_type, _ in self._model.effects.unprofiled}
        removed = any(not profiles.knows(profile_id) for profile_id in known_before)
        if removed or any((profile.workload, profile.device_type) in unprofiled for profile in changed):
            self._model, self._state_sequence = self._fold_log(self._last_sequence)
            self.published = self._learned_state()

    def store_state(self) -> None:
        """Store the current state; on a full disk only the next start takes longer."""
        if self._last_sequence == self._state_sequence:
            return
        try:
            content = online_state.dump_state(self._model)
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
        self._model.set_savepoint()
        try:
            windows = [each for each in reported if isinstance(each, Progress) and each.observation_id not in known]
            self._model.prefetch(windows, self._profiles.of_workload)
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
            self._model.restore_savepoint()  # forget what was learned but not stored
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
            self._model, self._state_sequence = self._fold_log(self._last_sequence)
            self._used_bytes = self._book.largest_memory_usages()
        self.published = self._learned_state()
        if self._last_sequence - self._state_sequence >= SNAPSHOT_EVERY:
            self.store_state()
            self._prune()
        return tuple(answers)

    def _prune(self) -> None:
        """Forget the oldest entries of a log that is too long; what they taught is in the stored state."""
        if sum(self._counts.values()) <= self._max_entries:
            return
        with contextlib.suppress(UnavailableError):
            pruned = self._book.prune(self._max_entries, up_to=self._state_sequence)
            self._counts = self._book.counts()
            self.published = self._learned_state()
            _log.info("the log is longer than %d entries: the oldest %d are forgotten", self._max_entries, pruned)

    def _record_memory_use(self, usage: MemoryUsage) -> None:
        key = usage.workload, usage.device_type
        self._used_bytes[key] = max(usage.bytes, self._used_bytes.get(key, 0.0))

    def _record_metrics(self, answers: Sequence[ObservationAnswer], errors: Sequence[float]) -> None:
        for answer in answers:
            self._metrics.count_observation(answer.result)
        for error in errors:
            if not math.isnan(error):
                self._metrics.observe_prediction_error(error)
        frozen = self._model.drifting_workloads()
        if (alarms := self._model.alarm_count) > self._alarms:
            _log.warning(
                "drift alarm: learning is suspended until they are stable again, for %s",
                ", ".join(frozen) or "all jobs",
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
            learned = self._model.observe(observation, self._profiles.of_workload)
        elif isinstance(observation, Rollback) and observation.to_sequence > self._last_sequence:
            reason = f"the log ends at {self._last_sequence}: nothing comes after {observation.to_sequence}"
            learned = LearningResult(ObservationResult.REJECTED, reason)
        else:
            learned = LearningResult(ObservationResult.APPLIED)
        answer = ObservationAnswer(observation_id=observation_id, result=learned.result, reason=learned.reason)
        return answer, learned.error_ratio

    # --- reading ----------------------------------------------------------------------------------------------------

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """The newest entries up to a point, and what was known there. Raises NotFoundError past the end."""
        learned = self.published
        if at is not None and at > learned.last_sequence:
            raise NotFoundError("no such entry", value=at, remedy=f"the log ends at {learned.last_sequence}")
        rollbacks = self._book.rollbacks(up_to=at)
        entries = tuple(
            LogEntry(
                sequence=stored.sequence,
                observation=stored.observation,
                result=stored.result,
                reason=stored.reason,
                received_s=stored.received_s,
                rolled_back=_rolled_back(stored.sequence, rollbacks),
            )
            for stored in self._book.newest(limit or 20, up_to=at)
        )
        model, counts = learned.model, learned.counts
        if at is not None and at < learned.last_sequence:
            (model, _), counts = self._fold_log(at), self._book.counts(up_to=at)
        return ObservationLog(entries=entries, online=_state(model, counts), corrections=_corrections(model))


def _valid_spans(after: int, upto: int, rollbacks: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts (above, up to) of the log that no rollback has made invalid; the others need not be read."""
    for at, last_valid in sorted(rollbacks, key=lambda rollback: rollback[1]):
        if last_valid > after:
            yield after, min(last_valid, upto)
        after = max(after, at - 1)
    if after < upto:
        yield after, upto


def _rolled_back(sequence: int, rollbacks: Sequence[tuple[int, int]]) -> bool:
    return any(to < sequence < at for at, to in rollbacks)


def _state(model: OnlineModel, counts: Mapping[str, int]) -> OnlineState:
    summary = model.summary()
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
    )


def _corrections(model: OnlineModel) -> tuple[Correction, ...]:
    """The pairs that differ most from what the effects of their jobs alone predict."""
    largest = sorted(model.effects.pairs.items(), key=lambda item: -abs(item[1][0]))[:MAX_CORRECTIONS]
    return tuple(
        Correction(
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            log_factor=mean,
            sd=math.sqrt(variance),
        )
        for ((victim, device_type, mode), neighbour), (mean, variance) in largest
    )
