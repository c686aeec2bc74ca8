"""Slowdown of a job beside several others, composed from its slowdowns beside each of them.

With the excess x = Σ max(s[i, j] - 1, 0) over m neighbours j, of mean x̄ = x / m,

    s[i | j1 … jm] = 1 + x · (1 + growth · min(m - 1, 3) · exp(-saturation · x̄))

Slowdowns add up, as of jobs that take turns; beside neighbours that each leave most of a device free the device fills
up with their number, so the excess grows faster than the sum at first. Of a job beside c copies of itself more may be
known: h, its step time alone in 1 / (c + 1) of the device ÷ that on the whole device. Then, with no other neighbours,

    s = 1 + x + share_weight · max(h - 1 - x, 0)

and with others the larger of the two. One neighbour gives the pair. Law: another neighbour, or a larger slowdown beside
one, never lowers the answer. The interval is that of the pairs, distances of logarithms to the median added in
quadrature and scaled, and the error of the composition itself, by the number of neighbours.

`train` fits the parameters of a domain to its measured groups. The default is chosen on ParvaGPU's table of an A100
(Lee et al., SC 2024): two to five copies of 11 models, whole models held out; of a held-out model the pair of two
copies and the step times of one copy in the smaller MIG slices are known. Mean error in % at three, four and five
copies (`tests/bench/test_groups.py`): product 15, 38, 74; sum 5.8, 10.4, 14.9; the first formula 5.1, 8.3, 12.5;
both 4.7, 6.4, 9.0. Nothing there is about groups of different models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from interfere.sharing_modes import SharingMode

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
MAX_FURTHER = 3  # neighbours beyond the first up to which groups were measured; the growth rises no further

MAX_GROWTH = 2.0  # the answer falls with a slowdown of a pair from exp(2) / MAX_FURTHER = 2.46 on


class CopyShares(NamedTuple):
    """What is known of jobs beside copies of themselves."""

    slowdown: Floats  # float64[...]: h of the module; NaN where unknown or without a copy
    alone: Bools  # bool[...]: are all neighbours copies?


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupComposition:
    """Parameters of the composition in one domain."""

    growth: float = 0.40  # least mean error at three to five copies, over all models of ParvaGPU's table
    saturation: float = 3.1
    share_weight: float = 0.5
    pair_scale: float = 1.0  # of the squared distances of pairs
    # Errors of the logarithm beside two, three and four neighbours that 90 % of cases stay within; beside more they
    # rise in proportion.
    errors: tuple[float, float, float] = (0.13, 0.26, 0.39)
    share_errors: tuple[float, float, float] = (0.10, 0.15, 0.21)  # the same where h is known

    def __post_init__(self) -> None:
        """Raises ValueError for parameters with which the law of the module does not hold."""
        values = np.array([getattr(self, name) for name in ("growth", "saturation", "share_weight", "pair_scale")])
        errors = np.array([*self.errors, *self.share_errors])
        if not (values >= 0).all() or self.growth > MAX_GROWTH or self.share_weight > 1 or not (errors >= 0).all():
            raise ValueError(f"parameters of a composition of groups out of range: {self}")

    def slowdown(self, excess: ArrayLike, neighbours: ArrayLike, copies: CopyShares | None = None) -> Floats:
        """float64[...]: slowdown beside m ≥ 1 `neighbours` whose slowdowns exceed 1 by `excess` in all."""
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
        """float64[...]: distance of the logarithm to the end of an interval, from the sum of squares of the pairs' own.

        `scale`: that distance of the quantile in question over that of the 5-95 % interval.
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
    """Inverse of `dataclasses.asdict` through JSON. Raises TypeError on unknown fields, ValueError on broken ones."""
    values = {name: tuple(map(float, v)) if isinstance(v, list) else float(v) for name, v in document.items()}
    return GroupComposition(**values)  # type: ignore[arg-type]


@runtime_checkable
class ComposesGroups(Protocol):
    """A predictor that knows how slowdowns of groups are composed in its domains."""

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """The composition of a domain."""


def composition_of(predictor: object, device_type: str, mode: SharingMode) -> GroupComposition:
    """The composition that a predictor knows for a domain, else the default one."""
    return predictor.composition(device_type, mode) if isinstance(predictor, ComposesGroups) else DEFAULT_COMPOSITION


def composed_slowdown(
    slowdowns: Sequence[float],
    composition: GroupComposition = DEFAULT_COMPOSITION,
    copies: CopyShares | None = None,
) -> float:
    """The slowdown of one job from those beside each of its neighbours, at least one."""
    if len(slowdowns) == 1:
        return slowdowns[0]
    return float(composition.slowdown(pair_excess(slowdowns).sum(), len(slowdowns), copies))


def pair_excess(slowdown: ArrayLike) -> Floats:
    """float64[...]: what a neighbour adds to the excess; nothing where it would speed the job up."""
    return np.asarray(np.maximum(np.asarray(slowdown, dtype=np.float64) - 1.0, 0.0))
