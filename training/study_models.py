"""What studies need of models: beliefs fitted on some pairs of a table, truths that a model fills or predicts.

A share of the unordered pairs is hidden by a seed; the published kind of model is fitted on the rest. A pair that was
not hidden is answered by its measurement, a hidden one by the model, as the server does. Law: no hidden row reaches the
fit.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.errors import InvalidInputError
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import shipped_profiles
from interfere.predict.onnx import load_model
from interfere.predict.transfer.first_predictions import log_predictions
from interfere.predict.transfer.process import all_pairs
from interfere.records import PairStatus
from interfere.sharing_modes import OptionalSharingMode, SharingMode
from interfere.sim.beliefs import beliefs_from
from interfere.sim.truth import STEP_TIME, TruthTable
from interfere.study.questions import FittedBeliefs
from interfere.training.dataset import Dataset, build_dataset, hold_out, pair_rows, require_min_pairs, unordered_pair
from interfere.training.models.ensemble import EnsembleModel, FittedEnsemble

Floats = NDArray[np.float64]


MODEL_MODES = (SharingMode.MPS, SharingMode.TIMESLICE)  # of a model that was fitted on several, the first that it knows


def fit_beliefs(table: Table, truth: TruthTable, *, hide: float, seed: int) -> FittedBeliefs:
    """Return beliefs of a model that never sees the share `hide` of the unordered pairs; other pairs are as measured.

    Raises InvalidInputError for a share that leaves no row to test or none to learn from, UnfitError for too few pairs.
    """
    if not 0 < hide < 1:
        raise InvalidInputError(
            "the share of pairs to hide must lie between 0 and 1", value=hide, remedy="0.3 hides three in ten"
        )
    domain = _domain(table, truth)
    pairs = sorted({unordered_pair(pair.victim, pair.neighbour) for pair in domain.ok_pairs})
    drawn = np.random.default_rng(seed).permutation(len(pairs))[: round(hide * len(pairs))]
    hidden = frozenset(pairs[k] for k in drawn)
    shown = tuple(pair for pair in domain.pairs if unordered_pair(pair.victim, pair.neighbour) not in hidden)
    # A dataset of its own: weights of rows depend on all rows of a table.
    dataset = build_dataset([replace(domain, pairs=shown)], FeatureEncoder())
    require_min_pairs(dataset)
    fitted = EnsembleModel().fit(dataset, seed)
    slowdown = _predict_all(fitted, domain, dataset, truth)
    _, hidden_rows = hold_out(build_dataset([domain], FeatureEncoder()), hidden)
    measured = {(pair.victim, pair.neighbour): pair.slowdown for pair in shown if pair.status is PairStatus.OK}
    index = truth.index
    for (victim, neighbour), value in measured.items():
        slowdown[index[victim], index[neighbour]] = max(1.0, value)
    return FittedBeliefs(
        predictor=beliefs_from(truth, slowdown, f"model, {hide:.0%} of pairs hidden"),
        hidden=hidden,
        error=float(np.abs(np.exp(-hidden_rows.log_slowdown) - np.exp(-fitted.predict(hidden_rows.rows))).mean()),
        measured=tuple((*pair, truth.device_type, truth.mode) for pair in measured),
    )


def fill_truth(table: Table, truth: TruthTable, *, seed: int) -> TruthTable:
    """Return the truth of every workload profiled on its device type, with predictions for unmeasured pairs.

    The predictions are by a model fitted on all rows. Infeasible pairs stay infeasible. A replay on this truth no
    longer rests on measurements alone.
    """
    domain = _domain(table, truth)
    workloads = tuple(sorted({job.workload for job in table.jobs if job.device_type == truth.device_type}))
    index = {workload: k for k, workload in enumerate(workloads)}
    slowdown = np.full((len(workloads), len(workloads)), np.nan)
    in_truth = [index[workload] for workload in truth.workloads]
    slowdown[np.ix_(in_truth, in_truth)] = truth.table
    gaps = np.isnan(slowdown)
    for pair in domain.pairs:
        if not pair.feasible:
            i, j = index[pair.victim], index[pair.neighbour]
            gaps[i, j] = gaps[j, i] = False
    extended = replace(truth, workloads=workloads, table=slowdown, filled=int(gaps.sum()), unmeasured=0)
    if not extended.filled:
        return extended
    dataset = build_dataset([domain], FeatureEncoder())
    require_min_pairs(dataset)
    predicted = _predict_all(EnsembleModel().fit(dataset, seed), domain, dataset, extended)
    return replace(extended, table=np.where(gaps, predicted, slowdown))


def _domain(table: Table, truth: TruthTable) -> Table:
    """Return the step times of a table that are of the truth's device type and mode."""
    key = (truth.device_type, truth.mode, STEP_TIME)
    rows = tuple(p for p in table.pairs if (p.device_type, p.mode, p.metric) == key)
    return Table(name=table.name, jobs=table.jobs, pairs=rows)


def _predict_all(fitted: FittedEnsemble, table: Table, dataset: Dataset, truth: TruthTable) -> Floats:
    """Return float64[n, n] ≥ 1: the predicted slowdowns of all ordered pairs of the truth's workloads."""
    profiles = {job.workload: job for job in table.jobs if job.device_type == truth.device_type}
    encoder = FeatureEncoder()
    jobs = encoder.encode_jobs([profiles[name] for name in truth.workloads], truth.device_type, truth.mode)
    n = len(truth.workloads)
    identities = np.array([dataset.workloads.index(name) + 1 for name in truth.workloads], dtype=np.int64)
    rows = pair_rows(encoder, jobs, identities, *all_pairs(n), 1)
    return np.maximum(np.exp(fitted.predict(rows)), 1.0).reshape(n, n)


def predicted_truth(folder: Path, device_type: str, mode: OptionalSharingMode) -> TruthTable:
    """Return a model's predictions for the workloads in its folder's profiles, as the truth of a replay.

    Raises InvalidInputError where no or several device types match.
    """
    model = load_model(folder, FeatureEncoder())
    profiles = shipped_profiles(folder)
    types = sorted({profile.device_type for profile in profiles})
    chosen = device_type or (types[0] if len(types) == 1 else "")
    if chosen not in types:
        raise InvalidInputError(
            "which device type of the model?", value=device_type or "none", remedy=f"--device-type {' or '.join(types)}"
        )
    modes = (mode,) if mode else MODEL_MODES
    known_mode = next((name for name in modes if not model.knows(chosen, name)), None)
    if known_mode is None:
        raise InvalidInputError(
            "the model knows no such sharing",
            value=f"{chosen}, {', '.join(modes)}",
            remedy=model.knows(chosen, modes[0]),
        )
    own = {profile.workload: profile for profile in profiles if profile.device_type == chosen}
    log_slowdown = log_predictions(model, list(own.values()), chosen, known_mode)
    table = np.maximum(np.exp(log_slowdown), 1.0)
    return TruthTable(
        device_type=chosen,
        mode=known_mode,
        workloads=tuple(own),
        table=table,
        filled=table.size,
        step_time_s={name: profile.step_time_s for name, profile in own.items()},
    )


class TrainedModels:
    """Implements `interfere.study.questions.StudyModels` with the models that training publishes."""

    fit_beliefs = staticmethod(fit_beliefs)
    fill_truth = staticmethod(fill_truth)
    predicted_truth = staticmethod(predicted_truth)
