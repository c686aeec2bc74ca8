"""The one posterior of the field, computed in the space of the rows or in that of the effects, whichever is smaller.

`RowSpace` inverts the covariance of p rows (Rasmussen & Williams 2006, eq. 2.25-2.26): O(p³), however many the effects
are. `EffectSpace` solves the mixed model equations of Henderson (1975, "Best linear unbiased estimation and prediction
under a selection model", Biometrics 31) with the largest term absorbed, whose groups are independent of one another
given all other effects: O(p + m³) for m effects of all other terms.

Law: both give the same posterior, but for the last digits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from interfere.predict.field.terms import FLAT_VARIANCE, Floats, Ints, Term

CHUNK = 2**23  # numbers that are held at once: 64 MB
FEW_ROWS = 512  # whose covariance is inverted in milliseconds, whatever the effects
Asked = Mapping[str, tuple[Ints, Floats]]
"""By the name of each term that counts, the groups int64[q] and the loadings float64[q, d] of rows that are asked."""


class Space(Protocol):
    """The posterior of all effects given p rows with values y, prior means m and covariance K, noise included."""

    @property
    def solved(self) -> Floats:
        """Return float64[p]: K⁻¹ (y - m)."""
        ...

    @property
    def log_determinant(self) -> float:
        """Return log |K|."""
        ...

    def diagonal(self) -> Floats:
        """Return float64[p]: the diagonal of K⁻¹."""
        ...

    def effects(self, place: int) -> tuple[Floats, Floats]:
        """Return mean, less the prior mean, float64[g, d] and covariance float64[g, d, d] of the term at a place."""
        ...

    def predict(self, asked: Asked) -> tuple[Floats, Floats]:
        """Return mean, less the prior mean, and variance, float64[q] each, of the sum of the asked terms."""
        ...


def space_of(terms: Sequence[Term], noise_var: Floats, deviations: Floats) -> Space:
    """Return the cheaper space for these rows; `deviations` float64[p] are y - m.

    Effects of which nothing is known beforehand are exact in the space of effects alone: in that of the rows, the
    difference of two large numbers is left of their variance.
    """
    sizes = [term.size for term in terms]
    is_flat = any(term.covariance.max(initial=0.0) >= FLAT_VARIANCE for term in terms)
    others, p = sum(sizes) - max(sizes, default=0), len(deviations)
    is_cheaper = p > FEW_ROWS and 2 * others < p
    return (EffectSpace if is_flat or is_cheaper else RowSpace)(terms, noise_var, deviations)


def root_of(covariance: Floats) -> Floats:
    """Return the lower triangular root of a regular covariance: times normal draws, it gives draws with that one."""
    return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


class RowSpace:
    """The posterior by the covariance of the rows."""

    def __init__(self, terms: Sequence[Term], noise_var: Floats, deviations: Floats) -> None:
        """Invert the covariance; O(p³)."""
        self._terms = {term.name: term for term in terms}
        self._places = tuple(self._terms)
        signal = sum((_covariance_of_rows(term) for term in terms), np.zeros((len(deviations),) * 2))
        covariance = signal + np.diag(noise_var)
        self._precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        self.solved: Floats = self._precision @ deviations
        self.log_determinant = 2.0 * float(np.log(np.diag(np.linalg.cholesky(covariance))).sum())

    def diagonal(self) -> Floats:
        """Return float64[p]: the diagonal of K⁻¹."""
        return np.diag(self._precision)

    def effects(self, place: int) -> tuple[Floats, Floats]:
        """Return the effects of a term. See `Space`."""
        term = self._terms[self._places[place]]
        groups, width = term.covariance.shape[:2]
        inside = term.groups >= 0
        same = (term.groups[:, None] == term.groups) & inside
        # Of each effect with the loadings l of the group's rows: lᵀ K⁻¹ (y - m), and lᵀ K⁻¹ l of each two.
        pull, reach = np.zeros((groups, width)), np.zeros((groups, width, width))
        np.add.at(pull, term.groups[inside], (term.loadings * self.solved[:, None])[inside])
        through = np.where(same, self._precision, 0.0) @ term.loadings
        np.add.at(reach, term.groups[inside], (term.loadings[:, :, None] * through[:, None, :])[inside])
        mean = np.einsum("gde,ge->gd", term.covariance, pull)
        return mean, term.covariance - term.covariance @ reach @ term.covariance

    def predict(self, asked: Asked) -> tuple[Floats, Floats]:
        """Return the sum of the asked terms. See `Space`."""
        q = len(next(iter(asked.values()))[0])
        variance, cross = np.zeros(q), np.zeros((q, len(self.solved)))
        for name, (groups, loadings) in asked.items():
            term, inside = self._terms[name], groups >= 0
            scaled = np.einsum("qd,qde->qe", loadings, term.covariance[groups])
            same = (groups[:, None] == term.groups) & inside[:, None]
            cross += np.where(same, scaled @ term.loadings.T, 0.0)
            variance += np.where(inside, (scaled * loadings).sum(axis=1), 0.0)
        variance -= np.einsum("qp,pr,qr->q", cross, self._precision, cross, optimize=True)
        return cross @ self.solved, variance


def _covariance_of_rows(term: Term) -> Floats:
    """Return float64[p, p]: the prior covariance of the rows through a term."""
    inside = term.groups >= 0
    same = (term.groups[:, None] == term.groups) & inside
    if term.loadings.shape[1] == 1:
        variance = np.where(inside, term.covariance[term.groups, 0, 0], 0.0)
        column = term.loadings[:, 0]
        return np.where(same, np.outer(column, column) * variance, 0.0)
    scaled = np.einsum("pd,pde->pe", term.loadings, term.covariance[term.groups])
    return np.where(same, scaled @ term.loadings.T, 0.0)


@dataclass(frozen=True, slots=True)
class _Whitened:
    """A term whose effects are uncorrelated with variance 1: effects = root · these."""

    groups: Ints  # int64[p]
    loadings: Floats  # float64[p, d], 0 where the term says nothing
    root: Floats  # float64[g, d, d]
    first: int  # place of its first effect among those of the terms that are not absorbed

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.root.shape[0] * self.root.shape[1])

    def place_of(self, groups: Ints) -> Ints:
        """Return int64[q, d]: where the effects of groups are; of an absent group anywhere, as its loadings are 0."""
        width = self.root.shape[1]
        return np.asarray(self.first + np.maximum(groups, 0)[:, None] * width + np.arange(width))


class EffectSpace:
    """The posterior by the mixed model equations, with uncorrelated effects of variance 1."""

    def __init__(self, terms: Sequence[Term], noise_var: Floats, deviations: Floats) -> None:
        """Absorb the largest term, and solve for the effects of the others."""
        # 1. Uncorrelated effects: those of the absorbed term apart, those of the others one after the other.
        self._absorbed = max(range(len(terms)), key=lambda k: terms[k].size)
        self._names = [term.name for term in terms]
        self._terms, first = [], 0
        for k, term in enumerate(terms):
            self._terms.append(_whitened(term, 0 if k == self._absorbed else first))
            first += 0 if k == self._absorbed else term.size
        self._weight, self._size = 1.0 / noise_var, first
        # 2. The equations: D and B of the absorbed term, S of the others once it is absorbed.
        own, others = self._terms[self._absorbed], [t for k, t in enumerate(self._terms) if k != self._absorbed]
        count, width = own.root.shape[:2]
        weighted = own.loadings * self._weight[:, None]
        block = np.eye(width) + _group_sums(own.groups, count, weighted, own.loadings)
        self._block_inverse = np.asarray(np.linalg.inv(block), dtype=np.float64)  # D⁻¹, float64[g, d, d]
        cross = np.zeros((count * width, first))  # B
        schur = np.eye(first)
        right = np.zeros(first)
        for one in others:
            cross[:, one.columns] += _products(own, one, self._weight)
            np.add.at(right, one.place_of(one.groups), one.loadings * (self._weight * deviations)[:, None])
            for two in others:
                schur[one.columns, two.columns] += _products(one, two, self._weight)
        self._through = np.matmul(self._block_inverse, cross.reshape(count, width, first))  # D⁻¹ B
        flat = self._through.reshape(count * width, first)
        schur -= cross.T @ flat
        self._schur_inverse = np.asarray(np.linalg.inv(schur), dtype=np.float64)
        # 3. The means of all effects.
        pull = _group_sums(own.groups, count, weighted, deviations[:, None])[:, :, 0]
        self._mean = self._schur_inverse @ (right - flat.T @ pull.ravel())
        self._own_mean = np.einsum("gde,ge->gd", self._block_inverse, pull) - self._through @ self._mean
        fitted = (own.loadings * self._own_mean[own.groups]).sum(axis=1)
        for one in others:
            fitted += (one.loadings * self._mean[one.place_of(one.groups)]).sum(axis=1)
        self.solved: Floats = self._weight * (deviations - fitted)
        determinants = (np.linalg.slogdet(block)[1].sum(), np.linalg.slogdet(schur)[1], np.log(noise_var).sum())
        self.log_determinant = float(sum(determinants))

    def diagonal(self) -> Floats:
        """Return float64[p]: the diagonal of K⁻¹."""
        groups = [(term.groups, term.loadings) for term in self._terms]
        return np.asarray(self._weight - self._weight**2 * self._moments(groups)[1])

    def effects(self, place: int) -> tuple[Floats, Floats]:
        """Return the effects of a term. See `Space`."""
        term = self._terms[place]
        count, width = term.root.shape[:2]
        if place == self._absorbed:
            mean = self._own_mean
            left = self._through @ self._schur_inverse @ self._through.transpose(0, 2, 1) if self._size else 0.0
            covariance = self._block_inverse + left
        else:
            mean = self._mean[term.columns].reshape(count, width)
            places = term.place_of(np.arange(count))
            covariance = self._schur_inverse[places[:, :, None], places[:, None, :]]
        return np.einsum("gde,ge->gd", term.root, mean), term.root @ covariance @ term.root.transpose(0, 2, 1)

    def predict(self, asked: Asked) -> tuple[Floats, Floats]:
        """Return the sum of the asked terms. See `Space`."""
        q = len(next(iter(asked.values()))[0])
        found = []
        for name, term in zip(self._names, self._terms, strict=True):
            groups, loadings = asked.get(name, (np.full(q, -1), np.zeros((q, term.root.shape[1]))))
            scaled = np.einsum("qd,qde->qe", loadings, term.root[groups])
            found.append((groups, np.where(groups[:, None] >= 0, scaled, 0.0)))
        return self._moments(found)

    def _moments(self, asked: Sequence[tuple[Ints, Floats]]) -> tuple[Floats, Floats]:
        """Return mean and variance, float64[q] each, of rows with these groups and loadings, a pair for each term."""
        q = len(asked[0][0])
        mean, variance = np.zeros(q), np.zeros(q)
        step = 1 + CHUNK // (self._size + 1)
        for part in (slice(start, start + step) for start in range(0, q, step)):
            groups, loadings = (each[part] for each in asked[self._absorbed])
            scaled = np.einsum("qd,qde->qe", loadings, self._block_inverse[groups])
            mean[part] = (loadings * self._own_mean[groups]).sum(axis=1)
            variance[part] = (loadings * scaled).sum(axis=1)
            beyond = -np.einsum("qd,qdm->qm", loadings, self._through[groups])
            row = np.arange(len(groups))[:, None]
            for k, term in enumerate(self._terms):
                if k != self._absorbed:
                    places, of_term = term.place_of(asked[k][0][part]), asked[k][1][part]
                    beyond[row, places] += of_term
                    mean[part] += (of_term * self._mean[places]).sum(axis=1)
            variance[part] += ((beyond @ self._schur_inverse) * beyond).sum(axis=1)
        return mean, variance


def _whitened(term: Term, first: int) -> _Whitened:
    """Return a term with uncorrelated effects, whose place among the others is given."""
    variances = np.einsum("gdd->gd", term.covariance)
    scaled = np.zeros_like(term.loadings)
    inside = term.groups >= 0
    if np.count_nonzero(term.covariance) == np.count_nonzero(variances):
        deviations = np.sqrt(variances)
        root = deviations[:, :, None] * np.eye(variances.shape[1])
        scaled[inside] = term.loadings[inside] * deviations[term.groups[inside]]
    else:
        values, vectors = np.linalg.eigh(term.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        scaled[inside] = np.einsum("pd,pde->pe", term.loadings[inside], root[term.groups[inside]])
    return _Whitened(term.groups, scaled, root, first)


def _group_sums(groups: Ints, count: int, left: Floats, right: Floats) -> Floats:
    """Return float64[count, a, b]: the sum over each group's rows of left float64[p, a] times right float64[p, b]."""
    if count == 1:
        return np.asarray((left * (groups >= 0)[:, None]).T @ right)[None]
    sums = np.zeros((count, left.shape[1], right.shape[1]))
    order = np.argsort(groups, kind="stable")[int((groups < 0).sum()) :]
    step = 1 + CHUNK // (left.shape[1] * right.shape[1])
    for chunk in np.split(order, range(step, len(order), step)):
        if len(chunk):
            present, start = np.unique(groups[chunk], return_index=True)
            sums[present] += np.add.reduceat(left[chunk][:, :, None] * right[chunk][:, None, :], start, axis=0)
    return sums


def _products(one: _Whitened, two: _Whitened, weight: Floats) -> Floats:
    """Return float64[g·d, g'·d']: the sum over rows of weight times the loadings on each effect of two terms."""
    (count, width), (count_2, width_2) = one.root.shape[:2], two.root.shape[:2]
    shape = count * width, count_2 * width_2
    rows, columns = (term.place_of(term.groups) - term.first for term in (one, two))
    found = np.zeros(shape[0] * shape[1])
    for i in range(width):
        for j in range(width_2):
            place = rows[:, i] * shape[1] + columns[:, j]
            found += np.bincount(place, weight * one.loadings[:, i] * two.loadings[:, j], minlength=len(found))
    return found.reshape(shape)
