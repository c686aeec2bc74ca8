"""The served model: two ONNX graphs behind the `Predictor` protocol.

`pair.onnx` is the champion and answers short lists; `matrix.onnx` factorises over jobs and fills large matrices.
Law: asking for one pair or for many gives the same number as long as the same graph answers.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError, UnfitError
from interfere.predict.feasibility import fits_by_sum
from interfere.predict.intervals import TOO_NOVEL
from interfere.predict.manifest import REMEDY, Manifest, read_manifest
from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.protocols import PairEncoder
from interfere.records import JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source

SHORT_LIST = 4096  # ordered pairs that the champion answers itself: 4,096 rows of trees take about 0.15 s on one core
BLOCK = 64  # victims per call of matrix.onnx: bounds memory, keeps a block inside the cache
CACHE = 20_000  # encoded jobs kept
LOW, HIGH = 0.05, 0.95
FITS = 0.5  # below this probability a matrix calls a pair infeasible


class OnnxPredictor:
    """Implements `interfere.protocols.Predictor` from a published folder."""

    def __init__(self, folder: Path, encoder: PairEncoder) -> None:
        """Raises ModelError for another fingerprint, a missing, truncated or edited file."""
        self.manifest: Manifest = read_manifest(folder, encoder.fingerprint)
        self._encoder = encoder
        self._pair = _session(folder / "pair.onnx", encoder.fingerprint)
        self._matrix = _session(folder / "matrix.onnx", encoder.fingerprint)
        try:
            listed = [
                JobProfile.from_dict(d) for d in json.loads((folder / "profiles.json").read_text(encoding="utf-8"))
            ]
        except (ValueError, TypeError, KeyError) as error:
            raise ModelError(f"profiles.json cannot be read ({error!r})", value=folder, remedy=REMEDY) from None
        self.profiles: dict[tuple[str, str], JobProfile] = {(p.workload, p.device_type): p for p in listed}
        with np.load(folder / "arrays.npz") as arrays:
            self._partners = arrays["partners"]
            self._space = (
                JobSpace(**{f.name: arrays[f"space_{f.name}"] for f in fields(JobSpace)})
                if "space_points" in arrays
                else None
            )
        self._identity = {name: k + 1 for k, name in enumerate(self.manifest.workloads)}
        # Keyed by object identity (hashing a profile walks its timeline); the job is held so that its id stays its own.
        self._cache: OrderedDict[tuple[int, str, str], tuple[JobProfile, NDArray[np.float32]]] = OrderedDict()
        self._cache_lock = threading.Lock()

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

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Champion's answer for every pair of the batch."""
        p = len(batch)
        unknown = "" if batch.allow_extrapolation else self.knows(batch.device_type, batch.mode)
        if unknown or p == 0:
            absent = np.full(p, np.nan)
            return Prediction(
                median=absent,
                lower=absent,
                upper=absent,
                feasibility=absent,
                source=(Source.ABSTAINED,) * p,
                reason=(unknown,) * p,
            )
        rows = self._encode(batch.jobs, batch.device_type, batch.mode)
        ids = self._ids(batch.jobs)
        domain = self._domain(batch.device_type, batch.mode)
        i, j = batch.victim, batch.neighbour
        log_median = self._run_pairs(rows, ids, domain, i, j)
        alone = self._novelty(rows)
        novelty = pair_novelty(alone[i], alone[j])
        partners = np.minimum(self._partners[domain, ids[i]], self._partners[domain, ids[j]])

        def at(level: float) -> NDArray[np.float64]:
            shift = self.manifest.intervals.quantile(level, novelty=novelty, partners=partners, domain=domain)
            return np.asarray(np.exp(log_median + shift))

        answer = Prediction(
            median=at(0.5),
            lower=at(LOW),
            upper=at(HIGH),
            feasibility=self._fits(_share(batch.jobs, batch.device_memory_bytes), ids, i, j),
            source=(Source.MODEL,) * p,
            reason=("",) * p,
        )
        strange = novelty > TOO_NOVEL
        return answer if batch.allow_extrapolation or not strange.any() else _abstain(answer, batch, alone, strange)

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Both directions, float32[v, n] each. Raises UnfitError on an unknown domain."""
        device_type, mode = batch.device_type, batch.mode
        if not batch.allow_extrapolation and (unknown := self.knows(device_type, mode)):
            raise UnfitError("no model for this domain", value=f"{device_type}/{mode}", remedy=unknown)
        v, n = batch.shape
        jobs = (*batch.victims, *batch.neighbours)
        rows, ids = self._encode(jobs, device_type, mode), self._ids(jobs)
        domain = self._domain(device_type, mode)
        if 2 * v * n <= SHORT_LIST:
            i, j = np.repeat(np.arange(v), n), v + np.tile(np.arange(n), v)
            both = self._run_pairs(rows, ids, domain, np.concatenate([i, j]), np.concatenate([j, i]))
            ahead, back = both[: v * n].reshape(v, n), both[v * n :].reshape(v, n)
        else:
            ahead, back = self._run_matrix(rows, ids, domain, v)
        alone = self._novelty(rows)
        novelty = pair_novelty(alone[:v, None], alone[None, v:])
        partners = self._partners[domain, ids]
        shift = self.manifest.intervals.quantile(
            quantile, novelty=novelty, partners=np.minimum(partners[:v, None], partners[None, v:]), domain=domain
        )
        if not batch.allow_extrapolation:
            shift = np.where(novelty > TOO_NOVEL, np.nan, shift)
        fits = self._fits(
            _share(jobs, batch.device_memory_bytes), ids, np.arange(v)[:, None], np.arange(v, v + n)[None, :]
        )
        return MatrixPrediction(
            victim_slowdown=np.exp(ahead + shift).astype(np.float32),
            neighbour_slowdown=np.exp(back + shift).astype(np.float32),
            feasible=(~(fits < FITS)).astype(np.uint8),
            feasibility=fits,
        )

    def _encode(self, jobs: Sequence[JobProfile], device_type: str, mode: str) -> NDArray[np.float32]:
        """float32[n, F], each distinct profile encoded once."""
        with self._cache_lock:
            distinct = {id(job): job for job in jobs}
            missing = [job for key, job in distinct.items() if (key, device_type, mode) not in self._cache]
            for job, row in zip(missing, self._encoder.encode_jobs(missing, device_type, mode), strict=True):
                self._cache[id(job), device_type, mode] = (job, row)
            rows = np.stack([self._cache[id(job), device_type, mode][1] for job in jobs])
            while len(self._cache) > CACHE:
                self._cache.popitem(last=False)
        return rows

    def _ids(self, jobs: Sequence[JobProfile]) -> NDArray[np.int64]:
        return np.array([self._identity.get(job.workload, 0) for job in jobs], dtype=np.int64)

    def _domain(self, device_type: str, mode: str) -> int:
        """Place of the domain in the manifest + 1; 0 when the model never saw it."""
        places = (k + 1 for k, d in enumerate(self.manifest.domains) if d.device_type == device_type and d.mode == mode)
        return next(places, 0)

    def _novelty(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of each job; 0 from a model that cannot tell."""
        return np.zeros(len(rows)) if self._space is None else self._space.novelty(rows)

    def _fits(
        self, share: NDArray[np.float64], ids: NDArray[np.int64], i: NDArray[np.int64], j: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Probability that jobs i and j fit together; NaN where memory is unknown."""
        together, model = share[i] + share[j], self.manifest.feasibility
        return fits_by_sum(together) if model is None else model.probability(together, ids[i], ids[j])

    def _run_pairs(
        self,
        rows: NDArray[np.float32],
        ids: NDArray[np.int64],
        domain: int,
        i: NDArray[np.int64],
        j: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        feeds = {
            "pairs": self._encoder.encode_pairs(rows[i], rows[j]),
            "victim": ids[i],
            "neighbour": ids[j],
            "domain": np.full(len(i), domain, dtype=np.int64),
        }
        answer = self._pair.run(["log_slowdown"], wanted_feeds(self._pair, feeds))[0]
        return np.asarray(answer, dtype=np.float64).reshape(-1)

    def _run_matrix(
        self, rows: NDArray[np.float32], ids: NDArray[np.int64], domain: int, v: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ahead = np.empty((v, len(rows) - v))
        back = np.empty_like(ahead)
        columns = {"neighbours": rows[v:], "neighbour_id": ids[v:], "domain": np.array([domain], dtype=np.int64)}
        for start in range(0, v, BLOCK):
            part = slice(start, min(start + BLOCK, v))
            feeds = wanted_feeds(self._matrix, {"victims": rows[part], "victim_id": ids[part], **columns})
            ahead[part], back[part] = self._matrix.run(["log_victim", "log_neighbour"], feeds)
        return ahead, back


def load_model(folder: Path, encoder: PairEncoder) -> OnnxPredictor:
    """The predictor of a published folder; raises ModelError when it must not be served."""
    return OnnxPredictor(folder, encoder)


def _share(jobs: Sequence[JobProfile], device_memory_bytes: float) -> NDArray[np.float64]:
    """Each job's peak ÷ the device's memory, float64[n]; NaN where one is unknown."""
    return np.array([job.expected_peak_bytes for job in jobs], dtype=np.float64) / device_memory_bytes


def _abstain(
    answer: Prediction, batch: PairBatch, alone: NDArray[np.float64], strange: NDArray[np.bool_]
) -> Prediction:
    """The answer without numbers where a pair is too novel."""

    def reason(k: int) -> str:
        both = (int(batch.victim[k]), int(batch.neighbour[k]))
        job = max(both, key=lambda one: float(alone[one]))
        return (
            f"{batch.jobs[job].workload} is unlike every job the model learned from (novelty {alone[job]:.2f}): "
            "measure this pair first, or set allow_extrapolation"
        )

    return Prediction(
        median=np.where(strange, np.nan, answer.median),
        lower=np.where(strange, np.nan, answer.lower),
        upper=np.where(strange, np.nan, answer.upper),
        feasibility=answer.feasibility,
        source=tuple(Source.ABSTAINED if away else s for s, away in zip(answer.source, strange, strict=True)),
        reason=tuple(reason(k) if away else "" for k, away in enumerate(strange.tolist())),
    )


def wanted_feeds(session: Any, feeds: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Those that the graph asks for: a graph that reads the domain from its features has no input of that name."""
    return {one.name: feeds[one.name] for one in session.get_inputs()}


def _session(path: Path, fingerprint: str) -> Any:
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
    found = session.get_modelmeta().custom_metadata_map.get("fingerprint")
    if found != fingerprint:
        raise ModelError(
            "the graph was exported under another feature encoder",
            value=f"{path}: {found}, this program encodes {fingerprint}",
            remedy="retrain with this version: interfere train",
        )
    return session
