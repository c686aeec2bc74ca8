"""The one writer of what answers are made from: it changes the model, the profiles or the log, then publishes a state.

Law 1: whatever was acknowledged is on disk, and a restart forgets nothing.
Law 2: one change at a time; each publishes a new `ServedState` as a whole, and no reader waits for it.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from interfere.records import JobProfile, ObservationAnswer, ObservationLog, Reported
from interfere.records.checks import Inspection
from interfere.serving.learning.ledger import ObservationLedger
from interfere.serving.metrics import Metrics
from interfere.serving.profiles import ProfileCatalogue
from interfere.serving.state import ServedModel, ServedState
from interfere.store.protocols import Store

_log = logging.getLogger(__name__)


class StateWriter:
    """Thread-safe: `state` may be read at any time."""

    def __init__(
        self, model: ServedModel, store: Store, metrics: Metrics, max_log_entries: int, *, learns_beside: bool
    ) -> None:
        """Learn the log, of which the newest `max_log_entries` are kept.

        `learns_beside`: learn a long log again in the background, while the previous model answers calls.
        """
        self._store, self._metrics, self._max_log_entries = store, metrics, max_log_entries
        self._learns_beside = learns_beside
        self._writing = threading.Lock()
        profiles = self._stored_catalogue(model)
        self._count_evictions_of(model)
        self._observed = self._learned_by(model, profiles)
        self._state = ServedState(model=model, profiles=profiles, learned=self._observed.published)
        metrics.set_model_version(self._state.version)

    @property
    def state(self) -> ServedState:
        """The model, the profiles and the learned state that answers are computed from now."""
        return self._state

    # --- the model --------------------------------------------------------------------------------------------------

    def use_model(self, model: ServedModel) -> None:
        """Serve another model from the next call on. It learns the observations again in the background, while calls go
        on."""
        known = self._state.profiles
        profiles = self._stored_catalogue(model)
        self._count_evictions_of(model)
        observed = self._learned_by(model, profiles)
        with self._writing:
            if self._state.profiles is not known:  # a profile was registered meanwhile
                learned_with, profiles = profiles, self._stored_catalogue(model)
                observed.use_profiles(profiles, changed=profiles.changes_since(learned_with))
            observed.catch_up()
            self._observed.close()
            self._observed = observed
            self._state = ServedState(model=model, profiles=profiles, learned=observed.published)
        self._metrics.set_model_version(self._state.version)

    def _stored_catalogue(self, model: ServedModel, before: ProfileCatalogue | None = None) -> ProfileCatalogue:
        """Return the catalogue of a model's own and the stored profiles. Profiles of `before` stay the same objects."""
        catalogue = model.catalogue(self._store.profiles, before)
        self._metrics.set_quarantined_profiles(len(catalogue.problems))
        for profile_id, problem in catalogue.problems.items():
            _log.warning("profile %s is set aside, nothing is predicted from it: %s", profile_id, problem)
        return catalogue

    def _count_evictions_of(self, model: ServedModel) -> None:
        """Count what the model's cache evicts."""
        model.encoded_jobs.on_eviction = partial(self._metrics.count_evictions, "encoded_job")

    def _learned_by(self, model: ServedModel, profiles: ProfileCatalogue) -> ObservationLedger:
        """Return the state that a model learns from the log."""
        store = self._store
        return ObservationLedger(
            model.untaught,
            store.observations,
            store.checkpoints,
            profiles,
            self._metrics,
            self._max_log_entries,
            writer=self._writing if self._learns_beside else None,
            on_replaced=self._show_learned,
        )

    def _show_learned(self) -> None:
        """Answer from what is learned now."""
        self._state = replace(self._state, learned=self._observed.published)

    # --- the log ----------------------------------------------------------------------------------------------------

    def observe(self, reported: Sequence[Reported]) -> tuple[ObservationAnswer, ...]:
        """An answer for each observation. All but rejected ones are stored before this returns."""
        with self._writing:
            observed = self._observed
            answers = observed.observe(reported)
            self._show_learned()
        if observed.state_is_due:
            observed.store_state()
            with self._writing:
                observed.prune()
                self._show_learned()
        return answers

    def log(self, at: int | None, limit: int) -> ObservationLog:
        """The newest entries of the log up to a point, and the online state at that point."""
        return self._observed.log(at, limit)

    def catch_up(self, last_sequence: int, profiles_digest: str, *, relearning: bool = False) -> None:
        """Learn the entries that another process wrote to the store, at least up to `last_sequence`.

        `relearning`: that process learns the log again; the present model answers until it has stored the result.
        """
        with self._writing:
            state = self._state
            if state.profiles.digest() != profiles_digest:
                profiles = self._stored_catalogue(state.model, state.profiles)
                changed = profiles.changes_since(state.profiles)
                self._observed.use_profiles(profiles, changed=changed, relearning=relearning)
                state = replace(state, profiles=profiles)
            learned = self._observed.published
            if learned.last_sequence < last_sequence or (learned.relearning and not relearning):
                self._observed.catch_up(relearning=relearning)
            self._state = replace(state, learned=self._observed.published)

    def store_state(self) -> None:
        """Store the online state, so that the next start is quick."""
        self._observed.store_state()

    @property
    def state_is_due(self) -> bool:
        """Whether so much was learned since the last stored state that a new one should be stored."""
        return self._observed.state_is_due

    def close(self) -> None:
        """Learn nothing again, and store the online state."""
        self._observed.close()
        self.store_state()

    # --- profiles ---------------------------------------------------------------------------------------------------

    def register(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store profiles, all or none; they are used from now on.

        Raises InvalidInputError for one that the model cannot be asked about.
        """
        check_encodable = self._state.model.check_encodable
        inspection = Inspection()
        for k, profile in enumerate(profiles):
            inspection.read(f"profiles[{k}]", partial(check_encodable, profile))
        inspection.done()
        with self._writing:
            ids = self._store.profiles.put(profiles)
            before = self._state.profiles
            catalogue = before.with_registered(dict(zip(ids, profiles, strict=True)))
            if superseded := [each for each in (*before.registered(), *ids) if not catalogue.knows(each)]:
                self._store.profiles.remove(superseded)
                self._metrics.count_evictions("profile_version", len(superseded))
            self._observed.use_profiles(catalogue, changed=profiles)
            self._state = replace(self._state, profiles=catalogue, learned=self._observed.published)
            return ids

    def remove_profiles(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove registered profiles, those set aside too; the ids that were there."""
        with self._writing:
            removed = self._store.profiles.remove(profile_ids)
            if removed:
                before = self._state.profiles
                profiles = self._stored_catalogue(self._state.model, before)
                changed = [before.get(profile_id) for profile_id in removed if before.knows(profile_id)]
                self._observed.use_profiles(profiles, changed=changed)
                self._state = replace(self._state, profiles=profiles, learned=self._observed.published)
            return removed
