"""A tiny published model folder with hand-made additive graphs, for tests that need a server but no training.

log slowdown = BASE + VICTIM[i] + NEIGHBOUR[j] + SLOPE · (victim's log step time), with 0 for an unknown workload.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.goldens import Golden, GoldenRequest, RequestKind, SlowdownRange, goldens_content
from interfere.predict.manifest import FORMAT, GOLDENS_FILE, content_version
from interfere.protocols import PairEncoder
from interfere.records import JobProfile
from interfere.records.documents import to_document
from interfere.sharing_modes import parse_sharing_mode

WORKLOADS = ("train", "infer", "gemm", "stream")
VICTIM = np.array([0.0, 0.30, 0.10, 0.20, 0.05])  # by identity; 0 is an unknown workload
NEIGHBOUR = np.array([0.0, 0.20, 0.05, 0.40, 0.10])
BASE, SLOPE = -0.05, 0.01
DEVICE_TYPE, MODE = "cpu-core", "timeslice"
STEP_TIME_S = {"train": 0.1, "infer": 0.01, "gemm": 0.05, "stream": 0.02}
MEASURED = {("train", "gemm"): 2.2}  # slowdown of the one measured pair
LEVELS = [0.01, 0.05, 0.5, 0.95, 0.99]
RESIDUALS = [-0.3, -0.2, 0.0, 0.2, 0.3]


def profile(workload: str, **facts: float) -> JobProfile:
    """The profile of a workload in the tiny model."""
    values = {"step_time_s": STEP_TIME_S.get(workload, 0.03), "busy_frac": 0.8, "memory_peak_bytes": 2.0**30} | facts
    return JobProfile(workload=workload, device_type=DEVICE_TYPE, source="cpu", **values)


def expected(victim: str, neighbour: str, step_time_s: float | None = None) -> float:
    """The slowdown that the graphs predict, computed independently of them."""
    i, j = (WORKLOADS.index(name) + 1 if name in WORKLOADS else 0 for name in (victim, neighbour))
    step = STEP_TIME_S.get(victim, 0.03) if step_time_s is None else step_time_s
    return float(np.exp(BASE + VICTIM[i] + NEIGHBOUR[j] + SLOPE * np.log(step)))


UNKNOWN = "unknown-to-training"


def goldens() -> bytes:
    """The file of golden requests, with the answers of the formula above: a list and a matrix."""
    names = (*WORKLOADS, UNKNOWN)
    jobs = (*WORKLOADS, profile(UNKNOWN))
    every = tuple(range(len(names)))
    place: dict[str, Any] = {"device_type": DEVICE_TYPE, "mode": parse_sharing_mode(MODE), "jobs": jobs}
    victims, neighbours = (tuple(side) for side in zip(*[(i, j) for i in every for j in every], strict=True))
    median = np.array([expected(names[i], names[j]) for i, j in zip(victims, neighbours, strict=True)])
    width = np.array([2.0 if len(WORKLOADS) in pair else 1.0 for pair in zip(victims, neighbours, strict=True)])
    of_list = {
        "median": median,
        "lower": median * np.exp(-0.2 * width),
        "upper": median * np.exp(0.2 * width),
        "feasibility": np.ones(len(median)),
        "abstains": np.zeros(len(median)),
    }
    listed = GoldenRequest(name="list", kind=RequestKind.PAIRS, victims=victims, neighbours=neighbours, **place)
    rows, columns = every[-3:], every[-4:]  # 16 distinct pairs: below every matrix limit of the tests
    matrix = GoldenRequest(name="matrix", kind=RequestKind.MATRIX, victims=rows, neighbours=columns, **place)
    square = median.reshape(len(names), -1)
    of_matrix = {"victim_slowdown": square[-3:, -4:].ravel(), "neighbour_slowdown": square.T[-3:, -4:].ravel()}
    made = (Golden(request=listed, expected=of_list), Golden(request=matrix, expected=of_matrix))
    return goldens_content(made, SlowdownRange(least=0.05, most=100.0))


def publish(folder: Path, *, encoder: PairEncoder | None = None, version: str = "0123456789ab") -> Path:
    """Write the folder, in format 2."""
    encoder = encoder or FeatureEncoder()
    folder.mkdir(parents=True, exist_ok=True)
    job_columns, pair_columns = len(encoder.job_names), len(encoder.pair_names)
    column = encoder.job_names.index("log_step_time_s")
    onnx.save(_with_fingerprint(_pair_graph(pair_columns, column), encoder.fingerprint), folder / "pair.onnx")
    onnx.save(_with_fingerprint(_matrix_graph(job_columns, column), encoder.fingerprint), folder / "matrix.onnx")
    profiles = [profile(name) for name in WORKLOADS]
    (folder / "profiles.json").write_text(json.dumps([to_document(profile) for profile in profiles]))
    (folder / "card.md").write_text("# A tiny model for tests\n")
    (folder / GOLDENS_FILE).write_bytes(goldens())
    names = [(WORKLOADS.index(v), WORKLOADS.index(n)) for v, n in MEASURED]
    slowdown = np.array(list(MEASURED.values()))
    np.savez(
        folder / "arrays.npz",
        features_0=encoder.encode_jobs(profiles, DEVICE_TYPE, MODE),
        partners=np.array([[0] + [4] * len(WORKLOADS)] * 2),
        measured_victim=np.array([v for v, _ in names], dtype=np.int64),
        measured_neighbour=np.array([n for _, n in names], dtype=np.int64),
        measured_domain=np.zeros(len(names), dtype=np.int64),
        measured_log=np.log(slowdown),
        measured_lower=slowdown * 0.9,
        measured_upper=slowdown * 1.1,
    )
    files = ("pair.onnx", "matrix.onnx", "arrays.npz", "profiles.json", "card.md", GOLDENS_FILE)
    manifest = {
        "format": 2,
        "model": "additive",
        "version": version,
        "created_at": "2026-01-01T00:00:00Z",
        "fingerprint": encoder.fingerprint,
        "job_features": encoder.job_names,
        "pair_features": encoder.pair_names,
        "workloads": WORKLOADS,
        "domains": [{"device_type": DEVICE_TYPE, "mode": MODE, "metric": "step_time_mean"}],
        "intervals": {
            "calibrated": False,
            "levels": LEVELS,
            "grids": [[[width * residual for residual in RESIDUALS]] * 2 for width in (2, 1.5, 1)],
        },
        "feasibility": None,
        "scores": {"pair": {"additive": {"mae": 0.05, "rows": 16}}},
        "matrix_model": "additive",
        "matrix_mae_vs_pair": 0.0,
        "trained_on": [{"table": "tiny", "rows": 16, "sha256": "0" * 64}],
        "files": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    return folder


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Add a file to a published folder, and to its manifest."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def reseal(folder: Path) -> None:
    """Make the hashes of all files of an edited folder right, and the version of a folder of the present format."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        if (folder / name).is_file():
            manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    if manifest["format"] == FORMAT:
        manifest["version"] = content_version(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def _weights() -> list[onnx.TensorProto]:
    return [
        numpy_helper.from_array(VICTIM.astype(np.float32), "victim_effect"),
        numpy_helper.from_array(NEIGHBOUR.astype(np.float32), "neighbour_effect"),
        numpy_helper.from_array(np.float32(BASE).reshape(1), "base"),
        numpy_helper.from_array(np.float32(SLOPE).reshape(1), "slope"),
    ]


def _index(column: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(column, dtype=np.int64), "column")


def _pair_graph(pair_columns: int, column: int) -> onnx.GraphProto:
    """The victim's block comes first in a pair row, so its columns have the indices of the job row."""
    nodes = [
        helper.make_node("Gather", ["victim_effect", "victim"], ["v"]),
        helper.make_node("Gather", ["neighbour_effect", "neighbour"], ["n"]),
        helper.make_node("Gather", ["pairs", "column"], ["step"], axis=1),
        helper.make_node("Mul", ["step", "slope"], ["s"]),
        helper.make_node("Sum", ["v", "n", "s", "base"], ["log_slowdown"]),
    ]
    inputs = [
        helper.make_tensor_value_info("pairs", TensorProto.FLOAT, ["p", pair_columns]),
        helper.make_tensor_value_info("victim", TensorProto.INT64, ["p"]),
        helper.make_tensor_value_info("neighbour", TensorProto.INT64, ["p"]),
    ]
    outputs = [helper.make_tensor_value_info("log_slowdown", TensorProto.FLOAT, ["p"])]
    return helper.make_graph(nodes, "pair", inputs, outputs, [*_weights(), _index(column)])


def _matrix_graph(job_columns: int, column: int) -> onnx.GraphProto:
    def effect(ids: str, rows: str, table: str, out: str, axis: int, *, with_step: bool) -> list[onnx.NodeProto]:
        nodes = [helper.make_node("Gather", [table, ids], [f"{out}_e"])]
        if with_step:
            nodes += [
                helper.make_node("Gather", [rows, "column"], [f"{out}_c"], axis=1),
                helper.make_node("Mul", [f"{out}_c", "slope"], [f"{out}_s"]),
                helper.make_node("Sum", [f"{out}_e", f"{out}_s", "base"], [f"{out}_t"]),
            ]
        return [*nodes, helper.make_node("Unsqueeze", [f"{out}_t" if with_step else f"{out}_e", f"axis{axis}"], [out])]

    nodes = [
        *effect("victim_id", "victims", "victim_effect", "rows_as_victim", 1, with_step=True),
        *effect("neighbour_id", "neighbours", "neighbour_effect", "columns_as_neighbour", 0, with_step=False),
        *effect("neighbour_id", "neighbours", "victim_effect", "columns_as_victim", 0, with_step=True),
        *effect("victim_id", "victims", "neighbour_effect", "rows_as_neighbour", 1, with_step=False),
        helper.make_node("Add", ["rows_as_victim", "columns_as_neighbour"], ["log_victim"]),
        helper.make_node("Add", ["columns_as_victim", "rows_as_neighbour"], ["log_neighbour"]),
    ]
    inputs = [
        helper.make_tensor_value_info("victims", TensorProto.FLOAT, ["v", job_columns]),
        helper.make_tensor_value_info("victim_id", TensorProto.INT64, ["v"]),
        helper.make_tensor_value_info("neighbours", TensorProto.FLOAT, ["n", job_columns]),
        helper.make_tensor_value_info("neighbour_id", TensorProto.INT64, ["n"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["v", "n"]) for name in ("log_victim", "log_neighbour")
    ]
    axes = [numpy_helper.from_array(np.array([k], dtype=np.int64), f"axis{k}") for k in (0, 1)]
    return helper.make_graph(nodes, "matrix", inputs, outputs, [*_weights(), _index(column), *axes])


def _with_fingerprint(graph: onnx.GraphProto, fingerprint: str) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"fingerprint": fingerprint})
    onnx.checker.check_model(model, full_check=True)
    return model
