"""Reads time series from saved answers of Prometheus: the JSON of `/api/v1/query_range`, in one or several files.

The answer of `/api/v1/query` for a range has the same form. Laws: the samples of a `TimeSeries` are in order of time,
and its NaN samples stay NaN.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import (
    FETCH_AGAIN,
    NUMBER,
    fail_at_key,
    read_json,
    require_number,
    require_object,
)
from interfere.errors import InvalidInputError, TableError
from interfere.monitoring.dcgm import METRICS
from interfere.monitoring.preflight import PreflightError
from interfere.monitoring.samples import Floats, SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings

QUERY_AGAIN = "save the answer of /api/v1/query_range as it comes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """The samples of a metric with one set of labels, as a file holds them."""

    path: Path
    keys: tuple[str, ...]  # its place in the file
    name: str
    labels: tuple[tuple[str, str], ...]
    samples: tuple[tuple[float, float], ...]  # (unix time in s, value)

    @property
    def columns(self) -> tuple[Floats, Floats]:
        """The times and the values of all samples, both float64[n]."""
        table = np.array(self.samples, dtype=np.float64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def without_nan(self) -> SampleSeries:
        """Return the series as arrays, without its NaN samples."""
        return SampleSeries.from_samples(self.name, dict(self.labels), *self.columns)


def json_files(path: Path) -> tuple[Path, ...]:
    """Return the file itself, or every JSON file of a folder. Raises TableError where there is none."""
    files = tuple(sorted(path.glob("*.json"))) if path.is_dir() else (path,)
    if not files:
        raise TableError("the folder has no JSON file", value=path, remedy="give a file, or a folder with *.json")
    return files


def read_time_series(path: Path, *, nameless: bool = False) -> tuple[tuple[TimeSeries, ...], SourceFile]:
    """Return all series of a file, and the file with its checksum. Raises TableError with file and key.

    With `nameless`, series may lack a metric name, as the result of an expression does.
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


class SavedAnswers:
    """The samples of a file, or of all JSON files of a folder. Implements SampleSource."""

    def __init__(self, path: Path, settings: MonitoringSettings) -> None:
        """Read the file or the folder. Raises TableError, which names file and key, or InvalidInputError."""
        if settings.progress_is_counter and "{" in settings.progress:
            raise InvalidInputError(
                "saved answers are told apart by name alone", value=settings.progress, remedy="leave the labels out"
            )
        every = [series for file in json_files(path) for series in read_time_series(file, nameless=True)[0]]
        device = [series for series in every if series.name in METRICS]
        wanted = settings.progress if settings.progress_is_counter else ""
        progress = [series for series in every if settings.progress and series.name == wanted]
        if not device:
            raise TableError(
                f"{path.name}: no DCGM metric",
                value=f"{len(every)} series",
                remedy=f"save a query of {next(iter(METRICS))} and other DCGM_FI_* metrics",
            )
        self._others = merged_series([series for series in every if series.name not in METRICS])
        if settings.progress and not progress:
            names = ", ".join(sorted({series.name for series in self._others if series.name})) or "nothing else"
            remedy = f"save its answer into the same folder, which holds {names}"
            raise PreflightError("no series of the job counter", value=settings.progress, remedy=remedy)
        self._block = SampleBlock(device=merged_series(device), progress=merged_series(progress))

    def now_s(self) -> float:
        """Return the time of the last sample."""
        return max(float(series.times_s[-1]) for series in self._block.device if len(series.times_s))

    def first_s(self) -> float:
        """Return the time of the first sample."""
        return min(float(series.times_s[0]) for series in self._block.device if len(series.times_s))

    def read(self, start_s: float, end_s: float) -> SampleBlock:
        """Return all samples of devices and jobs from `start_s` to `end_s`."""
        return self._block.between(start_s, end_s)

    def possible_counters(self, start_s: float, end_s: float) -> tuple[str, ...]:
        """Return the names of all series that are not of devices, most frequent first."""
        found = Counter(each.name for each in self._others if each.name and len(each.between(start_s, end_s).times_s))
        return tuple(sorted(found, key=lambda name: (-found[name], name)))

    def device_label_names(self) -> frozenset[str]:
        """Return the names of all labels on device series."""
        return self._block.label_names


def merged_series(series: Sequence[TimeSeries]) -> tuple[SampleSeries, ...]:
    """Merge series with equal labels into one, since a long time span is often saved in several answers."""
    parts: dict[tuple[tuple[str, str], ...], list[TimeSeries]] = defaultdict(list)
    for each in series:
        if each.samples:
            parts[each.labels].append(each)
    return tuple(
        SampleSeries.from_samples(
            answers[0].name,
            dict(labels),
            np.concatenate([answer.columns[0] for answer in answers]),
            np.concatenate([answer.columns[1] for answer in answers]),
        )
        for labels, answers in parts.items()
    )
