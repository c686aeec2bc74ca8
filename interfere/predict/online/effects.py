"""Effects of jobs and pairs on the error of predictions, learned by one Kalman update per window.

The error of a window is e = phi · as_victim + psi · as_neighbour + shift + pair + noise. Its effects are updated as if
they were independent before it (assumed density filtering: Opper 1998, "A Bayesian approach to on-line learning"; the
per-player update of TrueSkill), so an update costs O(d²) and nothing grows but the number of jobs and pairs::

    V = φᵀPφ + ψᵀQψ + shift variance + pair variance            the pair's variance by its effects alone
    p = 1 / (1 / V + information of the pair's own windows)     its variance; V before its first window
    S = p + noise,   r = e - expected,   w = (ν + 1) / (ν + r² / S)     weight of the window under Student's t
    pair's level += w p r / S,   p -= w p² / S
    as_victim += w (p / V) Pφ r / S,   P -= w (p / V)² Pφ φᵀP / S,      and likewise for the other effects

A pair's own windows determine the pair's level much better than the effects of its jobs: the variance p becomes small,
while errors of the effects may cancel one another. So the interval of an observed pair narrows with its windows, and
the hundredth window of one pair adds almost nothing about its jobs.

The model's errors, `as_victim` and `as_neighbour`, do not affect a measured pair; shifts affect every pair. On a device
type without training data, the error has one more term, a function of both jobs' facts (`unseen_device`).
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
    PairEvidence,
    PairObservation,
    Posterior,
    Update,
)
from interfere.predict.online.noise import USUAL_NOISE_VAR
from interfere.predict.online.prior import Floats, ResidualPrior, RolePrior, WorkloadKey
from interfere.predict.online.unseen_device import DeviceBelief, PairPoints
from interfere.sharing_modes import SharingMode

FORGETTING = 1 / 400  # per update: a job observed in ten windows a day forgets in about a month
# Of a measured pair beyond its measurement: two measurements of one public pair differ by .012 to .017.
MEASURED_PAIR_VAR = 0.015**2

# An assumption, between forgetting a pair's former level and believing it as much as the new one.
FORMER_LEVEL_WEIGHT = 0.5

NO_PAIRS: dict[str, PairEvidence] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The predicted error of a window: its mean, and its variance without the window's noise."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBelief:
    """The posterior of log observed - log predicted for one ordered pair, from job effects and from the pair's own
    windows."""

    error_mean: float  # mean of the model's error, by the effects of both jobs; with the shift, at least the bound
    below_bound: float  # how far the effects lie below the bound: 0 where they lie above it
    shift_mean: float
    shift_var: float
    effects_var: float  # of the sum of all effects, that of the pair included: V
    mean: float  # of the pair, from effects and own windows
    variance: float  # p

    @property
    def share(self) -> float:
        """Return p / V, the share of the effects' variance that remains after the pair's own windows; at most 1."""
        return min(self.variance / self.effects_var, 1.0)

    def evidence(self, mean: float, variance: float, epoch: int) -> PairEvidence:
        """Return the evidence of own windows that gives the pair this posterior mean and variance."""
        information = max(1.0 / variance - 1.0 / self.effects_var, 0.0)
        weighted_mean = (mean - self.shift_mean - self.error_mean) / self.effects_var + information * (
            mean - self.shift_mean
        )
        return PairEvidence(information, weighted_mean, self.shift_var, max(variance - self.effects_var, 0.0), epoch)


class Effects:
    """Reads and updates the posteriors of a `BeliefState`."""

    def __init__(
        self, prior: ResidualPrior, state: BeliefState, knows: Callable[[str, SharingMode], bool] = lambda *_: True
    ) -> None:
        """Set the prior and the state to update; `knows` tells whether the model was trained on a domain."""
        self.prior, self.state = prior, state
        self._knows, self._known_domains = knows, dict[DomainKey, bool]()
        self.unprofiled_var = {role: prior.unprofiled_var(role) for role in ("victim", "neighbour")}
        self._unprofiled_covariance: dict[str, Floats] = {
            role: covariances.unseen + np.diag([self.unprofiled_var[role], *[0.0] * (prior.width - 1)])
            for role, covariances in (("victim", prior.as_victim), ("neighbour", prior.as_neighbour))
        }

    def of_state(self, state: BeliefState) -> "Effects":
        """Return the same prior with another state."""
        other = Effects(self.prior, state, self._knows)
        other._known_domains = self._known_domains
        return other

    def fresh_domain(self, key: DomainKey) -> DomainBelief:
        """Return the belief about a domain without windows."""
        return DomainBelief(noise_var=max(self.prior.noise_var, USUAL_NOISE_VAR), is_unseen=not self.knows(key))

    # --- one window -------------------------------------------------------------------------------------------------

    def expected(self, observation: PairObservation, domain: DomainBelief | None) -> Expectation:
        """Return the expectation of a window's error, without changing the state."""
        belief = self.of_pair(observation, domain)
        return Expectation(mean=belief.mean, variance=belief.variance + observation.composition_var)

    def of_pair(self, observation: PairObservation, domain: DomainBelief | None) -> PairBelief:
        """Return the posterior of the pair of a window."""
        scale = self.prior.variance_scale_of(observation.log_predicted)
        # 1. The effects: of both jobs, of the device type where the model never saw it, and the shifts.
        error_mean, error_var = 0.0, self.pair_prior_var(domain, measured=observation.measured) * scale
        if not observation.measured:
            for posterior, covariance, features in self.model_errors(observation):
                error_mean += float(features @ posterior.mean) if posterior else 0.0
                error_var += float(features @ covariance @ features)
        if domain and domain.is_unseen:
            of_device = self.of_unseen_device(observation).expected(points_of(observation))
            error_mean, error_var = error_mean + float(of_device[0][0]), error_var + float(of_device[1][0])
        shift_mean, shift_var = shifts.expected_shift(self.state, observation, domain)
        effects_var = error_var + shift_var
        below_bound = max(self.least_change(observation) - error_mean - shift_mean, 0.0)
        error_mean += below_bound
        # 2. The pair's own windows.
        mean, variance = error_mean, effects_var
        own = self.state.pairs.get(observation.victim, NO_PAIRS).get(observation.neighbour[0])
        if own is not None:
            later_var = later_variance(own, shift_var, scale, domain)
            precision = 1.0 / (effects_var - later_var) + own.information
            mean = (error_mean / (effects_var - later_var) + own.weighted_mean) / precision
            variance = 1.0 / precision + later_var + own.extra_var
        return PairBelief(
            error_mean=error_mean,
            below_bound=below_bound,
            shift_mean=shift_mean,
            shift_var=shift_var,
            effects_var=effects_var,
            mean=shift_mean + mean,
            variance=variance,
        )

    def least_change(self, observation: PairObservation) -> float:
        """Return the least that effects of jobs change a pair's log slowdown by: no neighbour speeds a job up.

        A job that has changed by itself has none: its slowdowns are told against a rate alone that no longer holds.
        """
        if observation.victim in self.state.changed_jobs:
            return -math.inf
        return -max(observation.log_predicted, 0.0)

    def of_unseen_device(self, observation: PairObservation) -> DeviceBelief:
        """Return the posterior of a window's device type, on which the model was not trained."""
        stored = self.state.unseen_devices.get(shifts.domain_of(observation.victim))
        return stored or unseen_device.unobserved(len(observation.coordinates[0]))

    def learn(self, observation: PairObservation, domain: DomainBelief, update: Update) -> DomainBelief:
        """Update every posterior of the window's jobs and pair; return the domain's posterior."""
        before = self.of_pair(observation, domain)
        of_effects = replace(
            update, share=0.0 if self._shows_bound(observation, domain, before, update) else before.share
        )
        # 1. The model's errors.
        self._learn_model_errors(observation, of_effects)
        # 2. The device type, where the model never saw it.
        if domain.is_unseen:
            self.state.unseen_devices[shifts.domain_of(observation.victim)] = self.of_unseen_device(
                observation
            ).learned(points_of(observation), of_effects.gain, of_effects.shrink)
        # 3. The shifts.
        domain = shifts.learn_shift(self.state, observation, domain, of_effects)
        # 4. The pair.
        after = self.of_pair(observation, domain)
        remaining = before.variance - update.shrink * before.variance**2
        pair_var = self.pair_prior_var(domain, measured=observation.measured) * self.prior.variance_scale_of(
            observation.log_predicted
        )
        remaining += update.forgetting * FORGETTING * max(pair_var - remaining, 0.0)
        is_new = self.keep_evidence(
            observation, after.evidence(before.mean + before.variance * update.gain, remaining, domain.epoch)
        )
        return replace(domain, pair_count=domain.pair_count + 1) if is_new else domain

    def _shows_bound(
        self, observation: PairObservation, domain: DomainBelief, before: PairBelief, update: Update
    ) -> bool:
        """Return whether a window shows the bound of its pair's effects, as `gaussian` has it: the effects stay."""
        pair_var = self.pair_prior_var(domain, measured=observation.measured) * self.prior.variance_scale_of(
            observation.log_predicted
        )
        others_var = max(update.variance - before.effects_var, 0.0) + pair_var
        as_effects = (update.error + before.below_bound) ** 2 / max(update.variance, others_var)
        return before.below_bound > 0.0 and update.error**2 / others_var <= as_effects

    def begin_pair_epoch(
        self, observation: PairObservation, domain: DomainBelief, change: float, variance: float
    ) -> None:
        """Move the level of a window's pair by `change`, and raise its variance to at least `variance`.

        The model's errors on its two jobs are updated too, as by one window with this change and variance. If earlier
        windows had determined a former level, the jobs learn the precision-weighted mean of both levels.
        """
        belief = self.of_pair(observation, domain)
        self._learn_model_errors(
            observation,
            Update(
                error=change * self._share_of_new_level(observation, domain, variance),
                variance=belief.effects_var + variance,
                weight=observation.weight,
                forgetting=0.0,
            ),
        )
        of_effects = self.of_pair(observation, domain)
        belief = replace(belief, error_mean=of_effects.error_mean, effects_var=of_effects.effects_var)
        variance = max(belief.variance, variance, shifts.CHANGED_LEVEL_VAR)
        self.keep_evidence(observation, belief.evidence(belief.mean + change, variance, domain.epoch))

    def _share_of_new_level(self, observation: PairObservation, domain: DomainBelief, variance: float) -> float:
        """Return the weight of a pair's new level, of this variance, relative to its former level.

        The weight of a level is its precision as an observation of the jobs' errors: 1 / (variance between pairs +
        variance of the level). The precision of the former level is multiplied by `FORMER_LEVEL_WEIGHT`.
        """
        own = self.state.pairs.get(observation.victim, NO_PAIRS).get(observation.neighbour[0])
        if own is None or own.information <= 0.0:
            return 1.0
        scale = self.prior.variance_scale_of(observation.log_predicted)
        pair_var = self.pair_prior_var(domain, measured=observation.measured) * scale
        former, new = 1.0 / (pair_var + 1.0 / own.information), 1.0 / (pair_var + variance)
        return new / (FORMER_LEVEL_WEIGHT * former + new)

    def _learn_model_errors(self, observation: PairObservation, update: Update) -> None:
        """Update the model's errors on the two jobs of a window, unless the pair is a measured one."""
        if observation.measured:
            return
        for key, family in zip((observation.victim, observation.neighbour), observation.families, strict=True):
            if self._is_new(family):
                self.state.of_new_family.add(key)
        self.state.as_victim[observation.victim], self.state.as_neighbour[observation.neighbour] = (
            _condition(posterior, covariance, features, update, prior=prior)
            for (posterior, covariance, features), prior in zip(
                self.model_errors(observation), self._prior_covariances(observation), strict=True
            )
        )

    def keep_evidence(self, observation: PairObservation, evidence: PairEvidence) -> bool:
        """Replace the evidence of a window's pair and return whether the pair had no evidence before."""
        of_victim = self.state.pairs.get(observation.victim, NO_PAIRS)
        neighbour = observation.neighbour[0]
        self.state.pairs[observation.victim] = of_victim | {neighbour: evidence}
        self.state.pair_count += neighbour not in of_victim
        return neighbour not in of_victim

    def pair_prior_var(self, domain: DomainBelief | None, *, measured: bool) -> float:
        """Return the prior variance of a pair's effect, at variance scale 1."""
        variance = MEASURED_PAIR_VAR if measured else self.prior.pair_var
        if domain is None or not (domain.epoch or domain.is_unseen):
            return variance
        return domain.pair_scale * (variance + shifts.EPOCH_PAIR_VAR)

    def model_errors(self, observation: PairObservation) -> list[tuple[Posterior | None, Floats, Floats]]:
        """Return (posterior or None, covariance, features) of the victim and of the neighbour."""
        head = [1.0, observation.log_predicted - self.prior.centre]
        found = []
        of_victim, of_neighbour = observation.families
        for posteriors, key, family, role, partner in (
            (self.state.as_victim, observation.victim, of_victim, self.prior.as_victim, observation.neighbour),
            (self.state.as_neighbour, observation.neighbour, of_neighbour, self.prior.as_neighbour, observation.victim),
        ):
            posterior = posteriors.get(key)
            covariance = posterior.covariance if posterior else self.prior_covariance(key, role, family)
            found.append((posterior, covariance, np.array([*head, *self.prior.signature(partner)])))
        return found

    def _prior_covariances(self, observation: PairObservation) -> tuple[Floats, Floats]:
        return (
            self.prior_covariance(observation.victim, self.prior.as_victim, observation.families[0]),
            self.prior_covariance(observation.neighbour, self.prior.as_neighbour, observation.families[1]),
        )

    def prior_covariance(self, key: WorkloadKey, role: RolePrior, family: str = "") -> Floats:
        """Return float64[d, d]: the prior covariance of a job's vector of model errors; `family`: "" where unknown."""
        if key in self.state.unprofiled:
            return self._unprofiled_covariance["victim" if role is self.prior.as_victim else "neighbour"]
        if not self.knows(shifts.domain_of(key)):
            return role.unseen * unseen_device.REMAINING_SHARE
        if key in self.prior.signatures:
            return role.seen
        return role.new_family if key in self.state.of_new_family or self._is_new(family) else role.unseen

    def _is_new(self, family: str) -> bool:
        """Return whether training saw no job of this family; False for "", an unknown family."""
        return bool(family and self.prior.families) and family not in self.prior.families

    def knows(self, domain: DomainKey) -> bool:
        """Return whether the wrapped model was trained on a domain."""
        if domain not in self._known_domains:
            self._known_domains[domain] = self._knows(*domain)
        return self._known_domains[domain]

    def was_observed(self, key: WorkloadKey) -> tuple[bool, bool]:
        """Return whether a job was observed as victim, and whether it was observed as neighbour."""
        return key in self.state.own_shift, key in self.state.harm_shift


def later_variance(evidence: PairEvidence, shift_var: float, scale: float, domain: DomainBelief | None) -> float:
    """Return the variance that a pair gained since its newest window by drift of its shift or a change of domain."""
    return max(shift_var - evidence.shift_var, 0.0) + changed_variance(evidence, scale, domain)


def changed_variance(evidence: PairEvidence, scale: float, domain: DomainBelief | None) -> float:
    """Return the variance that a pair gained by changes of its domain since its newest window.

    Law: it is less than the prior variance of the pair, at the same scale of pairs and of predicted slowdowns.
    """
    if domain is None or evidence.epoch >= domain.epoch:
        return 0.0
    return domain.pair_scale * shifts.EPOCH_PAIR_VAR * scale


def points_of(observation: PairObservation) -> PairPoints:
    return PairPoints.of_pair(observation.coordinates, observation.log_predicted)


def _condition(
    posterior: Posterior | None, covariance: Floats, features: Floats, update: Update, *, prior: Floats
) -> Posterior:
    """Return the posterior after one window and one step of forgetting."""
    covariance_features = covariance @ features
    remaining = covariance - update.shrink * np.outer(covariance_features, covariance_features)
    step = covariance_features * update.gain
    return Posterior(
        mean=posterior.mean + step if posterior else step,
        covariance=remaining + FORGETTING * update.forgetting * (prior - remaining),
        prior=prior,
    )
