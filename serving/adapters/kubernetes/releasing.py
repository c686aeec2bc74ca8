"""Fail-open: pods that nobody decides, or that wait for a claim that nobody creates, are left to Kubernetes.

A pod that a decision lets wait is decided anew each round: its window begins with the newest decision. Releasing needs
neither the policy server, nor the lease, nor any watch: it lists pending pods itself. Every replica does it,
`interfere kubernetes release` does it once, and so does the chart's CronJob.
"""

import contextlib
import logging
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from interfere.errors import InterfereError, NotFoundError, UnfitError
from interfere.records import NAN
from interfere.serving.adapters.kubernetes import names, writes
from interfere.serving.adapters.kubernetes.api_server.calls import (
    CLAIMS,
    PODS,
    SLICES,
    TEMPLATES,
    ClusterApi,
    apply_changes,
)
from interfere.serving.adapters.kubernetes.api_server.watching import Cluster
from interfere.serving.adapters.kubernetes.claims import ClaimSizes, claim_sizes
from interfere.serving.adapters.kubernetes.lease import newest_decision_s
from interfere.serving.adapters.kubernetes.objects.gpus import gpus_of_slices
from interfere.serving.adapters.kubernetes.objects.reading import read_claim, read_pod, specs_of_templates
from interfere.serving.adapters.kubernetes.objects.values import map_at, number
from interfere.serving.adapters.kubernetes.problem import INVALID, SEVERAL, is_of_several, waited_long
from interfere.serving.adapters.kubernetes.records import Claim, JsonObject, Pod, PodState
from interfere.serving.adapters.kubernetes.seats import job_record
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.kubernetes.writes import PodChange
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.problem import first_reason

_log = logging.getLogger("interfere.kubernetes")
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PASS_EVERY_S = 5.0  # of a release that goes on
PASSES, PAUSE_S = 10, 2.0  # until a pass finds nothing gated: the API server may know a deleted webhook for a moment
GRACE_S = 5.0  # a replica that is well places a pod anew before its selective claim is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The result of one pass: how many pods were released, were refused, and are gated, or wait for a claim, still."""

    released: int
    rejected: int
    still_gated: int
    still_held: int


def release_reason(
    pod: Pod,
    claim: Claim | None,
    settings: KubernetesSettings,
    now_s: float,
    *,
    decided_s: float,
    every: bool,
) -> str:
    """Return the reason why a pod must be left to Kubernetes now; empty where there is none.

    `decided_s`: when a controller has decided last. `every`: release every pod that the adapter holds.
    """
    if not pod.pending:
        return ""
    if every and _is_held(pod, claim):
        return "released by the administrator"
    if pod.gated:
        return _gated_reason(pod, claim, settings, now_s, decided_s)
    return _ungated_reason(pod, claim, settings, now_s)


def _gated_reason(pod: Pod, claim: Claim | None, settings: KubernetesSettings, now_s: float, decided_s: float) -> str:
    undecided_s = now_s - max(pod.created_s, decided_s if pod.held else 0.0)
    checks = {
        "opted out": pod.note(names.OPT_OUT) == "true",
        "no workload": not pod.workload,
        "own claim": claim is not None and not claim.ours,
        pod.special: bool(pod.special) and pod.special != "other gates",
        SEVERAL: is_of_several(pod),
        "tried too often": number(pod.note(names.TRIES)) >= settings.most_tries,
        INVALID: job_record(pod, NAN, now_s, settings) is None,
        f"no place within its {names.MAX_WAIT_S}": waited_long(pod, now_s),
        f"not decided within {settings.window_s:g} s": undecided_s >= settings.window_s,
    }
    return first_reason(checks)


def _ungated_reason(pod: Pod, claim: Claim | None, settings: KubernetesSettings, now_s: float) -> str:
    if not pod.claim:
        return ""
    is_overdue = now_s - number(pod.note(names.DECIDED_AT)) >= settings.start_s + GRACE_S
    is_known = pod.note(names.STATE) in list(PodState)
    is_late = now_s - pod.created_s >= settings.window_s
    checks = {
        "its claim was missing": _lacks_claim(pod, claim) and (is_known or is_late),
        f"not bound within {settings.start_s:g} s": claim is not None and claim.is_selective and is_overdue,
    }
    return first_reason(checks)


def _is_held(pod: Pod, claim: Claim | None) -> bool:
    """Whether the pod waits for the adapter: for its gate, for a claim, or where a claim of the adapter sends it."""
    return pod.gated or (claim is not None and claim.is_selective) or _lacks_claim(pod, claim)


def _lacks_claim(pod: Pod, claim: Claim | None) -> bool:
    """Whether a pod with a workload names a claim that nobody has created, as where the webhook was away."""
    return bool(pod.claim and pod.workload) and claim is None and pod.special != "claim template"


def releases(
    pods: Iterable[Pod],
    claims: dict[str, Claim],
    settings: KubernetesSettings,
    sizes: ClaimSizes,
    now_s: float,
    *,
    decided_s: float = 0.0,
    every: bool = False,
) -> tuple[PodChange, ...]:
    """Return the changes that leave pods to Kubernetes, for the pods that must not wait longer."""
    changes = []
    for pod in pods:
        claim = claims.get(pod.claim_key)
        reason = release_reason(pod, claim, settings, now_s, decided_s=decided_s, every=every)
        change = writes.release(pod, claim, reason, sizes, now_s, as_asked=every) if reason else None
        if change is not None:
            changes.append(change)
    return tuple(changes)


def release_pods(
    api: ClusterApi,
    settings: KubernetesSettings,
    metrics: AdapterMetrics,
    now_s: float,
    *,
    every: bool = False,
    cluster: Cluster | None = None,
) -> Released:
    """Read the gated pods once, and release the pods that must not wait longer, or with `every` all of them.

    Collections that a `cluster` watches are read there while the watch works, and listed otherwise. Raises
    UnavailableError where the API server does not answer.
    """
    rows = _watched(cluster, PODS)
    if rows is None:
        rows = api.list(PODS, fields="status.phase=Pending")[0]
    rows = [row for row in rows if not map_at(row, "spec").get("nodeName")]
    is_made = any(names.TEMPLATE in map_at(row, "metadata", "annotations") for row in rows)
    templates = specs_of_templates(_listed(api, TEMPLATES, cluster) or ()) if is_made else {}
    pods = [read_pod(row, settings, templates=templates) for row in rows]
    gated = [
        pod for pod in pods if pod.pending and (pod.gated or pod.note(names.STATE) or (pod.claim and pod.workload))
    ]
    changes: tuple[PodChange, ...] = ()
    claims: dict[str, Claim] = {}
    if gated:
        listed = _listed(api, CLAIMS, cluster)
        if listed is None:
            gated = [pod for pod in gated if pod.gated]
        claims = {claim.key: claim for claim in map(read_claim, listed or ())}
        sizes = claim_sizes(gpus_of_slices(_listed(api, SLICES, cluster) or (), settings))
        random.shuffle(gated)  # pods that time out in somebody else's admission must not come first each time
        decided_s = newest_decision_s(api, settings.namespace) if any(pod.held for pod in gated) else 0.0
        changes = releases(gated, claims, settings, sizes, now_s, decided_s=decided_s, every=every)
    rejected = apply_changes(api, changes, metrics, written=cluster.remember if cluster else lambda *_: None)
    held = sum(pod.gated for pod in pods if pod.pending)
    metrics.set("gated_pods", held)
    done = len(changes) - len(rejected)
    return Released(
        released=done,
        rejected=len(rejected),
        still_gated=held - sum(c.pod.gated for c in changes),
        still_held=sum(_is_held(pod, claims.get(pod.claim_key)) for pod in gated) - done,
    )


def _watched(cluster: Cluster | None, path: str) -> list[JsonObject] | None:
    """Return the watched copy of a collection; None where there is none, or its watch is broken."""
    return cluster.read(path) if cluster is not None and cluster.collections[path].is_current else None


def _listed(api: ClusterApi, path: str, cluster: Cluster | None) -> list[JsonObject] | None:
    """Return a collection that a release can do without; None where it cannot be listed, since the gates are removed
    anyway."""
    rows = _watched(cluster, path)
    if rows is not None:
        return rows
    try:
        return api.list(path)[0]
    except InterfereError as error:
        _log.warning("gates are removed without %s: %s", path, error.one_line)
        return None


def release_overdue(api: ClusterApi, settings: KubernetesSettings, metrics: AdapterMetrics, seconds: float) -> Released:
    """Release pods as they become overdue, for so many seconds.

    Without held pods it returns at once.

    A job that starts once a minute releases each pod in time so, and not up to a minute later.
    """
    end_s, released = time.monotonic() + seconds, 0
    while True:
        done = release_pods(api, settings, metrics, api.time_s())
        released += done.released
        if not done.still_held or time.monotonic() + PASS_EVERY_S > end_s:
            return replace(done, released=released)
        time.sleep(PASS_EVERY_S)


def release_for_good(
    api: ClusterApi, settings: KubernetesSettings, metrics: AdapterMetrics, configuration: str
) -> Released:
    """Delete the webhook configuration, so that no new pod is gated, and release every pod.

    Raises UnfitError where pods stay gated: the controller that would release them later must not be removed yet.
    """
    with contextlib.suppress(NotFoundError):
        api.call("DELETE", f"{WEBHOOKS}/{configuration}")
    released = 0
    for passes in range(PASSES):
        done = release_pods(api, settings, metrics, api.time_s(), every=True)
        released += done.released
        if passes and not done.released and not done.rejected and not done.still_gated:
            return replace(done, released=released)
        time.sleep(PAUSE_S)
    raise UnfitError(
        "pods are still gated",
        value=f"{done.rejected + done.still_gated} of them",
        remedy="see the warnings above; run it again once the API server takes the changes",
    )
