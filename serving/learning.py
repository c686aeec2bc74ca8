"""Observations: learned, stored, then acknowledged; the online model is the fold of the log.

Law: what is known is the fold of the stored entries that no rollback took out, in their order, also after a write that
failed and after a restart. The fold is against the model and profiles of now: a new champion meets every observation
anew, and a better one is corrected less. Snapshots only shorten it.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from zipfile import BadZipFile

from interfere.errors import NotFoundError, UnavailableError
from interfere.predict.online import state as snapshot
from interfere.predict.residual import LearningResult, OnlineModel
from interfere.records import JobProfile, MemoryUsage, Observation, ObservationResult, Progress, Rollback
from interfere.store.protocol import Kept, ObservationBook, SnapshotBook, StoredSnapshot
from interfere.store.rows import kind_of, observation_text
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
# Entries between snapshots: 25,000 are folded in 2.5 s of one core; a snapshot of 10,000 jobs in a million different
# pairs, the largest there is, is written in 2 s.
SNAPSHOT_EVERY = 25_000
BATCH = 5_000  # entries folded with one question to the model inside
MOST_CORRECTIONS = 20


class ObservationLedger:
    """Not thread-safe: the caller holds one lock."""

    def __init__(
        self,
        fresh: Callable[[], OnlineModel],
        book: ObservationBook,
        snapshots: SnapshotBook,
        profiles: ProfileCatalogue,
        metrics: Metrics,
    ) -> None:
        """`fresh` makes a model that has learned nothing."""
        self._fresh, self._book, self._snapshots = fresh, book, snapshots
        self._profiles, self._metrics = profiles, metrics
        self._counts = book.counts()
        self.used_bytes = book.largest_uses()  # by workload and device type
        self._last = max((entry.sequence for entry in book.newest(1)), default=0)
        self.model, self._from = self._folded(self._last)
        self._alarms = self.model.alarm_count
        metrics.drifting(len(self.model.drifting_workloads()))

    @property
    def last(self) -> int:
        """The newest entry of the log; 0 without any."""
        return self._last

    # --- folding ----------------------------------------------------------------------------------------------------

    def _folded(self, upto: int) -> tuple[OnlineModel, int]:
        """The model after an entry of the log, and the entry of the snapshot that it started from."""
        gone = self._book.rollbacks(upto=upto)
        model, start = self._fresh(), 0
        for stored in self._snapshots.find(self._key(), upto=upto):
            # a rollback since then to an earlier entry makes the snapshot know too much
            if all(at <= stored.sequence or stored.sequence <= to for at, to in gone):
                try:
                    snapshot.restore_state(model, stored.content)
                except (ValueError, KeyError, IndexError, TypeError, OSError, BadZipFile) as error:
                    _log.warning("a snapshot cannot be read, the log is folded instead: %r", error)
                    model = self._fresh()
                    continue
                start = stored.sequence
                break
        batch: list[Progress] = []
        for entry in self._book.entries(after=start, upto=upto):
            if isinstance(entry.observation, Progress) and not _rolled_back(entry.sequence, gone):
                batch.append(entry.observation)
            if len(batch) >= BATCH:
                self._fold(model, batch)
                batch = []
        self._fold(model, batch)
        return model, start

    def _fold(self, model: OnlineModel, windows: Sequence[Progress]) -> None:
        model.prefetch(windows, self._profiles.of_workload)
        for window in windows:
            model.observe(window, self._profiles.of_workload)

    def _key(self) -> str:
        """What a snapshot depends on besides the log."""
        return f"{snapshot.FORMAT} {self._fresh().version} {self._profiles.digest()}"

    def facts_came(self, profiles: Sequence[JobProfile]) -> None:
        """What was learned of a job without facts is learned again against its facts."""
        cold = {(workload, device_type) for workload, device_type, _ in self.model.effects.unprofiled}
        if any((profile.workload, profile.device_type) in cold for profile in profiles):
            self.model, self._from = self._folded(self._last)

    def keep_snapshot(self) -> None:
        """Store the state of now; a full disk only costs time at the next start."""
        if self._last == self._from:
            return
        try:
            content = snapshot.dump_state(self.model)
            self._snapshots.put(StoredSnapshot(sequence=self._last, key=self._key(), content=content))
            self._from = self._last
        except UnavailableError:
            return

    # --- reporting --------------------------------------------------------------------------------------------------

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """Each answered by itself. All but rejected ones and duplicates are stored before this returns; rejected ones
        may be sent again once their reason is gone."""
        seen = self._book.find(one.observation_id for one in reported)
        kept: list[Kept] = []
        errors: list[float] = []
        answers = []
        self.model.set_savepoint()
        try:
            windows = [one for one in reported if isinstance(one, Progress) and one.observation_id not in seen]
            self.model.prefetch(windows, self._profiles.of_workload)
            for one in reported:
                answer, error = self._observe_one(one, seen)
                answers.append(answer)
                if not isinstance(one, Unreadable) and answer.result in _STORED:
                    kept.append(Kept(observation=one, result=answer.result, reason=answer.reason))
                    seen[one.observation_id] = one
                    errors.append(error)
            if kept:
                self._last = self._book.append(kept, time.time())
        except BaseException:
            self.model.restore_savepoint()  # forget what was folded in but not stored
            raise
        for one_kept in kept:
            kind = kind_of(one_kept.observation)
            self._counts[kind] = self._counts.get(kind, 0) + 1
            if isinstance(one_kept.observation, MemoryUsage):
                self._used(one_kept.observation)
        self._tell(answers, errors)
        if any(isinstance(one.observation, Rollback) for one in kept):
            self.model, self._from = self._folded(self._last)
            self.used_bytes = self._book.largest_uses()
        if self._last - self._from >= SNAPSHOT_EVERY:
            self.keep_snapshot()
        return tuple(answers)

    def _used(self, usage: MemoryUsage) -> None:
        key = usage.workload, usage.device_type
        self.used_bytes[key] = max(usage.bytes, self.used_bytes.get(key, 0.0))

    def _tell(self, answers: Sequence[ObservationAnswer], errors: Sequence[float]) -> None:
        for answer in answers:
            self._metrics.observed(answer.result)
        for error in errors:
            if not math.isnan(error):
                self._metrics.predicted(error)
        frozen = self.model.drifting_workloads()
        if (alarms := self.model.alarm_count) > self._alarms:
            _log.warning("drift alarm: nothing is learned until they settle of %s", ", ".join(frozen) or "all jobs")
            self._metrics.drift_alarm(alarms - self._alarms)
        self._alarms = alarms
        self._metrics.drifting(len(frozen))

    def _observe_one(self, one: Reported, seen: Mapping[str, Observation]) -> tuple[ObservationAnswer, float]:
        """The answer, and the relative error of the prediction that stood before it."""
        learned = LearningResult(ObservationResult.REJECTED)
        if isinstance(one, Unreadable):
            learned = LearningResult(ObservationResult.REJECTED, one.reason)
        elif one.observation_id in seen:
            if observation_text(seen[one.observation_id]) == observation_text(one):
                learned = LearningResult(ObservationResult.DUPLICATE, "this id was stored before; nothing changed")
            else:
                why = "this id was stored with other content; give every observation an id of its own"
                learned = LearningResult(ObservationResult.REJECTED, why)
        elif isinstance(one, Progress):
            learned = self.model.observe(one, self._profiles.of_workload)
        elif isinstance(one, Rollback) and one.to_sequence > self._last:
            why = f"the log ends at {self._last}: nothing comes after {one.to_sequence}"
            learned = LearningResult(ObservationResult.REJECTED, why)
        else:
            learned = LearningResult(ObservationResult.APPLIED)
        answer = ObservationAnswer(observation_id=one.observation_id, result=learned.result, reason=learned.reason)
        return answer, learned.error_ratio

    # --- telling ----------------------------------------------------------------------------------------------------

    def state(self) -> OnlineState:
        """Counts: stored observations and what they taught."""
        return _state(self.model, self._counts)

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """The newest entries up to a point, and what was known there. Raises NotFoundError past the end."""
        if at is not None and at > self._last:
            raise NotFoundError("no such entry", value=at, remedy=f"the log ends at {self._last}")
        gone = self._book.rollbacks(upto=at)
        entries = tuple(
            LogEntry(
                sequence=stored.sequence,
                observation=stored.observation,
                result=stored.result,
                reason=stored.reason,
                received_s=stored.received_s,
                rolled_back=_rolled_back(stored.sequence, gone),
            )
            for stored in self._book.newest(limit or 20, upto=at)
        )
        model, counts = self.model, self._counts
        if at is not None and at < self._last:
            (model, _), counts = self._folded(at), self._book.counts(upto=at)
        return ObservationLog(entries=entries, online=_state(model, counts), corrections=_corrections(model))


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
    """Pairs that are most unlike what their jobs are."""
    largest = sorted(model.effects.pairs.items(), key=lambda item: -abs(item[1][0]))[:MOST_CORRECTIONS]
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
