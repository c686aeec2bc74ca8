"""What an onboarding reports of every pair is what the model that it published answers, over gRPC as well.

The example's eight programs, 12 of whose 36 pairs are measured, on their recorded table; the server is a real one.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.data.loading import shipped_table
from interfere.data.tables import write_table
from interfere.errors import TableError
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.predict.transfer.first_predictions import FILE, predict_first, read_first_predictions
from interfere.predict.transfer.pair_belief import site_belief, site_profiles
from interfere.records import PairBatch
from interfere.serving.server import start_server
from interfere.training.beliefs import BeliefComparison, combined_quantiles, read_table_beliefs, with_beliefs
from interfere.training.dataset import PairRows, build_dataset, hold_out, read_source_tables
from interfere.training.evaluation.candidates import train_candidates
from interfere.training.evaluation.interval_calibration import LEVELS
from interfere.training.models.additive import AdditiveModel
from interfere.training.models.catalogue import MODELS
from interfere.training.onboarding import (
    Measured,
    OnboardedPair,
    believed_answers,
    measure_site,
    published_answers,
    read_batches,
)
from interfere.training.pipeline import train
from interfere.training.publishing.publication import build_publication, publish
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.onboarding.recorded import SHIPPED_MODEL, recorded_table, replay_of, replayed_config

PAIRS, RTOL, DEVICE, MODE = 12, 1e-5, "cpu-core", "timeslice"
# Of the 24 pairs left: .06 at most, and 1.3 times the error of each pair predicted by the belief from all 35 others.
MAX_ERROR, MAX_RATIO, MIN_COVERAGE = 0.06, 1.3, 0.85


@dataclass(frozen=True)
class Published:
    """An onboarding after it published a model."""

    folder: Path
    table: Path
    measured: Measured
    comparison: BeliefComparison
    answers: tuple[OnboardedPair, ...]

    @property
    def matrix(self) -> np.ndarray:
        n = len(self.measured.known.jobs)
        return np.array([each.slowdown for each in self.answers]).reshape(n, n)


def measured_in(table: Path) -> Measured:
    """Twelve measured pairs, in the folder of their table."""
    measured = measure_site(replayed_config(table, PAIRS), lambda _: None, lambda _: None, replay_of(recorded_table()))
    write_table(table, measured.table)
    return measured


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Published with an additive model, as training does, but without a registry."""
    folder, encoder = tmp_path_factory.mktemp("onboarded"), FeatureEncoder()
    measured = measured_in(folder / "site")
    paths = (shipped_table("cpu"), folder / "site")
    source = read_source_tables(paths)
    dataset, nothing = hold_out(build_dataset(source.tables, encoder), frozenset())
    candidates = train_candidates(dataset, nothing, CHEAP_MODELS, seed=0, requested="additive")
    beliefs = read_table_beliefs(paths, source.tables)
    believed = with_beliefs(candidates, nothing, beliefs, source.tables)
    made = build_publication(
        believed.candidates, source, encoder, pair_intervals=believed.pairs, comparisons=believed.comparisons
    )
    publish(folder / "model", made)
    answers = published_answers(folder / "model", measured.known.jobs, DEVICE, MODE)
    return Published(folder / "model", folder / "site", measured, believed.comparisons[0], answers)


@pytest.fixture(scope="module")
def client(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyClient]:
    work = tmp_path_factory.mktemp("served")
    server = start_server(Settings(model=published.folder, work=work, port=0, decision_workers=0))
    try:
        with PolicyClient(server.address, timeout_s=60.0) as connected:
            yield connected
    finally:
        server.stop()


def test_lists_and_matrices_over_grpc_are_what_was_reported(published: Published, client: PolicyClient) -> None:
    jobs = published.measured.known.jobs
    every = [(i, j) for i in range(len(jobs)) for j in range(len(jobs))]
    listed = client.predict(jobs, pairs=every, device_type=DEVICE, mode=MODE).prediction
    for name, values in (("slowdown", listed.median), ("lower", listed.lower), ("upper", listed.upper)):
        np.testing.assert_allclose(values, [getattr(each, name) for each in published.answers], rtol=RTOL)
    assert [each.value for each in listed.source] == [each.source for each in published.answers]
    reported = published.matrix
    matrix = client.predict_matrix(jobs, jobs, device_type=DEVICE, mode=MODE).matrix
    np.testing.assert_allclose(matrix.victim_slowdown, reported, rtol=RTOL)
    np.testing.assert_allclose(matrix.neighbour_slowdown, reported.T, rtol=RTOL)
    few = client.predict_matrix(jobs[:3], jobs[2:], device_type=DEVICE, mode=MODE).matrix
    np.testing.assert_allclose(few.neighbour_slowdown, reported[2:, :3].T, rtol=RTOL)


def test_upper_ends_of_a_matrix_are_those_of_a_list(published: Published, client: PolicyClient) -> None:
    jobs = published.measured.known.jobs
    matrix = client.predict_matrix(jobs, jobs, device_type=DEVICE, mode=MODE, quantile=0.95).matrix.victim_slowdown
    upper = np.array([each.upper for each in published.answers]).reshape(matrix.shape)
    is_model = np.array([each.source == "model" for each in published.answers]).reshape(matrix.shape)
    np.testing.assert_allclose(matrix[is_model], upper[is_model], rtol=RTOL)


def test_measured_pairs_are_reported_as_measured_and_others_by_belief_and_champion(published: Published) -> None:
    known = published.measured.known
    truth = {(row.victim, row.neighbour): row.slowdown for row in recorded_table().ok_pairs}
    for each in published.answers:
        assert (each.source == "measured") == (frozenset((each.victim, each.neighbour)) in known.tried)
        if each.source == "measured":
            assert each.slowdown == pytest.approx(truth[each.victim, each.neighbour])
    # The others by the belief and the champion without it.
    comparison = published.comparison
    assert comparison.rows == sum(each.source == "measured" for each in published.answers)
    assert 0.5 < comparison.weight <= 1.0, "the additive model errs more than the belief"
    assert max(comparison.belief, comparison.combined) < comparison.champion
    champion = additive_predictions(published)
    weight = np.full(champion.shape, comparison.weight)
    expected = np.exp(combined_quantiles(LEVELS, np.log(known.quantiles(LEVELS)), champion, weight))
    is_model = np.array([each.source == "model" for each in published.answers]).reshape(champion.shape)
    np.testing.assert_allclose(published.matrix[is_model], expected[LEVELS.index(0.5)][is_model], rtol=RTOL)


def additive_predictions(published: Published) -> np.ndarray:
    """float64[n, n]: log slowdowns of the additive model, fitted anew; it reads no facts."""
    dataset = build_dataset(read_source_tables((shipped_table("cpu"), published.table)).tables, FeatureEncoder())
    jobs = published.measured.known.jobs
    victim, neighbour = (side.ravel() for side in np.indices((len(jobs), len(jobs))))
    identity = np.array([dataset.workloads.index(name) + 1 for name in jobs])
    rows = PairRows(
        pairs=np.zeros((len(victim), len(dataset.pair_columns)), dtype=np.float32),
        victim=identity[victim],
        neighbour=identity[neighbour],
        domain=np.ones(len(victim), dtype=np.int64),
    )
    return AdditiveModel().fit(dataset, 0).predict(rows).reshape(len(jobs), len(jobs))


def test_a_job_with_another_step_time_is_another_job(published: Published) -> None:
    model = load_model(published.folder, FeatureEncoder())
    jobs = [model.profiles[name, DEVICE] for name in published.measured.known.jobs]
    slower = [replace(job, step_time_s=2.0 * job.step_time_s) for job in jobs]
    width = []
    for profiles in (jobs, slower):
        pair = np.array([0]), np.array([1])
        batch = PairBatch(
            jobs=tuple(profiles), victim=pair[0], neighbour=pair[1], device_type=DEVICE, mode=MODE,
            allow_extrapolation=True,
        )  # fmt: skip
        answer = model.predict_pairs(batch)
        width.append(float(answer.upper[0] / answer.lower[0]))
    assert width[0] != pytest.approx(width[1]), "the belief's interval holds for the profiled job alone"


def test_going_on_with_the_published_model_chooses_what_would_have_been_chosen_at_once(
    published: Published, tmp_path: Path
) -> None:
    at_once, table = tmp_path / "once", recorded_table()
    expected = measure_site(replayed_config(at_once, 15), lambda _: None, lambda _: None, replay_of(table)).known
    batches = read_batches(at_once).batches
    assert batches[:4] == read_batches(published.table).batches
    # The same folder, while the model that was trained on its pairs is served.
    in_two = tmp_path / "twice"
    in_two.mkdir()
    for name in (FILE, "onboarding.json"):
        (in_two / name).write_bytes((published.table / name).read_bytes())
    config = replace(replayed_config(in_two, 15), model=published.folder)
    went_on = measure_site(config, lambda _: None, lambda _: None, replay_of(table)).known
    assert read_batches(in_two).batches == batches
    np.testing.assert_array_equal(went_on.slowdowns, expected.slowdowns)


def test_first_predictions_are_kept_for_known_jobs_and_made_for_new_ones(published: Published, tmp_path: Path) -> None:
    table, model = recorded_table(), load_model(SHIPPED_MODEL, FeatureEncoder())
    profiles = site_profiles(table, DEVICE)
    first = read_first_predictions(published.table)
    assert first is not None
    assert (first.jobs, first.models) == (tuple(job.workload for job in profiles), (model.version,))
    of_five = predict_first(None, model, profiles[:5], DEVICE, MODE)
    changed = replace(of_five, log_slowdown=of_five.log_slowdown + 1.0, models=("other",))
    of_all = predict_first(changed, model, profiles, DEVICE, MODE)
    np.testing.assert_array_equal(of_all.log_slowdown[:5, :5], of_five.log_slowdown + 1.0)
    # Two computations: a sum of floats may differ in its last bit by where its terms lie in memory.
    np.testing.assert_allclose(of_all.log_slowdown[5:], first.log_slowdown[5:], rtol=1e-12)
    assert of_all.models == ("other", model.version)
    assert predict_first(of_all, model, profiles[2:], DEVICE, MODE) is of_all
    (tmp_path / FILE).write_text(json.dumps({"jobs": ["a"], "log_slowdown": [[None]]}))
    with pytest.raises(TableError, match="not a file that onboarding wrote"):
        read_first_predictions(tmp_path)


def test_first_predictions_of_other_jobs_than_the_tables_are_none_of_it(published: Published) -> None:
    table = recorded_table()
    (belief,) = read_table_beliefs([published.table], [table])
    assert belief.space.jobs == published.measured.known.jobs
    (of_seven,) = read_table_beliefs([published.table], [replace(table, jobs=table.jobs[1:])])
    assert len(of_seven.space.jobs) == 7
    other = replace(table, jobs=tuple(replace(job, workload=f"new {job.workload}") for job in table.jobs))
    assert read_table_beliefs([published.table], [other]) == ()


def test_without_a_model_the_measurements_and_the_belief_are_reported(published: Published) -> None:
    known = published.measured.known
    answers = believed_answers(known)
    assert {each.source for each in answers} == {"measured", "belief"}
    assert all(
        known.measured[each.victim, each.neighbour] == each.slowdown for each in answers if each.source != "belief"
    )


@pytest.mark.journey
@pytest.mark.timeout(600)
def test_the_published_model_knows_the_other_pairs_nearly_as_well_as_all_pairs_would(tmp_path: Path) -> None:
    names, table = ("mean", "additive", "ensemble"), tmp_path / "site"
    jobs = measured_in(table).known.jobs
    models = {name: MODELS[name] for name in names}
    trained = train([shipped_table("cpu"), table], tmp_path / "work", models=models)
    assert trained.champion == "ensemble"
    answers = published_answers(trained.folder, jobs, DEVICE, MODE)
    truth = {(row.victim, row.neighbour): row.slowdown for row in recorded_table().ok_pairs}
    others = [each for each in answers if each.source == "model"]
    assert len({frozenset((each.victim, each.neighbour)) for each in others}) == 36 - PAIRS
    errors = [abs(1 / each.slowdown - 1 / truth[each.victim, each.neighbour]) for each in others]
    inside = [each.lower <= truth[each.victim, each.neighbour] <= each.upper for each in others]
    model = load_model(SHIPPED_MODEL, FeatureEncoder())
    complete = site_belief(recorded_table(), model, device_type=DEVICE, mode=MODE).hidden_pair_score()
    assert np.mean(errors) <= min(MAX_ERROR, MAX_RATIO * complete.speed_error)
    assert np.mean(inside) >= MIN_COVERAGE
