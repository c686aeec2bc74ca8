"""Answers that change nothing: predictions of pairs, groups and matrices, rankings of devices, advice on modes, probes.

Law: an answer is made from one `ServedState`, and leaves nothing of the request behind. A model that predicts pair by
pair limits the number of distinct pairs in a request (`matrix_limit`): jobs with the same workload or profile id count
as one job, and each device type and sharing mode has its own pairs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from interfere.devices import possible_modes
from interfere.errors import InvalidInputError, LimitError, Violation
from interfere.policy.answer.ranking import rank
from interfere.policy.context import assumed_mode
from interfere.policy.ledger.grants import with_running_grants
from interfere.policy.modes.advice import advise
from interfere.policy.modes.outlook import JobToAdvise, slice_types
from interfere.policy.site_policy import SitePolicy
from interfere.policy.solve.planner import parts_planned_apart
from interfere.predict.groups import compose_groups, composition_of, copy_shares, total_memory_share
from interfere.predict.manifest import distinct_pairs, require_within
from interfere.protocols import Predictor
from interfere.records import (
    ActionKind,
    Device,
    Job,
    JobProfile,
    JobRef,
    MatrixAnswer,
    MatrixBatch,
    MatrixQuery,
    ModeJob,
    ModeQuery,
    PairAnswer,
    PairBatch,
    PairQuery,
    Prediction,
    Probe,
    ProbeAnswer,
    ProbeQuery,
    RankAnswer,
    RankQuery,
    ScopeLedger,
    Snapshot,
    Source,
)
from interfere.records.checks import check
from interfere.records.mode_advice import ModeAdvice
from interfere.serving.decisions import check_job
from interfere.serving.state import ServedState
from interfere.sharing_modes import SharingMode

MAX_PAIRS = 20_000  # of one PredictSlowdowns: less than a second of one core even for trees
MAX_CELLS = 7_000_000  # of one PredictMatrix: 9 bytes each stay under 64 MiB


def predict_pairs(state: ServedState, query: PairQuery) -> PairAnswer:
    """Return a prediction or an abstention for every requested pair. Raises InvalidInputError or LimitError for an
    invalid request."""
    device_type = served_device_type(state, query.device_type)
    n = len(query.jobs)
    requested = sum(len(indices) - 1 for indices in query.pairs) or n * (n - 1)
    if requested > MAX_PAIRS:
        raise LimitError("too many pairs", value=requested, remedy=f"at most {MAX_PAIRS}; PredictMatrix takes millions")
    entries = query.pairs or tuple((i, j) for i in range(n) for j in range(n) if i != j)
    has_groups = requested > len(entries)
    pairs = [(entry[0], neighbour) for entry in entries for neighbour in entry[1:]] if has_groups else entries
    victim, neighbour = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    extrapolate = query.allow_extrapolation
    asked = dict.fromkeys(victim.tolist() + neighbour.tolist())  # other jobs of the request need no answer
    lookups = {k: state.profile_of_ref(query.jobs[k], device_type, extrapolate=extrapolate) for k in asked}
    predictor = state.predictor_of(query.metric)
    if has_groups and predictor is not state.predictor:
        remedy = "ask for pairs: latencies beside several neighbours were never measured"
        raise InvalidInputError("no latencies of groups are predicted", value=query.metric, remedy=remedy)
    prediction = _predict_known(predictor, query, device_type, lookups, victim, neighbour)
    if has_groups:
        groups = [[lookups[k][0] for k in entry] for entry in entries]
        shares = [total_memory_share(group, query.device_memory_bytes) for group in groups]
        prediction = compose_groups(
            prediction,
            [len(entry) - 1 for entry in entries],
            np.array(shares),
            composition_of(state.predictor, device_type, query.mode),
            copy_shares(groups, state.profile_of_workload),
        )
        victim, neighbour = np.array([entry[:2] for entry in entries], dtype=np.int64).T
    return PairAnswer(
        victim=victim,
        neighbour=neighbour,
        further=tuple(entry[2:] for entry in entries) if has_groups else (),
        prediction=prediction,
        model_version=state.version,
        device_type=device_type,
    )


def _predict_known(
    model: Predictor,
    query: PairQuery,
    device_type: str,
    lookups: Mapping[int, tuple[JobProfile | None, str]],
    victim: NDArray[np.int64],
    neighbour: NDArray[np.int64],
) -> Prediction:
    """Return the model's prediction for pairs whose jobs both have profiles; the other pairs abstain with the reason.

    `lookups`: for each job of a pair, its profile and an empty text, or None and the reason why the job has no profile.
    """
    known = {job: profile for job, (profile, _) in lookups.items() if profile is not None}
    places = {job: place for place, job in enumerate(known)}
    index = np.array([places.get(job, -1) for job in range(len(query.jobs))])
    batch = PairBatch(
        jobs=tuple(known.values()),
        victim=index[victim],
        neighbour=index[neighbour],
        device_type=device_type,
        mode=query.mode,
        device_memory_bytes=query.device_memory_bytes,
        allow_extrapolation=query.allow_extrapolation,
    )
    if len(known) == len(lookups):
        return model.predict_pairs(batch)
    predictable = (batch.victim >= 0) & (batch.neighbour >= 0)
    prediction = model.predict_pairs(
        replace(batch, victim=batch.victim[predictable], neighbour=batch.neighbour[predictable])
    )
    source = np.full(len(predictable), Source.ABSTAINED, dtype=object)
    reason = np.full(len(predictable), "", dtype=object)
    source[predictable], reason[predictable] = prediction.source, prediction.reason
    for k in np.flatnonzero(~predictable):
        reason[k] = lookups[int(victim[k])][1] or lookups[int(neighbour[k])][1]
    return Prediction(
        median=_spread(prediction.median, predictable),
        lower=_spread(prediction.lower, predictable),
        upper=_spread(prediction.upper, predictable),
        feasibility=_spread(prediction.feasibility, predictable),
        source=tuple(source),
        reason=tuple(reason),
    )


def _spread(values: NDArray[np.float64], predictable: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return values of the predictable pairs at their places among all pairs, NaN at the other places; float64[p]."""
    of_all_pairs = np.full(len(predictable), np.nan)
    of_all_pairs[predictable] = values
    return of_all_pairs


def predict_matrix(state: ServedState, query: MatrixQuery) -> MatrixAnswer:
    """Return both directions of a matrix of slowdowns.

    A matrix does not abstain: raises InvalidInputError with a violation for each job without a profile.
    """
    device_type = served_device_type(state, query.device_type)
    sides = {"victims": query.victims, "neighbours": query.neighbours or query.victims}
    cells = len(sides["victims"]) * len(sides["neighbours"])
    if cells > MAX_CELLS:
        raise LimitError("too large a matrix", value=f"{cells} cells", remedy=f"split it: at most {MAX_CELLS} cells")
    refs = [(f"{side}[{k}]", ref) for side, of_side in sides.items() for k, ref in enumerate(of_side)]
    asked = refs if query.neighbours else refs[: len(query.victims)]  # without neighbours they are the victims
    profiles = _profiles(state, asked, device_type, extrapolate=query.allow_extrapolation)
    victims = tuple(profiles[: len(query.victims)])
    matrix = state.predictor.predict_matrix(
        MatrixBatch(
            victims=victims,
            neighbours=tuple(profiles[len(victims) :]) if query.neighbours else victims,
            device_type=device_type,
            mode=query.mode,
            device_memory_bytes=query.device_memory_bytes,
            allow_extrapolation=query.allow_extrapolation,
        ),
        quantile=query.quantile,
    )
    return MatrixAnswer(matrix=matrix, model_version=state.version, device_type=device_type)


def _profiles(
    state: ServedState, refs: Sequence[tuple[str, JobRef]], device_type: str, *, extrapolate: bool
) -> list[JobProfile]:
    """Return the profile of each reference. Raises InvalidInputError with a violation for each job without one.

    `refs`: each with the path of its field.
    """
    found = [state.profile_of_ref(ref, device_type, extrapolate=extrapolate) for _, ref in refs]
    bad = []
    for (field, ref), (profile, reason) in zip(refs, found, strict=True):
        if profile is None:
            what, _, remedy = reason.partition(": ")
            bad.append(Violation(field=field, what=what, value=repr(ref.name), remedy=remedy))
    check(bad)
    return [profile for profile, _ in found if profile is not None]


def served_device_type(state: ServedState, requested: str) -> str:
    """Return the requested device type, or the only device type of the model where none is requested. Raises
    InvalidInputError."""
    if requested:
        return requested
    known = sorted({domain.device_type for domain in state.model.manifest.domains})
    if len(known) == 1:
        return known[0]
    raise InvalidInputError.from_violations(
        [Violation(field="device_type", what="is needed", value="''", remedy=f"one of {', '.join(known)}")]
    )


def suggest_probes(state: ServedState, query: ProbeQuery) -> ProbeAnswer:
    """Return the neighbours beside which a short run of the job teaches most.

    Raises InvalidInputError with a violation for each job without a profile, and where no candidate is left.
    """
    device_type = served_device_type(state, query.device_type)
    known = state.model.manifest.workloads
    neighbours = query.neighbours or tuple(
        JobRef(workload=name) for name in known if state.profile_of_workload(name, device_type) is not None
    )
    others = [(f"neighbours[{k}]", ref) for k, ref in enumerate(neighbours) if ref.name != query.job.name]
    found = _profiles(state, [("job", query.job), *others], device_type, extrapolate=True)
    job, *candidates = {profile.workload: profile for profile in found}.values()
    if not candidates:
        remedy = "name other workloads that have a profile: interfere profiles list"
        what = "no candidate but the job itself"
        check([Violation(field="neighbours", what=what, value=device_type, remedy=remedy)])
    choice = state.predictor.choose_probes(job, candidates, device_type, query.mode, query.count)
    return ProbeAnswer(
        probes=tuple(
            Probe(neighbour=candidates[each.candidate].workload, gain=each.gain, error_after=each.error_after)
            for each in choice.probes
        ),
        error_now=choice.error_now,
        model_version=state.version,
        device_type=device_type,
    )


def advise_mode(state: ServedState, query: ModeQuery) -> ModeAdvice:
    """Return advice on the sharing modes that a device may use for the jobs of the query.

    Raises InvalidInputError for a latency target without a step time.
    """
    device_type = served_device_type(state, query.device_type)
    jobs = tuple(_job(state, job, device_type, query) for job in query.jobs)
    _raise_targets_without_step_time(jobs)
    places = range(len(jobs))
    question = PairQuery(
        jobs=tuple(job.job for job in query.jobs),
        pairs=tuple((i, *(j for j in places if j != i)) for i in places),
        device_type=device_type,
        device_memory_bytes=query.device_memory_bytes,
        allow_extrapolation=query.allow_extrapolation,
    )

    def predict(mode: SharingMode) -> Prediction:
        return predict_pairs(state, replace(question, mode=mode)).prediction

    advice = advise(jobs, device_type, predict, risk=query.risk, modes=_modes(state, device_type))
    return replace(advice, model_version=state.version)


def _modes(state: ServedState, device_type: str) -> tuple[SharingMode, ...]:
    """Return the sharing modes to advise on: modes that the device type allows, or that the model was trained on for
    it."""
    possible = possible_modes(device_type)
    return tuple(mode for mode in SharingMode if mode in possible or not state.predictor.knows(device_type, mode))


def _job(state: ServedState, job: ModeJob, device_type: str, query: ModeQuery) -> JobToAdvise:
    """Return the known facts of one job. Without a profile on the device type, the profile on its largest MIG slice is
    used."""
    profile, _ = state.profile_of_ref(job.job, device_type, extrapolate=query.allow_extrapolation)
    workload = profile.workload if profile else job.job.name
    slices = {size: state.profiles.of_workload(workload, name) for size, name in slice_types(device_type).items()}
    return JobToAdvise(
        workload=workload,
        profile=profile or (slices[max(slices)] if slices else None),
        slice_profiles={found.device_type: found for found in slices.values() if found},
        latency_target_s=job.latency_target_s,
    )


def _raise_targets_without_step_time(jobs: tuple[JobToAdvise, ...]) -> None:
    bad = [
        Violation(
            field=f"jobs[{k}].latency_target_s",
            what="needs the time of one step alone on the device type",
            value=f"{job.latency_target_s!r} of {job.workload!r}",
            remedy="register a profile with step_time_s (interfere profiles register), or leave the target out",
        )
        for k, job in enumerate(jobs)
        if not math.isnan(job.latency_target_s) and not job.step_time_s > 0
    ]
    if bad:
        raise InvalidInputError.from_violations(bad)


def rank_devices(state: ServedState, query: RankQuery, ledger: ScopeLedger, site_policy: SitePolicy) -> RankAnswer:
    """Return a ranking of every device for one job, best first. `ledger`: of the query's scope; an empty one without a
    scope. Raises InvalidInputError for a job that names an unknown profile."""
    check_job(query.job, state.profiles)
    asked = Snapshot(scope=query.scope, pending=(query.job,), devices=query.devices)
    asked, catalogue = state.with_one_measured(with_running_grants(asked, ledger))
    rankings = rank(
        query.job,
        asked.devices,
        state.predictor,
        catalogue,
        query.limits,
        query.objective,
        ledger.promises,
        site_policy.objective_of(query),
        site_policy.rules,
        state.latency_predictor,
    )
    return RankAnswer(rankings=rankings, model_version=state.version)


# --- the pairs that a decision may ask a model about ------------------------------------------------------------------


def check_predicted_pairs(snapshot: Snapshot, state: ServedState) -> None:
    """Raise LimitError for a snapshot whose decision asks a model that predicts pair by pair about too many pairs.

    Of pools that are planned apart only the pairs inside each are counted.
    """
    manifest = state.model.manifest
    limit = manifest.matrix_limit
    jobs = len(snapshot.pending) + sum(len(device.residents) for device in snapshot.devices)
    if limit is None or jobs * jobs <= limit.pairs:
        return
    counts = (predicted_pairs(part, state) for part in parts_planned_apart(snapshot))
    require_within(sum(counts), limit, manifest.model)


def predicted_pairs(snapshot: Snapshot, state: ServedState) -> int:
    """Return the number of distinct ordered pairs that a decision may ask the model about, over all device types and
    modes.

    These are pairs of pending jobs, pairs of a pending job and a resident, and where jobs may move, pairs of residents.
    """
    allowed, extrapolate = snapshot.limits.allowed, snapshot.limits.allow_extrapolation
    may_move = bool(allowed & {ActionKind.MOVE, ActionKind.PREEMPT})
    if ActionKind.START_SHARED not in allowed and not may_move:
        return 0
    unnamed = dict.fromkeys(device.type for device in snapshot.devices if not device.mode)
    assumed = {device_type: assumed_mode(device_type, state.predictor) for device_type in unnamed}
    domains: dict[tuple[str, SharingMode], list[Device]] = {}
    for device in snapshot.devices:
        domains.setdefault((device.type, device.mode or assumed[device.type]), []).append(device)
    total = 0
    for (device_type, mode), devices in domains.items():
        if not extrapolate and state.predictor.knows(device_type, mode):
            continue  # nothing is predicted there
        pending = _distinct(snapshot.pending, device_type, state)
        joined = (device.residents for device in devices if may_move or len(device.residents) == 1)
        running = _distinct(chain.from_iterable(joined), device_type, state)
        if may_move:
            total += len(pending | running) ** 2
        else:  # pending jobs among themselves, and beside residents both ways
            total += len(pending) ** 2 + distinct_pairs(len(pending), len(running - pending), 0)
    return total


def _distinct(jobs: Iterable[Job], device_type: str, state: ServedState) -> set[int]:
    """Return the identities of the distinct profiles of jobs on a device type. Jobs without a profile are not
    predicted."""
    profiles = (
        state.profile_of_job(job, device_type) for job in {(j.workload, j.profile_id): j for j in jobs}.values()
    )
    return {id(profile) for profile in profiles if profile is not None}
