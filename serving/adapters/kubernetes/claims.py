"""What claims ask for: a seat of one GPU, or a whole GPU of any kind. Pure functions.

Law: two claims of the adapter leave no third pod a place on a GPU of two seats: each takes at least a seat's share.
Law: a claim for any GPU is allocated an idle one: it asks for the whole of every capacity that can be asked for so.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interfere.records import NAN
from interfere.serving.adapters import problem as shared
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.gpus import largest_request
from interfere.serving.adapters.kubernetes.objects.values import bytes_text
from interfere.serving.adapters.kubernetes.records import Gpu, GpuSource, JsonObject, Pod
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings

MAX_KINDS = 8  # that the API server takes as alternatives of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """GPUs of one driver with equal capacities, as a claim for a whole one names them."""

    driver: str
    memory_bytes: float
    whole: tuple[tuple[str, str], ...]  # capacities, as published, that a claim can ask for the whole of


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSizes:
    """The sizes of claims in a cluster."""

    seat_bytes: float  # memory of a pod that names none; NaN where no ResourceSlice states the memory
    kinds: tuple[GpuKind, ...]  # the smallest memory first


def claim_sizes(gpus: Iterable[Gpu]) -> ClaimSizes:
    """Return the sizes of claims. Pods of unknown memory ask for a seat on the smallest GPU: so they can take all
    seats of every GPU."""
    published = [gpu for gpu in gpus if gpu.source is GpuSource.DRA]
    kinds = {GpuKind(driver=gpu.driver, memory_bytes=gpu.memory_bytes, whole=gpu.whole) for gpu in published}
    return ClaimSizes(
        seat_bytes=min((gpu.share_bytes for gpu in published if not math.isnan(gpu.share_bytes)), default=NAN),
        kinds=tuple(sorted((kind for kind in kinds if kind.whole), key=lambda kind: (kind.memory_bytes, str(kind)))),
    )


def memory_bytes(pod: Pod, default_bytes: float) -> float:
    """Return the device memory of a pod: as annotated, else as HAMi grants it, else the default. Raises ValueError."""
    granted_bytes = default_bytes if pod.source is GpuSource.DRA else pod.hami_memory_bytes
    return shared.memory_of(pod.note(names.MEMORY_GIB), granted_bytes)


def seats_bytes(gpu: Gpu, held_bytes: Sequence[float], wanted_bytes: Sequence[float]) -> tuple[float, ...]:
    """Return the memory that the claims of new pods on a GPU ask for, beside claims that hold `held_bytes`.

    Each asks for what its pod wants, and for up to a seat's share where there is so much. The last seat takes the rest.
    """
    free_bytes, amounts = gpu.memory_bytes - sum(held_bytes), list[float]()
    for k, wanted in enumerate(wanted_bytes):
        is_last = len(held_bytes) + k + 1 >= gpu.seats
        room = free_bytes - sum(wanted_bytes[k + 1 :])
        allowed = largest_request(gpu.memory_policy, room if is_last else min(room, gpu.memory_bytes / gpu.seats))
        amounts.append(max(wanted, allowed) if allowed <= room else wanted)
        free_bytes -= amounts[-1]
    return tuple(amounts)


def seat_request(pod: Pod, gpu: Gpu, amount_bytes: float, settings: KubernetesSettings) -> JsonObject:
    """Return the request for a seat of a GPU, with so much of its memory and a share of its other capacities."""
    requests = {} if math.isnan(amount_bytes) else {gpu.memory_name: bytes_text(amount_bytes)}
    for other in gpu.other_capacities:
        if other.requested:
            requests[other.published_name] = f"{other.per_claim:.0f}"
    return {"exactly": _device(pod, settings, device_selector(gpu), requests)}


def whole_request(pod: Pod, gpu: Gpu, settings: KubernetesSettings) -> JsonObject:
    """Return the request for the whole of a GPU: nobody else is allocated a part of it."""
    return {"exactly": _device(pod, settings, device_selector(gpu), dict(gpu.whole))}


def any_request(pod: Pod, sizes: ClaimSizes, settings: KubernetesSettings) -> JsonObject:
    """Return the request for a whole GPU of any kind that is large enough.

    Where no kind is known, as before the first node of a GPU is there, it is any device of the class.
    """
    try:
        wanted_bytes = memory_bytes(pod, NAN)
    except ValueError:
        wanted_bytes = NAN
    large = [kind for kind in sizes.kinds if not kind.memory_bytes < wanted_bytes] or sizes.kinds
    requests = [_device(pod, settings, kind_selector(kind), dict(kind.whole)) for kind in large[:MAX_KINDS]]
    if len(requests) > 1:
        return {"firstAvailable": [{"name": f"kind-{k}", **request} for k, request in enumerate(requests)]}
    if requests:
        return {"exactly": requests[0]}
    return {"exactly": _device(pod, settings, "", {})}


def _device(pod: Pod, settings: KubernetesSettings, expression: str, capacities: Mapping[str, str]) -> JsonObject:
    wanted = pod.note(names.DEVICE_CLASS)  # a name that is none would leave the pod without a claim for ever
    request: JsonObject = {"deviceClassName": wanted if names.is_subdomain(wanted) else settings.device_class}
    if expression:
        request["selectors"] = [{"cel": {"expression": expression}}]
    if capacities:
        request["capacity"] = {"requests": dict(capacities)}
    return request


def claim_body(pod: Pod, target: str, request: Mapping[str, Any], settings: KubernetesSettings) -> JsonObject:
    """Return a ResourceClaim of one device. `target`: the device's id, or ANY_DEVICE."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": pod.claim,
            "namespace": pod.namespace,
            "labels": {names.MANAGED_BY: names.MANAGER},
            "annotations": {names.CLAIM_FOR: target},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"name": settings.request_name, **request}]}},
    }


def device_selector(gpu: Gpu) -> str:
    """Return a CEL expression that is true for one device only.

    The expression is evaluated on every device of the class. It must not fail on a device that lacks an attribute,
    because one error would fail the whole allocation.
    """
    driver, uuid = (json.dumps(text, ensure_ascii=False) for text in (gpu.driver, gpu.uuid))
    own = f"device.attributes[{driver}]"
    return f'device.driver == {driver} && "uuid" in {own} && {own}.uuid == {uuid}'


def kind_selector(kind: GpuKind) -> str:
    """Return a CEL expression that is true for the devices of a kind, and fails on none."""
    terms = [f"device.driver == {json.dumps(kind.driver)}"]
    for name, value in kind.whole:
        domain, _, plain = name.rpartition("/")
        of_domain, key = f"device.capacity[{json.dumps(domain or kind.driver)}]", json.dumps(plain)
        terms.append(f"{key} in {of_domain} && {of_domain}[{key}].compareTo(quantity({json.dumps(value)})) == 0")
    return " && ".join(terms)
