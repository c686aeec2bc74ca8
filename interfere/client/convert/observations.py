"""Measurements on the wire, and what became of them. A broken item is answered alone; its batch goes on."""

from collections.abc import Sequence

from interfere.client.convert.scalars import MODE, RESULT, Inspection, numbers, set_numbers
from interfere.client.queries import ObservationAnswer, Reported, Unreadable
from interfere.errors import InvalidInputError
from interfere.records import ObservationResult, Progress
from interfere.v1 import policy_pb2 as pb

_OPTIONAL = ("steps", "slowdown")


def progress_to_proto(window: Progress) -> pb.Observation:
    """One observation."""
    progress = pb.Progress(
        job_id=window.job_id,
        workload=window.workload,
        device_type=window.device_type,
        start_s=window.start_s,
        end_s=window.end_s,
        company=window.company,
        device_id=window.device_id,
        mode=MODE[window.mode],
    )
    set_numbers(progress, window, *_OPTIONAL)
    return pb.Observation(observation_id=window.observation_id, progress=progress)


def progress_from_proto(message: pb.Observation) -> Progress:
    """One observation; raises InvalidInputError."""
    if message.WhichOneof("what") is None:
        raise InvalidInputError("an observation without content", value=message.observation_id, remedy="send progress")
    progress = message.progress
    inspection = Inspection()
    optional = inspection.read("progress", lambda: numbers(progress, *_OPTIONAL))
    mode = inspection.read("progress", lambda: MODE.word(progress.mode, "mode"))
    inspection.done()
    window = inspection.read(
        "progress",
        lambda: Progress(
            observation_id=message.observation_id,
            job_id=progress.job_id,
            workload=progress.workload,
            device_type=progress.device_type,
            start_s=progress.start_s,
            end_s=progress.end_s,
            company=tuple(progress.company),
            device_id=progress.device_id,
            mode=mode or "timeslice",
            **(optional or {}),
        ),
    )
    inspection.done()
    assert window is not None
    return window


def report_to_proto(windows: Sequence[Progress]) -> pb.ReportObservationsRequest:
    """A batch."""
    return pb.ReportObservationsRequest(observations=[progress_to_proto(window) for window in windows])


def report_from_proto(message: pb.ReportObservationsRequest) -> tuple[Reported, ...]:
    """A batch, its broken items as `Unreadable`."""
    return tuple(_read(k, one) for k, one in enumerate(message.observations))


def _read(k: int, message: pb.Observation) -> Reported:
    try:
        return progress_from_proto(message)
    except InvalidInputError as error:
        why = "; ".join(str(violation) for violation in error.violations) or f"{error.what}; {error.remedy}"
        return Unreadable(observation_id=message.observation_id, reason=f"observations[{k}]: {why}")


def answers_to_proto(answers: Sequence[ObservationAnswer]) -> pb.ReportObservationsResponse:
    """What became of each."""
    return pb.ReportObservationsResponse(
        answers=[
            pb.ObservationAnswer(observation_id=a.observation_id, result=RESULT[a.result], reason=a.reason)
            for a in answers
        ]
    )


def answers_from_proto(message: pb.ReportObservationsResponse) -> tuple[ObservationAnswer, ...]:
    """What became of each."""
    return tuple(
        ObservationAnswer(
            observation_id=a.observation_id,
            result=ObservationResult(RESULT.word(a.result, "result")),
            reason=a.reason,
        )
        for a in message.answers
    )
