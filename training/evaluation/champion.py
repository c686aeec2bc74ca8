"""The registry's champion beside a challenger: what it was fitted on, and the tests on which the gate compares both.

The champion is read as the server reads it: its published folder, its graph. `gate` states which rows are compared and
by which rule, and `drift` which labels contradict the champion.
A model that learns a site's log is also compared on the log's newest windows, each predicted before it is learned.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.acceptance.score import Case, score
from interfere.predict.completion import FactCompletion, read_completion
from interfere.predict.graphs import open_session
from interfere.predict.manifest import Manifest, read_manifest
from interfere.predict.measured import PairKey, read_measured_table
from interfere.predict.online.prior import read_prior
from interfere.predict.onnx import load_model, with_measurements
from interfere.predict.residual import OnlineModel
from interfere.protocols import PairEncoder
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, JobProfile
from interfere.sharing_modes import SharingMode
from interfere.store.observed_table import LoggedWindow
from interfere.training.dataset import Dataset, Pair, PairRows, pair_keys, unordered_pair
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.drift import label_contradiction
from interfere.training.evaluation.gate import (
    MIN_ROWS,
    MIN_WORKLOADS,
    PairedPredictions,
    SideComparison,
    UnseenPredictions,
    Verdict,
    compare_side,
    judge,
    paired,
    read_unseen_predictions,
    refused_labels,
    unseen_predictions,
)
from interfere.training.evaluation.scores import Side
from interfere.training.models.completed import complete_rows
from interfere.training.models.onnx_graph import run_pair_graph
from interfere.training.models.protocols import FittedModel

GATE_BASELINES = ("mean", "additive")
SCORED_WINDOWS = 200  # newest windows of pairs and groups that compare two models
MIN_SCORED_WINDOWS = 20  # fewer tell nothing about a model
SCORE_TOLERANCE = 0.003  # of the mean error, by which the model to be published may be worse
FIRST_MODEL = "first model of this registry"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedChampion:
    """A published champion. One that this program cannot run has no graph; only its model type can be compared."""

    number: int  # in the registry
    model: str  # one of `interfere.training.models.catalogue.MODELS`; "" where it is unknown
    manifest: Manifest | None
    graph: Any  # session of pair.onnx, or None
    fitted: frozenset[Pair]  # unordered pairs of its training
    # Log slowdown of each ordered pair of its training: (victim, neighbour, device type, mode).
    measured: Mapping[PairKey, float] = field(default_factory=dict)
    place: Mapping[PairKey, int] = field(default_factory=dict)  # of each of them in `unseen`
    unseen: UnseenPredictions | None = None  # None in folders of earlier releases
    completion: FactCompletion | None = None  # of absent facts; None in folders of earlier releases

    def predict(self, dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the log slowdown of each row, float64[p], and whether the champion knows its domain, bool[p]."""
        assert self.manifest is not None
        own_identity = {name: k + 1 for k, name in enumerate(self.manifest.workloads)}
        own_domain = {domain: k + 1 for k, domain in enumerate(self.manifest.domains)}
        identity = np.array([0, *(own_identity.get(name, 0) for name in dataset.workloads)], dtype=np.int64)
        domain = np.array([own_domain.get(name, 0) for name in dataset.domains], dtype=np.int64)[dataset.domain]
        encoded = dataset.rows if self.completion is None else complete_rows(dataset.rows, self.completion)
        rows = PairRows(
            pairs=encoded.pairs,
            victim=identity[dataset.rows.victim],
            neighbour=identity[dataset.rows.neighbour],
            domain=domain,
        )
        return (run_pair_graph(self.graph, rows) if len(rows) else np.zeros(0)), domain > 0

    def unseen_predictions(self, dataset: Dataset) -> UnseenPredictions:
        """Return the champion's out-of-fold predictions for the rows of a dataset; NaN for rows without one."""
        found = UnseenPredictions.missing(len(dataset))
        if self.unseen is not None:
            place = np.array([self.place.get(key, -1) for key in pair_keys(dataset)], dtype=np.int64)
            for field_ in fields(found):
                getattr(found, field_.name)[place >= 0] = getattr(self.unseen, field_.name)[place[place >= 0]]
        return found

    def score(self, split: str, metric: str) -> float:
        """Return one score of the champion's own training; NaN where it has none."""
        scores = {} if self.manifest is None else self.manifest.scores.get(split, {}).get(self.manifest.model, {})
        value = scores.get(metric)
        return math.nan if value is None else float(value)

    def was_fitted_on(self, dataset: Dataset) -> NDArray[np.bool_]:
        """Return bool[p]: whether the champion was fitted on the pair of each row, on any device type."""
        return np.array([pair in self.fitted for pair in dataset.unordered_pairs], dtype=bool)[dataset.group]


def read_champion(number: int, model: str, folder: Path, encoder: PairEncoder) -> PublishedChampion:
    """Return the champion in a folder; without a graph where the folder must not be served.

    `number` is its version in the registry, and `model` the kind of model where the folder does not say it.
    """
    try:
        manifest = read_manifest(folder, encoder.fingerprint)
        table = read_measured_table(folder, manifest)
        graph = open_session((folder / "pair.onnx").read_bytes())
        with np.load(folder / "arrays.npz") as arrays:
            completion, unseen = read_completion(arrays), read_unseen_predictions(arrays)
    except ModelError:
        return PublishedChampion(number=number, model=model, manifest=None, graph=None, fitted=frozenset())
    return PublishedChampion(
        number=number,
        model=manifest.model,
        manifest=manifest,
        graph=graph,
        fitted=frozenset(unordered_pair(key.victim, key.neighbour) for key in table),
        measured={key: math.log(row.slowdown) for key, row in table.items()},
        place={key: k for k, key in enumerate(table)},
        unseen=unseen,
        completion=completion,
    )


def gate_verdict(
    challenger: FittedModel,
    champion: PublishedChampion | None,
    training_set: Dataset,
    held_out: Dataset,
    evaluations: Sequence[Evaluation],
    *,
    seed: int,
    changed_domains: frozenset[tuple[str, SharingMode]] = frozenset(),
) -> Verdict:
    """Return the gate's verdict on a challenger that was fitted on `training_set`.

    `evaluations` are the out-of-fold evaluations of every model; `champion` is None for the first of a registry. Labels
    of `changed_domains`, device types and modes with another software stack than the champion's, may contradict the
    champion.
    """
    # 1. Compare with the baselines out of fold.
    by_split_and_model = {(e.split, e.model): e for e in evaluations}
    splits = dict.fromkeys(e.split for e in evaluations)

    def on_same_folds(split: str, model: str) -> PairedPredictions:
        own, other = by_split_and_model[split, challenger.name], by_split_and_model[split, model]
        assert np.array_equal(own.index, other.index), "both models were tested on the same folds"
        return paired(training_set, own.index, own.predicted_log, other.predicted_log)

    baselines = [
        (f"{name} on split {split}", on_same_folds(split, name))
        for split in splits
        for name in GATE_BASELINES
        if name != challenger.name and (split, name) in by_split_and_model
    ]
    # 2. The first model of a registry has to beat only these.
    if champion is None:
        return judge([], FIRST_MODEL, baselines=baselines, seed=seed)
    # 3. Refuse labels that contradict what the champion knows: every model agrees with the labels it was fitted on.
    label = f"champion version {champion.number}"
    unchanged = np.array([(each.device_type, each.mode) not in changed_domains for each in training_set.domains])
    if contradiction := label_contradiction(training_set.take(unchanged[training_set.domain]), champion):
        return refused_labels(label, contradiction)
    # 4. Compare both on the trusted rows, each row predicted by folds that hid it.
    own_evaluations = [evaluation for evaluation in evaluations if evaluation.model == challenger.name]
    trusted, sides = _trusted_tests(champion, training_set, own_evaluations, seed)
    if _is_enough(trusted):
        baselines.append((f"{label} on {len(trusted)} trusted rows, each hidden from both", trusted))
    # 5. Prefer rows that neither model was fitted on.
    if champion.graph is not None:
        unseen = _tests_unseen_by_both(
            challenger, champion, training_set, held_out, by_split_and_model["pair", challenger.name]
        )
        if _is_enough(unseen):
            against = f"{label} on {len(unseen)} rows unseen by both"
            return judge([unseen], against, baselines=baselines, sides=sides, seed=seed)
    if _is_enough(trusted):
        name, _ = baselines.pop()
        return judge([trusted], name, baselines=baselines, sides=sides, seed=seed)
    # 6. Else compare the two model types on the same folds, if the champion's type was fitted here.
    if ("pair", champion.model) not in by_split_and_model:
        return judge([], f"nothing to compare {label} ({champion.model}) on", baselines=baselines, seed=seed)
    tests = [on_same_folds(split, champion.model) for split in splits]
    return judge(tests, f"{label}'s model type ({champion.model}) on the same folds", baselines=baselines, seed=seed)


def _is_enough(tests: PairedPredictions) -> bool:
    return len(tests) >= MIN_ROWS and len(tests.workloads) >= MIN_WORKLOADS


def _trusted_tests(
    champion: PublishedChampion, training_set: Dataset, evaluations: Sequence[Evaluation], seed: int
) -> tuple[PairedPredictions, tuple[SideComparison, ...]]:
    """Return the out-of-fold tests of both models on the measured rows that both were fitted on, and the comparison of
    each side of new jobs that has enough of these rows."""
    own, published = unseen_predictions(training_set, evaluations), champion.unseen_predictions(training_set)

    def tests(field: str) -> PairedPredictions:
        challenger_log, champion_log = getattr(own, field), getattr(published, field)
        rows = ~(training_set.observed | training_set.aligned) & np.isfinite(challenger_log) & np.isfinite(champion_log)
        return paired(training_set, rows, challenger_log[rows], champion_log[rows])

    coverage = {e.split: asdict(e.scores) for e in evaluations}.get("job", {})
    sides = tuple(
        compare_side(
            side,
            tests_of_side,
            coverage=coverage.get(f"coverage_{side}", math.nan),
            champion_coverage=champion.score("job", f"coverage_{side}"),
            seed=seed,
        )
        for side in Side
        if _is_enough(tests_of_side := tests(side))
    )
    return tests("pair"), sides


def _tests_unseen_by_both(
    challenger: FittedModel,
    champion: PublishedChampion,
    training_set: Dataset,
    held_out: Dataset,
    pair_evaluation: Evaluation,
) -> PairedPredictions:
    """Return the tests on held-out rows, which the challenger itself predicts, and on rows that are new since the
    champion, which the challenger's folds predict."""

    def tests(rows: Dataset, by_challenger: Floats) -> PairedPredictions:
        by_champion, known = champion.predict(rows)
        return paired(rows, known, by_challenger[known], by_champion[known])

    held_out = held_out.take(~champion.was_fitted_on(held_out))
    index = pair_evaluation.index
    is_new = ~champion.was_fitted_on(training_set)[index]
    own = tests(held_out, challenger.predict(held_out.rows))
    out_of_fold = tests(training_set.take(index[is_new]), pair_evaluation.predicted_log[is_new])
    return PairedPredictions.concatenated([own, out_of_fold])


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScore:
    """How far a model that learns a log was off on its newest windows, each predicted before it was learned."""

    windows: int
    error: float  # mean error of speed; NaN without windows

    def refusal(self, served: "LogScore") -> str:
        """Return why this model must not replace the served one: "" where it errs no more, or too little is known."""
        if min(self.windows, served.windows) < MIN_SCORED_WINDOWS or self.error <= served.error + SCORE_TOLERANCE:
            return ""
        return (
            f"refused: on the newest {self.windows} windows of the log its mean error of speed is {self.error:.3f}, "
            f"that of the served model with the same log {served.error:.3f}"
        )


def score_on_log(
    folder: Path, encoder: PairEncoder, log: Sequence[LoggedWindow], profiles: Iterable[JobProfile]
) -> LogScore:
    """Return how well the model of a folder, served with this log, predicts the newest windows of the log.

    `profiles`, oldest first, are those that the server's store holds; the model's own stand behind them. Raises
    ModelError where the folder must not be served.
    """
    model = load_model(folder, encoder)
    predictor = with_measurements(model, folder)
    online = OnlineModel(
        predictor,
        read_prior(folder),
        measured=predictor.table,
        step_times=model.step_times,
        coordinates=model.coordinates,
    )
    known = dict(model.profiles) | {(profile.workload, profile.device_type): profile for profile in profiles}
    found = ((place, _case_of(logged, known)) for place, logged in enumerate(log))
    cases = [(place, case) for place, case in found if case is not None][-SCORED_WINDOWS:]
    starts = [*(place for place, _ in cases), len(log)]

    def learn(first: int, last: int) -> None:
        for logged in log[first:last]:
            online.observe(logged.window, lambda workload, device_type: known.get((workload, device_type)))

    learn(0, starts[0])
    every = [slice(k, k + 1) for k in range(len(cases))]
    scores = score(
        online, [case for _, case in cases], every, lambda part: learn(starts[part.start], starts[part.stop])
    )
    errors = [float(each.error[0]) for each in scores if math.isfinite(each.error[0])]
    return LogScore(windows=len(errors), error=float(np.mean(errors)) if errors else math.nan)


def _case_of(logged: LoggedWindow, known: Mapping[tuple[str, str], JobProfile]) -> Case | None:
    """Return the case of a window; None for a job alone, and where a profile or the slowdown is not known."""
    window = logged.window
    names = (window.workload, *window.company)
    profiles = [profile for name in names if (profile := known.get((name, window.device_type))) is not None]
    if len(names) == 1 or len(profiles) < len(names) or not MIN_SLOWDOWN <= logged.slowdown <= MAX_SLOWDOWN:
        return None
    victim, *neighbours = profiles
    return Case(
        victim=victim,
        neighbours=tuple(neighbours),
        device_type=window.device_type,
        mode=window.mode,
        slowdown=logged.slowdown,
    )
