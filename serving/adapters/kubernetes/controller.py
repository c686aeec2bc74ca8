"""The controller's process: threads that watch, hold the lease and release overdue pods, and the loop of rounds.

Law: whatever fails in one thread, the others go on. Releasing needs none of them.
One replica decides, the others stand by.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from interfere.client import PolicyClient
from interfere.serving.adapters.kubernetes.api_server.calls import CLASSES, SLICES, ClusterApi
from interfere.serving.adapters.kubernetes.api_server.watching import Cluster
from interfere.serving.adapters.kubernetes.lease import Lease
from interfere.serving.adapters.kubernetes.marks import MAX_BODY, READ_EVERY_S, MarkStore, read_by
from interfere.serving.adapters.kubernetes.objects.values import map_at
from interfere.serving.adapters.kubernetes.port import PATHS, KubernetesPort
from interfere.serving.adapters.kubernetes.records import Pod
from interfere.serving.adapters.kubernetes.releasing import release_pods
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from interfere.serving.adapters.kubernetes.webhook import MountedCertificates
from interfere.serving.adapters.kubernetes.writes import PodChange
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.round import Advisor, Round, repeat, run_rounds
from interfere.serving.adapters.windows import CombinedMarks
from interfere.serving.http_server import Answer, HttpServer, Request, healthy

_log = logging.getLogger("interfere.kubernetes")
RELEASE_EVERY_S = 3.0
CERTIFICATES_EVERY_S = 15.0


def controller_metrics() -> AdapterMetrics:
    """Return the metrics of a controller, without values."""
    return AdapterMetrics(
        "kubernetes",
        {
            "changes_total": "Pods changed, by what was done with them.",
            "gated_pods": "Pods that the gate holds.",
            "leader": "Whether this replica decides.",
        },
    )


class Controller:
    """One replica of the controller: its threads, and its loop of rounds."""

    def __init__(self, settings: KubernetesSettings, api: ClusterApi, client: PolicyClient, *, dry_run: bool = False):
        self.stop, self.metrics, self._settings, self._api = threading.Event(), controller_metrics(), settings, api
        self.marks = MarkStore(settings.lookback_s)
        self.cluster = Cluster(api, PATHS, self.stop)
        holder = f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}"
        self._prometheus = read_by(settings) if settings.prometheus else None
        port = KubernetesPort(
            settings, api, self.cluster, self.metrics, lambda: dry_run or self._lease.held, dry_run=dry_run
        )
        self._lease = Lease(api, settings.namespace, holder, settings.lease_s, decided_s=lambda: port.decided_s)
        marks = CombinedMarks[Pod](self.marks, *filter(None, [self._prometheus]))
        self.advisor = Advisor(port, client, marks, settings, self.metrics)

    def run(self, report: Callable[[Round[Pod, PodChange]], None]) -> None:
        """Run until `stop` is set; give the lease back at the end."""
        self.cluster.start()
        threads = [self._every("lease", self._settings.lease_s / 6, self._hold_lease)]
        if self._prometheus is not None:
            self._every("prometheus", READ_EVERY_S, self._prometheus.refresh)
        if self._settings.mode is Mode.GATE:
            threads.append(self._every("release", RELEASE_EVERY_S, self._release))
            self._check_device_class()
        run_rounds(self.advisor, self._settings.interval_s, self.stop, report, may_decide=lambda: self._lease.held)
        for thread in threads:
            thread.join(self._settings.timeout_s)
        self._lease.release()

    def serve(self, port: int, *, host: str = "", certificates: Path | None = None) -> HttpServer:
        """Start a server for health, metrics and marks: over TLS where there is a folder of certificates, which are
        read again when they change."""
        mounted = MountedCertificates(certificates) if certificates is not None else None
        if mounted is not None:
            self._every("certificates", CERTIFICATES_EVERY_S, mounted.refresh)
        server = HttpServer(
            {
                ("GET", "/healthz"): healthy,
                ("GET", "/metrics"): lambda _: Answer(text=self.metrics.text()),
                ("POST", "/marks"): self._receive_marks,
            },
            port,
            host=host,
            tls=mounted.context if mounted is not None else None,
        )
        server.start()
        return server

    def _receive_marks(self, request: Request) -> Answer:
        if len(request.body) > MAX_BODY:
            return Answer(text="too many marks at once\n", status=413)
        return Answer(document={"marks": self.marks.receive(request.address, request.body, time.time())})

    def _hold_lease(self) -> None:
        self.metrics.set("leader", float(self._lease.try_hold()))

    def _check_device_class(self) -> None:
        """Log an error where the DeviceClass of later claims does not exist: no pod would be placed."""
        slices, classes = (self.cluster.collections[path] for path in (SLICES, CLASSES))
        if not slices.wait_listed(self._settings.stale_s) or not slices.objects():
            return
        if not classes.wait_listed(self._settings.stale_s):
            return
        known = [str(map_at(row, "metadata").get("name")) for row in classes.objects()]
        if self._settings.device_class not in known:
            _log.error(
                "there is no DeviceClass %r: no claim can be allocated; set device_class (Helm: deviceClass) to one of "
                "%s",
                self._settings.device_class,
                ", ".join(known) or "`kubectl get deviceclasses`",
            )

    def _release(self) -> None:
        """Release pods that were gated for too long. The leader acts at once and other replicas a second later, so
        that they do not compete."""
        if not self._lease.held:
            self.stop.wait(RELEASE_EVERY_S / 3)
        done = release_pods(self._api, self._settings, self.metrics, self._api.time_s(), cluster=self.cluster)
        if done.released:
            _log.info("%d pods were left to Kubernetes", done.released)

    def _every(self, name: str, interval_s: float, act: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=repeat, args=(name, interval_s, act, self.stop), name=name, daemon=True)
        thread.start()
        return thread
