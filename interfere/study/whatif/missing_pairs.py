"""Which truth a trace lacks, and which pairs to measure first: those that narrow the answer most.

A pair counts by the GPU hours in which jobs meet as this pair when everybody shares with whoever is there: of workloads
with h_i and h_j GPU hours of all H, h_i · h_j / H. What a measurement tells of other pairs is the belief of
`interfere.predict.transfer`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.predict.transfer.pair_belief import OrderedPair, PairBelief, pair_belief
from interfere.predict.transfer.pair_sources import source_of_model
from interfere.predict.transfer.process import pair_space
from interfere.sim.truth import TruthTable

MAX_WORKLOADS = 24  # with the most GPU hours: 576 ordered pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPair:
    """An unordered pair without a measurement, and the value of measuring it."""

    names: tuple[str, str]
    gpu_h: float  # in which jobs would meet as this pair
    error_now: float  # expected absolute error of its two speeds
    narrows: float  # by which the expected error of speeds falls, weighted by GPU hours, as a share of what it is now


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTruth:
    """The share of co-location hours whose pairs are not measured, and the pairs to measure first."""

    unmeasured_share: float  # of the GPU hours of all pairs
    pairs: tuple[MissingPair, ...]


def missing_truth(
    truth: TruthTable,
    tried: Collection[frozenset[str]],
    hours: Mapping[str, float],
    count: int,
) -> MissingTruth:
    """Return the share of hours without measured pairs, and the pairs to measure first.

    `tried`: unordered pairs with a row of measurements, including infeasible ones. Empty where the truth is a model's
    prediction. `hours`: GPU hours of each workload of the trace, most first.
    """
    names = list(hours)
    shares = np.array(list(hours.values()))
    together = np.outer(shares, shares) / max(float(shares.sum()), 1e-12)
    known = np.array([[frozenset((a, b)) in tried for b in names] for a in names], dtype=bool).reshape(together.shape)
    position = {name: k for k, name in enumerate(names)}
    names = names[:MAX_WORKLOADS]
    kept = together[: len(names), : len(names)]
    found = _belief(truth, tried, names).suggest(count, weights=kept) if names else ()
    pairs = []
    for each in found:
        i, j = (position[name] for name in each.pair)
        gpu_h = float(kept[i, j]) * (1 if i == j else 2)
        pairs.append(MissingPair(names=each.pair, gpu_h=gpu_h, error_now=each.error_now, narrows=each.gain))
    unmeasured = float(together[~known].sum()) / max(float(together.sum()), 1e-12)
    return MissingTruth(unmeasured_share=unmeasured, pairs=tuple(pairs))


def _belief(truth: TruthTable, tried: Collection[frozenset[str]], names: Sequence[str]) -> PairBelief:
    """Slowdowns of these workloads: additive effects of what is known, corrected by every measured pair; of a model
    without measurements its predictions."""
    logs = np.full((len(names), len(names)), np.nan)
    for i, j in np.ndindex(logs.shape):
        if names[i] in truth.index and names[j] in truth.index:
            logs[i, j] = np.log(truth.table[truth.index[names[i]], truth.index[names[j]]])
    known = np.isfinite(logs)
    mean = float(logs[known].mean()) if known.any() else float(np.nanmean(np.log(truth.table)))
    centred = np.where(known, logs - mean, 0.0)
    own = centred.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    others = centred.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, logs, mean + own[:, None] + others[None, :])
    unknown = np.full(len(names), np.nan)
    space = pair_space(tuple(names), (source_of_model("the truth", filled),), unknown, np.zeros((len(names), 0)))
    measured: dict[OrderedPair, float] = {}
    if tried:
        measured = {(names[i], names[j]): float(np.exp(logs[i, j])) for i, j in np.argwhere(known)}
    return pair_belief(space, measured, tried)
