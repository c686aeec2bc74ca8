"""A small monitored site: answers of Prometheus range queries in the real format, for a history made by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STEP_S = 15.0
START_S = 1_700_000_000.0
Sample = tuple[float, str]


def series(name: str, labels: Mapping[str, str], samples: Sequence[Sample]) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "values": [[time_s, value] for time_s, value in samples]}


def answer(*results: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(results)}}


def gauge(
    name: str, pod: str, ticks: Sequence[int], value: float, *, device: str = "GPU-1", **more: str
) -> dict[str, Any]:
    """One value of one pod on one device at some ticks of the site's clock."""
    labels = {"UUID": device, "gpu": "0", "Hostname": "n1", "modelName": "NVIDIA A100-SXM4-40GB", "namespace": "ml"}
    if pod:
        labels["pod"] = pod
    return series(name, labels | more, [(START_S + k * STEP_S, str(value)) for k in ticks])


def counter(pod: str, rates: Sequence[tuple[range, float]], **more: str) -> dict[str, Any]:
    """Training steps of a pod that does `rate` steps a second in each of consecutive stretches of ticks."""
    samples, total = [], 0.0
    for ticks, rate in rates:
        for k in ticks:
            total += rate * STEP_S
            samples.append((START_S + k * STEP_S, str(total)))
    return series("train_steps_total", {"namespace": "ml", "pod": pod} | more, samples)


def write(folder: Path, document: Any, name: str = "range.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(document) if not isinstance(document, str) else document)
    return folder / name
