"""Steps of pods from a Prometheus that scrapes them: jobs are not touched, and need no sidecar.

The progress is a counter that jobs expose, or an expression of steps per second; its series carry the labels
`namespace` and `pod`, as a PodMonitor sets them. It is read by a thread of its own: no placement waits for it.

Law: a window is measured once the samples of all its time were read, and again never.
"""

import logging
import threading
from collections.abc import Mapping, Sequence

from interfere.monitoring.job_progress import progress_of_job
from interfere.monitoring.prometheus import PrometheusSource
from interfere.monitoring.samples import SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from interfere.progress import Mark
from interfere.serving.adapters.kubernetes.records import Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.windows import Residency

_log = logging.getLogger("interfere.kubernetes")
READ_EVERY_S = 15.0
DELAY_S = 5.0  # before a scrape that began is stored
TIMEOUT_S = 30.0
Key = tuple[str, str]  # namespace and pod


def read_by(settings: KubernetesSettings) -> "PrometheusMarks":
    """The source that the settings describe. Raises InvalidInputError for an address that is none."""
    monitoring = MonitoringSettings(progress=settings.progress)
    source = PrometheusSource(
        settings.prometheus, monitoring, timeout_s=TIMEOUT_S, token_file=settings.prometheus_token_file
    )
    return PrometheusMarks(source, monitoring, settings.lookback_s)


class PrometheusMarks:
    """Marks of the last `lookback_s` seconds. Implements MarkSource; thread-safe."""

    def __init__(self, source: PrometheusSource, settings: MonitoringSettings, lookback_s: float) -> None:
        self._source, self._settings, self._lookback_s = source, settings, lookback_s
        self._marks: Mapping[Key, Sequence[Mark]] = {}
        self._read_until_s = 0.0
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read what Prometheus knows now. Raises UnavailableError where it is away: windows wait."""
        now_s = self._source.now_s()
        series = self._source.read_progress(now_s - self._lookback_s, now_s)
        marks = self._by_pod(series)
        with self._lock:
            self._marks, self._read_until_s = marks, now_s - DELAY_S

    def complete_until_s(self, now_s: float) -> float:
        """The time up to which all samples were read."""
        with self._lock:
            return min(now_s, self._read_until_s)

    def marks(self, residency: Residency[Pod], now_s: float) -> Sequence[Mark]:
        """The marks of a residency: another pod may have had the name before."""
        with self._lock:
            known = self._marks.get((residency.job.namespace, residency.job.name), ())
        return [mark for mark in known if residency.start_s <= mark.unix_s <= min(residency.end_s, now_s)]

    def _by_pod(self, series: Sequence[SampleSeries]) -> dict[Key, list[Mark]]:
        """Return the progress marks of each pod, with a separate writer for each run of its process.

        A process that restarts counts from zero again, and a gap in the series may hide the restart.
        """
        of_pod: dict[Key, list[SampleSeries]] = {}
        for each in series:
            key = each.labels.get("namespace", ""), each.labels.get("pod", "")
            if all(key):
                of_pod.setdefault(key, []).append(each)
        if series and not of_pod:
            _log.warning("no series of %r carries the labels namespace and pod", self._settings.progress)
        marks: dict[Key, list[Mark]] = {}
        lag_s = self._settings.progress_range_s
        for key, own in of_pod.items():
            progress = progress_of_job(own, is_counter=self._settings.progress_is_counter, lag_s=lag_s)
            if progress is None:
                continue
            for number, (start_s, end_s) in enumerate(progress.runs()):
                # A rate looks back: its first values are about the time before the run.
                inside = (progress.times_s >= start_s + lag_s) & (progress.times_s <= end_s)
                pairs = zip(progress.times_s[inside], progress.steps[inside], strict=True)
                marks.setdefault(key, []).extend(
                    Mark(f"run {number}", float(at_s), float(at_s), float(steps)) for at_s, steps in pairs
                )
        return marks
