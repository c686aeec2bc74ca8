"""Which jobs to run a new job beside first: those that teach most about all its other pairs.

What a model does not know of a new job is mostly two things, how much it suffers and how much it takes from others, and
how both depend on the partner. One short run beside another job, a probe, tells of both at once. The belief about the
job's errors in its two roles (`effects`) says how much each probe would lower the expected error of its other pairs.

Law: the choice depends on the belief and on the model's predictions, never on what the probes would measure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.predict.online import shifts
from interfere.predict.online.belief_state import PairObservation
from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import Floats
from interfere.predict.teaching.unknown_pairs import MEAN_OF_ABSOLUTE, UnknownPairs


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
