"""The batch job: base tables and what servers observed → data check, drift report → training → gate → publication.

Law 1: the same inputs are trained on once: a run with nothing new does nothing.
Law 2: one run a workspace at a time, by a lock that the system releases when its holder dies.
Law 3: what was done is noted last, so that a run killed anywhere can simply be started again.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import interfere
from features.pair import Encoder
from interfere.data.parquet import write_atomically
from interfere.data.tables import write_table
from interfere.errors import UnfitError
from training.dataset import build_dataset, require_enough
from training.evaluation.drift import Drift, drift_of
from training.evaluation.gate import Verdict
from training.evaluation.gate_rows import Rival, read_rival
from training.models.catalogue import MODELS
from training.models.model import ModelSettings
from training.observed import NAME, Observations, read_observations
from training.pipeline import Source, read_source, train
from training.publishing import registry
from training.publishing.tracking import prepare

FOLDER = "retrain"  # in the workspace: lock, observed table, what the last run did
STATE, LOCK = "state.json", "lock"


class BusyError(UnfitError):
    """Another run holds the workspace."""


class Outcome(StrEnum):
    """How a run ended."""

    PUBLISHED = "published"
    NOTHING_NEW = "nothing_new"
    REFUSED = "refused"
    WOULD_TRAIN = "would_train"  # a dry run


EXIT = {Outcome.PUBLISHED: 0, Outcome.NOTHING_NEW: 0, Outcome.WOULD_TRAIN: 0, Outcome.REFUSED: 3}
EXIT_BUSY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrained:
    """What a run did, or (dry) would do."""

    outcome: Outcome
    reason: str  # one line
    inputs: str  # sha256 over everything a training depends on
    observed: Observations
    drift: Drift | None  # None without observations
    verdict: Verdict | None = None
    registered: int | None = None
    run_id: str = ""
    folder: Path | None = None  # the published champion


def retrain(
    tables: Sequence[Path],
    work: Path,
    *,
    store: Path,
    seed: int = 0,
    tracking: str | None = None,
    dry_run: bool = False,
    models: Mapping[str, ModelSettings] = MODELS,
    report: Callable[[str], None] = lambda _: None,
) -> Retrained:
    """One run. A dry one reads, checks and reports, and writes nothing.

    Raises BusyError while another run has the workspace, and what `train` raises.
    """
    if not dry_run:
        prepare(work, tracking)
    with _alone(work / FOLDER, make=not dry_run):
        source = read_source(tables)
        profiles = tuple(job for table in source.tables for job in table.jobs)
        observed = read_observations(store, profiles)
        inputs = _inputs(source, observed, models, seed=seed, tracking=tracking)
        report(
            f"{len(tables)} base tables; {observed.pairs} observed pairs from {observed.windows} windows"
            + (f"; left out, without profile: {', '.join(observed.without_facts)}" if observed.without_facts else "")
        )
        last = _last(work)
        lost = last.get("outcome") == Outcome.PUBLISHED and not registry.champion_folder(work).exists()
        if last.get("inputs") == inputs and not lost:
            reason = f"nothing new since the last run, which ended: {last['outcome']}"
            return Retrained(outcome=Outcome.NOTHING_NEW, reason=reason, inputs=inputs, observed=observed, drift=None)
        drift = _drift(source, observed, work)
        if drift is not None:
            report(drift.markdown())
        if dry_run:
            return _would_train(source, observed, drift, inputs)
        paths = (*tables, *_observed_folder(work, observed))
        notes = {} if drift is None else {"drift.md": drift.markdown(), "drift.json": json.dumps(drift.document())}
        made = train(
            paths, work, seed=seed, name="retrain", tracking=tracking, models=models, notes=notes, report=report
        )
        folder = None
        if made.verdict.passed:
            folder = registry.promote(
                work, Encoder().fingerprint, number=made.registered.number, tracking=tracking
            ).folder
        outcome = Outcome.PUBLISHED if made.verdict.passed else Outcome.REFUSED
        _note(work, {"inputs": inputs, "outcome": outcome.value, "reason": made.verdict.reason, "run_id": made.run_id})
        return Retrained(
            outcome=outcome,
            reason=made.verdict.reason,
            inputs=inputs,
            observed=observed,
            drift=drift,
            verdict=made.verdict,
            registered=made.registered.number,
            run_id=made.run_id,
            folder=folder,
        )


def _would_train(source: Source, observed: Observations, drift: Drift | None, inputs: str) -> Retrained:
    tables = source.tables if observed.table is None else (*source.tables, observed.table)
    dataset = build_dataset(tables, Encoder())
    require_enough(dataset)
    reason = f"would train on {len(dataset)} ordered pairs of {len(dataset.workloads)} workloads"
    return Retrained(outcome=Outcome.WOULD_TRAIN, reason=reason, inputs=inputs, observed=observed, drift=drift)


def _inputs(
    source: Source, observed: Observations, models: Mapping[str, ModelSettings], *, seed: int, tracking: str | None
) -> str:
    parts = [interfere.__version__, Encoder().fingerprint, str(seed), str(tracking), observed.digest, *source.digests]
    parts += [repr(settings) for settings in models.values()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _drift(source: Source, observed: Observations, work: Path) -> Drift | None:
    if observed.table is None:
        return None
    encoder, folder = Encoder(), registry.champion_folder(work)
    champion: Rival | None = read_rival(0, "", folder, encoder) if folder.exists() else None
    return drift_of(source.tables, observed.table, encoder, champion)


def _observed_folder(work: Path, observed: Observations) -> tuple[Path, ...]:
    if observed.table is None:
        return ()
    folder = work / FOLDER / NAME
    folder.mkdir(exist_ok=True)
    write_table(folder, observed.table)
    return (folder,)


def _last(work: Path) -> dict[str, Any]:
    """What the last run did; a note that cannot be read counts as none: the run is repeated."""
    try:
        found = json.loads((work / FOLDER / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and "outcome" in found else {}


def _note(work: Path, state: Mapping[str, str]) -> None:
    text = json.dumps(state, indent=1) + "\n"
    write_atomically(work / FOLDER / STATE, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))


@contextmanager
def _alone(folder: Path, *, make: bool) -> Iterator[None]:
    """The only run in this workspace. A dry run makes no file, and only looks whether somebody holds one."""
    if make:
        folder.mkdir(exist_ok=True)
    elif not (folder / LOCK).exists():
        yield
        return
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT if make else os.O_RDONLY, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise BusyError(
                f"another retraining (process {holder}) is at work",
                value=folder.parent,
                remedy="wait for it, or use another workspace: --work",
            ) from None
        if make:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)
