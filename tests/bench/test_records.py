"""What it costs to convert records: a snapshot of 12,500 devices, and a prediction of 64 pairs, to protobuf and back.

The reference is the least that any converter has to do: make the records themselves, and serialize and parse the bytes.
"""

import gc
import time
from collections.abc import Callable

import numpy as np
import pytest

from interfere.records import Device, Job, JobRef, PairAnswer, PairQuery, Prediction, Snapshot, Source
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, pair_answer_to_proto, to_proto
from tests.bench.history import record

pytestmark = pytest.mark.bench
MAX_RATIO_SNAPSHOT = 3.5  # 2.2 to 2.9 on a busy machine; converters written by hand took 1.45 times as much
MAX_RATIO_PREDICTION = 8.0  # 4.7 to 5.6; converters written by hand took as much


def cpu_s(work: Callable[[], object], repeats: int = 7) -> float:
    """The least CPU time of several calls."""
    times = []
    for _ in range(repeats):
        gc.collect()
        start_s = time.process_time()
        work()
        times.append(time.process_time() - start_s)
    return min(times)


def devices() -> tuple[Device, ...]:
    """None, one or two residents each, in turn."""
    return tuple(
        Device(
            id=f"d{k}",
            type="a100",
            node=f"n{k // 8}",
            memory_bytes=80e9,
            residents=tuple(
                Job(id=f"r{k}-{i}", workload=f"w{(k + i) % 40}", remaining_s=100.0 + k, attained_s=5.0, since_s=10.0)
                for i in range(k % 3)
            ),
        )
        for k in range(12_500)
    )


def test_a_snapshot_of_many_devices() -> None:
    snapshot = Snapshot(pending=(), devices=devices(), now_s=1000.0)
    content = to_proto(snapshot, pb.MatchRequest).SerializeToString()

    def least() -> None:
        devices()
        pb.MatchRequest.FromString(content).SerializeToString()

    def convert() -> Snapshot:
        sent = to_proto(snapshot, pb.MatchRequest).SerializeToString()
        return from_proto(Snapshot, pb.MatchRequest.FromString(sent))

    assert convert() == snapshot
    ratio = cpu_s(convert) / cpu_s(least)
    record("convert_snapshot", {"cpu_ratio": ratio})
    assert ratio <= MAX_RATIO_SNAPSHOT


def test_a_prediction_of_64_pairs() -> None:
    n = 64
    query = PairQuery(
        jobs=tuple(JobRef(workload=f"w{k}") for k in range(n)), pairs=tuple((k, (k + 1) % n) for k in range(n))
    )
    numbers = {name: np.linspace(1.0, 2.0, n) for name in ("median", "lower", "upper", "feasibility")}
    prediction = Prediction(source=(Source.MODEL,) * n, reason=("",) * n, **numbers)
    places = np.arange(n)
    answer = PairAnswer(victim=places, neighbour=places, prediction=prediction, model_version="v", device_type="t")
    content = to_proto(query, pb.PredictSlowdownsRequest).SerializeToString()

    def least() -> None:
        for _ in range(100):
            tuple(JobRef(workload=f"w{k}") for k in range(n))
            pb.PredictSlowdownsRequest.FromString(content).SerializeToString()

    def convert() -> None:
        for _ in range(100):
            sent = to_proto(query, pb.PredictSlowdownsRequest).SerializeToString()
            from_proto(PairQuery, pb.PredictSlowdownsRequest.FromString(sent))
            answered = pair_answer_to_proto(answer, columnar=True).SerializeToString()
            from_proto(PairAnswer, pb.PredictSlowdownsResponse.FromString(answered))

    ratio = cpu_s(convert) / cpu_s(least)
    record("convert_prediction", {"cpu_ratio": ratio})
    assert ratio <= MAX_RATIO_PREDICTION
