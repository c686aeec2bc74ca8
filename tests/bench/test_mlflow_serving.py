"""One prediction and 64, beside `mlflow models serve` of the same model with its signature, over loopback in one run.

MLflow gets encoded rows: what a caller without this server would have to make by itself. Beyond these ratios lies the
cost of one gRPC call from Python, a third of a millisecond on either side: 20 × would need a client that keeps a stream
of calls open, or that asks for several jobs at once (PredictMatrix, 64 rows of PredictSlowdowns).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from features.pair import FeatureEncoder
from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.predict.onnx import load_model
from serving.server import SHIPPED, start_server
from tests.bench.history import record, times_s

pytestmark = pytest.mark.bench
PATIENCE_S = 120


@pytest.fixture(scope="module")
def mlflow_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The shipped pair graph as an MLflow model with its signature, served."""
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    folder = tmp_path_factory.mktemp("mlflow")
    graph = onnx.load(SHIPPED / "pair.onnx")
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
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait(20)


@pytest.mark.parametrize("rows", [1, 64])
def test_beside_mlflow(mlflow_address: str, tmp_path: Path, rows: int) -> None:
    import http.client

    encoder = FeatureEncoder()
    model = load_model(SHIPPED, encoder)
    names = list(model.manifest.workloads)
    domain = model.manifest.domains[0]
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(names), rows), rng.integers(0, len(names), rows)
    profiles = [model.profiles[name, domain.device_type] for name in names]
    encoded = encoder.encode_jobs(profiles, domain.device_type, domain.mode)
    feeds = {
        "pairs": encoder.encode_pairs(encoded[i], encoded[j]),
        "victim": i + 1,
        "neighbour": j + 1,
        "domain": np.ones(rows, dtype=np.int64),
    }
    graph = onnx.load(SHIPPED / "pair.onnx")
    wanted = [value.name for value in graph.graph.input]
    body = json.dumps({"inputs": {name: np.nan_to_num(feeds[name]).tolist() for name in wanted}})
    connection = http.client.HTTPConnection(mlflow_address, timeout=30)

    def ask_mlflow() -> None:
        connection.request("POST", "/invocations", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content

    server = start_server(Settings(model=SHIPPED, work=tmp_path / "work", port=0, decision_workers=0))
    try:
        with PolicyClient(server.address) as client:
            pairs = list(zip(i.tolist(), j.tolist(), strict=True))
            ours = times_s(lambda: client.predict(names, pairs=pairs), 400)
            unmeasured = [replace(profile, workload=f"new-{profile.workload}") for profile in profiles]
            client.register_profiles(unmeasured)
            new = [profile.workload for profile in unmeasured]
            by_model = times_s(lambda: client.predict(new, pairs=pairs, allow_extrapolation=True), 400)
        theirs = times_s(ask_mlflow, 100)
    finally:
        server.stop()
    figures = {
        "p50_s": float(np.quantile(ours, 0.5)),
        "unmeasured_p50_s": float(np.quantile(by_model, 0.5)),
        "mlflow_p50_s": float(np.quantile(theirs, 0.5)),
    }
    ratios = {
        "times_faster": figures["mlflow_p50_s"] / figures["p50_s"],
        "unmeasured_times_faster": figures["mlflow_p50_s"] / figures["unmeasured_p50_s"],
    }
    print(rows, figures, ratios)
    record(f"serving beside mlflow {rows} rows", figures | ratios)
