"""Slowdown of each workload in each company, with an interval, from the rates of its episodes.

Model, for one workload on one device type: log rate of an episode = level of its company + effect of its job + noise.
Job effects are Gaussian with deviation τ, noise is Gaussian with deviation σ, larger for short episodes and for few
steps. Where a job was seen alone and in company its effect cancels; where only other jobs of the workload were seen
alone, τ widens the interval. The slowdown of a company is exp(level alone - level in company). σ and τ are averaged
over a grid, weighted by their restricted likelihood and a prior around what all workloads of the site have in common
(Patterson and Thompson 1971; empirical Bayes as in Smyth 2004). A workload that was never alone has no slowdown here.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

import numpy as np
from numpy.typing import NDArray

from interfere.monitoring.reading import CompanyWindow, NotMeasured
from interfere.predict.field.gaussian import condition
from interfere.predict.field.terms import FLAT_VARIANCE, Rows, indicator

Floats = NDArray[np.float64]

SHORT_S = 60.0  # an episode of this length has twice the noise variance of a very long one
DEFAULT_SD = 0.03  # of log rate between episodes where a site shows too few: what repeated runs of a step time vary by
LOW_SD, HIGH_SD = 0.01, 0.3  # bounds of the site's common noise
MIN_FREEDOM = 6  # degrees of freedom below which the noise of a site is not estimated
POLISH_PASSES = 5  # of Tukey's median polish, which takes the effects of company and job off in turn
OUTLIER = 5.0  # robust deviations beyond which an episode's noise is taken to be as large as its distance
SIGMA_FACTORS = np.exp(np.linspace(-1.5, 2.0, 9))  # grid of σ, times the common noise
TAU_FACTORS = np.append(0.0, np.exp(np.linspace(-1.0, 4.0, 8)))  # grid of τ, times the common noise
SIGMA_PRIOR_SD = 0.6  # of log σ around the common noise: workloads of one site differ by about a factor of two
COVERAGE = 0.95
BISECTIONS = 25  # of a range of about twenty deviations: to a millionth of one
NEGLIGIBLE = 1e-3  # weight of a grid point that does not move a quantile


Company = tuple[str, ...]
"""Workloads beside a job, sorted; empty where it was alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """All windows of one job beside the same other jobs on one device, as one measurement.

    Windows of one episode share what differs from run to run (input, placement, clocks), so they are not independent
    measurements: an estimate counts episodes, and a long episode is one with little noise.
    """

    workload: str
    device_type: str
    company: Company
    job_id: str
    seconds: float
    steps: float
    windows: int

    @property
    def log_rate(self) -> float:
        """Logarithm of steps per second."""
        return math.log(self.steps / self.seconds)


class EpisodeLog:
    """Adds windows up to episodes, and counts the sides of windows that could not be measured."""

    def __init__(self) -> None:
        self._episodes: dict[tuple[str, str, tuple[str, ...]], Episode] = {}  # by device, job, and all jobs on it
        self.not_measured: Counter[NotMeasured] = Counter()
        self.windows = 0

    def add(self, windows: Iterable[CompanyWindow]) -> None:
        """Add windows to the episodes they belong to. A window must not be added twice."""
        for window in windows:
            self.windows += 1
            ids = tuple(sorted(each.job.id for each in window.jobs))
            for each in window.jobs:
                if each.measured is None:
                    self.not_measured[each.not_measured or NotMeasured.NO_COUNTER] += 1
                    continue
                key = window.device.id, each.job.id, ids
                before = self._episodes.get(key)
                self._episodes[key] = Episode(
                    workload=each.job.workload,
                    device_type=window.device.type,
                    company=window.neighbours(each.job.id),
                    job_id=each.job.id,
                    seconds=(before.seconds if before else 0.0) + each.measured.end_s - each.measured.start_s,
                    steps=(before.steps if before else 0.0) + each.measured.steps,
                    windows=(before.windows if before else 0) + 1,
                )

    def episodes(self) -> tuple[Episode, ...]:
        """All episodes so far."""
        return tuple(self._episodes.values())


# --- the mixed model --------------------------------------------------------------------------------------------------


class Baseline(StrEnum):
    """Which episodes alone a slowdown compares with."""

    SAME_JOBS = "the same jobs alone"
    OTHER_JOBS = "other jobs of the workload alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownEstimate:
    """The slowdown of one workload in one company, with a 95 % interval."""

    victim: str
    company: Company
    device_type: str
    slowdown: float
    lower: float
    upper: float
    log_sd: float  # of the logarithm of the slowdown
    baseline: Baseline
    episodes: int
    windows: int
    solo_episodes: int
    solo_seconds: float
    noise_sd: float  # of log rate from one episode in the same company to the next


def estimate_slowdowns(episodes: Iterable[Episode]) -> tuple[SlowdownEstimate, ...]:
    """Every slowdown of a workload that was also seen alone on the same device type."""
    by_workload: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    for episode in episodes:
        by_workload[episode.device_type, episode.workload].append(episode)
    common_sd = _common_noise(by_workload.values())
    return tuple(
        estimate
        for _, of_workload in sorted(by_workload.items())
        if any(not episode.company for episode in of_workload)
        for estimate in _estimates(of_workload, common_sd)
    )


def _common_noise(groups: Iterable[Sequence[Episode]]) -> float:
    """The deviation of log rates from one episode to the next, over all workloads; robust.

    Of residuals after effects of company and job, where jobs had several companies; else after those of company alone,
    which also hold the differences between jobs.
    """
    every = list(groups)
    for with_jobs in (True, False):
        distances: list[float] = []
        freedom = 0
        for episodes in every:
            residual, of_group = _residuals(episodes, with_jobs=with_jobs)
            if of_group > 0:
                distances += (np.abs(residual) * math.sqrt(len(residual) / of_group)).tolist()
                freedom += of_group
        if freedom >= MIN_FREEDOM:
            return min(HIGH_SD, max(LOW_SD, median(distances) / 0.6745))
    return DEFAULT_SD


def _residuals(episodes: Sequence[Episode], *, with_jobs: bool) -> tuple[Floats, int]:
    """Return log rates minus the effects of company and, `with_jobs`, of job; and the residuals' degrees of freedom."""
    residual = np.array([episode.log_rate for episode in episodes])
    factors = [np.unique([" ".join(episode.company) for episode in episodes], return_inverse=True)[1]]
    if with_jobs:
        factors.append(np.unique([episode.job_id for episode in episodes], return_inverse=True)[1])
    for _ in range(POLISH_PASSES if with_jobs else 1):
        for factor in factors:
            residual = residual - _group_medians(residual, factor)[factor]
    parameters = sum(int(factor.max()) + 1 for factor in factors) - (len(factors) - 1)
    return residual, len(residual) - parameters


def _group_medians(values: Floats, group: NDArray[np.int64]) -> Floats:
    """Return the median of the values of each group, indexed by the number of the group."""
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(1, int(group.max()) + 1))
    return np.array([np.median(part) for part in np.split(values[order], edges)])


def _estimates(episodes: Sequence[Episode], common_sd: float) -> list[SlowdownEstimate]:
    companies: list[Company] = sorted({episode.company for episode in episodes})  # alone, (), comes first
    if len(companies) < 2:
        return []
    fit = _fit(episodes, companies, common_sd)
    solo = [episode for episode in episodes if not episode.company]
    solo_jobs = {episode.job_id for episode in solo}
    found = []
    for k, company in enumerate(companies[1:]):
        here = [episode for episode in episodes if episode.company == company]
        mean, sd, low, high = fit.interval(k)
        same = any(episode.job_id in solo_jobs for episode in here)
        found.append(
            SlowdownEstimate(
                victim=episodes[0].workload,
                company=company,
                device_type=episodes[0].device_type,
                slowdown=math.exp(mean),
                lower=math.exp(low),
                upper=math.exp(high),
                log_sd=sd,
                baseline=Baseline.SAME_JOBS if same else Baseline.OTHER_JOBS,
                episodes=len(here),
                windows=sum(episode.windows for episode in here),
                solo_episodes=len(solo),
                solo_seconds=sum(episode.seconds for episode in solo),
                noise_sd=fit.noise_sd,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """The log slowdowns in c companies at each of g grid points of (σ, τ), and the probability of each grid point."""

    weight: Floats  # float64[g], sums to 1
    means: Floats  # float64[g, c]
    variances: Floats  # float64[g, c]
    noise_sd: float

    def interval(self, company: int) -> tuple[float, float, float, float]:
        """Mean, deviation, lower and upper end of the interval of the log slowdown in a company."""
        means, sds = self.means[:, company], np.sqrt(np.maximum(self.variances[:, company], 1e-12))
        mean = float(self.weight @ means)
        sd = float(np.sqrt(self.weight @ (sds**2 + (means - mean) ** 2)))
        tail = (1 - COVERAGE) / 2
        return mean, sd, self._quantile(means, sds, tail), self._quantile(means, sds, 1 - tail)

    def _quantile(self, means: Floats, sds: Floats, level: float) -> float:
        low, high = float((means - 10 * sds).min()), float((means + 10 * sds).max())
        parts = [
            (w, m, s * math.sqrt(2))
            for w, m, s in zip(self.weight.tolist(), means.tolist(), sds.tolist(), strict=True)
            if w > NEGLIGIBLE
        ]
        total = sum(w for w, _, _ in parts)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            below = sum(w * 0.5 * (1 + math.erf((middle - m) / s)) for w, m, s in parts) / total
            low, high = (middle, high) if below < level else (low, middle)
        return (low + high) / 2


def _fit(episodes: Sequence[Episode], companies: Sequence[Company], common_sd: float) -> _Fit:
    """Fit the mixed model of one workload at each point of the grid of (σ, τ).

    The log rates are rows of the field. With flat priors of the level and the slowdowns, its evidence is the restricted
    likelihood up to a constant.
    """
    # 1. Data: log rates, the company and the job of each row, and the shape of the noise.
    log_rate = np.array([episode.log_rate for episode in episodes])
    y = log_rate - float(np.median(log_rate))
    column = np.array([companies.index(episode.company) for episode in episodes])
    _, job = np.unique([episode.job_id for episode in episodes], return_inverse=True)
    jobs = int(job.max()) + 1
    shape = np.array([1 + SHORT_S / episode.seconds for episode in episodes])
    shape *= _outlier_inflation(y, column, common_sd)
    counting = np.array([1 / (6 * episode.steps**2) for episode in episodes])  # ± one step at either end, uniform
    level = indicator("level alone", np.zeros_like(job), 1, FLAT_VARIANCE)
    # The group of the rows alone, -1, is absent.
    slowdowns = indicator("log slowdown", column - 1, len(companies) - 1, FLAT_VARIANCE)
    slowdowns = replace(slowdowns, loadings=-slowdowns.loadings)
    # 2. Condition at each point of the grid.
    log_weight, means, variances, noise = [], [], [], []
    for sigma in common_sd * SIGMA_FACTORS:
        rows = Rows(values=y, noise_var=sigma**2 * shape + counting, weights=np.ones(len(y)))
        for tau in common_sd * TAU_FACTORS:
            posterior = condition(rows, [level, slowdowns, indicator("job", job, jobs, tau**2)])
            mean, variance = posterior.levels(slowdowns.name)
            prior = -0.5 * (math.log(sigma / common_sd) / SIGMA_PRIOR_SD) ** 2 - math.log1p(
                (tau / (5 * common_sd)) ** 2
            )
            log_weight.append(posterior.log_evidence + prior)
            means.append(mean)
            variances.append(variance)
            # Where every episode is of another job, jobs cannot be told from episodes.
            noise.append(float(np.hypot(sigma, tau)) if jobs == len(y) else sigma)
    weight = np.exp(np.array(log_weight) - max(log_weight))
    weight /= weight.sum()
    return _Fit(
        weight=weight, means=np.array(means), variances=np.array(variances), noise_sd=float(weight @ np.array(noise))
    )


def _outlier_inflation(y: Floats, column: NDArray[np.int64], common_sd: float) -> Floats:
    """Return factors ≥ 1 on the noise variance.

    An episode far from the median of its company gets a noise as large as its distance.
    """
    distance = np.abs(y - _group_medians(y, column)[column])
    scale = max(common_sd, float(np.median(distance)) / 0.6745)
    return np.where(distance > OUTLIER * scale, (distance / scale) ** 2, 1.0)
