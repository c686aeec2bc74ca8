"""Builds a publication: the champion as exported graphs, its intervals, feasibility, residual prior and model card."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.completion import FactCompletion
from interfere.predict.feasibility import Feasibility
from interfere.predict.intervals import Intervals
from interfere.predict.novelty import JobSpace
from interfere.protocols import PairEncoder
from training.candidates import Candidates, SplitScore
from training.dataset import METRIC, Dataset, PairRows, known_profiles
from training.evaluation.gating.unseen_predictions import UnseenPredictions, unseen_predictions
from training.interval_calibration import calibrate_intervals
from training.models.completed import FittedCompleted, completion_of, exported_form
from training.models.feasibility import feasibility_rows, fit_feasibility
from training.models.onnx_session import open_session, run_matrix_graph, run_pair_graph
from training.models.protocols import FittedModel
from training.publishing.export import export_matrix_graph, export_pair_graph
from training.publishing.model_card import TrainingTable, model_card
from training.publishing.residual_prior import fit_residual_prior, out_of_fold_errors, residual_prior_file
from training.source_tables import SourceTables
from training.speed import speed

MATRIX_STAND_IN = "gp"  # predicts matrices for a champion that does not factorise over jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The content of a model folder."""

    model: str
    matrix_model: str
    matrix_mae_vs_pair: float  # mean |y_matrix - y_pair| over all pairs of known workloads
    worst_parity: float  # log slowdown: largest difference of either graph from its model
    pair_graph: bytes
    matrix_graph: bytes
    card: str
    intervals: Intervals
    feasibility: Feasibility | None
    space: JobSpace | None  # of the model's jobs, for novelty; None for a model without a measure of novelty
    completion: FactCompletion  # of the absent facts of the jobs that the graphs read
    encoded_workloads: Sequence[NDArray[np.float32]]  # by domain: float32[N, F], completed; NaN without a profile
    scores: Sequence[SplitScore]
    trained_on: Sequence[TrainingTable]
    residual_prior: bytes  # the file with the prior of the online correction
    unseen: UnseenPredictions  # of the champion, for every row of the training set


def build_publication(
    candidates: Candidates, source: SourceTables, encoder: PairEncoder, *, warnings: Sequence[str] = ()
) -> Publication:
    """Export the champion, whichever model it is, and fit what is published with it; the card tells the `warnings`.

    Raises ModelError where an exported graph differs from its model.
    """
    dataset, champion, seed = candidates.dataset, candidates.champion_model, candidates.seed
    completion = champion.completion if isinstance(champion, FittedCompleted) else completion_of(dataset)
    # 1. Export both graphs and check their parity.
    matrix_model = _matrix_model(candidates)
    pair = export_pair_graph(champion, dataset, encoder, seed=seed)
    matrix = export_matrix_graph(matrix_model, dataset, encoder, seed=seed)
    worst_parity = max(pair.max_error, matrix.max_error)
    # 2. Compare the two graphs with each other.
    encoded = [encoded_workloads(dataset, d, source.tables, encoder, completion) for d in range(len(dataset.domains))]
    matrix_mae = _matrix_mae_vs_pair(dataset, encoded, encoder, pair.content, matrix.content)
    # 3. Fit the prior of the online correction to the champion's out-of-fold errors.
    errors = {e.split: out_of_fold_errors(dataset, e, seed) for e in candidates.champion_evaluations}
    residual_prior = fit_residual_prior(dataset, errors["job"], errors["pair"])
    # 4. Write the model card.
    trained_on = tuple(
        TrainingTable(table=table.name, rows=int((dataset.table == t).sum()), sha256=digest, icc=icc)
        for t, (table, digest, icc) in enumerate(zip(source.tables, source.digests, source.icc, strict=True))
    )
    card = model_card(
        dataset,
        champion=candidates.champion,
        matrix_model=matrix_model.name,
        matrix_mae=matrix_mae,
        scores=candidates.scores,
        trained_on=trained_on,
        seed=seed,
        worst_parity=worst_parity,
        warnings=warnings,
    )
    return Publication(
        model=candidates.champion,
        matrix_model=matrix_model.name,
        matrix_mae_vs_pair=matrix_mae,
        worst_parity=worst_parity,
        pair_graph=pair.content,
        matrix_graph=matrix.content,
        card=card,
        intervals=calibrate_intervals(dataset, candidates.champion_evaluations),
        feasibility=fit_feasibility(feasibility_rows(source.tables, encoder, metric=METRIC)),
        space=getattr(champion, "space", None),
        completion=completion,
        encoded_workloads=tuple(encoded),
        scores=candidates.scores,
        trained_on=trained_on,
        residual_prior=residual_prior_file(residual_prior),
        unseen=unseen_predictions(dataset, candidates.champion_evaluations),
    )


def encoded_workloads(
    dataset: Dataset, domain: int, tables: Sequence[Table], encoder: PairEncoder, completion: FactCompletion
) -> NDArray[np.float32]:
    """float32[N, F]: the profile of every workload on the domain's device type; NaN where there is none."""
    profiles = {(job.workload, job.device_type): job for job in known_profiles(tables).jobs}
    place = dataset.domains[domain]
    rows = np.full((len(dataset.workloads), len(dataset.job_columns)), np.nan, dtype=np.float32)
    for k, name in enumerate(dataset.workloads):
        if (profile := profiles.get((name, place.device_type))) is not None:
            rows[k] = completion.complete(encoder.encode_jobs([profile], place.device_type, place.mode))[0][0]
    return rows


def _matrix_model(candidates: Candidates) -> FittedModel:
    """The champion, if it factorises over jobs, else its stand-in."""
    champion, _ = exported_form(candidates.champion_model, candidates.dataset)
    return candidates.champion_model if hasattr(champion, "to_matrix_onnx") else candidates.fitted[MATRIX_STAND_IN]


def _matrix_mae_vs_pair(
    dataset: Dataset,
    encoded: Sequence[NDArray[np.float32]],
    encoder: PairEncoder,
    pair_graph: bytes,
    matrix_graph: bytes,
) -> float:
    """Mean |y_matrix - y_pair| over all ordered pairs of known workloads, averaged over domains."""
    pair_session, matrix_session = open_session(pair_graph), open_session(matrix_graph)
    ids = np.arange(1, len(dataset.workloads) + 1)
    i, j = (side.ravel() for side in np.indices((len(ids), len(ids))))
    differences = []
    for domain, jobs in enumerate(encoded):
        rows = PairRows(
            pairs=encoder.encode_pairs(jobs[i], jobs[j]),
            victim=ids[i],
            neighbour=ids[j],
            domain=np.full(len(i), domain + 1),
        )
        log_victim, _ = run_matrix_graph(matrix_session, jobs, ids, jobs, ids, domain + 1)
        by_pair = speed(run_pair_graph(pair_session, rows))
        differences.append(np.abs(speed(log_victim.ravel()) - by_pair).mean())
    return float(np.mean(differences))
