"""Names of workloads from names of pods: what Kubernetes appends to a name differs from run to run and is taken off.

A Deployment's pod is NAME-HASH-RANDOM, a Job's NAME-RANDOM, a CronJob's NAME-TIME-RANDOM, a StatefulSet's NAME-ORDINAL,
a training operator's NAME-worker-ORDINAL. Hashes and random parts are written in an alphabet without vowels and without
0, 1 and 3 (Kubernetes, apimachinery `util/rand`). Of ordinals without a role one digit is taken off, so that resnet-18
and resnet-50 stay two workloads.
"""

import re

BY_WORKLOAD = "workload"  # in place of a label: the pod's name without what Kubernetes appended
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
_HASH_AND_RANDOM = re.compile(rf"-(?:{_SAFE}{{6,10}}|(?=[a-f]*\d)[0-9a-f]{{6,10}}|\d{{8,10}})-{_SAFE}{{5}}$")
_RANDOM = re.compile(rf"-{_SAFE}{{5}}$")
_TIME_STAMP = re.compile(r"-\d{8,}$")
_ROLE_AND_ORDINAL = re.compile(r"-(?:worker|master|launcher|chief|ps|head|leader)(?:-\d+)?$")
_ORDINAL = re.compile(r"-\d$")


def workload_of_pod(pod: str) -> str:
    """The name of a pod without hashes, random parts, time stamps, ordinals and roles.

    >>> pods = ("bert-7d9f8b6c5d-x2k4q", "bert-train-lq8zn", "db-0", "resnet-50", "llm-worker-11")
    >>> [workload_of_pod(pod) for pod in pods]
    ['bert', 'bert-train', 'db', 'resnet-50', 'llm']
    """
    name = _HASH_AND_RANDOM.sub("", pod)
    if name == pod:
        for appended in (_RANDOM, _TIME_STAMP, _ROLE_AND_ORDINAL, _ORDINAL):
            name = appended.sub("", name)
    return name or pod
