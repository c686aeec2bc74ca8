"""What a model would have told a scheduler, fitted on some pairs of a table; and a truth whose holes a model fills.

A share of the unordered pairs is hidden by a seed; the published kind of model is fitted on the rest. A pair that was
seen is answered by its measurement, a hidden one by the model, as the server does. Law: no hidden row reaches the fit.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from features.pair import FeatureEncoder
from interfere.data.tables import Table
from interfere.errors import InvalidInputError
from interfere.records import PairStatus
from interfere.sim.beliefs import MatrixPredictor, believing
from interfere.sim.truth import TruthTable
from training.dataset import Dataset, PairRows, build_dataset, hold_out, require_min_pairs, unordered_pair
from training.models.ensemble import EnsembleModel, FittedEnsemble

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """Beliefs of a scheduler that never saw the hidden pairs."""

    predictor: MatrixPredictor
    hidden: frozenset[tuple[str, str]]  # unordered
    error: float  # mean |measured speed - predicted speed| over the hidden rows
    measured: tuple[tuple[str, str, str, str], ...]  # (victim, neighbour, device type, mode) of the seen pairs


def modelled(table: Table, truth: TruthTable, *, hide: float, seed: int) -> Modelled:
    """Fit and ask. `hide`: share of the unordered pairs. Raises InvalidInputError for a share that leaves no row to
    test or none to learn from, UnfitError for too few pairs."""
    if not 0 < hide < 1:
        raise InvalidInputError(
            "the share of pairs to hide must lie between 0 and 1", value=hide, remedy="0.3 hides three in ten"
        )
    mine = _domain(table, truth)
    pairs = sorted({unordered_pair(p.victim, p.neighbour) for p in mine.ok_pairs})
    drawn = np.random.default_rng(seed).permutation(len(pairs))[: round(hide * len(pairs))]
    hidden = frozenset(pairs[k] for k in drawn)
    shown = tuple(pair for pair in mine.pairs if unordered_pair(pair.victim, pair.neighbour) not in hidden)
    # A dataset of its own: weights of rows look at all of a table.
    known = build_dataset([replace(mine, pairs=shown)], FeatureEncoder())
    require_min_pairs(known)
    fitted = EnsembleModel().fit(known, seed)
    slowdown = _answers(fitted, mine, known, truth)
    _, unseen = hold_out(build_dataset([mine], FeatureEncoder()), hidden)
    seen = {(pair.victim, pair.neighbour): pair.slowdown for pair in shown if pair.status is PairStatus.OK}
    place = truth.place
    for (victim, neighbour), value in seen.items():
        slowdown[place[victim], place[neighbour]] = max(1.0, value)
    return Modelled(
        predictor=believing(truth, slowdown, f"model, {hide:.0%} of pairs hidden"),
        hidden=hidden,
        error=float(np.abs(np.exp(-unseen.log_slowdown) - np.exp(-fitted.predict(unseen.rows))).mean()),
        measured=tuple((*pair, truth.device_type, truth.mode) for pair in seen),
    )


def filled(table: Table, truth: TruthTable, *, seed: int) -> TruthTable:
    """The truth of every workload profiled on its device type: what was not measured is what a model fitted on all
    rows says; who does not fit still does not. A replay on it is no longer one on measurements alone."""
    mine = _domain(table, truth)
    names = tuple(sorted({job.workload for job in table.jobs if job.device_type == truth.device_type}))
    at = {name: k for k, name in enumerate(names)}
    known = np.full((len(names), len(names)), np.nan)
    inner = [at[name] for name in truth.workloads]
    known[np.ix_(inner, inner)] = truth.table
    holes = np.isnan(known)
    for pair in mine.pairs:
        if not pair.feasible:
            holes[at[pair.victim], at[pair.neighbour]] = holes[at[pair.neighbour], at[pair.victim]] = False
    wide = replace(truth, workloads=names, table=known, filled=int(holes.sum()), silent=0)
    if not wide.filled:
        return wide
    dataset = build_dataset([mine], FeatureEncoder())
    require_min_pairs(dataset)
    guess = _answers(EnsembleModel().fit(dataset, seed), mine, dataset, wide)
    return replace(wide, table=np.where(holes, guess, known))


def _domain(table: Table, truth: TruthTable) -> Table:
    """The rows of the truth's device type and mode."""
    rows = tuple(p for p in table.pairs if (p.device_type, p.mode) == (truth.device_type, truth.mode))
    return Table(name=table.name, jobs=table.jobs, pairs=rows)


def _answers(fitted: FittedEnsemble, table: Table, dataset: Dataset, truth: TruthTable) -> Floats:
    """float64[n, n] ≥ 1: the model's slowdown of every ordered pair of the truth."""
    profiles = {job.workload: job for job in table.jobs if job.device_type == truth.device_type}
    encoder = FeatureEncoder()
    jobs = encoder.encode_jobs([profiles[name] for name in truth.workloads], truth.device_type, truth.mode)
    n = len(truth.workloads)
    i, j = (side.ravel() for side in np.indices((n, n)))
    identity = np.array([dataset.workloads.index(name) + 1 for name in truth.workloads], dtype=np.int64)
    rows = PairRows(
        pairs=encoder.encode_pairs(jobs[i], jobs[j]),
        victim=identity[i],
        neighbour=identity[j],
        domain=np.ones(n * n, dtype=np.int64),
    )
    return np.maximum(np.exp(fitted.predict(rows)), 1.0).reshape(n, n)
