"""Models of latencies: learned from their own rows, published in the folder, served beside the model of steps."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.data.tables import Table, write_table
from interfere.errors import InvalidInputError, ModelError
from interfere.features.pair import FeatureEncoder
from interfere.records import Device, Job, Limits, Snapshot
from interfere.serving.server import start_server
from interfere.serving.state import load_served_model
from interfere.study.engine import Runner
from interfere.training.dataset import read_source_tables
from interfere.training.pipeline import latency_publications, train
from tests.training.cheap_models import CHEAP_MODELS
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.journey
# Of the table that the tests write: latencies are slowed down by a power of what steps are.
POWER = {"latency_p50": 1.5, "latency_p99": 3.0}
P99_STEPS = 2.0  # the p99 of a service alone, in times of its step


@pytest.fixture(scope="module")
def table(small: Table) -> Table:
    """The small table, in which half of the jobs are services with latencies."""
    services = sorted({job.workload for job in small.jobs})[::2]
    rows = [
        replace(row, metric=metric, slowdown=row.slowdown**power, lower=row.lower**power, upper=row.upper**power)
        for metric, power in POWER.items()
        for row in small.pairs
        if row.victim in services
    ]
    jobs = [
        replace(job, latency_p99_s=P99_STEPS * job.step_time_s) if job.workload in services else job
        for job in small.jobs
    ]
    return replace(small, name="services", jobs=tuple(jobs), pairs=(*small.pairs, *rows))


@pytest.fixture(scope="module")
def folder(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that a training on the table publishes."""
    work = tmp_path_factory.mktemp("latencies")
    (work / "services").mkdir()
    write_table(work / "services", table)
    return train([work / "services"], work / "work", models=CHEAP_MODELS).folder


def test_latencies_are_predicted_on_the_wire_and_steps_are_as_without_them(
    folder: Path, table: Table, small_folder: Path, tmp_path: Path
) -> None:
    steps_alone = train([small_folder], tmp_path / "steps", models=CHEAP_MODELS).folder
    names = sorted({row.victim for row in table.pairs if row.metric == "latency_p99"})
    neighbours = sorted({row.neighbour for row in table.pairs})
    measured = {(row.victim, row.neighbour, row.metric): row.slowdown for row in table.ok_pairs}
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names), len(names) + len(neighbours))]
    answers = {}
    for model in (folder, steps_alone):
        settings = Settings(model=model, work=tmp_path / model.parent.name / "served", port=0, decision_workers=0)
        server = start_server(settings)
        with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
            for metric in ("", "step_time_mean", *(POWER if model == folder else ())):
                asked = client.predict([*names, *neighbours], pairs=pairs, metric=metric)
                answers[model, metric] = asked.prediction.median
            known = {each.metric for each in client.model().domains}
            assert known == ({"step_time_mean", *POWER} if model == folder else {"step_time_mean"})
            with pytest.raises(InvalidInputError, match="step_time_mean"):
                client.predict(names[:2], metric="latency_p95")
            if model == folder:
                assert_p99_judges_targets(client, table)
                with pytest.raises(InvalidInputError, match="groups"):
                    client.predict([*names, *neighbours], pairs=[(0, 3, 4)], metric="latency_p99")
        server.stop()
    of_pair = [(names[i], ([*names, *neighbours])[j]) for i, j in pairs]
    for metric in POWER:
        np.testing.assert_allclose(answers[folder, metric], [measured[*pair, metric] for pair in of_pair], rtol=1e-6)
    assert (answers[folder, ""] == answers[folder, "step_time_mean"]).all()
    assert (answers[folder, ""] == answers[steps_alone, ""]).all()


def assert_p99_judges_targets(client: PolicyClient, table: Table) -> None:
    """A service shares a device where its measured p99 keeps its target, and not where its mean alone does."""
    row = max((row for row in table.pairs if row.metric == "latency_p99"), key=lambda row: row.slowdown)
    (step_s,) = {job.step_time_s for job in table.jobs if job.workload == row.victim}
    p99_s, mean_s = row.slowdown * P99_STEPS * step_s, row.slowdown ** (1 / POWER["latency_p99"]) * step_s
    limits = Limits.of(risk=0.5, min_joint_throughput=0.0)
    for target_s, joins in ((1.01 * p99_s, True), (0.99 * p99_s, False), (1.5 * mean_s, False)):
        job = Job(id="api", workload=row.victim, latency_target_s=target_s)
        device = Device(id="d", type=row.device_type, residents=(Job(id="host", workload=row.neighbour),))
        plan = client.match(Snapshot(pending=(job,), devices=(device,), limits=limits))
        (ranking,) = client.rank(job, (device,), limits=limits).rankings
        assert (plan.actions[0].kind == "start_shared", ranking.feasible) == (joins, joins)
        if not joins:
            assert "the p99 of api could be" in ranking.reason
            assert plan.refused[0].rule.detail == "latency_p99"


def test_a_model_of_latencies_of_another_training_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    assert set(load_served_model(tmp_path / "model").latencies) == set(POWER)
    shutil.rmtree(tmp_path / "model" / "latency_p99")
    shutil.copytree(folder / "latency_p50", tmp_path / "model" / "latency_p99")
    with pytest.raises(ModelError):
        load_served_model(tmp_path / "model")
    shutil.rmtree(tmp_path / "model" / "latency_p99")
    with pytest.raises(ModelError):
        load_served_model(tmp_path / "model")


def test_the_version_is_another_with_other_latencies(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["latencies"]) == set(POWER)
    (edited := tmp_path / "model").mkdir()
    shutil.copytree(folder, edited, dirs_exist_ok=True)
    manifest["latencies"]["latency_p99"] = manifest["latencies"]["latency_p50"]
    (edited / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="version"):
        load_served_model(edited)


def test_a_metric_with_too_few_rows_is_reported_and_left_out(table: Table, tmp_path: Path) -> None:
    rows = [row for row in table.pairs if row.metric != "step_time_mean"]
    few = replace(table, pairs=(*(row for row in table.pairs if row not in rows), *rows[:2]))
    (tmp_path / "few").mkdir()
    write_table(tmp_path / "few", few)
    told: list[str] = []
    source = read_source_tables([tmp_path / "few"])
    runner = Runner(report=told.append)
    assert latency_publications(source, FeatureEncoder(), CHEAP_MODELS, seed=0, runner=runner) == {}
    assert any("latency_p50 is not learned from 2 rows" in line for line in told)
