"""Compares a new model with the served one on real calls before it is taken, and on observations afterwards.

Shadow: both models answer the pairs of the last calls, beside the calls that are under way; no call waits. The new
model is refused where an answer is unusable, where it is newly silent about more pairs than a model of this kind
promises, or where it disagrees about more. Both models promise intervals that hold the slowdown for 90 % of pairs:
where two intervals have no common slowdown, at least one of them is wrong, which may happen for a fifth of pairs.

Trial: after a model was taken, both models are scored on the slowdowns that are observed since. Where the new model's
error is clearly larger, the server goes back.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, permutations

import numpy as np

from interfere.errors import InterfereError, ModelError
from interfere.policy.context import assumed_mode
from interfere.predict.acceptance.score import LoggedPair, WindowScore, score
from interfere.protocols import Predictor
from interfere.records import PairQuery, Snapshot
from interfere.records.observations import LogEntry, Progress
from interfere.serving.state import ServedState
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto

CALLS, DECISIONS = 100, 20  # the newest, that a new model answers again
MAX_SHADOW_PAIRS = 4_000  # in all: tens of milliseconds; half of them of decisions
MAX_PAIRS_A_CALL = 200
MAX_SNAPSHOT = 2_000  # jobs and devices of a decision that is kept: about 100 KB
MIN_SHADOW_PAIRS = 20  # with fewer, shares say nothing: only unusable answers refuse a model
MAX_NEWLY_SILENT = 0.1  # share; a model abstains from the tenth of pairs of unseen families with the largest scores
MAX_DISAGREEING = 0.2  # share of pairs whose two 90 % intervals have no common slowdown
SIGMAS = 3.0  # by which a share or a difference has to exceed its limit: what is asked is a sample

MIN_OBSERVED, MAX_OBSERVED = 20, 200  # observations after which a trial first decides, and ends
ERROR_JUMP = 0.02  # of speed: about the difference between two measurements of one pair (.012 and .017)


class RecentCalls:
    """The newest queries for pairs and decisions. Thread-safe: a call appends, a change of models reads a copy."""

    def __init__(self) -> None:
        self._queries: deque[PairQuery] = deque(maxlen=CALLS)
        self._decisions: deque[pb.MatchRequest] = deque(maxlen=DECISIONS)

    def remember(self, query: PairQuery) -> None:
        """Keep a query that was answered, unless it is large."""
        if len(query.jobs) <= MAX_PAIRS_A_CALL and len(query.pairs) <= MAX_PAIRS_A_CALL:
            self._queries.append(query)

    def remember_decision(self, request: pb.MatchRequest) -> None:
        """Keep a snapshot that was decided, unless it is large."""
        if len(request.pending) + len(request.devices) <= MAX_SNAPSHOT:
            self._decisions.append(request)

    def pairs(self, state: ServedState) -> list[LoggedPair]:
        """Return the pairs of the newest calls whose jobs have profiles, the newest calls first, bounded."""
        asked = (_pairs_of_query(query, state) for query in reversed(self._queries.copy()))
        decided = (_pairs_of_decision(request, state) for request in reversed(self._decisions.copy()))
        halves = (list(islice(chain.from_iterable(calls), MAX_SHADOW_PAIRS // 2)) for calls in (decided, asked))
        return list(chain.from_iterable(halves))


def _pairs_of_query(query: PairQuery, state: ServedState) -> Iterator[LoggedPair]:
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
            yield LoggedPair(victim=victim, neighbour=neighbour, device_type=device_type, mode=query.mode)


def _pairs_of_decision(request: pb.MatchRequest, state: ServedState) -> Iterator[LoggedPair]:
    """Yield the pairs of the jobs of a snapshot on each of its device types and modes, a bounded number of each."""
    snapshot = from_proto(Snapshot, request)
    jobs = [*snapshot.pending, *(job for device in snapshot.devices for job in device.residents)]
    for device_type, mode in dict.fromkeys((device.type, device.mode) for device in snapshot.devices):
        profiles = {id(found): found for job in jobs if (found := state.profile_of_job(job, device_type)) is not None}
        for victim, neighbour in islice(permutations(profiles.values(), 2), MAX_PAIRS_A_CALL):
            yield LoggedPair(
                victim=victim,
                neighbour=neighbour,
                device_type=device_type,
                mode=mode or assumed_mode(device_type, state.predictor),
            )


def check_shadow(present: Predictor, new: Predictor, asked: Sequence[LoggedPair]) -> str:
    """Return in words how the new model answers recent calls beside the present one.

    Raises ModelError where it must not be taken.
    """
    if not asked:
        return "no recent calls to compare it on"
    every = [slice(None)]
    try:
        (old,), (answers,) = score(present, asked, every), score(new, asked, every)
    except InterfereError as error:
        raise _refusal(f"no answer to a recent call: {error.one_line}") from None
    unusable = answers.unusable & ~old.unusable
    if unusable.any():
        k = int(np.flatnonzero(unusable)[0])
        names = f"{asked[k].victim.workload} beside {asked[k].neighbour.workload} on {asked[k].device_type}"
        raise _refusal(f"{names}: {answers.median[k]:.4g} in [{answers.lower[k]:.4g}, {answers.upper[k]:.4g}]")
    silent = answers.abstains & ~old.abstains
    disagreeing = answers.disagrees(old) & ~answers.abstains & ~old.abstains
    figures = f"{len(asked)} recent pairs: {silent.mean():.1%} newly silent, {disagreeing.mean():.1%} disagree"
    for share, promised in ((silent.mean(), MAX_NEWLY_SILENT), (disagreeing.mean(), MAX_DISAGREEING)):
        deviation = math.sqrt(promised * (1.0 - promised) / len(asked))
        if len(asked) >= MIN_SHADOW_PAIRS and share > promised + SIGMAS * deviation:
            raise _refusal(f"{figures}; at most {promised:.0%} are promised")
    return figures


def _refusal(value: str) -> ModelError:
    return ModelError(
        "the model does not answer recent calls as its card promises, beside the model that is served",
        value=value,
        remedy="compare both cards; where the change is meant: interfere models load --no-shadow",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A model that was taken, and the model before it, until enough was observed."""

    before: Predictor
    new: Predictor
    after_sequence: int  # last entry of the log when the new model was taken

    def observed(self, entries: Sequence[LogEntry], state: ServedState) -> list[LoggedPair]:
        """Return the first pairs that were observed since the model was taken, oldest first, at most `MAX_OBSERVED`."""
        since = sorted(
            (entry for entry in entries if entry.sequence > self.after_sequence and not entry.rolled_back),
            key=lambda entry: entry.sequence,
        )
        pairs = (_observed_pair(entry.observation, state) for entry in since if isinstance(entry.observation, Progress))
        return [pair for pair in pairs if pair is not None][:MAX_OBSERVED]

    def verdict(self, observed: Sequence[LoggedPair]) -> "TrialVerdict":
        """Return how both models err on the pairs observed since."""
        every = [slice(None)]
        (old,), (new,) = score(self.before, observed, every), score(self.new, observed, every)
        return TrialVerdict.of(old, new)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialVerdict:
    """Mean errors of speed of both models on the same observations."""

    observations: int
    before: float
    new: float
    deviation: float  # standard error of the mean difference new - before

    @classmethod
    def of(cls, old: WindowScore, new: WindowScore) -> "TrialVerdict":
        """Return the verdict from the scores of both models on one window."""
        known = np.isfinite(old.error) & np.isfinite(new.error)
        difference, count = (new.error - old.error)[known], int(known.sum())
        if not count:
            return cls(observations=0, before=math.nan, new=math.nan, deviation=math.nan)
        deviation = float(difference.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        before, after = float(old.error[known].mean()), float(new.error[known].mean())
        return cls(observations=count, before=before, new=after, deviation=deviation)

    @property
    def jumped(self) -> bool:
        """Whether the error jumped with the new model, beyond what chance explains."""
        return self.observations >= MIN_OBSERVED and self.new - self.before > ERROR_JUMP + SIGMAS * self.deviation

    @property
    def is_over(self) -> bool:
        """Whether the trial ends here."""
        return self.observations >= MAX_OBSERVED

    def text(self) -> str:
        """Return the verdict as one line."""
        return f"error of speed {self.new:.4f} on {self.observations} observations, {self.before:.4f} before"


def _observed_pair(window: Progress, state: ServedState) -> LoggedPair | None:
    """Return the pair of a window with one neighbour; None for another company or a job without a profile."""
    if len(window.company) != 1:
        return None
    victim = state.profile_of_workload(window.workload, window.device_type)
    neighbour = state.profile_of_workload(window.company[0], window.device_type)
    if victim is None or neighbour is None:
        return None
    slowdown = window.slowdown
    if math.isnan(slowdown):  # steps of the window against the step time of the profile
        steps_s = window.steps * victim.step_time_s
        slowdown = (window.end_s - window.start_s) / steps_s if steps_s > 0 else math.nan
    return LoggedPair(
        victim=victim, neighbour=neighbour, device_type=window.device_type, mode=window.mode, slowdown=slowdown
    )
