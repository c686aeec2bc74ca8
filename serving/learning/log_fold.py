"""The online model after any entry of the log: the fold of all earlier entries that were not rolled back.

`Relearning` folds the log again in the background and then replaces the present model, so that no call waits for a long
log.

Law: states in memory and in the store only shorten the fold. Where no such state is valid, the log is read from its
beginning, with the same result as long as no entry was forgotten. A state is used only where no rollback, and no
undoing of a rollback, changed an entry before it.
"""

import heapq
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from zipfile import BadZipFile

from interfere.errors import CancelledError, UnavailableError
from interfere.predict.online import state as online_state
from interfere.predict.online.belief_state import BeliefState
from interfere.predict.online.stand_in_profiles import ResolveElsewhere
from interfere.predict.residual import OnlineModel
from interfere.records import (
    Correction,
    JobProfile,
    Observation,
    OddDevice,
    OnlineState,
    Progress,
    ReporterState,
    ReporterWeight,
)
from interfere.serving.profiles import ProfileCatalogue
from interfere.store.observations import StoredCheckpoints, StoredObservations
from interfere.store.rows import RolledBackRange, StateCheckpoint
from interfere.time_budget import check_interruption, interruptible

MAX_CORRECTIONS = 20  # of one answer
EVERY = 200  # entries between two states; 200 windows are folded in .1 s, and a state of 1,000 jobs is copied in 1 ms
MAX_STATES = 64  # the last 12,800 entries; values that did not change between two states are shared by them


def online_summary(model: OnlineModel, counts: Mapping[str, int], *, relearning: bool = False) -> OnlineState:
    """Return counts of stored observations by kind, and of what the model learned from them."""
    reporters = tuple(
        ReporterState(
            reporter=name,
            windows=round(record.window_count),
            trust=record.trust,
            weight=model.state.reporter_weights.get(name, 1.0),
            factor=model.reporter_factor(name),
        )
        for name, record in sorted(model.state.reporters.items())
        if name
    )
    return OnlineState(
        **(model.summary() | {"observations": sum(counts.values())}),
        frozen=model.drifting_workloads(),
        outcomes=counts.get("outcome", 0),
        memory_usages=counts.get("memory_usage", 0),
        reporters=reporters,
        changed_domains=tuple(sorted("/".join(key) for key, domain in model.state.domains.items() if domain.epoch)),
        relearning=relearning,
        odd_devices=tuple(OddDevice(device=d, device_type=t, factor=f) for d, t, f in model.odd_devices()),
    )


def largest_corrections(model: OnlineModel) -> tuple[Correction, ...]:
    """Return the pairs whose own windows differ most from the model's prediction, each with the correction that the
    windows imply."""
    pairs = (
        (victim, neighbour, evidence)
        for victim, by_neighbour in model.state.pairs.items()
        for neighbour, evidence in by_neighbour.items()
    )
    largest = heapq.nlargest(MAX_CORRECTIONS, pairs, key=lambda item: abs(item[2].mean))
    return tuple(
        Correction(
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            log_factor=evidence.mean,
            sd=math.sqrt(evidence.variance),
        )
        for (victim, device_type, mode), neighbour, evidence in largest
    )


class RecentStates:
    """The newest learned states in memory, each with the number of the last log entry that the state includes.

    One writer adds states; any thread may look for a state.
    """

    def __init__(self) -> None:
        self._states: tuple[tuple[int, BeliefState], ...] = ()  # replaced as a whole, oldest first
        self._void: list[tuple[int, BeliefState]] = []  # forgotten, but not freed yet

    def add(self, sequence: int, state: BeliefState) -> None:
        """Keep a copy of the state after a log entry, unless a state of nearly the same entry is kept already."""
        if not self._states or sequence - self._states[-1][0] >= EVERY:
            self._states = (*self._states[-MAX_STATES + 1 :], (sequence, state.copy()))

    def find(self, up_to: int, rewrites: Sequence[tuple[int, int]]) -> tuple[int, BeliefState] | None:
        """Return (entry, state) of the newest valid state at or before a log entry; None where there is none.

        `rewrites`: (entry, last entry that stays valid) of each rollback and each undoing of a rollback, as the store
        lists them.
        """
        for sequence, state in reversed(self._states):
            if sequence <= up_to and _is_valid(sequence, rewrites):
                return sequence, state
        return None

    def forget_before(self, sequence: int) -> None:
        """Forget the states after earlier entries, because some entries that followed them are no longer in the log."""
        self._states = tuple(each for each in self._states if each[0] >= sequence)

    def clear(self) -> None:
        """Forget all states, because the log or the profiles they were learned from have changed. `release` frees their
        memory."""
        self._void = [*self._void, *self._states]
        self._states = ()

    def release(self, pause: Callable[[], None]) -> None:
        """Free the memory of forgotten states one after another.

        Freeing all at once takes up to a tenth of a second, in which no other thread runs.
        """
        while self._void:
            self._void.pop()
            pause()


_log = logging.getLogger(__name__)
BATCH = 5_000  # entries folded with one question to the model inside
CHECK_EVERY = 10  # windows: a millisecond of learning between two looks at whether somebody still waits for it

NewModel = Callable[[ResolveElsewhere], OnlineModel]
"""A model that has learned nothing, and that finds profiles on other device types so."""


class LogFold:
    """Computes the model after any entry of the log, with the present profiles. One writer changes it; any thread
    may ask `model_after`."""

    def __init__(
        self,
        new_model: NewModel,
        book: StoredObservations,
        checkpoints: StoredCheckpoints,
        profiles: ProfileCatalogue,
    ) -> None:
        self._new_model, self._book, self._checkpoints = new_model, book, checkpoints
        self.profiles = profiles
        self.recent = RecentStates()

    def resolve(self, workload: str, device_type: str) -> JobProfile | None:
        """Return the combined profile of a workload on a device type; None where there is none."""
        return self.profiles.of_workload(workload, device_type)

    def _of_any_device(self, workload: str) -> JobProfile | None:
        """Return the combined profile of a workload on the device type where it was profiled last; None where there is
        none.

        Models keep this method, so that they find profiles of a later catalogue too.
        """
        return self.profiles.of_any_device(workload)

    def _untaught(self) -> OnlineModel:
        return self._new_model(self._of_any_device)

    # --- folding ----------------------------------------------------------------------------------------------------

    def model_after(self, upto: int) -> tuple[OnlineModel, int]:
        """Return the model after a log entry, and the entry of the kept state from which learning began (0: the
        beginning)."""
        rollbacks, rewrites = self._book.rollbacks(up_to=upto), self._book.rewrites(up_to=upto)
        model, start = self._untaught(), 0
        if recent := self.recent.find(upto, rewrites):
            start, model.state = recent[0], recent[1].copy()
        if stored := self._stored_model(upto, rewrites, after=start):
            model, start = stored
        self._learn_span(model, start, upto, rollbacks)
        return model, start

    def entries_after_recent(self, upto: int) -> int:
        """Return how many entries `model_after` would learn from the newest state in memory."""
        recent = self.recent.find(upto, self._book.rewrites(up_to=upto))
        rollbacks = self._book.rollbacks(up_to=upto)
        return sum(last - after for after, last in valid_spans(recent[0] if recent else 0, upto, rollbacks))

    def extend(self, model: OnlineModel, after: int, upto: int) -> None:
        """Let the model learn the entries after `after` up to `upto`. None of these entries may be a rollback."""
        self._learn_span(model, after, upto, self._book.rollbacks(up_to=upto))

    def _learn_span(self, model: OnlineModel, start: int, upto: int, rollbacks: Sequence[RolledBackRange]) -> None:
        """Let the model learn the entries after `start` up to `upto`, except entries that were rolled back."""
        batch: list[Progress | ReporterWeight] = []
        for after, last in valid_spans(start, upto, rollbacks):
            for count, entry in enumerate(self._book.entries(after=after, up_to=last)):
                observation = entry.observation
                if isinstance(observation, Progress | ReporterWeight) and not is_rolled_back(
                    entry.sequence, observation, rollbacks
                ):
                    batch.append(observation)
                if count % (CHECK_EVERY * 4) == 0:
                    check_interruption()
                if len(batch) >= BATCH:
                    self.learn(model, batch)
                    batch = []
        self.learn(model, batch)

    def _stored_model(
        self, upto: int, rewrites: Sequence[tuple[int, int]], *, after: int
    ) -> tuple[OnlineModel, int] | None:
        """Return the model of the newest valid stored state up to an entry, and that state's entry.

        None where there is no such state.
        """
        for stored in self._checkpoints.find(self._key(), up_to=upto):
            if stored.sequence <= after:
                return None
            if not _is_valid(stored.sequence, rewrites):
                continue
            model = self._untaught()
            try:
                facts = online_state.restore_state(model, stored.content)
            except (ValueError, KeyError, IndexError, TypeError, OSError, BadZipFile) as error:
                _log.warning("a stored state cannot be read, the log is folded instead: %r", error)
                continue
            if facts == _facts(model, self.profiles):
                return model, stored.sequence
        return None

    def learn(self, model: OnlineModel, observations: Sequence[Progress | ReporterWeight]) -> None:
        """Let the model learn entries of the log, in their order."""
        check_interruption()
        model.prefetch([each for each in observations if isinstance(each, Progress)], self.resolve)
        for count, observation in enumerate(observations):
            if count % CHECK_EVERY == 0:
                check_interruption()
            if isinstance(observation, Progress):
                model.observe(observation, self.resolve)
            else:
                model.weigh_reporter(observation)

    # --- stored states ----------------------------------------------------------------------------------------------

    def claim(self) -> AbstractContextManager[None]:
        """Wait while another server learns the log with the same model, and let others wait during the block."""
        return self._checkpoints.claim(self._untaught().version)

    def _key(self) -> str:
        """Return the key of a stored state: the format and the model version on which the state depends."""
        return f"{online_state.FORMAT} {self._untaught().version}"

    def store(self, model: OnlineModel, sequence: int, profiles: ProfileCatalogue) -> None:
        """Store a state that was learned up to a log entry with these profiles. Raises UnavailableError where the store
        cannot be written."""
        content = online_state.dump_state(model, facts=_facts(model, profiles))
        self._checkpoints.put(StateCheckpoint(sequence=sequence, key=self._key(), content=content))


def _facts(model: OnlineModel, profiles: ProfileCatalogue) -> str:
    """Return a digest of the profiles of all workloads that a model has learned of. Other profiles do not change it."""
    return profiles.digest_of(model.state.workloads())


def _is_valid(sequence: int, rewrites: Sequence[tuple[int, int]]) -> bool:
    """Whether a state is still valid: no later rollback, and no undoing of one, changed the entries that it learned."""
    return not any(to < sequence < at for at, to in rewrites)


def valid_spans(after: int, upto: int, rollbacks: Sequence[RolledBackRange]) -> Iterator[tuple[int, int]]:
    """Return the spans (above, up to) of the log that no rollback of all reporters has made invalid.

    The entries outside these spans need not be read. A rollback of a single reporter makes no span invalid: its entries
    are read, and skipped by their reporter.
    """
    of_all = [rollback for rollback in rollbacks if not rollback.reporter]
    for rollback in sorted(of_all, key=lambda rollback: rollback.last_valid):
        if rollback.last_valid > after:
            yield after, min(rollback.last_valid, upto)
        after = max(after, rollback.sequence - 1)
    if after < upto:
        yield after, upto


def is_rolled_back(sequence: int, observation: Observation, rollbacks: Sequence[RolledBackRange]) -> bool:
    """Return whether one of the rollbacks excludes this entry from learning."""
    return any(rollback.covers(sequence, observation) for rollback in rollbacks)


# --- learning again in the background ---------------------------------------------------------------------------------

FEW_ENTRIES = 200  # learned in 20 ms while the lock is held
PAUSE_S = 1e-4  # after every millisecond of learning: threads with answers to make get the interpreter
SWITCH_S = 1e-3  # that other threads wait for the interpreter meanwhile; usually Python lets them wait 5 ms
RETRY_S = 5.0  # where the store could not be read

Replace = Callable[[OnlineModel, int], None]
"""Takes (the model that learned the whole log, the entry of its newest stored state)."""


class Relearning:
    """A thread that learns the log again while that is due. Its methods must be called with the lock held.

    Law 1: the lock of the writer is held only to learn the last few entries and to replace the model.
    Law 2: where something changes again meanwhile, the log is learned again from its beginning.
    """

    def __init__(
        self, fold: LogFold, writer: AbstractContextManager[bool], newest: Callable[[], int], replace: Replace
    ) -> None:
        """Prepare the thread. `writer` is the lock of all changes to the log or the profiles.

        `newest` returns the log's last entry. `replace` is called with the lock held.
        """
        self._fold, self._writer, self._newest, self._replace = fold, writer, newest, replace
        self._generation = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def due(self) -> bool:
        """Return whether the observation log is being learned again in the background."""
        return self._thread is not None

    def begin(self) -> None:
        """Start to learn the log again in the background, or start anew where that is already under way."""
        self._generation += 1
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="relearning", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Give up. May be called twice."""
        self._closed = True
        self._generation += 1

    def _run(self) -> None:
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            self._learn_until_current()
        finally:
            sys.setswitchinterval(usual_s)

    def _learn_until_current(self) -> None:
        while not self._closed:
            generation = self._generation
            try:
                with interruptible(lambda: self._give_way(generation)):  # noqa: B023 - used in this round alone
                    model, stored, last = self._learn(generation)
                with self._writer:
                    if generation != self._generation:
                        continue
                    self._fold.extend(model, last, self._newest())
                    self._thread = None
                    self._replace(model, stored)
                    return
            except CancelledError:
                continue
            except Exception:
                if self._closed:  # and so is the store
                    return
                _log.exception("the log cannot be learned again; the next try follows in %g s", RETRY_S)
                time.sleep(RETRY_S)

    def _learn(self, generation: int) -> tuple[OnlineModel, int, int]:
        """Return a model that learned all but the last few entries, the entry of its newest checkpoint, and its last
        entry."""
        self._fold.recent.release(check_interruption)
        with self._fold.claim():  # of several servers one learns, and the others find what it has stored
            begin_s, last, profiles = time.monotonic(), self._newest_entry(generation), self._fold.profiles
            model, stored = self._fold.model_after(last)
            while (newest := self._newest_entry(generation)) - last > FEW_ENTRIES:
                self._fold.extend(model, last, newest)
                last = newest
            check_interruption()
            with suppress(UnavailableError):  # on a full disk only workers and the next start take longer
                self._fold.store(model, last, profiles)
                stored = last
        _log.info("the log was learned again beside the present model: %.1f s", time.monotonic() - begin_s)
        return model, stored, last

    def _newest_entry(self, generation: int) -> int:
        """Return the number of the last log entry. Raises CancelledError where learning must start anew."""
        with self._writer:
            if generation != self._generation:
                raise CancelledError("the log is to be learned anew")
            return self._newest()

    def _give_way(self, generation: int) -> None:
        """Pause, so that other threads run. Raises CancelledError where learning must start anew."""
        if generation != self._generation:
            raise CancelledError("the log is to be learned anew")
        time.sleep(PAUSE_S)
