"""Decisions as writes to the API server. Pure functions.

Law: one patch of a pod decides, writes and removes the gate, so a pod is never ungated without its decision; its claim
exists before. Law: every write carries the resourceVersion or the uid of what was read, so a lost race changes nothing.
Law: a pod's `resourceClaims` are never written, a nodeSelector is only added to.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from interfere.records import NAN, ActionKind
from interfere.records.plans import slots_text
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.claims import (
    ClaimSizes,
    any_spec,
    claim_body,
    memory_bytes,
    requested_capacities,
    seat_spec,
    whole_spec,
)
from interfere.serving.adapters.kubernetes.objects.values import number, timestamp
from interfere.serving.adapters.kubernetes.records import Claim, Gpu, GpuSource, JsonObject, Node, Pod, PodState
from interfere.serving.adapters.observations import Decision

REASON_EVERY_S = 60.0  # a place in a line changes often; it is written so often
MAX_REASON = 900  # characters; an Event's message holds 1,024


class WriteKind(StrEnum):
    """The kinds of writes to the API server."""

    CREATE_CLAIM = "create_claim"
    DELETE_CLAIM = "delete_claim"
    PATCH_POD = "patch_pod"
    EVENT = "event"
    EVICT = "evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write call to the API server."""

    kind: WriteKind
    namespace: str
    name: str
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PodChange:
    """The writes that carry out one decision about one pod, in order. If one fails, the later ones are left out."""

    pod: Pod
    state: PodState
    writes: tuple[Write, ...]


def place(
    decision: Decision[Pod], gpu: Gpu, node: Node, claim: Claim | None, amount_bytes: float, now_s: float
) -> PodChange:
    """Send a pod to one GPU: its claim, then annotations, nodeSelector and gate in one patch.

    `amount_bytes`: the memory that a claim for a seat asks for. A pod with a slowdown cap that starts alone claims the
    whole GPU: a neighbour that others place would break the cap.
    """
    pod, action = decision.job, decision.action
    if gpu.siblings > 1:
        reason = f"{action.reason}; which of the {gpu.siblings} GPUs of {gpu.node} it gets is the kubelet's choice"
        action = replace(action, reason=reason)
        decision = replace(decision, action=action)
    notes = decision_notes(decision, PodState.PLACED, now_s)
    notes[names.TRIES] = f"{number(pod.note(names.TRIES)) + 1:.0f}"
    selector = {}
    writes = list[Write]()
    if gpu.source is GpuSource.DRA:
        is_whole = bool(pod.note(names.MAX_SLOWDOWN) and action.kind is ActionKind.START_ALONE and gpu.whole)
        asked = pod.claim_spec or {}
        spec = whole_spec(asked, gpu) if is_whole else seat_spec(asked, gpu, amount_bytes)
        writes += claim_writes(pod, claim, claim_body(pod, gpu.id, spec))
    else:
        selector = {names.HOSTNAME: node.hostname}
        if gpu.source is GpuSource.HAMI:
            notes[names.HAMI_USE] = gpu.uuid
    writes.append(patch_pod(pod, notes, selector=selector if pod.gated else {}, ungate=pod.gated))
    writes.append(event(pod, "Placed", f"{action.kind.value.replace('_', ' ')} on {gpu.id}: {action.reason}", now_s))
    return PodChange(pod=pod, state=PodState.PLACED, writes=tuple(writes))


def wait(decision: Decision[Pod], now_s: float) -> PodChange | None:
    """Note why a pod waits; None where its annotations say so already."""
    return _wait(decision.job, decision_notes(decision, None, now_s), decision.action.reason or "no free seat", now_s)


def wait_in_line(pod: Pod, reason: str, now_s: float) -> PodChange | None:
    """Note why a gated pod waits that no request was about; None where its annotations said why lately."""
    if not pod.gated or (pod.held and now_s - number(pod.note(names.DECIDED_AT)) < REASON_EVERY_S):
        return None
    return _wait(pod, {names.DECIDED_AT: f"{now_s:.3f}", names.REASON: clean(reason)}, reason, now_s)


def _wait(pod: Pod, notes: dict[str, str | None], reason: str, now_s: float) -> PodChange | None:
    """Record that a pod waits. An Event is written only when the pod begins to wait."""
    state = PodState.WAITING if pod.gated else PodState.RELEASED
    is_known = pod.note(names.STATE) == state
    if is_known and pod.note(names.REASON) == clean(reason):
        return None
    writes = [patch_pod(pod, notes | {names.STATE: state.value, names.REASON: clean(reason)})]
    if not is_known:
        writes.append(event(pod, "Waiting", reason, now_s))
    return PodChange(pod=pod, state=PodState.WAITING, writes=tuple(writes))


def release(
    pod: Pod, claim: Claim | None, reason: str, sizes: ClaimSizes, now_s: float, *, as_asked: bool = False
) -> PodChange | None:
    """Leave a pod to Kubernetes: a claim for a whole GPU, no gate. None where nothing is left to do.

    `as_asked`: a claim as its template says. Nobody keeps promises to the pods that share a GPU any longer.
    """
    writes = list[Write]()
    if pod.claim and pod.claim_spec is not None and pod.special != "claim template":
        spec = (
            pod.claim_spec
            if as_asked and pod.note(names.TEMPLATE)
            else any_spec(pod.claim_spec, sizes, _known_bytes(pod))
        )
        writes += claim_writes(pod, claim, claim_body(pod, names.ANY_DEVICE, spec))
    if not writes and not pod.gated:
        return None
    notes: dict[str, str | None] = {
        names.STATE: PodState.RELEASED.value,
        names.REASON: clean(reason),
        names.DECIDED_AT: f"{now_s:.3f}",
        names.DEVICE: None,
        names.PARTNER: None,
        names.SLOWDOWN: None,
        names.SLOTS: None,
    }
    writes.append(patch_pod(pod, notes, ungate=pod.gated))
    writes.append(event(pod, "Released", f"left to Kubernetes: {clean(reason)}", now_s))
    return PodChange(pod=pod, state=PodState.RELEASED, writes=tuple(writes))


def _known_bytes(pod: Pod) -> float:
    """Return the memory that a pod asks for; NaN where it says nothing, or nothing that can be read."""
    try:
        return memory_bytes(pod, NAN)
    except ValueError:
        return NAN


def evict(decision: Decision[Pod], now_s: float, *, observes: bool = False) -> PodChange:
    """Evict a pod that a decision stops, as `kubectl drain` does: disruption budgets hold.

    `observes`: it is only said what would be done.
    """
    pod, action = decision.job, decision.action
    done = "would be evicted" if observes else "evicted"
    told = event(pod, "Evicted" if not observes else "Advice", f"{done} ({action.kind.value}): {action.reason}", now_s)
    body: JsonObject = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    eviction = Write(kind=WriteKind.EVICT, namespace=pod.namespace, name=pod.name, body=body)
    return PodChange(pod=pod, state=PodState.EVICTED, writes=(told,) if observes else (eviction, told))


def advise(decision: Decision[Pod], now_s: float) -> PodChange:
    """Return a change that notes where a pod would have been placed. It writes metadata only."""
    pod, action = decision.job, decision.action
    where = action.device_id or "nowhere yet"
    text = f"{action.kind.value.replace('_', ' ')} {where}"
    notes = decision_notes(decision, None, now_s) | {names.ADVICE: text}
    message = f"would {text}: {action.reason}"
    writes = (patch_pod(pod, notes), event(pod, "Advice", message, now_s))
    return PodChange(pod=pod, state=PodState.WAITING, writes=writes)


def decision_notes(decision: Decision[Pod], state: PodState | None, now_s: float) -> dict[str, str | None]:
    """Return the annotations of a decision. The value None removes an annotation."""
    action, slowdown = decision.action, decision.action.slowdown
    return {
        **({names.STATE: state.value} if state else {}),
        names.DECISION: decision.decision_id,
        names.DEVICE: action.device_id or None,
        names.PARTNER: action.partner_id or None,
        names.SLOWDOWN: None if math.isnan(slowdown) else f"{slowdown:.4g}",
        names.SLOTS: slots_text(action.slots) or None,
        names.REASON: clean(action.reason),
        names.DECIDED_AT: f"{now_s:.3f}",
    }


def claim_writes(pod: Pod, claim: Claim | None, body: JsonObject) -> list[Write]:
    """Return the writes that create the pod's claim.

    A claim that no pod holds yet is replaced, because the spec of a claim is fixed: where it selects another device, or
    asks for the share that was right beside other company. A claim that a pod holds, or that the adapter did not
    create, is never deleted.
    """
    if claim is not None and (claim.reserved or not claim.ours):
        return []
    wanted = (body["metadata"]["annotations"][names.CLAIM_FOR], requested_capacities(body["spec"]), pod.uid, False)
    if claim is not None and (claim.target, claim.requested, claim.owner_uid, claim.deleting) == wanted:
        return []
    writes = list[Write]()
    if claim is not None:
        preconditions = {"uid": claim.uid, "resourceVersion": claim.version}
        old = {"preconditions": preconditions}
        writes.append(Write(kind=WriteKind.DELETE_CLAIM, namespace=pod.namespace, name=claim.name, body=old))
    writes.append(Write(kind=WriteKind.CREATE_CLAIM, namespace=pod.namespace, name=pod.claim, body=body))
    return writes


def patch_pod(
    pod: Pod, notes: dict[str, str | None], *, selector: dict[str, str] | None = None, ungate: bool = False
) -> Write:
    """Return a merge patch of a pod that fails where the pod has changed since it was read."""
    body: JsonObject = {"metadata": {"uid": pod.uid, "resourceVersion": pod.version, "annotations": notes}}
    spec: JsonObject = {}
    if selector:
        spec["nodeSelector"] = selector
    if ungate:
        spec["schedulingGates"] = [{"name": gate} for gate in pod.gates if gate != names.GATE] or None
    if spec:
        body["spec"] = spec
    return Write(kind=WriteKind.PATCH_POD, namespace=pod.namespace, name=pod.name, body=body)


def without_annotations(patch: Write) -> Write:
    """Return the same patch of a pod without its annotations."""
    metadata = {name: value for name, value in patch.body["metadata"].items() if name != "annotations"}
    return replace(patch, body=patch.body | {"metadata": metadata})


def event(pod: Pod, reason: str, message: str, now_s: float) -> Write:
    """Return an Event of a pod, as `kubectl describe pod` shows it. The Event's name contains the time, so that
    equal Events differ."""
    at = timestamp(now_s)
    seconds = f"{at[:19]}Z"
    body: JsonObject = {
        "metadata": {"name": f"{pod.name[:200]}.{int(now_s * 1e6):x}", "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": f"Interfere{reason}",
        "message": clean(message),
        "type": "Normal",
        "source": {"component": names.MANAGER},
        "reportingComponent": f"{names.PREFIX}controller",
        "reportingInstance": names.MANAGER,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
    }
    return Write(kind=WriteKind.EVENT, namespace=pod.namespace, name=body["metadata"]["name"], body=body)


def clean(text: str) -> str:
    """Return a text as one printable line of limited length."""
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_REASON]
