"""Kubernetes as a port of the round, and the controller's process that runs rounds of it.

The port says which pod ran on which GPU when, what became of pods with a decision, and how decisions become changes of
pods. The controller has threads that watch, hold the lease and release overdue pods, and the loop of rounds: one
replica decides, the others stand by.
Law: whatever fails in one thread, the others go on. Releasing needs none of them.
"""

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from interfere.client import PolicyClient
from interfere.records import ActionKind, Plan
from interfere.reports.numbers import count_noun
from interfere.serving.adapters.kubernetes import names, writes
from interfere.serving.adapters.kubernetes.api_server.calls import (
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    VOLUME_CLAIMS,
    VOLUMES,
    ClusterApi,
    apply_changes,
)
from interfere.serving.adapters.kubernetes.api_server.watching import Cluster
from interfere.serving.adapters.kubernetes.claims import claim_sizes, memory_bytes, seats_bytes
from interfere.serving.adapters.kubernetes.lease import Lease
from interfere.serving.adapters.kubernetes.marks import MAX_BODY, READ_EVERY_S, MarkStore, read_by
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
from interfere.serving.adapters.kubernetes.objects.values import map_at, number
from interfere.serving.adapters.kubernetes.problem import ClusterProblem, build, within_free_resources
from interfere.serving.adapters.kubernetes.records import (
    ClusterState,
    DeviceRequest,
    GpuSource,
    Pod,
    PodState,
)
from interfere.serving.adapters.kubernetes.releasing import release_pods
from interfere.serving.adapters.kubernetes.seats import gpu_index, is_refused, place_of
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from interfere.serving.adapters.kubernetes.webhook import MountedCertificates
from interfere.serving.adapters.kubernetes.writes import PodChange
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.observations import DecidedJob, Decision, Rejection
from interfere.serving.adapters.problem import STARTS, STOPS
from interfere.serving.adapters.round import Advisor, PlannedChanges, Reading, Round, decisions_of, repeat, run_rounds
from interfere.serving.adapters.windows import CombinedMarks, Place, Run
from interfere.serving.http_server import Answer, HttpServer, Request, healthy

_log = logging.getLogger("interfere.kubernetes")
GPU_PATHS = (PODS, NODES, SLICES, CLAIMS)  # objects that state which GPUs exist and which pods hold them
PATHS = (*GPU_PATHS, VOLUME_CLAIMS, VOLUMES, CLASSES, TEMPLATES)
REFUSED_S = 600.0  # a device that a pod was sent to and did not get is out for that long
MAX_REASONS = 100  # written in one round; a reason that is left out comes with a later one
IMPOSSIBLE = "no GPU of the cluster could take it, even an empty one (memory, selectors, taints, volumes, CPU)"
SETTLE_S = 5.0  # marks are sent once a second, and a round sees a pod's end a moment later
ADVISED_WITHIN_S = 300.0  # a pod that was bound before its advice is still advised for that long
_END_REASONS = {"Succeeded": "completed", "OOMKilled": "out of memory", "Evicted": "evicted", "Error": "failed"}


class KubernetesPort:
    """A Kubernetes cluster as rounds of the adapter see it (`SchedulerPort`)."""

    name = "kubernetes"

    def __init__(
        self,
        settings: KubernetesSettings,
        api: ClusterApi,
        cluster: Cluster,
        metrics: AdapterMetrics,
        may_write: Callable[[], bool],
        *,
        dry_run: bool = False,
    ) -> None:
        self.dry_run, self.rules = dry_run, settings.window_rules(settle_s=SETTLE_S)
        ends = (ActionKind.END,) if settings.grants_memory else ()
        self.limits = settings.limits(*(STOPS if settings.evicts else ends))
        self._settings, self._api, self._cluster = settings, api, cluster
        self._metrics, self._may_write, self._observes = metrics, may_write, settings.mode is Mode.OBSERVE
        self._gated, self._now_s = 0, 0.0
        self._refused = dict[tuple[str, DeviceRequest], float]()  # when a device was not given for a request
        self.decided_s = 0.0  # when pods were decided last, in unix seconds
        self._state = ClusterState(pods=(), nodes=(), gpus=())

    def read(self) -> Reading[Pod, PodChange]:
        """Read the cluster. Raises UnavailableError where the watched state of the cluster is out of date."""
        self._cluster.check_current(self._settings.stale_s)
        self._now_s = max(self._now_s, self._api.time_s())  # the server takes no clock that goes back
        self._state = cluster_state(self._settings, *(self._cluster.read(path) for path in PATHS))
        self._see_refusals()
        if self._observes:
            self._warn_of_gates()
        return Reading(
            at_s=self._now_s,
            scopes=(self._settings.cluster,),
            runs=tuple(runs(self._state, self._now_s)),
            decided_jobs=tuple(decided_jobs(self._state, self._now_s)),
        )

    def _see_refusals(self) -> None:
        """Remember the devices that kube-scheduler did not give to pods that were sent there: they are out for the same
        request for `REFUSED_S`."""
        claims = self._state.claims_by_key
        self._refused = {key: at_s for key, at_s in self._refused.items() if self._now_s - at_s < REFUSED_S}
        for pod in self._state.pods:
            claim = claims.get(pod.claim_key)
            if claim is None or not claim.is_selective or pod.request is None:
                continue
            if is_refused(pod, self._now_s, self._settings):
                self._refused.setdefault((claim.target, pod.request), self._now_s)

    def _warn_of_gates(self) -> None:
        """Log how many pods are still gated from an earlier mode: a controller that only observes removes no gates."""
        gated = sum(pod.gated and pod.pending for pod in self._state.pods)
        if gated > self._gated:
            _log.warning(
                "%d pods are gated, and nobody removes gates in this mode: interfere kubernetes release", gated
            )
        self._gated = gated
        self._metrics.set("gated_pods", gated)

    def problem(
        self,
        scope: str,  # noqa: ARG002 - the cluster is the only one
        lost_s: Callable[[str], float],
    ) -> ClusterProblem:
        """Return the decision problem of the cluster.

        A port that only observes requests a decision when a pod is new. It treats pods that were bound before a round
        saw them pending as if they were still pending.
        """
        unadvised = frozenset(
            pod.uid
            for pod in self._state.pods
            if pod.workload and pod.node and not pod.ended and not pod.deleting and _is_new(pod)
            if self._now_s - pod.created_s < ADVISED_WITHIN_S
        )
        built = build(
            self._state.with_lost_time(lost_s),
            self._settings,
            self._now_s,
            unadvised if self._observes else frozenset(),
            refused=self._refused.keys(),
        )
        is_asked = not self._observes or any(map(_is_new, built.candidates))
        return built if is_asked else replace(built, snapshot=None)

    def planned_changes(self, problem: ClusterProblem, plan: Plan | None) -> PlannedChanges[Pod, PodChange]:
        """Place pods, and note why others wait; in a cluster that is only observed, note the advice."""
        actions = within_free_resources(problem, plan.actions) if plan is not None else ()
        running = {pod.id: pod for pod in self._state.pods if pod.node and not pod.deleting}
        jobs, now_s = running | problem.candidates_by_id, self._now_s
        all_decisions = decisions_of(actions, jobs, plan.decision_id if plan is not None else "")
        decisions = [each for each in all_decisions if each.action.kind not in STOPS]
        stops = [each for each in all_decisions if each.action.kind in STOPS]
        evictions = tuple(writes.evict(each, now_s, observes=self._observes) for each in stops)
        if self._observes:
            advice = tuple(writes.advise(each, now_s) for each in decisions if _is_new(each.job))
            return PlannedChanges(decisions=all_decisions, changes=(*advice, *evictions))
        placed, others = self._placements(problem, decisions), list[PodChange | None]()
        claims, sizes = self._state.claims_by_key, claim_sizes(self._state.gpus)
        for pod in problem.impossible:
            claim = claims.get(pod.claim_key)
            others.append(writes.release(pod, claim, IMPOSSIBLE, sizes, now_s))
        for each in (each for each in decisions if each.action.kind not in STARTS):
            claim = claims.get(each.job.claim_key)
            if not each.job.gated and claim is not None and claim.is_selective:  # it lost the place that it names still
                others.append(writes.release(each.job, claim, each.action.reason, sizes, now_s))
            else:
                others.append(writes.wait(each, now_s))
        for pod, reason in reasons_in_line(problem, self._state, decisions):
            others.append(writes.wait_in_line(pod, reason, now_s))
        self.decided_s = now_s
        changes = [change for change in others if change is not None][:MAX_REASONS]
        return PlannedChanges(decisions=all_decisions, changes=(*placed, *evictions, *changes))

    def _placements(self, problem: ClusterProblem, decisions: Sequence[Decision[Pod]]) -> list[PodChange]:
        """Return the changes that send pods to their GPUs, each with the memory that its claim asks for."""
        claims, nodes = self._state.claims_by_key, {node.name: node for node in self._state.nodes}
        starts: dict[str, list[Decision[Pod]]] = {}
        for each in decisions:
            if each.action.kind in STARTS:
                starts.setdefault(each.action.device_id, []).append(each)
        changes = []
        for device_id, on_it in starts.items():
            gpu, residents = problem.gpus[device_id], problem.residents[device_id]
            wanted = [memory_bytes(each.job, problem.default_bytes) for each in on_it]
            amounts = seats_bytes(gpu, [job.memory_peak_bytes for job in residents], wanted)
            for each, amount in zip(on_it, amounts, strict=True):
                claim = claims.get(each.job.claim_key)
                changes.append(writes.place(each, gpu, nodes[gpu.node], claim, amount, self._now_s))
        return changes

    def apply(self, changes: Sequence[PodChange]) -> tuple[Rejection, ...]:
        """Carry out changes of pods at the API server, unless another replica decides by now."""
        if self.dry_run:
            return ()
        return apply_changes(
            self._api, changes, self._metrics, may_write=self._may_write, written=self._cluster.remember
        )


def reasons_in_line(
    problem: ClusterProblem, state: ClusterState, decisions: Sequence[Decision[Pod]]
) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that no request was about, each with the reason why it waits once these decisions are done."""
    for pod in problem.unadmitted:
        yield pod, "no node with a free seat admits it now (selectors, taints, volumes, CPU or host memory)"
    started = [each.action.device_id for each in decisions if each.action.kind in STARTS]
    usable, seats = {node.name for node in state.nodes if node.usable}, dict[GpuSource | None, str]()
    for source in {pod.source for pod in problem.behind}:
        gpus = [gpu for gpu in state.gpus if gpu.source is source and gpu.node in usable and not gpu.taints]
        offered = {gpu.id: problem.gpus[gpu.id] for gpu in gpus if gpu.id in problem.gpus}
        free = sum(gpu.seats - len(problem.residents[name]) - started.count(name) for name, gpu in offered.items())
        taken = f"{free} of them free" if free else "all taken"
        seats[source] = f"{sum(gpu.seats for gpu in gpus)} seats on {count_noun(len(gpus), 'GPU')}, {taken}"
    for k, pod in enumerate(problem.behind, start=len(problem.candidates) - len(started)):
        yield pod, f"{seats[pod.source]}; {k} before it"


def _is_new(pod: Pod) -> bool:
    return not pod.note(names.ADVICE)


def runs(state: ClusterState, now_s: float) -> Iterator[Run[Pod]]:
    """Yield every run of a pod on a GPU. The claim of an ended pod is free again, so the GPU is known from earlier
    rounds only."""
    index, claims = gpu_index(state.gpus), state.claims_by_key
    for pod in state.pods:
        if pod.started_s and pod.node:
            gpu = place_of(pod, claims.get(pod.claim_key), index)
            yield Run(
                job=pod,
                start_s=pod.started_s,
                end_s=(pod.ended_s or now_s) if pod.ended else math.inf,
                places=(Place(gpu.id, gpu.type, gpu.mode),) if gpu else (),
            )


def decided_jobs(state: ClusterState, now_s: float) -> Iterator[DecidedJob[Pod]]:
    """Return the history of every pod that has a decision."""
    for pod in state.pods:
        if pod.note(names.DECISION):
            yield DecidedJob(
                job=pod,
                decision_id=pod.note(names.DECISION),
                device_id=pod.note(names.DEVICE) if pod.note(names.STATE) == PodState.PLACED else "",
                ended_s=(pod.ended_s or number(pod.note(names.DECIDED_AT)) or now_s) if pod.ended else 0.0,
                end_reason=end_reason(pod),
            )


def end_reason(pod: Pod) -> str:
    """Return the reason why a pod ended, in the words that all adapters use."""
    return _END_REASONS.get(pod.end_reason, pod.end_reason.lower() or "ended")[:200]


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
