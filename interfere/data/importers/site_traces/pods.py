"""Imports the pods of a Kubernetes cluster: the JSON list of `kubectl get pods --all-namespaces --output json`.

One pod is one job on as many devices as its containers ask for. Only pods that asked for devices, ran and have ended
can be replayed; the others are dropped and counted. A pod's name for the map of workloads is the value of its label
`name_label`, or its own name.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import ImportResult, Notice, Treatment, nonempty_notices
from interfere.data.importers.site_traces.workload_map import WorkloadMap, frequent_names
from interfere.data.importers.strict_reading import read_json
from interfere.data.traces import JobTrace, TraceJob
from interfere.errors import TableError

RESOURCE = "nvidia.com/gpu"
COMMAND = "kubectl get pods --all-namespaces --output json"
FORMAT_NOTES = (
    "arrival_s counts from the first creationTimestamp; duration_s from the first start of a container to the last end",
    "gpus = limits of the resource, summed over containers; vc = namespace; user = the pod's service account",
    "pods that failed are kept, with their phase; pods that were deleted are not in the list",
)


def import_pods(
    path: Path,
    *,
    workloads: WorkloadMap | None = None,
    name_label: str = "",
    resource: str = RESOURCE,
    name: str = "pods",
) -> ImportResult:
    """Import the list in `path`. Raises TableError, which names the file and the pod."""
    document, source = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        seen = ", ".join(sorted(document)) if isinstance(document, dict) else type(document).__name__
        raise TableError(
            f"{path.name}: not a list of pods: `items` is missing",
            value=f"found {seen[:200]} in {path}",
            remedy=f"give the output of `{COMMAND}`",
        )
    pods = [_Pod(path, k, item, resource) for k, item in enumerate(document["items"])]
    with_gpus = [pod for pod in pods if pod.gpus]
    ended = [pod for pod in with_gpus if pod.times_s is not None]
    start_s = min((pod.created_s for pod in ended), default=0.0)
    names = [pod.label(name_label) for pod in ended]
    jobs = [
        pod.job(start_s, label if workloads is None else workloads.workload(label))
        for pod, label in zip(ended, names, strict=True)
    ]
    unnamed = [label for label, job in zip(names, jobs, strict=True) if not job.workload]
    return ImportResult(
        source_format="pods",
        files=(source, *((workloads.source,) if workloads is not None else ())),
        format_notes=FORMAT_NOTES,
        trace=JobTrace(name=name, jobs=tuple(sorted(jobs, key=lambda job: job.arrival_s)), start_s=start_s),
        notices=nonempty_notices(
            Notice(
                treatment=Treatment.DROPPED,
                subject=f"pods without {resource}",
                count=len(pods) - len(with_gpus),
                reason="they share no device",
            ),
            Notice(
                treatment=Treatment.DROPPED,
                subject="pods that have not run or ended",
                count=len(with_gpus) - len(ended),
                reason="their run time is unknown",
            ),
            Notice(
                treatment=Treatment.FLAGGED,
                subject="pods whose name no pattern matches",
                count=len(unnamed),
                reason=f"they run alone in a replay; most frequent: {frequent_names(unnamed)}",
            ),
        ),
    )


class _Pod:
    """One pod of the list."""

    def __init__(self, path: Path, index: int, item: Any, resource: str) -> None:
        try:
            metadata, spec, status = item["metadata"], item["spec"], item.get("status", {})
            self.name, self._labels = str(metadata["name"]), dict(metadata.get("labels") or {})
            self._namespace = str(metadata.get("namespace", ""))
            self._id = str(metadata.get("uid") or f"{self._namespace}/{self.name}")
            self.created_s = _time_s(metadata["creationTimestamp"])
            self._user, self._phase = str(spec.get("serviceAccountName", "")), str(status.get("phase", ""))
            limits = [(container.get("resources") or {}).get("limits") or {} for container in spec["containers"]]
            self.gpus = sum(int(limit.get(resource, 0)) for limit in limits)
            self.times_s = _run_s(status.get("containerStatuses") or [])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TableError(
                f"{path.name}, item {index}: not a pod ({type(error).__name__}: {error})",
                value=path,
                remedy=f"give the output of `{COMMAND}`",
            ) from None

    def label(self, name_label: str) -> str:
        """The value of a label, or the pod's name."""
        return str(self._labels.get(name_label, "")) or self.name

    def job(self, start_s: float, workload: str) -> TraceJob:
        """The pod as a job of a trace that starts at `start_s`."""
        assert self.times_s is not None
        return TraceJob(
            job_id=self._id,
            workload=workload,
            arrival_s=self.created_s - start_s,
            gpus=self.gpus,
            duration_s=max(0.0, self.times_s[1] - self.times_s[0]),
            user=self._user,
            vc=self._namespace,
            status=self._phase.lower(),
        )


def _run_s(containers: list[Any]) -> tuple[float, float] | None:
    """First start and last end of containers, in unix time; None where one has not ended."""
    ends = [container["state"].get("terminated") for container in containers]
    if not ends or not all(ends):
        return None
    return min(_time_s(end["startedAt"]) for end in ends), max(_time_s(end["finishedAt"]) for end in ends)


def _time_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
