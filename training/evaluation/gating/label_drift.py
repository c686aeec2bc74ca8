"""Do the labels of a training set contradict what the champion knows? A model fitted on wrong labels agrees with them.

No score on the new labels themselves can tell wrong labels from right ones, so they are compared with trusted ones:
with the measurements in the champion's published folder where a pair was measured before, else with its predictions.
A software upgrade contradicts them too: whoever knows of one promotes the model by force, with that reason.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import NOISE_FLOOR, Dataset
from interfere.training.evaluation.gating.published_champion import PublishedChampion, pair_keys

TOLERANCE = 2 * NOISE_FLOOR  # log slowdown, as in the drift report
MIN_ROWS, MIN_VICTIMS = 20, 8
MAX_SHARE_OFF = 0.25  # of all rows that were measured before
MAX_SHARE_OFF_REPEATED = 0.5  # of those that were measured again: noise alone takes a single window of 10 % past 30 %
MIN_SHARE_ONE_SIDED = 0.8  # of the victims, whose new pairs lie all above or all below what was predicted
REMEDY = "if the software stack has changed, promote it by force with that reason; else find the wrong measurements"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deviations:
    """log label - log trusted value; NaN where nothing is trusted. One entry per row of the training set."""

    measured: Floats  # against the champion's measurements
    predicted: Floats  # against the champion's predictions, of pairs that it was not fitted on


def label_contradiction(training_set: Dataset, champion: PublishedChampion) -> str:
    """Why the labels cannot be trusted, with figures; "" where they can, or where nothing is known to compare with."""
    rows = training_set.latest_rows()
    deviations = _deviations(rows, champion)
    known = np.isfinite(deviations.measured)
    if (known & rows.aligned).sum() >= MIN_ROWS:
        return _translated(rows, deviations.measured, known & rows.aligned)
    before = deviations.measured[known]
    repeated = before[np.abs(before) > 1e-4]
    for name, values, max_share in (
        ("measured before", before, MAX_SHARE_OFF),
        ("measured again", repeated, MAX_SHARE_OFF_REPEATED),
    ):
        off = float((np.abs(values) > TOLERANCE).mean()) if len(values) >= MIN_ROWS else 0.0
        if off > max_share:
            return (
                f"{off:.0%} of {len(values)} pairs {name} differ by more than {math.expm1(TOLERANCE):.0%}, "
                f"new ÷ old {math.exp(float(np.median(values))):.3f} in the median: {REMEDY}"
            )
    return _one_sided(rows, deviations.predicted)


def _translated(rows: Dataset, deviation: Floats, translated: NDArray[np.bool_]) -> str:
    """That measurements of the champion were translated to another software stack, with figures."""
    names = ", ".join(sorted({rows.campaigns[k] for k in rows.campaign[~rows.aligned].tolist()} - {""}))
    return (
        f"{int(translated.sum())} pairs measured before were translated to another software stack (campaign {names}), "
        f"new ÷ old {math.exp(float(np.median(deviation[translated]))):.3f} in the median: {REMEDY}"
    )


def _deviations(rows: Dataset, champion: PublishedChampion) -> _Deviations:
    nothing = np.full(len(rows), np.nan)
    if champion.graph is None:
        return _Deviations(measured=nothing, predicted=nothing)
    trusted = np.array([champion.measured.get(key, np.nan) for key in pair_keys(rows)])
    predicted, is_known = champion.predict(rows)
    is_new = is_known & ~champion.was_fitted_on(rows)
    return _Deviations(
        measured=rows.log_slowdown - trusted, predicted=np.where(is_new, rows.log_slowdown - predicted, np.nan)
    )


def _one_sided(rows: Dataset, deviation: Floats) -> str:
    """Whether the pairs that the champion never saw lie on one side of its predictions, for nearly every victim."""
    known = np.isfinite(deviation)
    victims = np.unique(rows.rows.victim[known])
    if known.sum() < MIN_ROWS or len(victims) < MIN_VICTIMS:
        return ""
    by_victim = np.array([np.median(deviation[known & (rows.rows.victim == victim)]) for victim in victims])
    side = max(float((by_victim > 0).mean()), float((by_victim < 0).mean()))
    bias = float(np.median(by_victim))
    if side < MIN_SHARE_ONE_SIDED or abs(bias) <= TOLERANCE:
        return ""
    return (
        f"the {int(known.sum())} pairs new to the champion are {math.exp(bias):.3f} × what it predicts in the median, "
        f"on one side for {side:.0%} of {len(victims)} jobs: {REMEDY}"
    )
