"""Reads time series from saved answers of Prometheus: the JSON of `/api/v1/query_range`, in one or several files.

Laws: the samples of a series are in order of time; a NaN sample stays NaN.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import (
    FETCH_AGAIN,
    NUMBER,
    fail_at_key,
    read_json,
    require_number,
    require_object,
)
from interfere.errors import TableError

QUERY_AGAIN = "save the answer of /api/v1/query_range as it comes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """The samples of one metric with one set of labels."""

    path: Path
    keys: tuple[str, ...]  # its place in the file
    name: str
    labels: tuple[tuple[str, str], ...]
    samples: tuple[tuple[float, float], ...]  # (unix time in s, value)

    def label(self, name: str) -> str:
        """The value of a label; empty where the series has no such label."""
        return dict(self.labels).get(name, "")


def json_files(path: Path) -> tuple[Path, ...]:
    """Return the file itself, or every JSON file of a folder. Raises TableError where there is none."""
    files = tuple(sorted(path.glob("*.json"))) if path.is_dir() else (path,)
    if not files:
        raise TableError("the folder has no JSON file", value=path, remedy="give a file, or a folder with *.json")
    return files


def read_time_series(path: Path, *, nameless: bool = False) -> tuple[tuple[TimeSeries, ...], SourceFile]:
    """Return all series of one file, and the file with its checksum. Raises TableError with file and key.

    `nameless`: series may lack a metric name, as the result of an expression does.
    """
    document, source = read_json(path)
    answer = require_object(path, ("(document)",), document)
    if answer.get("status") != "success":
        fail_at_key(
            path, ("status",), "not a successful answer", answer.get("error", answer.get("status")), QUERY_AGAIN
        )
    data = require_object(path, ("data",), answer.get("data"))
    if data.get("resultType") != "matrix":
        fail_at_key(path, ("data", "resultType"), "'matrix' expected", data.get("resultType"), QUERY_AGAIN)
    results = data.get("result")
    if not isinstance(results, list):
        fail_at_key(path, ("data", "result"), "a list expected", results, QUERY_AGAIN)
    series = (
        _time_series(path, ("data", "result", str(k)), result, nameless=nameless) for k, result in enumerate(results)
    )
    return tuple(series), source


def _time_series(path: Path, keys: tuple[str, ...], value: Any, *, nameless: bool) -> TimeSeries:
    series = require_object(path, keys, value)
    labels = require_object(path, (*keys, "metric"), series.get("metric"))
    for name, label in labels.items():
        if not isinstance(label, str) or not label.isprintable():
            fail_at_key(path, (*keys, "metric", name), "a printable text expected", label, FETCH_AGAIN)
    if not labels.get("__name__") and not nameless:
        remedy = "query the metric itself: a rate() or an avg() has no name"
        fail_at_key(path, (*keys, "metric", "__name__"), "missing", labels, remedy)
    values = series.get("values")
    if not isinstance(values, list):
        fail_at_key(path, (*keys, "values"), "a list expected", values, QUERY_AGAIN)
    samples = tuple(_sample(path, (*keys, "values", str(k)), sample) for k, sample in enumerate(values))
    for k, (time_s, _) in enumerate(samples[1:], start=1):
        if time_s <= samples[k - 1][0]:
            place = (*keys, "values", str(k), "0")
            fail_at_key(path, place, "not later than the sample before", time_s, FETCH_AGAIN)
    return TimeSeries(
        path=path, keys=keys, name=labels.get("__name__", ""), labels=tuple(sorted(labels.items())), samples=samples
    )


def _sample(path: Path, keys: tuple[str, ...], value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        fail_at_key(path, keys, "[time, value] expected", value, FETCH_AGAIN)
    time_s = require_number(path, (*keys, "0"), value[0], low=0.0)
    text = value[1]
    if text == "NaN":
        return time_s, math.nan
    if not isinstance(text, str) or not NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        fail_at_key(path, (*keys, "1"), "a finite number as text expected", text, 'Prometheus writes "0.97"')
    return time_s, float(text)
