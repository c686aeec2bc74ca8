"""Changes the model of a running server: serves published models, goes back to earlier models, pins a model.

Law 1: a model that must not be served changes nothing: it is refused with one log line, and the present model goes on.
Every new model must answer the golden requests of its folder, predict known jobs, and answer recent calls before it is
served; then it is on trial. Law 2: calls never wait for a change of models. A new model is copied, checked, and taught
the observations while the present model answers, and then replaces the present model as a whole; with a canary it
first answers for the scopes of the canary alone, until its trial is over. A thread looks for newly published models
every few seconds, and at once on request (SIGHUP). The same thread ends the trial of a model that must not stay.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path

from interfere.errors import InterfereError, ModelError, NotFoundError
from interfere.predict.manifest import published_version
from interfere.records import ModelChange, ServedModels, ServedModelSummary
from interfere.serving.metrics import Metrics
from interfere.serving.models.archive import ModelArchive, StartedTrial
from interfere.serving.models.trial import (
    TRIAL_ENTRIES,
    Comparison,
    Promises,
    RecentCalls,
    Trial,
    broken,
    compare,
    probe,
)
from interfere.serving.service import PolicyCore
from interfere.serving.state import ServedModel, load_served_model
from interfere.serving.workers.pool import Knowing

_log = logging.getLogger(__name__)
MAX_LEARNED_HERE = 5_000  # entries of the log: half a second of this process; a longer log is learned by another one
Signature = tuple[tuple[str, int, int, int], ...]
"""Name, inode, time of modification and size of every file: they differ between any two publications, and change until
the last file of a folder that is copied has arrived."""


class ModelHost:
    """Decides which model a server serves. Thread-safe; one change at a time."""

    def __init__(
        self,
        core: PolicyCore,
        archive: ModelArchive,
        watched: Path,
        metrics: Metrics,
        *,
        learn_beside: Callable[[Path], None] = lambda _: None,
        accepted: Collection[str] = (),
        canary: Collection[str] = (),
    ) -> None:
        """Serve models. `watched`: the folder into which training publishes. `learn_beside`: lets another process learn
        the log with the model of a folder. `accepted`: digests of the models that may be served; empty: all. `canary`:
        scopes that a newly published model decides for until its trial is over; empty: it is taken for all at once."""
        self._core, self._archive, self._watched, self._metrics = core, archive, watched, metrics
        self._learn_beside, self._accepted, self._canary = learn_beside, accepted, frozenset(canary)
        self._changing = threading.Lock()
        self.calls = RecentCalls()  # a new model answers them before it is taken
        self._trial: Trial | None = None
        self._replica: PolicyCore | None = None  # of the model that the canary's scopes try
        self._refused = archive.state.refused
        self._seen: Signature | None = None
        before, version = archive.state.served[-1:], core.state.version
        archive.serving(version, pinned=archive.state.pinned)
        self._resume_trial(before[0] if before else version)

    # --- which model answers ----------------------------------------------------------------------------------------

    def core_of(self, scope: str) -> PolicyCore:
        """Return the core that decides for a scope: that of the model on trial for a scope of the canary."""
        replica = self._replica
        if replica is None or (scope or "default") not in self._canary:
            return self._core
        replica.follow(self._core)
        return replica

    def knowing(self, core: PolicyCore) -> Knowing:
        """Return the state that a worker must have to compute an answer of a core."""
        replica, state = self._replica, core.state
        versions = {self._core.state.version, replica.state.version if replica else state.version}
        return Knowing(
            model_folder=state.model.folder,
            model_version=state.version,
            model_beside=next(iter(versions - {state.version}), ""),
            last_sequence=state.learned.last_sequence,
            profiles_digest=state.profiles.digest(),
            relearning=state.learned.relearning,
            reporters=core.decisions.reporters(),
        )

    def models(self) -> ServedModels:
        """Return the models that can be loaded, why the newest publication was refused, if it was, and the trial."""
        served = self._core.state.version
        models = []
        for version in self._archive.versions():
            kind, created_at = self._archive.description(version)
            models.append(
                ServedModelSummary(
                    version=version,
                    model=kind,
                    created_at=created_at,
                    served=version == served,
                    taken_s=self._archive.state.taken_s.get(version, 0.0),
                )
            )
        return ServedModels(
            models=tuple(models),
            pinned=self._archive.state.pinned,
            watched_folder=str(self._watched),
            refused=self._refused,
            trial=self._trial_text(),
        )

    def _trial_text(self) -> str:
        if (trial := self._trial) is None:
            return ""
        started = trial.started
        where = "" if started.everywhere else f", for the scopes {', '.join(sorted(self._canary))} alone"
        return f"{started.new} beside {started.before}{where}: {trial.text()}"

    # --- changes ----------------------------------------------------------------------------------------------------

    def take_published(self, *, shadow: bool = True) -> ModelChange:
        """Serve the published model for all scopes, even where the present one is pinned.

        Without `shadow` it is not compared with the present model on calls. Raises ModelError where it must not be
        served.
        """
        with self._changing:
            return self._take_published(shadow=shadow)

    def take_newly_published(self, *, again: bool = False) -> None:
        """Serve the model that was published since the last call, unless the present model is pinned.

        With `again`, a model that was refused before is tried again.
        """
        with self._changing:
            signature, published = signature_of(self._watched), published_version(self._watched)
            if signature is None or (signature == self._seen and not again):
                return
            first, is_new, self._seen = self._seen is None, signature != self._seen, signature
            if published == self._core.state.version:
                self._refused = ""
                return
            if first and not again and self._archive.state.refused.startswith(f"{published}: "):
                return  # its trial refused it before this start
            if self._trial and self._trial.started.new == published and not again:
                return  # it is on trial
            if self._archive.state.pinned:
                if is_new:
                    _log.warning("a published model is not taken: %s is pinned", self._core.state.version)
                return
            try:
                self._take_published(canary=bool(self._canary))
            except InterfereError:
                return  # it is logged, and `list` tells it

    def load(self, version: str) -> ModelChange:
        """Serve a model of the archive and pin it. Raises NotFoundError for an unknown version, ModelError for a
        broken one."""
        with self._changing:
            change = self._serve(self._replica_of(self._checked_of_archive(version)))
            self._archive.serving(version, pinned=True)
            return change

    def rollback(self) -> ModelChange:
        """Serve the model that was served before this one, and pin it; each rollback goes one version further back.

        Raises NotFoundError where there was none, ModelError for a broken one.
        """
        with self._changing:
            previous = self._archive.previous()
            if not previous:
                raise NotFoundError("no other model was served before", remedy="interfere models list")
            change = self._serve(self._replica_of(self._checked_of_archive(previous)))
            self._archive.back_at(previous)
            return change

    def pin(self, *, release: bool) -> bool:
        """Pin the present model, so that publications do not replace it, or release it. Returns whether it is pinned
        now."""
        with self._changing:
            self._archive.pin(pinned=not release)
            if release:
                self._seen = None  # what was published meanwhile is taken at the next look
                self._archive.trying(self._archive.state.trial, refused="")
            return not release

    def _take_published(self, *, shadow: bool = True, canary: bool = False) -> ModelChange:
        scratch: Path | None = None
        try:
            if not (self._watched / "manifest.json").is_file():
                raise ModelError("no model is published", value=self._watched, remedy="interfere train")
            scratch = self._archive.copy(self._watched)
            version = self._checked(scratch).predictor.version
            is_known = version in self._archive.versions()
            model = load_served_model(self._archive.keep(scratch, version), self._accepted)
            replica = self._replica_of(model)
            try:
                trial = self._new_trial(replica, shadow=shadow, everywhere=not canary)
            except InterfereError:
                if not is_known:
                    self._archive.discard(version)
                raise
            if canary:
                present = self._core.state.version
                change = ModelChange(version=present, previous_version=present)
                self._begin_trial(trial)
                self._replica = replica
                _log.info("model %s decides for %s now, %s for all others", version, sorted(self._canary), present)
            else:
                change = self._serve(replica, trial)
                self._archive.serving(version, pinned=False)
        except InterfereError as error:
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
            self._refused = f"{published_version(self._watched) or 'unknown'}: {' '.join(str(error).split())}"
            self._tell_refusal("the published model", self._refused)
            raise
        self._refused = ""
        return change

    def _checked_of_archive(self, version: str) -> ServedModel:
        """Load a kept model and probe it. Raises NotFoundError for an unknown version, ModelError for a broken one."""
        folder = self._archive.find(version)
        try:
            return self._checked(folder)
        except InterfereError as error:
            self._tell_refusal(f"model {version}", error.one_line)
            raise

    def _tell_refusal(self, which: str, why: str) -> None:
        self._metrics.add("interfere_model_changes", 1, "refused")
        _log.error("%s is refused, %s goes on: %s", which, self._core.state.version, why)

    def _checked(self, folder: Path) -> ServedModel:
        """Load the model of a folder and probe it. Raises ModelError where it must not be served."""
        model = load_served_model(folder, self._accepted)
        probe(model, self._core.state.profiles.registered().values())
        return model

    def _replica_of(self, model: ServedModel) -> PolicyCore:
        """Return a core with a model that has learned the observations, a long log in another process."""
        if self._core.state.learned.last_sequence > MAX_LEARNED_HERE:
            self._learn_beside(model.folder)
        return self._core.replica(model)

    def _serve(self, replica: PolicyCore, trial: Trial | None = None) -> ModelChange:
        """Let a replica answer for all scopes, on trial from its first call on. Whatever was on trial is no longer."""
        before, version = self._core.state.version, replica.state.version
        if version != before:
            self._end_trial()
            if trial is not None:
                self._begin_trial(trial)
            self._core.take_over(replica)
            self._core.store_state()  # for workers and for the next start
            self._metrics.add("interfere_model_changes", 1, "taken")
            _log.info("model %s is served now, %s before", version, before)
        return ModelChange(version=version, previous_version=before)

    # --- trials -----------------------------------------------------------------------------------------------------

    def go_on_with_trial(self) -> None:
        """Look at the calls and observations since the last look. A model that must not stay goes; one that has shown
        enough stays."""
        with self._changing:
            trial, state = self._trial, self._core.state
            if trial is None:
                return
            compared = trial.compared
            why = trial.compare_calls(self.calls, state)
            why = why or trial.score_observed(lambda: self._core.log(None, TRIAL_ENTRIES).entries, state)
            if why:
                self._undo(trial.started, why)
            elif trial.is_over:
                _log.info("model %s stays: %s", trial.started.new, trial.text())
                self._finish(trial.started)
            elif trial.compared != compared:
                self._archive.trying(trial.started)

    def _new_trial(self, replica: PolicyCore, *, shadow: bool, everywhere: bool) -> Trial:
        """Return the trial of the model of a replica beside the present one, after it has answered recent calls.

        Raises ModelError where it does not answer them as promised.
        """
        present, new = self._core.state, replica.state
        promises = Promises.of(present.model.manifest, new.model.manifest)
        compared, (asked, last_call) = Comparison(), self.calls.asked(present)
        if shadow:
            compared = compare(present.predictor, new.predictor, asked)
            if why := compared.broken_promise(promises):
                raise broken(why)
            _log.info("model %s, %s", new.version, compared.text())
        started = StartedTrial(
            before=present.version,
            new=new.version,
            after_sequence=present.learned.last_sequence,
            everywhere=everywhere,
            compares_calls=shadow,
            compared=asdict(compared),
        )
        return Trial(
            started, present.predictor, new.predictor, promises=promises if shadow else None, last_call=last_call
        )

    def _resume_trial(self, served_before: str) -> None:
        """Go on with the trial that was under way when the server ended, or try the model that was published since."""
        state = self._core.state
        started = self._archive.state.trial
        if started is None or state.version != (started.new if started.everywhere else started.before):
            started = None
            if served_before != state.version and not self._archive.state.pinned:
                last = state.learned.last_sequence
                started = StartedTrial(before=served_before, new=state.version, after_sequence=last)
        if started is None:
            self._archive.trying(None)
            return
        try:
            before, new = (self._loaded(version) for version in (started.before, started.new))
            both = (self._core.learned_at(model, started.after_sequence) for model in (before, new))
            promises = Promises.of(before.manifest, new.manifest) if started.compares_calls else None
            trial = Trial(started, *both, promises=promises)
            if not started.everywhere:
                self._replica = self._replica_of(new)
        except InterfereError as error:
            _log.warning("the trial of model %s cannot go on: %s", started.new, error.one_line)
            started = None
        else:
            self._trial = trial
        self._archive.trying(started)

    def _loaded(self, version: str) -> ServedModel:
        """Return the served model, or load another one of the archive."""
        served = self._core.state.model
        return served if version == served.predictor.version else self._checked(self._archive.find(version))

    def _finish(self, started: StartedTrial) -> None:
        """End the trial of a model that has passed it. A canary's model is then served to all scopes."""
        replica = self._replica
        self._end_trial()
        if replica is not None:
            replica.follow(self._core)
            self._serve(replica)
            self._archive.serving(started.new, pinned=False)

    def _undo(self, started: StartedTrial, why: str) -> None:
        """Let a model that must not stay go: go back to the model before it, or end the canary."""
        if started.everywhere:
            try:
                self._serve(self._replica_of(self._checked_of_archive(started.before)))
            except InterfereError as error:
                self._end_trial()
                _log.error("model %s cannot be taken back: %s", started.new, error.one_line)
                return
            self._archive.back_at(started.before)
        self._end_trial()
        self._refused = f"{started.new}: rolled back, {why}"
        self._archive.trying(None, refused=self._refused)
        _log.error("model %s is rolled back to %s: %s", started.new, started.before, why)
        self._metrics.add("interfere_model_changes", 1, "rolled_back")

    def _begin_trial(self, trial: Trial) -> None:
        self._trial = trial
        self._archive.trying(trial.started, refused="")

    def _end_trial(self) -> None:
        self._trial = self._replica = None
        self._archive.trying(None)


def signature_of(folder: Path) -> Signature | None:
    """Return a signature of the folder that changes with every publication; None where nothing is published."""
    try:
        files = [(entry.name, entry.stat()) for entry in os.scandir(folder) if entry.is_file()]
    except OSError:  # also a file that went meanwhile: the next look sees the rest
        return None
    if not any(name == "manifest.json" for name, _ in files):
        return None
    return tuple(sorted((name, status.st_ino, status.st_mtime_ns, status.st_size) for name, status in files))


class ModelWatch:
    """A thread that looks for newly published models every few seconds, until it is closed."""

    def __init__(self, host: ModelHost, every_s: float) -> None:
        self._host, self._every_s = host, every_s
        self._asked, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._watch, name="model-watch", daemon=True)
        self._thread.start()

    def look_now(self) -> None:
        """Look for a published model at once, even for one that was refused before. Safe in a signal handler."""
        self._asked.set()

    def close(self) -> None:
        """End the thread without waiting for a change of models that is under way; that change ends with the
        process."""
        self._closed = True
        self._asked.set()
        self._thread.join(timeout=0.2)

    def _watch(self) -> None:
        while True:
            asked = self._asked.wait(self._every_s)
            self._asked.clear()
            if self._closed:
                return
            try:
                self._host.take_newly_published(again=asked)
                self._host.go_on_with_trial()
            except Exception:  # the watch goes on, whatever one look meets
                _log.exception("the published model could not be looked at")
