"""Changes the model of a running server: serves published models, goes back to earlier models, pins a model.

Law 1: a model that must not be served changes nothing: it is refused with one log line, and the present model goes on.
Every new model must answer the golden requests of its folder, and predict known jobs, before it is served. Law 2: calls
never wait for a change of models. A new model is copied, checked, and taught the observations while the present model
answers, and then replaces the present model as a whole. A thread looks for newly published models every few seconds,
and at once on request (SIGHUP). The same thread goes back where the error that is observed jumps after a change.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from interfere.errors import InterfereError, ModelError, NotFoundError
from interfere.predict.manifest import published_version
from interfere.records import (
    JobProfile,
    MatrixBatch,
    ModelChange,
    PairBatch,
    ServedModels,
    ServedModelSummary,
)
from interfere.serving.metrics import Metrics
from interfere.serving.models.archive import ModelArchive
from interfere.serving.models.shadow import RecentCalls, Trial, check_shadow
from interfere.serving.service import PolicyCore
from interfere.serving.state import ServedModel, load_served_model
from interfere.sharing_modes import SharingMode

_log = logging.getLogger(__name__)
MAX_PROBES = 12  # jobs of a domain: 132 pairs take milliseconds
# Slowdowns beyond these say that a graph is broken, not that jobs interfere: measurements lie in [0.2, 100].
LEAST, MOST = 0.01, 1e4


def probe(model: ServedModel, registered: Iterable[JobProfile]) -> None:
    """Predict pairs and matrices in every domain of the model; this warms the model up too.

    Raises ModelError where a prediction is not finite, absurd, or outside its interval.
    """
    profiles = [*model.shipped.values(), *registered]
    for domain in model.manifest.domains:
        jobs = tuple(islice((job for job in profiles if job.device_type == domain.device_type), MAX_PROBES))
        if jobs:
            try:
                _probe_domain(model, jobs, domain.device_type, domain.mode)
            except InterfereError:
                raise
            except Exception as error:  # whatever a broken graph makes ONNX Runtime or numpy raise
                raise _refusal(f"{domain.device_type}/{domain.mode}: {error!r}"[:300]) from None


def _probe_domain(model: ServedModel, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> None:
    n = len(jobs)
    victim, neighbour = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    pairs = model.predictor.predict_pairs(
        PairBatch(
            jobs=tuple(jobs),
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            allow_extrapolation=True,
        )
    )
    matrix = model.predictor.predict_matrix(
        MatrixBatch(
            victims=tuple(jobs), neighbours=tuple(jobs), device_type=device_type, mode=mode, allow_extrapolation=True
        )
    )
    ordered = (pairs.lower <= pairs.median * (1 + 1e-9)) & (pairs.median <= pairs.upper * (1 + 1e-9))
    sensible = (pairs.median > LEAST) & (pairs.median < MOST) & ordered
    if not sensible.all():
        k = int(np.flatnonzero(~sensible)[0])
        names = f"{jobs[victim[k]].workload} beside {jobs[neighbour[k]].workload}"
        interval = f"{pairs.median[k]:.3g} in [{pairs.lower[k]:.3g}, {pairs.upper[k]:.3g}]"
        raise _refusal(f"{names} on {device_type}/{mode}: {interval}")
    for slowdown in (matrix.victim_slowdown, matrix.neighbour_slowdown):
        if not ((slowdown > LEAST) & (slowdown < MOST)).all():
            raise _refusal(f"a matrix on {device_type}/{mode}")


def _refusal(value: str) -> ModelError:
    return ModelError(
        "the model gives no sensible answer about known jobs", value=value, remedy="look at its card; train again"
    )


TRIAL_ENTRIES = 1_000  # newest of the log that a trial looks through for the observations that it counts
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
        calls: RecentCalls,
        learn_beside: Callable[[Path], None] = lambda _: None,
        accepted: Collection[str] = (),
    ) -> None:
        """Serve models. `watched`: the folder into which training publishes. `calls`: those that a new model answers
        before it is taken. `learn_beside`: lets another process learn the log with the model of a folder. `accepted`:
        digests of the models that may be served; empty: all."""
        self._core, self._archive, self._watched, self._metrics = core, archive, watched, metrics
        self._learn_beside, self._accepted = learn_beside, accepted
        self._changing = threading.Lock()
        self.calls = calls
        self._trial: Trial | None = None
        self._refused = ""
        self._seen: Signature | None = None
        archive.serving(core.state.version, pinned=archive.state.pinned)

    def take_published(self, *, shadow: bool = True) -> ModelChange:
        """Serve the published model, even where the present one is pinned.

        Without `shadow` it is not compared with the present model on recent calls. Raises ModelError where it must not
        be served.
        """
        with self._changing:
            return self._take_published(shadow=shadow)

    def end_bad_trial(self) -> None:
        """Go back to the model before, where the error that is observed jumped after a published model was taken."""
        with self._changing:
            trial, state = self._trial, self._core.state
            if trial is None or state.learned.last_sequence == trial.after_sequence:
                return
            if state.version != trial.new.version:  # an operator changed the model meanwhile
                self._trial = None
                return
            verdict = trial.verdict(trial.observed(self._core.log(None, TRIAL_ENTRIES).entries, state))
            if not verdict.jumped:
                if verdict.is_over:
                    _log.info("model %s stays: %s", state.version, verdict.text())
                    self._trial = None
                return
            self._trial = None
            previous = trial.before.version
            try:
                self._serve(self._checked_of_archive(previous))
            except InterfereError as error:
                _log.error("model %s cannot be taken back: %s", trial.new.version, error.one_line)
                return
            self._refused = f"{trial.new.version}: rolled back, {verdict.text()}"
            self._archive.back_at(previous)
            _log.error("model %s is rolled back to %s: %s", trial.new.version, previous, verdict.text())
            self._metrics.add("interfere_model_changes", 1, "rolled_back")

    def take_newly_published(self, *, again: bool = False) -> None:
        """Serve the model that was published since the last call, unless the present model is pinned.

        With `again`, a model that was refused before is tried again.
        """
        with self._changing:
            signature = signature_of(self._watched)
            if signature is None or (signature == self._seen and not again):
                return
            is_new, self._seen = signature != self._seen, signature
            if published_version(self._watched) == self._core.state.version:
                self._refused = ""
                return
            if self._archive.state.pinned:
                if is_new:
                    _log.warning("a published model is not taken: %s is pinned", self._core.state.version)
                return
            try:
                self._take_published()
            except InterfereError:
                return  # it is logged, and `list` tells it

    def load(self, version: str) -> ModelChange:
        """Serve a model of the archive and pin it. Raises NotFoundError for an unknown version, ModelError for a
        broken one."""
        with self._changing:
            model = self._checked_of_archive(version)
            change = self._serve(model)
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
            change = self._serve(self._checked_of_archive(previous))
            self._archive.back_at(previous)
            return change

    def pin(self, *, release: bool) -> bool:
        """Pin the present model, so that publications do not replace it, or release it. Returns whether it is pinned
        now."""
        with self._changing:
            self._archive.pin(pinned=not release)
            if release:
                self._seen = None  # what was published meanwhile is taken at the next look
            return not release

    def models(self) -> ServedModels:
        """Return the models that can be loaded, and why the newest publication was refused, if it was."""
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
        )

    def _take_published(self, *, shadow: bool = True) -> ModelChange:
        before = self._core.state.model.predictor
        scratch: Path | None = None
        try:
            if not (self._watched / "manifest.json").is_file():
                raise ModelError("no model is published", value=self._watched, remedy="interfere train")
            scratch = self._archive.copy(self._watched)
            model = self._checked(scratch)
            if shadow:
                asked = self.calls.pairs(self._core.state)
                _log.info("model %s, %s", model.predictor.version, check_shadow(before, model.predictor, asked))
            folder = self._archive.keep(scratch, model.predictor.version)
            model = load_served_model(folder, self._accepted)
            last_sequence = self._core.state.learned.last_sequence
            change = self._serve(model)
            self._archive.serving(change.version, pinned=False)
        except InterfereError as error:
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
            self._refused = f"{published_version(self._watched) or 'unknown'}: {' '.join(str(error).split())}"
            self._tell_refusal("the published model", self._refused)
            raise
        self._refused = ""
        self._trial = Trial(before=before, new=model.predictor, after_sequence=last_sequence)
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

    def _serve(self, model: ServedModel) -> ModelChange:
        before = self._core.state.version
        version = model.predictor.version
        if version != before:
            if self._core.state.learned.last_sequence > MAX_LEARNED_HERE:
                self._learn_beside(model.folder)
            self._core.use_model(model)
            self._core.store_state()  # for workers and for the next start
            self._metrics.add("interfere_model_changes", 1, "taken")
            _log.info("model %s is served now, %s before", version, before)
        return ModelChange(version=version, previous_version=before)


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
                self._host.end_bad_trial()
            except Exception:  # the watch goes on, whatever one look meets
                _log.exception("the published model could not be looked at")
