"""The prior of the online correction, fitted to the champion's errors on jobs it never saw.

Empirical Bayes: with e_g = Φ_g a_g + noise, a_g ~ N(0, Σ) over the jobs g of one role, Σ and the noise are those of
largest likelihood, found by expectation-maximisation (Laird & Ware 1982, "Random-effects models for longitudinal data",
Biometrics 38). Out-of-fold errors only: `job` folds give Σ of an unseen job, `pair` folds that of a job of training.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.prior import (
    SCALE_RANGE,
    Floats,
    ResidualPrior,
    RolePrior,
    WorkloadKey,
    default_prior,
    prior_arrays,
)
from training.dataset import Z95, Dataset
from training.evaluation.cross_validation import Evaluation
from training.evaluation.splits import folds

# Components of a signature. Own-speed MAE after 8 pairs on Gavel: .029 with none, .0275 with 3, 5 or 8; Lucid .040.
COMPONENTS = 5
FEW_JOBS = 40  # fewer (job, domain) groups than this do not carry a 7 × 7 covariance: no signatures then
ROUNDS = 40  # of expectation-maximisation: the likelihood of the public tables stands still after 30
MIN_NOISE_SD = 0.02  # of a window's log slowdown, where a table has single passes and tells no noise of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Out-of-fold errors. `p` rows; identities as in the dataset's rows."""

    log_predicted: Floats  # float64[p]
    error: Floats  # float64[p], log measured - log predicted
    victim: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    domain: NDArray[np.int64]
    new_victim: NDArray[np.bool_]  # bool[p]: the victim is the unseen one
    new_neighbour: NDArray[np.bool_]


def errors_of(dataset: Dataset, evaluation: Evaluation, seed: int) -> Errors:
    """The errors of an evaluated model; in the `job` split with who was unseen."""
    index, fold = evaluation.index, evaluation.fold
    victim, neighbour = dataset.rows.victim[index], dataset.rows.neighbour[index]
    new_victim, new_neighbour = np.zeros(len(index), dtype=bool), np.zeros(len(index), dtype=bool)
    if evaluation.split == "job":
        for k, part in enumerate(folds(dataset, "job", seed)):
            seen = np.concatenate([dataset.rows.victim[part.train], dataset.rows.neighbour[part.train]])
            here = fold == k
            new_victim[here] = ~np.isin(victim[here], seen)
            new_neighbour[here] = ~np.isin(neighbour[here], seen)
    return Errors(
        log_predicted=evaluation.predicted_log,
        error=evaluation.residual(dataset),
        victim=victim,
        neighbour=neighbour,
        domain=dataset.domain[index],
        new_victim=new_victim,
        new_neighbour=new_neighbour,
    )


def fit_prior(dataset: Dataset, unseen: Errors, seen: Errors) -> ResidualPrior:
    """From errors on the `job` split (`unseen`) and on the `pair` split (`seen`), signatures from the rows."""
    groups = len(np.unique(np.stack([unseen.victim, unseen.domain])[:, unseen.new_victim], axis=1).T)
    found = signatures(dataset, COMPONENTS if groups >= FEW_JOBS else 0)
    centre = float(np.mean(unseen.log_predicted)) if len(unseen.log_predicted) else default_prior().centre
    keys = {
        (k + 1, d): (name, where.device_type, where.mode)
        for k, name in enumerate(dataset.workloads)
        for d, where in enumerate(dataset.domains)
    }
    width = 2 + (COMPONENTS if groups >= FEW_JOBS else 0)
    zero = np.zeros(width - 2)

    def fitted(errors: Errors, role: str, chosen: NDArray[np.bool_]) -> tuple[Floats, float] | None:
        who, other = (errors.victim, errors.neighbour) if role == "as_victim" else (errors.neighbour, errors.victim)
        rows: dict[tuple[int, int], list[int]] = {}
        for k in np.flatnonzero(chosen & (errors.victim != errors.neighbour)).tolist():
            rows.setdefault((int(who[k]), int(errors.domain[k])), []).append(k)
        sets = []
        for (_, domain), places in sorted(rows.items()):
            slope = errors.log_predicted[places] - centre
            z = np.array([found.get(keys[int(other[k]), domain], zero) for k in places]).reshape(len(places), -1)
            phi = np.column_stack([np.ones(len(places)), slope, z])
            sets.append((phi, errors.error[places], np.exp(2 * np.clip(slope, *SCALE_RANGE))))
        return random_effects(sets) if len(sets) >= 2 else None

    usual = default_prior()
    roles = {}
    spreads = []
    for role, new in (("as_victim", unseen.new_victim), ("as_neighbour", unseen.new_neighbour)):
        fallback = getattr(usual, role)
        first = fitted(unseen, role, new)
        second = fitted(seen, role, np.ones(len(seen.error), dtype=bool))
        if first:
            spreads.append(first[1])
        roles[role] = RolePrior(
            unseen=first[0] if first else _padded(fallback.unseen, width),
            seen=second[0] if second else _padded(fallback.seen, width),
        )
    spread = float(np.mean(spreads)) if spreads else usual.pair_var + usual.noise_var
    noise = min(_noise_var(dataset), spread / 2)
    means, suffered, added = _effects(dataset)
    homes: list[WorkloadKey] = list(found) or sorted({keys[key] for key in _present(dataset)})
    return ResidualPrior(
        centre=centre,
        as_victim=roles["as_victim"],
        as_neighbour=roles["as_neighbour"],
        pair_var=spread - noise,
        noise_var=noise,
        signatures={home: found.get(home, zero) for home in homes},
        means=means,
        victim_effect={home: suffered.get(home, 0.0) for home in homes},
        neighbour_effect={home: added.get(home, 0.0) for home in homes},
    )


def prior_bytes(prior: ResidualPrior) -> bytes:
    """The file `residual.npz` of a model folder."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **prior_arrays(prior))
    return buffer.getvalue()


def random_effects(sets: Sequence[tuple[Floats, Floats, Floats]]) -> tuple[Floats, float]:
    """(Σ float64[d, d], noise) of e = Φ a + noise · scale, from (Φ float64[k, d], e float64[k], scale float64[k])."""
    d = sets[0][0].shape[1]
    rows = sum(len(e) for _, e, _ in sets)
    weighted = [(phi / np.sqrt(scale)[:, None], e / np.sqrt(scale)) for phi, e, scale in sets]
    total = sum(float(e @ e) for _, e in weighted) / rows
    covariance, noise = np.eye(d) * max(total, 1e-6) / 2, max(total, 1e-6) / 2
    for _ in range(ROUNDS):
        second, left = np.zeros((d, d)), 0.0
        for phi, e in weighted:
            reach = covariance @ phi.T
            inverse = np.linalg.inv(phi @ reach + noise * np.eye(len(e)))
            mean = reach @ inverse @ e
            spread = covariance - reach @ inverse @ reach.T
            second += np.outer(mean, mean) + spread
            rest = e - phi @ mean
            left += float(rest @ rest + np.trace(phi @ spread @ phi.T))
        covariance, noise = second / len(sets), max(left / rows, 1e-8)
    return (covariance + covariance.T) / 2, noise


def signatures(dataset: Dataset, components: int) -> dict[WorkloadKey, Floats]:
    """float64[components] of every job of every domain: principal components of its row and column, holes filled."""
    made: dict[WorkloadKey, Floats] = {}
    for d, where in enumerate(dataset.domains):
        jobs, grid = _grid(dataset, d)
        filled = _filled(grid)
        wide = np.hstack([filled, filled.T])
        u, s, _ = np.linalg.svd(wide - wide.mean(axis=0), full_matrices=False)
        z = np.zeros((len(jobs), components))
        q = min(components, len(s)) if len(s) and s[0] > 0 else 0
        z[:, :q] = u[:, :q] * s[:q] / s[0] * np.sqrt(len(jobs)) if q else 0.0
        for c in range(q):  # a component and its negative are the same one: the largest entry is positive
            z[:, c] *= np.sign(z[np.argmax(np.abs(z[:, c])), c]) or 1.0
        for row, job in enumerate(jobs):
            made[dataset.workloads[job - 1], where.device_type, where.mode] = z[row]
    return made


def _grid(dataset: Dataset, domain: int) -> tuple[list[int], Floats]:
    """(identities, float64[k, k] of log slowdowns, NaN where not measured) of one domain."""
    rows = dataset.take(np.flatnonzero(dataset.domain == domain)).latest()
    jobs = sorted({*rows.rows.victim.tolist(), *rows.rows.neighbour.tolist()})
    place = {job: k for k, job in enumerate(jobs)}
    grid = np.full((len(jobs), len(jobs)), np.nan)
    for victim, neighbour, y in zip(
        rows.rows.victim.tolist(), rows.rows.neighbour.tolist(), rows.log_slowdown.tolist(), strict=True
    ):
        grid[place[victim], place[neighbour]] = y
    return jobs, grid


def _additive(grid: Floats) -> tuple[float, Floats, Floats]:
    """(mean, effect of rows, effect of columns), each shrunk as if by one more cell without effect."""
    there = np.isfinite(grid)
    mean = float(grid[there].mean()) if there.any() else 0.0
    rows = np.nansum(grid - mean, axis=1) / (there.sum(axis=1) + 1)
    columns = np.nansum(grid - mean - rows[:, None], axis=0) / (there.sum(axis=0) + 1)
    return mean, rows, columns


def _filled(grid: Floats) -> Floats:
    mean, rows, columns = _additive(grid)
    return np.asarray(np.where(np.isfinite(grid), grid, mean + rows[:, None] + columns[None]))


def _effects(
    dataset: Dataset,
) -> tuple[dict[tuple[str, str], float], dict[WorkloadKey, float], dict[WorkloadKey, float]]:
    """Means of domains, and what each job suffers and adds."""
    means: dict[tuple[str, str], float] = {}
    suffered: dict[WorkloadKey, float] = {}
    added: dict[WorkloadKey, float] = {}
    for d, where in enumerate(dataset.domains):
        jobs, grid = _grid(dataset, d)
        mean, rows, columns = _additive(grid)
        means[where.device_type, where.mode] = mean
        for k, job in enumerate(jobs):
            home = (dataset.workloads[job - 1], where.device_type, where.mode)
            suffered[home], added[home] = float(rows[k]), float(columns[k])
    return means, suffered, added


def _present(dataset: Dataset) -> set[tuple[int, int]]:
    both = np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
    return set(zip(both.tolist(), np.concatenate([dataset.domain, dataset.domain]).tolist(), strict=True))


def _noise_var(dataset: Dataset) -> float:
    """Median variance of a measured log slowdown, from the rows' 95 % intervals."""
    repeated = dataset.upper > dataset.lower
    if not repeated.any():
        return MIN_NOISE_SD**2
    sd = np.log(dataset.upper[repeated] / dataset.lower[repeated]) / (2 * Z95)
    return float(max(np.median(sd), MIN_NOISE_SD) ** 2)


def _padded(covariance: Floats, width: int) -> Floats:
    """A 2 × 2 default in the corner of a wider one."""
    full: Floats = np.eye(width) * covariance[0, 0] / 10
    full[:2, :2] = covariance
    return full
