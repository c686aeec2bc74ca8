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
from interfere.records import MatrixPrediction, Prediction, Source
from interfere.v1 import policy_pb2 as pb
from interfere.wire import cluster, explanations, grants, model, observations, plans, predictions, profiles
from interfere.wire.messages import MatrixAnswer, PairAnswer, Unreadable
from interfere.wire.mode_advice import converters
from tests.wire import strategies as some

PAIRS = {
    "kernel": (some.kernels, profiles.kernel_to_proto, profiles.kernel_from_proto),
    "profile": (some.profiles(), profiles.profile_to_proto, profiles.profile_from_proto),
    "ref": (some.refs, profiles.ref_to_proto, profiles.ref_from_proto),
    "summary": (some.summaries, profiles.summary_to_proto, profiles.summary_from_proto),
    "job": (some.jobs, cluster.job_to_proto, cluster.job_from_proto),
    "device": (some.devices, cluster.device_to_proto, cluster.device_from_proto),
    "limits": (some.limits, cluster.limits_to_proto, cluster.limits_from_proto),
    "snapshot": (some.snapshots, cluster.snapshot_to_proto, cluster.snapshot_from_proto),
    "rank_query": (some.rank_queries, cluster.rank_query_to_proto, cluster.rank_query_from_proto),
    "rank_answer": (some.rank_answers, cluster.rank_answer_to_proto, cluster.rank_answer_from_proto),
    "plan": (some.plans, plans.plan_to_proto, plans.plan_from_proto),
    "explain_query": (
        some.explain_queries,
        explanations.explain_query_to_proto,
        explanations.explain_query_from_proto,
    ),
    "explanation": (some.explanations, explanations.explanation_to_proto, explanations.explanation_from_proto),
    "pair_query": (some.pair_queries(), predictions.pair_query_to_proto, predictions.pair_query_from_proto),
    "matrix_query": (some.matrix_queries, predictions.matrix_query_to_proto, predictions.matrix_query_from_proto),
    "observation": (some.observations(), observations.observation_to_proto, observations.observation_from_proto),
    "answers": (some.answers, observations.answers_to_proto, observations.answers_from_proto),
    "grants": (some.grant_tables, grants.tables_to_proto, grants.tables_from_proto),
    "log": (some.logs, observations.log_to_proto, observations.log_from_proto),
    "mode_query": (some.mode_queries, converters.mode_query_to_proto, converters.mode_query_from_proto),
    "mode_advice": (some.mode_advice, converters.mode_advice_to_proto, converters.mode_advice_from_proto),
    "model": (some.models, model.model_to_proto, model.model_from_proto),
}
FROM_REQUEST = {
    pb.MatchRequest: cluster.snapshot_from_proto,
    pb.RankPlacementsRequest: cluster.rank_query_from_proto,
    pb.PredictSlowdownsRequest: predictions.pair_query_from_proto,
    pb.PredictMatrixRequest: predictions.matrix_query_from_proto,
    pb.AdviseModeRequest: converters.mode_query_from_proto,
    pb.ReportObservationsRequest: observations.report_from_proto,
    pb.JobProfile: profiles.profile_from_proto,
}


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


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_there_and_back(name: str, data: st.DataObject) -> None:
    strategy, to_proto, from_proto = PAIRS[name]
    record = data.draw(strategy)
    message = to_proto(record)
    sent = type(message).FromString(message.SerializeToString())
    assert same(from_proto(sent), record)


@pytest.mark.parametrize("kind", FROM_REQUEST, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_bytes_give_a_record_or_violations(kind: Any, data: st.DataObject) -> None:
    valid = {
        pb.MatchRequest: some.snapshots.map(cluster.snapshot_to_proto),
        pb.RankPlacementsRequest: some.rank_queries.map(cluster.rank_query_to_proto),
        pb.PredictSlowdownsRequest: some.pair_queries().map(predictions.pair_query_to_proto),
        pb.PredictMatrixRequest: some.matrix_queries.map(predictions.matrix_query_to_proto),
        pb.AdviseModeRequest: some.mode_queries.map(converters.mode_query_to_proto),
        pb.ReportObservationsRequest: st.lists(some.observations(), max_size=2).map(observations.report_to_proto),
        pb.JobProfile: some.profiles().map(profiles.profile_to_proto),
    }[kind]
    raw = bytearray(data.draw(valid).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):  # flip bytes of a valid message: most still parse
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = kind.FromString(bytes(raw))
    except DecodeError:
        return
    found: tuple[Violation, ...] | None = None
    try:
        FROM_REQUEST[kind](message)
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
        cluster.snapshot_from_proto(request)
    fields = [violation.field for violation in caught.value.violations]
    assert fields == [
        "pending[1].id",
        "pending[1].weight",
        "devices[0].residents[0].max_slowdown",
        "devices[0].mode",
        "limits.max_slowdown",
    ]


def test_a_request_with_only_jobs_and_devices_is_valid() -> None:
    snapshot = cluster.snapshot_from_proto(
        pb.MatchRequest(pending=[pb.Job(id="a", workload="w")], devices=[pb.Device(id="d", type="t")])
    )
    assert (snapshot.scope, snapshot.pending[0].weight, snapshot.devices[0].mode) == ("default", 1.0, "")
    assert snapshot.limits.max_devices is None
    assert len(snapshot.limits.allowed) == 3


def test_a_broken_observation_does_not_take_its_batch_along() -> None:
    good = pb.Progress(job_id="j", workload="w", device_type="t", start_s=0, end_s=1, steps=5)
    bad = pb.Progress(job_id="j", workload="w", device_type="t", start_s=0, end_s=1, steps=5, slowdown=2)
    read = observations.report_from_proto(
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
    message = predictions.matrix_answer_to_proto(answer)
    assert message.victim_slowdown[:4] == b"\x00\x00\x80\x3f"  # 1.0
    assert message.feasible == b"\x01\x00\x01"
    assert same(predictions.matrix_answer_from_proto(message), answer)
    message.victims = 2
    with pytest.raises(InvalidInputError, match="2 × 3"):
        predictions.matrix_answer_from_proto(message)


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
    message = predictions.pair_answer_to_proto(answer)
    assert not message.predictions[0].HasField("median")
    assert same(predictions.pair_answer_from_proto(message), answer)
    columnar = predictions.pair_answer_to_proto(answer, columnar=True)
    assert columnar.HasField("columns") == (not answer.further)
    assert same(predictions.pair_answer_from_proto(columnar), answer)


def test_a_decision_that_was_stored_before_there_were_rules_is_read() -> None:
    stored = pb.MatchResponse(
        actions=[pb.Action(kind=pb.ACTION_KIND_WAIT, job_id="a", reason="no device has a free seat")],
        refused=[pb.Refusal(job_id="a", partner_id="b", reason="memory: 50 GiB + 50 GiB > 80 GiB")],
        status=pb.SOLVE_STATUS_OPTIMAL,
    )
    plan = plans.plan_from_proto(pb.MatchResponse.FromString(stored.SerializeToString()))
    assert (plan.actions[0].rule, plan.refused[0].rule) == (None, None)
    assert (plan.actions[0].reason, plan.refused[0].reason) == (stored.actions[0].reason, stored.refused[0].reason)


def test_a_rule_of_a_kind_that_a_newer_server_added_leaves_its_reason() -> None:
    newer = pb.Refusal(job_id="a", partner_id="b", reason="a new rule", rule=pb.Rule(kind=9999, job_id="a"))
    refusal = plans.refusal_from_proto(newer)
    assert (refusal.rule, refusal.reason) == (None, "a new rule")
