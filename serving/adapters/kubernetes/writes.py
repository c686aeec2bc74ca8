"""Decisions as writes to the API server. Pure functions.

Law: one patch of a pod decides, writes and removes the gate, so a pod is never ungated without its decision; its claim
exists before. Law: every write carries the resourceVersion or the uid of what was read, so a lost race changes nothing.
Law: a pod's `resourceClaims` are never written, a nodeSelector is only added to.
"""

import json
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.values import bytes_text, timestamp
from interfere.serving.adapters.kubernetes.problem import MemoryShare, memory_bytes, number
from interfere.serving.adapters.kubernetes.records import Claim, Gpu, GpuSource, JsonObject, Node, Pod, PodState
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.observations import Decision

MAX_REASON = 900  # characters; an Event's message holds 1,024


class WriteKind(StrEnum):
    """The kinds of writes to the API server."""

    CREATE_CLAIM = "create_claim"
    DELETE_CLAIM = "delete_claim"
    PATCH_POD = "patch_pod"
    EVENT = "event"


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
    decision: Decision[Pod],
    gpu: Gpu,
    node: Node,
    claim: Claim | None,
    settings: KubernetesSettings,
    share: MemoryShare,
    now_s: float,
) -> PodChange:
    """Send a pod to one GPU: its claim, then annotations, nodeSelector and gate in one patch."""
    pod, action = decision.job, decision.action
    notes = decision_notes(decision, PodState.PLACED, now_s)
    notes[names.TRIES] = f"{number(pod.note(names.TRIES)) + 1:.0f}"
    selector = {}
    writes = list[Write]()
    if gpu.source is GpuSource.DRA:
        writes += claim_writes(pod, claim, gpu, settings, share)
    else:
        selector = {names.HOSTNAME: node.hostname}
        if gpu.source is GpuSource.HAMI:
            notes[names.HAMI_USE] = gpu.uuid
    writes.append(patch_pod(pod, notes, selector=selector if pod.gated else {}, ungate=pod.gated))
    writes.append(event(pod, "Placed", f"{action.kind.value.replace('_', ' ')} on {gpu.id}: {action.reason}", now_s))
    return PodChange(pod=pod, state=PodState.PLACED, writes=tuple(writes))


def wait(decision: Decision[Pod], now_s: float) -> PodChange | None:
    """Note why a pod waits; None where its annotations say so already."""
    pod, reason = decision.job, clean(decision.action.reason)
    if pod.note(names.STATE) == PodState.WAITING and pod.note(names.REASON) == reason:
        return None
    notes = decision_notes(decision, PodState.WAITING if pod.gated else PodState.RELEASED, now_s)
    if not pod.gated and pod.note(names.REASON) == reason:
        return None
    writes = (patch_pod(pod, notes), event(pod, "Waiting", reason or "no free seat", now_s))
    return PodChange(pod=pod, state=PodState.WAITING, writes=writes)


def release(
    pod: Pod, claim: Claim | None, reason: str, settings: KubernetesSettings, share: MemoryShare, now_s: float
) -> PodChange | None:
    """Leave a pod to Kubernetes: an unrestricted claim, no gate. None where nothing is left to do."""
    writes = list[Write]()
    if (
        pod.claim
        and pod.special != "claim template"
        and (claim is None or (claim.ours and not claim.reserved and claim.target != names.ANY_DEVICE))
    ):
        writes += claim_writes(pod, claim, None, settings, share)
    if not writes and not pod.gated:
        return None
    notes: dict[str, str | None] = {
        names.STATE: PodState.RELEASED.value,
        names.REASON: clean(reason),
        names.DECIDED_AT: f"{now_s:.3f}",
        names.DEVICE: None,
        names.PARTNER: None,
        names.SLOWDOWN: None,
    }
    writes.append(patch_pod(pod, notes, ungate=pod.gated))
    writes.append(event(pod, "Released", f"left to Kubernetes: {clean(reason)}", now_s))
    return PodChange(pod=pod, state=PodState.RELEASED, writes=tuple(writes))


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
        names.REASON: clean(action.reason),
        names.DECIDED_AT: f"{now_s:.3f}",
    }


def claim_writes(
    pod: Pod, claim: Claim | None, gpu: Gpu | None, settings: KubernetesSettings, share: MemoryShare
) -> list[Write]:
    """Return the writes that create the pod's claim for one GPU, or for any GPU.

    A claim that no pod holds yet is replaced, because the spec of a claim is fixed. A claim that a pod holds, or that
    the adapter did not create, is never deleted.
    """
    if claim is not None and (claim.reserved or not claim.ours):
        return []
    target = gpu.id if gpu else names.ANY_DEVICE
    if claim is not None and claim.target == target and claim.owner_uid == pod.uid and not claim.deleting:
        return []
    writes = list[Write]()
    if claim is not None:
        preconditions = {"uid": claim.uid, "resourceVersion": claim.version}
        body = {"preconditions": preconditions}
        writes.append(Write(kind=WriteKind.DELETE_CLAIM, namespace=pod.namespace, name=claim.name, body=body))
    body = claim_body(pod, gpu, settings, share)
    writes.append(Write(kind=WriteKind.CREATE_CLAIM, namespace=pod.namespace, name=pod.claim, body=body))
    return writes


def claim_body(pod: Pod, gpu: Gpu | None, settings: KubernetesSettings, share: MemoryShare) -> JsonObject:
    """Return a ResourceClaim of one device with a share of its memory. A given GPU is selected by its uuid."""
    wanted = pod.note(names.DEVICE_CLASS)  # a name that is none would leave the pod without a claim for ever
    exactly: dict[str, Any] = {"deviceClassName": wanted if names.is_subdomain(wanted) else settings.device_class}
    if gpu is not None:
        exactly["selectors"] = [{"cel": {"expression": device_selector(gpu)}}]
    amount = memory_bytes(pod, share.bytes)
    capacity = gpu.memory_name if gpu else share.capacity
    requests = {} if math.isnan(amount) or not capacity else {capacity: bytes_text(amount)}
    for other in (each for each in gpu.other_capacities if each.requested) if gpu else ():
        requests[other.published_name] = f"{other.per_claim:.0f}"
    if requests:
        exactly["capacity"] = {"requests": requests}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": pod.claim,
            "namespace": pod.namespace,
            "labels": {names.MANAGED_BY: names.MANAGER},
            "annotations": {names.CLAIM_FOR: gpu.id if gpu else names.ANY_DEVICE},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"name": settings.request_name, "exactly": exactly}]}},
    }


def device_selector(gpu: Gpu) -> str:
    """Return a CEL expression that is true for one device only.

    The expression is evaluated on every device of the class. It must not fail on a device that lacks an attribute,
    because one error would fail the whole allocation.
    """
    driver, uuid = (json.dumps(text, ensure_ascii=False) for text in (gpu.driver, gpu.uuid))
    own = f"device.attributes[{driver}]"
    return f'device.driver == {driver} && "uuid" in {own} && {own}.uuid == {uuid}'


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
