"""Bad models: edits of a published folder whose hashes and version are made right afterwards."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from interfere.config import SHIPPED_GPU_MODEL
from interfere.features.pair import FeatureEncoder
from interfere.predict.manifest import PROFILES_FILE, profiles_content, shipped_profiles
from interfere.records import JobProfile
from tests.models import reseal

Edit = Callable[[Path], None]
JOB, PAIR = len(FeatureEncoder().job_names), len(FeatureEncoder().pair_names)
"""Columns of a job and of a pair, which begins with the columns of victim and neighbour."""


def read(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return manifest


def write(folder: Path, manifest: Mapping[str, Any]) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def edit_arrays(folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    with np.load(folder / "arrays.npz") as arrays:
        content = dict(arrays)
    change(content)
    np.savez_compressed(folder / "arrays.npz", **content)


def edit_graph(folder: Path, name: str, change: Callable[[onnx.GraphProto], None]) -> None:
    model = onnx.load(folder / name)
    change(model.graph)
    onnx.save(model, folder / name)


def constants(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """The float constants of a graph, the largest first."""
    floats = [tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    return sorted(floats, key=lambda tensor: -int(np.prod(tensor.dims)))


def set_constant(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))


def nan_weights(name: str) -> Edit:
    def change(graph: onnx.GraphProto) -> None:
        for tensor in constants(graph):
            set_constant(tensor, np.full(tuple(tensor.dims), np.nan))

    return lambda folder: edit_graph(folder, name, change)


def shifted(name: str, output: str, shift: float) -> Edit:
    """Add a number to an output: slowdowns × exp(shift)."""

    def change(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.output[:] = [f"{each}_before" if each == output else each for each in node.output]
        graph.initializer.append(numpy_helper.from_array(np.float32(shift), "shift"))
        graph.node.append(helper.make_node("Add", [f"{output}_before", "shift"], [output]))

    return lambda folder: edit_graph(folder, name, change)


def columns(name: str, source: str, order: np.ndarray) -> Edit:
    """Read the columns of an input in another order: another encoder with the right shapes."""

    def change(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.input[:] = [f"{source}_reordered" if each == source else each for each in node.input]
        graph.initializer.append(numpy_helper.from_array(order.astype(np.int64), "column_order"))
        graph.node.insert(0, helper.make_node("Gather", [source, "column_order"], [f"{source}_reordered"], axis=1))

    return lambda folder: edit_graph(folder, name, change)


def swapped_outputs(folder: Path) -> None:
    """The matrix graph answers each direction with the other."""

    def change(graph: onnx.GraphProto) -> None:
        other = {"log_victim": "log_neighbour", "log_neighbour": "log_victim"}
        for node in graph.node:
            node.output[:] = [other.get(each, each) for each in node.output]

    edit_graph(folder, "matrix.onnx", change)


def wider_intervals(folder: Path) -> None:
    manifest = read(folder)
    grids = np.array(manifest["intervals"]["grids"])
    manifest["intervals"]["grids"] = (grids * 1.05).tolist()
    write(folder, manifest)


def manifest_of_another_model(folder: Path) -> None:
    own, other = read(folder), read(SHIPPED_GPU_MODEL)
    write(folder, other | {"files": own["files"]})


def intervals_of_another_model(folder: Path) -> None:
    own, other = read(folder), read(SHIPPED_GPU_MODEL)
    grids = [rows[: len(own["domains"]) + 1] for rows in other["intervals"]["grids"]]
    write(folder, own | {"intervals": other["intervals"] | {"grids": grids}})


def other_workload_order(folder: Path) -> None:
    manifest = read(folder)
    write(folder, manifest | {"workloads": manifest["workloads"][::-1]})


def slower_profiles(folder: Path) -> None:
    def slower(profile: JobProfile) -> JobProfile:
        return replace(profile, step_time_s=profile.step_time_s * 3.0)

    (folder / PROFILES_FILE).write_bytes(profiles_content([slower(each) for each in shipped_profiles(folder)]))


def nan_measurements(folder: Path) -> None:
    edit_arrays(folder, lambda arrays: arrays["measured_log"].fill(np.nan))


def no_evidence(folder: Path) -> None:
    edit_arrays(folder, lambda arrays: arrays.update(partners=np.zeros_like(arrays["partners"])))


BAD_MODELS: dict[str, Edit] = {
    "NaN weights, pairs": nan_weights("pair.onnx"),
    "NaN weights, matrix": nan_weights("matrix.onnx"),
    "e^50, pairs": shifted("pair.onnx", "log_slowdown", 50.0),
    "e^50, matrix": shifted("matrix.onnx", "log_victim", 50.0),
    "infinite": shifted("pair.onnx", "log_slowdown", np.inf),
    "0.1 % off": shifted("matrix.onnx", "log_neighbour", 1e-3),
    "swapped sides, pairs": columns("pair.onnx", "pairs", np.r_[JOB : 2 * JOB, :JOB, 2 * JOB : PAIR]),
    "swapped sides, matrix": swapped_outputs,
    "another encoder": columns("pair.onnx", "pairs", np.arange(PAIR)[::-1]),
    "wider intervals": wider_intervals,
    "manifest of another model": manifest_of_another_model,
    "intervals of another model": intervals_of_another_model,
    "another order of workloads": other_workload_order,
    "slower profiles": slower_profiles,
    "no evidence": no_evidence,
    "NaN measurements": nan_measurements,
}


def random_edit(folder: Path, rng: np.random.Generator) -> str:
    """Make one random edit of arrays, graphs or manifest, and make hashes and version right; what was edited."""
    what = str(rng.choice(["bit", "constant", "array", "manifest"]))
    graph = str(rng.choice(["pair.onnx", "matrix.onnx"]))
    if what == "bit":
        content = bytearray((folder / graph).read_bytes())
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        (folder / graph).write_bytes(content)
    elif what == "constant":
        edit_graph(folder, graph, lambda each: _edit_constant(each, rng))
    elif what == "array":
        edit_arrays(folder, lambda arrays: _edit_array(arrays, rng))
    else:
        manifest = read(folder)
        _edit_number(manifest, rng)
        write(folder, manifest)
    reseal(folder)
    return f"{what} of {graph}" if what in ("bit", "constant") else what


def _edited(value: float, rng: np.random.Generator) -> float:
    return float(rng.choice([np.nan, np.inf, value + 1.0, value * 10.0 + 0.1, -value - 0.5]))


def _edit_constant(graph: onnx.GraphProto, rng: np.random.Generator) -> None:
    floats = constants(graph)
    tensor = floats[int(rng.integers(len(floats)))]
    values = numpy_helper.to_array(tensor).copy()
    flat = values.reshape(-1)
    flat[int(rng.integers(flat.size))] = _edited(float(flat[0]), rng)
    set_constant(tensor, values)


def _edit_array(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    names = [name for name in sorted(arrays) if arrays[name].size and arrays[name].dtype.kind in "fi"]
    name = str(rng.choice(names))
    values = arrays[name] = arrays[name].copy()
    flat, place = values.reshape(-1), int(rng.integers(values.size))
    if values.dtype.kind == "f":
        flat[place] = _edited(float(flat[place]), rng)
    else:
        flat[place] = int(rng.choice([-1, flat[place] + 1, 10**6]))


def _edit_number(manifest: dict[str, Any], rng: np.random.Generator) -> None:
    """Edit one number of the intervals, of the group compositions or the limits; or exchange two workloads."""
    which = str(rng.choice(["grids", "levels", "abstains_above", "groups", "workloads"]))
    if which == "workloads":
        i, j = rng.choice(len(manifest["workloads"]), size=2, replace=False)
        names = manifest["workloads"]
        names[i], names[j] = names[j], names[i]
    elif which == "groups" and manifest.get("groups"):
        manifest["groups"][0]["composition"]["growth"] += float(rng.uniform(0.05, 1.0))
    elif which == "abstains_above":
        manifest["intervals"]["abstains_above"] = float(rng.uniform(0.0, 2.0))
    else:
        values = np.array(manifest["intervals"]["levels" if which == "levels" else "grids"])
        values.reshape(-1)[int(rng.integers(values.size))] += float(rng.choice([-0.3, 0.01, 50.0]))
        manifest["intervals"]["levels" if which == "levels" else "grids"] = values.tolist()
