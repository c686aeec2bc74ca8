"""Laws of conversion: nothing is lost both ways, and whatever arrives is a valid record or named violations."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError, Violation
from interfere.records import (
    DecisionList,
    Device,
    ExplainQuery,
    Explanation,
    GrantTables,
    Job,
    JobProfile,
    JobRef,
    KernelStat,
    Limits,
    MatrixAnswer,
    MatrixPrediction,
    MatrixQuery,
    ModeAdvice,
    ModelChange,
    ModelInfo,
    ModeQuery,
    ObservationAnswer,
    ObservationLog,
    PairAnswer,
    PairQuery,
    Plan,
    Prediction,
    ProbeAnswer,
    ProbeQuery,
    ProfileSummary,
    Progress,
    RankAnswer,
    RankQuery,
    Refusal,
    ScopeList,
    ScopeQuery,
    ScopeState,
    ServedModels,
    Snapshot,
    Source,
    Unreadable,
)
from interfere.records.record import fields_of
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, pair_answer_to_proto, report_from_proto, to_proto
from tests.wire import strategies as some

MESSAGES: dict[type, tuple[Any, type]] = {
    KernelStat: (some.kernels, pb.KernelStat),
    JobProfile: (some.profiles(), pb.JobProfile),
    JobRef: (some.refs, pb.JobRef),
    ProfileSummary: (some.summaries, pb.ProfileSummary),
    Job: (some.jobs, pb.Job),
    Device: (some.devices, pb.Device),
    Limits: (some.limits, pb.Limits),
    Snapshot: (some.snapshots, pb.MatchRequest),
    RankQuery: (some.rank_queries, pb.RankPlacementsRequest),
    RankAnswer: (some.rank_answers, pb.RankPlacementsResponse),
    Plan: (some.plans, pb.MatchResponse),
    ExplainQuery: (some.explain_queries, pb.ExplainRequest),
    Explanation: (some.explanations, pb.ExplainResponse),
    PairQuery: (some.pair_queries(), pb.PredictSlowdownsRequest),
    MatrixQuery: (some.matrix_queries, pb.PredictMatrixRequest),
    Progress: (some.observations(), pb.Observation),  # of every kind
    ObservationAnswer: (some.answers, pb.ObservationAnswer),
    DecisionList: (some.decision_lists, pb.ListDecisionsResponse),
    ScopeList: (some.scope_lists, pb.ListScopesResponse),
    ScopeQuery: (some.scope_queries, pb.GetScopeRequest),
    ScopeState: (some.scope_states, pb.GetScopeResponse),
    GrantTables: (some.grant_tables, pb.ListGrantsResponse),
    ObservationLog: (some.logs, pb.GetObservationLogResponse),
    ModeQuery: (some.mode_queries, pb.AdviseModeRequest),
    ModeAdvice: (some.mode_advice, pb.AdviseModeResponse),
    ProbeQuery: (some.probe_queries, pb.SuggestProbesRequest),
    ProbeAnswer: (some.probe_answers, pb.SuggestProbesResponse),
    ModelInfo: (some.models, pb.GetModelResponse),
    ServedModels: (some.served_models, pb.ListModelsResponse),
    ModelChange: (some.model_changes, pb.LoadModelResponse),
}
REQUESTS = [Snapshot, RankQuery, PairQuery, MatrixQuery, ModeQuery, ProbeQuery, JobProfile]


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to NaN."""
    if dataclasses.is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left)
        )
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    both_nan = isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right)
    return both_nan or left == right


@pytest.mark.parametrize("record_type", MESSAGES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_there_and_back(record_type: type, data: st.DataObject) -> None:
    strategy, message_type = MESSAGES[record_type]
    record = data.draw(strategy)
    message = to_proto(record, message_type)
    sent = type(message).FromString(message.SerializeToString())
    assert same(from_proto(record_type, sent), record)


# Fields of messages that are none of their records: the servicer, or a converter of arrays, reads them.
OUTSIDE = {
    "MatchRequest.validate_only",
    "MatchRequest.times",
    "MatchRequest.delta",
    "MatchResponse.base_id",
    "PredictSlowdownsRequest.columnar",
}


@pytest.mark.parametrize(
    "record_type", [kind for kind in MESSAGES if kind is not Progress], ids=lambda kind: kind.__name__
)
def test_the_fields_of_a_record_are_those_of_its_message(record_type: type) -> None:
    message = MESSAGES[record_type][1].DESCRIPTOR
    unread = {f"{message.name}.{name}" for name in message.fields_by_name} - OUTSIDE
    assert unread == {f"{message.name}.{each.name}" for each in fields_of(record_type)}


@pytest.mark.parametrize("kind", [*REQUESTS, Progress], ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_a_record_or_violations(kind: Any, data: st.DataObject) -> None:
    strategy, message_type = MESSAGES[kind]
    valid = strategy.map(lambda record: to_proto(record, message_type))
    raw = bytearray(data.draw(valid).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):  # flip bytes of a valid message: most still parse
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = message_type.FromString(bytes(raw))
    except DecodeError:
        return
    found: tuple[Violation, ...] | None = None
    try:
        report_from_proto(pb.ReportObservationsRequest(observations=[message])) if kind is Progress else from_proto(
            kind, message
        )
    except InvalidInputError as error:
        found = error.violations
    assert found is None or found
    assert all(violation.field and violation.what and violation.remedy for violation in found or ())


def test_every_violation_has_its_path() -> None:
    request = pb.MatchRequest(
        pending=[pb.Job(id="a", workload="w"), pb.Job(id="", workload="w", weight=-1.0)],
        devices=[
            pb.Device(id="d", type="t", mode=99, residents=[pb.Job(id="b", workload="w", max_slowdown=float("nan"))])
        ],
        limits=pb.Limits(max_slowdown=0.5),
    )
    with pytest.raises(InvalidInputError) as caught:
        from_proto(Snapshot, request)
    fields = [violation.field for violation in caught.value.violations]
    assert fields == [
        "pending[1].id",
        "pending[1].weight",
        "devices[0].residents[0].max_slowdown",
        "devices[0].mode",
        "limits.max_slowdown",
    ]


def test_a_request_with_only_jobs_and_devices_is_valid() -> None:
    snapshot = from_proto(
        Snapshot, pb.MatchRequest(pending=[pb.Job(id="a", workload="w")], devices=[pb.Device(id="d", type="t")])
    )
    assert (snapshot.scope, snapshot.pending[0].weight, snapshot.devices[0].mode) == ("default", 1.0, "")
    assert snapshot.limits.max_devices is None
    assert len(snapshot.limits.allowed) == 3


def test_a_broken_observation_does_not_take_its_batch_along() -> None:
    good = pb.Progress(job_id="j", workload="w", device_type="t", start_s=0, end_s=1, steps=5)
    bad = pb.Progress(job_id="j", workload="w", device_type="t", start_s=0, end_s=1, steps=5, slowdown=2)
    read = report_from_proto(
        pb.ReportObservationsRequest(
            observations=[
                pb.Observation(observation_id="1", progress=good),
                pb.Observation(observation_id="2", progress=bad),
                pb.Observation(observation_id="3"),
            ]
        )
    )
    assert [type(one).__name__ for one in read] == ["Progress", "Unreadable", "Unreadable"]
    assert isinstance(read[1], Unreadable)
    assert "observations[1]: progress.steps: give exactly one of steps and slowdown" in read[1].reason


def test_matrices_travel_as_little_endian_bytes() -> None:
    matrix = MatrixPrediction(
        victim_slowdown=np.array([[1.0, 2.0, 3.0]], dtype=np.float32),
        neighbour_slowdown=np.array([[4.0, 5.0, 6.0]], dtype=np.float32),
        feasible=np.array([[1, 0, 1]], dtype=np.uint8),
    )
    answer = MatrixAnswer(matrix=matrix, model_version="v", device_type="t")
    message = to_proto(answer, pb.PredictMatrixResponse)
    assert message.victim_slowdown[:4] == b"\x00\x00\x80\x3f"  # 1.0
    assert message.feasible == b"\x01\x00\x01"
    assert same(from_proto(MatrixAnswer, message), answer)
    message.victims = 2
    with pytest.raises(InvalidInputError, match="2 × 3"):
        from_proto(MatrixAnswer, message)


def test_absent_numbers_are_not_sent() -> None:
    absent = np.array([np.nan])
    answer = PairAnswer(
        victim=np.array([0]),
        neighbour=np.array([1]),
        model_version="v",
        device_type="t",
        prediction=Prediction(
            median=absent, lower=absent, upper=absent, feasibility=absent, source=(Source.ABSTAINED,), reason=("why",)
        ),
    )
    message = to_proto(answer, pb.PredictSlowdownsResponse)
    assert not message.predictions[0].HasField("median")
    assert same(from_proto(PairAnswer, message), answer)
    columnar = pair_answer_to_proto(answer, columnar=True)
    assert columnar.HasField("columns") == (not answer.further)
    assert same(from_proto(PairAnswer, columnar), answer)


def test_a_decision_that_was_stored_before_there_were_rules_is_read() -> None:
    stored = pb.MatchResponse(
        actions=[pb.Action(kind=pb.ACTION_KIND_WAIT, job_id="a", reason="no device has a free seat")],
        refused=[pb.Refusal(job_id="a", partner_id="b", reason="memory: 50 GiB + 50 GiB > 80 GiB")],
        status=pb.SOLVE_STATUS_OPTIMAL,
    )
    plan = from_proto(Plan, pb.MatchResponse.FromString(stored.SerializeToString()))
    assert (plan.actions[0].rule, plan.refused[0].rule) == (None, None)
    assert (plan.actions[0].reason, plan.refused[0].reason) == (stored.actions[0].reason, stored.refused[0].reason)


def test_a_rule_of_a_kind_that_a_newer_server_added_leaves_its_reason() -> None:
    newer = pb.Refusal(job_id="a", partner_id="b", reason="a new rule", rule=pb.Rule(kind=9999, job_id="a"))
    refusal = from_proto(Refusal, newer)
    assert (refusal.rule, refusal.reason) == (None, "a new rule")
