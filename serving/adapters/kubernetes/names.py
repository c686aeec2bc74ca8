"""Names that the adapter reads and writes in the cluster: annotations, labels, the gate; and other projects' names."""

import re

PREFIX = "interfere.dev/"
GATE = f"{PREFIX}placement"  # the scheduling gate that holds a pod until it is decided
OPT_IN = f"{PREFIX}placement"  # label of a namespace or pod; its value is `enabled`
ENABLED = "enabled"

# What users write on pods. A label of the same name is read where the annotation is missing.
WORKLOAD = f"{PREFIX}workload"
MEMORY_GIB = f"{PREFIX}memory-gib"
MAX_SLOWDOWN = f"{PREFIX}max-slowdown"
OPT_OUT = f"{PREFIX}opt-out"  # "true": never gated, never advised
MAX_WAIT_S = f"{PREFIX}max-wait-seconds"  # a pod that was decided to wait is left to Kubernetes after that
REMAINING_S = f"{PREFIX}remaining-seconds"  # expected alone, from its start; with the next, it may be evicted
CHECKPOINT_S = f"{PREFIX}checkpoint-seconds"  # what it loses where it is stopped
DEVICE_CLASS = f"{PREFIX}device-class"  # of the pod's claim, in place of the adapter's setting

# What administrators write on nodes, in place of the adapter's settings.
RATIO = f"{PREFIX}oversubscription-ratio"
HOST_RESERVE_GIB = f"{PREFIX}host-reserve-gib"

# What the adapter writes on pods.
TEMPLATE = f"{PREFIX}claim-template"  # the ResourceClaimTemplate that the pod's late claim is made from
STATE = f"{PREFIX}state"  # one of `records.PodState`
DEVICE = f"{PREFIX}device"
DECISION = f"{PREFIX}decision"
SLOWDOWN = f"{PREFIX}predicted-slowdown"
PARTNER = f"{PREFIX}partner"
SLOTS = f"{PREFIX}memory-slots"  # of its GPU, that hold the pod's memory grant: 0-3,8
REASON = f"{PREFIX}reason"
DECIDED_AT = f"{PREFIX}decided-at"  # unix seconds; on the lease too: of the newest decision about any pod
TRIES = f"{PREFIX}tries"
ADVICE = f"{PREFIX}advice"  # observe-only: where the pod would have been placed

MANAGED_BY = "app.kubernetes.io/managed-by"  # label of the claims that the adapter creates
MANAGER = "interfere"
CLAIM_FOR = f"{PREFIX}claim-for"  # annotation of a claim: the device's id, or ANY_DEVICE
ANY_DEVICE = "any"

HOSTNAME = "kubernetes.io/hostname"
# Project HAMi, docs/develop/protocol.md: devices of a node, the device to use, the devices a pod was given.
HAMI_REGISTER = "hami.io/node-nvidia-register"
HAMI_USE = "nvidia.com/use-gpuuuid"
HAMI_ALLOCATED = "hami.io/vgpu-devices-allocated"
# NVIDIA's device plugin and GPU feature discovery.
GPU_RESOURCE = "nvidia.com/gpu"
GPU_COUNT = "nvidia.com/gpu.count"
GPU_PRODUCT = "nvidia.com/gpu.product"
GPU_MEMORY_MIB = "nvidia.com/gpu.memory"
GPU_STRATEGY = "nvidia.com/gpu.sharing-strategy"

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


def is_label(text: str) -> bool:
    """Whether the API server accepts a text as a name without dots (RFC 1123 label)."""
    return re.fullmatch(_LABEL, text) is not None


def is_subdomain(text: str) -> bool:
    """Whether the API server accepts a text as the name of most kinds of objects (RFC 1123 subdomain)."""
    return len(text) <= 253 and all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", part) for part in text.split("."))
