"""Tries a new model: on known jobs, then beside the served model on calls and on what is observed after the change.

Both models answer the pairs of the newest calls, beside the calls that are under way; no call waits. The new model must
not stay where an answer is unusable, where it is newly silent about more pairs than a model promises, or where both
disagree about more. Both cards state which share of slowdowns their 90 % intervals held: where two intervals have no
common slowdown, at least one of the two models is wrong. Both models are also scored on the slowdowns that are observed
after the change; where the error of the new model is clearly larger, it must not stay either.

Law: both models answer with what they had learned at the change of models, so that a trial that goes on after a restart
comes to the same verdict.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, permutations

import numpy as np

from interfere.errors import InterfereError, ModelError
from interfere.policy.context import assumed_mode
from interfere.predict.acceptance.score import Case, WindowScore, score
from interfere.predict.intervals import ABSTAINED
from interfere.predict.manifest import Manifest
from interfere.protocols import Predictor
from interfere.records import JobProfile, MatrixBatch, PairBatch, PairQuery, Snapshot
from interfere.records.observations import LogEntry, Progress
from interfere.serving.models.archive import StartedTrial
from interfere.serving.state import ServedModel, ServedState
from interfere.sharing_modes import SharingMode
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto

MIN_SHADOW_PAIRS = 20  # with fewer, shares say nothing: only unusable answers refuse a model
UNSTATED_COVERAGE = 0.9  # of a model whose card states none: what every interval is made for
SIGMAS = 3.0  # by which a share or a difference has to exceed its limit: what is asked is a sample

TRIAL_ENTRIES = 1_000  # newest of the log that a trial looks through for the observations that it counts
MIN_OBSERVED, MAX_OBSERVED = 20, 200  # observations after which a trial first decides, and ends
ERROR_JUMP = 0.02  # of speed: about the difference between two measurements of one pair (.012 and .017)


MAX_PROBES = 12  # jobs of a domain: 132 pairs take milliseconds
# Slowdowns beyond these say that a graph is broken, not that jobs interfere: measurements lie in [0.2, 100].
LEAST, MOST = 0.01, 1e4


def probe(model: ServedModel, registered: Iterable[JobProfile]) -> None:
    """Predict pairs and matrices in every domain of the model; this warms the model up too.

    Raises ModelError where a prediction is not finite, absurd, or outside its interval.
    """
    profiles = [*model.shipped.values(), *registered]
    for domain in model.manifest.domains:
        jobs = tuple(islice((job for job in profiles if job.device_type == domain.device_type), MAX_PROBES))
        if jobs:
            try:
                _probe_domain(model, jobs, domain.device_type, domain.mode)
            except InterfereError:
                raise
            except Exception as error:  # whatever a broken graph makes ONNX Runtime or numpy raise
                raise _senseless(f"{domain.device_type}/{domain.mode}: {error!r}"[:300]) from None


def _probe_domain(model: ServedModel, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> None:
    n = len(jobs)
    victim, neighbour = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    pairs = model.predictor.predict_pairs(
        PairBatch(
            jobs=tuple(jobs),
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            allow_extrapolation=True,
        )
    )
    matrix = model.predictor.predict_matrix(
        MatrixBatch(
            victims=tuple(jobs), neighbours=tuple(jobs), device_type=device_type, mode=mode, allow_extrapolation=True
        )
    )
    ordered = (pairs.lower <= pairs.median * (1 + 1e-9)) & (pairs.median <= pairs.upper * (1 + 1e-9))
    sensible = (pairs.median > LEAST) & (pairs.median < MOST) & ordered
    if not sensible.all():
        k = int(np.flatnonzero(~sensible)[0])
        names = f"{jobs[victim[k]].workload} beside {jobs[neighbour[k]].workload}"
        interval = f"{pairs.median[k]:.3g} in [{pairs.lower[k]:.3g}, {pairs.upper[k]:.3g}]"
        raise _senseless(f"{names} on {device_type}/{mode}: {interval}")
    for slowdown in (matrix.victim_slowdown, matrix.neighbour_slowdown):
        if not ((slowdown > LEAST) & (slowdown < MOST)).all():
            raise _senseless(f"a matrix on {device_type}/{mode}")


def _senseless(value: str) -> ModelError:
    return ModelError(
        "the model gives no sensible answer about known jobs", value=value, remedy="look at its card; train again"
    )


# --- the newest calls, which a new model answers beside the served one ------------------------------------------------

CALLS, DECISIONS = 100, 20  # the newest, that a new model answers again
MAX_SHADOW_PAIRS = 4_000  # of one comparison: tens of milliseconds; half of them of decisions
MAX_PAIRS_A_CALL = 200
MAX_SNAPSHOT = 2_000  # jobs and devices of a decision that is kept: about 100 KB


class RecentCalls:
    """The newest queries for pairs and decisions. Thread-safe: a call appends, a change of models reads a copy."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._queries: deque[tuple[int, PairQuery]] = deque(maxlen=CALLS)
        self._decisions: deque[tuple[int, pb.MatchRequest]] = deque(maxlen=DECISIONS)

    def remember(self, query: PairQuery) -> None:
        """Keep a query that was answered, unless it is large."""
        if len(query.jobs) <= MAX_PAIRS_A_CALL and len(query.pairs) <= MAX_PAIRS_A_CALL:
            self._queries.append((next(self._numbers), query))

    def remember_decision(self, request: pb.MatchRequest) -> None:
        """Keep a snapshot that was decided, unless it is large."""
        if len(request.pending) + len(request.devices) <= MAX_SNAPSHOT:
            self._decisions.append((next(self._numbers), request))

    def asked(self, state: ServedState, *, after: int = 0) -> tuple[list[Case], int]:
        """Return the pairs of the newest calls whose jobs have profiles, the newest calls first, bounded; and the
        number of the newest call. `after`: the number of the last call that is left out."""
        queries, decisions = self._queries.copy(), self._decisions.copy()
        newest = max((number for number, _ in (*queries, *decisions)), default=after)
        asked = (_pairs_of_query(query, state) for number, query in reversed(queries) if number > after)
        decided = (_pairs_of_decision(request, state) for number, request in reversed(decisions) if number > after)
        halves = (list(islice(chain.from_iterable(calls), MAX_SHADOW_PAIRS // 2)) for calls in (decided, asked))
        return list(chain.from_iterable(halves)), newest


def _pairs_of_query(query: PairQuery, state: ServedState) -> Iterator[Case]:
    device_types = {domain.device_type for domain in state.model.manifest.domains}
    device_type = query.device_type or (next(iter(device_types)) if len(device_types) == 1 else "")
    n = len(query.jobs)
    entries: Iterable[tuple[int, ...]] = query.pairs or ((i, j) for i in range(n) for j in range(n) if i != j)
    ordered = [(entry[0], other) for entry in entries for other in entry[1:]][:MAX_PAIRS_A_CALL]
    profiles = {
        k: state.profile_of_ref(query.jobs[k], device_type, extrapolate=query.allow_extrapolation)[0]
        for k in {k for pair in ordered for k in pair}
    }
    for i, j in ordered:
        victim, neighbour = profiles[i], profiles[j]
        if victim is not None and neighbour is not None:
            yield Case(victim=victim, neighbours=(neighbour,), device_type=device_type, mode=query.mode)


def _pairs_of_decision(request: pb.MatchRequest, state: ServedState) -> Iterator[Case]:
    """Yield the pairs of the jobs of a snapshot on each of its device types and modes, a bounded number of each."""
    snapshot = from_proto(Snapshot, request)
    jobs = [*snapshot.pending, *(job for device in snapshot.devices for job in device.residents)]
    for device_type, mode in dict.fromkeys((device.type, device.mode) for device in snapshot.devices):
        profiles = {id(found): found for job in jobs if (found := state.profile_of_job(job, device_type)) is not None}
        for victim, neighbour in islice(permutations(profiles.values(), 2), MAX_PAIRS_A_CALL):
            yield Case(
                victim=victim,
                neighbours=(neighbour,),
                device_type=device_type,
                mode=mode or assumed_mode(device_type, state.predictor),
            )


# --- trials -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The shares of pairs for which a new model may differ from the served one, by what both cards state."""

    silent: float  # newly silent
    disagreeing: float  # no slowdown lies in both intervals

    @classmethod
    def of(cls, present: Manifest, new: Manifest) -> "Promises":
        """Return what the cards of the served model and of a new one promise together."""
        return cls(silent=ABSTAINED, disagreeing=min(1.0, 2.0 - least_coverage(present) - least_coverage(new)))


def least_coverage(manifest: Manifest) -> float:
    """Return the coverage of the 90 % intervals of a model on the split where it is lowest, as its card states it."""
    scores = (of_models.get(manifest.model, {}) for of_models in manifest.scores.values())
    stated = [each["coverage"] for each in scores if isinstance(each.get("coverage"), float)]
    return min(stated, default=UNSTATED_COVERAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How a new model answered pairs of calls beside the served one, in numbers of pairs."""

    pairs: int = 0
    silent: int = 0
    disagreeing: int = 0

    def __add__(self, other: "Comparison") -> "Comparison":
        return Comparison(
            pairs=self.pairs + other.pairs,
            silent=self.silent + other.silent,
            disagreeing=self.disagreeing + other.disagreeing,
        )

    def text(self) -> str:
        """Return the comparison in words."""
        if not self.pairs:
            return "no recent calls to compare it on"
        silent, disagreeing = self.silent / self.pairs, self.disagreeing / self.pairs
        return f"{self.pairs} recent pairs: {silent:.1%} newly silent, {disagreeing:.1%} disagree"

    def broken_promise(self, promises: Promises) -> str:
        """Return in words why the new model must not be served; "" where it keeps what was promised."""
        if self.pairs < MIN_SHADOW_PAIRS:
            return ""
        for count, promised in ((self.silent, promises.silent), (self.disagreeing, promises.disagreeing)):
            deviation = math.sqrt(promised * (1.0 - promised) / self.pairs)
            if count / self.pairs > promised + SIGMAS * deviation:
                return f"{self.text()}; at most {promised:.0%} are promised"
        return ""


def compare(present: Predictor, new: Predictor, asked: Sequence[Case]) -> Comparison:
    """Return how a new model answers pairs beside the present one. Raises ModelError for an answer that is no use."""
    if not asked:
        return Comparison()
    every = [slice(None)]
    try:
        (old,), (answers,) = score(present, asked, every), score(new, asked, every)
    except InterfereError as error:
        raise broken(f"no answer to a recent call: {error.one_line}") from None
    unusable = answers.unusable & ~old.unusable
    if unusable.any():
        k = int(np.flatnonzero(unusable)[0])
        names = f"{asked[k].victim.workload} beside {asked[k].neighbours[0].workload} on {asked[k].device_type}"
        raise broken(f"{names}: {answers.median[k]:.4g} in [{answers.lower[k]:.4g}, {answers.upper[k]:.4g}]")
    return Comparison(
        pairs=len(asked),
        silent=int((answers.abstains & ~old.abstains).sum()),
        disagreeing=int((answers.disagrees(old) & ~answers.abstains & ~old.abstains).sum()),
    )


def broken(value: str) -> ModelError:
    """Return the refusal of a model that does not keep what its card promises."""
    return ModelError(
        "the model does not answer recent calls as its card promises, beside the model that is served",
        value=value,
        remedy="compare both cards; where the change is meant: interfere models load --no-shadow",
    )


class Trial:
    """A model that is tried beside the model before it, until enough was asked and observed."""

    def __init__(
        self, started: StartedTrial, before: Predictor, new: Predictor, *, promises: Promises | None, last_call: int = 0
    ) -> None:
        """Try a model. `before` and `new`: both models with what they had learned when the trial began; `promises`:
        those that calls must show, None where calls are not compared; `last_call`: the last that was compared."""
        self._started, self._before, self._new, self._promises = started, before, new, promises
        self.compared = Comparison(**started.compared)
        self.observed = Observed()
        self._last_call, self._last_sequence = last_call, started.after_sequence

    def compare_calls(self, calls: RecentCalls, state: ServedState) -> str:
        """Compare both models on the calls since the last comparison.

        Return in words why the new model is rejected; "" where it is not.
        """
        asked, self._last_call = calls.asked(state, after=self._last_call)
        if self._promises is None or self.compared.pairs >= MAX_SHADOW_PAIRS:
            return ""
        try:
            self.compared += compare(self._before, self._new, asked)
        except ModelError as error:
            return error.one_line
        return self.compared.broken_promise(self._promises)

    def score_observed(self, newest: Callable[[], Sequence[LogEntry]], state: ServedState) -> str:
        """Score both models on the observations since the change.

        Return in words why the new model is rejected; "" where it is not. `newest` returns the newest entries of the
        log.
        """
        if state.learned.last_sequence != self._last_sequence:
            self._last_sequence = state.learned.last_sequence
            cases, every = observed_cases(newest(), state, after=self.started.after_sequence), [slice(None)]
            (old,), (new,) = score(self._before, cases, every), score(self._new, cases, every)
            self.observed = Observed.of(old, new)
        return self.observed.text() if self.observed.jumped else ""

    @property
    def started(self) -> StartedTrial:
        """The trial as it goes on after a restart."""
        return replace(self._started, compared=asdict(self.compared))

    @property
    def is_over(self) -> bool:
        """Whether enough was observed."""
        return self.observed.count >= MAX_OBSERVED

    def text(self) -> str:
        """Return the state of the trial in words."""
        parts = [self.compared.text()] if self._promises else []
        return "; ".join([*parts, f"{self.observed.text()} (of {MAX_OBSERVED})"])


def observed_cases(newest: Sequence[LogEntry], state: ServedState, *, after: int) -> list[Case]:
    """Return the first shared windows that were observed after an entry, oldest first, at most `MAX_OBSERVED`."""
    since = sorted(
        (entry for entry in newest if entry.sequence > after and not entry.rolled_back),
        key=lambda entry: entry.sequence,
    )
    cases = (state.case_of(entry.observation) for entry in since if isinstance(entry.observation, Progress))
    return [case for case in cases if case is not None][:MAX_OBSERVED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Mean errors of speed of both models on the same observations; NaN without any."""

    count: int = 0
    before: float = math.nan
    new: float = math.nan
    deviation: float = math.nan  # standard error of the mean difference new - before

    @classmethod
    def of(cls, old: WindowScore, new: WindowScore) -> "Observed":
        """Return the errors from the scores of both models on one window."""
        known = np.isfinite(old.error) & np.isfinite(new.error)
        difference, count = (new.error - old.error)[known], int(known.sum())
        if not count:
            return cls()
        deviation = float(difference.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        before, after = float(old.error[known].mean()), float(new.error[known].mean())
        return cls(count=count, before=before, new=after, deviation=deviation)

    @property
    def jumped(self) -> bool:
        """Whether the error jumped with the new model, beyond what chance explains."""
        return self.count >= MIN_OBSERVED and self.new - self.before > ERROR_JUMP + SIGMAS * self.deviation

    def text(self) -> str:
        """Return the errors as one line."""
        if not self.count:
            return "no observations since"
        return f"error of speed {self.new:.4f} on {self.count} observations, {self.before:.4f} before"
