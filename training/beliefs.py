"""Publishes a champion model combined with the beliefs about the pairs of sparsely measured tables.

The two are weighted by their out-of-fold errors on the table's own rows, where each pair is predicted from the rows of
other folds. On eight programs of which 12, 20 or 28 of 36 pairs were measured the mean error of speed of the rest is

    belief alone .029, .022, .017; champion alone .020, .015, .012; both .020, .015, .013

and after the 12 pairs that the belief itself chose .021, .028 and .021: neither alone is good in all cases. The
combination is stored as corrections of the champion, so that lists, matrices and exported graphs give these numbers.

Combination: a weighted mean of log slowdowns, with the intervals of the mixture. Weights are inverse to mean squared
errors (Bates & Granger 1969, "The combination of forecasts"). The variance of a mixture of two with weights w and 1 - w
is their mean variance plus w (1 - w) times their squared difference; the variance of the model's prediction of a pair
is taken to be that of the belief.

The belief about such a table starts from a model's predictions from before any measurement (`first_predictions`), and
combines them with the rows that `onboard` measured: a Gaussian process over all pairs of the table's jobs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.predict.intervals import PairIntervals
from interfere.predict.novelty import JobSpace
from interfere.predict.transfer.first_predictions import read_first_predictions
from interfere.predict.transfer.pair_belief import LOWER, UPPER, PairBelief, pair_belief, site_profiles, site_space
from interfere.predict.transfer.process import PairSpace
from interfere.sharing_modes import SharingMode
from interfere.training.dataset import METRIC, Dataset, PairRows, pair_rows
from interfere.training.evaluation.candidates import Candidates, held_out_scores
from interfere.training.evaluation.cross_validation import Evaluation, FoldTests, scored_evaluation
from interfere.training.evaluation.interval_calibration import LEVELS
from interfere.training.models.completed import FittedCompleted, completion_of_model, encoded_workloads
from interfere.training.models.onnx_graph import MATRIX_INPUTS, PAIR_INPUTS, Graph
from interfere.training.models.protocols import FittedMatrixModel, FittedModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
INTERVAL = (LOWER, 0.5, UPPER)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBelief:
    """The jobs of one table on one domain, and the prior belief about their pairs."""

    table: str
    device_type: str
    mode: SharingMode
    space: PairSpace

    def domain(self, dataset: Dataset) -> int:
        """Return the index of the table's domain in the dataset, or -1 where no row has this domain."""
        places = [(domain.device_type, domain.mode, domain.metric) for domain in dataset.domains]
        own = (self.device_type, self.mode, METRIC)
        return places.index(own) if own in places else -1

    def rows(self, dataset: Dataset) -> NDArray[np.bool_]:
        """Return bool[p]: which dataset rows measure a pair of the table's jobs on its domain."""
        own = np.array([False, *(name in self.space.jobs for name in dataset.workloads)])
        between = own[dataset.rows.victim] & own[dataset.rows.neighbour]
        return np.asarray(between & (dataset.domain == self.domain(dataset)) & ~dataset.aligned)

    def after(self, dataset: Dataset) -> PairBelief:
        """Return the belief that the dataset's rows of this table lead to."""
        rows = dataset.take(self.rows(dataset)).latest_rows()
        names = zip(rows.rows.victim.tolist(), rows.rows.neighbour.tolist(), strict=True)
        pairs = [(dataset.workloads[victim - 1], dataset.workloads[neighbour - 1]) for victim, neighbour in names]
        return pair_belief(self.space, dict(zip(pairs, np.exp(rows.log_slowdown).tolist(), strict=True)))


def read_table_beliefs(paths: Sequence[Path], tables: Sequence[Table]) -> tuple[TableBelief, ...]:
    """Return a belief for each table that has first predictions. Raises TableError for a damaged prediction file."""
    beliefs = []
    for path, table in zip(paths, tables, strict=True):
        if (first := read_first_predictions(path)) is None:
            continue
        profiled = {job.workload for job in table.jobs if job.device_type == first.device_type}
        known = [name for name in first.jobs if name in profiled]
        if len(known) < 2:  # the table was replaced by one of other jobs
            continue
        space = site_space(site_profiles(table, first.device_type, known), first)
        beliefs.append(TableBelief(table=table.name, device_type=first.device_type, mode=first.mode, space=space))
    return tuple(beliefs)


def job_places(dataset: Dataset, jobs: Sequence[str]) -> NDArray[np.int64]:
    """Return int64[N + 1]: the place of each identity among the jobs, counted from 1; 0 for any other identity."""
    return np.array([0, *(jobs.index(name) + 1 if name in jobs else 0 for name in dataset.workloads)], dtype=np.int64)


def belief_weight(belief_error: Floats, model_error: Floats) -> float:
    """Return the belief's weight from both errors on equal rows, float64[t] each; one half where neither errs."""
    belief, model = float((belief_error**2).mean()), float((model_error**2).mean())
    return model / (belief + model) if belief + model > 0 else 0.5


def combined_quantiles(levels: Sequence[float], believed: Floats, predicted: Floats, weight: Floats) -> Floats:
    """Return float64[q, ...]: quantiles of the mixture's log slowdown at `levels`, which must include the median 0.5.

    `believed` float64[q, ...] are the belief's quantiles; `predicted` and `weight` float64[...] are the model's median
    and the weight of the belief.
    """
    median = believed[levels.index(0.5)]
    together = weight * median + (1.0 - weight) * predicted
    between = np.sqrt(weight * (1.0 - weight)) * np.abs(median - predicted)
    deviation = np.array([NormalDist().inv_cdf(level) for level in levels]).reshape(-1, *[1] * median.ndim)
    return np.asarray(together + np.sign(deviation) * np.hypot(believed - median, deviation * between))


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefComparison:
    """Out-of-fold errors of speed of belief, champion and combination on the pairs of one table's jobs."""

    table: str
    rows: int
    jobs: int
    belief: float
    champion: float
    combined: float
    weight: float  # of the belief's log slowdown; the champion's has the rest

    def text(self, champion: str) -> str:
        """Return the comparison as one line of text."""
        return (
            f"pairs of the {self.jobs} jobs of table {self.table}, error of speed out of fold on its {self.rows} rows: "
            f"belief {self.belief:.4f}, {champion} {self.champion:.4f}, both together {self.combined:.4f} "
            f"({self.weight:.0%} of the belief)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedCandidates:
    """Candidate models whose champion is combined with the beliefs about some tables' pairs."""

    candidates: Candidates
    comparisons: tuple[BeliefComparison, ...]
    pairs: PairIntervals | None  # None where nothing is believed


def with_beliefs(
    candidates: Candidates,
    held_out: Dataset,
    beliefs: Sequence[TableBelief],
    tables: Sequence[Table],
    report: Callable[[str], None] = lambda _: None,
) -> BelievedCandidates:
    """Return the candidates with the champion combined with the beliefs about tables that have rows.

    `tables` are all training tables; the profiles of the jobs are read from them.
    """
    dataset, comparisons = candidates.dataset, []
    beliefs = [belief for belief in beliefs if belief.rows(dataset).any()]
    for belief in beliefs:
        # 1. What the belief predicts out of fold, and its weight beside the champion.
        answers = {each.split: _out_of_fold(dataset, belief, each) for each in candidates.champion_evaluations}
        comparison = _compare(dataset, belief, candidates, answers["pair"])
        report(comparison.text(candidates.champion))
        comparisons.append(comparison)
        # 2. The evaluations of both together.
        candidates = _with_evaluations(candidates, answers, comparison.weight)
    if not beliefs:
        return BelievedCandidates(candidates=candidates, comparisons=(), pairs=None)
    # 3. Correct the fitted champion, and score it on the held-out pairs.
    place, believed, weight = _believed_quantiles(dataset, beliefs, [each.weight for each in comparisons])
    predicted = _champion_predictions(candidates.champion_model, dataset, place, np.isfinite(believed[0]), tables)
    together = combined_quantiles(LEVELS, believed, predicted, weight)
    median = together[LEVELS.index(0.5)]
    corrected = _corrected(candidates.champion_model, place, np.nan_to_num(median - predicted))
    return BelievedCandidates(
        candidates=_with_champion(candidates, corrected, held_out),
        comparisons=tuple(comparisons),
        pairs=PairIntervals(place=place, levels=np.array(LEVELS), shifts=np.moveaxis(together - median, 0, -1)),
    )


def _out_of_fold(dataset: Dataset, belief: TableBelief, evaluation: Evaluation) -> Floats:
    """Return float64[3, t]: lower, median and upper log slowdown of the belief for each test row, NaN for other tables.

    Each fold's tests are predicted by the belief after that fold's training rows.
    """
    own, answers = belief.rows(dataset)[evaluation.index], np.full((3, len(evaluation.index)), np.nan)
    place = job_places(dataset, belief.space.jobs) - 1
    for k, fold in enumerate(evaluation.parts):
        tests = np.flatnonzero(own & (evaluation.fold == k))
        if len(tests):
            rows = dataset.rows.take(evaluation.index[tests])
            known = belief.after(dataset.take(fold.train)).quantiles(INTERVAL)
            answers[:, tests] = np.log(known[:, place[rows.victim], place[rows.neighbour]])
    return answers


def _compare(dataset: Dataset, belief: TableBelief, candidates: Candidates, answers: Floats) -> BeliefComparison:
    evaluation = next(each for each in candidates.champion_evaluations if each.split == "pair")
    own = np.isfinite(answers[1])
    measured = speed(dataset.log_slowdown[evaluation.index[own]])
    of_belief, of_champion = answers[1, own], evaluation.predicted_log[own]

    def errors(predicted_log: Floats) -> Floats:
        return np.asarray(np.abs(speed(predicted_log) - measured))

    weight = belief_weight(errors(of_belief), errors(of_champion))
    return BeliefComparison(
        table=belief.table,
        rows=int(belief.rows(dataset).sum()),
        jobs=len(belief.space.jobs),
        belief=float(errors(of_belief).mean()),
        champion=float(errors(of_champion).mean()),
        combined=float(errors(weight * of_belief + (1.0 - weight) * of_champion).mean()),
        weight=weight,
    )


def _with_evaluations(candidates: Candidates, answers: dict[str, Floats], weight: float) -> Candidates:
    """Return the candidates with the champion's evaluations, by split, combined with out-of-fold beliefs."""
    own = {}
    for evaluation in candidates.champion_evaluations:
        believed, predicted = answers[evaluation.split], evaluation.predicted_log
        lower, median, upper = combined_quantiles(INTERVAL, believed, predicted, np.full(len(predicted), weight))
        tests = FoldTests(
            predicted_log=np.where(np.isfinite(median), median, predicted),
            novelty=evaluation.novelty,
            partners=evaluation.partners,
            subject=evaluation.subject,
            has_inputs=np.ones(len(predicted), dtype=bool),  # a champion is no baseline
            ends=np.stack([lower, upper], axis=1),
        )
        own[evaluation.split] = scored_evaluation(
            candidates.dataset, evaluation.split, evaluation.model, evaluation.parts, tests
        )
    evaluations = (own[e.split] if e.model == candidates.champion else e for e in candidates.evaluations)
    return replace(candidates, evaluations=tuple(evaluations))


def _believed_quantiles(
    dataset: Dataset, beliefs: Sequence[TableBelief], weights: Sequence[float]
) -> tuple[Ints, Floats, Floats]:
    """Return each identity's place among the believed jobs, the beliefs' log slowdowns, and the beliefs' weights.

    Shapes: places int64[N + 1]; log slowdowns float64[q, D + 1, S + 1, S + 1] at `LEVELS`, NaN where nothing is
    believed; weights float64[D + 1, S + 1, S + 1].
    """
    jobs = sorted({name for belief in beliefs for name in belief.space.jobs})
    shape = (len(dataset.domains) + 1, len(jobs) + 1, len(jobs) + 1)
    quantiles, weight_of = np.full((len(LEVELS), *shape), np.nan), np.zeros(shape)
    for belief, weight in zip(beliefs, weights, strict=True):
        domain, places = belief.domain(dataset) + 1, [jobs.index(name) + 1 for name in belief.space.jobs]
        victims, neighbours = np.ix_(places, places)
        quantiles[:, domain, victims, neighbours] = np.log(belief.after(dataset).quantiles(LEVELS))
        weight_of[domain, victims, neighbours] = weight
    return job_places(dataset, jobs), quantiles, weight_of


def _champion_predictions(
    champion: FittedModel, dataset: Dataset, place: Ints, believed: NDArray[np.bool_], tables: Sequence[Table]
) -> Floats:
    """Return the champion's log slowdown of each `believed` pair, float64[D + 1, S + 1, S + 1], else NaN.

    The predictions are made from the profiles as the server reads them.
    """
    encoder, completion = FeatureEncoder(), completion_of_model(champion, dataset)
    predicted, identity_at = np.full(believed.shape, np.nan), np.zeros(believed.shape[-1], dtype=np.int64)
    identity_at[place] = np.arange(len(place))
    for d in np.flatnonzero(believed.any(axis=(1, 2))).tolist():
        a, b = np.nonzero(believed[d])
        jobs, identities = encoded_workloads(dataset, d - 1, tables, encoder, completion), np.arange(1, len(place))
        rows = pair_rows(encoder, jobs, identities, identity_at[a] - 1, identity_at[b] - 1, d)
        predicted[d, a, b] = champion.predict(rows)
    return predicted


def _corrected(champion: FittedModel, place: Ints, corrections: Floats) -> FittedModel:
    """Return the champion with corrections float64[D + 1, S + 1, S + 1] of its log slowdowns."""
    if isinstance(champion, FittedCompleted):
        return replace(champion, inner=with_corrections(champion.inner, place, corrections))
    return with_corrections(champion, place, corrections)


def _with_champion(candidates: Candidates, champion: FittedModel, held_out: Dataset) -> Candidates:
    """Return the candidates with another fitted champion, scored on the held-out pairs."""
    name = candidates.champion
    residuals = {e.model: e.residual(candidates.dataset) for e in candidates.champion_evaluations if e.split == "pair"}
    own = {each[1]: each for each in held_out_scores({name: champion}, held_out, residuals)}
    scores = tuple(own.get(each[1], each) for each in candidates.held_out)
    return replace(candidates, fitted={**candidates.fitted, name: champion}, held_out=scores)


# --- the corrected model ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedBelieved:
    """A fitted model, corrected for the pairs of `S` believed jobs; `D` domains, `N` workloads.

    With place a(i) of job i among the believed jobs (0: none), i beside j on domain d:

        log ŝ = model(i, j, d) + correction[d, a(i), a(j)]

    where the correction is the belief's log slowdown minus the model's for the published profiles, times the weight of
    the belief. A job whose facts differ from its published profile still gets the model's response to this difference.
    """

    inner: FittedModel
    place: Ints  # int64[N + 1]
    corrections: Floats  # float64[D + 1, S + 1, S + 1]; 0 for a pair without a belief

    @property
    def name(self) -> str:
        """Return the name of the inner model."""
        return self.inner.name

    @property
    def space(self) -> JobSpace | None:
        """Return the space of the known jobs, or None for a model without one."""
        space: JobSpace | None = getattr(self.inner, "space", None)
        return space

    def predict(self, rows: PairRows) -> Floats:
        """Return predicted log slowdowns, float64[p]."""
        correction = self.corrections[rows.domain, self.place[rows.victim], self.place[rows.neighbour]]
        return np.asarray(self.inner.predict(rows) + correction)

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx`: the inner model's graph, three table lookups and a sum."""
        graph = Graph(PAIR_INPUTS)
        graph.include("inner/", self.inner.to_onnx())
        correction = self._correction(graph, "victim", "neighbour")
        return graph.serialised({"log_slowdown": graph("Add", "inner/log_slowdown", correction)})

    def _correction(self, graph: Graph, victim: str, neighbour: str) -> str:
        """Add the nodes of the corrections for identities `victim` beside identities `neighbour`."""
        places = (graph.lookup(self.place, identity) for identity in (victim, neighbour))
        return graph.lookup(self.corrections.astype(np.float32), "domain", *places)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedBelievedMatrix(FittedBelieved):
    """A corrected model that factorises over jobs, so that it can also export a matrix graph."""

    inner: FittedMatrixModel

    def to_matrix_onnx(self) -> bytes:
        """Return the serialised `matrix.onnx`: the inner model's matrix graph with corrections in both directions."""
        graph = Graph(MATRIX_INPUTS)
        graph.include("inner/", self.inner.to_matrix_onnx())
        victims, neighbours = graph.as_rows("victim_id"), "neighbour_id"
        directions = {"log_victim": (victims, neighbours), "log_neighbour": (neighbours, victims)}
        return graph.serialised(
            {name: graph("Add", f"inner/{name}", self._correction(graph, *pair)) for name, pair in directions.items()}
        )


def with_corrections(model: FittedModel, place: Ints, corrections: Floats) -> FittedBelieved:
    """Return the model with these corrections; a model that factorises over jobs keeps its matrix graph."""
    kind = FittedBelievedMatrix if hasattr(model, "to_matrix_onnx") else FittedBelieved
    return kind(inner=model, place=place, corrections=corrections)  # type: ignore[arg-type]
