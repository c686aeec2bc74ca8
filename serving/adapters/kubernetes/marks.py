"""Marks of the steps of pods: from sidecars, which send a job's spool to every replica of the controller, or from a
Prometheus that scrapes the jobs, which then need no sidecar.

A sidecar needs no rights: a pod can speak for itself alone, since the sender's address must be the pod's.

Law: whatever one pod sends costs no other pod its marks, and no more memory than `MAX_MARKS` records.
Law: a sidecar never ends its pod, and lines that no replica took are sent again.
"""

import http.client
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from interfere.errors import InvalidInputError
from interfere.monitoring.job_progress import progress_of_job
from interfere.monitoring.prometheus import PrometheusSource
from interfere.monitoring.samples import SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from interfere.progress import Mark, open_regular, read_marks
from interfere.serving.adapters.kubernetes.records import Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.windows import Residency

_log = logging.getLogger("interfere.kubernetes")
LOOKBACK_S = 900.0  # marks are kept for so long
MAX_MARKS = 2000  # of one pod: a quarter of an hour of one a second, and more writers
MAX_PODS = 20_000
MAX_BODY = 2**20
SEND_BYTES = 2**18  # in one request


class MarkStore:
    """Marks of steps that pods sent, by the address of the sender. Implements MarkSource."""

    def __init__(self, lookback_s: float = LOOKBACK_S) -> None:
        self._lookback_s = lookback_s
        self._marks: dict[str, list[Mark]] = {}
        self._lock = threading.Lock()

    def receive(self, address: str, content: bytes, now_s: float) -> int:
        """Store the marks that a pod sent, and return their number. Raises InvalidInputError where too many pods
        send marks."""
        marks = read_marks(content).marks
        with self._lock:
            known = self._marks.get(address, [])
            if not known and len(self._marks) >= MAX_PODS:
                self._forget(now_s)
            if not known and len(self._marks) >= MAX_PODS:
                raise InvalidInputError("too many pods send marks", value=len(self._marks), remedy="more replicas")
            recent = [
                mark for mark in (*known, *marks) if now_s - self._lookback_s < mark.unix_s < now_s + self._lookback_s
            ]
            self._marks[address] = recent[-MAX_MARKS:]
        return len(marks)

    def marks(self, residency: Residency[Pod], now_s: float) -> Sequence[Mark]:
        """Return the marks of a pod during its residency. Other marks from its address may be of an earlier pod."""
        with self._lock:
            known = [mark for address in residency.job.ips for mark in self._marks.get(address, ())]
        return [
            mark for mark in known if residency.start_s <= mark.unix_s <= min(residency.end_s, now_s + self._lookback_s)
        ]

    def complete_until_s(self, now_s: float) -> float:
        """Return `now_s`: pods send their marks by themselves, so none is still to be read."""
        return now_s

    def _forget(self, now_s: float) -> None:
        self._marks = {
            address: marks
            for address, marks in self._marks.items()
            if marks and marks[-1].unix_s > now_s - self._lookback_s
        }


def addresses(host: str, port: int) -> list[tuple[str, int]]:
    """Return all addresses behind a headless Service; none while its name cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys((str(each[4][0]), int(each[4][1])) for each in found))


class SpoolSender:
    """Sends the lines of a job's spool file to every replica of the controller, each line once."""

    def __init__(
        self,
        spool: Path,
        resolve: Callable[[], list[tuple[str, int]]],
        timeout_s: float = 5.0,
        *,
        host: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`host`: the name that the certificates of the replicas are for, where `tls` is given."""
        self._spool, self._resolve, self._timeout_s, self._offset = spool, resolve, timeout_s, 0
        self._host, self._tls = host, tls

    def send(self) -> bool:
        """Send the lines that were appended since the last call. Returns False only where no replica accepted them."""
        try:
            with os.fdopen(open_regular(self._spool, os.O_RDONLY), "rb") as file:
                file.seek(self._offset)
                content = file.read(SEND_BYTES)
        except OSError:
            return True  # the job marks nothing yet, or not into a regular file
        content = content[: content.rfind(b"\n") + 1]
        if not content:
            return True
        taken = [self._post(address, content) for address in self._resolve()]
        if any(taken):
            self._offset += len(content)
        return any(taken)

    def _post(self, address: tuple[str, int], content: bytes) -> bool:
        connection = http.client.HTTPConnection(*address, timeout=self._timeout_s)
        try:
            if self._tls is not None:
                raw = socket.create_connection(address, self._timeout_s)
                connection.sock = self._tls.wrap_socket(raw, server_hostname=self._host)
            connection.request("POST", "/marks", body=content)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def send_until_stopped(sender: SpoolSender, every_s: float, stop: threading.Event) -> None:
    """Send the lines of a spool every few seconds until stopped, and once more at the end."""
    reachable = True
    while not stop.wait(every_s):
        sent = sender.send()
        if sent != reachable:
            reachable = sent
            _log.warning("the controller %s", "answers again" if sent else "does not answer: marks are sent later")
    sender.send()


# --- steps that a Prometheus counts -----------------------------------------------------------------------------------

READ_EVERY_S = 15.0
DELAY_S = 5.0  # before a scrape that began is stored
TIMEOUT_S = 30.0
Key = tuple[str, str]  # namespace and pod


def read_by(settings: KubernetesSettings) -> "PrometheusMarks":
    """Return the Prometheus that the settings name. Raises InvalidInputError for an invalid address."""
    monitoring = MonitoringSettings(progress=settings.progress)
    source = PrometheusSource(
        settings.prometheus, monitoring, timeout_s=TIMEOUT_S, token_file=settings.prometheus_token_file
    )
    return PrometheusMarks(source, monitoring, settings.lookback_s)


class PrometheusMarks:
    """Marks of the last `lookback_s` seconds from a Prometheus. Implements MarkSource; thread-safe.

    The progress is a counter that jobs expose, or an expression of steps per second; its series carry the labels
    `namespace` and `pod`, as a PodMonitor sets them. It is read by a thread of its own: no placement waits for it.
    Law: a window is measured once the samples of all its time were read, and again never.
    """

    def __init__(self, source: PrometheusSource, settings: MonitoringSettings, lookback_s: float) -> None:
        self._source, self._settings, self._lookback_s = source, settings, lookback_s
        self._marks: Mapping[Key, Sequence[Mark]] = {}
        self._read_until_s = 0.0
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Read the newest samples. Raises UnavailableError where Prometheus does not answer; windows are then
        measured later."""
        now_s = self._source.now_s()
        series = self._source.read_progress(now_s - self._lookback_s, now_s)
        marks = self._by_pod(series)
        with self._lock:
            self._marks, self._read_until_s = marks, now_s - DELAY_S

    def complete_until_s(self, now_s: float) -> float:
        """Return the time up to which all samples were read."""
        with self._lock:
            return min(now_s, self._read_until_s)

    def marks(self, residency: Residency[Pod], now_s: float) -> Sequence[Mark]:
        """Return the marks of a pod during its residency. Other marks under its name may be of an earlier pod."""
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
