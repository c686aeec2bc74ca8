"""What claims hold of each device that a ResourceSlice publishes. Pure functions.

Law: a claim holds its devices until its allocation is gone, also after its pod has ended, as kube-scheduler counts.
Law: a device that a claim holds of which no known pod explains the use has an unknown resident.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from interfere.serving.adapters.kubernetes.records import AllocatedDevice, ClusterState, Gpu

DeviceKey = tuple[str, str, str]  # driver, pool, name


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """What is held of devices, by device."""

    consumed: Mapping[DeviceKey, Mapping[str, float]]  # of each capacity, in all
    ended: Mapping[DeviceKey, tuple[AllocatedDevice, ...]]  # held for pods that have ended
    unknown: frozenset[DeviceKey]  # held by claims of several devices, or of pods that nobody knows

    def is_excluded(self, gpu: Gpu) -> bool:
        """Whether another device, such as a partition of it, holds counters that the GPU would need."""
        others = ((gpu.driver, gpu.dra_pool, name) for name in gpu.excluded_by)
        return gpu.key not in self.consumed and any(other in self.consumed for other in others)


def read_allocations(state: ClusterState, ignored: Collection[str] = frozenset()) -> Allocations:
    """The allocations of all claims but those of the pods whose uids are ignored."""
    running, ended, left_out = set[str](), set[str](), set[str]()
    for pod in state.pods:
        if pod.claim:
            claims = left_out if pod.uid in ignored else ended if pod.ended else running
            claims.add(f"{pod.namespace}/{pod.claim}")
    consumed: dict[DeviceKey, Counter[str]] = {}
    of_ended: dict[DeviceKey, list[AllocatedDevice]] = {}
    unknown = set[DeviceKey]()
    for claim in state.claims:
        if claim.key in left_out - running:
            continue
        for device in claim.devices:
            amounts = consumed.setdefault(device.key, Counter())
            for name, amount in device.consumed:
                amounts[name] += amount  # type: ignore[assignment]  # a Counter of floats
            if claim.key in ended - running:
                of_ended.setdefault(device.key, []).append(device)
            elif claim.key not in running or len(claim.devices) > 1:
                unknown.add(device.key)
    return Allocations(
        consumed=consumed,
        ended={key: tuple(devices) for key, devices in of_ended.items()},
        unknown=frozenset(unknown),
    )
