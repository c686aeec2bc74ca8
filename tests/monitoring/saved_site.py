"""Samples as saved answers of Prometheus."""

import json
from pathlib import Path

from interfere.monitoring.samples import SampleBlock, SampleSeries


def write_answers(folder: Path, block: SampleBlock, *, app: bool = False) -> Path:
    """Two files, as two queries give them; with `app`, device series carry the workload as a label too."""
    folder.mkdir()
    for name, every in (("device", block.device), ("progress", block.progress)):
        results = [
            {
                "metric": _labels(series, app=app),
                "values": [
                    [t, f"{v:.10g}"] for t, v in zip(series.times_s.tolist(), series.values.tolist(), strict=True)
                ],
            }
            for series in every
        ]
        document = {"status": "success", "data": {"resultType": "matrix", "result": results}}
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


def _labels(series: SampleSeries, *, app: bool) -> dict[str, str]:
    pod = series.labels.get("pod", "")
    return dict(series.labels) | ({"app": pod.rsplit("-", 2)[0]} if app and pod else {})
