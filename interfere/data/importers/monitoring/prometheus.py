"""Series from saved answers of Prometheus: the JSON of `/api/v1/query_range`, one or several files.

Laws: samples of a series are in order of time; a NaN sample stays one.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import NUMBER, RESTORE, json_fail, json_number, json_object, read_json
from interfere.errors import TableError

QUERY = "save the answer of /api/v1/query_range as it comes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one set of labels over time."""

    path: Path
    keys: tuple[str, ...]  # where it stands in the file
    name: str
    labels: tuple[tuple[str, str], ...]
    samples: tuple[tuple[float, float], ...]  # (unix time in s, value)

    def label(self, name: str) -> str:
        """Its label of that name; empty where it has none."""
        return dict(self.labels).get(name, "")


def json_files(path: Path) -> tuple[Path, ...]:
    """The file, or every JSON file of the folder. Raises TableError where there is none."""
    found = tuple(sorted(path.glob("*.json"))) if path.is_dir() else (path,)
    if not found:
        raise TableError("the folder has no JSON file", value=path, remedy="give a file, or a folder with *.json")
    return found


def read_series(path: Path) -> tuple[tuple[Series, ...], SourceFile]:
    """All series of one file. Raises TableError that names file and key."""
    document, source = read_json(path)
    answer = json_object(path, ("(document)",), document)
    if answer.get("status") != "success":
        json_fail(path, ("status",), "no successful answer", answer.get("error", answer.get("status")), QUERY)
    data = json_object(path, ("data",), answer.get("data"))
    if data.get("resultType") != "matrix":
        json_fail(path, ("data", "resultType"), "'matrix' expected", data.get("resultType"), QUERY)
    results = data.get("result")
    if not isinstance(results, list):
        json_fail(path, ("data", "result"), "a list expected", results, QUERY)
    return tuple(_series(path, ("data", "result", str(k)), one) for k, one in enumerate(results)), source


def _series(path: Path, keys: tuple[str, ...], value: Any) -> Series:
    series = json_object(path, keys, value)
    labels = json_object(path, (*keys, "metric"), series.get("metric"))
    for name, label in labels.items():
        if not isinstance(label, str) or not label.isprintable():
            json_fail(path, (*keys, "metric", name), "a printable text expected", label, RESTORE)
    if not labels.get("__name__"):
        remedy = "query the metric itself: a rate() or an avg() has no name"
        json_fail(path, (*keys, "metric", "__name__"), "missing", labels, remedy)
    values = series.get("values")
    if not isinstance(values, list):
        json_fail(path, (*keys, "values"), "a list expected", values, QUERY)
    samples = tuple(_sample(path, (*keys, "values", str(k)), one) for k, one in enumerate(values))
    for k, (time_s, _) in enumerate(samples[1:], start=1):
        if time_s <= samples[k - 1][0]:
            json_fail(path, (*keys, "values", str(k), "0"), "not later than the sample before", time_s, RESTORE)
    return Series(path=path, keys=keys, name=labels["__name__"], labels=tuple(sorted(labels.items())), samples=samples)


def _sample(path: Path, keys: tuple[str, ...], value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        json_fail(path, keys, "[time, value] expected", value, RESTORE)
    time_s = json_number(path, (*keys, "0"), value[0], low=0.0)
    text = value[1]
    if text == "NaN":
        return time_s, math.nan
    if not isinstance(text, str) or not NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        json_fail(path, (*keys, "1"), "a finite number as text expected", text, 'Prometheus writes "0.97"')
    return time_s, float(text)
