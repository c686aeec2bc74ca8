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
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
