"""Converters of what a scheduler sends: jobs, devices, limits, snapshots; and of the ranking of devices for one job."""

from dataclasses import fields
from typing import Any

from interfere.records import (
    NAN,
    ActionKind,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    ObjectiveTerm,
    Ranking,
    Snapshot,
    Window,
)
from interfere.records.limits import DEFAULT_ALLOWED, DEFAULT_MOVE_FACTOR, LIMIT_GROUPS
from interfere.sharing_modes import OptionalSharingMode
from interfere.v1 import policy_pb2 as pb
from interfere.wire.messages import RankAnswer, RankQuery
from interfere.wire.rules import rule_from_proto, rule_to_proto
from interfere.wire.scalars import ACTION, MODE, OBJECTIVE, Inspection, number, numbers, set_numbers

_JOB_OPTIONAL = (
    "memory_peak_bytes",
    "max_slowdown",
    "remaining_s",
    "attained_s",
    "memory_working_set_bytes",
    "elapsed_s",
    "latency_target_s",
    "checkpoint_s",
    "since_s",
    "deadline_s",
    "remaining_p90_s",
    "grant_bytes",
)


_DEVICE_OPTIONAL = ("memory_bytes", "granule_bytes", "price_per_hour", "power_w")


def job_to_proto(job: Job) -> pb.Job:
    """A pending or running job."""
    message = pb.Job(
        id=job.id,
        workload=job.workload,
        profile_id=job.profile_id,
        weight=job.weight,
        priority=job.priority,
        gpus=job.gpus,
        pools=job.pools,
        preemptible=job.preemptible,
    )
    set_numbers(message, job, *_JOB_OPTIONAL)
    return message


def job_from_proto(message: pb.Job) -> Job:
    """A pending or running job; raises InvalidInputError."""
    inspection = Inspection()
    optional = inspection.read("", lambda: numbers(message, *_JOB_OPTIONAL)) or {}
    weight = inspection.read("", lambda: number(message, "weight", 1.0))
    job = inspection.read(
        "",
        lambda: Job(
            id=message.id,
            workload=message.workload,
            profile_id=message.profile_id,
            weight=1.0 if weight is None else weight,
            priority=message.priority,
            gpus=message.gpus or 1,
            pools=tuple(message.pools),
            preemptible=message.preemptible,
            **optional,
        ),
    )
    inspection.done()
    assert job is not None
    return job


def window_to_proto(window: Window) -> pb.Window:
    """When a device may be used."""
    message = pb.Window(from_s=window.from_s)
    set_numbers(message, window, "until_s")
    return message


def window_from_proto(message: pb.Window) -> Window:
    """When a device may be used; raises InvalidInputError."""
    return Window(from_s=message.from_s, **numbers(message, "until_s"))


def device_to_proto(device: Device) -> pb.Device:
    """A device and its residents."""
    message = pb.Device(
        id=device.id,
        type=device.type,
        node=device.node,
        mode=MODE[device.mode] if device.mode else pb.SHARING_MODE_UNSPECIFIED,
        residents=[job_to_proto(job) for job in device.residents],
        pool=device.pool,
        windows=[window_to_proto(window) for window in device.windows],
        seats=device.seats,
    )
    set_numbers(message, device, *_DEVICE_OPTIONAL)
    if device.oversubscription_ratio != 1.0:
        message.oversubscription_ratio = device.oversubscription_ratio
    return message


def device_from_proto(message: pb.Device) -> Device:
    """A device and its residents; raises InvalidInputError."""
    inspection = Inspection()
    residents = inspection.read_all("residents", message.residents, job_from_proto)
    windows = inspection.read_all("windows", message.windows, window_from_proto)
    mode: OptionalSharingMode = ""
    if message.mode != pb.SHARING_MODE_UNSPECIFIED:
        mode = inspection.read("", lambda: MODE.word(message.mode, "mode")) or ""
    sizes = inspection.read("", lambda: numbers(message, *_DEVICE_OPTIONAL)) or {}
    ratio = inspection.read("", lambda: number(message, "oversubscription_ratio", 1.0))
    device = inspection.read(
        "",
        lambda: Device(
            id=message.id,
            type=message.type,
            node=message.node,
            mode=mode,
            residents=residents,
            pool=message.pool,
            oversubscription_ratio=1.0 if ratio is None else ratio,
            windows=windows,
            seats=message.seats if message.HasField("seats") else None,
            **sizes,
        ),
    )
    inspection.done()
    assert device is not None
    return device


def limits_to_proto(limits: Limits) -> pb.Limits:
    """What a plan may do; the message is flat."""
    message = pb.Limits(
        allowed=sorted(ACTION[kind] for kind in limits.allowed),
        choosable_modes=sorted(MODE[mode] for mode in limits.choosable_modes),
        max_devices=limits.max_devices,
        most_shared_gpus=limits.most_shared_gpus,
        allow_extrapolation=limits.allow_extrapolation,
        promise_deadlines=limits.promise_deadlines,
        guest_ends_first=limits.guest_ends_first,
        rematch_running=limits.rematch_running,
        move_factor=limits.move_factor,
    )
    for group in LIMIT_GROUPS:
        record = getattr(limits, group)
        set_numbers(message, record, *(field.name for field in fields(record)))
    return message


def limits_from_proto(message: pb.Limits) -> Limits:
    """What a plan may do; no action listed means the three that touch no resident. Raises InvalidInputError."""
    words = [ACTION.word(kind, f"allowed[{k}]") for k, kind in enumerate(message.allowed)]
    return Limits.of(
        allowed=frozenset(map(ActionKind, words)) or DEFAULT_ALLOWED,
        choosable_modes=frozenset(
            MODE.word(mode, f"choosable_modes[{k}]") for k, mode in enumerate(message.choosable_modes)
        ),
        max_devices=message.max_devices if message.HasField("max_devices") else None,
        most_shared_gpus=message.most_shared_gpus if message.HasField("most_shared_gpus") else None,
        allow_extrapolation=message.allow_extrapolation,
        promise_deadlines=message.promise_deadlines if message.HasField("promise_deadlines") else True,
        guest_ends_first=message.guest_ends_first,
        rematch_running=message.rematch_running,
        move_factor=number(message, "move_factor", DEFAULT_MOVE_FACTOR),
        **{
            field.name: number(message, field.name, float(field.default))  # type: ignore[arg-type]  # every limit has a default
            for record in LIMIT_GROUPS.values()
            for field in fields(record)
        },
    )


def term_to_proto(term: ObjectiveTerm) -> pb.ObjectiveTerm:
    """One term of a weighted sum of objectives."""
    return pb.ObjectiveTerm(kind=OBJECTIVE[term.kind], weight=term.weight)


def term_from_proto(message: pb.ObjectiveTerm) -> ObjectiveTerm:
    """One term of a weighted sum of objectives; raises InvalidInputError."""
    return ObjectiveTerm(
        kind=ObjectiveKind(OBJECTIVE.word(message.kind, "kind")), weight=number(message, "weight", 1.0)
    )


def snapshot_to_proto(snapshot: Snapshot, *, validate_only: bool = False) -> pb.MatchRequest:
    """A snapshot as a request to Match."""
    message = pb.MatchRequest(
        scope=snapshot.scope,
        snapshot_id=snapshot.snapshot_id,
        pending=[job_to_proto(job) for job in snapshot.pending],
        devices=[device_to_proto(device) for device in snapshot.devices],
        limits=limits_to_proto(snapshot.limits),
        validate_only=validate_only,
        objective=OBJECTIVE[snapshot.objective],
        partial=snapshot.partial,
        objective_terms=[term_to_proto(term) for term in snapshot.objective_terms],
    )
    set_numbers(message, snapshot, "now_s")
    return message


def snapshot_from_proto(message: pb.MatchRequest) -> Snapshot:
    """The snapshot in a request to Match; raises InvalidInputError with every broken rule."""
    inspection = Inspection()
    pending = inspection.read_all("pending", message.pending, job_from_proto)
    devices = inspection.read_all("devices", message.devices, device_from_proto)
    limits = inspection.read("limits", lambda: limits_from_proto(message.limits))
    objective = inspection.read("", lambda: OBJECTIVE.word(message.objective, "objective"))
    now = inspection.read("", lambda: number(message, "now_s"))
    terms = inspection.read_all("objective_terms", message.objective_terms, term_from_proto)
    inspection.done()
    return Snapshot(
        scope=message.scope or "default",
        snapshot_id=message.snapshot_id,
        pending=pending,
        devices=devices,
        limits=limits or Limits(),
        objective=ObjectiveKind(objective or ObjectiveKind.WEIGHTED_EXCESS),
        now_s=NAN if now is None else now,
        partial=message.partial,
        objective_terms=terms,
    )


def rank_query_to_proto(query: RankQuery) -> pb.RankPlacementsRequest:
    """One job and its candidate devices."""
    return pb.RankPlacementsRequest(
        job=job_to_proto(query.job),
        devices=[device_to_proto(device) for device in query.devices],
        limits=limits_to_proto(query.limits),
        objective=OBJECTIVE[query.objective],
        scope=query.scope,
    )


def rank_query_from_proto(message: pb.RankPlacementsRequest) -> RankQuery:
    """One job and its candidate devices; raises InvalidInputError."""
    inspection = Inspection()
    job = inspection.read("job", lambda: job_from_proto(message.job))
    devices = inspection.read_all("devices", message.devices, device_from_proto)
    limits = inspection.read("limits", lambda: limits_from_proto(message.limits))
    objective = inspection.read("", lambda: OBJECTIVE.word(message.objective, "objective"))
    inspection.done()
    assert job is not None
    assert limits is not None
    return RankQuery(
        job=job,
        devices=devices,
        limits=limits,
        objective=ObjectiveKind(objective or ObjectiveKind.WEIGHTED_EXCESS),
        scope=message.scope,
    )


def rank_answer_to_proto(answer: RankAnswer) -> pb.RankPlacementsResponse:
    """Rankings of devices, the best first."""
    rankings = []
    for ranking in answer.rankings:
        message = pb.Ranking(
            device_id=ranking.device_id,
            feasible=ranking.feasible,
            reason=ranking.reason,
            planned=ranking.planned,
            rule=rule_to_proto(ranking.rule),
        )
        set_numbers(message, ranking, "slowdown", "worst_resident_slowdown", "cost")
        rankings.append(message)
    return pb.RankPlacementsResponse(rankings=rankings, model_version=answer.model_version)


def _ranking_from_proto(message: pb.Ranking) -> Ranking:
    present: dict[str, Any] = {**numbers(message, "slowdown", "worst_resident_slowdown")}
    return Ranking(
        device_id=message.device_id,
        feasible=message.feasible,
        cost=number(message, "cost", float("inf")),
        reason=message.reason,
        rule=rule_from_proto(message),
        planned=message.planned,
        **present,
    )


def rank_answer_from_proto(message: pb.RankPlacementsResponse) -> RankAnswer:
    """Rankings of devices, the best first; the cost of an infeasible device is infinite."""
    return RankAnswer(
        rankings=tuple(map(_ranking_from_proto, message.rankings)),
        model_version=message.model_version,
    )
