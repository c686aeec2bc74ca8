"""Reads samples from saved answers of Prometheus (`/api/v1/query_range`, or `/api/v1/query` of a range), whole."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from interfere.data.importers.monitoring.prometheus import TimeSeries, json_files, read_time_series
from interfere.data.importers.monitoring.site_samples import METRICS
from interfere.errors import InvalidInputError, TableError
from interfere.monitoring.samples import SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings


class SavedAnswers:
    """The samples of one file, or of all JSON files of a folder. Implements SampleSource."""

    def __init__(self, path: Path, settings: MonitoringSettings) -> None:
        """Read everything. Raises TableError, which names file and key, or InvalidInputError."""
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
        if settings.progress and not progress:
            remedy = "save its answer into the same folder"
            raise InvalidInputError("no series of the job counter", value=settings.progress, remedy=remedy)
        self._block = SampleBlock(device=_merged(device), progress=_merged(progress))

    def now_s(self) -> float:
        """The time of the last sample."""
        return max(float(series.times_s[-1]) for series in self._block.device if len(series.times_s))

    def first_s(self) -> float:
        """The time of the first sample."""
        return min(float(series.times_s[0]) for series in self._block.device if len(series.times_s))

    def read(self, start_s: float, end_s: float) -> SampleBlock:
        """All samples from `start_s` to `end_s`."""
        return self._block.between(start_s, end_s)

    def device_label_names(self) -> frozenset[str]:
        """The names of all labels on device series."""
        return self._block.label_names


def _merged(series: Sequence[TimeSeries]) -> tuple[SampleSeries, ...]:
    """One series per set of labels: a long time is often saved in several answers."""
    parts: dict[tuple[tuple[str, str], ...], list[TimeSeries]] = defaultdict(list)
    for each in series:
        if each.samples:
            parts[each.labels].append(each)
    merged = []
    for labels, answers in parts.items():
        samples = np.array([sample for answer in answers for sample in answer.samples], dtype=np.float64)
        name = answers[0].name
        merged.append(SampleSeries.from_samples(name, dict(labels), samples[:, 0], samples[:, 1]))
    return tuple(merged)
