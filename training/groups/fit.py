"""Fits the group composition to measured groups, and calibrates its intervals on held-out groups.

Growth and saturation minimise the mean relative error over a grid; so does the share weight where jobs were measured on
smaller slices. Ties, and parameters without effect on any case, keep their starting values. The interval errors are
conformal: for each number of neighbours, 90 % of held-out cases with measured pairs have a smaller error.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from interfere.predict.groups import DEFAULT_COMPOSITION, GroupComposition
from interfere.predict.groups.composition import MAX_FURTHER
from interfere.training.groups.cases import GroupCases

Floats = NDArray[np.float64]
GROWTHS = np.round(np.arange(0.0, 1.51, 0.05), 2)
SATURATIONS = np.round(np.arange(0.0, 8.1, 0.5), 1)
SHARE_WEIGHTS = np.round(np.arange(0.0, 1.01, 0.05), 2)
PAIR_SCALES = np.round(np.arange(0.05, 1.51, 0.05), 2)
MIN_CASES = 10  # of a kind, below which the parameters that describe it stay as they are
COVERED = 0.90  # share of cases that an interval holds


def fit_composition(cases: GroupCases, start: GroupComposition = DEFAULT_COMPOSITION) -> GroupComposition:
    """Return the composition of least mean relative error over the cases, with the interval errors of `start`."""
    best = start
    by_share = np.isfinite(cases.copies.slowdown) & cases.copies.alone
    if (~by_share).sum() >= MIN_CASES:
        rest = cases.take(~by_share)
        choices = [replace(best, growth=float(g), saturation=float(s)) for g in GROWTHS for s in SATURATIONS]
        best = min([best, *choices], key=lambda choice: relative_error(rest, choice))
    if by_share.sum() >= MIN_CASES:
        copies = cases.take(by_share)
        choices = [replace(best, share_weight=float(weight)) for weight in SHARE_WEIGHTS]
        best = min([best, *choices], key=lambda choice: relative_error(copies, choice))
    return best


def relative_error(cases: GroupCases, composition: GroupComposition) -> float:
    """Return the mean of |predicted ÷ measured - 1|."""
    return float(np.abs(cases.predicted(composition) / cases.slowdown - 1).mean())


def calibrate(
    composition: GroupComposition, cases: GroupCases, predicted: Floats, *, with_pairs: tuple[GroupCases, Floats] | None
) -> GroupComposition:
    """Return the composition with interval errors from held-out `cases` and a scale of the pairs' own intervals.

    `predicted` float64[g] is each case's prediction by a composition fitted without it. `with_pairs` has cases whose
    pairs are predictions for jobs never seen; the scale is the smallest that makes their intervals cover.
    """
    by_share = np.isfinite(cases.copies.slowdown) & cases.copies.alone
    residual = np.log(cases.slowdown / predicted)
    composition = replace(
        composition,
        errors=_errors(cases, residual, ~by_share, composition.errors),
        share_errors=_errors(cases, residual, by_share, composition.share_errors),
    )
    if with_pairs is None or len(with_pairs[0]) < MIN_CASES:
        return composition
    unseen, predicted = with_pairs
    choices = [replace(composition, pair_scale=float(scale)) for scale in PAIR_SCALES]
    enough = [choice for choice in choices if covered(unseen, predicted, choice).mean() >= COVERED]
    return enough[0] if enough else choices[-1]


def covered(cases: GroupCases, predicted: Floats, composition: GroupComposition) -> NDArray[np.bool_]:
    """Return bool[g]: whether the interval around each prediction contains the measured slowdown."""
    residual = np.log(cases.slowdown / predicted)
    squared = np.where(residual < 0, cases.below, cases.above)
    reach = composition.log_distance(squared, cases.neighbours, copies=cases.copies)
    return np.asarray(np.abs(residual) <= reach)


def _errors(
    cases: GroupCases, residual: Floats, kind: NDArray[np.bool_], default: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Return, for each number of neighbours, the log error that 90 % of the cases do not exceed; nondecreasing.

    The pairs' own intervals are not subtracted: those of two measured blocks are wide, and online windows narrow them.
    """
    errors: list[float] = []
    for further in range(1, MAX_FURTHER + 1):
        of_size = kind & (np.minimum(cases.neighbours - 1, MAX_FURTHER) == further)
        if of_size.sum() < MIN_CASES:
            errors.append(default[further - 1] if not errors else max(errors[-1], default[further - 1]))
            continue
        level = min(COVERED * (1 + 1 / of_size.sum()), 1.0)
        errors.append(max([float(np.quantile(np.abs(residual[of_size]), level)), *errors[-1:]]))
    return errors[0], errors[1], errors[2]
