"""Trees over the columns of single jobs answer a matrix exactly as they answer its pairs, and so does the ensemble."""

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.predict.graphs import open_session
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.completed import (
    CompletedModel,
    export_matrix_graph,
    export_pair_graph,
    jobs_of_rows,
    random_jobs,
)
from interfere.training.models.ensemble import FACTORISING_TREES, EnsembleModel
from interfere.training.models.gbdt import ABSENT, FittedGbdt, GbdtModel
from interfere.training.models.gp.model import GpModel
from interfere.training.models.onnx_graph import run_matrix_graph, run_pair_graph


@pytest.fixture(scope="module")
def trees(small_dataset: Dataset) -> FittedGbdt:
    return FACTORISING_TREES.fit(small_dataset, 0)


def test_jobs_on_thresholds_take_the_same_branches_in_a_matrix(trees: FittedGbdt, small_dataset: Dataset) -> None:
    victims, neighbours = jobs_of_rows(trees.threshold_rows(small_dataset.rows))
    victims, neighbours = victims[:150], neighbours[-150:]
    session = open_session(trees.factors(len(small_dataset.job_columns)).matrix_graph(ABSENT))
    ids = np.zeros(150, dtype=np.int64)
    log_victim, log_neighbour = run_matrix_graph(session, victims, ids, neighbours, ids, 0)
    i, j = (side.ravel() for side in np.indices((150, 150)))
    for answer, victim, neighbour in (
        (log_victim, victims[i], neighbours[j]),
        (log_neighbour, neighbours[j], victims[i]),
    ):
        pairs = FeatureEncoder().encode_pairs(victim, neighbour)
        rows = PairRows(pairs=pairs, victim=ids[:1].repeat(len(i)), neighbour=ids[:1].repeat(len(i)), domain=i * 0)
        np.testing.assert_allclose(answer.ravel(), trees.predict(rows), atol=1e-5)
    assert np.ptp(log_victim) > 0.1


def test_trees_that_read_columns_of_the_pair_have_no_factors(small_dataset: Dataset) -> None:
    with pytest.raises(AssertionError, match="no column of the pair"):
        GbdtModel(rounds=2).fit(small_dataset, 0).factors(len(small_dataset.job_columns))


@pytest.mark.journey  # two exports by torch
def test_the_ensemble_answers_a_matrix_as_its_pairs(small_dataset: Dataset, encoder: FeatureEncoder) -> None:
    fitted = CompletedModel(inner=EnsembleModel(gp=GpModel(steps=3))).fit(small_dataset, 0)
    pair = export_pair_graph(fitted, small_dataset, encoder)
    matrix = export_matrix_graph(fitted, small_dataset, encoder)
    assert pair.max_error <= 1e-5 >= matrix.max_error
    drawn, ids = random_jobs(small_dataset, 5)
    known = jobs_of_rows(small_dataset.rows)[0][: len(ids)]
    jobs, ids = fitted.completion.complete(np.concatenate([drawn, known]))[0], np.concatenate([ids, ids])
    log_victim, _ = run_matrix_graph(open_session(matrix.content), jobs, ids, jobs, ids, 1)
    i, j = (side.ravel() for side in np.indices((len(jobs), len(jobs))))
    rows = PairRows(
        pairs=encoder.encode_pairs(jobs[i], jobs[j]), victim=ids[i], neighbour=ids[j], domain=np.ones_like(i)
    )
    np.testing.assert_allclose(run_pair_graph(open_session(pair.content), rows), log_victim.ravel(), atol=1e-5)
    assert np.ptp(fitted.inner.novelty(rows)) > 0.3  # both members had a say
