"""The field: log slowdowns of pairs as a sum of Gaussian terms, conditioned on rows, with variances learned from them.

Every row is one measurement or one observed window, and every row is the sum of what its terms say of it plus noise ::

    y_r = Σ_t  loadings_t[r] · effect_t[group_t[r]]  +  noise_r

Of terms that are bounded, a row shows the larger of their sum and its bound: a neighbour adds no negative time. A row
whose bounded terms lie below its bound tells nothing of them (Tobin 1958, "Estimation of relationships for limited
dependent variables"); which rows do, the other rows tell.

One row or half a million, one algebra: the posterior is that of Gaussian process regression, in whichever space is
smaller (`spaces`).

Law 1: a row of weight 0 changes nothing. Law 2: the order of rows and terms changes nothing but the last digits.
Law 3: without noise and with one row, the expected value of that row is the row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from interfere.predict.field.spaces import Asked, Space, space_of
from interfere.predict.field.terms import ABSENT, FLAT_VARIANCE, Bools, Floats, Ints, Rows, Term, indicator

DEGREES_OF_FREEDOM = 4.0  # of Student's t for the noise: 3 to 5 is usual for contaminated normal errors (Lange 1989)
JITTER = 1e-10
SHOWN_SD = 3.0  # standard deviations of its noise above the bound: such a value shows more than the bound
NOISE_ROWS = 4.0  # rows that the prior of a source's noise is worth


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The effects given the rows."""

    rows: Rows
    terms: tuple[Term, ...]
    space: Space
    log_evidence: float  # log marginal likelihood of the rows, up to a constant
    student: Floats  # float64[p]: Student's weight of each row, at most 1
    at_bound: Bools  # bool[p]: rows that show their bound; in `rows` and `terms` they do not load on bounded terms

    def term(self, name: str) -> Term:
        """Return the term of this name. Raises KeyError."""
        return self.terms[self._place(name)]

    def has(self, name: str) -> bool:
        """Return whether there is a term of this name."""
        return any(term.name == name for term in self.terms)

    def _place(self, name: str) -> int:
        for place, term in enumerate(self.terms):
            if term.name == name:
                return place
        raise KeyError(name)

    def effects(self, name: str) -> tuple[Floats, Floats]:
        """Return posterior mean float64[g, d] and covariance float64[g, d, d] of every group of a term."""
        place = self._place(name)
        mean, covariance = self.space.effects(place)
        prior_mean = self.terms[place].mean
        return (mean if prior_mean is None else prior_mean + mean), covariance

    def levels(self, name: str) -> tuple[Floats, Floats]:
        """Return mean and variance, float64[g] each, of a term with one effect a group."""
        mean, covariance = self.effects(name)
        return mean[:, 0], covariance[:, 0, 0]

    def predict(self, asked: Asked) -> tuple[Floats, Floats]:
        """Return mean and variance, float64[q] each, of the sum of some terms in `q` rows that were not seen."""
        mean, variance = self.space.predict(asked)
        for name, (groups, loadings) in asked.items():
            if (prior_mean := self.term(name).mean) is not None:
                mean = mean + np.where(groups >= 0, (loadings * prior_mean[groups]).sum(axis=1), 0.0)
        return mean, np.maximum(variance, 0.0)


def condition(rows: Rows, terms: Sequence[Term], *, robust_rounds: int = 0, at_bound: Bools | None = None) -> Posterior:
    """Return the posterior of all effects given the rows.

    `robust_rounds`: how often the weights of Student's t are adjusted to the errors that the posterior leaves.
    `at_bound` bool[p]: rows that show their bound.
    """
    if at_bound is not None and at_bound.any() and rows.bounds is not None:
        rows = replace(rows, values=np.where(at_bound, rows.values - rows.bounds, rows.values))
        terms = [
            replace(term, groups=np.where(at_bound, ABSENT, term.groups)) if term.is_bounded else term for term in terms
        ]
    deviations = rows.values - sum((term.prior_means() for term in terms), np.zeros(len(rows)))
    student = np.ones(len(rows))
    for k in range(robust_rounds + 1):
        noise = rows.noise_var / (rows.weights * student)
        space = space_of(terms, noise + JITTER, deviations)
        if k < robust_rounds:
            # What the posterior leaves of each row, and the variance of that: e = noise · K⁻¹ (y - m).
            errors, left = noise * space.solved, noise - noise**2 * space.diagonal()
            scale = np.maximum(rows.noise_var + (noise - left), rows.noise_var)
            student = np.minimum((DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + errors**2 / scale), 1.0)
    log_evidence = -0.5 * float(deviations @ space.solved) - 0.5 * space.log_determinant
    return Posterior(
        rows=rows,
        terms=tuple(terms),
        space=space,
        log_evidence=log_evidence,
        student=student,
        at_bound=np.zeros(len(rows), dtype=np.bool_) if at_bound is None else at_bound,
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
    noise_rows: float = NOISE_ROWS,
) -> Posterior:
    """Return the posterior with the variances of those terms learned that may be.

    A term's variances are its prior ones times one scale, or each group has a variance of its own around that. Each
    round moves every scale uphill on the marginal likelihood, by the minorization of Zhou, Hu, Zhou & Lange 2019 ("MM
    algorithms for variance components models", JCGS 28), with the prior as `prior_groups` groups whose effects have
    the prior variance. A term whose whole covariance is learned has the mean of the second moments of its groups'
    effects, as expectation-maximisation has it (Laird & Ware 1982, "Random-effects models for longitudinal data",
    Biometrics 38). `sources` int64[p]: whose noise is learned too, one variance each, never below the median of all,
    with its prior as `noise_rows` rows. `start` and `start_noise_var` float64[p]: where the search starts.
    """
    priors = [term.covariance for term in terms]
    current = [_scaled(term, start.get(term.name, 1.0)) for term in terms]
    learned_rows = rows if start_noise_var is None else replace(rows, noise_var=start_noise_var)
    posterior = condition(learned_rows, current)
    for k in range(rounds):
        at_bound = _rows_at_bound(posterior, rows, current)
        for place, (term, prior) in enumerate(zip(current, priors, strict=True)):
            if not math.isinf(term.prior_groups):
                current[place] = replace(term, covariance=_learned_variances(posterior, term, prior))
        if sources is not None:
            learned_rows = replace(rows, noise_var=_learned_noise(posterior, rows, sources, noise_rows))
        posterior = condition(
            learned_rows, current, robust_rounds=robust_rounds if k == rounds - 1 else 0, at_bound=at_bound
        )
    return posterior


def _rows_at_bound(posterior: Posterior, rows: Rows, terms: Sequence[Term]) -> Bools:
    """Return bool[p]: the rows whose bounded terms lie below their bound, by what all other rows say of them.

    Either the bounded terms of a row are where the other rows have them, at f ± √v below the bound b, and the row shows
    b; or the row's value y shows them. With the variance s² of all that is not bounded, the first is the more likely
    where (y - b)² / s² ≤ (y - f)² / (s² + v).
    """
    found = np.zeros(len(rows), dtype=np.bool_)
    if rows.bounds is None:
        return found
    noise = posterior.rows.noise_var / (posterior.rows.weights * posterior.student)
    near = np.flatnonzero(rows.values - rows.bounds <= SHOWN_SD * np.sqrt(noise))
    if not len(near):
        return found
    # 1. The bounded terms, the others, and all, given every row.
    of_all = {term.name: (term.groups[near], term.loadings[near]) for term in terms}
    of_bounded = {term.name: of_all[term.name] for term in terms if term.is_bounded}
    of_others = {name: asked for name, asked in of_all.items() if name not in of_bounded}
    (f, v), (_, others_var), (_, all_var) = map(posterior.predict, (of_bounded, of_others, of_all))
    # 2. The bounded terms without a row's own value, of which a row at its bound gives none to them.
    noise, bounds, precision = noise[near], rows.bounds[near], posterior.space.diagonal()[near]
    gain = np.where(posterior.at_bound[near], 0.0, 0.5 * (v + all_var - others_var) / noise)
    f = f - gain * posterior.space.solved[near] / precision
    v = v + gain**2 / precision
    # 3. The two explanations.
    others = [term for term in terms if term.is_answer and not term.is_bounded]
    unbounded_var = sum((term.covariance[term.groups[near], 0, 0] for term in others), noise)
    nuisances = {term.name: of_all[term.name] for term in terms if not term.is_answer}
    value = rows.values[near] - (posterior.predict(nuisances)[0] if nuisances else 0.0)
    is_likelier = (value - bounds) ** 2 / unbounded_var <= (value - f) ** 2 / (unbounded_var + v)
    found[near] = (f < bounds) & is_likelier
    return found


def learned_scales(posterior: Posterior, terms: Sequence[Term]) -> Scales:
    """Return the learned scale of each term whose variances may be learned."""
    return {
        prior.name: _usual_scale(learned, prior.covariance)
        for learned, prior in zip(posterior.terms, terms, strict=True)
        if not math.isinf(prior.prior_groups)
    }


def determined_groups(posterior: Posterior, name: str) -> float:
    """Return how many effects of a term the rows determine: each counts the share of its variance that they took."""
    covariance = posterior.effects(name)[1]
    before = np.einsum("gdd->gd", posterior.term(name).covariance)
    after = np.einsum("gdd->gd", covariance)
    return float((1.0 - after / np.where(before > 0.0, before, 1.0))[before > 0.0].sum())


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
    if term.is_full:
        moments = np.einsum("gd,ge->gde", mean - centre, mean - centre) + covariance
        whole = (moments.sum(axis=0) + term.prior_groups * prior[0]) / (len(moments) + term.prior_groups)
        return np.repeat(0.5 * (whole + whole.T)[None], len(moments), axis=0)
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


def _learned_noise(posterior: Posterior, rows: Rows, sources: Ints, noise_rows: float) -> Floats:
    noise = posterior.rows.noise_var / (posterior.rows.weights * posterior.student)
    squares = (noise * posterior.space.solved) ** 2 + noise - noise**2 * posterior.space.diagonal()
    squares *= rows.weights * posterior.student
    count, total = (np.bincount(sources, weights=each) for each in (np.ones(len(rows)), squares))
    prior = np.bincount(sources, weights=rows.noise_var) / np.maximum(count, 1.0)
    learned = (total + noise_rows * prior) / np.maximum(count + noise_rows, 1.0)
    usual = float(np.median(learned[count > 0]))
    return np.asarray(np.maximum(learned, usual)[sources])


def additive_effects(
    values: Floats,
    victims: Ints,
    neighbours: Ints,
    *,
    jobs: int,
    shrinkage: float,
    weights: Floats | None = None,
    level: float | None = None,
) -> tuple[float, Floats, Floats]:
    """Return the level and the effects of each of n jobs as victim and as neighbour, float64[n] each.

    `victims`, `neighbours` int64[p]: jobs, from 0. `shrinkage` in rows: an effect measured once keeps
    1 / (1 + shrinkage) of its measured size; a job without a row has none. A `level` that is given is kept; else it is
    fitted, without shrinkage.
    """
    weights = np.ones(len(values)) if weights is None else weights
    mean = level if level is not None else float(np.average(values, weights=weights))
    rows = Rows(values=values - mean, noise_var=np.ones(len(values)), weights=weights)
    terms = [indicator("own", victims, jobs, 1.0 / shrinkage), indicator("harm", neighbours, jobs, 1.0 / shrinkage)]
    if level is None:
        terms.append(indicator("level", np.zeros_like(victims), 1, FLAT_VARIANCE))
    posterior = condition(rows, terms)
    own, harm = (posterior.levels(name)[0] for name in ("own", "harm"))
    return mean + (float(posterior.levels("level")[0][0]) if level is None else 0.0), own, harm
