"""The golden requests of a published model: what is asked, and what the fitted model answers.

The answers come from the fitted model in memory, its intervals, completion and group compositions, as a server is to
give them: neither the exported graphs nor the written arrays are read, and no measured pair is answered by its
measurement. Asked are, in each domain: one pair, a list with every known job and jobs unknown to training, matrices of
known and unknown jobs, groups, and pairs on a sharing mode that training never saw.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.acceptance.goldens import (
    DEVICE_MEMORY_BYTES,
    SLOWDOWNS,
    Answer,
    Golden,
    GoldenRequest,
    RequestKind,
    SlowdownRange,
    group_prediction,
    numbers_of,
)
from interfere.predict.completion import FactCompletion
from interfere.predict.feasibility import Feasibility, fits_by_peak_sum
from interfere.predict.groups import DEFAULT_COMPOSITION, GroupComposition
from interfere.predict.intervals import Intervals, PairIntervals, log_residuals
from interfere.predict.manifest import MatrixLimit
from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.predict.onnx import LEVELS
from interfere.protocols import PairEncoder
from interfere.records import JobProfile, Prediction, Source
from interfere.sharing_modes import SharingMode
from interfere.training.dataset import Dataset, pair_rows
from interfere.training.evaluation.interval_calibration import partner_counts
from interfere.training.models.completed import exported_form
from interfere.training.models.protocols import FittedModel

MAX_LIST, MAX_MATRIX = 256, 16  # jobs: with more a folder would grow, and a server's start take longer
RANGE_FACTOR = 10.0  # of the measured slowdowns: a fitted model answers for other pairs and jobs, not other orders

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def stated_range(dataset: Dataset) -> SlowdownRange:
    """Return the range in which golden medians must lie: that of the measured slowdowns, widened."""
    measured = np.exp(dataset.log_slowdown)
    return SlowdownRange(least=float(measured.min()) / RANGE_FACTOR, most=float(measured.max()) * RANGE_FACTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedParts:
    """A fitted model with everything that is fitted beside it, in memory."""

    model: FittedModel
    dataset: Dataset
    encoder: PairEncoder
    completion: FactCompletion
    intervals: Intervals
    pair_intervals: PairIntervals | None
    feasibility: Feasibility | None
    compositions: Mapping[tuple[str, SharingMode], GroupComposition]
    profiles: Mapping[tuple[str, str], JobProfile]  # by workload and device type
    matrix_limit: MatrixLimit | None

    def goldens(self) -> tuple[Golden, ...]:
        """Return the golden requests of all domains with the answers of the fitted model."""
        return tuple(Golden(request=request, expected=self.answer(request)) for request in self._requests())

    def answer(self, request: GoldenRequest) -> Answer:
        """Return the fitted model's answer to a request, float64[...] by the name of each number, flat."""
        jobs = request.profiles(self.profiles)
        victims, neighbours = np.array(request.victims), np.array(request.neighbours)
        if request.kind is RequestKind.MATRIX:
            i, j = np.repeat(victims, len(neighbours)), np.tile(neighbours, len(victims))
            (of_victim,), (of_neighbour,) = (
                self._quantiles(request, jobs, *pair, levels=(request.quantile,))[0] for pair in ((i, j), (j, i))
            )
            return dict(zip(SLOWDOWNS[3:], (np.exp(of_victim), np.exp(of_neighbour)), strict=True))
        if request.kind is RequestKind.GROUP:
            victims = np.full(len(neighbours), request.victims[0])
        (lower, median, upper), abstains = self._quantiles(request, jobs, victims, neighbours, levels=LEVELS)
        pairs = Prediction(
            median=np.exp(median),
            lower=np.exp(lower),
            upper=np.exp(upper),
            feasibility=self._fit_probability(jobs, victims, neighbours),
            source=(Source.MODEL,) * len(victims),
            reason=("",) * len(victims),
        )
        if request.kind is RequestKind.GROUP:
            composition = self.compositions.get((request.device_type, request.mode), DEFAULT_COMPOSITION)
            return numbers_of(group_prediction(request, jobs, pairs, composition))
        return {**numbers_of(pairs), "abstains": abstains.astype(np.float64)}

    def _quantiles(
        self,
        request: GoldenRequest,
        jobs: Sequence[JobProfile],
        victims: Ints,
        neighbours: Ints,
        *,
        levels: tuple[float, ...],
    ) -> tuple[tuple[Floats, ...], NDArray[np.bool_]]:
        """Return the log slowdowns of pairs at each level, and whether the model abstains from each pair."""
        # 1. The fitted model's median, from the facts as it reads them.
        encoded = self.encoder.encode_jobs(jobs, request.device_type, request.mode)
        rows, variance = self.completion.complete(encoded)
        identities, domain = self._identities(jobs), self._domain(request)
        model, _ = exported_form(self.model, self.dataset)
        log_median = model.predict(pair_rows(self.encoder, rows, identities, victims, neighbours, domain))
        # 2. The residuals of its evidence and novelty, or those of the pair itself.
        space: JobSpace | None = getattr(self.model, "space", None)
        novelty_of_job = np.zeros(len(jobs)) if space is None else space.novelty(rows, variance)
        novelty = pair_novelty(novelty_of_job[victims], novelty_of_job[neighbours])
        partners = partner_counts(self.dataset)[domain, identities]
        shifts = log_residuals(
            self.intervals.grids_at(levels),
            novelty=novelty,
            partners=np.minimum(partners[victims], partners[neighbours]),
            domain=domain,
        )
        own = np.zeros(len(victims), dtype=bool)
        if self.pair_intervals is not None:
            of_pairs = self.pair_intervals.quantiles(levels, domain, identities[victims], identities[neighbours])
            own = np.isfinite(of_pairs[0])
            shifts = np.where(own, of_pairs, shifts)
        # 3. It abstains from what is too novel, and from every pair of an unknown domain.
        abstains = (self.intervals.abstains(novelty, log_median) & ~own) | (domain == 0)
        return tuple(log_median + shift for shift in shifts), abstains

    def _fit_probability(self, jobs: Sequence[JobProfile], victims: Ints, neighbours: Ints) -> Floats:
        shares = np.array([job.expected_peak_bytes for job in jobs]) / DEVICE_MEMORY_BYTES
        share, identities = shares[victims] + shares[neighbours], self._identities(jobs)
        if self.feasibility is None:
            return fits_by_peak_sum(share)
        return self.feasibility.probability(share, identities[victims], identities[neighbours])

    def _identities(self, jobs: Sequence[JobProfile]) -> Ints:
        places = {name: k + 1 for k, name in enumerate(self.dataset.workloads)}
        return np.array([places.get(job.workload, 0) for job in jobs], dtype=np.int64)

    def _domain(self, request: GoldenRequest) -> int:
        domains = [(domain.device_type, domain.mode) for domain in self.dataset.domains]
        place = (request.device_type, request.mode)
        return domains.index(place) + 1 if place in domains else 0

    def _requests(self) -> Iterator[GoldenRequest]:
        for d, domain in enumerate(self.dataset.domains):
            known = [name for name in self.dataset.workloads if (name, domain.device_type) in self.profiles]
            if known:
                measured = self._measured_pairs(d)
                yield from self._requests_of_domain(domain.device_type, domain.mode, known, measured)

    def _measured_pairs(self, domain: int) -> set[tuple[str, str]]:
        rows = self.dataset.rows.take(self.dataset.domain == domain)
        names = ("", *self.dataset.workloads)
        return {(names[i], names[j]) for i, j in zip(rows.victim.tolist(), rows.neighbour.tolist(), strict=True)}

    def _requests_of_domain(
        self, device_type: str, mode: SharingMode, known: Sequence[str], measured: set[tuple[str, str]]
    ) -> Iterator[GoldenRequest]:
        """Yield the requests of one domain; `known` are the workloads that have a profile there."""
        place: dict[str, Any] = {"device_type": device_type, "mode": mode}
        strangers = unknown_jobs(self.profiles[known[0], device_type])
        listed = _spread(known, MAX_LIST)
        n, beside = len(listed), [_neighbour_of(k, listed, measured) for k in range(len(listed))]
        # 1. One pair, and a list: every known job, and unknown jobs on either side.
        yield GoldenRequest(
            name="one pair", kind=RequestKind.PAIRS, jobs=(listed[0], listed[beside[0]]), victims=(0,), neighbours=(1,),
            **place,
        )  # fmt: skip
        pairs = [*enumerate(beside), (n, 0), (0, n), (n, n + 1), (n + 1, n), (n + 1, n - 1), (n - 1, n + 1)]
        victims, neighbours = (tuple(side) for side in zip(*pairs, strict=True))
        listed_jobs: tuple[str | JobProfile, ...] = (*listed, *strangers)
        of_list: dict[str, Any] = {"kind": RequestKind.PAIRS, "jobs": listed_jobs} | {
            "victims": victims, "neighbours": neighbours
        }  # fmt: skip
        yield GoldenRequest(name="list", **of_list, **place)
        # 2. Matrices: fewer victims than neighbours, so that a transposed one cannot pass.
        limit = math.inf if self.matrix_limit is None else math.isqrt(self.matrix_limit.pairs // 2)
        jobs: tuple[str | JobProfile, ...] = (*_spread(known, int(min(MAX_MATRIX, limit)) - len(strangers)), *strangers)
        every = tuple(range(len(jobs)))
        for name, quantile, rows in (("matrix", 0.5, every[1:]), ("matrix of upper ends", 0.95, every[-3:])):
            yield GoldenRequest(
                name=name, kind=RequestKind.MATRIX, jobs=jobs, victims=rows, neighbours=every, quantile=quantile,
                **place,
            )  # fmt: skip
        # 3. Groups of three and four.
        for size in (3, 4):
            members = tuple(every[-1 - k % len(every)] for k in range(size))
            yield GoldenRequest(
                name=f"group of {size}", kind=RequestKind.GROUP, jobs=jobs, victims=members[-1:],
                neighbours=members[:-1], **place,
            )  # fmt: skip
        # 4. A sharing mode that training never saw.
        seen = {domain.mode for domain in self.dataset.domains if domain.device_type == device_type}
        unseen = next((other for other in SharingMode if other not in seen), None)
        if unseen is not None:
            yield GoldenRequest(name="unseen mode", **of_list, device_type=device_type, mode=unseen)


def unknown_jobs(profile: JobProfile) -> tuple[JobProfile, JobProfile]:
    """Return two jobs that no training saw: one with another step time, one of which hardly a fact is known."""
    slower = replace(profile, workload="golden-slower-job", step_time_s=profile.step_time_s * 1.5, kernels=())
    bare = JobProfile(
        workload="golden-bare-job",
        device_type=profile.device_type,
        source=profile.source,
        step_time_s=profile.step_time_s / 2.0,
        memory_peak_bytes=2.0**30,
    )
    return slower, bare


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Return at most `count` names, evenly spread."""
    chosen = np.unique(np.linspace(0, len(names) - 1, max(min(count, len(names)), 1)).round().astype(int))
    return [names[k] for k in chosen.tolist()]


def _neighbour_of(k: int, names: Sequence[str], measured: set[tuple[str, str]]) -> int:
    """Return the index of a job whose pair with victim `k` was not measured; the next one where all were."""
    n = len(names)
    others = [(k + step) % n for step in range(1, n)]
    return next((j for j in others if (names[k], names[j]) not in measured), others[0] if others else k)
