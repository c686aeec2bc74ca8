"""What is not known of pairs, and which of them, once measured, would lower that most.

The gain of a candidate is how much measuring it lowers the posterior variances of all pairs of interest, each weighted
by what an error there costs (A-optimality; Krause, Singh and Guestrin 2008 show why taking the best candidate, counting
it as measured and repeating is near the best). No measured value is needed: under a normal posterior the variances
depend on where was measured alone.

For a new job, candidates are probes: short runs beside other jobs. What a model does not know of it is mostly two
things, how much it suffers and how much it takes from others, and how both depend on the partner; one probe tells of
both at once. The belief about the job's errors in its two roles (`effects`) says how much each probe would teach.

Law: the choice depends on the belief and on the model's predictions, never on what the probes would measure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online import shifts
from interfere.predict.online.belief_state import PairObservation
from interfere.predict.online.effects import Effects

Floats = NDArray[np.float64]
MEAN_OF_ABSOLUTE = float(np.sqrt(2 / np.pi))  # of a normal variable, in standard deviations


@dataclass(slots=True)
class UnknownPairs:
    """Covariances of t pairs of interest and the 2c directions of c candidates, given what was measured or chosen so
    far.

    A candidate is an unordered pair: its two directions, one after the other, are measured at once.
    """

    cross: Floats  # float64[t, 2c]
    own: Floats  # float64[2c, 2c]
    noise: Floats  # float64[2c], variance of a measurement
    slopes: Floats  # float64[2c], of speed
    is_self: NDArray[np.bool_]  # bool[c]: a job beside itself, whose two directions are one measurement

    def gain(self, weight: Floats) -> Floats:
        """Return float64[c]: how much measuring a candidate lowers the weighted sum of the variances of interest."""
        forth, back = self.cross[:, ::2], self.cross[:, 1::2]
        variance = np.diag(self.own) + self.noise
        of_forth, of_back = variance[::2], variance[1::2]
        both = np.diag(self.own, 1)[::2]
        forth_sum, back_sum, both_sum = (weight @ product for product in (forth**2, back**2, forth * back))
        of_two = (of_back * forth_sum - 2 * both * both_sum + of_forth * back_sum) / (of_forth * of_back - both**2)
        return np.asarray(np.where(self.is_self, forth_sum / of_forth, of_two))

    def error(self, candidate: int) -> float:
        """Return the expected absolute error of a candidate's own two speeds."""
        rows = self._rows(candidate)
        deviation = np.sqrt(np.maximum(np.diag(self.own)[rows], 0.0))
        return float(np.mean(self.slopes[rows] * deviation)) * MEAN_OF_ABSOLUTE

    def condition(self, candidate: int) -> None:
        """Count both directions of a candidate as measured."""
        for row in self._rows(candidate):
            column = self.own[:, row].copy()
            variance = column[row] + self.noise[row]
            self.cross = self.cross - np.outer(self.cross[:, row], column) / variance
            self.own = self.own - np.outer(column, column) / variance

    def _rows(self, candidate: int) -> list[int]:
        return [2 * candidate] if self.is_self[candidate] else [2 * candidate, 2 * candidate + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenProbe:
    """A chosen probe with its expected gain, given the probes chosen before it."""

    candidate: int  # its place among the candidates
    gain: float  # share of what is not known (the expected squared error of speed) that it removes
    error_after: float  # expected absolute error of the speeds of the job's pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeChoice:
    """Probes in the order in which they should run."""

    error_now: float  # expected absolute error of the speeds of the job's pairs, both directions
    probes: tuple[ChosenProbe, ...]


def taught_shares(effects: Effects, pairs: Sequence[tuple[PairObservation, PairObservation]]) -> Floats:
    """Return float64[c]: the share of what is not known of all candidates that a probe beside each would remove.

    `pairs` as in `choose_probes`.
    """
    unknown = _unknown(effects, pairs)
    weight = unknown.slopes**2
    return unknown.gain(weight) / _squared_error(unknown, weight)


def choose_probes(
    effects: Effects, pairs: Sequence[tuple[PairObservation, PairObservation]], count: int
) -> ProbeChoice:
    """Choose up to `count` candidates greedily: each is the best given the probes chosen before it.

    `pairs`: for each candidate, the job beside it and it beside the job. What all of them tell about the device type as
    a whole is not counted: every candidate tells it alike.
    """
    unknown = _unknown(effects, pairs)
    weight = unknown.slopes**2
    before = _squared_error(unknown, weight)
    error_now = _error(unknown)
    probes = []
    is_open = np.ones(len(pairs), dtype=bool)
    for _ in range(min(count, len(pairs))):
        gain = np.where(is_open, unknown.gain(weight), -1.0)
        best = int(np.argmax(gain))
        is_open[best] = False
        unknown.condition(best)
        unknown.cross = unknown.own  # all pairs of interest are candidates
        probes.append(ChosenProbe(candidate=best, gain=float(gain[best]) / before, error_after=_error(unknown)))
    return ProbeChoice(error_now=error_now, probes=tuple(probes))


def _unknown(effects: Effects, pairs: Sequence[tuple[PairObservation, PairObservation]]) -> UnknownPairs:
    """Return the joint covariance of both directions of all candidates, in units of log slowdown."""
    n = len(pairs)
    covariance, noise, log_slowdown = np.zeros((2 * n, 2 * n)), np.zeros(2 * n), np.zeros(2 * n)
    for side in range(2):
        observations = [pair[side] for pair in pairs]
        domain = effects.state.domains.get(shifts.domain_of(observations[0].victim))
        places = np.arange(side, 2 * n, 2)
        beliefs = [effects.of_pair(observation, domain) for observation in observations]
        # 1. What the pairs share: the model's errors on the job in this role, and its shift.
        errors = [effects.model_errors(observation)[side] for observation in observations]
        features: Floats = np.array([of_job[2] for of_job in errors])
        features[[observation.measured for observation in observations]] = 0.0
        shared = features @ errors[0][1] @ features.T
        shift = (shifts.own_shift, shifts.harm_shift)[side]
        job = (observations[0].victim, observations[0].neighbour)[side]
        shared += shift(effects.state, job, domain)[1]
        # 2. What is not known of each pair by itself.
        variance = np.array([belief.variance for belief in beliefs])
        share = np.array([belief.share for belief in beliefs])
        shared *= np.sqrt(np.outer(share, share))
        np.fill_diagonal(shared, np.maximum(variance, np.diag(shared)))
        covariance[np.ix_(places, places)] = shared
        window_var = domain.noise_var if domain else effects.prior.noise_var
        noise[places] = [window_var * effects.prior.variance_scale_of(each.log_predicted) for each in observations]
        log_slowdown[places] = [
            each.log_predicted + belief.mean for each, belief in zip(observations, beliefs, strict=True)
        ]
    slopes = np.exp(-np.maximum(log_slowdown, 0.0))  # speed is exp(-log slowdown)
    return UnknownPairs(cross=covariance, own=covariance, noise=noise, slopes=slopes, is_self=np.zeros(n, dtype=bool))


def _squared_error(unknown: UnknownPairs, weight: Floats) -> float:
    return float(weight @ np.diag(unknown.own))


def _error(unknown: UnknownPairs) -> float:
    """Return the expected absolute error of speed, the mean over both directions of all candidates."""
    deviation = np.sqrt(np.maximum(np.diag(unknown.own), 0.0))
    return float(np.mean(unknown.slopes * deviation)) * MEAN_OF_ABSOLUTE
