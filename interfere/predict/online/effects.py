"""Effects of jobs and pairs on the model's error, learned by one Kalman update per observation.

An observation e = phi · as_victim + psi · as_neighbour + pair + noise updates the three terms as if they were
independent before it (assumed density filtering: Opper 1998, "A Bayesian approach to on-line learning"; the per-player
update of TrueSkill), so an update costs O(d²) and nothing grows but the number of jobs and pairs::

    S = φᵀPφ + ψᵀQψ + pair variance + noise,   r = e - expected, clipped to ± MAX_RESIDUAL_SD · √S
    as_victim += Pφ r / S,   P -= Pφ φᵀP / S,   and likewise for the other two

Forgetting: every update moves the variance back to the prior's by the share `FORGETTING`, so evidence older than some
hundred windows fades. Laws: the observed pair's prediction moves toward the observation and never past it; variances
never exceed the prior's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.prior import Floats, ResidualPrior, RolePrior, WorkloadKey
from interfere.predict.online.revertible import RevertibleDict

Ints = NDArray[np.int64]
ObservedPair = tuple[WorkloadKey, str]  # victim, and its neighbour's workload
PairEffect = tuple[float, float]  # posterior mean and variance, both at variance scale 1

# Two standard deviations cost Gavel's neighbours .002 of speed after one observation, nine gained nothing on Lucid.
MAX_RESIDUAL_SD = 3.0
FORGETTING = 1 / 400  # per update: a job observed in ten windows a day forgets in about a month


@dataclass(frozen=True, slots=True)
class Posterior:
    """Posterior of one job's effect vector in one role."""

    mean: Floats  # float64[d]
    covariance: Floats  # float64[d, d]
    prior: Floats  # float64[d, d], its covariance before any observation


@dataclass(frozen=True, slots=True, kw_only=True)
class PairObservation:
    """One window of a pair: its predicted and its observed log slowdown."""

    victim: WorkloadKey
    neighbour: WorkloadKey
    log_predicted: float
    log_observed: float
    base_measured: bool = False  # the prediction was a measurement of this pair: its error says nothing of either job


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Distance of an observation from the corrected prediction."""

    error: float  # log measured - log corrected prediction
    sd: float  # its standard deviation before the observation

    @property
    def z(self) -> float:
        """The standardised residual."""
        return self.error / self.sd


class Effects:
    """Posteriors of all jobs in both roles and of all observed pairs."""

    def __init__(self, prior: ResidualPrior) -> None:
        self.prior = prior
        self.as_victim: RevertibleDict[WorkloadKey, Posterior] = RevertibleDict()
        self.as_neighbour: RevertibleDict[WorkloadKey, Posterior] = RevertibleDict()
        self.pairs: RevertibleDict[ObservedPair, PairEffect] = RevertibleDict()
        # Jobs without facts: their effects include what a model would predict from facts.
        self.unprofiled: set[WorkloadKey] = set()
        self.unprofiled_var = {role: prior.unprofiled_var(role) for role in ("victim", "neighbour")}
        self._unprofiled_covariance: dict[str, Floats] = {
            role: covariances.unseen + np.diag([self.unprofiled_var[role], *[0.0] * (prior.width - 1)])
            for role, covariances in (("victim", prior.as_victim), ("neighbour", prior.as_neighbour))
        }
        self.observed_neighbours: dict[WorkloadKey, set[str]] = {}  # victim -> neighbours that `pairs` may hold

    def residual(self, observation: PairObservation) -> Residual:
        """The residual that `learn` would learn from."""
        mean, variance, scale = self._expected(observation)
        return Residual(
            error=observation.log_observed - observation.log_predicted - mean,
            sd=math.sqrt(variance + scale * self.prior.noise_var),
        )

    def learn(self, observation: PairObservation) -> None:
        """Update the posteriors of the victim, the neighbour and the pair."""
        residual = self.residual(observation)
        total = residual.sd**2
        gain = min(max(residual.error, -MAX_RESIDUAL_SD * residual.sd), MAX_RESIDUAL_SD * residual.sd) / total
        if not observation.base_measured:
            phi, psi = self._features(observation)
            for posteriors, key, role, features in (
                (self.as_victim, observation.victim, self.prior.as_victim, phi),
                (self.as_neighbour, observation.neighbour, self.prior.as_neighbour, psi),
            ):
                posteriors[key] = _condition(self._job_posterior(posteriors, key, role), features, gain, total)
        scale = self.prior.variance_scale_of(observation.log_predicted)
        mean, variance = self._pair_posterior(observation.victim, observation.neighbour[0])
        root = math.sqrt(scale)
        remaining = variance - scale * variance**2 / total
        self.add_observed_pair(observation.victim, observation.neighbour[0])
        self.pairs[observation.victim, observation.neighbour[0]] = (
            mean + root * variance * gain,
            remaining + FORGETTING * (self.prior.pair_var - remaining),
        )

    def add_observed_pair(self, victim: WorkloadKey, neighbour: str) -> None:
        """Make predictions of this pair look up its posterior."""
        self.observed_neighbours.setdefault(victim, set()).add(neighbour)

    def reset_uncertainty(self, key: WorkloadKey) -> None:
        """Return a job's covariances to those of the prior; the means stay until observations move them."""
        for posteriors in (self.as_victim, self.as_neighbour):
            if (posterior := posteriors.get(key)) is not None:
                posteriors[key] = replace(posterior, covariance=posterior.prior)
        for workload in self.observed_neighbours.get(key, ()):
            if (key, workload) in self.pairs:
                self.pairs[key, workload] = (self.pairs[key, workload][0], self.prior.pair_var)

    def revertible_state(self) -> tuple[RevertibleDict[Any, Any], ...]:
        """All dicts that learning changes."""
        return self.as_victim, self.as_neighbour, self.pairs

    def _pair_posterior(self, victim: WorkloadKey, neighbour: str) -> tuple[float, float]:
        """Posterior mean and variance of one pair's effect, at variance scale 1."""
        return self.pairs.get((victim, neighbour), (0.0, self.prior.pair_var))

    def _expected(self, observation: PairObservation) -> tuple[float, float, float]:
        """(mean, variance without noise, variance scale) of e. Adds no posterior: a question changes nothing."""
        scale = self.prior.variance_scale_of(observation.log_predicted)
        mean, variance = self._pair_posterior(observation.victim, observation.neighbour[0])
        mean, variance = mean * math.sqrt(scale), variance * scale
        if observation.base_measured:
            return mean, variance, scale
        phi, psi = self._features(observation)
        for posteriors, key, role, features in (
            (self.as_victim, observation.victim, self.prior.as_victim, phi),
            (self.as_neighbour, observation.neighbour, self.prior.as_neighbour, psi),
        ):
            posterior = posteriors.get(key)
            covariance = posterior.covariance if posterior else self.prior_covariance(key, role)
            mean += float(features @ posterior.mean) if posterior else 0.0
            variance += float(features @ covariance @ features)
        return mean, variance, scale

    def _features(self, observation: PairObservation) -> tuple[Floats, Floats]:
        head = [1.0, observation.log_predicted - self.prior.centre]
        return (
            np.array([*head, *self.prior.signature(observation.neighbour)]),
            np.array([*head, *self.prior.signature(observation.victim)]),
        )

    def _job_posterior(
        self, posteriors: Mapping[WorkloadKey, Posterior], key: WorkloadKey, role: RolePrior
    ) -> Posterior:
        posterior = posteriors.get(key)
        if posterior is None:
            prior = self.prior_covariance(key, role)
            posterior = Posterior(mean=np.zeros(self.prior.width), covariance=prior, prior=prior)
        return posterior

    def prior_covariance(self, key: WorkloadKey, role: RolePrior) -> Floats:
        """float64[d, d]: covariance of a job's effect vector before any observation."""
        if key in self.unprofiled:
            return self._unprofiled_covariance["victim" if role is self.prior.as_victim else "neighbour"]
        return role.seen if key in self.prior.signatures else role.unseen

    # --- many pairs at once -----------------------------------------------------------------------------------------

    def corrections_and_sd_ratios(
        self, keys: list[WorkloadKey], victim: Ints, neighbour: Ints, log_predicted: Floats, measured: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """(expected e, ratio as in `job_sd_ratios`), float64[p] each, of pairs of jobs by their indices in `keys`."""
        slope, scale = log_predicted - self.prior.centre, self.prior.variance_scale(log_predicted)
        z, ones = self._signatures(keys), np.ones(len(slope))
        mean, after, before = np.zeros(len(slope)), np.zeros(len(slope)), np.zeros(len(slope))
        for posteriors, role, job, partner in (
            (self.as_victim, self.prior.as_victim, victim, neighbour),
            (self.as_neighbour, self.prior.as_neighbour, neighbour, victim),
        ):
            features = np.column_stack([ones, slope, z[partner]])
            priors = np.array([self.prior_covariance(key, role) for key in keys])
            covariances = np.array(
                [
                    posterior.covariance if (posterior := posteriors.get(key)) else prior
                    for key, prior in zip(keys, priors, strict=True)
                ]
            )
            mean += (features * self._posterior_means(posteriors, keys)[job]).sum(axis=1)
            after += np.einsum("pd,pde,pe->p", features, covariances[job], features)
            before += np.einsum("pd,pde,pe->p", features, priors[job], features)
        ends = zip(victim.tolist(), neighbour.tolist(), strict=True)
        pair_posteriors = np.array([self._pair_posterior(keys[i], keys[j][0]) for i, j in ends]).reshape(-1, 2)
        noise = scale * self.prior.noise_var
        after = np.where(measured, 0.0, after) + scale * pair_posteriors[:, 1] + noise
        before = np.where(measured, 0.0, before) + scale * self.prior.pair_var + noise
        return (
            np.where(measured, 0.0, mean) + np.sqrt(scale) * pair_posteriors[:, 0],
            np.sqrt(np.minimum(after / before, 1.0)),
        )

    def job_corrections(
        self, victims: list[WorkloadKey], neighbours: list[WorkloadKey], log_predicted: Floats
    ) -> Floats:
        """float64[v, n]: expected e of victims beside neighbours, from the effects of jobs without those of pairs."""
        as_victim = self._posterior_means(self.as_victim, victims)
        as_neighbour = self._posterior_means(self.as_neighbour, neighbours)
        slope = log_predicted - self.prior.centre
        correction = as_victim[:, :1] + as_victim[:, 1:2] * slope + as_neighbour[:, 0] + as_neighbour[:, 1] * slope
        if self.prior.width > 2:
            of_victims = as_victim[:, 2:] @ self._signatures(neighbours).T
            correction += of_victims + self._signatures(victims) @ as_neighbour[:, 2:].T
        return np.asarray(correction)

    def job_sd_ratios(self, victims: list[WorkloadKey], neighbours: list[WorkloadKey], log_predicted: Floats) -> Floats:
        """float64[v, n]: standard deviation of a window after all observations ÷ before any of them; at most 1."""
        slope = log_predicted - self.prior.centre
        before = self.prior.variance_scale(log_predicted) * (self.prior.pair_var + self.prior.noise_var)
        after = before.copy()
        rows = self._signatures(neighbours)
        for i, key in enumerate(victims):
            phi = np.column_stack([np.ones(len(neighbours)), slope[i], rows])
            old, new = self._variances(self.as_victim, key, self.prior.as_victim, phi)
            before[i] += old
            after[i] += new
        rows = self._signatures(victims)
        for j, key in enumerate(neighbours):
            psi = np.column_stack([np.ones(len(victims)), slope[:, j], rows])
            old, new = self._variances(self.as_neighbour, key, self.prior.as_neighbour, psi)
            before[:, j] += old
            after[:, j] += new
        return np.asarray(np.sqrt(np.minimum(after / before, 1.0)))

    def pair_effect(self, victim: WorkloadKey, neighbour: str, log_predicted: float) -> float:
        """Expected effect of one pair, beyond those of its jobs."""
        mean, _ = self._pair_posterior(victim, neighbour)
        return mean * math.sqrt(self.prior.variance_scale_of(log_predicted))

    def pair_sd_ratio(
        self, victim: WorkloadKey, neighbour: WorkloadKey, log_predicted: float, *, measured: bool
    ) -> float:
        """The ratio of `job_sd_ratios` for one pair, including its own posterior."""
        observation = _hypothetical(victim, neighbour, log_predicted, measured=measured)
        _, after, scale = self._expected(observation)
        before = scale * self.prior.pair_var
        if not measured:
            phi, psi = self._features(observation)
            before += float(phi @ self.prior_covariance(victim, self.prior.as_victim) @ phi)
            before += float(psi @ self.prior_covariance(neighbour, self.prior.as_neighbour) @ psi)
        noise = scale * self.prior.noise_var
        return math.sqrt(min((after + noise) / (before + noise), 1.0))

    def _variances(
        self, posteriors: Mapping[WorkloadKey, Posterior], key: WorkloadKey, role: RolePrior, features: Floats
    ) -> tuple[Floats, Floats]:
        """float64[k] each: variance of features · effect under the prior, and under the posterior."""
        prior = self.prior_covariance(key, role)
        posterior = posteriors.get(key)
        old = np.einsum("kd,de,ke->k", features, prior, features)
        return old, np.einsum("kd,de,ke->k", features, posterior.covariance, features) if posterior else old

    def _signatures(self, keys: list[WorkloadKey]) -> Floats:
        """float64[k, q]: signatures of the keys."""
        return np.array([self.prior.signature(key) for key in keys]).reshape(len(keys), self.prior.width - 2)

    def _posterior_means(self, posteriors: Mapping[WorkloadKey, Posterior], keys: list[WorkloadKey]) -> Floats:
        zero = np.zeros(self.prior.width)
        return np.array([posterior.mean if (posterior := posteriors.get(key)) else zero for key in keys]).reshape(
            len(keys), self.prior.width
        )


def _hypothetical(
    victim: WorkloadKey, neighbour: WorkloadKey, log_predicted: float, *, measured: bool
) -> PairObservation:
    """A pair to ask about, as an observation that is not learned from."""
    return PairObservation(
        victim=victim, neighbour=neighbour, log_predicted=log_predicted, log_observed=0.0, base_measured=measured
    )


def _condition(posterior: Posterior, features: Floats, gain: float, total: float) -> Posterior:
    """The posterior after one observation, and after one step of forgetting."""
    covariance_features = posterior.covariance @ features
    remaining = posterior.covariance - np.outer(covariance_features, covariance_features) / total
    return Posterior(
        mean=posterior.mean + covariance_features * gain,
        covariance=remaining + FORGETTING * (posterior.prior - remaining),
        prior=posterior.prior,
    )
