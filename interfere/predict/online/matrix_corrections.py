"""Corrections of whole matrices: those of jobs as sums of a row and a column, those of single pairs cell by cell."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import Home

MOST = math.log(3.0)  # no correction is more than threefold: beyond, the model or the measurement is broken


def corrected(
    effects: Effects,
    measured: Mapping[Home, set[str]],
    victims: list[Home],
    neighbours: list[Home],
    asked: NDArray[np.float32],
    median: NDArray[np.float32],
    *,
    tighten: bool,
) -> NDArray[np.float32]:
    """float32[v, n]: `asked` is the quantile wanted, `median` the middle it belongs to; `measured` are, by victim, the
    neighbours beside which the model inside answers by a measurement."""
    log_median = np.log(median.astype(np.float64))
    direct = _direct(measured, victims, neighbours)
    shift = np.where(direct, 0.0, effects.shifts(victims, neighbours, log_median))
    narrow = np.ones_like(shift)
    if tighten:
        narrow = np.where(direct, 1.0, effects.tightening(victims, neighbours, log_median))
    places = places_of(neighbours)
    for i, victim in enumerate(victims):
        for name in effects.company.get(victim, set()) & places.keys():
            for j in places[name]:
                shift[i, j] += effects.pair_shift(victim, name, log_median[i, j])
                if tighten:
                    narrow[i, j] = effects.pair_tightening(
                        victim, neighbours[j], log_median[i, j], direct=bool(direct[i, j])
                    )
    bounded = np.exp(np.clip(shift, -MOST, MOST))
    moved: NDArray[np.float64] = median * bounded * (asked / median) ** narrow
    return moved.astype(np.float32)


def _direct(measured: Mapping[Home, set[str]], victims: list[Home], neighbours: list[Home]) -> NDArray[np.bool_]:
    """bool[v, n]: pairs that the model inside answers by a measurement."""
    found = np.zeros((len(victims), len(neighbours)), dtype=bool)
    places = places_of(neighbours)
    for i, (name, device_type, mode) in enumerate(victims):
        for other in measured.get((name, device_type, mode), set()) & places.keys():
            found[i, places[other]] = True
    return found


def places_of(homes: Sequence[Home]) -> dict[str, list[int]]:
    """Where each workload stands."""
    found: dict[str, list[int]] = {}
    for k, (name, _, _) in enumerate(homes):
        found.setdefault(name, []).append(k)
    return found
