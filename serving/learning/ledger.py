"""The observation log and the online model: observations are learned, stored, published, then acknowledged.

Law: the online model is the fold of all stored entries that were not rolled back, in their order, also after a failed
write and after a restart.

The fold uses the current model and profiles: a new champion learns from every observation again, and needs fewer
corrections if it predicts better. Stored states only shorten the fold. Readers use `published`, an immutable state that
one writer replaces. After a rollback far back, `Relearning` learns the log again in the background; until then,
`published` is the earlier model, marked as outdated.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from interfere.errors import ConflictError, NotFoundError, UnavailableError
from interfere.predict.feasibility import impossible_usage
from interfere.predict.online.window_learning import LearningResult
from interfere.predict.residual import OnlineModel
from interfere.records import (
    JobProfile,
    MemoryUsage,
    Observation,
    ObservationAnswer,
    ObservationLog,
    ObservationResult,
    OnlineState,
    Progress,
    Reported,
    ReporterWeight,
    Rollback,
    Unreadable,
)
from interfere.records.documents import to_json
from interfere.records.observations import observation_kind
from interfere.serving.learning.log_fold import (
    FEW_ENTRIES,
    LogFold,
    NewModel,
    Relearning,
    is_rolled_back,
    largest_corrections,
    online_summary,
)
from interfere.serving.metrics import Metrics
from interfere.serving.profiles import ProfileCatalogue
from interfere.store.observations import StoredCheckpoints, StoredObservations
from interfere.store.rows import NewObservation

_log = logging.getLogger(__name__)
_STORED = (ObservationResult.APPLIED, ObservationResult.PENDING_SOLO, ObservationResult.QUARANTINED)
# Entries between stored states: 10,000 are folded in a second of one core; the state of 10,000 jobs in a million
# different pairs, the largest possible, is written in 2 s, while other calls go on.
SNAPSHOT_EVERY = 10_000
RELEARNING = "the log is learned again beside the present model, which answers until then: online.relearning tells"
MAX_TRIES = 10  # of a report that another server stores at the same moment
MAX_ENTRIES = 10_000_000  # of the log: 4 GB; beyond, the oldest are forgotten, and a new model learns from the others


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedState:
    """The state learned from the log up to one of its entries. It is immutable, so that any thread may read it."""

    model: OnlineModel
    last_sequence: int  # of the log's newest entry; 0 without any
    counts: Mapping[str, int]  # entries by kind
    used_bytes: Mapping[tuple[str, str], float]  # largest measured memory by (workload, device type)
    profiles: ProfileCatalogue  # that the model learned with
    relearning: bool = False  # the log is learned again beside: a rollback or a profile is not in the model yet

    def summary(self) -> OnlineState:
        """Return counts of stored observations, and of what the model learned from them."""
        return online_summary(self.model, self.counts, relearning=self.relearning)


class ObservationLedger:
    """The log of observations and the model that learned from it.

    Not thread-safe: one writer at a time reports and registers. `published` and `log` are for any thread.
    """

    def __init__(
        self,
        new_model: NewModel,
        book: StoredObservations,
        checkpoints: StoredCheckpoints,
        profiles: ProfileCatalogue,
        metrics: Metrics,
        max_entries: int = MAX_ENTRIES,
        *,
        writer: AbstractContextManager[bool] | None = None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep at most `max_entries` of the log. `new_model` makes a model that has learned nothing.

        `writer` is the lock that every caller except a reader holds. With it, a long log is learned again in the
        background, and `on_replaced` is called under the lock when the result is published. Without it, the callers
        wait.
        """
        self._max_entries = max_entries
        self._book, self._metrics = book, metrics
        self._fold = LogFold(new_model, book, checkpoints, profiles)
        self._relearning = writer and Relearning(self._fold, writer, lambda: self._last_sequence, self._replace_model)
        self._on_replaced = on_replaced
        self._storing, self._times_learned_again = threading.Lock(), 0
        self._is_outdated = False  # by what another process wrote, which learns the log again just now
        self._first_sequence, self._last_sequence = book.bounds()
        self._counts = book.counts(up_to=self._last_sequence)
        self._used_bytes = book.largest_memory_usages()
        self._model, self._state_sequence = self._fold.model_after(self._last_sequence)
        self._alarms = self._model.alarm_count
        metrics.set("interfere_drifting_workloads", len(self._model.drifting_workloads()))
        self._publish()

    @property
    def _is_relearning(self) -> bool:
        """Whether the present model does not match the log, and will be replaced by one that does."""
        return self._is_outdated or bool(self._relearning and self._relearning.due)

    # --- learning again ---------------------------------------------------------------------------------------------

    def catch_up(self, *, relearning: bool = False) -> None:
        """Learn the entries that other processes appended to the log since the last call.

        `relearning`: another process learns the log again and will store the result; the present model waits for it.
        """
        after, (first, newest) = self._last_sequence, self._book.bounds()
        entries = list(self._book.entries(after=after, up_to=newest)) if newest > after else []
        if not entries and not self._is_outdated:
            return
        if entries and entries[0].sequence > after + 1:
            self._fold.recent.clear()  # what came after the forgotten entries is missing
            self._is_outdated = True
        self._is_outdated = self._is_outdated or any(isinstance(entry.observation, Rollback) for entry in entries)
        if not self._is_outdated:
            learnable = [e.observation for e in entries if isinstance(e.observation, Progress | ReporterWeight)]
            self._fold.learn(self._model, learnable)
        self._last_sequence = newest
        if self._is_outdated or first != self._first_sequence:  # else no entry that was counted is gone
            self._first_sequence = first
            self._counts, self._used_bytes = self._book.counts(up_to=newest), self._book.largest_memory_usages()
        else:
            self._count(entry.observation for entry in entries)
        if self._is_outdated and not relearning:
            self._learn_again()
        self._publish()

    def use_profiles(
        self, profiles: ProfileCatalogue, *, changed: Sequence[JobProfile], relearning: bool = False
    ) -> None:
        """Use another catalogue of profiles, and learn again the observations of jobs that this catalogue profiles for
        the first time.

        `changed`: the profiles in which the new and the old catalogue differ. `relearning`: another process learns the
        log again, as in `catch_up`.
        """
        before, self._fold.profiles = self._fold.profiles, profiles
        state = self._model.state
        without_own = {key[0] for key in (*state.unprofiled, *state.with_stand_in, *state.pending)}
        removed = any(before.is_newest(profile) and not profiles.knows(profile.profile_id) for profile in changed)
        is_void = removed or any(profile.workload in without_own for profile in changed)
        if is_void:
            self._fold.recent.clear()
        if relearning and is_void:
            self._is_outdated = True
        elif is_void or (self._is_relearning and not relearning):
            self._learn_again()
        self._publish()

    def _learn_again(self) -> None:
        """Learn the log again: immediately if that takes milliseconds, else in the background while the present model
        answers."""
        self._times_learned_again += 1
        self._is_outdated = False
        if self._relearning and (
            self._relearning.due or self._fold.entries_after_recent(self._last_sequence) > FEW_ENTRIES
        ):
            self._relearning.begin()
        else:
            self._fold.recent.release(lambda: None)
            self._model, self._state_sequence = self._fold.model_after(self._last_sequence)

    def _replace_model(self, model: OnlineModel, state_sequence: int) -> None:
        """Take the model that learned the log again, and publish it."""
        self._model, self._state_sequence = model, state_sequence
        self._publish()
        self._on_replaced()

    def _publish(self) -> None:
        """Replace `published` by a copy of the present model and counts."""
        self.published = LearnedState(
            model=self._model.snapshot(self._fold.profiles.of_any_device),
            last_sequence=self._last_sequence,
            counts=dict(self._counts),
            used_bytes=dict(self._used_bytes),
            profiles=self._fold.profiles,
            relearning=self._is_relearning,
        )
        if not self.published.relearning:
            self._fold.recent.add(self._last_sequence, self._model.state)

    def report_to(self, metrics: Metrics, on_replaced: Callable[[], None]) -> None:
        """Count in these metrics from now on, and call `on_replaced` as the constructor says."""
        self._metrics, self._on_replaced = metrics, on_replaced
        metrics.set("interfere_drifting_workloads", len(self._model.drifting_workloads()))

    def close(self) -> None:
        """Stop the thread that learns the log again."""
        if self._relearning:
            self._relearning.close()

    # --- stored states ----------------------------------------------------------------------------------------------

    def store_state(self) -> None:
        """Store the published state as a checkpoint, while the writer goes on. If the disk is full, only the next
        start takes longer."""
        learned = self.published
        if learned.relearning or learned.last_sequence == self._state_sequence:
            return
        if not self._storing.acquire(blocking=False):
            return  # another call stores a state that is about as new
        times_learned_again = self._times_learned_again
        try:
            with contextlib.suppress(UnavailableError):
                self._fold.store(learned.model, learned.last_sequence, learned.profiles)
                if times_learned_again == self._times_learned_again:
                    self._state_sequence = learned.last_sequence
        finally:
            self._storing.release()

    @property
    def state_is_due(self) -> bool:
        """Whether so much was learned since the last stored state that a new one should be stored."""
        return self.published.last_sequence - self._state_sequence >= SNAPSHOT_EVERY

    # --- reporting --------------------------------------------------------------------------------------------------

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """Learn and store observations, and return an answer for each.

        All observations except rejected ones and duplicates are stored before this method returns. A rejected
        observation may be sent again once the reason for its rejection is gone.
        """
        for _ in range(MAX_TRIES):
            with contextlib.suppress(ConflictError):  # another server has just stored one of the ids
                return self._observe(reported)
            self.catch_up()
        raise UnavailableError("other servers store the same observations all the time", remedy="retry")

    def _observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        known = self._book.find(observation.observation_id for observation in reported)
        before = self._last_sequence
        to_store: list[NewObservation] = []
        errors: list[float] = []
        answers = []
        # 1. Learn each; the savepoint lets a failed write undo it.
        self._model.set_savepoint()
        try:
            windows = [each for each in reported if isinstance(each, Progress) and each.observation_id not in known]
            self._model.prefetch(windows, self._fold.resolve)
            for observation in reported:
                answer, error = self._observe_one(observation, known)
                answers.append(answer)
                if not isinstance(observation, Unreadable) and answer.result in _STORED:
                    to_store.append(NewObservation(observation=observation, result=answer.result, reason=answer.reason))
                    known[observation.observation_id] = observation
                    errors.append(error)
            # 2. Store them.
            last = self._book.append(to_store, time.time()) if to_store else before
        except BaseException:
            self._model.restore_savepoint()  # forget what was learned but not stored
            raise
        # 3. Count them. Where other servers stored some before these, all are learned again, in the log's order.
        if last > before + len(to_store):
            self._model.restore_savepoint()
            self.catch_up()
        else:
            self._last_sequence = last
            self._count(new.observation for new in to_store)
        self._record_metrics(answers, errors)
        # 4. A rollback lets the log be learned again.
        if any(isinstance(stored.observation, Rollback) for stored in to_store):
            self._learn_again()
            self._used_bytes = self._book.largest_memory_usages()
            answers = [
                replace(answer, reason=RELEARNING)
                if isinstance(observation, Rollback) and answer.result in _STORED and self._is_relearning
                else answer
                for observation, answer in zip(reported, answers, strict=True)
            ]
        self._publish()
        return tuple(answers)

    def _count(self, stored: Iterable[Observation]) -> None:
        """Count entries of the log, and update the measured memory use."""
        for observation in stored:
            kind = observation_kind(observation)
            self._counts[kind] = self._counts.get(kind, 0) + 1
            if isinstance(observation, MemoryUsage):
                key = observation.workload, observation.device_type
                self._used_bytes[key] = max(observation.bytes, self._used_bytes.get(key, 0.0))

    def prune(self) -> None:
        """Delete the oldest entries of a log that is too long. What the model learned from them stays in the stored
        state."""
        if self._is_relearning or sum(self._counts.values()) <= self._max_entries:
            return
        with contextlib.suppress(UnavailableError):
            pruned = self._book.prune(self._max_entries, up_to=self._state_sequence)
            self._counts = self._book.counts()
            first = next((entry.sequence for entry in self._book.entries()), self._last_sequence)
            self._fold.recent.forget_before(first - 1)  # what came after them is not complete
            self._publish()
            _log.info("the log is longer than %d entries: the oldest %d are forgotten", self._max_entries, pruned)

    def _record_metrics(self, answers: Sequence[ObservationAnswer], errors: Sequence[float]) -> None:
        for answer in answers:
            self._metrics.add("interfere_observations", 1, answer.result.value)
        for error in errors:
            if not math.isnan(error):
                self._metrics.observe("interfere_prediction_error_ratio", error)
        frozen = self._model.drifting_workloads()
        if (alarms := self._model.alarm_count) > self._alarms:
            _log.warning(
                "change found: the levels of jobs are learned anew; undecided still: %s", ", ".join(frozen) or "none"
            )
            self._metrics.add("interfere_drift_alarms", alarms - self._alarms)
        self._alarms = alarms
        self._metrics.set("interfere_drifting_workloads", len(frozen))

    def _observe_one(self, observation: Reported, known: Mapping[str, Observation]) -> tuple[ObservationAnswer, float]:
        """Learn one observation. Returns its answer, and the relative error of the prediction made before it was
        learned."""
        learned = LearningResult(ObservationResult.REJECTED)
        observation_id = observation.observation_id
        if isinstance(observation, Unreadable):
            learned = LearningResult(ObservationResult.REJECTED, observation.reason)
        elif observation_id in known:
            if to_json(known[observation_id]) == to_json(observation):
                learned = LearningResult(ObservationResult.DUPLICATE, "this id was stored before; nothing changed")
            else:
                reason = "this id was stored with other content; give every observation an id of its own"
                learned = LearningResult(ObservationResult.REJECTED, reason)
        elif isinstance(observation, Progress):
            learned = self._model.observe(observation, self._fold.resolve)
        elif reason := self._refusal(observation):
            learned = LearningResult(ObservationResult.REJECTED, reason)
        else:
            learned = LearningResult(ObservationResult.APPLIED)
            if isinstance(observation, ReporterWeight):
                self._model.weigh_reporter(observation)
        answer = ObservationAnswer(
            observation_id=observation_id, result=learned.result, reason=learned.reason, weight=learned.weight
        )
        return answer, learned.error_ratio

    def _refusal(self, observation: Observation) -> str:
        """Return the reason why a memory usage, a rollback or the undoing of a rollback is refused; "" where it is
        accepted."""
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

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """Return the newest entries up to a point (None: the end), and the state that was learned at this point.

        The state at a point before the end is computed again. Raises NotFoundError past the end of the log.
        """
        learned = self.published
        if at is not None and at > learned.last_sequence:
            raise NotFoundError("no such entry", value=at, remedy=f"the log ends at {learned.last_sequence}")
        rollbacks = self._book.rollbacks(up_to=at)
        entries = tuple(
            replace(entry, rolled_back=is_rolled_back(entry.sequence, entry.observation, rollbacks))
            for entry in self._book.newest(limit or 20, up_to=at)
        )
        model, online = learned.model, learned.summary()
        if at is not None and at < learned.last_sequence:
            model, _ = self._fold.model_after(at)
            online = online_summary(model, self._book.counts(up_to=at))
        return ObservationLog(entries=entries, online=online, corrections=largest_corrections(model))
