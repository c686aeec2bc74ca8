"""Traces of torch.profiler: real ones of a CPU, recorded here; GPU events in the published format."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from interfere.data.importers.import_writer import write_import
from interfere.data.importers.kernels.kernel_files import import_kernels
from interfere.data.tables import read_table
from interfere.errors import InvalidInputError, TableError

torch = pytest.importorskip("torch")


def real_trace(path: Path, steps: int = 3, *, scheduled: bool = True) -> Path:
    """Profile a real network for some steps on this CPU, and export the trace."""
    from torch.profiler import ProfilerActivity, profile, schedule

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    data = torch.randn(64, 64)
    options: dict[str, Any] = {}
    if scheduled:
        plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
        options = {"schedule": plan, "on_trace_ready": lambda done: done.export_chrome_trace(str(path))}
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        for _ in range(steps + (1 if scheduled else 0)):
            model(data).sum().backward()
            if scheduled:
                profiler.step()
    if not scheduled:
        profiler.export_chrome_trace(str(path))
    return path


def busy_time_s(path: Path) -> float:
    """Seconds within the marked steps in which a thread ran an operator, summed over threads."""
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    marks = [event for event in events if event["name"].startswith("ProfilerStep#")]
    begin, end = min(mark["ts"] for mark in marks), max(mark["ts"] + mark["dur"] for mark in marks)
    total, until = 0.0, {}
    for event in sorted((each for each in events if each.get("cat") == "cpu_op"), key=lambda each: each["ts"]):
        if begin <= event["ts"] < end:
            stop, last = event["ts"] + event["dur"], until.get(event["tid"], 0.0)
            total += max(0.0, stop - max(event["ts"], last))
            until[event["tid"]] = max(stop, last)
    return total * 1e-6


def test_a_real_trace_of_a_cpu_becomes_a_profile(tmp_path: Path) -> None:
    got = import_kernels("torch-profiler", real_trace(tmp_path / "net.json"))
    (job,) = got.jobs
    assert (job.workload, job.device_type, job.source) == ("net", "cpu-core", "torch-profiler")
    by_name = {kernel.name: kernel for kernel in job.kernels}
    assert by_name["aten::addmm"].count == pytest.approx(2.0), "two linear layers a step"
    assert 0 < job.busy_frac <= 1
    assert 0 < job.step_time_s < 5
    own_s = 3 * sum(kernel.mean_s * kernel.count for kernel in job.kernels)
    covered_s = busy_time_s(tmp_path / "net.json")
    assert own_s == pytest.approx(covered_s, rel=0.02), "an operator counts without the time of those that it calls"
    assert by_name["aten::linear"].mean_s < by_name["aten::addmm"].mean_s * 50
    assert len(job.busy_s) == len(job.idle_s)
    write_import(tmp_path / "table", got)
    assert read_table(tmp_path / "table").jobs[0].kernels == job.kernels
    assert "never yet from a GPU of ours" in (tmp_path / "table" / "card.md").read_text()


def test_a_trace_without_marked_steps_needs_their_number(tmp_path: Path) -> None:
    path = real_trace(tmp_path / "net.json", steps=4, scheduled=False)
    (job,) = import_kernels("torch-profiler", path, steps=4).jobs
    assert {k.name: k.count for k in job.kernels}["aten::addmm"] == pytest.approx(2.0)
    assert [n.count for n in import_kernels("torch-profiler", path).notices if "ProfilerStep" in n.subject] == [1]
    assert import_kernels("torch-profiler", path, steps=4, step_time_s=0.25).jobs[0].step_time_s == 0.25


def kernel(start_us: float, duration_us: float, name: str = "gemm", cat: str = "kernel", **args: Any) -> dict[str, Any]:
    arguments = {"device": 0, "stream": 7, "grid": [80, 1, 1], "block": [256, 1, 1], **args}
    return {"ph": "X", "cat": cat, "name": name, "ts": start_us, "dur": duration_us, "args": arguments}


def step(number: int, start_us: float, duration_us: float, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": f"ProfilerStep#{number}", "ts": start_us, "dur": duration_us}


def gpu_trace(path: Path, *events: dict[str, Any], name: str = "NVIDIA A100-SXM4-80GB") -> Path:
    text = json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": name}], "traceEvents": list(events)})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_gpu_events_give_kernels_gaps_and_busy_share(tmp_path: Path) -> None:
    events = [
        *(step(k, 100.0 * k, 100.0) for k in (1, 2)),
        *(kernel(100.0 * k + 10, 30) for k in (1, 2)),
        *(kernel(100.0 * k + 50, 10, "relu") for k in (1, 2)),
        kernel(95, 3, "warmup"),
        kernel(115, 5, "Memcpy HtoD", "gpu_memcpy", grid=None, block=None),
        kernel(110, 30, "other gpu", device=1),
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 90, "dur": 400, "pid": 1, "tid": 1},
    ]
    (job,) = import_kernels("torch-profiler", gpu_trace(tmp_path / "bert.pt.trace.json.gz", *events)).jobs
    assert (job.workload, job.device_type) == ("bert", "a100-80gb")
    assert job.step_time_s == pytest.approx(100e-6)
    by_name = {k.name: k for k in job.kernels}
    assert set(by_name) == {"gemm", "relu", "Memcpy HtoD"}
    assert (by_name["gemm"].mean_s, by_name["gemm"].count) == (pytest.approx(30e-6), 1.0)
    assert by_name["gemm"].grid == (80, 1, 1)
    assert by_name["relu"].gap_s == pytest.approx(50e-6)
    assert job.busy_frac == pytest.approx(80 / 200), "a copy within a kernel makes the device no busier"
    assert job.busy_s == pytest.approx((30e-6, 10e-6, 30e-6, 10e-6))
    assert job.idle_s == pytest.approx((10e-6, 50e-6, 10e-6, 0.0))


def test_a_trace_of_several_gpus_says_that_one_counts(tmp_path: Path) -> None:
    path = gpu_trace(tmp_path / "t.json", kernel(0, 5), kernel(10, 5, device=1))
    assert [
        notice.count for notice in import_kernels("torch-profiler", path).notices if "several GPUs" in notice.subject
    ] == [1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no complete JSON"),
        ("[]", "an object expected"),
        ("{}", "key traceEvents: missing"),
        ('{"traceEvents": []}', "no kernel and no operator"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 1}]}',
            "key traceEvents / 0 / ts",
        ),
        (
            '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -1}]}',
            "key traceEvents / 0 / dur",
        ),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}]}', "does not name its GPU"),
    ],
)
def test_a_broken_trace_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(TableError) as error:
        import_kernels("torch-profiler", tmp_path / "t.json")
    assert problem in error.value.what
    assert "t.json" in error.value.what


def test_what_is_about_one_file_is_refused_for_several(tmp_path: Path) -> None:
    for name in ("a", "b"):
        gpu_trace(tmp_path / f"{name}.json", kernel(0, 5))
    assert [job.workload for job in import_kernels("torch-profiler", tmp_path).jobs] == ["a", "b"]
    with pytest.raises(InvalidInputError):
        import_kernels("torch-profiler", tmp_path, name="one")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=r"no \*.json or \*.json.gz in the folder"):
        import_kernels("torch-profiler", tmp_path / "empty")
    assert math.isnan(import_kernels("torch-profiler", tmp_path / "a.json").jobs[0].kernels[0].gap_s)
