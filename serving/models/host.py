"""Changes the model of a running server: serves published models, goes back to earlier models, pins a model.

Law 1: a model that must not be served changes nothing: it is refused with one log line, and the present model goes on.
Every new model must answer the golden requests of its folder, and predict known jobs, before it is served. Law 2: calls
never wait for a change of models. A new model is copied, checked, and taught the observations while the present model
answers, and then replaces the present model as a whole. A thread looks for newly published models every few seconds,
and at once on request (SIGHUP). Law 3: a folder of the archive of served models is complete or absent, and never
changes: workers and rollbacks load from it.
"""

import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from interfere.errors import InterfereError, ModelError, NotFoundError, UnfitError
from interfere.predict.manifest import published_version
from interfere.records import JobProfile, MatrixBatch, ModelChange, PairBatch, ServedModels, ServedModelSummary
from interfere.serving.metrics import Metrics
from interfere.serving.service import PolicyCore
from interfere.serving.state import ServedModel, load_served_model
from interfere.sharing_modes import SharingMode
from interfere.store.sqlite_file import EvictionListener

_log = logging.getLogger(__name__)
KEPT = 5  # models, besides the served one and the one before it: some megabytes each
STATE_FILE = "serving.json"
_VERSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")  # names a folder
MAX_PROBES = 12  # jobs of a domain: 132 pairs take milliseconds
# Slowdowns beyond these say that a graph is broken, not that jobs interfere: measurements lie in [0.2, 100].
LEAST, MOST = 0.01, 1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingState:
    """The state of the served models that a server keeps over a restart."""

    served: tuple[str, ...] = ()  # versions in the order in which they were taken, the present one last
    pinned: bool = False
    taken_s: dict[str, float] = field(default_factory=dict)  # by version, unix seconds

    def serving(self, version: str, *, pinned: bool) -> "ServingState":
        """Return the state after a version was taken."""
        served = self.served if self.served[-1:] == (version,) else (*self.served, version)
        return ServingState(served=served[-100:], pinned=pinned, taken_s={version: time.time(), **self.taken_s})

    def back_at(self, version: str) -> "ServingState":
        """Return the state after a rollback to a version: what was served after it is forgotten, so that the next
        rollback goes further back."""
        last = max((k for k, served in enumerate(self.served) if served == version), default=-1)
        return replace(self, served=self.served[: last + 1], pinned=True)

    def previous(self, kept: Collection[str]) -> str:
        """Return the version of those `kept` that was served last before the present one; empty without any."""
        return next((v for v in reversed(self.served) if v != self.served[-1] and v in kept), "")


class ModelArchive:
    """Copies of served models: one folder a version, below one folder. One process writes them."""

    def __init__(self, folder: Path, *, on_eviction: EvictionListener = lambda *_: None) -> None:
        self._folder, self._on_eviction = folder, on_eviction
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnfitError(
                f"the models that are served cannot be kept ({error.strerror})",
                value=folder,
                remedy="give a workspace you may write to: --work DIR",
            ) from None
        self.state = self._read_state()

    def copy(self, source: Path) -> Path:
        """Copy a published folder into the archive, under a temporary name, and return the copy."""
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
        try:
            shutil.copytree(source, scratch, dirs_exist_ok=True, symlinks=False)
        except (OSError, shutil.Error):
            shutil.rmtree(scratch, ignore_errors=True)
            raise ModelError(
                "the published model folder cannot be copied", value=source, remedy="publish it again"
            ) from None
        return scratch

    def keep(self, scratch: Path, version: str) -> Path:
        """Move a copy that was checked to the folder of its version, and return this folder."""
        if not _VERSION.fullmatch(version):
            shutil.rmtree(scratch, ignore_errors=True)
            raise ModelError("not a version of a model", value=version[:64], remedy="publish it with: interfere train")
        target = self.path(version)
        if target.exists():
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            scratch.rename(target)
        return target

    def path(self, version: str) -> Path:
        """Return the path where a version is kept."""
        return self._folder / version

    def find(self, version: str) -> Path:
        """Return the folder of a version that was served. Raises NotFoundError."""
        if version not in self.versions():
            kept = ", ".join(self.versions()) or "none"
            raise NotFoundError("no model of this version is kept", value=version[:64], remedy=f"one of {kept}")
        return self.path(version)

    def description(self, version: str) -> tuple[str, str]:
        """Return the kind of a kept model and the time of its publication; empty where its manifest cannot be read."""
        try:
            manifest = json.loads((self.path(version) / "manifest.json").read_text(encoding="utf-8"))
            return str(manifest["model"]), str(manifest["created_at"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", ""

    def versions(self) -> tuple[str, ...]:
        """Return the versions that are kept, the one that was served last first."""
        with suppress(OSError):
            names = [entry.name for entry in os.scandir(self._folder) if entry.is_dir() and entry.name[0] != "."]
            return tuple(sorted(names, key=lambda name: -self.state.taken_s.get(name, 0.0)))
        return ()

    def serving(self, version: str, *, pinned: bool) -> None:
        """Record that a version is served now, and remove the copies of models that were served longest ago."""
        self._write_state(self.state.serving(version, pinned=pinned))
        self._prune({version, self.previous()})

    def back_at(self, version: str) -> None:
        """Record that a version is served again after a rollback."""
        self._write_state(self.state.back_at(version))

    def previous(self) -> str:
        """Return the kept version that was served before the present one; empty without any."""
        return self.state.previous(self.versions())

    def pin(self, *, pinned: bool) -> None:
        """Record whether publications may replace the served model."""
        self._write_state(replace(self.state, pinned=pinned))

    def _prune(self, needed: Collection[str]) -> None:
        for version in [version for version in self.versions() if version not in needed][KEPT:]:
            shutil.rmtree(self.path(version), ignore_errors=True)
            self._on_eviction("served_model", 1)

    def _read_state(self) -> ServingState:
        try:
            document = json.loads((self._folder / STATE_FILE).read_text(encoding="utf-8"))
            return ServingState(
                served=tuple(map(str, document["served"])),
                pinned=bool(document["pinned"]),
                taken_s={str(version): float(at) for version, at in document["taken_s"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ServingState()

    def _write_state(self, state: ServingState) -> None:
        self.state = state
        scratch = self._folder / f".{STATE_FILE}"
        with suppress(OSError):  # on a full disk only the next start knows less
            scratch.write_text(json.dumps(asdict(state)), encoding="utf-8")
            scratch.replace(self._folder / STATE_FILE)


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
        learn_beside: Callable[[Path], None] = lambda _: None,
    ) -> None:
        """Serve models. `watched`: the folder into which training publishes. `learn_beside`: lets another process learn
        the log with the model of a folder."""
        self._core, self._archive, self._watched, self._metrics = core, archive, watched, metrics
        self._learn_beside = learn_beside
        self._changing = threading.Lock()
        self._refused = ""
        self._seen: Signature | None = None
        archive.serving(core.state.version, pinned=archive.state.pinned)

    def take_published(self) -> ModelChange:
        """Serve the published model, even where the present one is pinned. Raises ModelError where it must not be
        served."""
        with self._changing:
            return self._take_published()

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

    def _take_published(self) -> ModelChange:
        scratch: Path | None = None
        try:
            if not (self._watched / "manifest.json").is_file():
                raise ModelError("no model is published", value=self._watched, remedy="interfere train")
            scratch = self._archive.copy(self._watched)
            model = self._checked(scratch)
            folder = self._archive.keep(scratch, model.predictor.version)
            change = self._serve(load_served_model(folder))
            self._archive.serving(change.version, pinned=False)
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
        model = load_served_model(folder)
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
            except Exception:  # the watch goes on, whatever one look meets
                _log.exception("the published model could not be looked at")
