"""Objects of the shapes that were recorded on a real cluster: pods, nodes, ResourceSlices, HAMi's annotations."""

from typing import Any

from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings, Mode

DEVICE_TYPE = "cpu-core"  # what the shipped model knows
DRIVER = "gpu.interfere.dev"
GIB = 2**30
Row = dict[str, Any]


def settings(**given: Any) -> KubernetesSettings:
    values = {
        "mode": Mode.GATE,
        "cluster": "c",
        "device_class": DRIVER,
        "interval_s": 0.2,
        "window_s": 60.0,
        "lease_s": 300.0,  # taken once: no thread renews it where the test begins the rounds
        "device_types": {"TEST-GPU": DEVICE_TYPE},
        "writes_per_s": 1000.0,
        "burst": 1000,
    }
    return KubernetesSettings(**(values | given))


def node(name: str = "n0", *, gpus: int = 0, replicas: int = 2, hami: bool = False, **labels: str) -> Row:
    """A node. With `hami` it registers its GPUs; else with one GPU it is one of NVIDIA's device plugin."""
    row: Row = {
        "metadata": {"name": name, "labels": {names.HOSTNAME: name} | labels, "annotations": {}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    if hami:
        row["metadata"]["annotations"][names.HAMI_REGISTER] = "".join(
            f"GPU-{name}-{k},{replicas},16384,100,TEST-GPU,0,true:" for k in range(gpus)
        )
    elif gpus:
        row["metadata"]["labels"] |= {names.GPU_COUNT: str(gpus), names.GPU_PRODUCT: "TEST-GPU-SHARED"}
        row["metadata"]["labels"] |= {names.GPU_MEMORY_MIB: "16384", names.GPU_STRATEGY: "time-slicing"}
        row["status"]["allocatable"][names.GPU_RESOURCE] = str(gpus * replicas)
    return row


def resource_slice(node_name: str = "n0", gpus: int = 2, memory: str = "80Gi", generation: int = 1) -> Row:
    """A ResourceSlice of devices that may be allocated several times."""
    return {
        "metadata": {"name": f"{node_name}-{DRIVER}-{generation}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{k}",
                    "allowMultipleAllocations": True,
                    "attributes": {
                        "uuid": {"string": f"GPU-{node_name}-{k}"},
                        "productName": {"string": "TEST-GPU"},
                    },
                    "capacity": {"memory": {"value": memory, "requestPolicy": {"default": "1Gi"}}},
                }
                for k in range(gpus)
            ],
        },
    }


def pod(
    name: str,
    workload: str = "gemm",
    *,
    source: str = "dra",
    gated: bool = True,
    namespace: str = "ml",
    notes: dict[str, str] | None = None,
    **spec: Any,
) -> Row:
    """A pending pod. DRA pods name a claim that does not exist yet."""
    resources: Row = {"requests": {"cpu": "1", "memory": "1Gi"}}
    own: Row = {"containers": [{"name": "main", "resources": resources}], "schedulerName": "default-scheduler"}
    if source == "dra":
        own["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        resources["claims"] = [{"name": "gpu"}]
    else:
        resources["limits"] = {names.GPU_RESOURCE: "1"} | ({"nvidia.com/gpumem": "8192"} if source == "hami" else {})
    if gated:
        own["schedulingGates"] = [{"name": names.GATE}]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {},
            "annotations": {names.WORKLOAD: workload} | (notes or {}),
        },
        "spec": own | spec,
        "status": {"phase": "Pending"},
    }
