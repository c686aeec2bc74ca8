"""A Gaussian process over ordered pairs that factorises over jobs, so that a whole matrix costs one kernel row a job.

With M and P kernels over encoded jobs (two weightings of the columns), i beside j on domain d:

    log ŝ = mu + f(i) + g(j) + h(i, j) + own[d, i] + from[d, j] + level[d]

    cov f = a M(i, i')    cov g = b M(j, j')    cov h = c P(i, i') P(j, j')
    own, from: one free effect a workload, shared by the domains, and one a workload and domain
    noise: one free effect an ordered pair of workloads, and one a row (by the row's weight)

Amplitudes and column weights maximise the marginal likelihood of a sample of rows (Rasmussen & Williams, Gaussian
Processes for Machine Learning, ch. 5); the answer itself is exact, in float64, also in the exported graphs.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.predict.novelty import CLIP, JITTER, JobSpace, gaussian, pair_novelty
from training.dataset import Dataset, Rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Start of the search, in units of the variance of log slowdown: jobs' features explain most, names little.
START = {
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
FLOOR = 1e-6  # added to the diagonal: two rows of equal features and names


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedGp:
    """The posterior mean, summed up over the training rows. `m` distinct encoded jobs, `D` domains, `N` workloads."""

    name: str
    columns: int  # F
    pair_columns: int  # f
    alone: JobSpace  # of M
    together: JobSpace  # of P
    level: Floats  # float64[D + 1]: mu + what the domain adds; 0 is one never seen
    victim: Floats  # float64[m]
    neighbour: Floats  # float64[m]
    both: Floats  # float64[m, m]
    own: Floats  # float64[D + 1, N + 1]
    from_neighbour: Floats  # float64[D + 1, N + 1]

    @property
    def space(self) -> JobSpace:
        """Where the known jobs lie: of the kernel that says what two jobs do together."""
        return self.together

    def novelty(self, rows: Rows) -> Floats:
        """Of each pair, float64[p] in [0, 1]."""
        victims, neighbours = rows.pairs[:, : self.columns], rows.pairs[:, self.columns : 2 * self.columns]
        return pair_novelty(self.space.novelty(victims), self.space.novelty(neighbours))

    def predict(self, rows: Rows) -> Floats:
        """log slowdown, float64[p]."""
        victims, neighbours = rows.pairs[:, : self.columns], rows.pairs[:, self.columns : 2 * self.columns]
        d = rows.domain
        crossed = ((self.together.kernel(victims) @ self.both) * self.together.kernel(neighbours)).sum(axis=1)
        named = self.own[d, rows.victim] + self.from_neighbour[d, rows.neighbour]
        features = self.alone.kernel(victims) @ self.victim + self.alone.kernel(neighbours) @ self.neighbour
        return np.asarray(self.level[d] + features + crossed + named)

    def threshold_rows(self, rows: Rows) -> Rows:
        """None: a Gaussian process is continuous."""
        return rows.take(np.zeros(0, dtype=np.int64))

    def to_onnx(self) -> bytes:
        """`pair.onnx`."""
        from training.models.gp_graph import GpPairGraph
        from training.models.torch_graph import export_pairs

        return export_pairs(GpPairGraph(self), self.pair_columns, ["log_slowdown"])

    def to_matrix_onnx(self) -> bytes:
        """`matrix.onnx`."""
        from training.models.gp_graph import GpMatrixGraph
        from training.models.torch_graph import export_matrix

        return export_matrix(GpMatrixGraph(self), self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpModel:
    """Settings of the search for amplitudes and column weights (Adam), and of the solve."""

    steps: int = 40
    learning_rate: float = 0.15
    sample: int = 700  # rows the likelihood is evaluated on: 3 s on one core; 400 cost 12 % in error, 1,100 gained none
    max_rows: int = 4000  # rows the answer rests on: a solve of 1.5 s and 128 MB a matrix
    name: ClassVar[str] = "gp"

    def fit(self, dataset: Dataset, seed: int) -> FittedGp:
        """Exact on at most `max_rows` rows, a random choice of more."""
        rng = np.random.default_rng([seed, 23])
        chosen = _sample(len(dataset), self.max_rows, rng)
        kept = dataset.take(chosen)
        width = len(dataset.job_names)
        mu = float(np.average(kept.log_slowdown, weights=kept.weight))
        sd = float(kept.log_slowdown.std()) or 1.0
        jobs = np.concatenate([kept.rows.pairs[:, :width], kept.rows.pairs[:, width : 2 * width]])
        distinct, place = np.unique(jobs.view(np.uint32), axis=0, return_inverse=True)
        jobs = np.ascontiguousarray(distinct).view(np.float32)
        space = standard_space(jobs)
        places = place.reshape(2, len(kept))
        rows = _Known(
            points=space.points,
            victim_place=places[0],
            neighbour_place=places[1],
            victim=kept.rows.victim,
            neighbour=kept.rows.neighbour,
            domain=kept.rows.domain,
            weight=kept.weight,
            target=(kept.log_slowdown - mu) / sd,
        )
        found = self._search(rows.take(_sample(len(kept), self.sample, rng)))
        alone, together = (weighted(space, weight) for weight in (found.alone, found.together))
        return _summed_up(self.name, rows, found, alone, together, mu=mu, sd=sd, dataset=dataset)

    def _search(self, rows: "_Known") -> "_Found":
        """Most likely amplitudes and column weights. One thread: the same sums in the same order."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            count = rows.points.shape[1]
            start = np.full(2 * count, 1.0 / count)
            log = torch.tensor(np.log(np.concatenate([list(START.values()), start])), requires_grad=True)
            optimiser = torch.optim.Adam([log], lr=self.learning_rate)
            target, weight = torch.from_numpy(rows.target), torch.from_numpy(rows.weight)
            amplitudes = len(START)
            for _ in range(self.steps):
                optimiser.zero_grad()
                value = log.exp()
                amplitude = dict(zip(START, value[:amplitudes], strict=True))
                metric = value[amplitudes : amplitudes + count], value[amplitudes + count :]
                covariance = _covariance(
                    rows, amplitude, *(_gaussian(torch.from_numpy(rows.points), w) for w in metric)
                )
                root = torch.linalg.cholesky(covariance + torch.diag(amplitude["noise"] / weight + FLOOR))
                solved = torch.cholesky_solve(target[:, None], root)[:, 0]
                # An exponential prior with mean 1 on every amplitude and weight keeps the search from running away.
                loss = 0.5 * target @ solved + root.diagonal().log().sum() + value.sum()
                loss.backward()
                optimiser.step()
            final = log.detach().exp().numpy()
        finally:
            torch.set_num_threads(threads)
        return _Found(
            amplitude=dict(zip(START, final[:amplitudes].tolist(), strict=True)),
            alone=final[amplitudes : amplitudes + count],
            together=final[amplitudes + count :],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Training rows as the covariance sees them. `r` rows, `m` distinct encoded jobs."""

    points: Floats  # float64[m, C], standardised
    victim_place: Ints  # int64[r]: index into the points
    neighbour_place: Ints  # int64[r]
    victim: Ints  # int64[r]: identity
    neighbour: Ints  # int64[r]
    domain: Ints  # int64[r]
    weight: Floats  # float64[r]
    target: Floats  # float64[r]

    def take(self, index: Ints) -> "_Known":
        names = ("victim_place", "neighbour_place", "victim", "neighbour", "domain", "weight", "target")
        return replace(self, **{name: getattr(self, name)[index] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    amplitude: dict[str, float]
    alone: Floats  # float64[C]: column weights of M, 1 ÷ (length scale)²
    together: Floats  # float64[C]: of P


def standard_space(jobs: NDArray[np.float32]) -> JobSpace:
    """Columns of float32[m, F] that vary, standardised over the given jobs; one silent column where none does."""
    known = ~np.isnan(jobs)
    count = np.maximum(known.sum(axis=0), 1)
    values = np.where(known, jobs, 0.0).astype(np.float64)
    centre = values.sum(axis=0) / count
    spread = np.sqrt((np.where(known, values - centre, 0.0) ** 2).sum(axis=0) / count)
    varying = np.flatnonzero(spread > 1e-6)
    columns = varying if len(varying) else np.zeros(1, dtype=np.int64)
    silent = JobSpace(
        columns=columns,
        centre=centre[columns],
        scale=np.where(spread[columns] > 1e-6, 1.0 / np.maximum(spread[columns], 1e-6), 0.0),
        reach=np.full(len(columns), CLIP),
        points=np.zeros((0, len(columns))),
        inverse=np.zeros((0, 0)),
    )
    return replace(silent, points=silent.coordinates(jobs))


def weighted(space: JobSpace, weight: Floats) -> JobSpace:
    """The space with its columns stretched by the root of `weight` (float64[C])."""
    stretch = np.sqrt(weight)
    points = space.points * stretch
    inverse = np.asarray(np.linalg.inv(gaussian(points, points) + JITTER * np.eye(len(points))), dtype=np.float64)
    return replace(space, scale=space.scale * stretch, reach=space.reach * stretch, points=points, inverse=inverse)


def _sample(count: int, size: int, rng: np.random.Generator) -> Ints:
    return np.sort(rng.choice(count, size, replace=False)) if count > size else np.arange(count)


def _gaussian(points: Any, weight: Any) -> Any:
    """As `space.gaussian` of weighted points, in torch."""
    import torch

    scaled = points * weight.sqrt()
    square = (scaled * scaled).sum(1)
    return torch.exp(-0.5 * (square[:, None] + square[None, :] - 2 * scaled @ scaled.T).clamp_min(0.0))


def _covariance(rows: _Known, amplitude: Any, alone: Any, together: Any) -> Any:
    """float64[r, r] without row noise; of numpy arrays or of torch tensors, as the kernels over points are."""
    v, n = rows.victim_place, rows.neighbour_place

    def same(ids: Ints) -> Any:
        equal = (ids[:, None] == ids[None, :]).astype(np.float64)
        if isinstance(alone, np.ndarray):
            return equal
        import torch

        return torch.from_numpy(equal)

    victim, neighbour, domain = same(rows.victim), same(rows.neighbour), same(rows.domain)
    return (
        amplitude["victim"] * alone[v][:, v]
        + amplitude["neighbour"] * alone[n][:, n]
        + amplitude["both"] * together[v][:, v] * together[n][:, n]
        + victim * (amplitude["own"] + amplitude["own_domain"] * domain)
        + neighbour * (amplitude["from"] + amplitude["from_domain"] * domain)
        + amplitude["pair"] * victim * neighbour
        + amplitude["domain"] * domain
    )


def _summed_up(
    name: str,
    rows: _Known,
    found: _Found,
    alone: JobSpace,
    together: JobSpace,
    *,
    mu: float,
    sd: float,
    dataset: Dataset,
) -> FittedGp:
    """Solve once; keep sums of the solution by job, identity and domain: all that the posterior mean needs."""
    from scipy.linalg import cho_factor, cho_solve

    kernels = [gaussian(space.points, space.points) for space in (alone, together)]
    amplitude = found.amplitude
    covariance = _covariance(rows, amplitude, *kernels)
    covariance[np.diag_indices_from(covariance)] += amplitude["noise"] / rows.weight + FLOOR
    solved = sd * cho_solve(cho_factor(covariance, lower=True, overwrite_a=True), rows.target)
    points, names, domains = len(alone.points), len(dataset.workloads) + 1, len(dataset.domains) + 1

    def by(*index: Ints, shape: tuple[int, ...]) -> Floats:
        total = np.zeros(shape)
        np.add.at(total, index, solved)
        return total

    def effects(ids: Ints, shared: float, apart: float) -> Floats:
        """float64[D + 1, N + 1]; the identity 0 and the domain 0 are in no row: they get what all share."""
        return shared * by(ids, shape=(names,)) + apart * by(rows.domain, ids, shape=(domains, names))

    return FittedGp(
        name=name,
        columns=len(dataset.job_names),
        pair_columns=len(dataset.pair_names),
        alone=alone,
        together=together,
        level=mu + amplitude["domain"] * by(rows.domain, shape=(domains,)),
        victim=amplitude["victim"] * by(rows.victim_place, shape=(points,)),
        neighbour=amplitude["neighbour"] * by(rows.neighbour_place, shape=(points,)),
        both=amplitude["both"] * by(rows.victim_place, rows.neighbour_place, shape=(points, points)),
        own=effects(rows.victim, amplitude["own"], amplitude["own_domain"]),
        from_neighbour=effects(rows.neighbour, amplitude["from"], amplitude["from_domain"]),
    )
