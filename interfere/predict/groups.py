"""Slowdown of a job beside several neighbours, composed from its slowdowns beside each single neighbour.

With the excess x = Σ max(s[i, j] - 1, 0) over m neighbours j, of mean x̄ = x / m,

    s[i | j1 … jm] = 1 + x · (1 + growth · min(m - 1, 3) · exp(-saturation · x̄))

Excesses add up, as for jobs that take turns. Neighbours that each leave most of a device free fill it up together, so
the excess at first grows faster than the sum. For a job beside c copies of itself, h may be known: its step time alone
in 1 / (c + 1) of the device ÷ its step time on the whole device. Then, with no other neighbours,

    s = 1 + x + share_weight · max(h - 1 - x, 0)

and with other neighbours s is the larger of both formulas. With one neighbour s is the slowdown of the pair. Law: a
further neighbour, or a larger pair slowdown, never lowers s. The interval adds in quadrature the scaled log distances
of the pairs' bounds to their medians and the error of the composition, which depends on the number of neighbours.

`train` fits the parameters of a domain to its measured groups. The default is chosen on ParvaGPU's table of an A100
(Lee et al., SC 2024): two to five copies of 11 models, whole models held out. The known values of a held-out model are
the pair of two copies and the step times of one copy in the smaller MIG slices. Mean error in % at three, four and five
copies (`tests/bench/test_groups.py`): product 15, 38, 74; sum 5.8, 10.4, 14.9; the first formula 5.1, 8.3, 12.5;
both formulas 4.7, 6.4, 9.0. The table has no groups of different models.

A prediction for a group is composed from those for its pairs, and has the source COMPOSED. A group fits in memory when
the sum of all memory peaks fits. h comes from the job's profiles on the smaller MIG slices of the same GPU: between
measured slices the step rate is linear in the compute share, and below the smallest one proportional to it, as for a
job that fills the slice. For the smallest slice, and for devices without slices, h is unknown.

The inverse infers slowdowns of pairs from an observed slowdown beside several neighbours. One window cannot tell the
neighbours apart, so all pairs are assumed to be wrong by one common factor with which their composition equals the
observed slowdown; the error is attributed to each pair by its share of the predicted excess. Law 1: the order of the
neighbours does not matter. Law 2: the composed slowdown moves toward the observed slowdown.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from interfere.devices.gpus import slices_within
from interfere.predict.feasibility import fits_by_peak_sum
from interfere.records import JobProfile, Prediction, Source
from interfere.sharing_modes import SharingMode

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
MAX_FURTHER = 3  # most neighbours beyond the first in any measured group; the growth is constant above

MAX_GROWTH = 2.0  # from exp(2) / MAX_FURTHER = 2.46 on, s would fall when a pair slowdown rises


class CopyShares(NamedTuple):
    """Known slowdowns of jobs beside copies of themselves."""

    slowdown: Floats  # float64[...]: h of the module's formula; NaN where unknown or without a copy
    alone: Bools  # bool[...]: True if all neighbours are copies


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupComposition:
    """Parameters of the composition in one domain."""

    growth: float = 0.40  # least mean error at three to five copies, over all models of ParvaGPU's table
    saturation: float = 3.1
    share_weight: float = 0.5
    pair_scale: float = 1.0  # factor of the pairs' squared log distances in the interval
    # Errors of the logarithm beside two, three and four neighbours that 90 % of cases stay within; beside more they
    # rise in proportion.
    errors: tuple[float, float, float] = (0.13, 0.26, 0.39)
    share_errors: tuple[float, float, float] = (0.10, 0.15, 0.21)  # the same where h is known

    def __post_init__(self) -> None:
        """Raise ValueError for parameters that would break the law of the module."""
        values = np.array([getattr(self, name) for name in ("growth", "saturation", "share_weight", "pair_scale")])
        errors = np.array([*self.errors, *self.share_errors])
        if not (values >= 0).all() or self.growth > MAX_GROWTH or self.share_weight > 1 or not (errors >= 0).all():
            raise ValueError(f"parameters of a composition of groups out of range: {self}")

    def slowdown(self, excess: ArrayLike, neighbours: ArrayLike, copies: CopyShares | None = None) -> Floats:
        """Return float64[...]: the slowdown beside m ≥ 1 `neighbours` with a total `excess` of x (module formula)."""
        total, m = np.asarray(excess, dtype=np.float64), np.asarray(neighbours, dtype=np.float64)
        further = self.growth * np.minimum(m - 1, MAX_FURTHER)
        growing = total * further * np.exp(-self.saturation * total / m)
        if copies is not None:
            pull = self.share_weight * np.maximum(copies.slowdown - 1.0 - total, 0.0)
            pull = np.where(m == 1, 0.0, pull)
            growing = np.where(np.isnan(pull), growing, np.where(copies.alone, pull, np.maximum(pull, growing)))
        return np.asarray(1.0 + total + growing)

    def log_distance(
        self,
        squared_distances: ArrayLike,
        neighbours: ArrayLike,
        scale: float = 1.0,
        copies: CopyShares | None = None,
    ) -> Floats:
        """Return float64[...]: the log distance from the median to the interval's end, from the pairs' summed squares.

        `scale`: log distance of the requested quantile ÷ log distance of the end of the 5-95 % interval.
        """
        further = np.asarray(neighbours, dtype=np.int64) - 1
        measured, beyond = np.minimum(further, MAX_FURTHER), np.maximum(further / MAX_FURTHER, 1.0)
        error = np.array([0.0, *self.errors])[measured] * beyond
        if copies is not None:
            known = np.isfinite(copies.slowdown) & copies.alone
            error = np.where(known, np.array([0.0, *self.share_errors])[measured] * beyond, error)
        of_pairs = np.asarray(squared_distances, dtype=np.float64) * np.where(further > 0, self.pair_scale, 1.0)
        return np.asarray(np.sqrt(of_pairs + (scale * error) ** 2))


DEFAULT_COMPOSITION = GroupComposition()


def composition_from_json(document: Mapping[str, Any]) -> GroupComposition:
    """Return the composition of a JSON document of its fields. Raises TypeError on unknown, ValueError on bad ones."""
    values = {name: tuple(map(float, v)) if isinstance(v, list) else float(v) for name, v in document.items()}
    return GroupComposition(**values)  # type: ignore[arg-type]


@runtime_checkable
class ComposesGroups(Protocol):
    """A predictor that knows how slowdowns of groups are composed in its domains."""

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """Return the composition parameters of a device type and sharing mode."""


def composition_of(predictor: object, device_type: str, mode: SharingMode) -> GroupComposition:
    """Return the composition that a predictor has for a domain, or the default composition."""
    return predictor.composition(device_type, mode) if isinstance(predictor, ComposesGroups) else DEFAULT_COMPOSITION


def composed_slowdown(
    slowdowns: Sequence[float],
    composition: GroupComposition = DEFAULT_COMPOSITION,
    copies: CopyShares | None = None,
) -> float:
    """Return the slowdown of a job in a group from its `slowdowns` beside each single neighbour (at least one)."""
    if len(slowdowns) == 1:
        return slowdowns[0]
    return float(composition.slowdown(pair_excess(slowdowns).sum(), len(slowdowns), copies))


def pair_excess(slowdown: ArrayLike) -> Floats:
    """Return float64[...]: a neighbour's contribution to the excess, max(slowdown - 1, 0)."""
    return np.asarray(np.maximum(np.asarray(slowdown, dtype=np.float64) - 1.0, 0.0))


def compose_groups(
    pairs: Prediction,
    sizes: Sequence[int],
    share: Floats,
    composition: GroupComposition = DEFAULT_COMPOSITION,
    copies: CopyShares | None = None,
) -> Prediction:
    """Return one prediction per group, composed from the predictions for the victim's pairs with each neighbour.

    `sizes`: group k owns the next `sizes[k]` pairs. `share` float64[q]: summed peaks of the victim and its neighbours ÷
    the device's memory. `copies`: known slowdowns of the q victims beside copies of themselves. A group of one pair
    keeps the pair's prediction; a group with a pair that abstains abstains for the same reason.
    """
    start = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    neighbours = np.array(sizes)
    single = neighbours == 1

    def sum_by_question(values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, start))

    median = composition.slowdown(sum_by_question(pair_excess(pairs.median)), neighbours, copies)
    below, above = (
        composition.log_distance(sum_by_question(np.log(end / pairs.median) ** 2), neighbours, copies=copies)
        for end in (pairs.lower, pairs.upper)
    )
    abstaining = [
        next((k for k in range(first, first + size) if pairs.source[k] == Source.ABSTAINED), None)
        for first, size in zip(start.tolist(), sizes, strict=True)
    ]
    return Prediction(
        median=np.where(single, pairs.median[start], median),
        lower=np.where(single, pairs.lower[start], median * np.exp(-below)),
        upper=np.where(single, pairs.upper[start], median * np.exp(above)),
        feasibility=np.where(single, pairs.feasibility[start], fits_by_peak_sum(share)),
        source=tuple(
            pairs.source[first] if is_pair else Source.COMPOSED if abstains is None else Source.ABSTAINED
            for first, is_pair, abstains in zip(start.tolist(), single.tolist(), abstaining, strict=True)
        ),
        reason=tuple("" if abstains is None else pairs.reason[abstains] for abstains in abstaining),
    )


def total_memory_share(jobs: Sequence[JobProfile | None], device_memory_bytes: float) -> float:
    """Return the sum of the jobs' memory peaks ÷ the device's memory; NaN if a peak or the memory is unknown."""
    peaks = [float("nan") if job is None else job.expected_peak_bytes for job in jobs]
    return sum(peaks) / device_memory_bytes


MAX_COPIES = MAX_FURTHER + 1  # most further copies in any measurement; a larger number counts as this one


@cache
def smaller_slices(device_type: str) -> tuple[tuple[str, float], ...]:
    """Return (device type, compute share) of every smaller slice of the same GPU; empty if there is none."""
    return slices_within(device_type)


def slowdowns_in_shares(profile: JobProfile, profile_on: Callable[[str], JobProfile | None]) -> Floats:
    """Return float64[1 + MAX_COPIES]: step time in 1 / (c + 1) of the device ÷ on the whole, by c; NaN if unknown.

    `profile_on`: the profile of the same workload on another device type, or None. Nondecreasing in c, and at least 1.
    """
    unknown = np.full(1 + MAX_COPIES, np.nan)
    rates = {0.0: 0.0}
    for device_type, share in smaller_slices(profile.device_type):
        smaller = profile_on(device_type)
        if smaller is not None and np.isfinite(smaller.step_time_s):
            rates[share] = 1.0 / smaller.step_time_s
    if len(rates) == 1 or not np.isfinite(profile.step_time_s):
        return unknown
    rates[1.0] = 1.0 / profile.step_time_s
    shares, values = zip(*sorted(rates.items()), strict=True)
    in_share = np.interp(1.0 / np.arange(1, 2 + MAX_COPIES), shares, values)
    slowdown = np.maximum.accumulate(np.maximum(rates[1.0] / in_share, 1.0))
    slowdown[0] = np.nan  # no copy beside it
    return np.asarray(slowdown)


def copy_shares(
    groups: Sequence[Sequence[JobProfile | None]], profile_on: Callable[[str, str], JobProfile | None]
) -> CopyShares | None:
    """Return each victim's known slowdowns beside copies; None if none is known. A group lists its victim first.

    `profile_on`: (workload, device type) -> profile, or None.
    """
    known: dict[int, Floats] = {}
    slowdown, alone = np.full(len(groups), np.nan), np.zeros(len(groups), dtype=bool)
    for k, (victim, *neighbours) in enumerate(groups):
        if victim is None or not smaller_slices(victim.device_type):
            continue
        count = sum(other is not None and other.workload == victim.workload for other in neighbours)
        if not count:
            continue
        if id(victim) not in known:
            known[id(victim)] = slowdowns_in_shares(victim, partial(profile_on, victim.workload))
        slowdown[k], alone[k] = known[id(victim)][min(count, MAX_COPIES)], count == len(neighbours)
    return CopyShares(slowdown, alone) if np.isfinite(slowdown).any() else None


BISECTIONS = 40
MIN_EXCESS = 0.01  # least excess of a neighbour without a predicted effect: a measured pair repeats within 1 to 2 %


def excess_shares(slowdowns: Sequence[float]) -> Floats:
    """Return float64[m]: the share of each neighbour in the predicted excess; the shares add up to 1."""
    excess = pair_excess(slowdowns) + MIN_EXCESS
    return np.asarray(excess / excess.sum())


def common_log_error(
    slowdowns: Sequence[float], observed: float, composition: GroupComposition, copies: CopyShares | None = None
) -> float:
    """Return the logarithm of the common factor observed ÷ predicted of the slowdowns of all pairs.

    A job in a group is never faster than alone: an observed slowdown below 1 means that no neighbour slows it down.
    """

    def composed(log_factor: float) -> float:
        return composed_slowdown([slowdown * math.exp(log_factor) for slowdown in slowdowns], composition, copies)

    target = max(observed, 1.0)
    present = composed(0.0)
    if target == present:
        return 0.0
    # A slowdown of a pair rises at most to the observed one, and falls at most to 1.
    low, high = (-math.log(max(slowdowns)), 0.0) if target < present else (0.0, math.log(target / min(slowdowns)))
    if low >= high:
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if composed(middle) < target else (low, middle)
    return low if target > present else high
