"""Which rows test a model that never saw their pair, one of their jobs, their device type, or what came later.

Law 1: no unordered pair stands on both sides of a fold, whatever its direction, device type or table; in `device` no
unordered pair of one device type does (the same pair on another device type is what that split learns from).
Law 2: a workload that a fold hides is in no training row; in `neighbour` it is in none as the neighbour.
Law 3: equal seeds give equal folds, whatever other splits were drawn before.

`pair`       5 folds of unordered pairs.
`job`        groups of workloads (`job_groups`); tested on rows with exactly one hidden workload, or a self pair of one.
`family`     one family at a time, a workload without one by itself; tested as `job` is.
`neighbour`  groups of workloads, hidden as neighbours only. Of the pairs with a hidden workload a random half shows it
             as the victim (training), the other half as the neighbour (tests).
`device`     one device type at a time, but for 20 calibration pairs.
`time`       pairs first measured in the last fifth, learned from rows measured before the first of them.
`sparse10`, `sparse20`, `sparse40`: only that per cent of the unordered pairs trains, all others test.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, UnfitError
from training.dataset import Dataset

PAIR_FOLDS = 5
CALIBRATION_PAIRS = 20  # seen on an otherwise unseen device type
LATEST = 0.2  # share of the pairs that `time` tests
MIN_TRAIN_ROWS = 4  # a fold that leaves less to learn from says nothing

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Row indices to fit on and to test on; disjoint, not always everything."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    hides: str = ""  # the family or device type that is hidden; "" for a random part


def folds(dataset: Dataset, split: str, seed: int, count: int | None = None) -> tuple[Fold, ...]:
    """Folds of the named split; `count` changes how many random parts (`sparse`: draws) there are.

    `device` and `time` have no random parts and ignore `count`; `family` deals families into that many groups.
    Raises UnfitError when the rows cannot be split this way, InvalidInputError for an unknown split or a bad count.
    """
    if split not in MAKERS:
        raise InvalidInputError("unknown split", value=split, remedy=f"one of {', '.join(SPLITS)}")
    if count is not None and count < 1:
        raise InvalidInputError("number of folds", value=str(count), remedy="at least 1")
    made = MAKERS[split](dataset, np.random.default_rng([seed, SPLITS.index(split)]), count)
    kept = tuple(fold for fold in made if len(fold.train) >= MIN_TRAIN_ROWS and len(fold.test) > 0)
    if not kept:
        raise UnfitError(
            f"the rows cannot be split by {split}",
            value=f"{len(dataset)} rows of {len(np.unique(dataset.group))} pairs",
            remedy="measure more pairs between more workloads: interfere profile campaign",
        )
    return kept


def job_groups(workloads: int) -> int:
    """How many groups `job` and `neighbour` hide in turn: 7 of Gavel's 26 configurations, 8 of Lucid's 41.

    One in five, no fewer than 7 groups, so that a small table keeps six sevenths of its workloads to learn from.
    """
    return min(workloads, 8, max(7, round(workloads / 5)))


def _pairs(dataset: Dataset, rng: np.random.Generator, count: int | None) -> list[Fold]:
    parts = np.array_split(rng.permutation(np.unique(dataset.group)), count or PAIR_FOLDS)
    hidden = [np.isin(dataset.group, part) for part in parts]
    return [_fold(~mask, mask) for mask in hidden]


def _jobs(dataset: Dataset, rng: np.random.Generator, count: int | None) -> list[Fold]:
    return [_without(dataset, part) for part in _workload_parts(dataset, rng, count)]


def _families(dataset: Dataset, rng: np.random.Generator, count: int | None) -> list[Fold]:
    """A family that was only ever measured with itself is not hidden: it was never beside a known one."""
    family_of = [family or name for name, family in zip(dataset.workloads, dataset.families, strict=True)]
    names = sorted({name for pair in _family_pairs(dataset, family_of) if len(pair) == 2 for name in pair})
    members = {name: [k for k, own in enumerate(family_of, 1) if own == name] for name in names}
    parts = [[name] for name in names]
    if count is not None:
        parts = [list(part) for part in np.array_split(rng.permutation(names), min(count, len(names)))]
    return [
        _without(dataset, np.array([k for name in part for k in members[name]]), hides=", ".join(sorted(part)))
        for part in parts
    ]


def _family_pairs(dataset: Dataset, family_of: Sequence[str]) -> set[frozenset[str]]:
    ids = zip(dataset.rows.victim.tolist(), dataset.rows.neighbour.tolist(), strict=True)
    return {frozenset((family_of[i - 1], family_of[j - 1])) for i, j in ids}


def _neighbours(dataset: Dataset, rng: np.random.Generator, count: int | None) -> list[Fold]:
    made = []
    for part in _workload_parts(dataset, rng, count):
        asked = (rng.random(len(dataset.pairs)) < 0.5)[dataset.group]
        asked |= dataset.rows.victim == dataset.rows.neighbour  # a self pair shows it in both roles
        new_victim, new_neighbour = np.isin(dataset.rows.victim, part), np.isin(dataset.rows.neighbour, part)
        made.append(_fold(~new_neighbour & (~new_victim | ~asked), new_neighbour & asked))
    return made


def _devices(dataset: Dataset, rng: np.random.Generator, count: int | None) -> list[Fold]:  # noqa: ARG001 - one a type
    types = np.array([domain.device_type for domain in dataset.domains])[dataset.domain]
    names = sorted(set(types.tolist()))
    if len(names) < 2:
        raise UnfitError(
            "the split by device needs rows of two device types",
            value=f"only {', '.join(names)}",
            remedy="add a table of another device type with --data",
        )
    made = []
    for name in names:
        here = types == name
        shown = np.isin(dataset.group, rng.permutation(np.unique(dataset.group[here]))[:CALIBRATION_PAIRS])
        made.append(_fold(~here | shown, here & ~shown, hides=name))
    return made


def _latest(dataset: Dataset, rng: np.random.Generator, count: int | None) -> list[Fold]:  # noqa: ARG001 - no chance
    known = np.isfinite(dataset.measured_at_s)
    when = np.where(known, dataset.measured_at_s, np.inf)
    first = np.full(len(dataset.pairs), np.inf)
    np.minimum.at(first, dataset.group, when)
    times = np.sort(first[np.isfinite(first)])
    if len(times) == 0 or times[0] == times[-1]:
        raise UnfitError(
            "the split by time needs rows that say when they were measured",
            value="no row has a time" if len(times) == 0 else "all pairs have one time",
            remedy="split by pair or job, or import a table with times",
        )
    cut = times[min(int(np.ceil((1 - LATEST) * len(times))), len(times) - 1)]
    if cut == times[0]:  # so many share the first time that the fifth begins with it
        cut = times[times > cut][0]
    return [_fold(when < cut, known & (first[dataset.group] >= cut))]


def _sparse(percent: int) -> "Maker":
    def made(dataset: Dataset, rng: np.random.Generator, count: int | None) -> list[Fold]:
        groups = np.unique(dataset.group)
        kept = max(1, round(percent / 100 * len(groups)))
        seen = [np.isin(dataset.group, rng.permutation(groups)[:kept]) for _ in range(count or 1)]
        return [_fold(mask, ~mask) for mask in seen]

    return made


def _without(dataset: Dataset, hidden: NDArray[np.int64], *, hides: str = "") -> Fold:
    """Rows without the hidden workloads train; rows with exactly one, and self pairs of one, test."""
    victim, neighbour = dataset.rows.victim, dataset.rows.neighbour
    new_victim, new_neighbour = np.isin(victim, hidden), np.isin(neighbour, hidden)
    tested = (new_victim ^ new_neighbour) | (new_victim & (victim == neighbour))
    return _fold(~new_victim & ~new_neighbour, tested, hides=hides)


def _workload_parts(dataset: Dataset, rng: np.random.Generator, count: int | None) -> Sequence[NDArray[np.int64]]:
    workloads = np.unique(np.concatenate([dataset.rows.victim, dataset.rows.neighbour]))
    return np.array_split(rng.permutation(workloads), min(count or job_groups(len(workloads)), len(workloads)))


def _fold(train: Bools, test: Bools, *, hides: str = "") -> Fold:
    return Fold(train=np.flatnonzero(train), test=np.flatnonzero(test), hides=hides)


Maker = Callable[[Dataset, np.random.Generator, int | None], list[Fold]]
MAKERS: Mapping[str, Maker] = {
    "pair": _pairs,
    "job": _jobs,
    "family": _families,
    "neighbour": _neighbours,
    "device": _devices,
    "time": _latest,
    "sparse10": _sparse(10),
    "sparse20": _sparse(20),
    "sparse40": _sparse(40),
}
SPLITS = tuple(MAKERS)
CHOOSING = ("pair", "job")  # what training chooses its champion on
FOLDS_APART = frozenset({"job", "family", "neighbour", "device"})  # each fold asks about other unseen things
