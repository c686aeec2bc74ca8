"""The served model: ONNX graphs of a published folder behind the `Predictor` protocol.

One model answers pairs, lists and matrices. A model that factorises over jobs has a graph for matrices of any size; for
any other model, a matrix above the limit in its manifest is refused before any work. Law: a pair gets the same number
by itself or among many.
"""

from collections.abc import Collection, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere.data.facts import combine_profiles
from interfere.errors import UnfitError
from interfere.predict.completion import read_completion
from interfere.predict.encoded_jobs import EncodedJobs, not_encodable
from interfere.predict.feasibility import fits_by_peak_sum
from interfere.predict.graphs import ModelGraphs
from interfere.predict.groups import DEFAULT_COMPOSITION, GroupComposition
from interfere.predict.intervals import MAX_NOVELTY, log_residuals, read_pair_intervals
from interfere.predict.manifest import Manifest, check_matrix_size, read_manifest, shipped_profiles
from interfere.predict.measured import MeasuredPredictor, contradicts, read_measured_table
from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.protocols import PairEncoder
from interfere.records import JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVELS = (0.05, 0.5, 0.95)  # of the lower end, the median and the upper end of a prediction
MIN_FIT_PROBABILITY = 0.5  # a matrix calls a pair infeasible below this probability


class OnnxPredictor:
    """A `interfere.protocols.Predictor` that runs the ONNX graphs of a published model folder."""

    def __init__(self, folder: Path, encoder: PairEncoder, accepted: Collection[str] = ()) -> None:
        """Load the graphs and arrays of `folder`. `accepted`: digests of the models that may be loaded; empty: all.

        Raises ModelError when a file is missing, truncated or edited, or the model was trained with another encoder.
        """
        self.manifest: Manifest = read_manifest(folder, encoder.fingerprint, accepted)
        self._encoder = encoder
        self._graphs = ModelGraphs(folder, encoder, factorises=self.manifest.factorises)
        profiles = shipped_profiles(folder)
        combined = combine_profiles(profiles)
        self.profiles: dict[tuple[str, str], JobProfile] = {(p.workload, p.device_type): p for p in combined.jobs}
        self.step_times = {key: profile.step_time_s for key, profile in self.profiles.items()}
        self.profile_sources = profiles  # what each source says, oldest first
        with np.load(folder / "arrays.npz") as arrays:
            self._partners = arrays["partners"]
            completion = read_completion(arrays)
            self._pair_intervals = read_pair_intervals(arrays)
            self._job_space = (
                JobSpace(**{f.name: arrays[f"space_{f.name}"] for f in fields(JobSpace)})
                if "space_points" in arrays
                else None
            )
        self._interval_grids = self.manifest.intervals.grids_at(LEVELS)
        self._identity = {name: k + 1 for k, name in enumerate(self.manifest.workloads)}
        self.encoded_jobs = EncodedJobs(encoder, self._job_space, completion)

    @property
    def version(self) -> str:
        """Return the version of the published folder."""
        return self.manifest.version

    def knows(self, device_type: str, mode: SharingMode) -> str:
        """Return "" where the model was trained on this domain, else the reason and the remedy."""
        if any(d.device_type == device_type and d.mode == mode for d in self.manifest.domains):
            return ""
        seen = ", ".join(sorted({f"{d.device_type}/{d.mode}" for d in self.manifest.domains}))
        return (
            f"the model never saw {device_type}/{mode} (it knows {seen}): import or measure pairs there and retrain, "
            "or set allow_extrapolation"
        )

    def composition(self, device_type: str, mode: SharingMode) -> GroupComposition:
        """Return how pair slowdowns compose into a group's: fitted where groups were measured, else the default."""
        return self.manifest.compositions.get((device_type, mode), DEFAULT_COMPOSITION)

    def coordinates(self, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> NDArray[np.float64]:
        """Return float64[n, C]: standardised coordinates of jobs in the job space; C is 0 for a model without one."""
        if self._job_space is None:
            return np.zeros((len(jobs), 0))
        rows, _ = self.encoded_jobs.encode(jobs, device_type, mode)
        return self._job_space.standardised(rows)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Return the model's predicted slowdown for every pair of the batch.

        Without `allow_extrapolation`, a batch of an unknown domain abstains, and so does every pair that is too novel.
        """
        p = len(batch)
        unknown_domain = "" if batch.allow_extrapolation else self.knows(batch.device_type, batch.mode)
        if unknown_domain or p == 0:
            absent = np.full(p, np.nan)
            return Prediction(
                median=absent,
                lower=absent,
                upper=absent,
                feasibility=absent,
                source=(Source.ABSTAINED,) * p,
                reason=(unknown_domain,) * p,
            )
        rows, job_novelty = self.encoded_jobs.encode(batch.jobs, batch.device_type, batch.mode)
        identities = self._identities(batch.jobs)
        domain = self._domain_index(batch.device_type, batch.mode)
        i, j = batch.victim, batch.neighbour
        log_median = self._graphs.run_pairs(rows, identities, domain, i, j)
        novelty = pair_novelty(job_novelty[i], job_novelty[j])
        partners = self._partners[domain, identities]
        shifts = log_residuals(
            self._interval_grids, novelty=novelty, partners=np.minimum(partners[i], partners[j]), domain=domain
        )
        shifts, own_interval = self._own_shifts(shifts, LEVELS, domain, batch.jobs, i, j)
        lower, median, upper = np.exp(log_median + shifts)
        answer = Prediction(
            median=median,
            lower=lower,
            upper=upper,
            feasibility=self._fit_probability(_memory_shares(batch.jobs, batch.device_memory_bytes), identities, i, j),
            source=(Source.MODEL,) * p,
            reason=("",) * p,
        )
        if batch.allow_extrapolation:
            return answer
        abstains = self.manifest.intervals.abstains(novelty, log_median) & ~own_interval
        return _with_abstentions(answer, batch, job_novelty, abstains) if abstains.any() else answer

    def feasibility(self, batch: PairBatch) -> NDArray[np.float64]:
        """Return float64[p]: the probability that each pair fits in memory, without running a graph."""
        shares, identities = _memory_shares(batch.jobs, batch.device_memory_bytes), self._identities(batch.jobs)
        return self._fit_probability(shares, identities, batch.victim, batch.neighbour)

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Return the slowdowns of both directions, float32[v, n] each; NaN for too novel pairs without extrapolation.

        Raises UnfitError for an unknown domain unless the batch allows extrapolation, and LimitError above the model's
        matrix limit.
        """
        device_type, mode = batch.device_type, batch.mode
        if not batch.allow_extrapolation and (unknown_domain := self.knows(device_type, mode)):
            raise UnfitError("no model for this domain", value=f"{device_type}/{mode}", remedy=unknown_domain)
        v, n = batch.shape
        if not v * n:
            return _empty_matrix(batch)
        check_matrix_size(batch.victims, batch.neighbours, self.manifest.matrix_limit, self.manifest.model)
        jobs = (*batch.victims, *batch.neighbours)
        rows, job_novelty = self.encoded_jobs.encode(jobs, device_type, mode)
        identities = self._identities(jobs)
        domain = self._domain_index(device_type, mode)
        job_of = _first_occurrences(jobs)
        log_victim, log_neighbour = self._graphs.run_matrix(rows, identities, domain, job_of[:v], job_of[v:])
        novelty = pair_novelty(job_novelty[:v, None], job_novelty[None, v:])
        partners = self._partners[domain, identities]
        shift = self.manifest.intervals.quantile(
            quantile, novelty=novelty, partners=np.minimum(partners[:v, None], partners[None, v:]), domain=domain
        )
        i, j = np.arange(v)[:, None], np.arange(v, v + n)[None, :]
        (victim_shift,), own_interval = self._own_shifts(shift[None], (quantile,), domain, jobs, i, j)
        (neighbour_shift,), _ = self._own_shifts(shift[None], (quantile,), domain, jobs, j, i)
        if not batch.allow_extrapolation:
            log_victim, log_neighbour = (
                np.where(self.manifest.intervals.abstains(novelty, log) & ~own_interval, np.nan, log)
                for log in (log_victim, log_neighbour)
            )
        shares = _memory_shares(jobs, batch.device_memory_bytes)
        fit_probability = self._fit_probability(shares, identities, i, j)
        return MatrixPrediction(
            victim_slowdown=np.exp(log_victim + victim_shift).astype(np.float32),
            neighbour_slowdown=np.exp(log_neighbour + neighbour_shift).astype(np.float32),
            feasible=(~(fit_probability < MIN_FIT_PROBABILITY)).astype(np.uint8),
            feasibility=fit_probability,
        )

    def check_encodable(self, profile: JobProfile) -> None:
        """Raise InvalidInputError for a profile that cannot be encoded for the model."""
        row = self.encoded_jobs.rows([profile], profile.device_type, DEFAULT_MODE)
        if np.isinf(row).any() or np.isinf(self._encoder.encode_pairs(row, row)).any():
            raise not_encodable(profile, "a number is too large")

    def _own_shifts(
        self,
        shifts: Floats,
        levels: tuple[float, ...],
        domain: int,
        jobs: Sequence[JobProfile],
        victim: Ints,
        neighbour: Ints,
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Return log residuals with pair-specific ones in place of `shifts`, and whether each pair has such residuals.

        `shifts`: float64[L, ...], at each of L levels.

        A job whose profile contradicts the stored one has no pair-specific intervals. `victim` and `neighbour` are
        indices into the jobs.
        """
        if self._pair_intervals is None:
            return shifts, np.zeros(shifts.shape[1:], dtype=bool)
        names = ["" if contradicts(job, self.step_times) else job.workload for job in jobs]
        identities = np.array([self._identity.get(name, 0) for name in names], dtype=np.int64)
        found = self._pair_intervals.quantiles(levels, domain, identities[victim], identities[neighbour])
        own_interval = np.isfinite(found[0])
        return np.where(own_interval, found, shifts), own_interval

    def _identities(self, jobs: Sequence[JobProfile]) -> NDArray[np.int64]:
        return np.array([self._identity.get(job.workload, 0) for job in jobs], dtype=np.int64)

    def _domain_index(self, device_type: str, mode: SharingMode) -> int:
        """Return the index of the domain in the manifest plus 1, or 0 for a domain without training data."""
        indices = (
            k + 1 for k, d in enumerate(self.manifest.domains) if d.device_type == device_type and d.mode == mode
        )
        return next(indices, 0)

    def _fit_probability(
        self, shares: NDArray[np.float64], identities: NDArray[np.int64], i: NDArray[np.int64], j: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the probability that jobs i and j fit in memory together, elementwise; NaN if a size is unknown."""
        share, model = shares[i] + shares[j], self.manifest.feasibility
        return fits_by_peak_sum(share) if model is None else model.probability(share, identities[i], identities[j])


def load_model(folder: Path, encoder: PairEncoder, accepted: Collection[str] = ()) -> OnnxPredictor:
    """Return the predictor of a published folder. `accepted`: digests of the models that may be loaded; empty: all.

    Raises ModelError for a folder that must not be served.
    """
    return OnnxPredictor(folder, encoder, accepted)


def with_measurements(model: OnnxPredictor, folder: Path) -> MeasuredPredictor:
    """Return the model of a folder, behind the measured pairs that the folder holds. Raises ModelError for bad ones."""
    table = read_measured_table(folder, model.manifest)
    return MeasuredPredictor(model, table, model.step_times, feasibility=model.feasibility)


def _first_occurrences(jobs: Sequence[JobProfile]) -> NDArray[np.int64]:
    """Return int64[n]: for each job, the index at which the same profile first occurs."""
    first: dict[int, int] = {}
    return np.array([first.setdefault(id(job), k) for k, job in enumerate(jobs)], dtype=np.int64)


def _memory_shares(jobs: Sequence[JobProfile], device_memory_bytes: float) -> NDArray[np.float64]:
    """Return float64[n]: each job's peak memory ÷ the device's memory; NaN where either is unknown."""
    return np.array([job.expected_peak_bytes for job in jobs], dtype=np.float64) / max(device_memory_bytes, 1.0)


def _empty_matrix(batch: MatrixBatch) -> MatrixPrediction:
    """Return the answer to a batch without victims or without neighbours."""
    slowdown = np.zeros(batch.shape, dtype=np.float32)
    return MatrixPrediction(
        victim_slowdown=slowdown,
        neighbour_slowdown=slowdown.copy(),
        feasible=np.zeros(batch.shape, dtype=np.uint8),
        feasibility=np.zeros(batch.shape),
    )


def _with_abstentions(
    answer: Prediction, batch: PairBatch, job_novelty: NDArray[np.float64], abstains: NDArray[np.bool_]
) -> Prediction:
    """Return the prediction with its values replaced by NaN and a reason where the model abstains."""

    def reason(k: int) -> str:
        jobs_of_pair = (int(batch.victim[k]), int(batch.neighbour[k]))
        job = max(jobs_of_pair, key=lambda job_index: float(job_novelty[job_index]))
        novelty = float(job_novelty[job])
        what = "is unlike every job" if novelty > MAX_NOVELTY else "differs from the jobs"
        why = f"{batch.jobs[job].workload} {what} the model learned from (novelty {novelty:.2f})"
        doubt = (
            "" if novelty > MAX_NOVELTY else f", and a slowdown of {answer.median[k]:.1f} is too large to be sure of"
        )
        return f"{why}{doubt}: measure this pair first, or set allow_extrapolation"

    return Prediction(
        median=np.where(abstains, np.nan, answer.median),
        lower=np.where(abstains, np.nan, answer.lower),
        upper=np.where(abstains, np.nan, answer.upper),
        feasibility=answer.feasibility,
        source=tuple(
            Source.ABSTAINED if abstained else s for s, abstained in zip(answer.source, abstains, strict=True)
        ),
        reason=tuple(reason(k) if abstained else "" for k, abstained in enumerate(abstains.tolist())),
    )
