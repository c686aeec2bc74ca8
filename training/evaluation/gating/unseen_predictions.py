"""Predictions of one model for rows that its folds hid: of the pair, of its victim, and of its neighbour.

They are published with a champion, so that a later challenger can be compared with it on the same trusted rows, which
neither saw, although both are fitted on them in the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.sides import Side, rows_of_side

Floats = NDArray[np.float64]
ARRAY = "unseen_{}_log"  # name of each array in the model folder


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenPredictions:
    """Log slowdowns, float64[p] each; NaN for a row that was not tested so."""

    pair: Floats  # both jobs were seen, their pair was not
    own: Floats  # no training row showed the victim
    others: Floats  # no training row showed the neighbour

    def take(self, index: NDArray[Any]) -> "UnseenPredictions":
        """Select rows by an index array or a mask."""
        return UnseenPredictions(pair=self.pair[index], own=self.own[index], others=self.others[index])

    def arrays(self) -> dict[str, Floats]:
        """The arrays of a model folder, by name."""
        return {ARRAY.format(name): getattr(self, name) for name in self.__dataclass_fields__}


def unseen_predictions(dataset: Dataset, evaluations: Sequence[Evaluation]) -> UnseenPredictions:
    """One entry per row of the dataset, from the out-of-fold evaluations of one model on the splits pair and job."""
    found = {name: np.full(len(dataset), np.nan) for name in UnseenPredictions.__dataclass_fields__}
    for evaluation in evaluations:
        if evaluation.split == "pair":
            found["pair"][evaluation.index] = evaluation.predicted_log
        elif evaluation.split == "job":
            victim = dataset.rows.victim[evaluation.index]
            for side in Side:
                tests = rows_of_side(side, victim, evaluation.subject)
                found[side][evaluation.index[tests]] = evaluation.predicted_log[tests]
    return UnseenPredictions(**found)


def read_unseen_predictions(arrays: Mapping[str, Any]) -> UnseenPredictions | None:
    """Those of a model folder; None where it was published without."""
    names = {name: ARRAY.format(name) for name in UnseenPredictions.__dataclass_fields__}
    if not all(name in arrays for name in names.values()):
        return None
    return UnseenPredictions(**{field: np.asarray(arrays[name], dtype=np.float64) for field, name in names.items()})
