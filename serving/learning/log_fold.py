"""The online model after any entry of the log: the fold of the entries up to it that are not rolled back.

Law: states in memory and in the store only shorten the fold; where none of them is valid, the log is read from its
beginning, with the same result as long as no entry was forgotten.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from zipfile import BadZipFile

from interfere.predict.online import state as online_state
from interfere.predict.online.stand_in_profiles import ResolveElsewhere
from interfere.predict.residual import OnlineModel
from interfere.records import JobProfile, Observation, Progress, ReporterWeight
from interfere.store.protocols import CheckpointRepository, ObservationRepository, RolledBackRange, StateCheckpoint
from interfere.time_budget import check_interruption
from serving.learning.recent_states import RecentStates
from serving.profiles import ProfileCatalogue

_log = logging.getLogger(__name__)
BATCH = 5_000  # entries folded with one question to the model inside

NewModel = Callable[[ResolveElsewhere], OnlineModel]
"""A model that has learned nothing, and that finds profiles on other device types so."""


class LogFold:
    """Learns the log with the present catalogue of profiles. One writer changes it; any thread asks `model_after`."""

    def __init__(
        self,
        new_model: NewModel,
        book: ObservationRepository,
        checkpoints: CheckpointRepository,
        profiles: ProfileCatalogue,
    ) -> None:
        self._new_model, self._book, self._checkpoints = new_model, book, checkpoints
        self.profiles = profiles
        self.recent = RecentStates()

    def resolve(self, workload: str, device_type: str) -> JobProfile | None:
        """The newest profile of a workload on a device type."""
        return self.profiles.of_workload(workload, device_type)

    def _of_any_device(self, workload: str) -> JobProfile | None:
        """The newest profile of a workload on any device type, also after another catalogue is used."""
        return self.profiles.of_any_device(workload)

    def _untaught(self) -> OnlineModel:
        return self._new_model(self._of_any_device)

    # --- folding ----------------------------------------------------------------------------------------------------

    def model_after(self, upto: int) -> tuple[OnlineModel, int]:
        """The model after an entry of the log, and the entry of the stored or recent state that the fold began at."""
        rollbacks, rewrites = self._book.rollbacks(up_to=upto), self._book.rewrites(up_to=upto)
        model, start = self._untaught(), 0
        if recent := self.recent.find(upto, rewrites):
            start, model.state = recent[0], recent[1].copy()
        if stored := self._stored_model(upto, rewrites, after=start):
            model, start = stored
        batch: list[Progress | ReporterWeight] = []
        for after, last in valid_spans(start, upto, rollbacks):
            for entry in self._book.entries(after=after, up_to=last):
                observation = entry.observation
                if isinstance(observation, Progress | ReporterWeight) and not is_rolled_back(
                    entry.sequence, observation, rollbacks
                ):
                    batch.append(observation)
                if len(batch) >= BATCH:
                    self.learn(model, batch)
                    batch = []
        self.learn(model, batch)
        return model, start

    def _stored_model(
        self, upto: int, rewrites: Sequence[tuple[int, int]], *, after: int
    ) -> tuple[OnlineModel, int] | None:
        """The model of the newest valid stored state at most at an entry, and where it ends; None where none is."""
        for stored in self._checkpoints.find(self._key(), up_to=upto):
            if stored.sequence <= after:
                return None
            # a later rollback to an earlier entry, or its undoing, invalidates the state
            if any(stored.sequence < at and stored.sequence > to for at, to in rewrites):
                continue
            model = self._untaught()
            try:
                facts = online_state.restore_state(model, stored.content)
            except (ValueError, KeyError, IndexError, TypeError, OSError, BadZipFile) as error:
                _log.warning("a stored state cannot be read, the log is folded instead: %r", error)
                continue
            if facts == self._facts(model):
                return model, stored.sequence
        return None

    def learn(self, model: OnlineModel, observations: Sequence[Progress | ReporterWeight]) -> None:
        """Let the model learn entries of the log, in their order."""
        check_interruption()
        model.prefetch([each for each in observations if isinstance(each, Progress)], self.resolve)
        for observation in observations:
            if isinstance(observation, Progress):
                model.observe(observation, self.resolve)
            else:
                model.weigh_reporter(observation)

    # --- stored states ----------------------------------------------------------------------------------------------

    def _key(self) -> str:
        """What a stored state depends on besides the log and the profiles of its workloads."""
        return f"{online_state.FORMAT} {self._untaught().version}"

    def _facts(self, model: OnlineModel) -> str:
        """A digest of the profiles that a state was learned with: another workload's profile leaves it valid."""
        return self.profiles.digest_of(model.state.workloads())

    def store(self, model: OnlineModel, sequence: int) -> None:
        """Store the state after an entry of the log. Raises UnavailableError where the store takes nothing."""
        content = online_state.dump_state(model, facts=self._facts(model))
        self._checkpoints.put(StateCheckpoint(sequence=sequence, key=self._key(), content=content))


def valid_spans(after: int, upto: int, rollbacks: Sequence[RolledBackRange]) -> Iterator[tuple[int, int]]:
    """The parts (above, up to) of the log that no rollback of all reporters has made invalid.

    The others need not be read. What a rollback of one reporter made invalid is read, and left out by its reporter.
    """
    of_all = [rollback for rollback in rollbacks if not rollback.reporter]
    for rollback in sorted(of_all, key=lambda rollback: rollback.last_valid):
        if rollback.last_valid > after:
            yield after, min(rollback.last_valid, upto)
        after = max(after, rollback.sequence - 1)
    if after < upto:
        yield after, upto


def is_rolled_back(sequence: int, observation: Observation, rollbacks: Sequence[RolledBackRange]) -> bool:
    """Whether one of the rollbacks takes this entry out of what is learned."""
    return any(rollback.covers(sequence, observation) for rollback in rollbacks)
