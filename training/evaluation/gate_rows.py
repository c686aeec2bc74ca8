"""Which tests challenger and champion meet on: rows neither was fitted on where there are enough, else the same folds.

The rule stands in `gate`. The champion of the registry is read from its published folder, as the server reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.predict.manifest import Manifest, read_manifest
from interfere.predict.measured import read_measured_table
from interfere.protocols import PairEncoder
from training.dataset import Dataset, Pair, Rows, unordered
from training.evaluation.cross_validation import Evaluation
from training.evaluation.gate import MIN_ROWS, MIN_WORKLOADS, Contest, Verdict, judge
from training.models.model import FittedModel
from training.publishing.export import run_pairs, session_of

BASELINES = ("mean", "additive")
FIRST = "first model of this registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A published champion. Without `graph` this program cannot run it, and only its recipe can be compared."""

    number: int  # in the registry
    model: str  # its recipe, one of `training.models.catalogue.MODELS`; "" when it is not known
    manifest: Manifest | None
    graph: Any  # session of pair.onnx, or None
    fitted: frozenset[Pair]  # unordered pairs it learned from

    def answers(self, dataset: Dataset) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(log slowdown, is it an answer) of every row: none on a domain it never saw."""
        assert self.manifest is not None
        names = {name: k + 1 for k, name in enumerate(self.manifest.workloads)}
        identity = np.array([0, *(names.get(name, 0) for name in dataset.workloads)], dtype=np.int64)
        places = {domain: k + 1 for k, domain in enumerate(self.manifest.domains)}
        domain = np.array([places.get(one, 0) for one in dataset.domains], dtype=np.int64)[dataset.domain]
        rows = Rows(
            pairs=dataset.rows.pairs,
            victim=identity[dataset.rows.victim],
            neighbour=identity[dataset.rows.neighbour],
            domain=domain,
        )
        return (run_pairs(self.graph, rows) if len(rows) else np.zeros(0)), domain > 0

    def knows(self, dataset: Dataset) -> NDArray[np.bool_]:
        """bool[p]: rows of pairs it learned from, on any device type."""
        return np.array([pair in self.fitted for pair in dataset.pairs], dtype=bool)[dataset.group]


def read_rival(number: int, model: str, folder: Path, encoder: PairEncoder) -> Rival:
    """The champion in `folder`; one that this program must not serve keeps only its recipe's name."""
    try:
        manifest = read_manifest(folder, encoder.fingerprint)
        fitted = frozenset(unordered(key.victim, key.neighbour) for key in read_measured_table(folder, manifest))
        graph = session_of((folder / "pair.onnx").read_bytes())
    except ModelError:
        return Rival(number=number, model=model, manifest=None, graph=None, fitted=frozenset())
    return Rival(number=number, model=manifest.model, manifest=manifest, graph=graph, fitted=fitted)


def verdict_on(
    challenger: FittedModel,
    rival: Rival | None,
    fitted_on: Dataset,
    unseen: Dataset,
    evaluations: Sequence[Evaluation],
    *,
    seed: int,
) -> Verdict:
    """The gate's verdict on a model fitted on `fitted_on`; `evaluations` hold its recipe and all others out of fold."""
    by_name = {(e.split, e.model): e for e in evaluations}
    splits = dict.fromkeys(e.split for e in evaluations)
    baselines = [
        (f"{name} on split {split}", _on_folds(fitted_on, by_name[split, challenger.name], by_name[split, name]))
        for split in splits
        for name in BASELINES
        if name != challenger.name and (split, name) in by_name
    ]
    if rival is None:
        return judge([], FIRST, baselines=baselines, seed=seed)
    who = f"champion version {rival.number}"
    if rival.graph is not None:
        fresh = _fresh(challenger, rival, fitted_on, unseen, by_name["pair", challenger.name])
        if len(fresh) >= MIN_ROWS and len(fresh.workloads) >= MIN_WORKLOADS:
            return judge([fresh], f"{who} on {len(fresh)} rows neither saw", baselines=baselines, seed=seed)
    if ("pair", rival.model) not in by_name:  # a recipe that was not fitted here: nothing is left to compare with
        return judge([], f"nothing to compare {who} ({rival.model}) on", baselines=baselines, seed=seed)
    contests = [_on_folds(fitted_on, by_name[split, challenger.name], by_name[split, rival.model]) for split in splits]
    return judge(contests, f"{who}'s recipe ({rival.model}) on the same folds", baselines=baselines, seed=seed)


def _on_folds(dataset: Dataset, challenger: Evaluation, champion: Evaluation) -> Contest:
    assert np.array_equal(challenger.index, champion.index), "both recipes were tested on the same folds"
    index = challenger.index
    return Contest(
        domain=dataset.domain[index],
        victim=dataset.rows.victim[index],
        neighbour=dataset.rows.neighbour[index],
        measured=dataset.log_slowdown[index],
        challenger=challenger.predicted_log,
        champion=champion.predicted_log,
    )


def _fresh(challenger: FittedModel, rival: Rival, fitted_on: Dataset, unseen: Dataset, by_pair: Evaluation) -> Contest:
    """Held-out rows by the challenger itself, rows new since the champion by its folds; the champion by its graph."""
    held_out, new = unseen.take(~rival.knows(unseen)), ~rival.knows(fitted_on)[by_pair.index]
    tested = fitted_on.take(by_pair.index[new])
    parts = []
    for part, answers in ((held_out, challenger.predict(held_out.rows)), (tested, by_pair.predicted_log[new])):
        theirs, answered = rival.answers(part)
        parts.append(
            (
                part.domain[answered],
                part.rows.victim[answered],
                part.rows.neighbour[answered],
                part.log_slowdown[answered],
                answers[answered],
                theirs[answered],
            )
        )
    columns = [np.concatenate(both) for both in zip(*parts, strict=True)]
    return Contest(**dict(zip(Contest.__dataclass_fields__, columns, strict=True)))
