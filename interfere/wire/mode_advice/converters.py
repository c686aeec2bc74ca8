"""Converters of questions about sharing modes and of their answers."""

from interfere.records import NAN
from interfere.records.limits import DEFAULT_RISK
from interfere.records.mode_advice import (
    JobUnderMode,
    ModeAdvice,
    ModeMeasurement,
    ModeMeasurementKind,
    ModeOutlook,
    ModeReasonKind,
    ModeRecommendation,
    ModeSource,
)
from interfere.sharing_modes import OptionalSharingMode, SharingMode
from interfere.v1 import policy_pb2 as pb
from interfere.wire.mode_advice.messages import ModeJob, ModeQuery
from interfere.wire.profiles import ref_from_proto, ref_to_proto
from interfere.wire.scalars import MODE, Inspection, Words, number, numbers, set_numbers

SOURCE = Words("MODE_SOURCE", pb.ModeSource, ModeSource)
REASON = Words("MODE_REASON_KIND", pb.ModeReasonKind, ModeReasonKind)
MEASUREMENT = Words("MODE_MEASUREMENT_KIND", pb.ModeMeasurementKind, ModeMeasurementKind)
_MODE = Words[OptionalSharingMode]("SHARING_MODE", pb.SharingMode, SharingMode, unspecified="")
_JOB_NUMBERS = ("slowdown", "lower", "upper", "miss_probability")
_OUTLOOK_NUMBERS = ("throughput", "lower", "upper", "throughput_within_targets", "feasibility", "probability_best")
_RECOMMENDATION_NUMBERS = ("throughput", "other_throughput", "probability_best", "miss_probability", "risk")


def mode_query_to_proto(query: ModeQuery) -> pb.AdviseModeRequest:
    """A set of jobs and the device that they would share."""
    message = pb.AdviseModeRequest(
        jobs=[_job_to_proto(job) for job in query.jobs],
        device_type=query.device_type,
        allow_extrapolation=query.allow_extrapolation,
    )
    set_numbers(message, query, "device_memory_bytes", "risk")
    return message


def _job_to_proto(job: ModeJob) -> pb.ModeJob:
    message = pb.ModeJob(job=ref_to_proto(job.job))
    set_numbers(message, job, "latency_target_s")
    return message


def mode_query_from_proto(message: pb.AdviseModeRequest) -> ModeQuery:
    """The question; raises InvalidInputError with every broken rule."""
    inspection = Inspection()
    jobs = inspection.read_all("jobs", message.jobs, _job_from_proto)
    memory = inspection.read("", lambda: number(message, "device_memory_bytes"))
    risk = inspection.read("", lambda: number(message, "risk", DEFAULT_RISK))
    inspection.done()
    return ModeQuery(
        jobs=jobs,
        device_type=message.device_type,
        allow_extrapolation=message.allow_extrapolation,
        device_memory_bytes=NAN if memory is None else memory,
        risk=DEFAULT_RISK if risk is None else risk,
    )


def _job_from_proto(message: pb.ModeJob) -> ModeJob:
    inspection = Inspection()
    ref = inspection.read("job", lambda: ref_from_proto(message.job))
    target_s = inspection.read("", lambda: number(message, "latency_target_s"))
    inspection.done()
    assert ref is not None
    assert target_s is not None
    return ModeJob(job=ref, latency_target_s=target_s)


def mode_advice_to_proto(advice: ModeAdvice) -> pb.AdviseModeResponse:
    """Every sharing mode, and which one to take."""
    recommendation = pb.ModeRecommendation(
        kind=REASON[advice.recommendation.kind],
        mode=_mode_number(advice.recommendation.mode),
        other_mode=_mode_number(advice.recommendation.other_mode),
        reason=advice.recommendation.reason,
    )
    set_numbers(recommendation, advice.recommendation, *_RECOMMENDATION_NUMBERS)
    return pb.AdviseModeResponse(
        modes=[_outlook_to_proto(outlook) for outlook in advice.modes],
        recommendation=recommendation,
        measure=[_measurement_to_proto(measurement) for measurement in advice.measure],
        model_version=advice.model_version,
        device_type=advice.device_type,
    )


def _mode_number(mode: OptionalSharingMode) -> pb.SharingMode:
    return _MODE[mode] if mode else pb.SHARING_MODE_UNSPECIFIED


def _outlook_to_proto(outlook: ModeOutlook) -> pb.ModeOutlook:
    message = pb.ModeOutlook(
        mode=_mode_number(outlook.mode),
        source=SOURCE[outlook.source],
        jobs=[_job_under_mode_to_proto(job) for job in outlook.jobs],
        reason=outlook.reason,
        measure=[_measurement_to_proto(measurement) for measurement in outlook.measure],
    )
    set_numbers(message, outlook, *_OUTLOOK_NUMBERS)
    return message


def _job_under_mode_to_proto(job: JobUnderMode) -> pb.JobUnderMode:
    message = pb.JobUnderMode(
        workload=job.workload, source=SOURCE[job.source], slice_type=job.slice_type, reason=job.reason
    )
    set_numbers(message, job, *_JOB_NUMBERS)
    return message


def _measurement_to_proto(measurement: ModeMeasurement) -> pb.ModeMeasurement:
    message = pb.ModeMeasurement(
        kind=MEASUREMENT[measurement.kind],
        workloads=measurement.workloads,
        device_type=measurement.device_type,
        mode=_mode_number(measurement.mode),
    )
    set_numbers(message, measurement, "expected_gain")
    return message


def mode_advice_from_proto(message: pb.AdviseModeResponse) -> ModeAdvice:
    """Every sharing mode, and which one to take; raises InvalidInputError on a word of a newer server."""
    recommendation = message.recommendation
    return ModeAdvice(
        device_type=message.device_type,
        modes=tuple(_outlook_from_proto(outlook) for outlook in message.modes),
        recommendation=ModeRecommendation(
            kind=ModeReasonKind(REASON.word(recommendation.kind, "kind")),
            mode=_MODE.word(recommendation.mode, "mode"),
            other_mode=_MODE.word(recommendation.other_mode, "other_mode"),
            reason=recommendation.reason,
            **numbers(recommendation, *_RECOMMENDATION_NUMBERS),
        ),
        measure=tuple(_measurement_from_proto(measurement) for measurement in message.measure),
        model_version=message.model_version,
    )


def _outlook_from_proto(message: pb.ModeOutlook) -> ModeOutlook:
    return ModeOutlook(
        mode=MODE.word(message.mode, "mode"),
        source=ModeSource(SOURCE.word(message.source, "source")),
        jobs=tuple(
            JobUnderMode(
                workload=job.workload,
                source=ModeSource(SOURCE.word(job.source, "source")),
                slice_type=job.slice_type,
                reason=job.reason,
                **numbers(job, *_JOB_NUMBERS),
            )
            for job in message.jobs
        ),
        reason=message.reason,
        measure=tuple(_measurement_from_proto(measurement) for measurement in message.measure),
        **numbers(message, *_OUTLOOK_NUMBERS),
    )


def _measurement_from_proto(message: pb.ModeMeasurement) -> ModeMeasurement:
    return ModeMeasurement(
        kind=ModeMeasurementKind(MEASUREMENT.word(message.kind, "kind")),
        workloads=tuple(message.workloads),
        device_type=message.device_type,
        mode=_MODE.word(message.mode, "mode"),
        **numbers(message, "expected_gain"),
    )
