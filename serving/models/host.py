"""Changes the model of a running server: takes what is published, goes back to an earlier one, holds on to one.

Law 1: a model that must not be served changes nothing: it is refused with one log line, and the present one goes on.
Law 2: calls never wait for a change: a model is copied, checked, asked about known jobs and taught what was observed
beside the one that serves, and then replaces it as a whole.
"""

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from interfere.errors import InterfereError, ModelError, NotFoundError
from interfere.predict.manifest import published_version
from interfere.serving.metrics import Metrics
from interfere.serving.models.archive import ModelArchive
from interfere.serving.models.probe import probe
from interfere.serving.service import PolicyCore
from interfere.serving.state import ServedModel, load_served_model
from interfere.wire.messages import ModelChange, ServedModels, ServedModelSummary

_log = logging.getLogger(__name__)
MAX_LEARNED_HERE = 5_000  # entries of the log: half a second of this process; a longer log is learned by another one
Signature = tuple[int, int, int]
"""Inode, time of modification and size of a manifest: they differ between any two publications."""


class ModelHost:
    """The model of one server. Thread-safe; one change at a time."""

    def __init__(
        self,
        core: PolicyCore,
        archive: ModelArchive,
        watched: Path,
        metrics: Metrics,
        learn_beside: Callable[[Path], None] = lambda _: None,
    ) -> None:
        """`watched`: the folder that training publishes into. `learn_beside`: lets another process learn the log."""
        self._core, self._archive, self._watched, self._metrics = core, archive, watched, metrics
        self._learn_beside = learn_beside
        self._changing = threading.Lock()
        self._refused = ""
        self._seen: Signature | None = None
        archive.serving(core.state.version, pinned=archive.state.pinned)

    def take_published(self) -> ModelChange:
        """Serve the published model, also a pinned server. Raises ModelError where it must not be served."""
        with self._changing:
            return self._take_published()

    def take_newly_published(self, *, again: bool = False) -> None:
        """Serve what was published since the last look, unless the present model is pinned; `again`: also refused."""
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
        """Serve a model of the archive, and hold on to it. Raises NotFoundError, ModelError."""
        with self._changing:
            folder = self._archive.find(version)
            return self._serve(self._checked(folder), pinned=True)

    def rollback(self) -> ModelChange:
        """Serve the model that was served before this one, and hold on to it. Raises NotFoundError without any."""
        with self._changing:
            previous = self._archive.state.previous
            if not previous:
                raise NotFoundError("no other model was served before", remedy="interfere models list")
            return self._serve(self._checked(self._archive.find(previous)), pinned=True)

    def pin(self, *, release: bool) -> bool:
        """Hold on to the present model, or release it; whether it is pinned now."""
        with self._changing:
            self._archive.pin(pinned=not release)
            if release:
                self._seen = None  # what was published meanwhile is taken at the next look
            return not release

    def models(self) -> ServedModels:
        """The models that can be loaded, and what became of the newest publication."""
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

    def _take_published(self) -> ModelChange:
        scratch: Path | None = None
        try:
            if not (self._watched / "manifest.json").is_file():
                raise ModelError("no model is published", value=self._watched, remedy="interfere train")
            scratch = self._archive.copy(self._watched)
            model = self._checked(scratch)
            folder = self._archive.keep(scratch, model.predictor.version)
            change = self._serve(load_served_model(folder), pinned=False)
        except InterfereError as error:
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
            self._refused = f"{published_version(self._watched) or 'unknown'}: {' '.join(str(error).split())}"
            self._metrics.count_model_change("refused")
            _log.error("the published model is refused, %s goes on: %s", self._core.state.version, self._refused)
            raise
        self._refused = ""
        return change

    def _checked(self, folder: Path) -> ServedModel:
        """The model of a folder, after everything that could refuse it."""
        model = load_served_model(folder)
        probe(model, self._core.state.profiles.registered().values())
        return model

    def _serve(self, model: ServedModel, *, pinned: bool) -> ModelChange:
        before = self._core.state.version
        version = model.predictor.version
        if version != before:
            if self._core.state.learned.last_sequence > MAX_LEARNED_HERE:
                self._learn_beside(model.folder)
            self._core.use_model(model)
            self._core.store_state()  # for workers and for the next start
            self._metrics.count_model_change("taken")
            _log.info("model %s is served now, %s before", version, before)
        self._archive.serving(version, pinned=pinned)
        return ModelChange(version=version, previous_version=before)


def signature_of(folder: Path) -> Signature | None:
    """What changes with every publication; None where nothing is published."""
    try:
        status = (folder / "manifest.json").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
