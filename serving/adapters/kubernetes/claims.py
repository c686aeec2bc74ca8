"""What claims ask for: a seat of one GPU, or a whole GPU of any kind. Pure functions.

Law: two claims of the adapter leave no third pod a place on a GPU of two seats: each takes at least a seat's share.
Law: a claim for any GPU is allocated an idle one: it asks for the whole of every capacity that can be asked for so.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from interfere.records import NAN
from interfere.serving.adapters import problem as shared
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.gpus import largest_request
from interfere.serving.adapters.kubernetes.objects.selectors import capacity_term
from interfere.serving.adapters.kubernetes.objects.values import bytes_text, list_at, map_at, maps_at, quantity
from interfere.serving.adapters.kubernetes.records import Gpu, GpuSource, JsonObject, Pod

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
        seat_bytes=min(
            (gpu.share_bytes for gpu in published if not math.isnan(gpu.share_bytes) and not gpu.taints), default=NAN
        ),
        kinds=tuple(sorted((kind for kind in kinds if kind.whole), key=lambda kind: (kind.memory_bytes, str(kind)))),
    )


def memory_bytes(pod: Pod, default_bytes: float) -> float:
    """Return the device memory of a pod: as annotated, else as its claim's template or HAMi grants it, else the
    default. Raises ValueError."""
    granted_bytes = pod.hami_memory_bytes
    if pod.source is GpuSource.DRA:
        granted_bytes = default_bytes if math.isnan(pod.claim_memory_bytes) else pod.claim_memory_bytes
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


def plain_request(spec: JsonObject | None) -> JsonObject:
    """Return the request of a claim that asks for exactly one device; empty for any other claim."""
    requests = maps_at(spec, "devices", "requests")
    exactly = map_at(requests[0], "exactly") if len(requests) == 1 else {}
    is_one = exactly.get("allocationMode", "ExactCount") == "ExactCount" and exactly.get("count", 1) == 1
    is_plain = is_one and not exactly.get("adminAccess") and not list_at(spec, "devices", "constraints")
    return exactly if is_plain else {}


def requested_capacities(spec: JsonObject) -> tuple[tuple[str, float], ...]:
    """Return the capacities that a claim's request of exactly one device asks for, by name; empty for other claims."""
    asked = map_at(plain_request(spec), "capacity", "requests")
    return tuple(sorted((name, quantity(amount)) for name, amount in asked.items()))


def seat_spec(spec: JsonObject, gpu: Gpu, amount_bytes: float) -> JsonObject:
    """Return the spec of a claim for a seat of a GPU: its share of memory and of other capacities, or the claim's own
    request where that is larger."""
    requests = {} if math.isnan(amount_bytes) else {gpu.memory_name: bytes_text(amount_bytes)}
    for other in gpu.other_capacities:
        if other.requested:
            requests[other.published_name] = f"{other.per_claim:.0f}"
    asked = map_at(plain_request(spec), "capacity", "requests")
    larger = {name: text for name, text in requests.items() if not quantity(asked.get(name)) > quantity(text)}
    return _with(spec, _device(spec, device_selector(gpu), larger))


def whole_spec(spec: JsonObject, gpu: Gpu) -> JsonObject:
    """Return the spec of a claim for the whole of a GPU: nobody else is allocated a part of it."""
    return _with(spec, _device(spec, device_selector(gpu), dict(gpu.whole)))


def any_spec(spec: JsonObject, sizes: ClaimSizes, wanted_bytes: float) -> JsonObject:
    """Return the spec of a claim for a whole GPU of any kind that is large enough.

    Where no kind is known, as before the first node of a GPU is there, or where the spec asks for several devices, it
    is the spec as its user wrote it.
    """
    large = [kind for kind in sizes.kinds if not kind.memory_bytes < wanted_bytes] or sizes.kinds
    devices = [_device(spec, kind_selector(kind), dict(kind.whole)) for kind in large[:MAX_KINDS]]
    if not devices or not plain_request(spec):
        return spec
    if len(devices) == 1:
        return _with(spec, devices[0])
    (request,) = maps_at(spec, "devices", "requests")
    alternatives = [{"name": f"kind-{k}", **device} for k, device in enumerate(devices)]
    request = {"name": request.get("name"), "firstAvailable": alternatives}
    return {**spec, "devices": {**map_at(spec, "devices"), "requests": [request]}}


def _device(spec: JsonObject, expression: str, capacities: dict[str, str]) -> JsonObject:
    """Return the request of a plain claim with one more selector, and with more capacities."""
    request = dict(plain_request(spec))
    request["selectors"] = [*maps_at(request, "selectors"), {"cel": {"expression": expression}}]
    if asked := map_at(request, "capacity", "requests") | capacities:
        request["capacity"] = {"requests": asked}
    return request


def _with(spec: JsonObject, exactly: JsonObject) -> JsonObject:
    (request,) = maps_at(spec, "devices", "requests")
    return {**spec, "devices": {**map_at(spec, "devices"), "requests": [{**request, "exactly": exactly}]}}


def claim_body(pod: Pod, target: str, spec: JsonObject) -> JsonObject:
    """Return a ResourceClaim. `target`: the device's id, or ANY_DEVICE."""
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
        "spec": spec,
    }


def device_selector(gpu: Gpu) -> str:
    """Return a CEL expression that is true for one device only.

    The expression is evaluated on every device of the class. It must not fail on a device that lacks an attribute,
    because one error would fail the whole allocation.
    """
    driver, uuid = (json.dumps(text, ensure_ascii=False) for text in (gpu.driver, gpu.uuid))
    own = f"device.attributes[{driver}]"
    return " && ".join((f'device.driver == {driver} && "uuid" in {own} && {own}.uuid == {uuid}', *gpu.unlike))


def kind_selector(kind: GpuKind) -> str:
    """Return a CEL expression that is true for the devices of a kind, and fails on none."""
    capacities = (capacity_term(kind.driver, name, value) for name, value in kind.whole)
    return " && ".join((f"device.driver == {json.dumps(kind.driver)}", *capacities))
