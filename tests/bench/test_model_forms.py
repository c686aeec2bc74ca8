"""What a pair costs each of the four models, alone, in a list and in a matrix: CPU microseconds of one core."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.data.loading import load_table
from interfere.features.pair import FeatureEncoder
from interfere.predict.graphs import ModelGraphs
from interfere.training.dataset import build_dataset
from interfere.training.models.catalogue import FEATURE_MODELS, MODELS
from interfere.training.models.completed import export_matrix_graph, export_pair_graph
from interfere.training.publishing.publication import matrix_limit, pair_cost_us
from tests.bench.history import record
from tests.serving.one_answer import different_jobs

pytestmark = pytest.mark.bench
JOBS_OF_MATRIX = {True: 1000, False: 200}  # by whether the model factorises
MAX_COST_RATIO = 4.0  # of what a pair takes here to the estimate that the matrix limit is derived from


@pytest.mark.parametrize("name", [model.name for model in FEATURE_MODELS])
def test_a_pair_alone_in_a_list_and_in_a_matrix(name: str, tmp_path: Path) -> None:
    encoder, table = FeatureEncoder(), load_table("cpu")
    dataset = build_dataset([table], encoder)
    model = MODELS[name].fit(dataset, 0)
    limit = matrix_limit(model, dataset)
    (tmp_path / "pair.onnx").write_bytes(export_pair_graph(model, dataset, encoder).content)
    if limit is None:
        (tmp_path / "matrix.onnx").write_bytes(export_matrix_graph(model, dataset, encoder).content)
    graphs = ModelGraphs(tmp_path, encoder, factorises=limit is None)
    # Fresh jobs for every call: processors learn a repeated batch by heart.
    domain, n = dataset.domains[0], JOBS_OF_MATRIX[limit is None]
    known = [replace(job, kernels=()) for job in table.jobs]
    sets = [encoder.encode_jobs(different_jobs(known, n, seed), domain.device_type, domain.mode) for seed in range(3)]
    sets = [np.nan_to_num(jobs) for jobs in sets]
    every, unknown = np.arange(n), np.zeros(n, dtype=np.int64)
    i, j = np.repeat(every, n)[:20_000], np.tile(every, n)[:20_000]

    matrix_us = cpu_us([lambda jobs=jobs: graphs.run_matrix(jobs, unknown, 1, every, every) for jobs in sets])
    list_us = cpu_us([lambda jobs=jobs: graphs.run_pairs(jobs, unknown, 1, i, j) for jobs in sets])
    alone = [
        lambda k=k: graphs.run_pairs(sets[1][k : k + 2], unknown[:2], 1, every[:1], every[1:2]) for k in range(n - 1)
    ]
    figures = {
        "matrix_us_a_pair": matrix_us / ((2 if limit is None else 1) * n * n),
        "list_us_a_pair": list_us / len(i),
        "alone_us": cpu_us(alone),
        **({} if limit is None else {"estimate_us": pair_cost_us(model), "limit_pairs": limit.pairs}),
    }
    print(record(f"model forms {name}", figures)["figures"])
    if limit is None:
        assert figures["matrix_us_a_pair"] < figures["list_us_a_pair"] / 2
    else:
        assert figures["matrix_us_a_pair"] < MAX_COST_RATIO * figures["estimate_us"]


def cpu_us(calls: list[Callable[[], object]]) -> float:
    """Median CPU time of a call, in microseconds, after the first."""
    calls[0]()
    times = []
    for call in calls[1:]:
        start_s = time.process_time()
        call()
        times.append(time.process_time() - start_s)
    return 1e6 * float(np.median(times))
