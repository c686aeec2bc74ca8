"""Corrections of many pairs at once from the posterior: the change of each prediction and of its interval.

Law: a pair of jobs without any window keeps its prediction and its interval to the last bit, as long as the software
stack of its domain did not change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online import shifts
from interfere.predict.online.belief_state import BeliefState, DomainBelief, DomainKey, Posterior
from interfere.predict.online.effects import NO_PAIRS, Effects, later_variance
from interfere.predict.online.prior import Floats, ResidualPrior, RolePrior, WorkloadKey
from interfere.predict.online.unseen_device import PairPoints

Ints = NDArray[np.int64]
# Of the variance that effects of jobs explain, the share that stays where no window of the very pair came: jobs are no
# exact sums of effects. Chosen on new jobs of Gavel's table, where 90 % intervals then cover .88 to .94 of own and
# others' slowdowns after 1 to 64 windows, and confirmed on Lucid's, .88 to .96 (every second stream of
# tests/bench/test_online.py).
MISFIT_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """Corrections of many pairs; arrays of one shape."""

    mean: Floats  # expected log observed - log predicted
    sd_ratio: Floats  # new ÷ old standard deviation of the prediction's own interval; at most 1
    extra_var: Floats  # variance of log slowdown in addition to the prediction's own interval
    applies: NDArray[np.bool_]  # False where nothing was learned: the prediction stays as it is


class PairCorrections:
    """Computes the corrections of many pairs from a belief."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    @property
    def _state(self) -> BeliefState:
        return self._effects.state

    @property
    def _prior(self) -> ResidualPrior:
        return self._effects.prior

    def pair_beliefs(
        self,
        keys: list[WorkloadKey],
        families: list[str],
        victim: Ints,
        neighbour: Ints,
        log_predicted: Floats,
        measured: NDArray[np.bool_],
        coordinates: Floats,
    ) -> Corrections:
        """Return the corrections of pairs of jobs, given as indices into the `keys` of one domain.

        `coordinates` float64[k, C] of the jobs are used only in a domain without training data.
        """
        domain_key = shifts.domain_of(keys[0])
        domain = self._state.domains.get(domain_key)
        p = len(log_predicted)
        slope, scale = log_predicted - self._prior.centre, self._prior.variance_scale(log_predicted)
        z, ones = self._signatures(keys), np.ones(p)
        mean, after, before = np.zeros(p), np.zeros(p), np.zeros(p)
        # 1. Errors of the model, which do not matter to measured pairs.
        for posteriors, role, job, partner in (
            (self._state.as_victim, self._prior.as_victim, victim, neighbour),
            (self._state.as_neighbour, self._prior.as_neighbour, neighbour, victim),
        ):
            features = np.column_stack([ones, slope, z[partner]])
            known = [posteriors.get(key) or self._unobserved(key, role) for key in keys]
            priors, covariances = (
                np.array([getattr(each, name) for each in known]) for name in ("prior", "covariance")
            )
            mean += (features * self._posterior_means(posteriors, keys)[job]).sum(axis=1)
            products = (features[:, :, None] * features[:, None, :]).reshape(p, -1)
            after += (products * covariances.reshape(len(keys), -1)[job]).sum(axis=1)
            before += (products * priors.reshape(len(keys), -1)[job]).sum(axis=1)
        mean, after, before = (np.where(measured, 0.0, values) for values in (mean, after, before))
        # 2. Shifts, the device type where the model never saw it, and the evidence of the pairs' own windows.
        jobs_observed = self._observed_roles(keys)
        shift_mean, shift_var = np.empty(p), np.empty(p)
        information, weighted_mean, later_var, extra_var = (np.zeros(p) for _ in range(4))
        own = np.array([shifts.own_shift(self._state, key, domain) for key in keys])
        harm = np.array([shifts.harm_shift(self._state, key, domain) for key in keys])
        ends = zip(victim.tolist(), neighbour.tolist(), log_predicted.tolist(), strict=True)
        for k, (i, j, predicted) in enumerate(ends):
            of_domain = shifts.domain_shift(self._state, domain_key, domain, (families[i], families[j]), predicted)
            shift_mean[k], shift_var[k] = of_domain[0] + own[i, 0] + harm[j, 0], of_domain[1] + own[i, 1] + harm[j, 1]
            if evidence := self._state.pairs.get(keys[i], NO_PAIRS).get(keys[j][0]):
                information[k], weighted_mean[k] = evidence.information, evidence.weighted_mean
                extra_var[k] = evidence.extra_var
                later_var[k] = later_variance(evidence, float(shift_var[k]), float(scale[k]), domain)
        pair_prior, pair_var = (self._pair_variances(of_domain, measured) for of_domain in (None, domain))
        device_mean, device_var = np.zeros(p), np.zeros(p)
        if device := self._state.unseen_devices.get(domain_key):
            device_mean, device_var = device.expected(
                PairPoints(coordinates[victim], coordinates[neighbour], log_predicted)
            )
        # 3. Together.
        effects_var = after + device_var + scale * pair_var + shift_var
        earlier_var = effects_var - later_var
        precision = 1.0 / earlier_var + information
        return self._corrections(
            domain,
            mean=shift_mean + ((mean + device_mean) / earlier_var + weighted_mean) / precision,
            before=before + scale * pair_prior,
            after=after + scale * pair_var,
            shift_var=shift_var + device_var,
            own_var=np.minimum(1.0 / precision + later_var + extra_var, effects_var + extra_var),
            scale=scale,
            measured=measured,
            observed=jobs_observed[0][victim] | jobs_observed[1][neighbour],
        )

    def _pair_variances(self, domain: DomainBelief | None, measured: NDArray[np.bool_]) -> Floats:
        """Return the pair variances not explained by effects of the jobs, at variance scale 1, as `measured`."""
        of_model, of_table = (self._effects.pair_prior_var(domain, measured=each) for each in (False, True))
        return np.where(measured, of_table, of_model)

    def _corrections(
        self,
        domain: DomainBelief | None,
        *,
        mean: Floats,
        before: Floats,
        after: Floats,
        shift_var: Floats,
        own_var: Floats,
        scale: Floats,
        measured: NDArray[np.bool_],
        observed: NDArray[np.bool_],
    ) -> Corrections:
        """Put means and variances together; `before` and `after` are without shifts and without noise.

        `own_var` is the variance of each pair with the evidence of its own windows, and `after + shift_var` without
        it: as the first falls, the interval goes from the model's own to that of the belief. The interval of a model's
        answer holds the model's errors, pairs and the noise of its training; that of a measurement holds nothing but
        the error of its mean.
        """
        applies = observed | bool(domain and (domain.epoch or domain.is_unseen))
        noise_var = scale * self._prior.noise_var
        window_noise_var = domain.noise_var if domain else self._prior.noise_var
        # 1. Of a pair without own windows.
        misfit_var = MISFIT_SHARE * np.maximum(before - after, 0.0)
        sd_ratio = np.sqrt(np.minimum((after + misfit_var + noise_var) / (before + noise_var), 1.0))
        beyond_model = np.maximum(after - before, 0.0) + np.maximum(shift_var - shifts.OWN_VAR - shifts.HARM_VAR, 0.0)
        beyond_model += np.maximum(window_noise_var - noise_var, 0.0)
        # 2. What its own windows leave of that.
        share = own_var / (after + shift_var)
        believed_var = own_var + window_noise_var
        sd_ratio *= np.sqrt(share * believed_var / (after + shift_var + window_noise_var))
        extra_var = np.where(measured, believed_var, share * beyond_model + (1.0 - share) * believed_var)
        return Corrections(
            mean=np.where(applies, mean, 0.0),
            sd_ratio=np.where(applies, sd_ratio, 1.0),
            extra_var=np.where(applies, extra_var, 0.0),
            applies=applies,
        )

    def _observed_roles(self, keys: list[WorkloadKey]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        roles = np.array([self._effects.was_observed(key) for key in keys], dtype=bool).reshape(-1, 2)
        return roles[:, 0], roles[:, 1]

    def matrix_beliefs(
        self,
        victims: list[WorkloadKey],
        neighbours: list[WorkloadKey],
        families: tuple[list[str], list[str]],
        log_predicted: Floats,
        measured: NDArray[np.bool_],
        coordinates: tuple[Floats, Floats],
        *,
        with_variances: bool,
    ) -> Corrections:
        """Return the corrections of all victims beside all neighbours of one domain; arrays are float64[v, n].

        Without variances, only `mean` and `applies` are valid. `coordinates`: of both sides, as in `pair_beliefs`.
        """
        domain_key = shifts.domain_of(victims[0])
        domain = self._state.domains.get(domain_key)
        # 1. Errors of the model.
        mean = np.where(measured, 0.0, self._model_error_means(victims, neighbours, log_predicted))
        scale = self._prior.variance_scale(log_predicted)
        before, after = np.zeros_like(mean), np.zeros_like(mean)
        if with_variances:
            before, after = self._model_error_variances(victims, neighbours, log_predicted)
            before, after = np.where(measured, 0.0, before), np.where(measured, 0.0, after)
        # 2. Shifts.
        own = np.array([shifts.own_shift(self._state, key, domain) for key in victims])
        harm = np.array([shifts.harm_shift(self._state, key, domain) for key in neighbours])
        shift_mean, shift_var = (own[:, None, k] + harm[None, :, k] for k in range(2))
        if domain and domain.epoch:
            x = np.clip(log_predicted, *shifts.FACTOR_RANGE)
            v00, v01, v11 = domain.covariance
            shift_mean = shift_mean + domain.mean[0] + domain.mean[1] * x
            shift_var = shift_var + v00 + 2.0 * x * v01 + x * x * v11
            of_families = self._family_table(domain_key, domain, *families)
            shift_mean, shift_var = shift_mean + of_families[0], shift_var + of_families[1]
        if device := self._state.unseen_devices.get(domain_key):
            for i in range(len(victims)):  # a row at once: memory grows with one side only
                row = PairPoints(
                    np.broadcast_to(coordinates[0][i], coordinates[1].shape), coordinates[1], log_predicted[i]
                )
                of_device = device.expected(row)
                shift_mean[i] += of_device[0]
                shift_var[i] += of_device[1]
        mean = mean + shift_mean
        # 3. Pairs, those with own windows by themselves.
        pair_prior, pair_var = (self._pair_variances(of_domain, measured) for of_domain in (None, domain))
        observed = self._observed_roles(victims)[0][:, None] | self._observed_roles(neighbours)[1][None, :]
        after = after + scale * pair_var
        corrections = self._corrections(
            domain,
            mean=mean,
            before=before + scale * pair_prior,
            after=after,
            shift_var=shift_var,
            own_var=after + shift_var,
            scale=scale,
            measured=measured,
            observed=observed,
        )
        rows, columns = self._cells_with_windows(victims, neighbours)
        if len(rows):
            of_cells = self.pair_beliefs(
                [*victims, *neighbours],
                [*families[0], *families[1]],
                rows,
                columns + len(victims),
                log_predicted[rows, columns],
                measured[rows, columns],
                np.concatenate(coordinates),
            )
            for name in ("mean", "sd_ratio", "extra_var"):
                getattr(corrections, name)[rows, columns] = getattr(of_cells, name)
        return corrections

    def _cells_with_windows(self, victims: list[WorkloadKey], neighbours: list[WorkloadKey]) -> tuple[Ints, Ints]:
        """Return the row and column indices of the pairs with own windows."""
        columns = indices_by_workload(neighbours)
        cells = [
            (i, j)
            for i, victim in enumerate(victims)
            for workload in self._state.pairs.get(victim, NO_PAIRS).keys() & columns.keys()
            for j in columns[workload]
        ]
        rows, found = np.array(cells, dtype=np.int64).reshape(-1, 2).T
        return rows, found

    def _family_table(
        self, key: DomainKey, domain: DomainBelief, victims: list[str], neighbours: list[str]
    ) -> tuple[Floats, Floats]:
        """Return means and variances of the family shifts, float64[v, n] each; 0 if a family is unknown."""
        rows, columns = sorted(set(victims)), sorted(set(neighbours))
        table = np.array(
            [
                [shifts.family_shift(self._state, key, domain, (a, b)) if a and b else (0.0, 0.0) for b in columns]
                for a in rows
            ]
        )
        cells = np.ix_([rows.index(name) for name in victims], [columns.index(name) for name in neighbours])
        return table[..., 0][cells], table[..., 1][cells]

    def _model_error_means(
        self, victims: list[WorkloadKey], neighbours: list[WorkloadKey], log_predicted: Floats
    ) -> Floats:
        """Return float64[v, n]: the expected errors of the model."""
        as_victim = self._posterior_means(self._state.as_victim, victims)
        as_neighbour = self._posterior_means(self._state.as_neighbour, neighbours)
        slope = log_predicted - self._prior.centre
        correction = as_victim[:, :1] + as_victim[:, 1:2] * slope + as_neighbour[:, 0] + as_neighbour[:, 1] * slope
        if self._prior.width > 2:
            of_victims = as_victim[:, 2:] @ self._signatures(neighbours).T
            correction += of_victims + self._signatures(victims) @ as_neighbour[:, 2:].T
        return np.asarray(correction)

    def _model_error_variances(
        self, victims: list[WorkloadKey], neighbours: list[WorkloadKey], log_predicted: Floats
    ) -> tuple[Floats, Floats]:
        """Return the variances of the model's errors before and after all observations, float64[v, n] each."""
        slope = log_predicted - self._prior.centre
        before, after = np.zeros_like(slope), np.zeros_like(slope)
        rows = self._signatures(neighbours)
        for i, key in enumerate(victims):
            phi = np.column_stack([np.ones(len(neighbours)), slope[i], rows])
            old, new = self._variances(self._state.as_victim, key, self._prior.as_victim, phi)
            before[i] += old
            after[i] += new
        rows = self._signatures(victims)
        for j, key in enumerate(neighbours):
            psi = np.column_stack([np.ones(len(victims)), slope[:, j], rows])
            old, new = self._variances(self._state.as_neighbour, key, self._prior.as_neighbour, psi)
            before[:, j] += old
            after[:, j] += new
        return before, after

    def _variances(
        self, posteriors: Mapping[WorkloadKey, Posterior], key: WorkloadKey, role: RolePrior, features: Floats
    ) -> tuple[Floats, Floats]:
        """Return the variance of features · effect under the prior and under the posterior, float64[k] each."""
        posterior = posteriors.get(key) or self._unobserved(key, role)
        old = np.einsum("kd,de,ke->k", features, posterior.prior, features)
        return old, np.einsum("kd,de,ke->k", features, posterior.covariance, features) if key in posteriors else old

    def _unobserved(self, key: WorkloadKey, role: RolePrior) -> Posterior:
        """Return the posterior of a job in a role in which it was not observed, which is its prior."""
        covariance = self._effects.prior_covariance(key, role)
        return Posterior(mean=np.zeros(len(covariance)), covariance=covariance, prior=covariance)

    def _signatures(self, keys: list[WorkloadKey]) -> Floats:
        """Return float64[k, q]: the signatures of the keys."""
        return np.array([self._prior.signature(key) for key in keys]).reshape(len(keys), self._prior.width - 2)

    def _posterior_means(self, posteriors: Mapping[WorkloadKey, Posterior], keys: list[WorkloadKey]) -> Floats:
        zero = np.zeros(self._prior.width)
        return np.array([posterior.mean if (posterior := posteriors.get(key)) else zero for key in keys]).reshape(
            len(keys), self._prior.width
        )


def indices_by_workload(keys: Sequence[WorkloadKey]) -> dict[str, list[int]]:
    """Return the indices of the keys of each workload."""
    indices: dict[str, list[int]] = {}
    for k, (workload, _, _) in enumerate(keys):
        indices.setdefault(workload, []).append(k)
    return indices
