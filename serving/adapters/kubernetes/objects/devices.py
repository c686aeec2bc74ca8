"""GPUs that pods may share: from ResourceSlices, from HAMi's annotations, from nodes of one GPU. Pure functions.

A pool of ResourceSlices that is not published as a whole gives none: the scheduler allocates nothing from it.
A node of several GPUs under NVIDIA's device plugin gives none: which of them a pod gets is the kubelet's choice.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from interfere.records import NAN
from serving.adapters.kubernetes import names
from serving.adapters.kubernetes.objects.capacities import share
from serving.adapters.kubernetes.objects.quantities import quantity
from serving.adapters.kubernetes.records import Gpu, GpuSource, JsonObject
from serving.adapters.kubernetes.settings import KubernetesSettings

_MIB = float(2**20)


def gpus_of_slices(slices: Iterable[JsonObject], settings: KubernetesSettings) -> tuple[Gpu, ...]:
    """Devices that allow several allocations and name a uuid, of the newest generation of each pool."""
    specs = [spec for row in slices if isinstance(spec := row.get("spec"), dict)]
    pools: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for spec in specs:
        pools.setdefault(_pool(spec), []).append(spec)
    newest = {pool: max(map(_generation, members)) for pool, members in pools.items()}
    gpus: dict[str, Gpu] = {}
    for pool, members in pools.items():
        current = [spec for spec in members if _generation(spec) == newest[pool]]
        expected = max((spec.get("pool") or {}).get("resourceSliceCount") or 1 for spec in current)
        for spec in current if len(current) >= expected else ():
            if not spec.get("nodeName"):
                continue
            for gpu in _devices(spec, settings):
                gpus.setdefault(gpu.id, gpu)
    return tuple(gpus.values())


def _pool(spec: Mapping[str, Any]) -> tuple[Any, Any]:
    return spec.get("driver"), (spec.get("pool") or {}).get("name")


def _generation(spec: Mapping[str, Any]) -> int:
    value = (spec.get("pool") or {}).get("generation")
    return value if isinstance(value, int) else 0


def _devices(spec: Mapping[str, Any], settings: KubernetesSettings) -> Iterator[Gpu]:
    node, driver, pool = str(spec["nodeName"]), str(spec.get("driver")), str((spec.get("pool") or {}).get("name"))
    for device in spec.get("devices") or ():
        if not isinstance(device, dict):
            continue
        attributes = {
            str(key).removeprefix(f"{driver}/"): value["string"]
            for key, value in (device.get("attributes") or {}).items()
            if isinstance(value, dict) and isinstance(value.get("string"), str)
        }
        capacity = {str(k): v for k, v in (device.get("capacity") or {}).items() if isinstance(v, dict)}
        memory_name = "memory" if "memory" in capacity else f"{driver}/memory"
        memory = capacity.get(memory_name, {})
        uuid = str(attributes.get("uuid") or "")
        if not uuid or not device.get("allowMultipleAllocations") or device.get("taints"):
            continue
        product = str(attributes.get("productName") or attributes.get("type") or driver)
        yield Gpu(
            id=f"{node}/{uuid}",
            node=node,
            uuid=uuid,
            source=GpuSource.DRA,
            type=settings.device_type(product),
            memory_bytes=quantity(memory.get("value")),
            share_bytes=share(memory, settings.seats),
            memory_name=memory_name,
            other_requests=tuple(
                (name, f"{share(each, settings.seats):.0f}")
                for name, each in capacity.items()
                if name != memory_name
                and "default" not in (each.get("requestPolicy") or {})
                and share(each, settings.seats) >= 1
            ),
            mode=settings.sharing_mode,
            driver=driver,
            dra_pool=pool,
            dra_name=str(device.get("name") or ""),
            seats=settings.seats,
        )


def gpus_of_nodes(nodes: Iterable[JsonObject], settings: KubernetesSettings) -> tuple[Gpu, ...]:
    """GPUs that nodes register for HAMi, or the only GPU of a node that NVIDIA's device plugin shares."""
    gpus: list[Gpu] = []
    for row in nodes:
        metadata = row.get("metadata") or {}
        register = (metadata.get("annotations") or {}).get(names.HAMI_REGISTER)
        gpus += _hami(str(metadata.get("name")), str(register), settings) if register else _single(row, settings)
    return tuple(gpus)


def _hami(node: str, register: str, settings: KubernetesSettings) -> Iterator[Gpu]:
    """HAMi's register: JSON from 2.5 on, before that `uuid,count,MiB,cores,type,numa,healthy:` for each device."""
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


def _single(row: JsonObject, settings: KubernetesSettings) -> Iterator[Gpu]:
    node = str(row["metadata"].get("name"))
    labels = row["metadata"].get("labels") or {}
    replicas = quantity(((row.get("status") or {}).get("allocatable") or {}).get(names.GPU_RESOURCE))
    if labels.get(names.GPU_COUNT) != "1" or not replicas >= 1:
        return
    strategy = {"mps": "mps", "time-slicing": "timeslice"}.get(labels.get(names.GPU_STRATEGY, ""))
    product = str(labels.get(names.GPU_PRODUCT) or "gpu").removesuffix("-SHARED")
    yield Gpu(
        id=f"{node}/gpu-0",
        node=node,
        uuid="gpu-0",
        source=GpuSource.NODE,
        type=settings.device_type(product),
        memory_bytes=quantity(labels.get(names.GPU_MEMORY_MIB, NAN)) * _MIB,
        mode=strategy or settings.sharing_mode,
        seats=min(settings.seats, int(replicas)),
    )
