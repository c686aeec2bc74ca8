"""New jobs streamed against models that never saw them: the error of their speed after k observed pairs.

Every job of every `job` fold, on every device type, draws its partners in a random order: the first 8 are observed one
by one, both directions, the rest are asked after 0, 1, 2, 4, 8 of them. The model and the prior never saw the job.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from interfere.predict.acceptance.score import speed
from interfere.predict.online.prior import ResidualPrior
from interfere.predict.residual import OnlineModel
from interfere.records import PairBatch, Prediction, Progress
from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import Evaluation, cross_fold_interval
from interfere.training.publishing.residual_prior import OutOfFoldErrors, fit_residual_prior, out_of_fold_errors
from tests.tables import TablePredictor, profile

STEPS = (0, 1, 2, 4, 8)
LAST = STEPS[-1]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One new job on one device type. Log slowdowns by (victim, neighbour)."""

    fold: int
    job: str
    measured: dict[Pair, float]
    predicted: dict[Pair, float]
    low: dict[Pair, float]  # ends of the 90 % intervals of the predictions
    high: dict[Pair, float]
    partners: tuple[str, ...]  # in the order in which they are observed


@dataclass(slots=True)
class Curve:
    """Sums of |error of speed| by step: own speed, and that of its neighbours."""

    own: dict[int, list[float]]
    neighbours: dict[int, list[tuple[float, int]]]

    def own_mae(self, k: int) -> float:
        return float(np.mean(self.own[k]))

    def neighbour_mae(self, k: int) -> float:
        total = np.array(self.neighbours[k])
        return float(total[:, 0].sum() / total[:, 1].sum())

    def neighbour_se(self, k: int, seeds: int) -> float:
        """Standard error over jobs; orders of one job are no new jobs."""
        means = np.array([total / count for total, count in self.neighbours[k]])
        return float(means.std(ddof=1) / np.sqrt(len(means) / seeds))


class Corrector:
    """Something that learns from pairs: `observe` both directions of one, `correct` log predictions."""

    def observe(self, pair: Pair, measured: float) -> None:
        raise NotImplementedError

    def correct(self, pair: Pair) -> float:
        raise NotImplementedError


class _StreamPredictor(TablePredictor):
    """A table of predictions with their intervals."""

    def __init__(self, table: dict[Pair, float], stream: Stream, device_type: str) -> None:
        super().__init__(table, devices=(device_type,))
        self._stream = stream

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        names = [job.workload for job in batch.jobs]
        pairs = [(names[i], names[j]) for i, j in zip(batch.victim, batch.neighbour, strict=True)]
        return replace(
            super().predict_pairs(batch),
            lower=np.exp([self._stream.low[pair] for pair in pairs]),
            upper=np.exp([self._stream.high[pair] for pair in pairs]),
        )


class Residual(Corrector):
    """`OnlineModel` around a table of predictions of models that never saw the job."""

    def __init__(
        self,
        stream: Stream,
        prior: ResidualPrior | None,
        domain: tuple[str, str],
        families: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        device, self._mode = domain
        table = {pair: float(np.exp(value)) for pair, value in stream.predicted.items()}
        self.model = OnlineModel(_StreamPredictor(table, stream, device), prior)
        names = sorted({name for pair in table for name in pair})
        self._profiles = {
            name: replace(profile(name, device_type=device), family=families.get(name, "")) for name in names
        }
        self._job, self._device, self._count = stream.job, device, 0

    def observe(self, pair: Pair, measured: float) -> None:
        self._count += 1
        window = Progress(
            observation_id=str(self._count),
            job_id="j",
            workload=pair[0],
            company=(pair[1],),
            mode=self._mode,
            device_type=self._device,
            start_s=0.0,
            end_s=1.0,
            slowdown=float(np.exp(measured)),
        )
        self.model.observe(window, lambda name, _: self._profiles[name])

    def answer(self, pair: Pair) -> Prediction:
        one = np.zeros(1, dtype=np.int64)
        jobs = (self._profiles[pair[0]], self._profiles[pair[1]])
        return self.model.predict_pairs(
            PairBatch(jobs=jobs, victim=one, neighbour=one + 1, device_type=self._device, mode=self._mode)
        )

    def chosen_probes(self, partners: Sequence[str], count: int) -> list[str]:
        """The partners that the model asks for first."""
        profiles = [self._profiles[name] for name in partners]
        choice = self.model.choose_probes(self._profiles[self._job], profiles, self._device, self._mode, count)
        return [partners[probe.candidate] for probe in choice.probes]

    def correct(self, pair: Pair) -> float:
        return float(np.log(self.answer(pair).median[0]))


class Simple(Corrector):
    """Baselines: no update, remembered pairs, a moving average or the plain mean of each job's errors."""

    def __init__(self, stream: Stream, kind: str) -> None:
        self._predicted, self._kind = stream.predicted, kind
        self._own: dict[tuple[str, int], list[float]] = {}
        self._pairs: dict[Pair, float] = {}

    def observe(self, pair: Pair, measured: float) -> None:
        error = measured - self._predicted[pair]
        self._pairs[pair] = error
        for role, name in enumerate(pair):
            self._own.setdefault((name, role), []).append(error)

    def correct(self, pair: Pair) -> float:
        base = self._predicted[pair]
        if self._kind == "no update":
            return base
        if self._kind == "pair memory":
            return base + self._pairs.get(pair, 0.0)
        return base + sum(self._level(self._own.get((name, role), [])) / 2 for role, name in enumerate(pair))

    def _level(self, errors: Sequence[float]) -> float:
        if self._kind == "unshrunk mean":
            return float(np.mean(errors)) * 2 if errors else 0.0
        level = 0.0
        for error in errors:
            level += 0.3 * (error - level)
        return level * 2


SIMPLE = ("no update", "pair memory", "EMA", "unshrunk mean")


def streams(dataset: Dataset, evaluation: Evaluation, *, orders: int) -> Iterator[tuple[Stream, int]]:
    """(stream, domain) of all new jobs that have more than `LAST` partners, in `orders` random orders."""
    errors = out_of_fold_errors(dataset, evaluation)
    names = dataset.workloads
    low, high = cross_fold_interval(
        dataset,
        evaluation.index,
        evaluation.predicted_log,
        evaluation.fold,
        novelty=evaluation.novelty,
        partners=evaluation.partners,
    )
    measured = errors.log_predicted + errors.error
    for fold in np.unique(evaluation.fold).tolist():
        here = evaluation.fold == fold
        unseen = np.unique(
            np.concatenate([errors.victim[here & errors.new_victim], errors.neighbour[here & errors.new_neighbour]])
        )
        for domain in np.unique(errors.domain[here]).tolist():
            for job in unseen.tolist():
                rows = np.flatnonzero(
                    here & (errors.domain == domain) & ((errors.victim == job) ^ (errors.neighbour == job))
                )
                pairs = [(names[errors.victim[k] - 1], names[errors.neighbour[k] - 1]) for k in rows]
                partners = sorted({name for pair in pairs for name in pair} - {names[job - 1]})
                if len(partners) <= LAST + 1:
                    continue
                made = Stream(
                    fold=fold,
                    job=names[job - 1],
                    partners=(),
                    measured=dict(zip(pairs, measured[rows].tolist(), strict=True)),
                    predicted=dict(zip(pairs, errors.log_predicted[rows].tolist(), strict=True)),
                    low=dict(zip(pairs, low[rows].tolist(), strict=True)),
                    high=dict(zip(pairs, high[rows].tolist(), strict=True)),
                )
                for order in range(orders):
                    rng = np.random.default_rng([order, job, domain])
                    yield replace(made, partners=tuple(rng.permutation(partners).tolist())), domain


def priors(dataset: Dataset, unseen: Evaluation, seen: Evaluation) -> dict[int, ResidualPrior]:
    """By fold: fitted without any row of the fold's new jobs."""
    errors, known = out_of_fold_errors(dataset, unseen), out_of_fold_errors(dataset, seen)
    found = {}
    for fold, part in enumerate(unseen.parts):
        new = np.setdiff1d(
            np.unique(np.concatenate([dataset.rows.victim, dataset.rows.neighbour])),
            np.concatenate([dataset.rows.victim[part.train], dataset.rows.neighbour[part.train]]),
        )
        found[fold] = fit_residual_prior(dataset.take(part.train), without_jobs(errors, new), without_jobs(known, new))
    return found


def without_jobs(errors: OutOfFoldErrors, jobs: np.ndarray) -> OutOfFoldErrors:
    return errors.take(~(np.isin(errors.victim, jobs) | np.isin(errors.neighbour, jobs)))


def curve(all_streams: Sequence[tuple[Stream, int]], make: Callable[[Stream, int], Corrector]) -> Curve:
    """Errors of one corrector per stream, on the partners that it never observes."""
    found = Curve(own={k: [] for k in STEPS}, neighbours={k: [] for k in STEPS})
    for stream, domain in all_streams:
        corrector = make(stream, domain)
        for k in range(LAST + 1):
            if k in STEPS:
                for partner in stream.partners[LAST:]:
                    if (pair := (stream.job, partner)) in stream.measured:
                        found.own[k].append(_off(stream, corrector, pair))
                beside = [
                    _off(stream, corrector, (partner, stream.job))
                    for partner in stream.partners[LAST:]
                    if (partner, stream.job) in stream.measured
                ]
                if beside:
                    found.neighbours[k].append((sum(beside), len(beside)))
            if k < LAST:
                for pair in ((stream.job, stream.partners[k]), (stream.partners[k], stream.job)):
                    if pair in stream.measured:
                        corrector.observe(pair, stream.measured[pair])
    return found


def neighbour_bound(all_streams: Sequence[tuple[Stream, int]]) -> float:
    """MAE of neighbours' speed where a constant and a slope of each new job are fitted to the very pairs asked."""
    errors: list[float] = []
    for stream, _ in all_streams:
        pairs = [(p, stream.job) for p in stream.partners[LAST:] if (p, stream.job) in stream.measured]
        measured, predicted = (np.array([table[p] for p in pairs]) for table in (stream.measured, stream.predicted))
        if pairs:
            design = np.column_stack([np.ones(len(pairs)), predicted])
            fitted = predicted + design @ np.linalg.lstsq(design, measured - predicted, rcond=None)[0]
            errors += np.abs(speed(measured) - speed(fitted)).tolist()
    return float(np.mean(errors))


WINDOW_STEPS = (0, 1, 4, 16, 64)
WINDOW_NOISE = 0.02  # of log slowdown, beside the table's own


def coverage(
    all_streams: Sequence[tuple[Stream, int]], make: Callable[[Stream, int], Residual]
) -> dict[tuple[str, int], float]:
    """Coverage of the 90 % intervals after k windows of the new job in each role, by (whose slowdown, k).

    The windows are of random pairs with one half of its partners, "own" and "others" of pairs with the other half.
    """
    inside: dict[tuple[str, int], list[bool]] = {(side, k): [] for side in ("own", "others") for k in WINDOW_STEPS}
    for number, (stream, domain) in enumerate(all_streams):
        rng, corrector = np.random.default_rng(number), make(stream, domain)
        half = len(stream.partners) // 2
        for k in range(WINDOW_STEPS[-1] + 1):
            if k in WINDOW_STEPS:
                for partner in stream.partners[half:]:
                    for side, pair in (("own", (stream.job, partner)), ("others", (partner, stream.job))):
                        if pair in stream.measured:
                            answer, truth = corrector.answer(pair), float(np.exp(stream.measured[pair]))
                            inside[side, k].append(bool(answer.lower[0] <= truth <= answer.upper[0]))
            partner = stream.partners[int(rng.integers(half))]
            for pair in ((stream.job, partner), (partner, stream.job)):
                if pair in stream.measured:
                    corrector.observe(pair, stream.measured[pair] + WINDOW_NOISE * float(rng.normal()))
    return {key: float(np.mean(found)) for key, found in inside.items()}


def _off(stream: Stream, corrector: Corrector, pair: Pair) -> float:
    return float(abs(speed(np.array(stream.measured[pair])) - speed(np.array(corrector.correct(pair)))))
