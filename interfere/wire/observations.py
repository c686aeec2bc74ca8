"""Converters of observations, their results and their log. A broken observation is rejected alone, not its batch."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, cast

from interfere.errors import InvalidInputError
from interfere.records import (
    MemoryUsage,
    Observation,
    ObservationResult,
    Outcome,
    OutcomeKind,
    Progress,
    ReporterWeight,
    Rollback,
)
from interfere.sharing_modes import DEFAULT_MODE
from interfere.v1 import policy_pb2 as pb
from interfere.wire.bounds import check_bounds, shortened
from interfere.wire.messages import Correction, LogEntry, ObservationAnswer, ObservationLog, Reported, Unreadable
from interfere.wire.model import online_from_proto, online_to_proto
from interfere.wire.scalars import MODE, OUTCOME, RESULT, Inspection, numbers, set_numbers

MAX_REASON = 1_000  # characters that say why an observation was rejected
_PROGRESS = ("job_id", "workload", "device_type", "start_s", "end_s", "device_id", "reporter", "campaign")
_MEMORY = ("job_id", "workload", "device_type", "bytes", "start_s", "end_s", "device_id", "reporter")
_OUTCOME = ("job_id", "at_s", "decision_id", "device_id", "reason")
_ROLLBACK = ("to_sequence", "reason", "reporter", "undoes")
_REPORTER_WEIGHT = ("reporter", "weight", "reason")
_OPTIONAL = ("steps", "slowdown")


def observation_to_proto(observation: Observation) -> pb.Observation:
    """One observation of any kind."""
    message = pb.Observation(observation_id=observation.observation_id)
    if isinstance(observation, Progress):
        _set(message.progress, observation, *_PROGRESS)
        message.progress.company.extend(observation.company)
        message.progress.mode = MODE[observation.mode]
        set_numbers(message.progress, observation, *_OPTIONAL)
    elif isinstance(observation, MemoryUsage):
        _set(message.memory_usage, observation, *_MEMORY)
        set_numbers(message.memory_usage, observation, "min_bytes")
    elif isinstance(observation, Outcome):
        _set(message.outcome, observation, *_OUTCOME)
        message.outcome.kind = OUTCOME[observation.kind]
    elif isinstance(observation, ReporterWeight):
        _set(message.reporter_weight, observation, *_REPORTER_WEIGHT)
    else:
        _set(message.rollback, observation, *_ROLLBACK)
        message.rollback.SetInParent()
    return message


def observation_from_proto(message: pb.Observation) -> Observation:
    """One observation; raises InvalidInputError with the path of every broken rule."""
    check_bounds(message)
    kind = message.WhichOneof("what")
    if kind is None:
        raise InvalidInputError(
            "an observation without content",
            value=message.observation_id,
            remedy="send progress, memory_usage, outcome, rollback or reporter_weight",
        )
    inspection = Inspection()
    observation = inspection.read(kind, lambda: _READERS[kind](message.observation_id, getattr(message, kind)))
    inspection.done()
    assert observation is not None
    return observation


def _progress(observation_id: str, message: pb.Progress) -> Progress:
    inspection = Inspection()
    optional = inspection.read("", lambda: numbers(message, *_OPTIONAL))
    mode = inspection.read("", lambda: MODE.word(message.mode, "mode"))
    inspection.done()
    return Progress(
        observation_id=observation_id,
        company=tuple(message.company),
        mode=mode or DEFAULT_MODE,
        **_get(message, *_PROGRESS),
        **cast(dict[str, Any], optional or {}),
    )


def _memory_usage(observation_id: str, message: pb.MemoryUsage) -> MemoryUsage:
    return MemoryUsage(
        observation_id=observation_id, **_get(message, *_MEMORY), **cast(dict[str, Any], numbers(message, "min_bytes"))
    )


def _outcome(observation_id: str, message: pb.Outcome) -> Outcome:
    kind = OutcomeKind(OUTCOME.word(message.kind, "kind"))
    return Outcome(observation_id=observation_id, kind=kind, **_get(message, *_OUTCOME))


def _rollback(observation_id: str, message: pb.Rollback) -> Rollback:
    return Rollback(observation_id=observation_id, **_get(message, *_ROLLBACK))


def _reporter_weight(observation_id: str, message: pb.ReporterWeight) -> ReporterWeight:
    return ReporterWeight(observation_id=observation_id, **_get(message, *_REPORTER_WEIGHT))


_READERS: dict[str, Callable[[str, Any], Observation]] = {
    "progress": _progress,
    "memory_usage": _memory_usage,
    "outcome": _outcome,
    "rollback": _rollback,
    "reporter_weight": _reporter_weight,
}


def report_to_proto(observations: Sequence[Observation]) -> pb.ReportObservationsRequest:
    """A batch of observations."""
    return pb.ReportObservationsRequest(observations=[observation_to_proto(each) for each in observations])


def report_from_proto(message: pb.ReportObservationsRequest) -> tuple[Reported, ...]:
    """A batch of observations, the broken ones as `Unreadable`."""
    return tuple(_read(k, observation) for k, observation in enumerate(message.observations))


def _read(k: int, message: pb.Observation) -> Reported:
    try:
        return observation_from_proto(message)
    except InvalidInputError as error:
        reason = "; ".join(map(str, error.violations[:5])) or f"{error.what}; {error.remedy}"
        observation_id, reason = shortened((message.observation_id, f"observations[{k}]: {reason}"), MAX_REASON)
        return Unreadable(observation_id=observation_id, reason=reason)


def _set(message: Any, record: object, *names: str) -> None:
    for name in names:
        setattr(message, name, getattr(record, name))


def _get(message: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}


def log_to_proto(log: ObservationLog) -> pb.GetObservationLogResponse:
    """Entries of the log, the online state and the largest corrections."""
    return pb.GetObservationLogResponse(
        entries=[
            pb.ObservationLogEntry(
                sequence=e.sequence,
                observation=observation_to_proto(e.observation),
                result=RESULT[e.result],
                reason=e.reason,
                received_s=e.received_s,
                rolled_back=e.rolled_back,
            )
            for e in log.entries
        ],
        online=online_to_proto(log.online),
        corrections=[pb.Correction(**{**asdict(each), "mode": MODE[each.mode]}) for each in log.corrections],
    )


def log_from_proto(message: pb.GetObservationLogResponse) -> ObservationLog:
    """Entries of the log, the online state and the largest corrections."""
    return ObservationLog(
        entries=tuple(
            LogEntry(
                sequence=e.sequence,
                observation=observation_from_proto(e.observation),
                result=ObservationResult(RESULT.word(e.result, "result")),
                reason=e.reason,
                received_s=e.received_s,
                rolled_back=e.rolled_back,
            )
            for e in message.entries
        ),
        online=online_from_proto(message.online),
        corrections=tuple(
            Correction(
                victim=c.victim,
                neighbour=c.neighbour,
                device_type=c.device_type,
                mode=MODE.word(c.mode, "mode"),
                log_factor=c.log_factor,
                sd=c.sd,
            )
            for c in message.corrections
        ),
    )


def answers_to_proto(answers: Sequence[ObservationAnswer]) -> pb.ReportObservationsResponse:
    """The result of each observation."""
    return pb.ReportObservationsResponse(answers=[_answer_to_proto(answer) for answer in answers])


def _answer_to_proto(answer: ObservationAnswer) -> pb.ObservationAnswer:
    message = pb.ObservationAnswer(
        observation_id=answer.observation_id, result=RESULT[answer.result], reason=answer.reason
    )
    set_numbers(message, answer, "weight")
    return message


def answers_from_proto(message: pb.ReportObservationsResponse) -> tuple[ObservationAnswer, ...]:
    """The result of each observation."""
    return tuple(
        ObservationAnswer(
            observation_id=a.observation_id,
            result=ObservationResult(RESULT.word(a.result, "result")),
            reason=a.reason,
            **cast(dict[str, Any], numbers(a, "weight")),
        )
        for a in message.answers
    )
