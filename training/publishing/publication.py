"""Builds a publication: the champion as exported graphs, its intervals, feasibility, residual prior and model card."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.completion import FactCompletion
from interfere.predict.feasibility import Feasibility
from interfere.predict.graphs.matrix_limit import MatrixLimit
from interfere.predict.intervals import Intervals
from interfere.predict.novelty import JobSpace
from interfere.predict.pair_intervals import PairIntervals
from interfere.protocols import PairEncoder
from interfere.training.beliefs.publish import BeliefComparison
from interfere.training.candidates import Candidates, SplitScore
from interfere.training.dataset import METRIC
from interfere.training.evaluation.gating.unseen_predictions import UnseenPredictions, unseen_predictions
from interfere.training.groups.evaluation import DomainComposition
from interfere.training.interval_calibration import calibrate_intervals
from interfere.training.models.completed import completion_of_model, encoded_workloads
from interfere.training.models.feasibility import feasibility_rows, fit_feasibility
from interfere.training.publishing.export import export_matrix_graph, export_pair_graph
from interfere.training.publishing.matrix_cost import matrix_limit
from interfere.training.publishing.model_card import TrainingTable, model_card
from interfere.training.publishing.residual_prior import fit_residual_prior, out_of_fold_errors, residual_prior_file
from interfere.training.source_tables import SourceTables


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The content of a model folder."""

    model: str
    selected_by: str  # one of `interfere.training.candidates`
    worst_parity: float  # log slowdown: largest difference of either graph from its model
    pair_graph: bytes
    matrix_graph: bytes | None  # None for a model that does not factorise over jobs
    matrix_limit: MatrixLimit | None  # of such a model
    card: str
    intervals: Intervals
    feasibility: Feasibility | None
    space: JobSpace | None  # of the model's jobs, for novelty; None for a model without a measure of novelty
    completion: FactCompletion  # of the absent facts of the jobs that the graphs read
    encoded_workloads: Sequence[NDArray[np.float32]]  # by domain: float32[N, F], completed; NaN without a profile
    scores: Sequence[SplitScore]
    trained_on: Sequence[TrainingTable]
    residual_prior: bytes  # the file with the prior of the online correction
    pair_intervals: PairIntervals | None  # that the graphs predict as a belief does, with its intervals
    measured_pairs: bool  # whether measured pairs are published, and answered by their measurement
    unseen: UnseenPredictions  # of the champion, for every row of the training set
    compositions: Sequence[DomainComposition]  # of groups, where the tables hold some


def build_publication(
    candidates: Candidates,
    source: SourceTables,
    encoder: PairEncoder,
    *,
    pair_intervals: PairIntervals | None = None,
    comparisons: Sequence[BeliefComparison] = (),
    compositions: Sequence[DomainComposition] = (),
    warnings: Sequence[str] = (),
    notice: str = "",
    measured_pairs: bool = True,
) -> Publication:
    """Export the champion, whichever model it is, and fit what is published with it, but for beliefs and compositions.

    The card tells the `warnings` and the `notice`. Without `measured_pairs` the folder holds no measurement of a pair.
    Raises ModelError where an exported graph differs from its model.
    """
    dataset, champion, seed = candidates.dataset, candidates.champion_model, candidates.seed
    completion = completion_of_model(champion, dataset)
    # 1. Export the graph of pairs, and that of matrices where the model factorises; check their parity.
    limit = matrix_limit(champion, dataset)
    pair = export_pair_graph(champion, dataset, encoder, seed=seed)
    matrix = None if limit else export_matrix_graph(champion, dataset, encoder, seed=seed)
    worst_parity = max(pair.max_error, matrix.max_error if matrix else 0.0)
    # 2. Encode the known workloads.
    encoded = [encoded_workloads(dataset, d, source.tables, encoder, completion) for d in range(len(dataset.domains))]
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
        selected_by=candidates.selected_by,
        matrix_limit=limit,
        scores=candidates.scores,
        trained_on=trained_on,
        seed=seed,
        worst_parity=worst_parity,
        warnings=warnings,
        notice=notice,
        compositions=compositions,
        beliefs=[each.text(candidates.champion) for each in comparisons],
    )
    return Publication(
        model=candidates.champion,
        selected_by=candidates.selected_by,
        worst_parity=worst_parity,
        pair_graph=pair.content,
        matrix_graph=matrix.content if matrix else None,
        matrix_limit=limit,
        card=card,
        intervals=calibrate_intervals(dataset, candidates.champion_evaluations),
        feasibility=fit_feasibility(feasibility_rows(source.tables, encoder, metric=METRIC)),
        space=getattr(champion, "space", None),
        completion=completion,
        encoded_workloads=tuple(encoded),
        scores=candidates.scores,
        trained_on=trained_on,
        residual_prior=residual_prior_file(residual_prior),
        pair_intervals=pair_intervals,
        measured_pairs=measured_pairs,
        unseen=unseen_predictions(dataset, candidates.champion_evaluations),
        compositions=compositions,
    )
