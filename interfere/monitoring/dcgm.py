"""What dcgm-exporter's series mean: metrics with their units, codes for no value, and workloads from the names of pods.

Metrics and units: NVIDIA, dcgm-exporter `default-counters.csv` and DCGM's `dcgm_fields.h`.

Workloads are named after pods, without what Kubernetes appends, which differs from run to run. A Deployment's pod is
NAME-HASH-RANDOM, a Job's NAME-RANDOM, a CronJob's NAME-TIME-RANDOM, a StatefulSet's NAME-ORDINAL, a training operator's
NAME-worker-ORDINAL. Hashes and random parts are written in an alphabet without vowels and without 0, 1 and 3
(Kubernetes, apimachinery `util/rand`). Of ordinals without a role one digit is taken off, so that resnet-18 and
resnet-50 stay two workloads.
"""

import math
import re

MIB = 2**20
# For each metric: the field of JobProfile, the factor to SI units or a share, and the highest valid value.
METRICS = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("busy_frac", 1.0, 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_frac", 1.0, 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_frac", 1.0, 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_frac", 1.0, 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_frac", 1.0, 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_util_frac", 0.01, 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_util_frac", 0.01, 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_peak_bytes", float(MIB), 1e16),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0, 1e5),
}
# Prometheus renames an exporter's label that the scrape sets too: the plain `pod` is then that of the exporter itself.
EXPORTED_PREFIX = "exported_"
# dcgm_structs.h: DCGM_INT64_BLANK, DCGM_INT32_BLANK and DCGM_FP64_BLANK, each followed by the codes of its reasons.
BLANK_RANGES = (
    (9223372036854775792.0, math.inf),
    (2147483632.0, 2147483647.0),
    (140737488355328.0, 140737488355335.0),
)
NO_STEPS = "(DCGM|container|kube|process|go|python|scrape|promhttp|node)_.*"  # what every exporter tells

BY_WORKLOAD = "workload"  # in place of a label: the pod's name without what Kubernetes appended
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
_HASH_AND_RANDOM = re.compile(rf"-(?:{_SAFE}{{6,10}}|(?=[a-f]*\d)[0-9a-f]{{6,10}}|\d{{8,10}})-{_SAFE}{{5}}$")
_RANDOM = re.compile(rf"-{_SAFE}{{5}}$")
_TIME_STAMP = re.compile(r"-\d{8,}$")
_ROLE_AND_ORDINAL = re.compile(r"-(?:worker|master|launcher|chief|ps|head|leader)(?:-\d+)?$")
_ORDINAL = re.compile(r"-\d$")


def workload_of_pod(pod: str) -> str:
    """Return the name of a pod without hashes, random parts, time stamps, ordinals and roles.

    >>> pods = ("bert-7d9f8b6c5d-x2k4q", "bert-train-lq8zn", "db-0", "resnet-50", "llm-worker-11")
    >>> [workload_of_pod(pod) for pod in pods]
    ['bert', 'bert-train', 'db', 'resnet-50', 'llm']
    """
    name = _HASH_AND_RANDOM.sub("", pod)
    if name == pod:
        for appended in (_RANDOM, _TIME_STAMP, _ROLE_AND_ORDINAL, _ORDINAL):
            name = appended.sub("", name)
    return name or pod
