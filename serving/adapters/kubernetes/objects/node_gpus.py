"""GPUs that pods may share, from nodes: HAMi's annotations, and nodes of one GPU. Pure functions.

A node of several GPUs under NVIDIA's device plugin gives none: which of them a pod gets is the kubelet's choice.
"""

import json
from collections.abc import Iterable, Iterator

from interfere.records import NAN
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.quantities import quantity
from interfere.serving.adapters.kubernetes.records import Gpu, GpuSource, JsonObject
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.sharing_modes import SharingMode

_MIB = float(2**20)


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
    strategy = {"mps": SharingMode.MPS, "time-slicing": SharingMode.TIMESLICE}.get(labels.get(names.GPU_STRATEGY, ""))
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
