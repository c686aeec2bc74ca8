"""Fits the prior of the online correction to the champion's out-of-fold errors, and writes its file.

Empirical Bayes: with e_g = Φ_g a_g + noise, a_g ~ N(0, Σ) over the jobs g of one role, Σ and the noise maximise the
likelihood; the jobs are one term of the field. `job` folds give Σ of an unseen job, `family` folds that of a job whose
whole family is unseen, `pair` folds that of a job of training.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.field.gaussian import additive_effects, learn_variances
from interfere.predict.field.terms import Rows, Term
from interfere.predict.online.belief_state import DomainKey
from interfere.predict.online.prior import (
    SCALE_RANGE,
    Floats,
    ResidualPrior,
    RolePrior,
    WorkloadKey,
    default_prior,
    prior_arrays,
)
from interfere.training.dataset import Z95, Dataset, RowColumns
from interfere.training.evaluation.cross_validation import Evaluation, unseen_sides

# Components of a signature. Own-speed MAE after 8 pairs on Gavel: .029 with none, .0275 with 3, 5 or 8; Lucid .040.
COMPONENTS = 5
MIN_UNSEEN_JOBS = 40  # (job, domain) groups that a 7 × 7 covariance needs; with fewer there are no signatures
EM_ROUNDS = 40  # the likelihood of the public tables no longer rises after 30
MIN_NOISE_SD = 0.02  # of a window's log slowdown; used for a table of single passes, which tells no noise of its own

RandomEffectGroup = tuple[Floats, Floats, Floats]  # Φ float64[k, d], e float64[k], noise scale float64[k] of one job


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfFoldErrors(RowColumns):
    """Out-of-fold errors of one model on one split. `t` tests; identities as in the dataset's rows."""

    log_predicted: Floats  # float64[t]
    error: Floats  # float64[t], log measured - log predicted
    victim: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    domain: NDArray[np.int64]
    new_victim: NDArray[np.bool_]  # bool[t]: the victim is in no training row of the test's fold
    new_neighbour: NDArray[np.bool_]


def out_of_fold_errors(dataset: Dataset, evaluation: Evaluation) -> OutOfFoldErrors:
    """Return the errors of an evaluated model, and which jobs the folds that it was evaluated on had not seen."""
    index = evaluation.index
    unseen = [unseen_sides(dataset, fold) for fold in evaluation.parts]
    new_victim, new_neighbour = (np.concatenate(side) for side in zip(*unseen, strict=True))
    return OutOfFoldErrors(
        log_predicted=evaluation.predicted_log,
        error=evaluation.residual(dataset),
        victim=dataset.rows.victim[index],
        neighbour=dataset.rows.neighbour[index],
        domain=dataset.domain[index],
        new_victim=new_victim,
        new_neighbour=new_neighbour,
    )


def fit_residual_prior(
    dataset: Dataset,
    job_errors: OutOfFoldErrors,
    pair_errors: OutOfFoldErrors,
    family_errors: OutOfFoldErrors | None = None,
) -> ResidualPrior:
    """Fit the prior to the errors on the `job` split and on the `pair` split.

    Signatures come from the dataset.

    `family_errors`: those on the `family` split. Without them, a job of a new family counts as any unseen job.
    """
    # 1. Compute signatures, if there are enough unseen jobs to fit their covariance.
    unseen_jobs = np.unique(np.stack([job_errors.victim, job_errors.domain])[:, job_errors.new_victim], axis=1).shape[1]
    components = COMPONENTS if unseen_jobs >= MIN_UNSEEN_JOBS else 0
    signatures = job_signatures(dataset, components)
    fallback = default_prior()
    centre = float(np.mean(job_errors.log_predicted)) if len(job_errors.log_predicted) else fallback.centre

    # 2. Fit the covariance of each role, of unseen jobs and of jobs of training.
    width = 2 + components
    roles, spreads = {}, []
    for role, new in (("as_victim", job_errors.new_victim), ("as_neighbour", job_errors.new_neighbour)):
        every_row = np.ones(len(pair_errors.error), dtype=bool)
        of_new = _fit_role(dataset, job_errors, role, new, centre=centre, signatures=signatures, components=components)
        of_known = _fit_role(
            dataset, pair_errors, role, every_row, centre=centre, signatures=signatures, components=components
        )
        role_fallback = getattr(fallback, role)
        unseen = of_new[0] if of_new else _widened(role_fallback.unseen, width)
        of_families = None
        if family_errors is not None:
            is_new = family_errors.new_victim if role == "as_victim" else family_errors.new_neighbour
            of_families = _fit_role(
                dataset, family_errors, role, is_new, centre=centre, signatures=signatures, components=components
            )
        roles[role] = RolePrior(
            unseen=unseen,
            seen=of_known[0] if of_known else _widened(role_fallback.seen, width),
            new_family=of_families[0] if of_families else unseen,
        )
        if of_new:
            spreads.append(of_new[1])

    # 3. Split the remaining variance into that of a pair and that of one window.
    spread = float(np.mean(spreads)) if spreads else fallback.pair_var + fallback.noise_var
    noise = min(_noise_variance(dataset), spread / 2)

    # 4. Add the means of the domains and the effects of the jobs of training.
    means, victim_effects, neighbour_effects = _additive_effects(dataset)
    workload_keys: list[WorkloadKey] = list(signatures) or sorted(_measured_workloads(dataset))
    return ResidualPrior(
        centre=centre,
        as_victim=roles["as_victim"],
        as_neighbour=roles["as_neighbour"],
        pair_var=spread - noise,
        noise_var=noise,
        signatures={key: signatures.get(key, np.zeros(components)) for key in workload_keys},
        means=means,
        victim_effect={key: victim_effects.get(key, 0.0) for key in workload_keys},
        neighbour_effect={key: neighbour_effects.get(key, 0.0) for key in workload_keys},
        families=_measured_families(dataset),
    )


def residual_prior_file(prior: ResidualPrior) -> bytes:
    """Return the content of `residual.npz` in a model folder."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **prior_arrays(prior))
    return buffer.getvalue()


def _fit_role(
    dataset: Dataset,
    errors: OutOfFoldErrors,
    role: str,
    selected: NDArray[np.bool_],
    *,
    centre: float,
    signatures: Mapping[WorkloadKey, Floats],
    components: int,
) -> tuple[Floats, float] | None:
    """Return the covariance Σ of the effects of jobs in one role and the variance of the noise, from the selected
    tests.

    None for fewer than two jobs. Self pairs are left out: they show a job in both roles at once.
    """
    # 1. Group the tests by job and domain.
    job, partner = (errors.victim, errors.neighbour) if role == "as_victim" else (errors.neighbour, errors.victim)
    tests_of: dict[tuple[int, int], list[int]] = {}
    for k in np.flatnonzero(selected & (errors.victim != errors.neighbour)).tolist():
        tests_of.setdefault((int(job[k]), int(errors.domain[k])), []).append(k)
    # 2. Build the design of each group: intercept, predicted log slowdown, signature of the partner.
    groups: list[RandomEffectGroup] = []
    for (_, domain), tests in sorted(tests_of.items()):
        slope = errors.log_predicted[tests] - centre
        partner_signatures = np.array(
            [signatures.get(_workload_key(dataset, int(partner[k]), domain), np.zeros(components)) for k in tests]
        ).reshape(len(tests), -1)
        phi = np.column_stack([np.ones(len(tests)), slope, partner_signatures])
        groups.append((phi, errors.error[tests], np.exp(2 * np.clip(slope, *SCALE_RANGE))))
    # 3. Fit.
    return fit_random_effects(groups) if len(groups) >= 2 else None


def fit_random_effects(groups: Sequence[RandomEffectGroup]) -> tuple[Floats, float]:
    """Fit e = Φ a + noise · scale with a ~ N(0, Σ), one a per group, and return Σ, float64[d, d], and the noise."""
    phi, values, scale = (np.concatenate(parts) for parts in zip(*groups, strict=True))
    p, d = phi.shape
    variance = max(float((values**2 / scale).mean()), 1e-6)
    effects = Term(
        name="effects",
        groups=np.repeat(np.arange(len(groups)), [len(e) for _, e, _ in groups]),
        loadings=phi,
        covariance=np.tile(np.eye(d) * variance / 2, (len(groups), 1, 1)),
        prior_groups=0.0,
        is_full=True,
    )
    rows = Rows(values=values, noise_var=np.full(p, variance / 2), weights=1.0 / scale)
    everybody = np.zeros(p, dtype=np.int64)
    posterior = learn_variances(rows, [effects], rounds=EM_ROUNDS, robust_rounds=0, sources=everybody, noise_rows=0.0)
    return posterior.term(effects.name).covariance[0], max(float(posterior.rows.noise_var[0]), 1e-8)


def job_signatures(dataset: Dataset, components: int) -> dict[WorkloadKey, Floats]:
    """Return a signature of every job of every domain, float64[components].

    A signature holds the leading principal components of the job's row and column of log slowdowns. Pairs that were not
    measured have their additive estimate.
    """
    signatures: dict[WorkloadKey, Floats] = {}
    for domain in range(len(dataset.domains)):
        jobs, grid = _slowdown_grid(dataset, domain)
        filled = _fill_additively(grid)
        profiles = np.hstack([filled, filled.T])
        u, s, _ = np.linalg.svd(profiles - profiles.mean(axis=0), full_matrices=False)
        z = np.zeros((len(jobs), components))
        q = min(components, len(s)) if len(s) and s[0] > 0 else 0
        z[:, :q] = u[:, :q] * s[:q] / s[0] * np.sqrt(len(jobs)) if q else 0.0
        for c in range(q):  # the sign of a component is arbitrary: make its largest entry positive
            z[:, c] *= np.sign(z[np.argmax(np.abs(z[:, c])), c]) or 1.0
        for row, job in enumerate(jobs):
            signatures[_workload_key(dataset, job, domain)] = z[row]
    return signatures


def _workload_key(dataset: Dataset, job: int, domain: int) -> WorkloadKey:
    """Return workload, device type and sharing mode of an identity in a domain."""
    place = dataset.domains[domain]
    return dataset.workloads[job - 1], place.device_type, place.mode


def _slowdown_grid(dataset: Dataset, domain: int) -> tuple[list[int], Floats]:
    """Return the identities of one domain, and their log slowdowns, float64[k, k]; NaN where not measured."""
    rows = dataset.take(np.flatnonzero(dataset.domain == domain)).latest_rows()
    jobs = sorted({*rows.rows.victim.tolist(), *rows.rows.neighbour.tolist()})
    position = {job: k for k, job in enumerate(jobs)}
    grid = np.full((len(jobs), len(jobs)), np.nan)
    for victim, neighbour, log_slowdown in zip(
        rows.rows.victim.tolist(), rows.rows.neighbour.tolist(), rows.log_slowdown.tolist(), strict=True
    ):
        grid[position[victim], position[neighbour]] = log_slowdown
    return jobs, grid


def _row_and_column_effects(grid: Floats) -> tuple[float, Floats, Floats]:
    """Return the mean and the effects of rows and columns, each shrunk as if by one further entry without effect."""
    measured = np.isfinite(grid)
    mean = float(grid[measured].mean()) if measured.any() else 0.0
    rows, columns = np.nonzero(measured)
    return additive_effects(grid[measured], rows, columns, jobs=len(grid), shrinkage=1.0, level=mean)


def _fill_additively(grid: Floats) -> Floats:
    """Return the grid with mean + row effect + column effect where it has no measurement."""
    mean, rows, columns = _row_and_column_effects(grid)
    return np.asarray(np.where(np.isfinite(grid), grid, mean + rows[:, None] + columns[None]))


def _additive_effects(
    dataset: Dataset,
) -> tuple[dict[DomainKey, float], dict[WorkloadKey, float], dict[WorkloadKey, float]]:
    """Return the mean log slowdown of each domain, and the effect of each job as victim and as neighbour."""
    means: dict[DomainKey, float] = {}
    victim_effects: dict[WorkloadKey, float] = {}
    neighbour_effects: dict[WorkloadKey, float] = {}
    for d, domain in enumerate(dataset.domains):
        jobs, grid = _slowdown_grid(dataset, d)
        mean, rows, columns = _row_and_column_effects(grid)
        means[domain.device_type, domain.mode] = mean
        for k, job in enumerate(jobs):
            key = _workload_key(dataset, job, d)
            victim_effects[key], neighbour_effects[key] = float(rows[k]), float(columns[k])
    return means, victim_effects, neighbour_effects


def _measured_workloads(dataset: Dataset) -> set[WorkloadKey]:
    """Return workload, device type and sharing mode of every job in any row."""
    jobs = np.concatenate([dataset.rows.victim, dataset.rows.neighbour]).tolist()
    domains = np.concatenate([dataset.domain, dataset.domain]).tolist()
    return {_workload_key(dataset, job, domain) for job, domain in set(zip(jobs, domains, strict=True))}


def _measured_families(dataset: Dataset) -> frozenset[str]:
    """Return the families of all jobs in any row."""
    jobs = np.unique(np.concatenate([dataset.rows.victim, dataset.rows.neighbour]))
    return frozenset(dataset.families[job - 1] for job in jobs.tolist()) - {""}


def _noise_variance(dataset: Dataset) -> float:
    """Return the median variance of a measured log slowdown, from the rows' 95 % intervals."""
    has_interval = dataset.upper > dataset.lower
    if not has_interval.any():
        return MIN_NOISE_SD**2
    sd = np.log(dataset.upper[has_interval] / dataset.lower[has_interval]) / (2 * Z95)
    return float(max(np.median(sd), MIN_NOISE_SD) ** 2)


def _widened(covariance: Floats, width: int) -> Floats:
    """Return float64[width, width] with a 2 × 2 default covariance in its corner."""
    wide: Floats = np.eye(width) * covariance[0, 0] / 10
    wide[:2, :2] = covariance
    return wide
