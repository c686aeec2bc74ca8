"""The feasibility model learns from pairs that failed for want of memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.data.tables import Table, write_table
from interfere.devices import find_device_type
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.records import PairBatch, PairMeasurement, PairStatus
from interfere.training.dataset import METRIC, build_dataset, read_source_tables
from interfere.training.evaluation.candidates import GATE, Candidates
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.leaderboard import out_of_fold_auc
from interfere.training.models.catalogue import MODELS
from interfere.training.models.feasibility import MIN_EITHER, FeasibilityRows, feasibility_rows, fit_feasibility
from interfere.training.publishing.publication import build_publication, publish
from tests.tables import matrix_batch
from tests.training.worlds import measurement, profile

GPU = "v100"
GIB = 2.0**30


def world(count: int = 8, *, hidden_bytes: float = 0.0) -> Table:
    """w0 has 2 GiB, each next one 1.5 more; w3 holds `hidden_bytes` that its profile does not tell."""
    peaks = [(2 + 1.5 * k) * GIB for k in range(count)]
    true = [p + (hidden_bytes if k == 3 else 0) for k, p in enumerate(peaks)]
    jobs = tuple(replace(profile(f"w{k}", k, GPU), memory_peak_bytes=p) for k, p in enumerate(peaks))
    capacity = find_device_type(GPU).memory_bytes

    def row(i: int, j: int) -> PairMeasurement:
        where = {"victim": f"w{i}", "neighbour": f"w{j}", "device_type": GPU, "mode": "mps"}
        if true[i] + true[j] <= capacity:
            return measurement(f"w{i}", f"w{j}", 1.1 + 0.05 * i + 0.03 * j, device_type=GPU, mode="mps")
        return PairMeasurement(**where, status=PairStatus.INFEASIBLE, reason="out of memory")

    return Table(name="memory", jobs=jobs, pairs=tuple(row(i, j) for i in range(count) for j in range(count)))


def rows(table: Table) -> FeasibilityRows:
    return feasibility_rows([table], FeatureEncoder(), metric=METRIC)


def test_infeasible_pairs_are_rows_without_a_slowdown() -> None:
    made = rows(world())
    assert len(made.dataset) == 64
    assert 0 < (~made.feasible).sum() < 64
    assert np.isnan(made.dataset.log_slowdown[~made.feasible]).all()


def test_memory_beyond_the_profile_is_learned_as_the_effect_of_its_job() -> None:
    plain, hidden = fit_feasibility(rows(world())), fit_feasibility(rows(world(hidden_bytes=6 * GIB)))
    assert plain is not None
    assert hidden is not None
    assert hidden.effect[4] < plain.effect[4] - 0.3  # identity of w3
    assert hidden.effect[4] == hidden.effect.min()
    assert hidden.effect[0] == 0.0


def test_pairs_that_fit_rank_above_pairs_that_do_not_out_of_fold() -> None:
    made = rows(world(hidden_bytes=6 * GIB))
    own, by_sum = out_of_fold_auc(made, "pair", 0)
    assert own > by_sum > 0.9
    assert out_of_fold_auc(rows(world(count=3)), "pair", 0) == pytest.approx((np.nan, np.nan), nan_ok=True)


def test_with_too_few_infeasible_pairs_no_model_is_fitted() -> None:
    made = rows(world(hidden_bytes=6 * GIB))
    few = made.take(np.concatenate([np.flatnonzero(made.feasible), np.flatnonzero(~made.feasible)[: MIN_EITHER - 1]]))
    assert fit_feasibility(few) is None


def test_the_served_model_answers_with_the_learned_probability(tmp_path: Path) -> None:
    table, encoder, folder = world(hidden_bytes=6 * GIB), FeatureEncoder(), tmp_path / "table"
    folder.mkdir()
    write_table(folder, table)
    dataset = build_dataset([table], encoder)
    final = {name: MODELS[name].fit(dataset, 0) for name in ("mean",)}
    evaluations = evaluate_models(dataset, [MODELS["mean"]])
    source = read_source_tables([folder])
    candidates = Candidates(
        dataset=dataset,
        settings=MODELS,
        fitted=final,
        evaluations=evaluations,
        champion="mean",
        selected_by=GATE,
        seed=0,
    )
    made = build_publication(candidates, source, encoder)
    publish(tmp_path / "model", made)
    model, fitted = load_model(tmp_path / "model", encoder), fit_feasibility(rows(table))
    assert fitted is not None
    both = tuple(table.jobs[k] for k in (2, 3))
    capacity = find_device_type(GPU).memory_bytes
    answer = model.predict_pairs(
        PairBatch(
            jobs=both,
            victim=np.array([0, 1]),
            neighbour=np.array([1, 0]),
            device_type=GPU,
            mode="mps",
            device_memory_bytes=capacity,
        )
    )
    share = np.array([sum(job.memory_peak_bytes for job in both) / capacity])
    expected = fitted.probability(share, np.array([3]), np.array([4]))[0]
    assert 0 < expected < 1
    assert answer.feasibility.tolist() == pytest.approx([expected] * 2)
    matrix = model.predict_matrix(matrix_batch(both, device_type=GPU, mode="mps", device_memory_bytes=capacity))
    assert matrix.feasible[0, 1] == (expected >= 0.5)


def test_without_known_memory_no_model_is_fitted() -> None:
    table = world()
    blind = replace(table, jobs=tuple(replace(job, memory_peak_bytes=float("nan")) for job in table.jobs))
    assert fit_feasibility(rows(blind)) is None
    assert np.isnan(out_of_fold_auc(rows(blind), "pair", 0)[0])
