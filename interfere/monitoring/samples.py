"""Samples of monitoring as arrays, and the seam through which they are read.

Law: the times of a series rise strictly, and every value is finite.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError

Floats = NDArray[np.float64]
GAP = 2.5  # in sampling intervals: one missing sample is an irregularity of the scrape, two are a gap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleSeries:
    """The samples of a metric with one set of labels, in order of time."""

    name: str  # of the metric; empty for the result of an expression
    labels: Mapping[str, str]
    times_s: Floats  # float64[n], unix time
    values: Floats  # float64[n]

    def __post_init__(self) -> None:
        if len(self.times_s) != len(self.values) or not np.isfinite(self.values).all():
            raise InvalidInputError("a series needs one finite value per time", value=self.name, remedy="drop NaN")
        if not (np.diff(self.times_s) > 0).all():
            raise InvalidInputError("times of a series must rise", value=self.name, remedy="sort them, drop repeats")

    @classmethod
    def from_samples(cls, name: str, labels: Mapping[str, str], times_s: Floats, values: Floats) -> Self:
        """Return a series of samples in any order. Of samples at one time the last counts; values that are not finite
        are left out.

        Prometheus writes NaN where a target gave no value.
        """
        order = np.argsort(times_s, kind="stable")
        times_s, values = times_s[order], values[order]
        keep = np.isfinite(values) & np.append(np.diff(times_s) > 0, True)[: len(times_s)]
        return cls(name=name, labels=labels, times_s=times_s[keep], values=values[keep])

    def between(self, start_s: float, end_s: float) -> Self:
        """Return the samples from `start_s` to `end_s`, both included."""
        low, high = np.searchsorted(self.times_s, start_s, "left"), np.searchsorted(self.times_s, end_s, "right")
        return replace(self, times_s=self.times_s[low:high], values=self.values[low:high])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleBlock:
    """All samples of a span of time: of devices, and of the progress of jobs."""

    device: tuple[SampleSeries, ...] = ()
    progress: tuple[SampleSeries, ...] = ()

    @property
    def label_names(self) -> frozenset[str]:
        """The names of all labels on device series."""
        return frozenset(name for series in self.device for name in series.labels)

    def between(self, start_s: float, end_s: float) -> "SampleBlock":
        """Return the samples from `start_s` to `end_s`; series without any are left out."""
        return SampleBlock(
            device=_between(self.device, start_s, end_s), progress=_between(self.progress, start_s, end_s)
        )


class SampleSource(Protocol):
    """A source of samples: a Prometheus server, saved answers of a server, or an adapter's own records.

    Laws: reading a past span of time again gives the same samples; an unreachable source raises UnavailableError.
    """

    def now_s(self) -> float:
        """Return the newest time that can be read, on the clock of the samples."""

    def read(self, start_s: float, end_s: float) -> SampleBlock:
        """Return all samples of devices and jobs from `start_s` to `end_s`."""

    def device_label_names(self) -> frozenset[str]:
        """Return the names of all labels that the device series of this source carry at any time."""


def sampling_interval_s(times_s: Floats) -> float:
    """Return the median time between two samples; NaN for fewer than two."""
    return float(np.median(np.diff(times_s))) if len(times_s) > 1 else float("nan")


def _between(series: Iterable[SampleSeries], start_s: float, end_s: float) -> tuple[SampleSeries, ...]:
    parts = (each.between(start_s, end_s) for each in series)
    return tuple(part for part in parts if len(part.times_s))
