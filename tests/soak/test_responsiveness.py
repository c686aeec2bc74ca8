"""Predictions and health beside heavy decisions: their 99 % quantile stays within three times that of no load."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interfere.client import PolicyClient
from interfere.records import Device, Job, Limits, ObjectiveKind, Snapshot
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.converter import to_proto
from tests.soak.processes import serving_with

LONG = "SOAK_ROUNDS" in os.environ  # make soak
SECONDS, RATE = (30.0 if LONG else 4.0), 50.0
MAX_RATIO = 3.0
HEALTH = health_pb2.HealthCheckRequest()


def cluster(names: tuple[str, ...], device_type: str, jobs: int, devices: int, **given: Any) -> pb.MatchRequest:
    """So many waiting jobs on so many devices, nine of ten of them busy."""
    return to_proto(
        Snapshot(
            pending=tuple(
                Job(id=f"j{k}", workload=names[k % len(names)], remaining_s=10 + 7.3 * k, weight=1 + k / 7)
                for k in range(jobs)
            ),
            devices=tuple(
                Device(
                    id=f"d{k}",
                    type=device_type,
                    residents=(Job(id=f"r{k}", workload=names[3 * k % len(names)], remaining_s=100.0 + k),)
                    * (k % 10 > 0),
                )
                for k in range(devices)
            ),
            **given,
        ),
        pb.MatchRequest,
    )


def quantiles_ms(address: str, names: tuple[str, ...], seconds: float) -> dict[str, float]:
    """99 % quantiles of predictions and health checks at `RATE` a second."""
    request = pb.PredictSlowdownsRequest(
        jobs=[pb.JobRef(workload=name) for name in names[:2]], pairs=[pb.OrderedPair(victim=0, neighbour=1)]
    )
    predictions, checks = [], []
    with grpc.insecure_channel(address) as channel:
        stub, health = rpc.PolicyServiceStub(channel), health_pb2_grpc.HealthStub(channel)
        for _ in range(20):
            stub.PredictSlowdowns(request)
            health.Check(HEALTH)
        begin_s = time.perf_counter()
        for k in range(int(seconds * RATE)):
            time.sleep(max(0.0, begin_s + k / RATE - time.perf_counter()))
            for call, times in (
                (lambda: stub.PredictSlowdowns(request), predictions),
                (lambda: health.Check(HEALTH), checks),
            ):
                start_s = time.perf_counter()
                call()
                times.append(time.perf_counter() - start_s)
    return {
        "prediction": float(np.quantile(predictions, 0.99)) * 1e3,
        "health": float(np.quantile(checks, 0.99)) * 1e3,
    }


def test_decisions_take_nothing_from_predictions(tmp_path: Path) -> None:
    over, decided = threading.Event(), {"large": 0, "makespan": 0}
    with serving_with(tmp_path, slow_call_s=60) as served:
        with PolicyClient(served.address) as client:
            info = client.model()
            names, device_type = info.workloads, info.domains[0].device_type
        requests = {
            "large": cluster(names, device_type, 300, 1000, scope="large"),
            "makespan": cluster(
                names,
                device_type,
                300,
                300,
                scope="makespan",
                objective=ObjectiveKind.MAKESPAN,
                limits=Limits.of(time_budget_s=10.0),
            ),
        }

        def decide(name: str) -> None:
            with grpc.insecure_channel(served.address) as channel:
                stub = rpc.PolicyServiceStub(channel)
                while not over.is_set():
                    stub.Match(requests[name], timeout=120.0)
                    decided[name] += 1

        idle = quantiles_ms(served.address, names, SECONDS)
        threads = [threading.Thread(target=decide, args=(name,), daemon=True) for name in requests]
        for thread in threads:
            thread.start()
        time.sleep(2.0)  # the workers are ready, and compute
        busy = quantiles_ms(served.address, names, SECONDS)
        over.set()
        print(f"idle {idle}, busy {busy} ms, decided {decided}")
        for thread in threads:
            thread.join()  # a server that computes is ended by force after its grace
    if LONG:
        assert all(busy[name] <= MAX_RATIO * idle[name] for name in busy)
