"""Timelines against measurements: a shared core; and how far means by identity are from real kernels."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from interfere.data.importers.kernels.csv_exports import ORION
from interfere.data.loading import shipped_table
from interfere.data.tables import read_table
from interfere.features.pair import FeatureEncoder
from interfere.timeline.kernel_schedulers import (
    EevdfScheduler,
    TimeSliceScheduler,
)
from interfere.timeline.streams import KernelScheduler
from interfere.timeline.timelines import (
    Timeline,
)
from interfere.training.dataset import build_dataset
from interfere.training.evaluation.splits import folds
from interfere.training.models.gbdt import GbdtModel
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.timeline.examples import replayed_slowdowns, run_time_error, timeline_from_launches

ADDITIVE_MAE = 0.093  # results, `interfere evaluate --data cpu`, unseen job: speed, fitted to the other jobs' pairs


def _errors(replayed: NDArray[np.float64], measured: NDArray[np.float64]) -> dict[str, float]:
    return {
        "spearman": float(spearmanr(replayed.ravel(), measured.ravel()).statistic),
        "speed_mae": float(np.abs(1 / replayed - 1 / measured).mean()),
        "mape": float(np.abs(replayed / measured - 1).mean()),
        "log_bias": float(np.log(replayed / measured).mean()),
        "log_sd": float(np.log(replayed / measured).std()),
    }


@pytest.mark.bench
def test_slowdowns_of_a_core_from_timelines_alone() -> None:
    """All 256 rows of the shipped table, nothing fitted: the timelines were recorded alone."""
    table = read_table(shipped_table())
    slowdown = {(pair.victim, pair.neighbour): pair.slowdown for pair in table.ok_pairs}
    measured = np.array([[slowdown[a.workload, b.workload] for b in table.jobs] for a in table.jobs])
    ways: dict[str, KernelScheduler] = {
        "round-robin": TimeSliceScheduler(slice_s=0.004),
        "eevdf": EevdfScheduler(),
    }
    found = {name: _errors(replayed_slowdowns(table.jobs, policy), measured) for name, policy in ways.items()}
    for name, figures in found.items():
        record(f"timeline-core-{name}", figures)
        print(f"{name}: {figures}")
    assert found["eevdf"]["speed_mae"] < ADDITIVE_MAE
    assert found["eevdf"]["spearman"] > 0.88


@pytest.mark.bench
def test_learning_what_a_replay_does_not_know() -> None:
    """LightGBM on log(measured ÷ replayed) instead of log(measured): the shipped table, jobs and pairs never seen."""
    table = read_table(shipped_table())
    dataset = build_dataset([table], FeatureEncoder())
    index = {job.workload: k for k, job in enumerate(table.jobs)}
    row_of = np.array([index[name] for name in dataset.workloads])
    replayed = np.log(replayed_slowdowns(table.jobs, EevdfScheduler()))
    known = replayed[row_of[dataset.rows.victim - 1], row_of[dataset.rows.neighbour - 1]]
    for split in ("pair", "job"):
        errors: dict[str, list[NDArray[np.float64]]] = {"plain": [], "on-replay": []}
        for seed, (name, prior) in product((0, 1, 2), {"plain": np.zeros(len(known)), "on-replay": known}.items()):
            for part in folds(dataset, split, seed):
                fitted = GbdtModel().fit(
                    replace(dataset, log_slowdown=dataset.log_slowdown - prior).take(part.train), seed
                )
                log = fitted.predict(dataset.rows.take(part.test)) + prior[part.test]
                errors[name].append(np.abs(np.exp(-log) - np.exp(-dataset.log_slowdown[part.test])))
        figures = {f"{name}_speed_mae": float(np.concatenate(values).mean()) for name, values in errors.items()}
        record(f"timeline-residual-{split}", figures)
        print(f"{split}: {figures}")
        assert figures["on-replay_speed_mae"] < figures["plain_speed_mae"]


def _jobs() -> dict[str, Timeline]:
    return {
        path.stem: timeline_from_launches(path.stem, ORION.read(path, "").launches, "v100")
        for path in public("orion").glob("*_*.csv")
    }


@pytest.mark.bench
def test_means_by_identity_on_orions_kernels() -> None:
    """How far SK of each identity is from its launches."""
    for name, job in _jobs().items():
        error, identities = run_time_error(job), len({kernel.identity for kernel in job.kernels})
        record(f"timeline-means-{name}", {"launches": len(job.kernels), "identities": identities, "error": error})
        print(f"{name}: {len(job.kernels)} launches, {identities} identities, mean error {error:.1%}")
        assert error < 0.30
