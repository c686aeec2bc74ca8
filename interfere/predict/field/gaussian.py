"""The field: log slowdowns of pairs as a sum of Gaussian terms, conditioned on rows, with variances learned from them.

Every row is one measurement or one observed window, and every row is the sum of what its terms say of it plus noise ::

    y_r = Σ_t  loadings_t[r] · effect_t[group_t[r]]  +  noise_r

A term is data: which group (a job, a pair of families, a reporter, a device) each row belongs to, how strongly it loads
on the effect of that group, and the normal prior of the effects. One row or thousands, one algebra: the posterior is
that of Gaussian process regression in the space of the rows (Rasmussen & Williams 2006, eq. 2.25-2.26), O(p³) for p
rows, whatever the number of effects.

Law 1: a row of weight 0 changes nothing. Law 2: the order of rows and terms changes nothing but the last digits.
Law 3: without noise and with one row, the expected value of that row is the row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DEGREES_OF_FREEDOM = 4.0  # of Student's t for the noise: 3 to 5 is usual for contaminated normal errors (Lange 1989)
JITTER = 1e-10
NOISE_ROWS = 4.0  # rows that the prior of a source's noise is worth
ABSENT = -1  # group of a row that a term says nothing of


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One kind of effect: `g` groups with `d` effects each, in `p` rows."""

    name: str
    groups: Ints  # int64[p], from 0; ABSENT where the term says nothing of the row
    loadings: Floats  # float64[p, d]
    covariance: Floats  # float64[g, d, d]: prior covariance of the effects of each group
    mean: Floats | None = None  # float64[g, d]: prior mean; None for 0
    labels: tuple[Any, ...] = ()  # of the groups, for whoever reads the posterior
    prior_groups: float = math.inf  # groups that the prior variance is worth when it is learned; infinity: it is fixed
    is_shared: bool = True  # one variance for all groups, or one each
    start: Floats | None = None  # float64[g]: variances from which learning starts, where each group has its own
    is_answer: bool = True  # False for a nuisance: an effect of who reported, not of what is asked

    def covariance_of_rows(self) -> Floats:
        """Return float64[p, p]: the prior covariance of the rows through this term."""
        inside = self.groups >= 0
        same = (self.groups[:, None] == self.groups) & inside
        if self.loadings.shape[1] == 1:
            variance = np.where(inside, self.covariance[self.groups, 0, 0], 0.0)
            column = self.loadings[:, 0]
            return np.where(same, np.outer(column, column) * variance, 0.0)
        scaled = np.einsum("pd,pde->pe", self.loadings, self.covariance[self.groups])
        return np.where(same, scaled @ self.loadings.T, 0.0)

    def prior_means(self) -> Floats:
        """Return float64[p]: what the prior means of the term add up to in each row."""
        if self.mean is None:
            return np.zeros(len(self.groups))
        values = (self.loadings * self.mean[self.groups]).sum(axis=1)
        return np.where(self.groups >= 0, values, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was seen: `p` values with the variance of their noise, and the weight of each as evidence."""

    values: Floats  # float64[p]
    noise_var: Floats  # float64[p], prior: what it is expected to be
    weights: Floats  # float64[p], in (0, 1]: the variance of the noise is divided by it

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The effects given the rows."""

    rows: Rows
    terms: tuple[Term, ...]
    solved: Floats  # float64[p]: K⁻¹ (y - prior mean)
    precision: Floats  # float64[p, p]: K⁻¹
    log_evidence: float  # log marginal likelihood of the rows, up to a constant
    student: Floats  # float64[p]: Student's weight of each row, at most 1

    def term(self, name: str) -> Term:
        """Return the term of this name. Raises KeyError."""
        for term in self.terms:
            if term.name == name:
                return term
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Return whether there is a term of this name."""
        return any(term.name == name for term in self.terms)

    def effects(self, name: str) -> tuple[Floats, Floats]:
        """Return posterior mean float64[g, d] and covariance float64[g, d, d] of every group of a term."""
        term = self.term(name)
        groups, width = term.covariance.shape[:2]
        mean = np.zeros((groups, width)) if term.mean is None else term.mean.copy()
        inside = term.groups >= 0
        same = (term.groups[:, None] == term.groups) & inside
        # Of each effect with the loadings l of the group's rows: lᵀ K⁻¹ (y - m), and lᵀ K⁻¹ l of each two.
        pull, reach = np.zeros((groups, width)), np.zeros((groups, width, width))
        np.add.at(pull, term.groups[inside], (term.loadings * self.solved[:, None])[inside])
        through = np.where(same, self.precision, 0.0) @ term.loadings
        np.add.at(reach, term.groups[inside], (term.loadings[:, :, None] * through[:, None, :])[inside])
        mean += np.einsum("gde,ge->gd", term.covariance, pull)
        return mean, term.covariance - term.covariance @ reach @ term.covariance

    def levels(self, name: str) -> tuple[Floats, Floats]:
        """Return mean and variance, float64[g] each, of a term with one effect a group."""
        mean, covariance = self.effects(name)
        return mean[:, 0], covariance[:, 0, 0]

    def predict(self, asked: Mapping[str, tuple[Ints, Floats]]) -> tuple[Floats, Floats]:
        """Return mean and variance, float64[q] each, of the sum of some terms in `q` rows that were not seen.

        `asked`: by the name of each term that counts, the groups int64[q] and the loadings float64[q, d].
        """
        q = len(next(iter(asked.values()))[0])
        mean, variance, cross = np.zeros(q), np.zeros(q), np.zeros((q, len(self.rows)))
        for name, (groups, loadings) in asked.items():
            term, inside = self.term(name), groups >= 0
            scaled = np.einsum("qd,qde->qe", loadings, term.covariance[groups])
            same = (groups[:, None] == term.groups) & inside[:, None]
            cross += np.where(same, scaled @ term.loadings.T, 0.0)
            variance += np.where(inside, (scaled * loadings).sum(axis=1), 0.0)
            if term.mean is not None:
                mean += np.where(inside, (loadings * term.mean[groups]).sum(axis=1), 0.0)
        variance -= np.einsum("qp,pr,qr->q", cross, self.precision, cross, optimize=True)
        return mean + cross @ self.solved, np.maximum(variance, 0.0)


def condition(rows: Rows, terms: Sequence[Term], *, robust_rounds: int = 0) -> Posterior:
    """Return the posterior of all effects given the rows.

    `robust_rounds`: how often the weights of Student's t are adjusted to the errors that the posterior leaves.
    """
    prior_mean = sum((term.prior_means() for term in terms), np.zeros(len(rows)))
    signal = sum((term.covariance_of_rows() for term in terms), np.zeros((len(rows), len(rows))))
    student = np.ones(len(rows))
    for k in range(robust_rounds + 1):
        noise = rows.noise_var / (rows.weights * student)
        covariance = signal + np.diag(noise + JITTER)
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        solved = precision @ (rows.values - prior_mean)
        if k < robust_rounds:
            # What the posterior leaves of each row, and the variance of that: e = noise · K⁻¹ (y - m).
            errors, left = noise * solved, noise - noise**2 * np.diag(precision)
            scale = np.maximum(rows.noise_var + (noise - left), rows.noise_var)
            student = np.minimum((DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + errors**2 / scale), 1.0)
    root = np.linalg.cholesky(covariance)
    log_evidence = -0.5 * float((rows.values - prior_mean) @ solved) - float(np.log(np.diag(root)).sum())
    return Posterior(
        rows=rows,
        terms=tuple(terms),
        solved=solved,
        precision=precision,
        log_evidence=log_evidence,
        student=student,
    )


Scales = Mapping[str, float]
"""By the name of a term: how many times its prior variances its variances are."""


def learn_variances(
    rows: Rows,
    terms: Sequence[Term],
    *,
    rounds: int,
    robust_rounds: int = 1,
    sources: Ints | None = None,
    start: Scales = MappingProxyType({}),
    start_noise_var: Floats | None = None,
) -> Posterior:
    """Return the posterior with the variances of those terms learned that may be.

    A term's variances are its prior ones times one scale, or each group has a variance of its own around that. Each
    round moves every scale uphill on the marginal likelihood, by the minorization of Zhou, Hu, Zhou & Lange 2019 ("MM
    algorithms for variance components models", JCGS 28), with the prior as `prior_groups` groups whose effects have
    the prior variance. `sources` int64[p]: whose noise is learned too, one variance each, never below the median of
    all. `start` and `start_noise_var` float64[p]: where the search starts.
    """
    priors = [term.covariance for term in terms]
    current = [_scaled(term, start.get(term.name, 1.0)) for term in terms]
    learned_rows = rows if start_noise_var is None else replace(rows, noise_var=start_noise_var)
    posterior = condition(learned_rows, current)
    for k in range(rounds):
        for place, (term, prior) in enumerate(zip(current, priors, strict=True)):
            if not math.isinf(term.prior_groups):
                current[place] = replace(term, covariance=_learned_variances(posterior, term, prior))
        if sources is not None:
            learned_rows = replace(rows, noise_var=_learned_noise(posterior, rows, sources))
        posterior = condition(learned_rows, current, robust_rounds=robust_rounds if k == rounds - 1 else 0)
    return posterior


def learned_scales(posterior: Posterior, terms: Sequence[Term]) -> Scales:
    """Return the learned scale of each term whose variances may be learned."""
    return {
        prior.name: _usual_scale(learned, prior.covariance)
        for learned, prior in zip(posterior.terms, terms, strict=True)
        if not math.isinf(prior.prior_groups)
    }


def _usual_scale(term: Term, prior: Floats) -> float:
    """Return how many times the prior variances the variances of a term are.

    Where each group has a variance of its own, it is the harmonic mean over the groups, which is what maximises their
    inverse-gamma prior around it; a few large ones do not move it.
    """
    if term.is_shared:
        return float(np.trace(term.covariance.sum(axis=0)) / np.trace(prior.sum(axis=0)))
    seen = np.unique(term.groups[term.groups >= 0])
    v0, v = (np.einsum("gdd->gd", each[seen]) for each in (prior, term.covariance))
    inverse = v0[v0 > 0.0] / v[v0 > 0.0]
    return (len(inverse) + term.prior_groups) / (float(inverse.sum()) + term.prior_groups)


def _scaled(term: Term, scale: float) -> Term:
    """Return a term with the variances from which learning starts."""
    if term.start is not None:
        return replace(term, covariance=term.start[:, None, None] * np.eye(term.covariance.shape[1]))
    return replace(term, covariance=scale * term.covariance)


def _learned_variances(posterior: Posterior, term: Term, prior: Floats) -> Floats:
    """Return float64[g, d, d]: a term's covariances after one step of `learn_variances`."""
    mean, covariance = posterior.effects(term.name)
    centre = 0.0 if term.mean is None else term.mean
    v, v0, a = np.einsum("gdd->gd", term.covariance), np.einsum("gdd->gd", prior), term.prior_groups
    known = v > 0.0
    v_safe = np.where(known, v, 1.0)
    # Of each effect with loadings l: (lᵀ K⁻¹ (y - m))² and lᵀ K⁻¹ l.
    pull = np.where(known, (mean - centre) / v_safe, 0.0) ** 2
    reach = np.where(known, (v - np.einsum("gdd->gd", covariance)) / v_safe**2, 0.0)
    if not term.is_shared:
        usual = _usual_scale(term, prior) * v0
        ratio = (pull + a * usual / v_safe**2) / np.maximum(reach + a / v_safe, 1e-300)
        return np.asarray((v * np.sqrt(ratio))[:, :, None] * np.eye(v.shape[1]))
    scale = _usual_scale(term, prior)
    ratio_of_all = (float((v0 * pull).sum()) + a / scale**2) / (float((v0 * reach).sum()) + a / scale)
    return np.asarray(prior * (scale * ratio_of_all))


def _learned_noise(posterior: Posterior, rows: Rows, sources: Ints) -> Floats:
    noise = posterior.rows.noise_var / (posterior.rows.weights * posterior.student)
    squares = (noise * posterior.solved) ** 2 + noise - noise**2 * np.diag(posterior.precision)
    squares *= rows.weights * posterior.student
    count, total = (np.bincount(sources, weights=each) for each in (np.ones(len(rows)), squares))
    prior = np.bincount(sources, weights=rows.noise_var) / np.maximum(count, 1.0)
    learned = (total + NOISE_ROWS * prior) / (count + NOISE_ROWS)
    usual = float(np.median(learned[count > 0]))
    return np.maximum(learned, usual)[sources]
