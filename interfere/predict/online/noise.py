"""The noise of a stream, the windows of one job from one reporter, and the weight of a window under heavy-tailed noise.

The variance is an inverse-gamma posterior whose prior is the noise of the domain, with forgetting::

    noise = (PRIOR_WINDOWS · domain + Σ decay · share) / (PRIOR_WINDOWS + Σ decay)

where a window's share is the expectation of its squared noise given its error, bounded by `MAX_SHARE_RATIO` times the
variance so far and by `MAX_SHARE`. The noise of the domain is the median over all who report, learned by smoothing.
"""

import math
from dataclasses import dataclass

from interfere.predict.online.prior import WorkloadKey

StreamKey = tuple[str, WorkloadKey]  # reporter, victim

# Of log slowdown in one window at a site that has reported little: progress counted over minutes is noisier than the
# repeated measurements of a table.
USUAL_NOISE_VAR = 0.03**2
DECAY = 0.99  # per window of the stream: about its last hundred windows count
PRIOR_WINDOWS = 4.0  # windows that the domain's noise counts for; also bounds how unlikely a first window can look
MIN_SHARE, MAX_SHARE = 1e-6, 4.0  # squared log error: a window twice e off tells no more about noise
MAX_SHARE_RATIO = 100.0  # one window raises the variance of a new stream by no more than this
DEGREES_OF_FREEDOM = 4.0  # of Student's t for the errors: 3-5 is usual for contaminated normal errors (Lange 1989)
_LOG_NORMALISER = math.lgamma(2.5) - math.lgamma(2.0) - 0.5 * math.log(DEGREES_OF_FREEDOM * math.pi)


@dataclass(frozen=True, slots=True)
class StreamNoise:
    """Decayed sums over the windows of one stream."""

    share_sum: float = 0.0
    window_count: float = 0.0

    def variance(self, domain_var: float) -> float:
        """Noise variance of the next window's log slowdown."""
        return (PRIOR_WINDOWS * domain_var + self.share_sum) / (PRIOR_WINDOWS + self.window_count)

    def with_window(self, error: float, prediction_var: float, domain_var: float) -> "StreamNoise":
        """The sums after a window whose prediction was `error` off."""
        noise = self.variance(domain_var)
        total = prediction_var + noise
        share = (noise / total * error) ** 2 + noise * prediction_var / total
        share = max(min(share, MAX_SHARE_RATIO * noise, MAX_SHARE), MIN_SHARE)
        return StreamNoise(DECAY * self.share_sum + share, DECAY * self.window_count + 1.0)


def student_weight(error: float, variance: float) -> float:
    """Weight in (0, 1] of a window under Student's t: (ν + 1) / (ν + error² / variance), at most 1."""
    return min(1.0, (DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + error * error / variance))


def student_log_density(error: float, variance: float) -> float:
    """Log density of Student's t with `DEGREES_OF_FREEDOM` and scale² = variance."""
    tail = math.log1p(error * error / (DEGREES_OF_FREEDOM * variance))
    return _LOG_NORMALISER - 0.5 * math.log(variance) - 0.5 * (DEGREES_OF_FREEDOM + 1.0) * tail
