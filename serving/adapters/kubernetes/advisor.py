"""One round of advice: read the cluster, ask the policy server, place pods, report measurements.

Rounds are stateless: what one remembers of earlier ones only saves work, or belongs to pods that ended since. After any
error a round does nothing more, and pods are released by `releasing`.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from interfere.client import PolicyClient
from interfere.errors import InterfereError, InvalidInputError
from interfere.records import Action, ActionKind, Limits, Plan, Snapshot
from interfere.serving.adapters.kubernetes import names, view, writes
from interfere.serving.adapters.kubernetes.api_server.calls import (
    CLAIMS,
    NODES,
    PODS,
    SLICES,
    VOLUME_CLAIMS,
    VOLUMES,
    ClusterApi,
)
from interfere.serving.adapters.kubernetes.api_server.changes import RejectedChange, apply
from interfere.serving.adapters.kubernetes.api_server.watching import Cluster
from interfere.serving.adapters.kubernetes.metrics import ControllerMetrics
from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
from interfere.serving.adapters.kubernetes.observations.reporter import Reporter
from interfere.serving.adapters.kubernetes.offers import default_share
from interfere.serving.adapters.kubernetes.records import ClusterState, JsonObject, Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode
from interfere.serving.adapters.kubernetes.writes import PodChange, Write, WriteKind

_log = logging.getLogger("interfere.kubernetes")
GPU_PATHS = (PODS, NODES, SLICES, CLAIMS)  # which GPUs there are, and who holds them
PATHS = (*GPU_PATHS, VOLUME_CLAIMS, VOLUMES)
ADVISED_WITHIN_S = 300.0  # a pod that was bound before its advice is still advised for that long


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDecision:
    """The server's decision for one pod."""

    pod: Pod
    kind: str
    device: str
    partner: str  # the partner's id
    slowdown: float
    reason: str
    decision_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The report of one round."""

    at_s: float
    decisions: tuple[PodDecision, ...]
    changes: tuple[PodChange, ...]
    rejected: tuple[RejectedChange, ...]
    left_to_kubernetes: Counter[str]
    observations: Counter[str]


class Advisor:
    """Advises one cluster, round by round."""

    def __init__(
        self,
        settings: KubernetesSettings,
        api: ClusterApi,
        cluster: Cluster,
        client: PolicyClient,
        metrics: ControllerMetrics,
        reporter: Reporter,
        *,
        may_write: Callable[[], bool] = lambda: True,
        dry_run: bool = False,
    ) -> None:
        self._settings, self._api, self._cluster, self._client = settings, api, cluster, client
        self._metrics, self._reporter, self._may_write, self._dry_run = metrics, reporter, may_write, dry_run
        self._gated = 0
        self._limits = Limits.of(
            allowed=frozenset({*view.STARTS, ActionKind.WAIT}),
            allow_extrapolation=settings.allow_extrapolation,
            ageing_s=settings.patience_s,
        )

    def round(self) -> Round:
        """One round. Raises InterfereError where the API server or the policy server does not answer."""
        # 1. Read the cluster.
        self._cluster.check_current(self._settings.stale_s)
        now_s = time.time()
        state = cluster_state(self._settings, *(self._cluster.read(path) for path in PATHS))
        self._reporter.see(state, now_s)
        # 2. Decide.
        observing = self._settings.mode is Mode.OBSERVE
        if observing:
            self._warn_of_gates(state)
        unadvised = _unadvised(state, now_s) if observing else frozenset[str]()
        problem = view.build(state, self._settings, now_s, unadvised)
        needs_plan = problem.snapshot is not None and (not observing or any(_is_new(p) for p in problem.candidates))
        plan = self._match(problem.snapshot) if needs_plan and problem.snapshot else None
        # 3. Carry it out.
        actions = view.within_free_resources(problem, plan.actions) if plan else ()
        decisions = _decisions(problem, actions, plan.decision_id if plan else "")
        changes = self._changes(state, problem, actions, plan.decision_id if plan else "", now_s)
        rejected: tuple[RejectedChange, ...] = ()
        if not self._dry_run:
            rejected = apply(self._api, changes, self._metrics, may_write=self._may_write, written=self._remember_write)
        # 4. Report what was measured.
        results = Counter[str]() if self._dry_run else self._report(decisions, rejected, now_s)
        return Round(
            at_s=now_s,
            decisions=decisions,
            changes=changes,
            rejected=rejected,
            left_to_kubernetes=problem.left_to_kubernetes,
            observations=results,
        )

    def _warn_of_gates(self, state: ClusterState) -> None:
        """Say that pods still wait for a gate of before: a controller that only observes removes none."""
        gated = sum(pod.gated and pod.pending for pod in state.pods)
        if gated > self._gated:
            _log.warning(
                "%d pods are gated, and nobody removes gates in this mode: interfere kubernetes release", gated
            )
        self._gated = gated
        self._metrics.set("gated_pods", gated)

    def _match(self, snapshot: Snapshot) -> Plan:
        plan = self._client.match(replace(snapshot, limits=self._limits))
        check_plan_subjects(plan, snapshot)
        return plan

    def _changes(
        self,
        state: ClusterState,
        problem: view.ClusterView,
        actions: Sequence[Action],
        decision_id: str,
        now_s: float,
    ) -> tuple[PodChange, ...]:
        pods = {pod.id: pod for pod in problem.candidates}
        if self._settings.mode is Mode.OBSERVE:
            new = [action for action in actions if _is_new(pods[action.job_id])]
            return tuple(writes.advise(pods[action.job_id], action, decision_id, now_s) for action in new)
        claims, nodes = state.claims_by_key, {node.name: node for node in state.nodes}
        share = default_share(state.gpus)
        placed, waiting = list[PodChange](), list[PodChange]()
        for action in actions:
            pod = pods[action.job_id]
            claim = claims.get(f"{pod.namespace}/{pod.claim}") if pod.claim else None
            if action.kind in view.STARTS:
                gpu = problem.gpus[action.device_id]
                node = nodes[gpu.node]
                placed.append(writes.place(pod, action, gpu, node, claim, decision_id, self._settings, share, now_s))
            elif (change := writes.wait(pod, action, decision_id, now_s)) is not None:
                waiting.append(change)
        return (*placed, *waiting)

    def _remember_write(self, write: Write, row: JsonObject) -> None:
        """Show the next round what this one wrote, before the watch does."""
        if write.kind is WriteKind.PATCH_POD and row:
            self._cluster.collections[PODS].put(row)
        elif write.kind is WriteKind.CREATE_CLAIM and row:
            self._cluster.collections[CLAIMS].put(row)
        elif write.kind is WriteKind.DELETE_CLAIM:
            self._cluster.collections[CLAIMS].remove(write.namespace, write.name)

    def _report(
        self, decisions: Sequence[PodDecision], rejected: Sequence[RejectedChange], now_s: float
    ) -> Counter[str]:
        for each in decisions:
            self._reporter.decided(each.pod, each.device, each.slowdown, each.decision_id, now_s)
        try:
            results = self._reporter.report(self._client, rejected, now_s)
        except InterfereError as error:  # placements stay; a later round reports the windows
            _log.warning("nothing reported in this round: %s", " ".join(str(error).split()))
            results = Counter({"undelivered": 1})
        for result, count in results.items():
            self._metrics.add("observations_total", "result", result, by=count)
        return results


def _is_new(pod: Pod) -> bool:
    return not pod.note(names.ADVICE)


def _unadvised(state: ClusterState, now_s: float) -> frozenset[str]:
    """Pods that were bound before a round saw them pending."""
    return frozenset(
        pod.uid
        for pod in state.pods
        if pod.workload and pod.node and not pod.ended and not pod.deleting and _is_new(pod)
        if now_s - pod.created_s < ADVISED_WITHIN_S
    )


def _decisions(problem: view.ClusterView, actions: Sequence[Action], decision_id: str) -> tuple[PodDecision, ...]:
    pods = {pod.id: pod for pod in problem.candidates}
    return tuple(
        PodDecision(
            pod=pods[action.job_id],
            kind=action.kind.value,
            device=action.device_id,
            partner=action.partner_id,
            slowdown=action.slowdown,
            reason=action.reason,
            decision_id=decision_id,
        )
        for action in actions
    )


def check_plan_subjects(plan: Plan, snapshot: Snapshot) -> None:
    """Raise InvalidInputError for a plan about jobs or devices outside the snapshot: it must not reach the cluster."""
    jobs, devices = {job.id for job in snapshot.pending}, {device.id for device in snapshot.devices}
    for action in plan.actions:
        if action.job_id not in jobs or (action.kind in view.STARTS and action.device_id not in devices):
            raise InvalidInputError(
                "the server's plan is about jobs or devices that were not in the request",
                value=f"{action.job_id!r} on {action.device_id!r}",
                remedy="check what answers at `server`",
            )
