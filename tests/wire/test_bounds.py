"""Bounds of requests: whatever is beyond is named with its path, and nothing is built of it."""

from typing import Any

import grpc
import pytest

from interfere.errors import InvalidInputError
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.bounds import MAX_TEXT, MAX_VIOLATIONS, check_bounds
from tests.cpu_time import cpu_s
from tests.serving.conftest import model_folder, serve, server, settings, stub

__all__ = ["model_folder", "serve", "server", "settings", "stub"]  # fixtures

LONG = "x" * (MAX_TEXT + 1)
DEVICE = pb.Device(id="d", type="t")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.PredictSlowdownsRequest(device_type=LONG), "device_type"),
        (pb.PredictSlowdownsRequest(jobs=[pb.JobRef(workload=LONG)]), "jobs[0].workload"),
        (pb.PredictSlowdownsRequest(pairs=[pb.OrderedPair(), pb.OrderedPair(further=[1] * 65)]), "pairs[1].further"),
        (pb.PredictMatrixRequest(victims=[pb.JobRef(workload="a")] * 20_001), "victims"),
        (pb.MatchRequest(scope=LONG), "scope"),
        (pb.MatchRequest(pending=[pb.Job(id="a", workload="w", pools=["p"] * 65)]), "pending[0].pools"),
        (pb.MatchRequest(pending=[pb.Job(id="a", workload="w", remaining_s=1e308)]), "pending[0].remaining_s"),
        (pb.MatchRequest(pending=[pb.Job(id="a", workload="w", remaining_p90_s=1e308)]), "pending[0].remaining_p90_s"),
        (pb.MatchRequest(pending=[pb.Job(id="a", workload="w", gpus=2**32 - 1)]), "pending[0].gpus"),
        (pb.MatchRequest(devices=[pb.Device(oversubscription_ratio=1e308)]), "devices[0].oversubscription_ratio"),
        (pb.MatchRequest(devices=[pb.Device(memory_bytes=1e15, granule_bytes=1.0)]), "devices[0].granule_bytes"),
        (pb.MatchRequest(devices=[pb.Device(windows=[pb.Window()] * 1_001)]), "devices[0].windows"),
        (pb.MatchRequest(now_s=1e200), "now_s"),
        (pb.RankPlacementsRequest(devices=[DEVICE] * 4_001), "devices"),
        (
            pb.RegisterProfilesRequest(profiles=[pb.JobProfile(kernels=[pb.KernelStat(name="k", mean_s=1e200)])]),
            "profiles[0].kernels[0].mean_s",
        ),
        (pb.Observation(progress=pb.Progress(company=["w"] * 65)), "progress.company"),
        (pb.Observation(observation_id="y" * 10**6), "observation_id"),
        (pb.Observation(progress=pb.Progress(reporter=LONG)), "progress.reporter"),
        (pb.Observation(progress=pb.Progress(campaign=LONG)), "progress.campaign"),
        (pb.Observation(memory_usage=pb.MemoryUsage(min_bytes=1e200)), "memory_usage.min_bytes"),
        (pb.Observation(memory_usage=pb.MemoryUsage(reporter=LONG)), "memory_usage.reporter"),
        (pb.Observation(rollback=pb.Rollback(reporter=LONG)), "rollback.reporter"),
        (pb.Observation(rollback=pb.Rollback(undoes=2**63)), "rollback.undoes"),
        (pb.Observation(reporter_weight=pb.ReporterWeight(weight=1e200)), "reporter_weight.weight"),
        (pb.Observation(reporter_weight=pb.ReporterWeight(reporter=LONG)), "reporter_weight.reporter"),
        (pb.Observation(reporter_weight=pb.ReporterWeight(reason=LONG)), "reporter_weight.reason"),
    ],
)
def test_what_is_beyond_a_bound_is_named(message: Any, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_bounds(message)
    assert [violation.field for violation in caught.value.violations] == [field]
    assert len(str(caught.value)) < 500


def test_what_is_within_passes_and_what_is_not_finite_is_left_to_others() -> None:
    check_bounds(
        pb.MatchRequest(
            pending=[pb.Job(id="x" * MAX_TEXT, workload="w", remaining_s=1e10, weight=float("nan"), gpus=8)],
            devices=[pb.Device(id="d", type="t", memory_bytes=8e10, granule_bytes=2.0**26, oversubscription_ratio=2.0)],
            now_s=1.7e9,
        )
    )


def test_violations_are_few_and_quick() -> None:
    wrong, right = (
        pb.MatchRequest(pending=[pb.Job(id=text, workload=text) for _ in range(10_000)]) for text in (LONG, "x")
    )

    def refused() -> None:
        with pytest.raises(InvalidInputError) as caught:
            check_bounds(wrong)
        assert MAX_VIOLATIONS <= len(caught.value.violations) <= MAX_VIOLATIONS + 2

    assert cpu_s(refused) <= 5.0 * cpu_s(lambda: check_bounds(right)), "10,000 wrong jobs, and 10,000 right ones"


def test_a_long_name_in_many_reasons_is_refused_before_they_are_built(server: RunningServer, stub: Any) -> None:
    """The 83 kB of this request once came back 19,740 times."""
    request = pb.PredictSlowdownsRequest(
        jobs=[pb.JobRef(workload=f"nobody{k}") for k in range(141)], device_type="t" * 80_000
    )
    with pytest.raises(grpc.RpcError) as caught:
        stub.PredictSlowdowns(request)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(error.details()) < 1000
    request.device_type = "t" * MAX_TEXT
    with grpc.insecure_channel(server.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        answer = rpc.PolicyServiceStub(channel).PredictSlowdowns(request, timeout=30.0)
    assert answer.ByteSize() < 10 * 2**20


def test_a_broken_observation_is_refused_alone_and_answered_briefly(stub: Any) -> None:
    good = pb.Observation(observation_id="good", rollback=pb.Rollback(reason="test"))
    huge = pb.Observation(observation_id="z" * 5_000_000, rollback=pb.Rollback(reason="test"))
    answer = stub.ReportObservations(pb.ReportObservationsRequest(observations=[huge, good]))
    assert [each.result for each in answer.answers] == [pb.OBSERVATION_RESULT_REJECTED, pb.OBSERVATION_RESULT_APPLIED]
    assert answer.ByteSize() < 3000
