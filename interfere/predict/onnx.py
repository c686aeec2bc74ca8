"""The served model: two ONNX graphs of a published folder behind the `Predictor` protocol.

`pair.onnx` is the champion and answers lists of pairs and small matrices; `matrix.onnx` factorises over jobs (two-tower
model) and fills large matrices. Law: a pair gets the same number by itself or among many, as long as the same graph
answers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.facts import combine_profiles
from interfere.errors import ModelError, UnfitError
from interfere.predict.completion import read_completion
from interfere.predict.encoded_jobs import EncodedJobs, not_encodable
from interfere.predict.feasibility import fits_by_peak_sum
from interfere.predict.intervals import MAX_NOVELTY
from interfere.predict.manifest import REMEDY, Manifest, read_manifest
from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.protocols import PairEncoder
from interfere.records import MODES, JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source

# Ordered pairs of a matrix up to which the champion answers: 4,096 rows of trees take about 0.15 s on one core.
MAX_CHAMPION_PAIRS = 4096
VICTIMS_PER_CALL = 64  # of matrix.onnx: bounds memory, and keeps a block in the CPU's cache
LOWER_LEVEL, UPPER_LEVEL = 0.05, 0.95
MIN_FIT_PROBABILITY = 0.5  # a matrix calls a pair infeasible below this probability


class OnnxPredictor:
    """Implements `interfere.protocols.Predictor` from a published model folder."""

    def __init__(self, folder: Path, encoder: PairEncoder) -> None:
        """Load the graphs and arrays of `folder`.

        Raises ModelError when a file is missing, truncated or edited, or the model was trained with another encoder.
        """
        self.manifest: Manifest = read_manifest(folder, encoder.fingerprint)
        self._encoder = encoder
        self._pair_graph = _load_graph(folder / "pair.onnx", encoder.fingerprint)
        self._matrix_graph = _load_graph(folder / "matrix.onnx", encoder.fingerprint)
        try:
            profiles = [
                JobProfile.from_dict(d) for d in json.loads((folder / "profiles.json").read_text(encoding="utf-8"))
            ]
        except (ValueError, TypeError, KeyError) as error:
            raise ModelError(f"profiles.json cannot be read ({error!r})", value=folder, remedy=REMEDY) from None
        combined = combine_profiles(profiles)
        self.profiles: dict[tuple[str, str], JobProfile] = {(p.workload, p.device_type): p for p in combined.jobs}
        self.profile_sources = tuple(profiles)  # what each source says, oldest first
        with np.load(folder / "arrays.npz") as arrays:
            self._partners = arrays["partners"]
            completion = read_completion(arrays)
            self._job_space = (
                JobSpace(**{f.name: arrays[f"space_{f.name}"] for f in fields(JobSpace)})
                if "space_points" in arrays
                else None
            )
        self._identity = {name: k + 1 for k, name in enumerate(self.manifest.workloads)}
        self.encoded_jobs = EncodedJobs(encoder, self._job_space, completion)

    @property
    def version(self) -> str:
        """Version of the published folder."""
        return self.manifest.version

    def knows(self, device_type: str, mode: str) -> str:
        """Empty when trained on this domain, else the reason and the remedy."""
        if any(d.device_type == device_type and d.mode == mode for d in self.manifest.domains):
            return ""
        seen = ", ".join(sorted({f"{d.device_type}/{d.mode}" for d in self.manifest.domains}))
        return (
            f"the model never saw {device_type}/{mode} (it knows {seen}): import or measure pairs there and retrain, "
            "or set allow_extrapolation"
        )

    def coordinates(self, jobs: Sequence[JobProfile], device_type: str, mode: str) -> NDArray[np.float64]:
        """float64[n, C]: jobs in the standardised space of the jobs of training; C is 0 for a model without one."""
        if self._job_space is None:
            return np.zeros((len(jobs), 0))
        rows, _ = self.encoded_jobs.encode(jobs, device_type, mode)
        return self._job_space.standardised(rows)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """The champion's answer for every pair of the batch.

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
        log_median = self._run_pair_graph(rows, identities, domain, i, j)
        novelty = pair_novelty(job_novelty[i], job_novelty[j])
        partners = np.minimum(self._partners[domain, identities[i]], self._partners[domain, identities[j]])
        shifts = self.manifest.intervals.quantiles(
            (LOWER_LEVEL, 0.5, UPPER_LEVEL), novelty=novelty, partners=partners, domain=domain
        )
        lower, median, upper = (np.exp(log_median + shift) for shift in shifts)
        answer = Prediction(
            median=median,
            lower=lower,
            upper=upper,
            feasibility=self._fit_probability(_memory_shares(batch.jobs, batch.device_memory_bytes), identities, i, j),
            source=(Source.MODEL,) * p,
            reason=("",) * p,
        )
        too_novel = novelty > MAX_NOVELTY
        if batch.allow_extrapolation or not too_novel.any():
            return answer
        return _abstain_from_novel_pairs(answer, batch, job_novelty, too_novel)

    def feasibility(self, batch: PairBatch) -> NDArray[np.float64]:
        """float64[p]: the feasibility of `predict_pairs`, without asking a graph."""
        shares, identities = _memory_shares(batch.jobs, batch.device_memory_bytes), self._identities(batch.jobs)
        return self._fit_probability(shares, identities, batch.victim, batch.neighbour)

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Both directions, float32[v, n] each; NaN where a pair is too novel and the batch allows no extrapolation.

        Raises UnfitError for an unknown domain unless the batch allows extrapolation.
        """
        device_type, mode = batch.device_type, batch.mode
        if not batch.allow_extrapolation and (unknown_domain := self.knows(device_type, mode)):
            raise UnfitError("no model for this domain", value=f"{device_type}/{mode}", remedy=unknown_domain)
        v, n = batch.shape
        if not v * n:
            return _empty_matrix(batch)
        jobs = (*batch.victims, *batch.neighbours)
        rows, job_novelty = self.encoded_jobs.encode(jobs, device_type, mode)
        identities = self._identities(jobs)
        domain = self._domain_index(device_type, mode)
        if 2 * v * n <= MAX_CHAMPION_PAIRS:
            i, j = np.repeat(np.arange(v), n), v + np.tile(np.arange(n), v)
            both_ways = np.concatenate([i, j]), np.concatenate([j, i])
            log_victim, log_neighbour = self._run_pair_graph(rows, identities, domain, *both_ways).reshape(2, v, n)
        else:
            log_victim, log_neighbour = self._run_matrix_graph(rows, identities, domain, v)
        novelty = pair_novelty(job_novelty[:v, None], job_novelty[None, v:])
        partners = self._partners[domain, identities]
        shift = self.manifest.intervals.quantile(
            quantile, novelty=novelty, partners=np.minimum(partners[:v, None], partners[None, v:]), domain=domain
        )
        if not batch.allow_extrapolation:
            shift = np.where(novelty > MAX_NOVELTY, np.nan, shift)
        shares = _memory_shares(jobs, batch.device_memory_bytes)
        i, j = np.arange(v)[:, None], np.arange(v, v + n)[None, :]
        fit_probability = self._fit_probability(shares, identities, i, j)
        return MatrixPrediction(
            victim_slowdown=np.exp(log_victim + shift).astype(np.float32),
            neighbour_slowdown=np.exp(log_neighbour + shift).astype(np.float32),
            feasible=(~(fit_probability < MIN_FIT_PROBABILITY)).astype(np.uint8),
            feasibility=fit_probability,
        )

    def check_encodable(self, profile: JobProfile) -> None:
        """Raise InvalidInputError for a profile that the model cannot be asked about."""
        row = self.encoded_jobs.rows([profile], profile.device_type, MODES[0])
        if np.isinf(row).any() or np.isinf(self._encoder.encode_pairs(row, row)).any():
            raise not_encodable(profile, "a number is too large")

    def _identities(self, jobs: Sequence[JobProfile]) -> NDArray[np.int64]:
        return np.array([self._identity.get(job.workload, 0) for job in jobs], dtype=np.int64)

    def _domain_index(self, device_type: str, mode: str) -> int:
        """Index of the domain in the manifest + 1; 0 when the model never saw it."""
        indices = (
            k + 1 for k, d in enumerate(self.manifest.domains) if d.device_type == device_type and d.mode == mode
        )
        return next(indices, 0)

    def _fit_probability(
        self, shares: NDArray[np.float64], identities: NDArray[np.int64], i: NDArray[np.int64], j: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Probability that jobs i and j fit in memory together, elementwise; NaN where a memory size is unknown."""
        share, model = shares[i] + shares[j], self.manifest.feasibility
        return fits_by_peak_sum(share) if model is None else model.probability(share, identities[i], identities[j])

    def _run_pair_graph(
        self,
        rows: NDArray[np.float32],
        identities: NDArray[np.int64],
        domain: int,
        i: NDArray[np.int64],
        j: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        feeds = {
            "pairs": self._encoder.encode_pairs(rows[i], rows[j]),
            "victim": identities[i],
            "neighbour": identities[j],
            "domain": np.full(len(i), domain, dtype=np.int64),
        }
        answer = self._pair_graph.run(["log_slowdown"], select_feeds(self._pair_graph, feeds))[0]
        return np.asarray(answer, dtype=np.float64).reshape(-1)

    def _run_matrix_graph(
        self, rows: NDArray[np.float32], identities: NDArray[np.int64], domain: int, v: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        log_victim = np.empty((v, len(rows) - v))
        log_neighbour = np.empty_like(log_victim)
        columns = {"neighbours": rows[v:], "neighbour_id": identities[v:], "domain": np.array([domain], dtype=np.int64)}
        for start in range(0, v, VICTIMS_PER_CALL):
            rows_of_call = slice(start, min(start + VICTIMS_PER_CALL, v))
            feeds = {"victims": rows[rows_of_call], "victim_id": identities[rows_of_call], **columns}
            log_victim[rows_of_call], log_neighbour[rows_of_call] = self._matrix_graph.run(
                ["log_victim", "log_neighbour"], select_feeds(self._matrix_graph, feeds)
            )
        return log_victim, log_neighbour


def load_model(folder: Path, encoder: PairEncoder) -> OnnxPredictor:
    """The predictor of a published folder. Raises ModelError when the folder must not be served."""
    return OnnxPredictor(folder, encoder)


def _memory_shares(jobs: Sequence[JobProfile], device_memory_bytes: float) -> NDArray[np.float64]:
    """float64[n]: each job's peak ÷ the device's memory; NaN where either is unknown."""
    return np.array([job.expected_peak_bytes for job in jobs], dtype=np.float64) / max(device_memory_bytes, 1.0)


def _empty_matrix(batch: MatrixBatch) -> MatrixPrediction:
    """The answer to a batch without victims or without neighbours."""
    slowdown = np.zeros(batch.shape, dtype=np.float32)
    return MatrixPrediction(
        victim_slowdown=slowdown,
        neighbour_slowdown=slowdown.copy(),
        feasible=np.zeros(batch.shape, dtype=np.uint8),
        feasibility=np.zeros(batch.shape),
    )


def _abstain_from_novel_pairs(
    answer: Prediction, batch: PairBatch, job_novelty: NDArray[np.float64], too_novel: NDArray[np.bool_]
) -> Prediction:
    """The answer without numbers where a pair is too novel."""

    def reason(k: int) -> str:
        jobs_of_pair = (int(batch.victim[k]), int(batch.neighbour[k]))
        job = max(jobs_of_pair, key=lambda job_index: float(job_novelty[job_index]))
        return (
            f"{batch.jobs[job].workload} is unlike every job the model learned from (novelty {job_novelty[job]:.2f}): "
            "measure this pair first, or set allow_extrapolation"
        )

    return Prediction(
        median=np.where(too_novel, np.nan, answer.median),
        lower=np.where(too_novel, np.nan, answer.lower),
        upper=np.where(too_novel, np.nan, answer.upper),
        feasibility=answer.feasibility,
        source=tuple(Source.ABSTAINED if is_novel else s for s, is_novel in zip(answer.source, too_novel, strict=True)),
        reason=tuple(reason(k) if is_novel else "" for k, is_novel in enumerate(too_novel.tolist())),
    )


def select_feeds(session: Any, feeds: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The feeds that the graph has inputs for: a graph that reads the domain from its features has no such input."""
    return {graph_input.name: feeds[graph_input.name] for graph_input in session.get_inputs()}


def _load_graph(path: Path, fingerprint: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own exception types are not public
        raise ModelError(
            f"ONNX Runtime cannot load the graph ({type(error).__name__})", value=path, remedy=REMEDY
        ) from None
    exported_under = session.get_modelmeta().custom_metadata_map.get("fingerprint")
    if exported_under != fingerprint:
        raise ModelError(
            "the graph was exported under another feature encoder",
            value=f"{path}: {exported_under}, this program encodes {fingerprint}",
            remedy="retrain with this version: interfere train",
        )
    return session
