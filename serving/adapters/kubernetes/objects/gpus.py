"""GPUs that pods may share: of ResourceSlices, of HAMi's annotations, and of NVIDIA's device plugin. Pure functions.

Law: no GPU is given that kube-scheduler would not allocate. A pool counts in its newest generation, as a whole, with
unique names. Decisions name a node, so a device that several nodes reach gives no GPU. A request is rounded up to what
a capacity's request policy allows; a capacity that a claim does not name is consumed by its default, and as a whole
where it has none: claims name each whose default is more than a seat's share.
Source: k8s.io/dynamic-resource-allocation/structured, pools, allocator and consumable_capacity.go of Kubernetes 1.34 to
1.36.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from interfere.records import NAN
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.constraints import fulfils, selector_terms
from interfere.serving.adapters.kubernetes.objects.selectors import (
    attribute_term,
    capacity_term,
    device_variable,
    selects,
)
from interfere.serving.adapters.kubernetes.objects.values import map_at, maps_at, quantity
from interfere.serving.adapters.kubernetes.records import (
    Capacity,
    Gpu,
    GpuSource,
    JsonObject,
    Node,
    SharedCounter,
)
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.sharing_modes import SharingMode

_MIB = float(2**20)
_EXCLUDING_EFFECTS = ("NoSchedule", "NoExecute")  # every other effect, None too, is to be ignored
Rows = Sequence[Mapping[str, Any]]


def gpus_of_slices(
    slices: Iterable[JsonObject], settings: KubernetesSettings, nodes: Sequence[Node] = ()
) -> tuple[Gpu, ...]:
    """Return the GPUs of ResourceSlices that pods may share: devices with a uuid, on one node, that allow several
    allocations."""
    pools: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for row in slices:
        if isinstance(spec := row.get("spec"), dict):
            pools.setdefault((spec.get("driver"), map_at(spec, "pool").get("name")), []).append(spec)
    gpus: list[tuple[Gpu, JsonObject]] = []
    domains = frozenset(str(driver) for driver, _ in pools)
    for members in pools.values():
        newest = max(map(_generation, members))
        current = [spec for spec in members if _generation(spec) == newest]
        if _is_usable(current):
            counters = _SharedCounters(current)
            for spec in current:
                gpus += _gpus(spec, settings, nodes, counters, domains)
    return tuple(_told_apart(gpus))


def _told_apart(published: Sequence[tuple[Gpu, JsonObject]]) -> Iterator[Gpu]:
    """Yield the GPUs, those that share a uuid with names of their own and the terms that tell them apart.

    A device that no attribute and no capacity tells from another of its uuid, as equal partitions, is left out: no
    claim could name it.
    """
    of_uuid: dict[tuple[str, str], list[tuple[Gpu, JsonObject]]] = {}
    for gpu, device in published:
        of_uuid.setdefault((gpu.driver, gpu.uuid), []).append((gpu, device))
    for members in of_uuid.values():
        for gpu, device in members:
            others = [other for other, _ in members if other is not gpu]
            terms = _own_terms(gpu.driver, device) if others else ()
            unlike = tuple(term for term in terms if not all(selects([term], other.variable) for other in others))
            if not any(selects(unlike, other.variable) for other in others):
                yield replace(gpu, id=f"{gpu.id}/{gpu.dra_name}", unlike=unlike) if others else gpu


def _own_terms(driver: str, device: JsonObject) -> Iterator[str]:
    """Yield CEL terms that are true for a device: one for each attribute and each capacity. Versions are no texts to
    CEL."""
    for name, row in map_at(device, "attributes").items():
        for kind in ("string", "int", "bool"):
            if isinstance(row, dict) and kind in row:
                yield attribute_term(driver, name, row[kind])
    for name, row in map_at(device, "capacity").items():
        if isinstance(row, dict) and quantity(row.get("value")) >= 0:
            yield capacity_term(driver, name, str(row["value"]))


def _generation(spec: Mapping[str, Any]) -> int:
    value = map_at(spec, "pool").get("generation")
    return value if isinstance(value, int) else 0


def _is_usable(current: Rows) -> bool:
    """Whether all slices of a pool were read, and no two devices of it have the same name."""
    names = [device.get("name") for spec in current for device in maps_at(spec, "devices")]
    counts = {map_at(spec, "pool").get("resourceSliceCount") or 1 for spec in current}
    return counts == {len(current)} and len(names) == len(set(names))


class _SharedCounters:
    """The counters of a pool: what there is of each, and which devices consume how much of it."""

    def __init__(self, current: Rows) -> None:
        self._values = {
            (str(each.get("name")), name): quantity(map_at(counter).get("value"))
            for spec in current
            for each in maps_at(spec, "sharedCounters")
            for name, counter in map_at(each, "counters").items()
        }
        self._users: dict[tuple[str, str], list[tuple[str, float]]] = {}
        for device in (device for spec in current for device in maps_at(spec, "devices")):
            for key, amount in _consumed_counters(device):
                self._users.setdefault(key, []).append((str(device.get("name")), amount))

    def of(self, device: Mapping[str, Any]) -> tuple[SharedCounter, ...]:
        """Return the counters that a device consumes together with others."""
        return tuple(
            SharedCounter(
                key=key,
                value=self._values.get(key, 0.0),
                amount=amount,
                others=tuple(user for user in self._users[key] if user[0] != device.get("name")),
            )
            for key, amount in _consumed_counters(device)
        )


def _consumed_counters(device: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    for each in maps_at(device, "consumesCounters"):
        for name, counter in map_at(each, "counters").items():
            yield (str(each.get("counterSet")), name), quantity(map_at(counter).get("value"))


def _node_of(place: Mapping[str, Any], nodes: Sequence[Node]) -> str:
    """Return the only node that a slice, or a device with its own node selection, belongs to; empty where there are
    several."""
    if place.get("nodeName"):
        return str(place["nodeName"])
    terms = selector_terms(place.get("nodeSelector"))
    matching = [node.name for node in nodes if fulfils(node, terms)] if terms else []
    return matching[0] if len(matching) == 1 else ""


def _gpus(
    spec: Mapping[str, Any],
    settings: KubernetesSettings,
    nodes: Sequence[Node],
    counters: _SharedCounters,
    domains: frozenset[str],
) -> Iterator[tuple[Gpu, JsonObject]]:
    driver, pool = str(spec.get("driver")), str(map_at(spec, "pool").get("name"))
    node_of_slice = _node_of(spec, nodes)
    for device in maps_at(spec, "devices"):
        attributes = _strings(device.get("attributes"), driver)
        uuid = attributes.get("uuid", "")
        node = _node_of(device, nodes) if spec.get("perDeviceNodeSelection") else node_of_slice
        if not uuid or not node or not device.get("allowMultipleAllocations"):
            continue
        capacity = {str(k): v for k, v in (device.get("capacity") or {}).items() if isinstance(v, dict)}
        memory_name = f"{driver}/memory" if f"{driver}/memory" in capacity else "memory"
        memory, name = capacity.get(memory_name, {}), str(device.get("name") or "")
        gpu = Gpu(
            id=f"{node}/{uuid}",
            node=node,
            uuid=uuid,
            source=GpuSource.DRA,
            type=settings.device_type(attributes.get("productName") or attributes.get("type") or driver),
            memory_bytes=quantity(memory.get("value")),
            share_bytes=share(memory, settings.seats),
            memory_name=memory_name,
            other_capacities=tuple(
                _capacity(key, row, driver, settings.seats) for key, row in capacity.items() if key != memory_name
            ),
            mode=settings.sharing_mode,
            driver=driver,
            dra_pool=pool,
            dra_name=name,
            counters=counters.of(device),
            taints=tuple(
                (str(taint.get("key") or ""), str(taint.get("value") or ""), str(taint.get("effect")))
                for taint in maps_at(device, "taints")
                if taint.get("effect") in _EXCLUDING_EFFECTS
            ),
            seats=settings.seats,
            memory_policy=map_at(memory, "requestPolicy"),
            variable=device_variable(driver, device, domains),
            whole=tuple(
                (key, str(row["value"]))
                for key, row in capacity.items()
                if quantity(row.get("value")) > 0 and consumed(row, quantity(row["value"])) == quantity(row["value"])
            ),
        )
        yield gpu, device


def _strings(attributes: Any, driver: str) -> dict[str, str]:
    """Return the attributes of a device that are texts, by name without the domain of the driver."""
    return {
        str(key).removeprefix(f"{driver}/"): value["string"]
        for key, value in (attributes or {}).items()
        if isinstance(value, dict) and isinstance(value.get("string"), str)
    }


def _capacity(name: str, row: Mapping[str, Any], driver: str, seats: int) -> Capacity:
    """Return what a claim takes of a capacity: its default, or a seat's share where the default is more than that.

    A share below one, as of a single engine, is 0: none of the pods may count on it.
    """
    value, unnamed = quantity(row.get("value")), consumed(row, None)
    requested = unnamed > value / seats
    return Capacity(
        name=name.removeprefix(f"{driver}/"),
        published_name=name,
        value=value,
        per_claim=consumed(row, float(math.floor(share(row, seats)))) if requested else unnamed,
        requested=requested,
        policy=map_at(row, "requestPolicy"),
    )


def consumed(capacity: Mapping[str, Any], requested: float | None) -> float:
    """Return the amount of a capacity that a claim consumes when it requests `requested`.

    `requested` None means that the claim does not name the capacity. NaN where the request policy allows no such
    request.
    """
    policy = capacity.get("requestPolicy") or {}
    if requested is None:
        return quantity(policy.get("default", capacity.get("value")))
    span, values = policy.get("validRange") or {}, [quantity(each) for each in policy.get("validValues") or ()]
    if "min" in span:
        low, step = quantity(span["min"]), quantity(span.get("step"))
        steps = math.ceil((requested - low) / step) if requested > low and step > 0 else 0
        amount = low + steps * step if step > 0 else max(low, requested)
        return math.nan if amount > quantity(span.get("max", math.inf)) else amount
    if values:
        return min((each for each in values if each >= requested), default=math.nan)
    return requested


def share(capacity: Mapping[str, Any], seats: int) -> float:
    """Return the largest request of which `seats` fit into the capacity, or the smallest valid request where none fits.

    NaN where the capacity states no value.
    """
    return largest_request(map_at(capacity, "requestPolicy"), quantity(capacity.get("value")) / seats)


def largest_request(policy: Mapping[str, Any], part: float) -> float:
    """Return the largest request that a policy allows of at most `part`, or the smallest valid one where none is."""
    span, values = policy.get("validRange") or {}, [quantity(each) for each in policy.get("validValues") or ()]
    if "min" in span and not math.isnan(part):
        low, step, high = (quantity(span.get(name)) for name in ("min", "step", "max"))
        amount = min(part, high) if not math.isnan(high) else part
        if amount <= low:
            return low
        return low + math.floor((amount - low) / step) * step if step > 0 else amount
    if values and not math.isnan(part):
        return max((each for each in values if each <= part), default=min(values))
    return part


def gpus_of_nodes(nodes: Iterable[JsonObject], settings: KubernetesSettings) -> tuple[Gpu, ...]:
    """Return the GPUs that nodes register for HAMi, and those that NVIDIA's device plugin shares."""
    gpus: list[Gpu] = []
    for row in nodes:
        node, register = (
            str(map_at(row, "metadata").get("name")),
            map_at(row, "metadata", "annotations").get(names.HAMI_REGISTER),
        )
        gpus += _hami(node, str(register), settings) if register else _of_device_plugin(node, row, settings)
    return tuple(gpus)


def _hami(node: str, register: str, settings: KubernetesSettings) -> Iterator[Gpu]:
    """Yield the GPUs in HAMi's annotation of a node: JSON since 2.5, before
    `uuid,count,MiB,cores,type,numa,healthy:` for each device."""
    try:
        rows = json.loads(register)
        devices = [(r["id"], r["count"], r["devmem"], r["type"], r.get("health", True)) for r in rows]
    except (ValueError, TypeError, KeyError):
        parts = [part.split(",") for part in register.split(":") if part.count(",") >= 6]
        devices = [(part[0], part[1], part[2], part[4], part[6] == "true") for part in parts]
    for uuid, count, mebibytes, product, healthy in devices:
        shares = quantity(count)
        if healthy is True and uuid and shares >= 1:
            yield Gpu(
                id=f"{node}/{uuid}",
                node=node,
                uuid=str(uuid),
                source=GpuSource.HAMI,
                type=settings.device_type(str(product)),
                memory_bytes=quantity(mebibytes) * _MIB,
                mode=settings.sharing_mode,
                seats=min(settings.seats, int(shares)),
            )


def _of_device_plugin(node: str, row: JsonObject, settings: KubernetesSettings) -> Iterator[Gpu]:
    """Yield the GPUs of a node that NVIDIA's device plugin shares among as many pods each."""
    labels = map_at(row, "metadata", "labels")
    count, shares = (
        quantity(each)
        for each in (labels.get(names.GPU_COUNT), map_at(row, "status", "allocatable").get(names.GPU_RESOURCE))
    )
    if not (count >= 1 and shares >= count):
        return
    strategy = {"mps": SharingMode.MPS, "time-slicing": SharingMode.TIMESLICE}.get(labels.get(names.GPU_STRATEGY, ""))
    product = str(labels.get(names.GPU_PRODUCT) or "gpu").removesuffix("-SHARED")
    for k in range(int(count)):
        yield Gpu(
            id=f"{node}/gpu-{k}",
            node=node,
            uuid=f"gpu-{k}",
            source=GpuSource.NODE,
            type=settings.device_type(product),
            memory_bytes=quantity(labels.get(names.GPU_MEMORY_MIB, NAN)) * _MIB,
            mode=strategy or settings.sharing_mode,
            seats=min(settings.seats, int(shares // count)),
            siblings=int(count),
        )
