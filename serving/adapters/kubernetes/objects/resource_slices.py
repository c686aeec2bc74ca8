"""GPUs that pods may share, from ResourceSlices. Pure functions.

Law: no GPU is given that kube-scheduler would not allocate. A pool counts in its newest generation, as a whole, with
unique names; a device counts unless a taint keeps new pods off it. Decisions name a node, so a device that several
nodes reach gives no GPU.
Source: k8s.io/dynamic-resource-allocation/structured, pools and allocator of Kubernetes 1.34 to 1.36.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from interfere.serving.adapters.kubernetes.constraints import fulfils
from interfere.serving.adapters.kubernetes.objects.capacities import consumed, share
from interfere.serving.adapters.kubernetes.objects.node_selectors import selector_terms
from interfere.serving.adapters.kubernetes.objects.quantities import quantity
from interfere.serving.adapters.kubernetes.records import Capacity, Gpu, GpuSource, JsonObject, Node
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings

_EXCLUDING_EFFECTS = ("NoSchedule", "NoExecute")  # every other effect, None too, is to be ignored
Rows = Sequence[Mapping[str, Any]]


def gpus_of_slices(
    slices: Iterable[JsonObject], settings: KubernetesSettings, nodes: Sequence[Node] = ()
) -> tuple[Gpu, ...]:
    """Devices that allow several allocations, name a uuid and belong to one node."""
    pools: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for row in slices:
        if isinstance(spec := row.get("spec"), dict):
            pools.setdefault((spec.get("driver"), _pool(spec).get("name")), []).append(spec)
    gpus: dict[str, Gpu] = {}
    for members in pools.values():
        newest = max(map(_generation, members))
        current = [spec for spec in members if _generation(spec) == newest]
        if _is_usable(current):
            sharing_counters = _names_by_counter_set(current)
            for spec in current:
                for gpu in _gpus(spec, settings, nodes, sharing_counters):
                    gpus.setdefault(gpu.id, gpu)
    return tuple(gpus.values())


def _pool(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    pool = spec.get("pool")
    return pool if isinstance(pool, dict) else {}


def _generation(spec: Mapping[str, Any]) -> int:
    value = _pool(spec).get("generation")
    return value if isinstance(value, int) else 0


def _is_usable(current: Rows) -> bool:
    """Whether all slices of a pool are there, and its devices have different names."""
    names = [device.get("name") for spec in current for device in _devices(spec)]
    counts = {_pool(spec).get("resourceSliceCount") or 1 for spec in current}
    return counts == {len(current)} and len(names) == len(set(names))


def _devices(spec: Mapping[str, Any]) -> Rows:
    return [device for device in spec.get("devices") or () if isinstance(device, dict)]


def _names_by_counter_set(current: Rows) -> Mapping[str, Sequence[str]]:
    """Names of the devices that consume counters of each set, such as a GPU and its partitions."""
    names: dict[str, list[str]] = {}
    for device in (device for spec in current for device in _devices(spec)):
        for counter_set in _counter_sets(device):
            names.setdefault(counter_set, []).append(str(device.get("name")))
    return names


def _counter_sets(device: Mapping[str, Any]) -> list[str]:
    return [str(each.get("counterSet")) for each in device.get("consumesCounters") or () if isinstance(each, dict)]


def _node_of(place: Mapping[str, Any], nodes: Sequence[Node]) -> str:
    """The only node that a slice, or a device of its own selection, belongs to; empty where there are several."""
    if place.get("nodeName"):
        return str(place["nodeName"])
    terms = selector_terms(place.get("nodeSelector"))
    matching = [node.name for node in nodes if fulfils(node, terms)] if terms else []
    return matching[0] if len(matching) == 1 else ""


def _gpus(
    spec: Mapping[str, Any],
    settings: KubernetesSettings,
    nodes: Sequence[Node],
    sharing_counters: Mapping[str, Sequence[str]],
) -> Iterator[Gpu]:
    driver, pool = str(spec.get("driver")), str(_pool(spec).get("name"))
    node_of_slice = _node_of(spec, nodes)
    for device in _devices(spec):
        attributes = _strings(device.get("attributes"), driver)
        uuid = attributes.get("uuid", "")
        node = _node_of(device, nodes) if spec.get("perDeviceNodeSelection") else node_of_slice
        if not uuid or not node or not device.get("allowMultipleAllocations") or _is_tainted(device):
            continue
        capacity = {str(k): v for k, v in (device.get("capacity") or {}).items() if isinstance(v, dict)}
        memory_name = f"{driver}/memory" if f"{driver}/memory" in capacity else "memory"
        memory, name = capacity.get(memory_name, {}), str(device.get("name") or "")
        yield Gpu(
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
            excluded_by=tuple(
                dict.fromkeys(
                    other for each in _counter_sets(device) for other in sharing_counters[each] if other != name
                )
            ),
            seats=settings.seats,
        )


def _strings(attributes: Any, driver: str) -> dict[str, str]:
    """Attributes that are text. A name without a domain belongs to the driver."""
    return {
        str(key).removeprefix(f"{driver}/"): value["string"]
        for key, value in (attributes or {}).items()
        if isinstance(value, dict) and isinstance(value.get("string"), str)
    }


def _is_tainted(device: Mapping[str, Any]) -> bool:
    """Whether a taint keeps off claims without tolerations, as those of the adapter are."""
    taints = [taint for taint in device.get("taints") or () if isinstance(taint, dict)]
    return any(taint.get("effect") in _EXCLUDING_EFFECTS for taint in taints)


def _capacity(name: str, row: Mapping[str, Any], driver: str, seats: int) -> Capacity:
    part, value = share(row, seats), quantity(row.get("value"))
    has_default = "default" in (row.get("requestPolicy") or {})
    return Capacity(
        name=name.removeprefix(f"{driver}/"),
        published_name=name,
        value=value,
        per_claim=part if not has_default and part >= 1 else consumed(row, None),
        requested=not has_default and part >= 1,
    )
