"""What a training publishes: the champion as ONNX graphs, its intervals, feasibility, group compositions and card.

The graphs carry the encoder's fingerprint. A parity check compares each graph, run by ONNX Runtime, with its model on
every training row, on random rows (absent features, unknown identities, values far outside the training range) and on
rows exactly on split thresholds. The matrix limit of a model that predicts pair by pair is estimated in CPU
microseconds of one core, from the size of the model alone, so that equal models state equal limits on every machine;
`tests/bench/test_model_forms.py` compares it with what a pair takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError, UnfitError
from interfere.predict.completion import FactCompletion
from interfere.predict.feasibility import Feasibility
from interfere.predict.graphs.matrix_limit import MatrixLimit
from interfere.predict.groups import GroupComposition
from interfere.predict.intervals import Intervals
from interfere.predict.novelty import JobSpace
from interfere.predict.pair_intervals import PairIntervals
from interfere.protocols import PairEncoder
from interfere.reports.markdown import markdown
from interfere.training.beliefs.publish import BeliefComparison
from interfere.training.campaigns import align_campaigns
from interfere.training.dataset import METRIC, Dataset, PairRows, SourceTables, build_dataset, read_source_tables
from interfere.training.evaluation.candidates import Candidates, SplitScore
from interfere.training.evaluation.contributions import trees_of
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.gating.comparison import UnseenPredictions, unseen_predictions
from interfere.training.groups.cases import DomainKey
from interfere.training.groups.evaluation import NONE_PRESENT, DomainComposition, fit_domain_compositions
from interfere.training.interval_calibration import calibrate_intervals
from interfere.training.models.completed import completion_of_model, encoded_workloads, exported_form
from interfere.training.models.feasibility import feasibility_rows, fit_feasibility
from interfere.training.models.onnx_graph import share_equal_constants, stamp_fingerprint
from interfere.training.models.onnx_session import open_session, run_matrix_graph, run_pair_graph
from interfere.training.models.protocols import FittedModel
from interfere.training.publishing.model_card import TrainingTable, model_card
from interfere.training.publishing.residual_prior import fit_residual_prior, out_of_fold_errors, residual_prior_file

MATRIX_TIME_S = 5.0  # half the time that clients wait by default
ENCODING_US, TREE_US = 1.0, 0.03  # of a pair: 400 trees take 7 to 13 µs on one core
UNKNOWN_KIND_US = 50.0  # of a model without trees that does not factorise: none of ours


def matrix_limit(model: FittedModel, dataset: Dataset) -> MatrixLimit | None:
    """The limit of a fitted model, in two digits; None for one that factorises over jobs."""
    exported, _ = exported_form(model, dataset)
    if hasattr(exported, "to_matrix_onnx"):
        return None
    pairs = MATRIX_TIME_S * 1e6 / pair_cost_us(model)
    step = 10 ** max(len(str(int(pairs))) - 2, 0)
    return MatrixLimit(pairs=int(pairs // step) * step, seconds=MATRIX_TIME_S)


def pair_cost_us(model: FittedModel) -> float:
    """Estimated CPU time of one pair among many, in microseconds."""
    trees = trees_of(model)
    return UNKNOWN_KIND_US if trees is None else ENCODING_US + TREE_US * trees.model_text.count("\nTree=")


def read_group_tables(paths: Sequence[Path]) -> SourceTables | None:
    """Return the tables of which only the groups are learned; None without such tables.

    Raises UnfitError for a table without groups, and the errors of `read_source_tables`.
    """
    source = read_source_tables(paths)
    for table in source.tables:
        if not table.ok_groups:
            raise UnfitError(
                "this table holds no group of three or more to learn from",
                value=table.name,
                remedy="measure some, `interfere profile campaign --group-size 3`, or leave --group-data out",
            )
    return source if source.tables else None


def published_compositions(
    candidates: Candidates,
    source: SourceTables,
    encoder: PairEncoder,
    *,
    present: Mapping[DomainKey, GroupComposition] = NONE_PRESENT,
    beside: SourceTables | None = None,
) -> tuple[DomainComposition, ...]:
    """Return the composition of groups for each domain of the training that has one. `present`: the champion's
    compositions.

    `beside` are tables of which only the groups are learned. They are used for domains without groups in the training's
    tables, and with the pairs of `beside` itself. From them the composition learns how the slowdowns of pairs combine
    in a group. It does not learn the pairs, and it does not recalibrate intervals, because the model's pairs were
    measured elsewhere.
    """
    job_split = next(each for each in candidates.champion_evaluations if each.split == "job")
    own = fit_domain_compositions(candidates.dataset, source.tables, job_split, present)
    if beside is None:
        return own
    measured_here = {(each.device_type, each.mode) for each in own if each.cases}
    trained = {(each.device_type, each.mode) for each in candidates.dataset.domains}
    dataset, _ = align_campaigns(build_dataset(beside.tables, encoder))
    champion = candidates.settings[candidates.champion]
    (other_split,) = evaluate_models(dataset, [champion], splits=("job",), seed=candidates.seed)
    name = ", ".join(table.name for table in beside.tables)
    found = {
        (each.device_type, each.mode): replace(each, table=name)
        for each in fit_domain_compositions(dataset, beside.tables, other_split, present, recalibrate=False)
        if each.cases and (each.device_type, each.mode) in trained - measured_here
    }
    return (*(each for each in own if (each.device_type, each.mode) not in found), *found.values())


PARITY_BUDGET = 1e-5  # log slowdown; float32 sums of 300 trees or 32 products differ by under 1e-6
RANDOM_JOBS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedGraph:
    """A graph that passed the parity check."""

    content: bytes
    rows_compared: int
    max_error: float  # largest |graph - model| in log slowdown


def export_pair_graph(model: FittedModel, dataset: Dataset, encoder: PairEncoder, *, seed: int = 0) -> ExportedGraph:
    """Export `pair.onnx` of the model. Raises ModelError where the graph differs from the model."""
    model, dataset = exported_form(model, dataset)
    graph = stamp_fingerprint(share_equal_constants(model.to_onnx()), encoder.fingerprint)
    session = open_session(graph)
    jobs, ids = random_jobs(dataset, seed)
    i, j = (side.ravel() for side in np.indices((len(jobs), len(jobs))))
    random_rows = PairRows(
        pairs=encoder.encode_pairs(jobs[i], jobs[j]),
        victim=ids[i],
        neighbour=ids[j],
        domain=np.arange(len(i)) % (len(dataset.domains) + 1),
    )
    rows_compared, max_error = 0, 0.0
    for rows in (dataset.rows, model.threshold_rows(dataset.rows), random_rows):
        if len(rows):
            rows_compared += len(rows)
            max_error = max(max_error, _max_difference(run_pair_graph(session, rows), model.predict(rows)))
    return _require_parity(graph, rows_compared, max_error, f"pair.onnx of {model.name}")


def export_matrix_graph(model: FittedModel, dataset: Dataset, encoder: PairEncoder, *, seed: int = 0) -> ExportedGraph:
    """Export `matrix.onnx` of a model that factorises over jobs, compared with its pair predictions in both directions.

    Raises ModelError where they differ.
    """
    model, dataset = exported_form(model, dataset)
    assert hasattr(model, "to_matrix_onnx"), "a model that factorises over jobs"
    graph = stamp_fingerprint(share_equal_constants(model.to_matrix_onnx()), encoder.fingerprint)
    session = open_session(graph)
    jobs, ids = random_jobs(dataset, seed)
    v = len(jobs) // 3  # fewer victims than neighbours, so that a transposed matrix cannot pass
    i, j = (side.ravel() for side in np.indices((v, len(jobs))))

    def predicted(victim: NDArray[np.int64], neighbour: NDArray[np.int64], domain: int) -> NDArray[np.float64]:
        rows = PairRows(
            pairs=encoder.encode_pairs(jobs[victim], jobs[neighbour]),
            victim=ids[victim],
            neighbour=ids[neighbour],
            domain=np.full(len(victim), domain),
        )
        return model.predict(rows).reshape(v, len(jobs))

    max_error = 0.0
    for domain in range(len(dataset.domains) + 1):
        log_victim, log_neighbour = run_matrix_graph(session, jobs[:v], ids[:v], jobs, ids, domain)
        victim_error = _max_difference(log_victim, predicted(i, j, domain))
        neighbour_error = _max_difference(log_neighbour, predicted(j, i, domain))
        max_error = max(max_error, victim_error, neighbour_error)
    rows_compared = 2 * v * len(jobs) * (len(dataset.domains) + 1)
    return _require_parity(graph, rows_compared, max_error, f"matrix.onnx of {model.name}")


def random_jobs(dataset: Dataset, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return (float32[n, F], int64[n]): random jobs as columns, and their identities.

    Every column is drawn from the real jobs; half of the drawn values are shifted, and a tenth is absent. Identities
    are random and may be 0.
    """
    rng = np.random.default_rng([seed, 11])
    width = len(dataset.job_columns)
    real = dataset.rows.pairs[:, :width]
    drawn = np.stack([rng.choice(real[:, k], size=RANDOM_JOBS) for k in range(width)], axis=1)
    shifted = drawn + rng.normal(scale=2.0, size=drawn.shape) * (rng.random(drawn.shape) < 0.5)
    # Counts and shares stay non-negative: encode_pairs takes logarithms of sums of some columns.
    jobs = np.where(rng.random(drawn.shape) < 0.1, np.nan, np.maximum(shifted, np.minimum(drawn, 0.0)))
    return jobs.astype(np.float32), rng.integers(0, len(dataset.workloads) + 1, size=RANDOM_JOBS)


def _max_difference(graph: NDArray[np.float64], model: NDArray[np.float64]) -> float:
    """Largest absolute difference; infinite where either holds NaN."""
    difference = np.abs(graph - model)
    return float(difference.max()) if np.isfinite(difference).all() else float("inf")


def _require_parity(graph: bytes, rows_compared: int, max_error: float, subject: str) -> ExportedGraph:
    if not max_error <= PARITY_BUDGET:
        raise ModelError(
            f"{subject} disagrees with the model it was exported from",
            value=f"by {max_error:.3g} in log slowdown on {rows_compared} rows, {PARITY_BUDGET:g} are allowed",
            remedy="nothing was published; report it with the versions of lightgbm, torch, onnx and onnxruntime",
        )
    return ExportedGraph(content=graph, rows_compared=rows_compared, max_error=max_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The content of a model folder."""

    model: str
    selected_by: str  # one of `interfere.training.evaluation.candidates`
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
    """Export the champion, and fit all other published parts except beliefs and compositions.

    The card contains the `warnings` and the `notice`. Without `measured_pairs` the folder holds no measurement of a
    pair. Raises ModelError where an exported graph differs from its model.
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
    document = model_card(
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
        card=markdown(document),
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
