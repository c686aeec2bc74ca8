"""Corrections of many pairs at once from the posterior: the change of each prediction and of its interval.

Law 1: a pair of jobs without any window keeps its prediction and its interval to the last bit, as long as the software
stack of its domain did not change. Law 2: a pair has the same correction in a list and in a matrix, but for the last
digits.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online import shifts
from interfere.predict.online.belief_state import BeliefState, DomainBelief, Posterior
from interfere.predict.online.effects import Effects, later_variance
from interfere.predict.online.prior import Floats, ResidualPrior, RolePrior, WorkloadKey
from interfere.predict.online.unseen_device import PairPoints

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Of the variance that effects of jobs explain, the share that stays where no window of the very pair came: jobs are no
# exact sums of effects. Chosen on new jobs of Gavel's table, where 90 % intervals then cover .88 to .94 of own and
# others' slowdowns after 1 to 64 windows, and confirmed on Lucid's, .88 to .96 (every second stream of
# tests/bench/test_online.py).
MISFIT_SHARE = 0.25
CHUNK_PAIRS = 4096  # of which the error on an unseen device type is computed at once


@dataclass(frozen=True, slots=True)
class PairPlaces:
    """Pairs of jobs by their places among the keys of one domain: a list of pairs, or a matrix of jobs by jobs."""

    keys: Sequence[WorkloadKey]
    victim: Ints  # int64[p] of a list, int64[v, 1] of a matrix
    neighbour: Ints  # int64[p] of a list, int64[1, n] of a matrix

    @classmethod
    def matrix(cls, victims: Sequence[WorkloadKey], neighbours: Sequence[WorkloadKey]) -> "PairPlaces":
        """Return every victim beside every neighbour; the neighbours follow the victims among the keys."""
        places = np.arange(len(victims) + len(neighbours))
        return cls([*victims, *neighbours], places[: len(victims), None], places[None, len(victims) :])

    @property
    def transposed(self) -> "PairPlaces":
        """Return the matrix of every neighbour beside every victim."""
        return PairPlaces(self.keys, self.neighbour.T, self.victim.T)

    @property
    def is_matrix(self) -> bool:
        """Return whether these are all pairs of a matrix."""
        return self.victim.ndim == 2

    def at(self, index: tuple[Ints, ...]) -> "PairPlaces":
        """Return the list of the pairs at an index, as `among` gives it."""
        victim, neighbour = np.broadcast_arrays(self.victim, self.neighbour)
        return PairPlaces(self.keys, victim[index], neighbour[index])

    def dot(self, of_victims: Floats, of_neighbours: Floats) -> Floats:
        """Return the products of each pair's rows, that of its victim and that of its neighbour.

        The rows are float64[..., k, d] each; the products have the leading axes of either.
        """
        if self.is_matrix:
            rows, columns = of_victims[..., self.victim[:, 0], :], of_neighbours[..., self.neighbour[0], :]
            return np.asarray(rows @ columns.swapaxes(-1, -2))
        return np.asarray((of_victims[..., self.victim, :] * of_neighbours[..., self.neighbour, :]).sum(axis=-1))

    def among(self, table: Mapping[WorkloadKey, Collection[str]]) -> tuple[Ints, ...]:
        """Return the index of the pairs whose neighbour's workload the table lists for the victim."""
        found: list[tuple[int, ...]]
        if self.is_matrix:
            columns: dict[str, list[int]] = {}
            for j, k in enumerate(self.neighbour[0].tolist()):
                columns.setdefault(self.keys[k][0], []).append(j)
            found = [
                (i, j)
                for i, k in enumerate(self.victim[:, 0].tolist())
                for workload in columns.keys() & table.get(self.keys[k], ())
                for j in columns[workload]
            ]
        else:
            ends = zip(self.victim.tolist(), self.neighbour.tolist(), strict=True)
            found = [(p,) for p, (i, j) in enumerate(ends) if self.keys[j][0] in table.get(self.keys[i], ())]
        return tuple(np.array(found, dtype=np.int64).reshape(-1, self.victim.ndim).T)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """Corrections of many pairs; arrays of one shape."""

    mean: Floats  # expected log observed - log predicted
    sd_ratio: Floats  # new ÷ old standard deviation of the prediction's own interval; at most 1
    extra_var: Floats  # variance of log slowdown in addition to the prediction's own interval
    applies: Bools  # False where nothing was learned: the prediction stays as it is


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

    def of(
        self,
        pairs: PairPlaces,
        families: Sequence[str],
        log_predicted: Floats,
        measured: Bools,
        coordinates: Floats,
        *,
        with_variances: bool = True,
    ) -> Corrections:
        """Return the corrections of pairs, in the shape of `log_predicted` and `measured`.

        `families` and `coordinates` float64[k, C] are those of the jobs; coordinates are used only in a domain without
        training data. Without variances, which only a matrix may omit, just `mean` and `applies` are valid.
        """
        domain = self._state.domains.get(shifts.domain_of(pairs.keys[0]))
        # 1. Errors of the model, which do not matter to measured pairs, and of the device type that it never saw.
        errors = self._model_errors(pairs, log_predicted, with_variances=with_variances)
        error_mean, before, after = (np.where(measured, 0.0, each) for each in errors)
        device_mean, device_var = self._of_unseen_device(pairs, log_predicted, coordinates)
        # 2. Shifts, and the effects of single pairs; no neighbour speeds a job up that has not changed by itself.
        shift_mean, shift_var = self._shifts(pairs, families, log_predicted, domain)
        has_bound = np.array([key not in self._state.changed_jobs for key in pairs.keys])[pairs.victim]
        bound = np.where(has_bound, -np.maximum(log_predicted, 0.0), -np.inf)
        error_mean = np.maximum(error_mean + device_mean, bound - shift_mean)
        scale = self._prior.variance_scale(log_predicted)
        pair_prior, pair_var = (self._pair_variances(of_domain, measured) for of_domain in (None, domain))
        after = after + scale * pair_var
        # 3. The evidence of the pairs' own windows: in a list at once, of a matrix in a list of those that have any.
        effects_var = after + shift_var + device_var
        mean, own_var = shift_mean + error_mean, effects_var
        with_windows = pairs.among(self._state.pairs)
        if not pairs.is_matrix:
            mean, own_var = self._with_own_windows(
                pairs, with_windows[0], (error_mean, shift_mean, shift_var), effects_var, scale, domain
            )
        roles = np.array([self._effects.was_observed(key) for key in pairs.keys], dtype=bool)
        corrections = self._corrections(
            domain,
            mean=mean,
            before=before + scale * pair_prior,
            after=after,
            shift_var=shift_var + device_var,
            own_var=own_var,
            scale=scale,
            measured=measured,
            observed=roles[pairs.victim, 0] | roles[pairs.neighbour, 1],
        )
        if pairs.is_matrix and len(with_windows[0]):
            of_cells = self.of(
                pairs.at(with_windows), families, log_predicted[with_windows], measured[with_windows], coordinates
            )
            for name in ("mean", "sd_ratio", "extra_var"):
                getattr(corrections, name)[with_windows] = getattr(of_cells, name)
        return corrections

    def _with_own_windows(
        self,
        pairs: PairPlaces,
        with_windows: Ints,
        means: tuple[Floats, Floats, Floats],
        effects_var: Floats,
        scale: Floats,
        domain: DomainBelief | None,
    ) -> tuple[Floats, Floats]:
        """Return mean and variance of the pairs of a list, given their own windows; `means`: errors, shifts, and the
        variance of these."""
        error_mean, shift_mean, shift_var = means
        information, weighted_mean, later_var, extra_var = (np.zeros(len(scale)) for _ in range(4))
        for k in with_windows.tolist():
            victim, neighbour = pairs.keys[pairs.victim[k]], pairs.keys[pairs.neighbour[k]]
            evidence = self._state.pairs[victim][neighbour[0]]
            information[k], weighted_mean[k] = evidence.information, evidence.weighted_mean
            extra_var[k] = evidence.extra_var
            later_var[k] = later_variance(evidence, float(shift_var[k]), float(scale[k]), domain)
        earlier_var = effects_var - later_var
        precision = 1.0 / earlier_var + information
        mean = shift_mean + (error_mean / earlier_var + weighted_mean) / precision
        return mean, np.minimum(1.0 / precision + later_var + extra_var, effects_var + extra_var)

    def _pair_variances(self, domain: DomainBelief | None, measured: Bools) -> Floats:
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
        measured: Bools,
        observed: Bools,
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

    def _model_errors(
        self, pairs: PairPlaces, log_predicted: Floats, *, with_variances: bool
    ) -> tuple[Floats, Floats, Floats]:
        """Return the expected errors of the model, and their variances before and after all observations.

        The features of a job are 1, the slope s and the signature z of its partner. So an expected error e and a
        variance C are polynomials in s, whose coefficients are products of a row for the job and one for its partner:

            (e₀ + e₂ · z) + e₁ s        (C₀₀ + 2 C₀₂ · z + zᵀ C₂₂ z) + 2 (C₀₁ + C₁₂ · z) s + C₁₁ s²
        """
        slope, k, q = log_predicted - self._prior.centre, len(pairs.keys), self._prior.width - 2
        z = np.array([self._prior.signature(key) for key in pairs.keys]).reshape(k, q)
        of_slope = np.hstack([np.ones((k, 1)), z])
        squares = (z[:, :, None] * z[:, None, :]).reshape(k, q * q)
        of_constant = np.hstack([of_slope, squares]) if with_variances else of_slope
        total = np.zeros((3 if with_variances else 1, *slope.shape))
        for posteriors, role, job in (
            (self._state.as_victim, self._prior.as_victim, pairs.victim),
            (self._state.as_neighbour, self._prior.as_neighbour, pairs.neighbour),
        ):
            e = np.array([posteriors[key].mean if key in posteriors else np.zeros(2 + q) for key in pairs.keys])
            constant, linear, square = (np.zeros((len(total), k, size)) for size in (of_constant.shape[1], 1 + q, 1))
            constant[0, :, : 1 + q], linear[0, :, 0] = np.delete(e, 1, axis=1), e[:, 1]
            if with_variances:
                known = [posteriors.get(key) or self._unobserved(key, role) for key in pairs.keys]
                c = np.array([[each.prior for each in known], [each.covariance for each in known]])
                constant[1:, :, 0], constant[1:, :, 1 : 1 + q] = c[:, :, 0, 0], 2.0 * c[:, :, 0, 2:]
                constant[1:, :, 1 + q :] = c[:, :, 2:, 2:].reshape(2, k, q * q)
                linear[1:, :, 0], linear[1:, :, 1:] = 2.0 * c[:, :, 0, 1], 2.0 * c[:, :, 1, 2:]
                square[1:, :, 0] = c[:, :, 1, 1]
            ends = ((constant, of_constant), (linear, of_slope))
            products = [pairs.dot(*each) if job is pairs.victim else pairs.dot(*each[::-1]) for each in ends]
            total += products[0] + slope * products[1] + slope**2 * square[:, job, 0]
        mean, before, after = total if with_variances else (total[0], np.zeros(slope.shape), np.zeros(slope.shape))
        return mean, before, after

    def _shifts(
        self, pairs: PairPlaces, families: Sequence[str], log_predicted: Floats, domain: DomainBelief | None
    ) -> tuple[Floats, Floats]:
        """Return mean and variance of the shift of each pair."""
        own, harm = (
            np.array([shift(self._state, key, domain) for key in pairs.keys])
            for shift in (shifts.own_shift, shifts.harm_shift)
        )
        mean, variance = (own[pairs.victim, k] + harm[pairs.neighbour, k] for k in range(2))
        if domain is None or not domain.epoch:
            return mean, variance
        key, names = shifts.domain_of(pairs.keys[0]), sorted(set(families))
        place = np.array([names.index(name) for name in families])
        of_families = np.array(
            [
                [shifts.family_shift(self._state, key, domain, (a, b)) if a and b else (0.0, 0.0) for b in names]
                for a in names
            ]
        )[place[pairs.victim], place[pairs.neighbour]]
        x = np.clip(log_predicted, *shifts.FACTOR_RANGE)
        v00, v01, v11 = domain.covariance
        mean = mean + domain.mean[0] + domain.mean[1] * x + of_families[..., 0]
        return mean, variance + v00 + 2.0 * x * v01 + x * x * v11 + of_families[..., 1]

    def _of_unseen_device(self, pairs: PairPlaces, log_predicted: Floats, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the model's error on a device type that it never saw; 0 on any other."""
        mean, variance = np.zeros(log_predicted.shape), np.zeros(log_predicted.shape)
        if device := self._state.unseen_devices.get(shifts.domain_of(pairs.keys[0])):
            victim, neighbour = (each.ravel() for each in np.broadcast_arrays(pairs.victim, pairs.neighbour))
            for start in range(0, len(victim), CHUNK_PAIRS):
                part = slice(start, start + CHUNK_PAIRS)
                points = PairPoints(coordinates[victim[part]], coordinates[neighbour[part]], log_predicted.flat[part])
                mean.flat[part], variance.flat[part] = device.expected(points)
        return mean, variance

    def _unobserved(self, key: WorkloadKey, role: RolePrior) -> Posterior:
        """Return the posterior of a job in a role in which it was not observed, which is its prior."""
        covariance = self._effects.prior_covariance(key, role)
        return Posterior(mean=np.zeros(len(covariance)), covariance=covariance, prior=covariance)
