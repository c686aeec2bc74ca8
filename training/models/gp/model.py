"""A Gaussian process over ordered pairs that factorises over jobs: a matrix of all pairs costs one kernel row a job.

With M and P kernels over encoded jobs (two weightings of the columns), i beside j on domain d:

    log ŝ = mu + f(i) + g(j) + h(i, j) + own[d, i] + from[d, j] + level[d]

    cov f = a M(i, i')    cov g = b M(j, j')    cov h = c P(i, i') P(j, j')
    own, from: one free effect a workload, shared by the domains, and one a workload and domain
    noise: one free effect an ordered pair of workloads, and one a row (by the row's weight)

Amplitudes and column weights maximise the marginal likelihood of a sample of rows (Rasmussen & Williams, Gaussian
Processes for Machine Learning, ch. 5); the posterior mean itself is exact, in float64, also in the exported graphs.
If the dataset has more than `max_rows` rows, the posterior is fitted on a random sample, and `fit_low_rank` corrects
the posterior mean with the remaining rows.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.predict.completion import MIN_SPREAD, centre_and_spread
from interfere.predict.novelty import CLIP, JITTER, JobSpace, gaussian
from interfere.training.dataset import Dataset, PairRows
from interfere.training.models.completed import distinct_jobs
from interfere.training.models.gp.posterior import GpPosterior, ResidualRows, fit_low_rank

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Start of the search, in units of the variance of log slowdown: jobs' features explain most of it, identities little.
INITIAL_AMPLITUDES = {
    "victim": 0.3,
    "neighbour": 0.3,
    "both": 0.3,
    "own": 0.05,
    "from": 0.05,
    "pair": 0.05,
    "own_domain": 0.02,
    "from_domain": 0.02,
    "domain": 0.02,
    "noise": 0.03,
}
DIAGONAL_JITTER = 1e-6  # keeps the covariance regular where two rows have equal features and identities
# Strength of a prior that draws the logarithms of a kernel's column weights to their mean. Without it the likelihood of
# a few families keeps few columns, and predictions for a new family depend on these columns alone.
COLUMN_WEIGHT_TIE = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedGp:
    """The fitted Gaussian process: its posterior mean under the model's name."""

    name: str
    posterior: GpPosterior

    @property
    def space(self) -> JobSpace:
        """Return the job space in which novelty is measured: the space of the interaction kernel."""
        return self.posterior.interaction_space

    def novelty(self, rows: PairRows) -> Floats:
        """Return the novelty of each pair, float64[p] in [0, 1]."""
        return self.posterior.novelty(rows)

    def predict(self, rows: PairRows) -> Floats:
        """Return predicted log slowdowns, float64[p]."""
        return self.posterior.predict(rows)

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx`."""
        from interfere.training.models.gp.graph import GpPairGraph
        from interfere.training.models.onnx_graph import pair_module_to_onnx

        return pair_module_to_onnx(GpPairGraph(self.posterior), self.posterior.pair_columns, ["log_slowdown"])

    def to_matrix_onnx(self) -> bytes:
        """Return the serialised `matrix.onnx`."""
        from interfere.training.models.gp.graph import GpMatrixGraph
        from interfere.training.models.onnx_graph import matrix_module_to_onnx

        return matrix_module_to_onnx(GpMatrixGraph(self.posterior), self.posterior.job_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpModel:
    """Settings of the hyperparameter search (Adam) and of the posterior."""

    steps: int = 40
    learning_rate: float = 0.15
    sample: int = 700  # rows of the likelihood: 3 s on one core; 400 cost 12 % in error, 1,100 gained nothing
    max_rows: int = 4000  # rows of the posterior: a solve of 1.5 s and 128 MB a matrix
    name: ClassVar[str] = "gp"

    def fit(self, dataset: Dataset, seed: int) -> FittedGp:
        """Fit on at most `max_rows` randomly sampled rows; the remaining rows fit a low-rank correction."""
        # 1. Standardise the target and the distinct jobs of the rows.
        rng = np.random.default_rng([seed, 23])
        kept_index = _sample_indices(len(dataset), self.max_rows, rng)
        kept = dataset.take(kept_index)
        mu = float(np.average(kept.log_slowdown, weights=kept.weight))
        sd = float(kept.log_slowdown.std()) or 1.0
        distinct = distinct_jobs(kept.rows)
        space = standardised_space(distinct.jobs)
        rows = _TrainingRows(
            points=space.points,
            victim_job=distinct.victim,
            neighbour_job=distinct.neighbour,
            victim=kept.rows.victim,
            neighbour=kept.rows.neighbour,
            domain=kept.rows.domain,
            weight=kept.weight,
            target=(kept.log_slowdown - mu) / sd,
        )
        # 2. Search the hyperparameters on a sample of the rows.
        hyperparameters = self._search(rows.take(_sample_indices(len(kept), self.sample, rng)))
        # 3. Solve for the posterior mean on all rows.
        posterior = _posterior(rows, hyperparameters, space, mu=mu, sd=sd, dataset=dataset)
        # 4. Correct the effects of workloads with the remaining rows.
        others = dataset.take(np.setdiff1d(np.arange(len(dataset)), kept_index))
        return FittedGp(name=self.name, posterior=_corrected(posterior, others, rng) if len(others) else posterior)

    def _search(self, rows: "_TrainingRows") -> "_Hyperparameters":
        """Return the most likely amplitudes and column weights; one thread keeps the order of all sums."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            columns, amplitudes = rows.points.shape[1], len(INITIAL_AMPLITUDES)
            uniform_weights = np.full(2 * columns, 1.0 / columns)
            start = np.concatenate([list(INITIAL_AMPLITUDES.values()), uniform_weights])
            log_parameters = torch.tensor(np.log(start), requires_grad=True)
            optimiser = torch.optim.Adam([log_parameters], lr=self.learning_rate)
            target, weight = torch.from_numpy(rows.target), torch.from_numpy(rows.weight)
            points = torch.from_numpy(rows.points)
            for _ in range(self.steps):
                optimiser.zero_grad()
                parameters = log_parameters.exp()
                amplitude = dict(zip(INITIAL_AMPLITUDES, parameters[:amplitudes], strict=True))
                main_weights = parameters[amplitudes : amplitudes + columns]
                interaction_weights = parameters[amplitudes + columns :]
                covariance = _covariance(
                    rows, amplitude, _torch_kernel(points, main_weights), _torch_kernel(points, interaction_weights)
                )
                factor = torch.linalg.cholesky(covariance + torch.diag(amplitude["noise"] / weight + DIAGONAL_JITTER))
                solution = torch.cholesky_solve(target[:, None], factor)[:, 0]
                # An exponential prior with mean 1 on every amplitude and weight keeps the search from diverging.
                loss = 0.5 * target @ solution + factor.diagonal().log().sum() + parameters.sum()
                log_weights = log_parameters[amplitudes:].reshape(2, columns)
                loss = loss + COLUMN_WEIGHT_TIE * (log_weights - log_weights.mean(1, keepdim=True)).square().sum()
                loss.backward()
                optimiser.step()
            final = log_parameters.detach().exp().numpy()
        finally:
            torch.set_num_threads(threads)
        return _Hyperparameters(
            amplitude=dict(zip(INITIAL_AMPLITUDES, final[:amplitudes].tolist(), strict=True)),
            main_weights=final[amplitudes : amplitudes + columns],
            interaction_weights=final[amplitudes + columns :],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrainingRows:
    """Training rows in the form that the covariance reads: `r` rows of `m` distinct encoded jobs."""

    points: Floats  # float64[m, C]: standardised jobs
    victim_job: Ints  # int64[r]: index into the points
    neighbour_job: Ints  # int64[r]
    victim: Ints  # int64[r]: identity
    neighbour: Ints  # int64[r]
    domain: Ints  # int64[r]
    weight: Floats  # float64[r]
    target: Floats  # float64[r]: standardised log slowdown

    def take(self, index: Ints) -> "_TrainingRows":
        names = ("victim_job", "neighbour_job", "victim", "neighbour", "domain", "weight", "target")
        return replace(self, **{name: getattr(self, name)[index] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hyperparameters:
    amplitude: dict[str, float]
    main_weights: Floats  # float64[C]: column weights of M, 1 ÷ (length scale)²
    interaction_weights: Floats  # float64[C]: column weights of P


def standardised_space(jobs: NDArray[np.float32]) -> JobSpace:
    """Return the job space of the varying columns of float32[m, F], standardised; a constant column if none varies."""
    centre, spread = centre_and_spread(jobs)
    varying = np.flatnonzero(spread > MIN_SPREAD)
    columns = varying if len(varying) else np.zeros(1, dtype=np.int64)
    empty = JobSpace(
        columns=columns,
        centre=centre[columns],
        scale=np.where(spread[columns] > MIN_SPREAD, 1.0 / np.maximum(spread[columns], MIN_SPREAD), 0.0),
        reach=np.full(len(columns), CLIP),
        points=np.zeros((0, len(columns))),
        inverse=np.zeros((0, 0)),
    )
    return replace(empty, points=empty.coordinates(jobs))


def weighted_space(space: JobSpace, weight: Floats) -> JobSpace:
    """Return the space with each column scaled by the square root of its `weight` float64[C]."""
    root = np.sqrt(weight)
    points = space.points * root
    inverse = np.asarray(np.linalg.inv(gaussian(points, points) + JITTER * np.eye(len(points))), dtype=np.float64)
    return replace(space, scale=space.scale * root, reach=space.reach * root, points=points, inverse=inverse)


def _sample_indices(count: int, size: int, rng: np.random.Generator) -> Ints:
    """Return ascending indices below `count`: a random sample of `size`, or all indices if there are fewer."""
    return np.sort(rng.choice(count, size, replace=False)) if count > size else np.arange(count)


def _torch_kernel(points: Any, weight: Any) -> Any:
    """Return the torch kernel of the points in the space of `weighted_space`."""
    import torch

    scaled = points * weight.sqrt()
    squared_norm = (scaled * scaled).sum(1)
    return torch.exp(-0.5 * (squared_norm[:, None] + squared_norm[None, :] - 2 * scaled @ scaled.T).clamp_min(0.0))


def _covariance(rows: _TrainingRows, amplitude: Any, main_kernel: Any, interaction_kernel: Any) -> Any:
    """Return the covariance float64[r, r] without row noise, of the kernels' type (numpy array or torch tensor)."""
    v, n = rows.victim_job, rows.neighbour_job

    def same(ids: Ints) -> Any:
        equal = (ids[:, None] == ids[None, :]).astype(np.float64)
        if isinstance(main_kernel, np.ndarray):
            return equal
        import torch

        return torch.from_numpy(equal)

    victim, neighbour, domain = same(rows.victim), same(rows.neighbour), same(rows.domain)
    return (
        amplitude["victim"] * main_kernel[v][:, v]
        + amplitude["neighbour"] * main_kernel[n][:, n]
        + amplitude["both"] * interaction_kernel[v][:, v] * interaction_kernel[n][:, n]
        + victim * (amplitude["own"] + amplitude["own_domain"] * domain)
        + neighbour * (amplitude["from"] + amplitude["from_domain"] * domain)
        + amplitude["pair"] * victim * neighbour
        + amplitude["domain"] * domain
    )


def _posterior(
    rows: _TrainingRows, hyperparameters: _Hyperparameters, space: JobSpace, *, mu: float, sd: float, dataset: Dataset
) -> GpPosterior:
    """Return the posterior: the solution of the linear system, summed by job, identity and domain."""
    from scipy.linalg import cho_factor, cho_solve

    main_space = weighted_space(space, hyperparameters.main_weights)
    interaction_space = weighted_space(space, hyperparameters.interaction_weights)
    amplitude = hyperparameters.amplitude
    covariance = _covariance(
        rows,
        amplitude,
        gaussian(main_space.points, main_space.points),
        gaussian(interaction_space.points, interaction_space.points),
    )
    covariance[np.diag_indices_from(covariance)] += amplitude["noise"] / rows.weight + DIAGONAL_JITTER
    solution = sd * cho_solve(cho_factor(covariance, lower=True, overwrite_a=True), rows.target)
    jobs, identities, domains = len(main_space.points), len(dataset.workloads) + 1, len(dataset.domains) + 1

    def summed_by(*index: Ints, shape: tuple[int, ...]) -> Floats:
        total = np.zeros(shape)
        np.add.at(total, index, solution)
        return total

    def identity_effects(ids: Ints, shared: float, per_domain: float) -> Floats:
        """Return effects float64[D + 1, N + 1]; identity 0 and domain 0 have no row and get only the shared effect."""
        shared_effect = shared * summed_by(ids, shape=(identities,))
        return shared_effect + per_domain * summed_by(rows.domain, ids, shape=(domains, identities))

    return GpPosterior(
        job_columns=len(dataset.job_columns),
        pair_columns=len(dataset.pair_columns),
        main_space=main_space,
        interaction_space=interaction_space,
        level=mu + amplitude["domain"] * summed_by(rows.domain, shape=(domains,)),
        victim=amplitude["victim"] * summed_by(rows.victim_job, shape=(jobs,)),
        neighbour=amplitude["neighbour"] * summed_by(rows.neighbour_job, shape=(jobs,)),
        both=amplitude["both"] * summed_by(rows.victim_job, rows.neighbour_job, shape=(jobs, jobs)),
        own=identity_effects(rows.victim, amplitude["own"], amplitude["own_domain"]),
        from_neighbour=identity_effects(rows.neighbour, amplitude["from"], amplitude["from_domain"]),
        u=np.zeros((domains, identities, 0)),
        w=np.zeros((domains, identities, 0)),
    )


def _corrected(posterior: GpPosterior, rows: Dataset, rng: np.random.Generator) -> GpPosterior:
    """Return the posterior with a low-rank correction, fitted on `rows` that the posterior was not fitted on."""
    shape = posterior.own.shape
    residual_rows = ResidualRows(
        victim=rows.rows.domain * shape[1] + rows.rows.victim,
        neighbour=rows.rows.domain * shape[1] + rows.rows.neighbour,
        residual=rows.log_slowdown - posterior.predict(rows.rows),
        weight=rows.weight,
    )
    victim, neighbour = (side.reshape(*shape, -1) for side in fit_low_rank(residual_rows, posterior.own.size, rng))
    return replace(
        posterior,
        own=posterior.own + victim[..., 0],
        from_neighbour=posterior.from_neighbour + neighbour[..., 0],
        u=victim[..., 1:],
        w=neighbour[..., 1:],
    )
