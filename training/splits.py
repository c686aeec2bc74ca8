"""Which rows test a model that never saw their pair, or one of their jobs.

Law 1: no unordered pair stands on both sides of a fold, whatever its direction, device type or table.
Law 2: `job` tests rows with exactly one unseen job, or a self pair of an unseen job; unseen jobs never train.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, UnfitError
from training.dataset import Dataset

SPLITS = ("pair", "job")
PAIR_FOLDS = 5
JOB_FOLDS = 8  # groups of workloads; fewer when there are fewer workloads
MIN_TRAIN_ROWS = 4  # a fold that leaves less to learn from says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Row indices to fit on and to test on; disjoint, not always everything."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def folds(dataset: Dataset, split: str, seed: int) -> tuple[Fold, ...]:
    """Folds of the named split. Raises UnfitError when the rows cannot be split this way."""
    if split not in SPLITS:
        raise InvalidInputError("unknown split", value=split, remedy=f"one of {', '.join(SPLITS)}")
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    made = _pair_folds(dataset, rng) if split == "pair" else _job_folds(dataset, rng)
    kept = tuple(fold for fold in made if len(fold.train) >= MIN_TRAIN_ROWS and len(fold.test) > 0)
    if not kept:
        raise UnfitError(
            f"the rows cannot be split by {split}",
            value=f"{len(dataset)} rows of {len(np.unique(dataset.group))} pairs",
            remedy="measure more pairs between more workloads: interfere profile campaign",
        )
    return kept


def _pair_folds(dataset: Dataset, rng: np.random.Generator) -> list[Fold]:
    parts = np.array_split(rng.permutation(np.unique(dataset.group)), PAIR_FOLDS)
    hidden = [np.isin(dataset.group, part) for part in parts]
    return [Fold(train=np.flatnonzero(~mask), test=np.flatnonzero(mask)) for mask in hidden]


def _job_folds(dataset: Dataset, rng: np.random.Generator) -> list[Fold]:
    victim, neighbour = dataset.rows.victim, dataset.rows.neighbour
    workloads = np.unique(np.concatenate([victim, neighbour]))
    made = []
    for part in np.array_split(rng.permutation(workloads), min(JOB_FOLDS, len(workloads))):
        new_victim, new_neighbour = np.isin(victim, part), np.isin(neighbour, part)
        tested = (new_victim ^ new_neighbour) | (new_victim & (victim == neighbour))
        made.append(Fold(train=np.flatnonzero(~new_victim & ~new_neighbour), test=np.flatnonzero(tested)))
    return made
