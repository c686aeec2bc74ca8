"""A table of another sharing mode becomes a model, a server's answers and a replay in that mode, and in no other."""

from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.data.loading import shipped_table
from interfere.data.tables import Table, read_table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.records import (
    IMPORTANT_NEIGHBOUR,
    IMPORTANT_VICTIM,
    ActionKind,
    Device,
    Job,
    PairStatus,
    Snapshot,
    Source,
)
from interfere.serving.server import start_server
from interfere.sim.truth import truth_of
from interfere.training.dataset import build_dataset, read_source_tables
from interfere.training.evaluation.candidates import REQUEST, Candidates
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.additive import AdditiveModel
from interfere.training.publishing.publication import build_publication, publish


@pytest.fixture(scope="module")
def spatial(small: Table) -> Table:
    """The slowdowns of the small table as if they were measured with a core for each job."""
    return replace(small, name="spatial", pairs=tuple(replace(pair, mode="spatial") for pair in small.pairs))


def published(table: Table, folder: Path) -> Path:
    """A model folder of the additive model, fitted on the table."""
    write_table(folder / "table", table)
    source, dataset = read_source_tables([folder / "table"]), build_dataset([table], FeatureEncoder())
    evaluations = evaluate_models(dataset, [AdditiveModel()])
    candidates = Candidates(
        dataset=dataset,
        settings={"additive": AdditiveModel()},
        fitted={"additive": AdditiveModel().fit(dataset, 0)},
        evaluations=tuple(replace(each, model="additive") for each in evaluations),
        champion="additive",
        selected_by=REQUEST,
        seed=0,
    )
    publish(folder / "model", build_publication(candidates, source, FeatureEncoder()))
    return folder / "model"


def test_a_spatial_table_is_trained_served_matched_and_replayed_in_its_mode(spatial: Table, tmp_path: Path) -> None:
    folder = published(spatial, tmp_path)
    pair = next(pair for pair in spatial.ok_pairs if pair.victim != pair.neighbour)
    jobs = (Job(id="new", workload=pair.victim), Job(id="there", workload=pair.neighbour))
    device = Device(id="d", type="cpu-core", residents=(jobs[1],))
    settings = Settings(model=folder, work=tmp_path / "served", port=0, grace_s=1.0, decision_workers=0)
    server = start_server(settings)
    try:
        with PolicyClient(server.address) as client:
            names = [pair.victim, pair.neighbour]
            said = client.predict(names, pairs=[(0, 1)], device_type="cpu-core", mode="spatial").prediction
            other = client.predict(names, pairs=[(0, 1)], device_type="cpu-core", mode="timeslice").prediction
            free, named = (
                client.match(Snapshot(pending=jobs[:1], devices=(replace(device, mode=mode),))).actions[0]
                for mode in ("", "spatial")
            )
            refused = client.match(Snapshot(pending=jobs[:1], devices=(replace(device, mode="timeslice"),))).actions[0]
    finally:
        server.stop()
    assert said.source == (Source.MEASURED,)
    assert said.median[0] == pytest.approx(pair.slowdown, rel=1e-3)
    assert other.source == (Source.ABSTAINED,)
    assert "cpu-core/timeslice" in other.reason[0]
    assert free.kind is named.kind
    assert free.kind in (ActionKind.START_SHARED, ActionKind.WAIT)
    if free.kind is ActionKind.START_SHARED:
        assert "sharing mode spatial" in free.reason
    assert refused.kind is ActionKind.WAIT
    assert truth_of(spatial).mode == "spatial"


def test_the_shipped_table_of_two_priorities_is_served_in_its_mode_between_both_roles(tmp_path: Path) -> None:
    table = read_table(shipped_table("cpu-priority"))
    roles = {(pair.victim, pair.neighbour, pair.important): pair.slowdown for pair in table.ok_pairs}
    first, behind = (roles["gpt-decode", "resnet-input", role] for role in (IMPORTANT_VICTIM, IMPORTANT_NEIGHBOUR))
    assert first < 1.2 < behind
    settings = Settings(model=published(table, tmp_path), work=tmp_path / "served", port=0, grace_s=1.0)
    server = start_server(settings)
    try:
        with PolicyClient(server.address) as client:
            names = ["gpt-decode", "resnet-input"]
            said = client.predict(names, pairs=[(0, 1)], device_type="cpu-core", mode="priority").prediction
            other = client.predict(names, pairs=[(0, 1)], device_type="cpu-core", mode="timeslice").prediction
    finally:
        server.stop()
    assert said.source == (Source.MEASURED,)
    assert first < said.median[0] < behind
    assert said.lower[0] < first
    assert behind < said.upper[0]
    assert other.source == (Source.ABSTAINED,)
    assert truth_of(table).mode == "priority"


def test_a_mode_that_was_added_later_leaves_the_columns_of_models_as_they_are(spatial: Table) -> None:
    encoder = FeatureEncoder()
    rows = {mode: encoder.encode_jobs(spatial.jobs[:1], "cpu-core", mode)[0] for mode in ("timeslice", "spatial")}
    different = [k for k in range(len(encoder.job_names)) if rows["timeslice"][k] != rows["spatial"][k]]
    names = [encoder.job_names[k] for k in different if rows["timeslice"][k] == rows["timeslice"][k]]
    assert names == ["mode_timeslice"], "spatial is the mode without a column of its own"


def test_who_was_important_is_averaged_over_with_an_interval_that_covers_both(small: Table) -> None:
    before = tuple(
        replace(pair, mode="priority", important=IMPORTANT_VICTIM, slowdown=1.1, lower=1.0, upper=1.2)
        for pair in small.ok_pairs
    )
    behind = tuple(replace(p, important=IMPORTANT_NEIGHBOUR, slowdown=4.4, lower=4.0, upper=5.0) for p in before)
    table = replace(small, name="priority", pairs=(*before, *behind))
    dataset = build_dataset([table], FeatureEncoder())
    assert len(dataset.log_slowdown) == len(before)
    assert (dataset.lower.min(), dataset.upper.max()) == (1.0, 5.0)
    assert truth_of(table).table[0, 1] == pytest.approx(2.2)
    lost = replace(
        behind[0], status=PairStatus.UNSTABLE, reason="clock", slowdown=float("nan"), lower=float("nan"), passes=()
    )
    half = replace(table, pairs=(*before, lost, *behind[1:]))
    assert len(build_dataset([half], FeatureEncoder()).log_slowdown) == len(before) - 1, (
        "one role alone says too little"
    )
