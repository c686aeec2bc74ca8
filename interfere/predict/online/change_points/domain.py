"""Change-point test of a device type: did its software stack change? Of all its jobs at once, from recent windows.

Two Gaussian processes explain the errors of the last windows: errors of the pairs' own variance and of noise, or these
and the shifts of a new epoch (`shifts`). Each may choose its noise, at a cost that grows with the distance from what is
known of it; the change is found when the log marginal likelihood of the second is larger by enough, in two tests.

Law: a quarter of the reporters, or of the jobs where reporters give no names, cannot cause a change, whatever they
report. The windows of the quarter with the largest errors are left out.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.belief_state import DomainBelief, RecentWindow
from interfere.predict.online.shifts import (
    EPOCH_CONSTANT_VAR,
    EPOCH_FACTOR_VAR,
    EPOCH_FAMILY_VAR,
    EPOCH_HARM_VAR,
    EPOCH_OWN_VAR,
    EPOCH_PAIR_VAR,
    FACTOR_RANGE,
)

RECENT_WINDOWS = 64  # that the test reads: one test of 64 takes about 4 ms
LEFT_OUT = 0.25  # share of the reporters, or of the victims where too few reporters give their names
MIN_REPORTERS = 3  # with names: of fewer, none can be left out
MIN_VICTIMS = 4  # that remain without the left-out quarter
MIN_WINDOWS, MIN_CONFIRMING_WINDOWS = 24, 40  # in fewer, noise alone may look like shifts
LARGE_ERROR = 2.0  # median |error| of a source ÷ its expected deviation: .67 without any change
# Log marginal likelihood ratios, of all windows and without their worst quarter, at which a change is suspected, and
# confirmed by a later test: the evidence of a change grows with its windows, that of noise does not. Distorted tables
# reach 9 to 24 in 24 windows and 22 to 35 in 40. Noise of 20 %, where training saw 2.4 %, reaches 9 to 12 in 24 windows
# of one stream in fifty, and at most 10 in 40; false reports among it reach 14.
SUSPECTED_RATIOS, CONFIRMING_RATIOS, EXPECTED_RATIO = (8.0, 4.0), (15.0, 5.0), 3.0
FIRST_INTERVAL, MAX_INTERVAL = 8, 256  # windows from one test to the next; doubled by every test that finds nothing
NOISE_FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0)  # of the noise's standard deviation
# Shifts that leave so much noise explain nothing: false reports among noise of 10 to 20 % leave a factor of 16.
MAX_NOISE_FACTOR = 4.0
NOISE_LOG_SD = 0.5  # of what is known of the noise: threefold is two standard deviations

Floats = NDArray[np.float64]


def with_recent(domain: DomainBelief, window: RecentWindow) -> tuple[RecentWindow, ...]:
    """The recent windows of a domain after one more."""
    return (*domain.recent[-RECENT_WINDOWS + 1 :], window)


def looks_changed(domain: DomainBelief) -> bool:
    """Whether at least half of the sources report errors that their expected deviation hardly explains."""
    _, errors = _errors_by_source(domain.recent, domain.usual_noise_var)
    large = sum(float(np.median(ratios)) > LARGE_ERROR for ratios in errors.values())
    return len(domain.recent) >= MIN_WINDOWS and 2 * large >= len(errors)


def may_be_confirmed(domain: DomainBelief) -> bool:
    """Whether one more test that finds a change decides."""
    return domain.is_suspect and len(domain.recent) >= MIN_CONFIRMING_WINDOWS


def found_change(domain: DomainBelief, *, expected: bool) -> float:
    """The noise variance under a new epoch; NaN where the recent windows do not speak for a change.

    `expected`: another domain of the site has changed, which makes a change of this one more likely.
    """
    by_reporter, errors = _errors_by_source(domain.recent, domain.usual_noise_var)
    by_error = sorted(errors, key=lambda source: (float(np.median(errors[source])), source))
    left_out = set(by_error[len(by_error) - math.ceil(LEFT_OUT * len(by_error)) :])
    kept = [window for window in domain.recent if _source(window, by_reporter) not in left_out]
    if len({window.observation.victim for window in kept}) < MIN_VICTIMS:
        return math.nan
    of_all, noise_var = _likelihood_ratio(domain.recent, domain.usual_noise_var)
    of_kept, noise_of_kept = _likelihood_ratio(kept, domain.usual_noise_var)
    if by_reporter and of_kept > of_all:  # the reporter left out hides a change that all others agree on
        of_all, noise_var = of_kept, noise_of_kept
    least_of_all, least_of_kept = CONFIRMING_RATIOS if may_be_confirmed(domain) else SUSPECTED_RATIOS
    if expected:
        least_of_all, least_of_kept = EXPECTED_RATIO, -math.inf
    if of_all <= least_of_all or of_kept <= least_of_kept:
        return math.nan
    return noise_var if noise_var <= MAX_NOISE_FACTOR**2 * domain.usual_noise_var else math.nan


def _errors_by_source(windows: Sequence[RecentWindow], noise_var: float) -> tuple[bool, dict[str, list[float]]]:
    """|error| ÷ expected deviation of every source: a reporter, or a victim where too few reporters give names."""
    by_reporter = len({window.observation.reporter for window in windows}) >= MIN_REPORTERS
    errors: dict[str, list[float]] = {}
    for window in windows:
        ratio = abs(window.error) / math.sqrt(window.variance + noise_var)
        errors.setdefault(_source(window, by_reporter), []).append(ratio)
    return by_reporter, errors


def _source(window: RecentWindow, by_reporter: bool) -> str:
    return window.observation.reporter if by_reporter else window.observation.victim[0]


def _likelihood_ratio(windows: Sequence[RecentWindow], usual_noise_var: float) -> tuple[float, float]:
    """Return the log marginal likelihood with a new epoch minus that without, and the noise variance under the new
    epoch."""
    error = np.array([window.error for window in windows])
    independent = np.diag([window.variance for window in windows])
    unchanged, _ = _best_likelihood(error, independent, usual_noise_var)
    changed, noise_var = _best_likelihood(error, independent + _epoch_covariance(windows), usual_noise_var)
    return changed - unchanged, noise_var


def _epoch_covariance(windows: Sequence[RecentWindow]) -> Floats:
    """float64[w, w]: covariance of the shifts of a new epoch."""
    observations = [window.observation for window in windows]
    x = np.clip([observation.log_predicted for observation in observations], *FACTOR_RANGE)

    def same(labels: Sequence[object]) -> Floats:
        index: dict[object, int] = {}
        codes = np.array([index.setdefault(label, len(index)) for label in labels])
        return np.asarray(np.equal.outer(codes, codes), dtype=np.float64)

    covariance = EPOCH_CONSTANT_VAR + EPOCH_FACTOR_VAR * np.outer(x, x)
    covariance += EPOCH_OWN_VAR * same([observation.victim for observation in observations])
    covariance += EPOCH_HARM_VAR * same([observation.neighbour for observation in observations])
    covariance += EPOCH_FAMILY_VAR * same([observation.families for observation in observations])
    covariance += EPOCH_PAIR_VAR * np.eye(len(observations))
    return np.asarray(covariance, dtype=np.float64)


def _best_likelihood(error: Floats, covariance: Floats, usual_noise_var: float) -> tuple[float, float]:
    """(log marginal likelihood, noise variance) at the likeliest noise."""
    best = (-math.inf, math.nan)
    for factor in NOISE_FACTORS:
        noise_var = usual_noise_var * factor**2
        root = np.linalg.cholesky(covariance + noise_var * np.eye(len(error)))
        whitened = np.linalg.solve(root, error)
        likelihood = -0.5 * float(whitened @ whitened) - float(np.log(np.diag(root)).sum())
        best = max(best, (likelihood - 0.5 * (math.log(factor) / NOISE_LOG_SD) ** 2, noise_var))
    return best
