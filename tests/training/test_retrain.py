"""Retraining on a real store and registry: once per change, one run at a time, restartable after a kill."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import mlflow
import pytest

from interfere.cli import main
from interfere.data.tables import Table, write_table
from interfere.errors import TableError
from interfere.records import Progress
from interfere.store.rows import NewObservation
from interfere.store.store import SqliteStore
from interfere.training.publishing.model_registry import MODEL, champion_folder
from interfere.training.publishing.tracking import mlflow_connection
from interfere.training.retrain import EXIT_BUSY, EXIT_STATUS, BusyError, RetrainOutcome, RetrainResult, retrain
from tests.training.cheap_models import CHEAP_MODELS, ONLY_MEAN
from tests.waiting import wait_until

FACTOR = 1.5  # what the observed pairs are slower by than they were measured


@pytest.fixture(scope="module")
def sparse(small: Table) -> Table:
    """The small table without ten of its pairs."""
    apart = sorted({tuple(sorted((p.victim, p.neighbour))) for p in small.ok_pairs if p.victim != p.neighbour})[:10]
    return replace(small, pairs=tuple(p for p in small.pairs if tuple(sorted((p.victim, p.neighbour))) not in apart))


@pytest.fixture(scope="module")
def sparse_folder(sparse: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sparse") / "sparse"
    folder.mkdir()
    write_table(folder, sparse)
    return folder


@dataclass(frozen=True)
class Place:
    work: Path
    store: Path
    server: SqliteStore  # held open, as by a server
    base: Path
    first: RetrainResult


@pytest.fixture(scope="module")
def place(sparse_folder: Path, sparse: Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Trained once on the base table alone; then a server observed a few of its pairs, slower than measured."""
    work = tmp_path_factory.mktemp("work")
    store = work / "store.db"
    first = retrain([sparse_folder], work, store=store, models=CHEAP_MODELS)
    server = SqliteStore(store)
    seen = [p for p in sparse.ok_pairs if p.victim != p.neighbour][:4]
    windows = [
        Progress(
            observation_id=f"{k} {n}",
            job_id=f"j{k}",
            workload=pair.victim,
            company=(pair.neighbour,),
            device_type=pair.device_type,
            mode=pair.mode,
            slowdown=FACTOR * pair.slowdown * (1 + 0.01 * n),
            start_s=1e9 + 60.0 * n,
            end_s=1e9 + 60.0 * n + 60,
        )
        for k, pair in enumerate(seen)
        for n in range(3)
    ]
    server.observations.append([NewObservation(observation=window) for window in windows], 2e9)
    yield Place(work=work, store=store, server=server, base=sparse_folder, first=first)
    server.close()


def contents(folder: Path) -> Mapping[str, bytes]:
    """All files but the shared memory in which SQLite keeps who is reading."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.endswith("-shm")]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_the_first_run_publishes_a_champion(place: Place) -> None:
    assert (place.first.outcome, place.first.observed.pairs, place.first.drift) == (RetrainOutcome.PUBLISHED, 0, None)
    assert place.first.folder == champion_folder(place.work)
    assert (place.first.folder / "pair.onnx").is_file()


def test_a_dry_run_reports_drift_and_writes_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(place.work)
    with pytest.raises(SystemExit) as stop:
        main(["retrain", "--data", str(place.base), "--work", str(place.work), "--dry-run", "--json"])
    assert stop.value.code == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert contents(place.work) == before
    assert document["outcome"] == "would_train"
    assert document["observed"] == {"pairs": 4, "group_rows": 0, "windows": 12, "without_facts": []}
    assert [p["drifted"] for p in document["drift"]["pairs"]] == [True] * 4
    assert "drift: 4 of 4 observed pairs" in said.err


def test_a_dry_run_in_a_new_workspace_leaves_no_workspace(place: Place, tmp_path: Path) -> None:
    made = retrain([place.base], tmp_path / "new", store=tmp_path / "new" / "store.db", dry_run=True)
    assert made.outcome is RetrainOutcome.WOULD_TRAIN
    assert not (tmp_path / "new").exists()


def test_observations_are_trained_on_once_while_the_server_keeps_running(place: Place) -> None:
    made = retrain([place.base], place.work, store=place.store, models=CHEAP_MODELS)
    assert made.outcome in (RetrainOutcome.PUBLISHED, RetrainOutcome.REFUSED)
    assert made.trained is not None
    assert made.trained.verdict.against.startswith("champion version 1")
    with mlflow_connection(place.work):
        text = mlflow.artifacts.load_text(f"runs:/{made.trained.run_id}/drift.md")
        client = mlflow.MlflowClient()
        run, champion = client.get_run(made.trained.run_id), client.get_model_version(MODEL, "1")
        drifted = client.get_metric_history(champion.run_id, "site_pairs_drifted_share")
        ratio = client.get_run(champion.run_id).data.metrics["site_observed_to_expected"]
    assert "4 of 4 observed pairs" in text
    assert ": drift: 4 of 4 observed pairs" in champion.tags["drift"]
    assert [(each.step, each.value) for each in drifted] == [(0, 1.0)]
    assert ratio == pytest.approx(FACTOR, rel=0.02)
    assert run.info.run_name.startswith("retrain sparse, observed · ")
    assert {one.dataset.name for one in run.inputs.dataset_inputs} == {"sparse", "observed"}

    again = retrain([place.base], place.work, store=place.store, models=CHEAP_MODELS)
    assert again.outcome is RetrainOutcome.NOTHING_NEW
    assert made.outcome.value in again.reason
    # An entry of the log that teaches nothing about pairs is nothing new.
    alone = Progress(
        observation_id="alone",
        job_id="j",
        workload="nobody",
        device_type="cpu-core",
        slowdown=1.0,
        start_s=0.0,
        end_s=1.0,
    )
    place.server.observations.append([NewObservation(observation=alone)], 2e9)
    assert (
        retrain([place.base], place.work, store=place.store, models=CHEAP_MODELS).outcome is RetrainOutcome.NOTHING_NEW
    )
    # A note that was destroyed costs a training, nothing else.
    (place.work / "retrain" / "state.json").write_text("{")
    dry = retrain([place.base], place.work, store=place.store, models=CHEAP_MODELS, dry_run=True)
    assert dry.outcome is RetrainOutcome.WOULD_TRAIN


def test_a_refused_challenger_changes_nothing_that_is_served(place: Place, small_folder: Path) -> None:
    before = contents(champion_folder(place.work))
    made = retrain([place.base, small_folder], place.work, store=place.store, models=ONLY_MEAN)
    assert made.outcome is RetrainOutcome.REFUSED
    assert made.reason.startswith("refused: worse than champion version ")
    assert " rows unseen by both in " in made.reason
    assert made.folder is None
    assert contents(champion_folder(place.work)) == before
    assert retrain([place.base, small_folder], place.work, store=place.store, models=ONLY_MEAN).outcome is (
        RetrainOutcome.NOTHING_NEW
    )


def test_a_missing_champion_is_trained_again(sparse_folder: Path, tmp_path: Path) -> None:
    def run() -> RetrainOutcome:
        return retrain([sparse_folder], tmp_path, store=tmp_path / "store.db", models=CHEAP_MODELS).outcome

    assert [run(), run()] == [RetrainOutcome.PUBLISHED, RetrainOutcome.NOTHING_NEW]
    shutil.rmtree(champion_folder(tmp_path))
    assert run() is RetrainOutcome.PUBLISHED
    assert champion_folder(tmp_path).exists()


def test_each_outcome_has_its_exit_status() -> None:
    assert set(EXIT_STATUS) == set(RetrainOutcome)
    assert [
        EXIT_STATUS[one] for one in (RetrainOutcome.PUBLISHED, RetrainOutcome.NOTHING_NEW, RetrainOutcome.REFUSED)
    ] == [0, 0, 3]
    assert EXIT_BUSY == 4


def test_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(small_folder: Path, tmp_path: Path) -> None:
    work, lock = tmp_path / "work", tmp_path / "work" / "retrain" / "lock"
    command = [sys.executable, "-P", "-m", "interfere", "retrain", "--data", str(small_folder), "--work", str(work)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        try:
            wait_until(lambda: first.poll() is not None or (lock.exists() and lock.read_text()), "the lock")
            second = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=240)
            assert first.poll() is None, "the first must still be at work"
        finally:
            first.kill()
    assert second.returncode == EXIT_BUSY
    assert f"process {first.pid}" in second.stderr
    assert json.loads(second.stdout)["outcome"] == "busy"
    assert not champion_folder(work).exists()
    made = retrain([small_folder], work, store=work / "store.db", models=CHEAP_MODELS)
    assert made.outcome is RetrainOutcome.PUBLISHED


def test_a_dry_run_too_is_refused_while_another_run_is_at_work(small_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "retrain").mkdir()
    (tmp_path / "retrain" / "lock").write_text("4711")
    descriptor = os.open(tmp_path / "retrain" / "lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(BusyError, match="process 4711"):
            retrain([small_folder], tmp_path, store=tmp_path / "store.db", dry_run=True)
    finally:
        os.close(descriptor)


def test_a_broken_base_table_stops_the_run_and_nothing_is_recorded(small_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("jobs.parquet", "pairs.parquet"):
        (broken / name).write_bytes((small_folder / name).read_bytes()[:200])
    with pytest.raises(TableError, match=r"jobs\.parquet"):
        retrain([broken], tmp_path / "work", store=tmp_path / "store.db")
    assert not (tmp_path / "work" / "retrain" / "state.json").exists()
