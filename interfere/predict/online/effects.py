"""Effects of jobs and pairs on the error of predictions, learned by one Kalman update per window.

A window's error e = phi · as_victim + psi · as_neighbour + shift + pair + noise updates all terms as if they were
independent before it (assumed density filtering: Opper 1998, "A Bayesian approach to on-line learning"; the per-player
update of TrueSkill), so an update costs O(d²) and nothing grows but the number of jobs and pairs::

    S = φᵀPφ + ψᵀQψ + shift variance + pair variance + noise,   r = e - expected
    w = (ν + 1) / (ν + r² / S)                                  weight of the window under Student's t
    as_victim += w Pφ r / S,   P -= w Pφ φᵀP / S,               and likewise for the others

The model's errors, `as_victim` and `as_neighbour`, do not matter to a measured pair; shifts matter to every pair. On a
device type that the model never saw, its error has one more term, of both jobs' facts (`unseen_device`).
Forgetting: every update moves a variance back to the prior's by the share `FORGETTING`, so evidence older than some
hundred windows fades. Law: the observed pair's prediction moves toward the observation and never past it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from interfere.predict.online import shifts, unseen_device
from interfere.predict.online.belief_state import (
    BeliefState,
    DomainBelief,
    DomainKey,
    PairEffect,
    PairObservation,
    Posterior,
    Update,
)
from interfere.predict.online.prior import Floats, ResidualPrior, RolePrior, WorkloadKey
from interfere.predict.online.unseen_device import DeviceBelief, PairPoints
from interfere.sharing_modes import SharingMode

FORGETTING = 1 / 400  # per update: a job observed in ten windows a day forgets in about a month
# Of a measured pair beyond its measurement: two measurements of one public pair differ by .012 to .017.
MEASURED_PAIR_VAR = 0.015**2


NO_PAIRS: dict[str, PairEffect] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What the belief expects of a window's error: mean and variance without its noise, and the variance scale."""

    mean: float
    variance: float
    scale: float


class Effects:
    """Reads and updates the posteriors of a `BeliefState`."""

    def __init__(
        self, prior: ResidualPrior, state: BeliefState, knows: Callable[[str, SharingMode], bool] = lambda *_: True
    ) -> None:
        """`knows`: whether the wrapped model was trained on a device type and mode."""
        self.prior, self.state = prior, state
        self._knows, self._known_domains = knows, dict[DomainKey, bool]()
        self.unprofiled_var = {role: prior.unprofiled_var(role) for role in ("victim", "neighbour")}
        self._unprofiled_covariance: dict[str, Floats] = {
            role: covariances.unseen + np.diag([self.unprofiled_var[role], *[0.0] * (prior.width - 1)])
            for role, covariances in (("victim", prior.as_victim), ("neighbour", prior.as_neighbour))
        }

    # --- one window -------------------------------------------------------------------------------------------------

    def expected(self, observation: PairObservation, domain: DomainBelief | None) -> Expectation:
        """The expectation of a window's error. Adds no posterior: a question changes nothing."""
        scale = self.prior.variance_scale_of(observation.log_predicted)
        pair_mean, pair_var = self.pair_posterior(
            observation.victim, observation.neighbour[0], domain, measured=observation.measured
        )
        mean, variance = shifts.expected_shift(self.state, observation, domain)
        mean, variance = mean + pair_mean * math.sqrt(scale), variance + pair_var * scale + observation.composition_var
        if not observation.measured:
            for posterior, covariance, features in self._model_errors(observation):
                mean += float(features @ posterior.mean) if posterior else 0.0
                variance += float(features @ covariance @ features)
        if domain and domain.is_unseen:
            of_device = self.of_unseen_device(observation).expected(_points(observation))
            mean, variance = mean + float(of_device[0][0]), variance + float(of_device[1][0])
        return Expectation(mean=mean, variance=variance, scale=scale)

    def of_unseen_device(self, observation: PairObservation) -> DeviceBelief:
        """What is believed of the device type of a window, which the model never saw."""
        stored = self.state.unseen_devices.get(shifts.domain_of(observation.victim))
        return stored or unseen_device.unobserved(len(observation.coordinates[0]))

    def learn(self, observation: PairObservation, domain: DomainBelief, update: Update) -> DomainBelief:
        """Update every posterior of the window's jobs and pair; the domain's belief after it."""
        # 1. The model's errors, which do not matter to a measured pair.
        if not observation.measured:
            updated = [
                _condition(posterior, covariance, features, update, prior=prior)
                for (posterior, covariance, features), prior in zip(
                    self._model_errors(observation), self._prior_covariances(observation), strict=True
                )
            ]
            self.state.as_victim[observation.victim], self.state.as_neighbour[observation.neighbour] = updated
        # 2. The pair.
        neighbour = observation.neighbour[0]
        mean, variance = self.pair_posterior(observation.victim, neighbour, domain, measured=observation.measured)
        prior_var = self.pair_prior_var(domain, measured=observation.measured)
        scale = self.prior.variance_scale_of(observation.log_predicted)
        remaining = variance - update.shrink * scale * variance**2
        effects_of_victim = self.state.pairs.get(observation.victim, {})
        if neighbour not in effects_of_victim:
            self.state.pair_count += 1
            domain = replace(domain, pair_count=domain.pair_count + 1)
        self.state.pairs[observation.victim] = effects_of_victim | {
            neighbour: PairEffect(
                mean + math.sqrt(scale) * variance * update.gain,
                remaining + FORGETTING * update.forgetting * (prior_var - remaining),
                domain.epoch,
            )
        }
        # 3. The device type, where the model never saw it.
        if domain.is_unseen:
            self.state.unseen_devices[shifts.domain_of(observation.victim)] = self.of_unseen_device(
                observation
            ).learned(_points(observation), update.gain, update.shrink)
        # 4. The shifts.
        return shifts.learn_shift(self.state, observation, domain, update)

    def pair_prior_var(self, domain: DomainBelief | None, *, measured: bool) -> float:
        """Variance of a pair's effect before any window of it, at variance scale 1."""
        variance = MEASURED_PAIR_VAR if measured else self.prior.pair_var
        return variance + (shifts.EPOCH_PAIR_VAR if domain and (domain.epoch or domain.is_unseen) else 0.0)

    def pair_posterior(
        self, victim: WorkloadKey, neighbour: str, domain: DomainBelief | None, *, measured: bool
    ) -> tuple[float, float]:
        """Posterior mean and variance of one pair's effect, at variance scale 1."""
        effect = self.state.pairs.get(victim, NO_PAIRS).get(neighbour)
        if effect is None:
            return 0.0, self.pair_prior_var(domain, measured=measured)
        epoch = domain.epoch if domain else 0
        return effect.mean, effect.variance + (shifts.EPOCH_PAIR_VAR if effect.epoch < epoch else 0.0)

    def _model_errors(self, observation: PairObservation) -> list[tuple[Posterior | None, Floats, Floats]]:
        """(posterior or None, covariance, features) of the victim and of the neighbour."""
        head = [1.0, observation.log_predicted - self.prior.centre]
        found = []
        for posteriors, key, role, partner in (
            (self.state.as_victim, observation.victim, self.prior.as_victim, observation.neighbour),
            (self.state.as_neighbour, observation.neighbour, self.prior.as_neighbour, observation.victim),
        ):
            posterior = posteriors.get(key)
            covariance = posterior.covariance if posterior else self.prior_covariance(key, role)
            found.append((posterior, covariance, np.array([*head, *self.prior.signature(partner)])))
        return found

    def _prior_covariances(self, observation: PairObservation) -> tuple[Floats, Floats]:
        return (
            self.prior_covariance(observation.victim, self.prior.as_victim),
            self.prior_covariance(observation.neighbour, self.prior.as_neighbour),
        )

    def prior_covariance(self, key: WorkloadKey, role: RolePrior) -> Floats:
        """float64[d, d]: covariance of a job's vector of model errors before any observation."""
        if key in self.state.unprofiled:
            return self._unprofiled_covariance["victim" if role is self.prior.as_victim else "neighbour"]
        if not self.knows(shifts.domain_of(key)):
            return role.unseen * unseen_device.REMAINING_SHARE
        return role.seen if key in self.prior.signatures else role.unseen

    def knows(self, domain: DomainKey) -> bool:
        """Whether the wrapped model was trained on a domain."""
        if domain not in self._known_domains:
            self._known_domains[domain] = self._knows(*domain)
        return self._known_domains[domain]

    def was_observed(self, key: WorkloadKey) -> tuple[bool, bool]:
        """Whether windows taught about a job as victim, and as neighbour."""
        return key in self.state.own_shift, key in self.state.harm_shift


def _points(observation: PairObservation) -> PairPoints:
    return PairPoints.of_pair(observation.coordinates, observation.log_predicted)


def _condition(
    posterior: Posterior | None, covariance: Floats, features: Floats, update: Update, *, prior: Floats
) -> Posterior:
    """The posterior after one window, and after one step of forgetting."""
    covariance_features = covariance @ features
    remaining = covariance - update.shrink * np.outer(covariance_features, covariance_features)
    step = covariance_features * update.gain
    return Posterior(
        mean=posterior.mean + step if posterior else step,
        covariance=remaining + FORGETTING * update.forgetting * (prior - remaining),
        prior=prior,
    )
