"""Chooses between a domain's present group composition and one fitted to its measured groups.

Law: the chosen composition has no larger error than the present one on held-out groups, and no clearly larger error on
the held-out groups that were measured offline. The second rule guards against wrong online reports, which a fit to them
would match. Ties keep the present one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.groups import DEFAULT_COMPOSITION, GroupComposition
from interfere.training.evaluation.gate import ERROR_TOLERANCE
from interfere.training.groups.cases import GroupCases
from interfere.training.groups.fit import fit_composition

Floats = NDArray[np.float64]
FOLDS = 5  # of whole groups, as many as hide unseen pairs
MIN_GROUPS = 2 * FOLDS  # distinct groups: with fewer, two parameters follow single groups


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositionChoice:
    """The errors of both compositions on the groups of a domain, in speed = 1 / slowdown."""

    present: GroupComposition  # of the registry's champion, else the default one
    refitted: bool  # whether the fitted one takes its place
    cases: int  # victims in groups that were held out
    error: float  # MAE of speed of the fitted one, each group held out; NaN where too few groups were measured
    present_error: float
    trusted_error: float  # the same of the groups that were measured in a campaign; NaN where these are too few
    trusted_present_error: float

    def fit(self, cases: GroupCases) -> GroupComposition:
        """Return the chosen composition; a fitted one is fitted to these cases alone."""
        return fit_composition(cases, self.present) if self.refitted else self.present

    def text(self) -> str:
        """Return the choice and its errors as one line of text."""
        if not np.isfinite(self.error):
            return f"kept as it was: fewer than {MIN_GROUPS} measured groups with known pairs"
        verdict = "fitted anew" if self.refitted else "kept as it was"
        figures = f"{self.error:.4f} fitted anew, {self.present_error:.4f} as it was"
        if self.trusted_error > self.trusted_present_error:
            figures += f"; of measured groups alone {self.trusted_error:.4f}, {self.trusted_present_error:.4f}"
        return f"{verdict}; error of speed of {self.cases} victims, groups held out: {figures}"


def choose_composition(cases: GroupCases, present: GroupComposition = DEFAULT_COMPOSITION) -> CompositionChoice:
    """Return the choice for the cases of one domain."""
    fitted = predict_held_out(cases, present)
    error = present_error = trusted_error = trusted_present_error = float("nan")
    if fitted is not None:
        errors, present_errors = cases.speed_errors(fitted), cases.speed_errors(cases.predicted(present))
        error, present_error = float(errors.mean()), float(present_errors.mean())
        trusted = ~cases.observed
        if group_folds(cases.take(trusted)) is not None:
            trusted_error, trusted_present_error = float(errors[trusted].mean()), float(present_errors[trusted].mean())
    return CompositionChoice(
        present=present,
        refitted=error < present_error and not trusted_error > trusted_present_error + ERROR_TOLERANCE,
        cases=0 if fitted is None else len(cases),
        error=error,
        present_error=present_error,
        trusted_error=trusted_error,
        trusted_present_error=trusted_present_error,
    )


def predict_held_out(cases: GroupCases, start: GroupComposition = DEFAULT_COMPOSITION) -> Floats | None:
    """Return float64[g]: each case's prediction fitted without its group; None with fewer than `MIN_GROUPS` groups."""
    fold = group_folds(cases)
    if fold is None:
        return None
    predicted = np.full(len(cases), np.nan)
    for k in range(FOLDS):
        held_out = fold == k
        predicted[held_out] = cases.take(held_out).predicted(fit_composition(cases.take(~held_out), start))
    return predicted


def group_folds(cases: GroupCases) -> NDArray[np.int64] | None:
    """Return int64[g]: the random fold of each case; None with fewer than `MIN_GROUPS` groups.

    Groups of the same workloads, in whatever number of copies, share a fold.
    """
    groups = sorted({tuple(sorted(members)) for members in cases.members})
    if len(groups) < MIN_GROUPS:
        return None
    fold_of = dict(zip(groups, (np.random.default_rng(0).permutation(len(groups)) % FOLDS).tolist(), strict=True))
    return np.array([fold_of[tuple(sorted(members))] for members in cases.members], dtype=np.int64)
