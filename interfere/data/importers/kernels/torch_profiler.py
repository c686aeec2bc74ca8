"""Reads traces of the PyTorch profiler (Kineto): Chrome trace JSON, as `export_chrome_trace` writes it.

Events of category `kernel`, `gpu_memcpy` and `gpu_memset` are what ran on the GPU; a trace without any is one of a CPU,
whose "kernels" are the operators (`cpu_op`) with the time that they spent themselves. `ProfilerStep#n` marks the steps,
where the program called `profiler.step()`. Times are microseconds.

"est. achieved occupancy" of such a trace is geometry and no counter: it is not read.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.kernels.kernel_files import (
    PROFILED_STEP_NOTE,
    TIMED_NOTE,
    KernelFile,
    KernelFormat,
    KernelLaunch,
)
from interfere.data.importers.strict_reading import read_bytes, require_number, require_object
from interfere.devices import CPU_CORE, device_type_of_product
from interfere.errors import TableError

STEP_PREFIX = "ProfilerStep#"
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
CPU_CATEGORY = "cpu_op"
MICROSECOND = 1e-6


def _read_trace(path: Path, _step_range: str = "") -> KernelFile:
    """Read one trace file, plain or compressed by gzip. Raises TableError."""
    document, source = _read_document(path)
    content = require_object(path, (), document)
    events = content.get("traceEvents")
    if not isinstance(events, list):
        raise TableError(
            f"{path.name}, key traceEvents: missing", value=path, remedy="give the file of export_chrome_trace"
        )
    complete = [(k, event) for k, event in enumerate(events) if isinstance(event, dict) and event.get("ph") == "X"]
    gpu = [(k, event) for k, event in complete if event.get("cat") in GPU_CATEGORIES]
    devices = sorted({_device(event) for _, event in gpu})
    launches = (
        [_gpu_launch(path, k, event) for k, event in gpu if _device(event) == devices[0]]
        if gpu
        else list(_operators(path, complete))
    )
    if not launches:
        raise TableError(
            f"{path.name}: no kernel and no operator in the trace",
            value=f"{len(events)} events in {path}",
            remedy="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    marked = _step_events(complete, on_gpu=bool(gpu))
    names = [device.get("name", "") for device in content.get("deviceProperties") or [] if isinstance(device, dict)]
    product = str(names[devices[0]] if devices and devices[0] < len(names) else "")
    return KernelFile(
        source=source,
        launches=tuple(launches),
        step_spans_s=tuple(sorted(_span(path, k, event) for k, event in marked)),
        device_type=device_type_of_product(product) if gpu else CPU_CORE.name,
        device_count=len(devices),
    )


def _step_events(complete: list[tuple[int, dict[str, Any]]], *, on_gpu: bool) -> list[tuple[int, dict[str, Any]]]:
    """Return the events that mark steps: events on the GPU's clock where there are any, else events on the host's
    clock."""
    marks = [(k, event) for k, event in complete if str(event.get("name", "")).startswith(STEP_PREFIX)]
    on_device = [(k, event) for k, event in marks if event.get("cat") == "gpu_user_annotation"]
    on_host = [(k, event) for k, event in marks if event.get("cat") != "gpu_user_annotation"]
    return on_device if on_gpu and on_device else on_host


def _read_document(path: Path) -> tuple[Any, SourceFile]:
    """Return the JSON in a file, plain or compressed by gzip, and the file with its checksum. Raises TableError."""
    content, source = read_bytes(path)
    try:
        return json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content), source
    except (OSError, ValueError, EOFError, RecursionError) as error:
        raise TableError(
            f"{path.name}: no complete JSON ({str(error)[:80]})",
            value=path,
            remedy="export the trace again with export_chrome_trace",
        ) from None


def _span(path: Path, place: int, event: dict[str, Any]) -> tuple[float, float]:
    """Return start and end of a complete event in seconds. Raises TableError."""
    keys = ("traceEvents", str(place))
    start = require_number(path, (*keys, "ts"), event.get("ts"))
    duration = require_number(path, (*keys, "dur"), event.get("dur"), low=0.0)
    return start * MICROSECOND, (start + duration) * MICROSECOND


def _device(event: dict[str, Any]) -> int:
    """Return the index of the GPU on which an event ran."""
    device = _arguments(event).get("device", 0)
    return device if isinstance(device, int) else 0


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _gpu_launch(path: Path, place: int, event: dict[str, Any]) -> KernelLaunch:
    start_s, end_s = _span(path, place, event)
    arguments = _arguments(event)
    return KernelLaunch(
        name=str(event.get("name") or event.get("cat")),
        duration_s=end_s - start_s,
        start_s=start_s,
        end_s=end_s,
        grid=_dimensions(arguments.get("grid")),
        block=_dimensions(arguments.get("block")),
    )


def _dimensions(value: Any) -> tuple[int, ...]:
    """Return the three dimensions of a grid or block; an empty tuple for a memory copy, which has none."""
    return tuple(value) if isinstance(value, list) and all(isinstance(each, int) for each in value) else ()


def _operators(path: Path, complete: list[tuple[int, dict[str, Any]]]) -> Iterator[KernelLaunch]:
    """Return all calls of operators with their own time, in which no other operator that they called ran."""
    by_thread: dict[object, list[tuple[float, float, str]]] = {}
    for place, event in complete:
        if event.get("cat") == CPU_CATEGORY:
            span = _span(path, place, event)
            name = str(event.get("name") or CPU_CATEGORY)
            by_thread.setdefault((event.get("pid"), event.get("tid")), []).append((*span, name))
    for events in by_thread.values():
        open_calls: list[list[Any]] = []  # [end, name, own seconds, start], from the outermost in
        for start_s, end_s, name in sorted(events, key=lambda each: (each[0], -each[1])):
            while open_calls and open_calls[-1][0] <= start_s:
                yield _own_time(open_calls.pop())
            if open_calls:
                open_calls[-1][2] -= min(end_s, open_calls[-1][0]) - start_s
            open_calls.append([end_s, name, end_s - start_s, start_s])
        while open_calls:
            yield _own_time(open_calls.pop())


def _own_time(call: list[Any]) -> KernelLaunch:
    """Return when one call of an operator ran, and the part of that time in which no operator called by it ran."""
    end_s, name, own_s, start_s = call
    return KernelLaunch(name=name, duration_s=max(own_s, 0.0), start_s=start_s, end_s=end_s)


TORCH_PROFILER = KernelFormat(
    name="torch-profiler",
    read=_read_trace,
    patterns=("*.json", "*.json.gz"),
    is_timed=True,
    unmarked=f"traces without `{STEP_PREFIX}n`: call profiler.step(), or give --steps",
    notes=(
        TIMED_NOTE,
        "of a trace without GPU events, operators with their own CPU time stand in for kernels",
        PROFILED_STEP_NOTE,
        "checked against real traces of a CPU; GPU events are read by the published format, never yet from a GPU of "
        "ours",
    ),
)
