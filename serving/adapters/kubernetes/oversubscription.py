"""Memory oversubscription on Kubernetes: which GPUs grant more than their memory, and the host memory behind it.

Kubernetes counts devices as wholes. Where a driver publishes memory (ResourceSlices, HAMi), claims may come to what it
publishes and to no more, so such a GPU grants its own memory whatever the ratio says. A GPU of NVIDIA's device plugin
has no memory that Kubernetes counts: grants alone bound it. It is oversubscribed where it is the only one of its node,
because only then the GPU of a pod is known, and a pod that exceeds its grant can be evicted.

Law 1: what a node reserves is at most what its annotation or the setting allows, and at most its allocatable memory.
Law 2: pods that are sent to a node leave that reserve free.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from interfere.records import Device
from interfere.serving.adapters.kubernetes.records import Gpu, GpuSource, Node
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.problem import host_reserves
from interfere.serving.adapters.settings import GIB


def oversubscribed(
    devices: Iterable[Device], gpus: Iterable[Gpu], nodes: Iterable[Node], settings: KubernetesSettings
) -> tuple[Device, ...]:
    """Return the devices, those that grant more than their memory with their ratio and the host memory behind it."""
    may_exceed, node_of = {gpu.id for gpu in gpus if _may_exceed(gpu)}, {node.name: node for node in nodes}
    return tuple(
        _with_ratio(device, node_of[device.node], settings)
        if device.id in may_exceed and device.granule_bytes > 0 and device.node in node_of
        else device
        for device in devices
    )


def without_reserves(nodes: Iterable[Node], gpus: Iterable[Gpu], settings: KubernetesSettings) -> tuple[Node, ...]:
    """Return the nodes without the host memory that they reserve for their GPUs."""
    gpu_of: Mapping[str, Gpu] = {gpu.node: gpu for gpu in gpus if _may_exceed(gpu)}
    return tuple(
        replace(node, memory_bytes=node.memory_bytes - _reserve_bytes(gpu_of[node.name], node, settings))
        if node.name in gpu_of and settings.grants_memory
        else node
        for node in nodes
    )


def _may_exceed(gpu: Gpu) -> bool:
    return gpu.source is GpuSource.NODE and gpu.siblings == 1 and gpu.memory_bytes > 0


def _reserve_bytes(gpu: Gpu, node: Node, settings: KubernetesSettings) -> float:
    device = _with_ratio(Device(id=gpu.id, type=gpu.type, memory_bytes=gpu.memory_bytes), node, settings)
    return device.host_reserve_bytes if device.oversubscription_ratio > 1 else 0.0


def _with_ratio(device: Device, node: Node, settings: KubernetesSettings) -> Device:
    """Return a device with the ratio of its node, and with what the node can reserve of what that needs."""
    ratio = node.oversubscription_ratio if node.oversubscription_ratio >= 1 else settings.oversubscription_ratio
    if ratio <= 1:
        return device
    allowed_bytes = node.host_reserve_bytes if node.host_reserve_bytes >= 0 else settings.host_reserve_gib * GIB
    limits = [limit for limit in (allowed_bytes, node.memory_bytes) if limit >= 0]  # an absent one is NaN
    needed_bytes = (ratio - 1.0) * device.memory_bytes
    (backed,) = host_reserves([replace(device, oversubscription_ratio=ratio)], min([needed_bytes, *limits]))
    return backed
