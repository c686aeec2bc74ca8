"""The archive of served models: one folder a version, and the order in which they were served.

Law: a folder of the archive is complete or absent, and never changes: workers and rollbacks load from it.
"""

import json
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from interfere.errors import ModelError, NotFoundError, UnfitError
from interfere.store.database import EvictionListener

KEPT = 5  # models, besides the served one and the one before it: some megabytes each
STATE_FILE = "serving.json"
_VERSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")  # names a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTrial:
    """A trial of a model that goes on after a restart; see `interfere.serving.models.trial`."""

    before: str  # version
    new: str  # version
    after_sequence: int  # last entry of the log when it began
    everywhere: bool = True  # whether the new model answers all scopes already; else those of the canary
    compares_calls: bool = True
    compared: dict[str, int] = field(default_factory=dict)  # see `Comparison`


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingState:
    """The state of the served models that a server keeps over a restart."""

    served: tuple[str, ...] = ()  # versions in the order in which they were taken, the present one last
    pinned: bool = False
    taken_s: dict[str, float] = field(default_factory=dict)  # by version, unix seconds
    trial: StartedTrial | None = None
    refused: str = ""  # by its trial: "VERSION: reason"


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
        """Move a checked copy to the folder of its version, and return this folder."""
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
        before = self.state.served
        served = before if before[-1:] == (version,) else (*before, version)
        taken_s = {version: time.time(), **self.state.taken_s}
        self._write_state(replace(self.state, served=served[-100:], pinned=pinned, taken_s=taken_s))
        tried = {self.state.trial.before, self.state.trial.new} if self.state.trial else set()
        needed = {version, self.previous(), *tried}
        for old in [kept for kept in self.versions() if kept not in needed][KEPT:]:
            self.discard(old)
            self._on_eviction("served_model", 1)

    def back_at(self, version: str) -> None:
        """Record that a version is served again after a rollback: what was served after it is forgotten, so that the
        next rollback goes further back."""
        served = self.state.served
        last = max((k for k, each in enumerate(served) if each == version), default=-1)
        self._write_state(replace(self.state, served=served[: last + 1], pinned=True))

    def previous(self) -> str:
        """Return the kept version that was served before the present one; empty without any."""
        served, kept = self.state.served, self.versions()
        return next((v for v in reversed(served) if v != served[-1] and v in kept), "")

    def pin(self, *, pinned: bool) -> None:
        """Record whether publications may replace the served model."""
        self._write_state(replace(self.state, pinned=pinned))

    def trying(self, trial: StartedTrial | None, *, refused: str | None = None) -> None:
        """Record the trial that is under way, if any, and with `refused` which model a trial refused, and why."""
        refused = self.state.refused if refused is None else refused
        self._write_state(replace(self.state, trial=trial, refused=refused))

    def discard(self, version: str) -> None:
        """Remove the copy of a model."""
        shutil.rmtree(self.path(version), ignore_errors=True)

    def _read_state(self) -> ServingState:
        try:
            document = json.loads((self._folder / STATE_FILE).read_text(encoding="utf-8"))
            return ServingState(
                served=tuple(map(str, document["served"])),
                pinned=bool(document["pinned"]),
                taken_s={str(version): float(at) for version, at in document["taken_s"].items()},
                trial=None if document.get("trial") is None else StartedTrial(**document["trial"]),
                refused=str(document.get("refused", "")),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ServingState()

    def _write_state(self, state: ServingState) -> None:
        self.state = state
        scratch = self._folder / f".{STATE_FILE}"
        with suppress(OSError):  # on a full disk only the next start knows less
            scratch.write_text(json.dumps(asdict(state)), encoding="utf-8")
            scratch.replace(self._folder / STATE_FILE)
