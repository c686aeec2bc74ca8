"""Splits of the dataset into folds that hide the pair, a job, a family, the device type, or later measurements.

Law 1: no unordered pair is on both sides of a fold, whatever its direction, device type or table; in `device` this
holds for each device type (the same pair on other device types is what that split learns from).
Law 2: a workload that a fold hides is in no training row; in `neighbour` it is in none as the neighbour.
Law 3: a row that was translated from another software stack is never tested.
Law 4: equal seeds give equal folds, independent of the splits drawn before.
Law 5: folds of a version never change: `splits_v1.json` holds a checksum of those of every public table.

`pair`       5 folds of unordered pairs.
`job`        groups of workloads (`job_groups`); tested on rows with exactly one hidden workload, or a self pair of one.
`family`     one family at a time, a workload without a family by itself; tested as in `job`.
`neighbour`  groups of workloads, hidden as neighbours only. Of the pairs with a hidden workload a random half trains
             with it as the victim, the other half tests with it as the neighbour.
`device`     one device type at a time, of which 20 calibration pairs train.
`time`       tests the last fifth of the pairs by first measurement; trains on rows measured before all of them.
`service_pair`  as `pair`, with a service at all its offered loads as one job: workloads are named `service@load`.
`sparse10`, `sparse20`, `sparse40`: only that percentage of the unordered pairs trains, all others test.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, UnfitError
from interfere.extensions import ExtensionKind, find_extension
from interfere.training.dataset import Dataset, pair_keys
from interfere.training.models.estimator import pair_frame

PAIR_FOLDS = 5
CALIBRATION_PAIRS = 20  # of the tested device type that train
LATEST_SHARE = 0.2  # share of the pairs that `time` tests
MIN_TRAIN_ROWS = 4  # a fold with fewer training rows is left out

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Row indices to fit on and to test on: disjoint, and not necessarily all rows."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    hides: str = ""  # the hidden family or device type; "" for a random fold


class FixedOrder:
    """Random draws that depend on a text alone, on no library's generator: every release draws the same folds."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._drawn = 0

    def random(self, count: int) -> NDArray[np.float64]:
        """Return numbers of [0, 1), float64[count]: SHA-256 of the text and a counter, its first 53 bits."""
        self._drawn += count
        digests = (
            hashlib.sha256(f"{self._text} {k}".encode()).digest() for k in range(self._drawn - count, self._drawn)
        )
        return np.array([(int.from_bytes(digest[:8], "big") >> 11) / 2**53 for digest in digests])

    def permutation(self, values: Any) -> NDArray[Any]:
        """Return the values in a random order."""
        array = np.asarray(values)
        return array[np.argsort(self.random(len(array)), kind="stable")]


Draws = np.random.Generator | FixedOrder


def folds(dataset: Dataset, split: str, seed: int, count: int | None = None, version: str = "") -> tuple[Fold, ...]:
    """Return the folds of the named split; `count` sets the number of random folds (for `sparse`, of draws).

    `device` and `time` have no random folds and ignore `count`; `family` puts the families into that many groups. With
    a version (`VERSIONS`) the folds are those published under it, whatever the seed. A split of another package has the
    name of an entry point, or is `package:function` (`_other_folds`). Raises UnfitError where the rows cannot be split
    this way, InvalidInputError for an unknown split or a bad count.
    """
    if count is not None and count < 1:
        raise InvalidInputError("number of folds", value=str(count), remedy="at least 1")
    if split in SPLITTERS:
        rng = FixedOrder(f"{version} {split}") if version else np.random.default_rng([seed, SPLITS.index(split)])
        drawn = SPLITTERS[split](dataset, rng, count)
    else:
        drawn = _other_folds(dataset, split, seed)
    drawn = [replace(fold, test=fold.test[~dataset.aligned[fold.test]]) for fold in drawn]
    usable = tuple(fold for fold in drawn if len(fold.train) >= MIN_TRAIN_ROWS and len(fold.test) > 0)
    if not usable:
        raise UnfitError(
            f"the rows cannot be split by {split}",
            value=f"{len(dataset)} rows of {len(np.unique(dataset.group))} pairs",
            remedy="measure more pairs between more workloads: interfere profile campaign",
        )
    return usable


def _other_folds(dataset: Dataset, split: str, seed: int) -> list[Fold]:
    """Return the folds of another package's split: a function (DataFrame of pairs, seed) -> (train, test) positions.

    Raises InvalidInputError for an unknown name, UnfitError where it fails, or trains on what it tests.
    """
    function = find_extension(ExtensionKind.SPLIT, split, SPLITS)
    try:
        parts = [
            (np.unique(np.asarray(train)).astype(np.int64), np.unique(np.asarray(test)).astype(np.int64))
            for train, test in function(pair_frame(dataset), seed)
        ]
    except Exception as error:
        raise UnfitError("a split of another package fails", value=f"{split}: {error}") from error
    for train, test in parts:
        positions = np.concatenate([train, test])
        if (positions < 0).any() or (positions >= len(dataset)).any() or len(np.unique(positions)) < len(positions):
            raise UnfitError(
                "a split of another package gives no folds",
                value=f"{split}, {len(dataset)} rows",
                remedy="yield (train, test), positions of rows from 0 on, no row in both",
            )
    return [Fold(train=train, test=test) for train, test in parts]


def job_groups(workloads: int) -> int:
    """Return how many groups `job` and `neighbour` hide in turn: 7 for Gavel's 26 configurations, 8 for Lucid's 41.

    One group per five workloads, 7 to 8 groups, so that a small table keeps six sevenths of its workloads for training.
    """
    return min(workloads, 8, max(7, round(workloads / 5)))


def _pair_folds(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:
    parts = np.array_split(rng.permutation(np.unique(dataset.group)), count or PAIR_FOLDS)
    tested = [np.isin(dataset.group, part) for part in parts]
    return [_fold(~mask, mask) for mask in tested]


def _service_pair_folds(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:
    services = [tuple(sorted(name.partition("@")[0] for name in pair)) for pair in dataset.unordered_pairs]
    names = sorted(set(services))
    place = {pair: k for k, pair in enumerate(names)}
    group = np.array([place[pair] for pair in services])[dataset.group]
    parts = np.array_split(rng.permutation(np.unique(group)), count or PAIR_FOLDS)
    return [_fold(~mask, mask) for mask in (np.isin(group, part) for part in parts)]


def _job_folds(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:
    return [_hide_workloads(dataset, hidden) for hidden in _workload_groups(dataset, rng, count)]


def _family_folds(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:
    """Return folds that hide families. Only families measured beside another family are hidden, since others give no
    test row."""
    family_of = [family or name for name, family in zip(dataset.workloads, dataset.families, strict=True)]
    names = sorted({name for pair in _family_pairs(dataset, family_of) if len(pair) == 2 for name in pair})
    members = {name: [k for k, family in enumerate(family_of, 1) if family == name] for name in names}
    groups = [[name] for name in names]
    if count is not None and names:
        groups = [list(group) for group in np.array_split(rng.permutation(names), min(count, len(names)))]
    return [
        _hide_workloads(dataset, np.array([k for name in group for k in members[name]]), hides=", ".join(sorted(group)))
        for group in groups
    ]


def _family_pairs(dataset: Dataset, family_of: Sequence[str]) -> set[frozenset[str]]:
    """Return the set of families of both jobs for every row. A pair within one family is a set of one name."""
    ids = zip(dataset.rows.victim.tolist(), dataset.rows.neighbour.tolist(), strict=True)
    return {frozenset((family_of[i - 1], family_of[j - 1])) for i, j in ids}


def _neighbour_folds(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:
    neighbour_folds = []
    for hidden in _workload_groups(dataset, rng, count):
        tests_pair = (rng.random(len(dataset.unordered_pairs)) < 0.5)[dataset.group]
        tests_pair |= dataset.rows.victim == dataset.rows.neighbour  # a self pair shows its job in both roles
        new_victim, new_neighbour = np.isin(dataset.rows.victim, hidden), np.isin(dataset.rows.neighbour, hidden)
        neighbour_folds.append(_fold(~new_neighbour & (~new_victim | ~tests_pair), new_neighbour & tests_pair))
    return neighbour_folds


def _device_folds(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:  # noqa: ARG001 - one fold a device type
    types = np.array([domain.device_type for domain in dataset.domains])[dataset.domain]
    names = sorted(set(types.tolist()))
    if len(names) < 2:
        raise UnfitError(
            "the split by device needs rows of two device types",
            value=f"only {', '.join(names)}",
            remedy="add a table of another device type with --data",
        )
    device_folds = []
    for name in names:
        on_device = types == name
        calibration_pairs = rng.permutation(np.unique(dataset.group[on_device]))[:CALIBRATION_PAIRS]
        calibrates = np.isin(dataset.group, calibration_pairs)
        device_folds.append(_fold(~on_device | calibrates, on_device & ~calibrates, hides=name))
    return device_folds


def _time_folds(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:  # noqa: ARG001 - nothing is drawn
    # 1. Find when each pair was first measured.
    has_time = np.isfinite(dataset.measured_at_s)
    measured_at_s = np.where(has_time, dataset.measured_at_s, np.inf)
    first_s = np.full(len(dataset.unordered_pairs), np.inf)
    np.minimum.at(first_s, dataset.group, measured_at_s)
    times_s = np.sort(first_s[np.isfinite(first_s)])
    if len(times_s) == 0 or times_s[0] == times_s[-1]:
        raise UnfitError(
            "the split by time needs rows that say when they were measured",
            value="no row has a time" if len(times_s) == 0 else "all pairs have one time",
            remedy="split by pair or job, or import a table with times",
        )
    # 2. Cut before the last fifth, but after the pairs that share the earliest time.
    cut_s = times_s[min(int(np.ceil((1 - LATEST_SHARE) * len(times_s))), len(times_s) - 1)]
    if cut_s == times_s[0]:
        cut_s = times_s[times_s > cut_s][0]
    return [_fold(measured_at_s < cut_s, has_time & (first_s[dataset.group] >= cut_s))]


def _sparse_folds(percent: int) -> "Splitter":
    def draw(dataset: Dataset, rng: Draws, count: int | None) -> list[Fold]:
        groups = np.unique(dataset.group)
        size = max(1, round(percent / 100 * len(groups)))
        trained = [np.isin(dataset.group, rng.permutation(groups)[:size]) for _ in range(count or 1)]
        return [_fold(mask, ~mask) for mask in trained]

    return draw


def _hide_workloads(dataset: Dataset, hidden: NDArray[np.int64], *, hides: str = "") -> Fold:
    """Return the fold that trains on rows without a hidden workload.

    Rows with exactly one hidden workload, and self pairs of one, are its tests.
    """
    victim, neighbour = dataset.rows.victim, dataset.rows.neighbour
    new_victim, new_neighbour = np.isin(victim, hidden), np.isin(neighbour, hidden)
    tested = (new_victim ^ new_neighbour) | (new_victim & (victim == neighbour))
    return _fold(~new_victim & ~new_neighbour, tested, hides=hides)


def _workload_groups(dataset: Dataset, rng: Draws, count: int | None) -> Sequence[NDArray[np.int64]]:
    """Return random groups of workload identities, `job_groups` of them unless `count` is given."""
    workloads = np.unique(np.concatenate([dataset.rows.victim, dataset.rows.neighbour]))
    return np.array_split(rng.permutation(workloads), min(count or job_groups(len(workloads)), len(workloads)))


def _fold(train: Bools, test: Bools, *, hides: str = "") -> Fold:
    return Fold(train=np.flatnonzero(train), test=np.flatnonzero(test), hides=hides)


Splitter = Callable[[Dataset, Draws, int | None], list[Fold]]
SPLITTERS: Mapping[str, Splitter] = {
    "pair": _pair_folds,
    "job": _job_folds,
    "family": _family_folds,
    "neighbour": _neighbour_folds,
    "device": _device_folds,
    "time": _time_folds,
    "sparse10": _sparse_folds(10),
    "sparse20": _sparse_folds(20),
    "sparse40": _sparse_folds(40),
    "service_pair": _service_pair_folds,
}
SPLITS = tuple(SPLITTERS)
VERSIONS: Mapping[str, tuple[str, ...]] = {"v1": ("pair", "job", "family", "neighbour", "device", "time")}
"""Version of published splits → its splits, of which a table has those that its rows allow."""
SELECTION_SPLITS = ("pair", "job")  # the splits that `evaluate` reports by default
SPLITS_OF_UNSEEN_JOBS = frozenset({"job", "family"})  # each fold hides all rows of its jobs
SPLITS_OF_UNLIKE_FOLDS = frozenset({"job", "family", "neighbour", "device"})  # each fold hides other jobs or devices


# --- published folds -------------------------------------------------------------------------------------------------


def published_splits(version: str) -> Mapping[str, Any]:
    """Return the published checksums of a version. For each table there is one of its rows and one of each split."""
    path = Path(__file__).with_name(f"splits_{version}.json")
    tables: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return tables


def splits_record(dataset: Dataset, version: str) -> dict[str, Any]:
    """Return the checksum of a table's rows with their slowdowns, and of the folds of each split that they allow."""
    names = _row_names(dataset)
    measured = (f"{name} {log_slowdown:.6f}" for name, log_slowdown in zip(names, dataset.log_slowdown, strict=True))
    splits = {}
    for split in VERSIONS[version]:
        try:
            drawn = folds(dataset, split, 0, version=version)
        except UnfitError:
            continue
        sides = (side for fold in drawn for side in (fold.train, fold.test))
        splits[split] = _digest("\n".join(sorted(names[side])) for side in sides)
    return {"rows": _digest(sorted(measured)), "splits": splits}


def check_published(dataset: Dataset, version: str, splits: Sequence[str]) -> str:
    """Return a line that says whether the folds are the published ones of a public table, or of a table of one's own.

    Raises UnfitError where a public table has other folds than the published ones.
    """
    record = splits_record(dataset, version)
    for name, published in published_splits(version).items():
        if published["rows"] == record["rows"]:
            other = [split for split in splits if record["splits"].get(split) != published["splits"].get(split)]
            if other:
                raise UnfitError(
                    f"the folds of the table {name} are not those published as {version}",
                    value=", ".join(other),
                    remedy="report this: published folds must never change",
                )
            return f"the folds are those published as {version} for the table {name}"
    known = ", ".join(published_splits(version))
    return f"the folds are drawn as {version} draws them; the table is none of the published ones ({known})"


def _row_names(dataset: Dataset) -> Any:
    """Return a name for each row, str[p]: victim, neighbour, device type and mode, numbered where they recur."""
    recurrences: dict[object, int] = {}
    names = []
    for key in pair_keys(dataset):
        recurrences[key] = recurrences.get(key, -1) + 1
        names.append("\t".join((*map(str, key), str(recurrences[key]))))
    return np.array(names, dtype=object)


def _digest(parts: Any) -> str:
    return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()[:16]
