"""A joint normal belief about the slowdowns of all pairs of some jobs, and what measuring one pair tells of the others.

The model's error on the pair (v, n), e = log measured - log predicted, is ::

    e = shift + phi · as_victim[v] + phi · as_neighbour[n] + pair[v, n] + noise,      phi = [1, log predicted - centre]

with the variances of the model's `ResidualPrior`; the online correction of a server starts from the same prior, and
follows each term by itself. Here the few jobs of one site are followed together, all n² ordered pairs at once, because
which pair to measure next depends on what two pairs have in common.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.predict.online.prior import Floats, ResidualPrior

MAX_JOBS = 48  # 2,304 ordered pairs: a covariance of 42 MB
SHIFT_VAR = 0.1**2  # of what all pairs of a site have in common: the model comes from another machine
# How much larger than the prior's the errors of this site may be: a profile of three facts says less than a full one.
ERROR_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

OrderedPair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBelief:
    """Mean and covariance of the log slowdowns of n jobs beside each other; the row of (v, n) is v · n_jobs + n."""

    names: tuple[str, ...]
    mean: Floats  # float64[n²]
    covariance: Floats  # float64[n², n²], without noise
    noise_var: Floats  # float64[n²], of one measurement

    @property
    def matrix(self) -> Floats:
        """float64[n, n]: expected log slowdown of the row's job beside the column's."""
        return self.mean.reshape(len(self.names), len(self.names))

    @property
    def variance(self) -> Floats:
        """float64[n, n] of the same."""
        return np.diag(self.covariance).reshape(self.matrix.shape)

    def rows(self, pairs: Iterable[OrderedPair]) -> np.ndarray:
        """int64[p]: the rows of ordered pairs."""
        place = {name: k for k, name in enumerate(self.names)}
        return np.array([place[v] * len(self.names) + place[n] for v, n in pairs], dtype=np.int64)

    def given(self, measured: Mapping[OrderedPair, float]) -> "PairBelief":
        """The belief after these log slowdowns were measured."""
        if not measured:
            return self
        at, values = self.rows(measured), np.array(list(measured.values()))
        gain = _gain(self, at)
        return replace(
            self,
            mean=self.mean + gain @ (values - self.mean[at]),
            covariance=self.covariance - gain @ self.covariance[at],
        )

    def log_likelihood(self, measured: Mapping[OrderedPair, float]) -> float:
        """Log density of measured log slowdowns."""
        at, values = self.rows(measured), np.array(list(measured.values()))
        covariance = self.covariance[np.ix_(at, at)] + np.diag(self.noise_var[at])
        error = values - self.mean[at]
        return float(-0.5 * (error @ np.linalg.solve(covariance, error) + np.linalg.slogdet(covariance)[1]))

    def left_out(self, measured: Mapping[OrderedPair, float]) -> dict[OrderedPair, tuple[float, float]]:
        """Of every measured pair the mean and variance that the other pairs give it; both directions are left out."""
        answers = {}
        for pair in measured:
            others = {other: value for other, value in measured.items() if set(other) != set(pair)}
            belief, (row,) = self.given(others), self.rows([pair])
            answers[pair] = float(belief.mean[row]), float(belief.covariance[row, row] + belief.noise_var[row])
        return answers


def _gain(belief: PairBelief, at: np.ndarray) -> Floats:
    observed = belief.covariance[np.ix_(at, at)] + np.diag(belief.noise_var[at])
    return np.linalg.solve(observed, belief.covariance[at]).T


def prior_belief(names: Sequence[str], log_predicted: Floats, prior: ResidualPrior, scale: float = 1.0) -> PairBelief:
    """The belief before anything was measured; `log_predicted` float64[n, n]: the model's answers."""
    n, x = len(names), log_predicted.ravel()
    phi = np.stack([np.ones(n * n), x - prior.centre], axis=1)
    victim, neighbour = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    own, others = (role.unseen[:2, :2] * scale for role in (prior.as_victim, prior.as_neighbour))
    relative = prior.variance_scale(x)
    covariance = SHIFT_VAR * scale + np.zeros((n * n, n * n))
    covariance += (phi @ own @ phi.T) * (victim[:, None] == victim)
    covariance += (phi @ others @ phi.T) * (neighbour[:, None] == neighbour)
    covariance[np.diag_indices(n * n)] += prior.pair_var * scale * relative
    return PairBelief(names=tuple(names), mean=x.copy(), covariance=covariance, noise_var=prior.noise_var * relative)


def fitted_belief(
    names: Sequence[str], log_predicted: Floats, prior: ResidualPrior, measured: Mapping[OrderedPair, float]
) -> PairBelief:
    """The belief before the measurements, with the size of errors under which they are likeliest.

    Condition it on them with `PairBelief.given`.
    """
    beliefs = (prior_belief(names, log_predicted, prior, scale) for scale in ERROR_SCALES)
    if not measured:
        return prior_belief(names, log_predicted, prior)
    return max(beliefs, key=lambda belief: belief.log_likelihood(measured))
