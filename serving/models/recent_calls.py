"""Keeps the newest calls of a server, which a new model answers beside the served one."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice, permutations

from interfere.policy.context import assumed_mode
from interfere.predict.acceptance.score import Case
from interfere.records import PairQuery, Snapshot
from interfere.serving.state import ServedState
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto

CALLS, DECISIONS = 100, 20  # the newest, that a new model answers again
MAX_SHADOW_PAIRS = 4_000  # of one comparison: tens of milliseconds; half of them of decisions
MAX_PAIRS_A_CALL = 200
MAX_SNAPSHOT = 2_000  # jobs and devices of a decision that is kept: about 100 KB


class RecentCalls:
    """The newest queries for pairs and decisions. Thread-safe: a call appends, a change of models reads a copy."""

    def __init__(self) -> None:
        self._numbers = count(1)
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
