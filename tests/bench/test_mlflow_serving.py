"""One prediction and 64, beside `mlflow models serve` of the same model with its signature, over loopback in one run.

Both sides go from values in memory to values in memory. Ours: the server with its default settings, known callers and
fairness; `PolicyClient` sends a token, names jobs and gets medians with intervals, feasibility and sources; the server
looks up profiles and encodes them. MLflow, one worker: `requests.post(url, json=...)` as its documentation calls a
server, with rows that were encoded before and are not counted, and medians alone come back; and its fastest caller, see
`mlflow_callers`. The calls take turns. Times depend on what else the machine does, so the processor time of either
server with all its processes is told too: it is what the ratios `..._cpu` compare.

`empty_call` is a call to a server of gRPC's library in Python whose method does nothing: no server in Python answers
for less. `test_protections` tells what the server's own protections add to it.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import psutil
import pytest
import requests
from numpy.typing import NDArray

from interfere.client import PolicyClient
from interfere.client.connections import Credentials
from interfere.config import SHIPPED_MODEL
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import Domain
from interfere.predict.onnx import load_model
from interfere.records import JobProfile
from interfere.serving.calls.interceptor import SERVICE
from tests.bench.call_server import METHOD
from tests.bench.history import record
from tests.bench.processor_time import quiet_s, server_cpu_s
from tests.bench.test_protections import call_server, token_of_new_caller
from tests.soak.processes import serving_with

pytestmark = pytest.mark.bench
PATIENCE_S = 120
ROUNDS, CALLS = 20, 20
ServedByMlflow = tuple[str, psutil.Process]
"""Address and process of `mlflow models serve`."""


@pytest.fixture(scope="module", params=["default threads", "one thread"])
def mlflow_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedByMlflow]:
    """The shipped pair graph as an MLflow model with its signature, served: as MLflow saves it, or with one thread."""
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    folder = tmp_path_factory.mktemp("mlflow")
    graph = onnx.load(SHIPPED_MODEL / "pair.onnx")
    kinds = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.INT64: np.int64}
    inputs = Schema(
        [
            TensorSpec(
                np.dtype(kinds[value.type.tensor_type.elem_type]),
                (-1, *[len(FeatureEncoder().pair_names)] * (len(value.type.tensor_type.shape.dim) - 1)),
                value.name,
            )
            for value in graph.graph.input
        ]
    )
    outputs = Schema([TensorSpec(np.dtype(np.float32), (-1,), "log_slowdown")])
    mlflow.onnx.save_model(
        graph,
        folder / "model",
        signature=ModelSignature(inputs=inputs, outputs=outputs),
        pip_requirements=["onnxruntime", "numpy"],
        save_as_external_data=False,
        onnx_session_options={"intra_op_num_threads": 1} if request.param == "one thread" else None,
    )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(Path(sys.executable).parent / "mlflow"), "models", "serve", "-m", str(folder / "model")]
    command += ["--env-manager", "local", "-h", "127.0.0.1", "-p", str(port), "-w", "1"]
    with (folder / "log").open("w") as log:
        started = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while True:
                assert started.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline_s, (folder / "log").read_text()
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.3)
            yield f"127.0.0.1:{port}", psutil.Process(started.pid)
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait(20)


def encoded_inputs(
    profiles: Sequence[JobProfile],
    identities: NDArray[np.int64],
    domain: Domain,
    victim: NDArray[np.int64],
    neighbour: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """What the pair graph reads for these pairs of jobs, by the names of its inputs."""
    encoder = FeatureEncoder()
    encoded = encoder.encode_jobs(profiles, domain.device_type, domain.mode)
    feeds = {
        "pairs": np.nan_to_num(encoder.encode_pairs(encoded[victim], encoded[neighbour])),
        "victim": identities[victim],
        "neighbour": identities[neighbour],
        "domain": np.ones(len(victim), dtype=np.int64),
    }
    return {value.name: feeds[value.name] for value in onnx.load(SHIPPED_MODEL / "pair.onnx").graph.input}


def mlflow_callers(address: str, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Callable[[], object]]:
    """MLflow asked as its documentation does, from arrays to numbers; and by its fastest caller: one connection that
    stays open, a body that was made before, an answer that nobody reads."""
    url, headers = f"http://{address}/invocations", {"Content-Type": "application/json"}
    body = json.dumps({"inputs": {name: values.tolist() for name, values in inputs.items()}})
    connection = http.client.HTTPConnection(address, timeout=30)

    def documented() -> object:
        answer = requests.post(
            url, json={"inputs": {name: values.tolist() for name, values in inputs.items()}}, timeout=30
        )
        return np.array(answer.json()["predictions"]["log_slowdown"])

    def fastest() -> None:
        connection.request("POST", "/invocations", body, headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content

    return {"mlflow": documented, "mlflow_fastest": fastest}


@pytest.mark.parametrize("rows", [1, 64])
def test_beside_mlflow(
    mlflow_server: ServedByMlflow, request: pytest.FixtureRequest, tmp_path: Path, rows: int
) -> None:
    mlflow_address, mlflow_process = mlflow_server
    model = load_model(SHIPPED_MODEL, FeatureEncoder())
    domain = model.manifest.domains[0]
    ends = np.random.default_rng(0).integers(0, len(model.manifest.workloads), (2, rows))
    used, ends = np.unique(ends, return_inverse=True)  # a request names the jobs of its pairs
    names, (victim, neighbour) = [model.manifest.workloads[k] for k in used], ends.reshape(2, rows)
    pairs = list(zip(victim.tolist(), neighbour.tolist(), strict=True))
    profiles = [model.profiles[name, domain.device_type] for name in names]
    new = [replace(profile, workload=f"new-{profile.workload}") for profile in profiles]
    callers, token = token_of_new_caller(tmp_path)
    with (
        serving_with(tmp_path, model=SHIPPED_MODEL, callers=callers) as served,
        PolicyClient(served.address, credentials=Credentials(token_file=token)) as client,
        call_server("plain") as (plain_pid, plain_address),
        grpc.insecure_channel(plain_address) as plain,
    ):
        client.register_profiles(new)
        empty = plain.unary_unary(f"/{SERVICE}/{METHOD}")
        ours: dict[str, Callable[[], object]] = {
            "measured": lambda: client.predict(names, pairs=pairs),
            "unmeasured": lambda: client.predict([job.workload for job in new], pairs=pairs, allow_extrapolation=True),
        }
        theirs = mlflow_callers(mlflow_address, encoded_inputs(profiles, used + 1, domain, victim, neighbour))
        cpu_s, times_s = server_cpu_s(
            {name: (served.process.pid, call) for name, call in ours.items()}
            | {"empty_call": (plain_pid, lambda: empty(b""))}
            | {name: (mlflow_process.pid, call) for name, call in theirs.items()},
            rounds=ROUNDS,
            calls_of_round=CALLS,
        )
    p50_s = {name: float(np.quantile(each, 0.5)) for name, each in times_s.items()}
    cpu_per_call_s = {name: quiet_s(each) for name, each in cpu_s.items()}
    ratios = {
        f"{theirs}_to_{ours}{suffix}": by_name[theirs] / by_name[ours]
        for ours in ("measured", "unmeasured", "empty_call")
        for theirs in ("mlflow", "mlflow_fastest")
        for suffix, by_name in (("", p50_s), ("_cpu", cpu_per_call_s))
    }
    threads = request.node.callspec.params["mlflow_server"]
    print(f"{rows} rows, MLflow with {threads}, load {os.getloadavg()[0]:.1f}")
    for name, value in p50_s.items():
        print(f"  {name}: p50 {1e3 * value:.2f} ms, server CPU {1e3 * cpu_per_call_s[name]:.2f} ms")
    print("  ", ", ".join(f"{name} {value:.1f} x" for name, value in ratios.items()))
    figures = p50_s | {f"{name}_cpu": value for name, value in cpu_per_call_s.items()} | ratios
    record(f"serving beside mlflow, {threads}, {rows} rows", figures)
    assert cpu_per_call_s["measured"] < cpu_per_call_s["mlflow"]
