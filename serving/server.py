"""Starts the server from its settings: the only module that connects encoder, model, store and gRPC."""

import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client import generate_latest

from interfere.config import DEFAULT_METRICS_PORT, NO_METRICS, Settings
from interfere.errors import InterfereError, UnfitError
from interfere.policy.site_policy import SitePolicy
from interfere.predict.manifest import parse_digests
from interfere.serving.calls.fair_queue import DecisionTurns
from interfere.serving.calls.interceptor import SERVICE
from interfere.serving.calls.listening import (
    HEALTH_NAMES,
    INTERRUPTION_S,
    NOT_SERVING,
    SERVING,
    Listening,
    is_local,
    listen,
    target,
)
from interfere.serving.calls.tokens import LocalTokens
from interfere.serving.http_server import Answer, HttpServer
from interfere.serving.metrics import Metrics
from interfere.serving.models.archive import ModelArchive
from interfere.serving.models.host import ModelHost, ModelWatch
from interfere.serving.models.trial import probe
from interfere.serving.service import PolicyCore
from interfere.serving.servicer import RoutedServicer
from interfere.serving.state import ServedModel, load_served_model
from interfere.serving.workers.pool import WorkerPool, learn_in_process
from interfere.store.sqlite.file import FileLock
from interfere.store.store import Store, open_store

_log = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"  # where metrics are served by default
SWITCH_S = 0.0005  # after which a thread that computes lets the one that takes calls from the network go on
HARD_STOP_S = 0.8  # after the grace, until the process is ended by force


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A running server; `stop` ends it."""

    listening: Listening
    metrics_port: int | None
    model_path: Path
    model_version: str
    workers: WorkerPool | None
    settings: Settings
    _stopping: threading.Event
    _watch: ModelWatch
    _resources: ExitStack

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self.listening.port

    @property
    def address(self) -> str:
        """The target that a client connects to."""
        return target(self.settings.host, self.port)

    def stop(self) -> None:
        """Report NOT_SERVING, let running requests end, interrupt the remaining ones after `grace`, and close the
        store.

        May be called twice.
        """
        for name in HEALTH_NAMES:
            self.listening.health.set(name, NOT_SERVING)
        grace_s = self.settings.grace_s
        self.listening.server.stop(grace_s).wait(grace_s + INTERRUPTION_S)
        self._stopping.set()
        self._resources.close()

    def look_for_model(self) -> None:
        """Look for a newly published model now. Safe in a signal handler."""
        self._watch.look_now()

    def run_until_signal(
        self, *, on_ready: Callable[[], None] = lambda: None, on_stop: Callable[[], None] = lambda: None
    ) -> None:
        """Block until SIGTERM or SIGINT, then stop. Call it in the main thread.

        `on_ready` is called when a signal stops the server as it should, `on_stop` before it stops. The process ends
        within the grace period and one second, even where threads hang.
        """
        # The kernel may deliver a signal to any thread, and this one waits in C: only the wake-up descriptor, which is
        # written by whichever thread got the signal, surely ends the wait.
        stops, (woken, waker) = {signal.SIGTERM, signal.SIGINT}, socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in stops:
            signal.signal(number, lambda *_: None)
        on_ready()
        while stops.isdisjoint(woken.recv(1)):
            pass
        on_stop()
        # A thread of C, which needs no lock of the interpreter: it prints what hangs and ends the process. The store
        # loses nothing by that: what was acknowledged is on disk.
        faulthandler.dump_traceback_later(self.settings.grace_s + HARD_STOP_S, exit=True)
        self.stop()


def start_server(settings: Settings, tokens: LocalTokens | None = None) -> RunningServer:
    """Start a server and return it. `tokens`: those of the processes of its host; None where the settings name the
    callers, or everybody may ask. Raises ModelError, UnfitError or UnavailableError, and then leaves nothing open."""
    start_s = time.perf_counter()
    metrics, stopping = Metrics(), threading.Event()
    sys.setswitchinterval(SWITCH_S)
    with ExitStack() as resources:
        # 1. gRPC: from now on the server is alive, and not ready.
        max_waiting = max(1, 3 * settings.max_concurrent_rpcs // 4)  # the last quarter is for other scopes
        waits = metrics.waits("decisions")
        turns = DecisionTurns(at_once=settings.decisions_at_once, max_waiting=max_waiting, on_turn=waits)
        servicer = RoutedServicer(turns, waits_for_lock=not settings.database)
        listening = listen(settings, servicer, metrics, stopping, resources, tokens)
        metrics_port = _serve_metrics(settings, metrics, resources)
        # 2. The published model, the store, a copy of the model that stays whatever is published later, and the core.
        folder, accepted = settings.served_folder, parse_digests(settings.model_digest)
        published = load_served_model(folder, accepted)
        probe(published, ())
        store = open_store(settings.store_address, on_eviction=metrics.count_evictions)
        resources.callback(store.close)
        if settings.database:  # the folder beside a file is held with the file
            resources.callback(_held(settings.work).close)
        archive = ModelArchive(settings.served_models_path, on_eviction=metrics.count_evictions)
        canary = frozenset(filter(None, map(str.strip, settings.canary.split(","))))
        model = _archived(published, archive, accepted, keeps_last=bool(canary))
        core = _core(settings, model, store, metrics)
        core.decisions.reporters = listening.access.reporters
        resources.callback(core.close)
        core.store_state(if_due=True)
        learn = partial(learn_in_process, settings.store_address)
        watched = settings.model_folder or settings.champion_path
        models = ModelHost(core, archive, watched, metrics, learn_beside=learn, accepted=accepted, canary=canary)
        workers = _start_workers(settings, core, models, metrics, resources)
        resources.callback(listening.end)  # before what its calls use is closed
        resources.callback(store.database.follow(core.follow_store))
        # 3. Calls.
        watch = ModelWatch(models, settings.model_poll_s)
        resources.callback(watch.close)
        servicer.use(core, models, workers)
        listening.interceptor.open()
        listening.health.set(SERVICE, SERVING)
        _log_start(settings, core, listening.port, time.perf_counter() - start_s)
        return RunningServer(
            listening=listening,
            metrics_port=metrics_port,
            model_path=folder,
            model_version=model.predictor.version,
            workers=workers,
            settings=settings,
            _stopping=stopping,
            _watch=watch,
            _resources=resources.pop_all(),
        )


def _core(settings: Settings, model: ServedModel, store: Store, metrics: Metrics) -> PolicyCore:
    """Return the core of the server over a model and a store, after it has learned the log."""
    core = PolicyCore(
        model=model,
        store=store,
        metrics=metrics,
        time_budget_s=settings.time_budget_s,
        site_policy=SitePolicy.of_names(*settings.site_policy_names),
        max_log_entries=settings.max_log_entries,
        learns_beside=True,
    )
    if not settings.database:
        metrics.watch_store(settings.store_path)
    metrics.watch(
        "interfere_newest_observation_seconds",
        lambda: max((each.received_s for each in store.observations.newest(1)), default=0.0),
    )
    metrics.watch("interfere_log_entries", lambda: sum(core.state.learned.counts.values()))
    metrics.watch("interfere_encoded_jobs_bytes", lambda: core.state.model.encoded_jobs.bytes)
    return core


def _held(folder: Path) -> FileLock:
    """Hold a workspace, with the models that its server serves. Raises UnfitError where another server holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "server", what="workspace", remedy="stop it, or give this one a workspace: --work FOLDER")


def _log_start(settings: Settings, core: PolicyCore, port: int, seconds: float) -> None:
    fields = {
        "address": target(settings.host, port),
        "model": core.state.version,
        "store": str(settings.store_address),
        "observations": sum(core.state.learned.counts.values()),
        "profiles": len(core.state.profiles.registered()),
        "seconds": round(seconds, 3),
    }
    _log.info("started: %s", ", ".join(f"{k} {v}" for k, v in fields.items()), extra={"fields": fields})
    if settings.callers is None and not is_local(settings):
        _log.warning("no known callers: anybody who reaches %s may send requests", target(settings.host, port))


def _archived(
    published: ServedModel, archive: ModelArchive, accepted: Collection[str], *, keeps_last: bool
) -> ServedModel:
    """Return the archived copy of the model to start with: of the model that the last run served last, where it was
    pinned or with `keeps_last`, else of the published model."""
    last = archive.state.served[-1:] if archive.state.pinned or keeps_last else ()
    for version in last:
        try:
            return load_served_model(archive.find(version), accepted)
        except InterfereError as error:
            _log.warning("the model that was served last cannot be served, the published one is: %s", error.one_line)
    try:
        kept = archive.keep(archive.copy(published.folder), published.predictor.version)
        return load_served_model(kept, accepted)
    except InterfereError as error:  # a full disk
        _log.warning("the model cannot be copied and is served from its folder: %s", error.one_line)
        return published


def _start_workers(
    settings: Settings, core: PolicyCore, models: ModelHost, metrics: Metrics, resources: ExitStack
) -> WorkerPool | None:
    """Start the processes that compute decisions, and return their pool; None where the server itself computes them."""
    count = settings.decision_workers
    if count is None:
        count = settings.decisions_at_once if len(os.sched_getaffinity(0)) > 1 else 0
    if count == 0:
        core.warm_up()
        return None
    workers = WorkerPool(
        count,
        store=settings.store_address,
        time_budget_s=settings.time_budget_s,
        site_policy_names=settings.site_policy_names,
        knowing=partial(models.knowing, core),
        metrics=metrics,
    )
    resources.callback(workers.close)
    return workers


def _serve_metrics(settings: Settings, metrics: Metrics, resources: ExitStack) -> int | None:
    """Serve /metrics and return the port; None without.

    Where no port is set, the default one is served to this host alone, unless another program has it, or the server
    itself listens on whatever port is free: then no Prometheus knows it.
    """
    port, host = settings.metrics_port, settings.host.strip("[]")
    if port == NO_METRICS or (port is None and settings.port == 0):
        return None
    routes = {("GET", "/metrics"): lambda _: Answer(text=generate_latest(metrics.registry).decode())}
    try:
        if port is None:
            http = HttpServer(routes, DEFAULT_METRICS_PORT, host=LOOPBACK)
        else:
            http = HttpServer(routes, port, host="" if host == "::" else host)
    except OSError as error:
        if port is None:
            _log.warning("no metrics: %s:%d (%s); set --metrics-port", LOOPBACK, DEFAULT_METRICS_PORT, error.strerror)
            return None
        raise UnfitError(
            f"cannot serve metrics there ({error.strerror})",
            value=target(settings.host, port),
            remedy="take another port: --metrics-port 0 takes a free one",
        ) from None
    http.start()
    resources.callback(http.stop)
    return http.port
