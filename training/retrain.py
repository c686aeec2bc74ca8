"""Trains again on base tables and on what servers observed, and publishes the new model where it is better.

Law 1: one retraining at a time works in a workspace. Law 2: equal inputs are trained on once. Law 3: a model is
published only if the gate passes it, and if it predicts the newest windows of the site no worse than the served model.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import interfere
from interfere.data.tables import Table, write_table
from interfere.errors import ModelError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.file_writing import write_text
from interfere.records import JobProfile
from interfere.records.documents import to_document
from interfere.reports.numbers import count_noun
from interfere.store.observed_table import DomainChange, LoggedWindow, logged_windows, observed_table
from interfere.store.store import StoreAddress, open_store
from interfere.strict_json import json_value
from interfere.training.campaigns import training_rows
from interfere.training.dataset import SourceTables, read_source_tables
from interfere.training.evaluation.candidates import require_model
from interfere.training.evaluation.champion import PublishedChampion, read_champion, score_on_log
from interfere.training.evaluation.drift import DriftReport, changed_domains, measure_drift
from interfere.training.groups.evaluation import read_group_tables
from interfere.training.models.catalogue import MODELS
from interfere.training.models.protocols import ModelSettings
from interfere.training.pipeline import TrainingResult, train
from interfere.training.publishing import model_registry
from interfere.training.publishing.tracking import prepare_workspace

FOLDER = "retrain"  # of the workspace: lock, observed table, record of the last run
STATE_FILE, LOCK_FILE = "state.json", "lock"
OBSERVED_TABLE = "observed"  # name of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMeasurements:
    """The pairs and groups that a server's observation log measures."""

    table: Table | None  # None where no row of it is ok
    windows: int  # observation windows that became passes of a row
    without_facts: tuple[str, ...]  # jobs whose rows are missing because they have no profile
    digest: str  # sha256 of the table's facts and of the changes; "" without a table
    log: tuple[LoggedWindow, ...] = ()  # windows that count, oldest first
    changes: tuple[DomainChange, ...] = ()  # of the software stack of a device type and mode
    profiles: tuple[JobProfile, ...] = ()  # that the store holds

    @property
    def pairs(self) -> int:
        """Return the number of ordered pairs that can be trained on."""
        return 0 if self.table is None else len(self.table.ok_pairs)

    @property
    def group_rows(self) -> int:
        """Return the number of victims in groups of three and more that can be trained on."""
        return 0 if self.table is None else len(self.table.ok_groups)


def read_observations(store: StoreAddress, tables: Sequence[Table]) -> ObservedMeasurements:
    """Return the measurements in a store, which a server may hold open; none where the store does not exist.

    The profiles of the base `tables` stand in for jobs that were not registered with the server, and their measurements
    tell which domains have changed since. Raises as `open_store` does.
    """
    if isinstance(store, Path) and not store.exists():
        return ObservedMeasurements(table=None, windows=0, without_facts=(), digest="")
    opened = open_store(store, read_only=True)
    try:
        log, _ = logged_windows(opened)
        changes = changed_domains(tables, log)
        profiles = (profile for table in tables for profile in table.profiles)
        export = observed_table(opened, profiles, name=OBSERVED_TABLE, changes=changes)
        registered = tuple(opened.profiles.all())
    finally:
        opened.close()
    table = export.table if export.table.ok_pairs or export.table.ok_groups else None
    return ObservedMeasurements(
        table=table,
        windows=export.windows,
        without_facts=export.without_facts,
        digest="" if table is None else _facts_digest(table, changes),
        log=tuple(log),
        changes=changes,
        profiles=registered,
    )


def _facts_digest(table: Table, changes: Sequence[DomainChange]) -> str:
    """Return the sha256 over changes, jobs, pairs and groups, without the campaign of a row.

    The campaign may name the last entry of the log: an entry that changes no row changes no digest.
    """
    facts: list[Any] = [repr(change) for change in changes]
    facts += [to_document(job) for job in table.jobs]
    facts += [json_value(asdict(replace(row, campaign=""))) for row in table.measurements]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class BusyError(UnfitError):
    """Another retraining is running in the workspace."""


class RetrainOutcome(StrEnum):
    """How a retraining ended."""

    PUBLISHED = "published"
    NOTHING_NEW = "nothing_new"
    REFUSED = "refused"  # by the gate
    WOULD_TRAIN = "would_train"  # of a dry run


EXIT_STATUS = {
    RetrainOutcome.PUBLISHED: 0,
    RetrainOutcome.NOTHING_NEW: 0,
    RetrainOutcome.WOULD_TRAIN: 0,
    RetrainOutcome.REFUSED: 3,
}
EXIT_BUSY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainResult:
    """The result of a retraining, or for a dry run the result that a real run would have."""

    outcome: RetrainOutcome
    reason: str  # one line
    inputs: str  # sha256 over everything that a training depends on
    observed: ObservedMeasurements
    drift: DriftReport | None  # None without observed pairs, or with nothing new
    trained: TrainingResult | None = None  # None where nothing was trained
    folder: Path | None = None  # the published champion


def retrain(
    tables: Sequence[Path],
    work: Path,
    *,
    store: StoreAddress,
    seed: int = 0,
    groups: Sequence[Path] = (),
    tracking: str | None = None,
    dry_run: bool = False,
    champion: str = "",
    models: Mapping[str, ModelSettings] = MODELS,
    report: Callable[[str], None] = lambda _: None,
) -> RetrainResult:
    """Train once on the base `tables` and the observations in `store`, and publish what passes. A dry run writes
    nothing.

    `champion` names the model to publish; without it the model with the lowest error is published. `groups` as in
    `train`. Raises InvalidInputError for an unknown name, BusyError while another run is at work in the workspace, and
    the errors of `train`.
    """
    require_model(champion, models)
    if not dry_run:
        prepare_workspace(work, tracking)
    with _workspace_lock(work / FOLDER, create=not dry_run):
        # 1. Read the base tables and the observations.
        source, beside = read_source_tables(tables), read_group_tables(groups)
        observed = read_observations(store, source.tables)
        report(_summary(source, observed))

        # 2. Stop if the last run had the same inputs.
        digests = (*source.digests, *(beside.digests if beside else ()))
        inputs = _inputs_digest(digests, observed, models, seed=seed, tracking=tracking, champion=champion)
        unchanged = RetrainResult(
            outcome=RetrainOutcome.NOTHING_NEW,
            reason=_nothing_new(work, inputs),
            inputs=inputs,
            observed=observed,
            drift=None,
        )
        if unchanged.reason:
            return unchanged

        # 3. Measure drift.
        drift = _measure_drift(source, observed, work)
        if drift is not None:
            report(drift.markdown())
            if not dry_run:
                model_registry.log_drift(work, drift, tracking)
        if dry_run:
            return replace(
                unchanged, drift=drift, outcome=RetrainOutcome.WOULD_TRAIN, reason=_training_size(source, observed)
            )

        # 4. Train on base tables and observations; the gate judges the new model.
        trained = train(
            (*tables, *_write_observed_table(work, observed)),
            work,
            seed=seed,
            occasion="retrain",
            groups=groups,
            tracking=tracking,
            champion=champion,
            models=models,
            changed_domains=frozenset((change.device_type, change.mode) for change in observed.changes),
            notes={} if drift is None else {"drift.md": drift.markdown(), "drift.json": json.dumps(asdict(drift))},
            report=report,
        )

        # 5. Promote a model that passed, unless it predicts the site's newest windows worse than the served one does.
        folder, number, passed = None, trained.registered.number, trained.verdict.passed
        refusal = _refusal_by_windows(work, trained, observed, report) if passed else ""
        is_better = passed and not refusal
        if is_better:
            fingerprint = FeatureEncoder().fingerprint
            folder = model_registry.promote(work, fingerprint, number=number, tracking=tracking).folder

        # 6. Record the outcome.
        outcome = RetrainOutcome.PUBLISHED if is_better else RetrainOutcome.REFUSED
        reason = refusal or trained.verdict.reason
        record = {"inputs": inputs, "outcome": outcome.value, "reason": reason, "run_id": trained.run_id}
        text = json.dumps(record, indent=1) + "\n"
        write_text(work / FOLDER / STATE_FILE, text)
        return replace(unchanged, outcome=outcome, reason=reason, drift=drift, trained=trained, folder=folder)


def _summary(source: SourceTables, observed: ObservedMeasurements) -> str:
    """Return one line in words about the data that was read."""
    omitted = f"; left out, without profile: {', '.join(observed.without_facts)}" if observed.without_facts else ""
    for each in observed.changes:
        omitted += f"; {each.device_type}/{each.mode} changed at entry {each.sequence}"
    rows = f"{observed.pairs} observed pairs"
    if observed.group_rows:
        rows += f" and {observed.group_rows} rows of groups of three and more"
    return f"{count_noun(len(source.tables), 'base table')}; {rows} from {observed.windows} windows{omitted}"


def _inputs_digest(
    table_digests: Sequence[str],
    observed: ObservedMeasurements,
    models: Mapping[str, ModelSettings],
    *,
    seed: int,
    tracking: str | None,
    champion: str,
) -> str:
    """Return the sha256 over everything that a training depends on."""
    fingerprint = FeatureEncoder().fingerprint
    parts = [interfere.__version__, fingerprint, str(seed), str(tracking), observed.digest, *table_digests]
    parts += [repr(settings) for settings in models.values()] + ([f"champion {champion}"] if champion else [])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _nothing_new(work: Path, inputs: str) -> str:
    """Return the reason why there is nothing to do.

    "" where the inputs are new, or where the champion of the last run is missing.
    """
    last_run = _read_last_run(work)
    published = last_run.get("outcome") == RetrainOutcome.PUBLISHED
    champion_is_missing = published and not model_registry.champion_folder(work).exists()
    if last_run.get("inputs") != inputs or champion_is_missing:
        return ""
    return f"nothing new since the last run, which ended: {last_run['outcome']}"


def _measure_drift(source: SourceTables, observed: ObservedMeasurements, work: Path) -> DriftReport | None:
    """Return the drift of the observed pairs; None where there are none."""
    if observed.table is None or not observed.pairs:
        return None
    encoder, folder = FeatureEncoder(), model_registry.champion_folder(work)
    champion: PublishedChampion | None = read_champion(0, "", folder, encoder) if folder.exists() else None
    return measure_drift(source.tables, observed.table, encoder, champion)


def _training_size(source: SourceTables, observed: ObservedMeasurements) -> str:
    """Return how much data a training would be fitted on, in words. Raises UnfitError for too few pairs."""
    tables = source.tables if observed.table is None else (*source.tables, observed.table)
    dataset = training_rows(tables, FeatureEncoder()).fitted
    return f"would train on {len(dataset)} ordered pairs of {len(dataset.workloads)} workloads"


def _write_observed_table(work: Path, observed: ObservedMeasurements) -> tuple[Path, ...]:
    """Write the observations as a table of the workspace; returns its folder, or nothing without observations."""
    if observed.table is None:
        return ()
    folder = work / FOLDER / OBSERVED_TABLE
    folder.mkdir(exist_ok=True)
    write_table(folder, observed.table)
    return (folder,)


def _refusal_by_windows(
    work: Path, trained: TrainingResult, observed: ObservedMeasurements, report: Callable[[str], None]
) -> str:
    """Return the reason why the new model must not replace the served champion: a larger error on the newest windows.

    "" where the error is no larger, or where no champion is served.
    """
    served = model_registry.champion_folder(work)
    if not served.exists() or not observed.log:
        return ""
    encoder = FeatureEncoder()
    try:
        before = score_on_log(served, encoder, observed.log, observed.profiles)
    except ModelError:  # a champion of an earlier release, which this program cannot serve
        return ""
    after = score_on_log(trained.folder, encoder, observed.log, observed.profiles)
    report(f"newest {after.windows} windows: mean error {after.error:.4f}, of the served model {before.error:.4f}")
    return after.refusal(before)


def _read_last_run(work: Path) -> dict[str, Any]:
    """Return the record of the last run; empty where it cannot be read, and the run is then repeated."""
    try:
        record = json.loads((work / FOLDER / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and "outcome" in record else {}


@contextmanager
def _workspace_lock(folder: Path, *, create: bool) -> Iterator[None]:
    """Hold the workspace's lock for the duration of the block. Raises BusyError where another process holds it.

    Without `create`, as for a dry run, no file is written, and a missing lock file counts as free.
    """
    if create:
        folder.mkdir(exist_ok=True)
    elif not (folder / LOCK_FILE).exists():
        yield
        return
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT if create else os.O_RDONLY, 0o644)
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
        if create:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)
