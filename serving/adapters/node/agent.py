"""Measure what this node's jobs hold, warn those above their memory grant, and end those that stay above it."""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from interfere.client import PolicyClient
from interfere.commands.output import JsonFlag, progress_note
from interfere.monitoring.job_memory import MemoryCgroup, MemoryWatch, WatchedJob, cgroup_of, limit_of, pod_cgroup
from interfere.profiling.programs.device_admission import publish
from interfere.profiling.programs.process_tree import ProcessTable
from interfere.profiling.programs.started_jobs import NoticeKind, StartedJob
from interfere.records import NAN
from interfere.records.promises import granules_for
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.node.port import (
    NodeChange,
    NodePort,
    NodeSettings,
    published_devices,
)
from interfere.serving.adapters.observations import MemoryReports
from interfere.serving.adapters.round import Advisor, Round, run_rounds, stop_on_signals
from interfere.serving.adapters.settings import GIB, AdapterSettings
from interfere.serving.adapters.slurm.port import runs
from interfere.serving.adapters.slurm.scontrol import SlurmCommands
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.strict_json import json_value

if TYPE_CHECKING:
    from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
    from interfere.serving.adapters.kubernetes.records import Pod

app = typer.Typer(add_completion=False)
DEFAULT = Path("/etc/interfere/agent.toml")

Config = Annotated[Path, typer.Option(help="TOML file: settings, and the devices of this node.")]


class JobSource(Protocol):
    """Jobs of this node that somebody else started: measured, reported and warned here, and ended by who started
    them."""

    cluster: str  # part of the ids of their observations

    def jobs(self) -> Sequence[WatchedJob]:
        """Return the running jobs whose memory is to be measured. Raises InterfereError."""

    def warn(self, job_id: str, message: str) -> None:
        """Tell a job that it holds more than its grant. Raises InterfereError."""


class MeasuredJobs:
    """Samples the jobs of a source, and reports what they hold."""

    def __init__(self, source: JobSource, settings: AdapterSettings, max_gap_s: float, *, enforce: bool) -> None:
        self._source, self._enforce = source, enforce
        self._memory = MemoryWatch(settings.report_every_s, max_gap_s, settings.grant_patience_s)
        self._reports = MemoryReports()

    def report(self, client: PolicyClient) -> dict[str, str]:
        """Sample and report all jobs once, and return the warnings by job id. Raises InterfereError; the next call goes
        on."""
        now_s, watched = time.time(), self._source.jobs()
        usages, of_runs = self._memory.sample(watched, now_s, f"node/{self._source.cluster}", ProcessTable())
        self._reports.send(client, usages)
        warnings = {job.id: of_runs[job.run_id] for job in watched if job.run_id in of_runs}
        for job_id, warning in warnings.items() if self._enforce else ():
            self._source.warn(job_id, warning)
        return warnings


class SlurmJobs:
    """The jobs of this node that Slurm started (`JobSource`): Slurm's advisor ends them.

    On a GPU whose UUID is known, what they hold there counts. `uuid_of`: the UUIDs by GRES type; a type may also be a
    UUID itself. Else their memory counts in their own control group, where Slurm makes one, or in their process trees.
    """

    def __init__(self, settings: SlurmSettings, node: str, uuid_of: Mapping[str, str] = MappingProxyType({})) -> None:
        self.cluster, self._settings, self._node, self._uuid_of = settings.cluster, settings, node, uuid_of
        self._slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)

    def jobs(self) -> list[WatchedJob]:
        """Return the running jobs of this node that name their workload and run on one known device."""
        watched, tolerance = list[WatchedJob](), self._settings.limits().memory.grant_tolerance
        for run in runs(self._slurm.jobs(), self._slurm.nodes(), self._settings):
            job, place = run.job, run.places[0] if len(run.places) == 1 else None
            if job.state != "RUNNING" or job.node != self._node or not job.workload or place is None:
                continue
            pids = self._slurm.process_ids(job.id, self._node)
            gres = place.device_id.rpartition("/")[2]
            watched.append(
                WatchedJob(
                    id=job.id,
                    run_id=job.run_id,
                    workload=job.workload,
                    device_id=place.device_id,
                    device_type=place.device_type,
                    gpu_uuid=self._uuid_of.get(gres, gres if gres.startswith("GPU-") else ""),
                    limit_bytes=limit_of(job.note.grant_bytes if job.note else NAN, tolerance),
                    cgroup=_slurm_cgroup(pids, job.id),
                    pids=pids,
                )
            )
        return watched

    def warn(self, job_id: str, message: str) -> None:
        """Write into the standard error of a job."""
        self._slurm.notify(job_id, f"interfere warns this job: {message}")


class PodJobs:
    """The pods of this node (`JobSource`): the controller evicts them. What they hold on their GPU counts."""

    def __init__(self, settings: KubernetesSettings, api: "ClusterApi", node: str) -> None:
        self.cluster, self._settings, self._api, self._node = settings.cluster, settings, api, node
        self._pods: dict[str, Pod] = {}  # by their ids in decisions

    def jobs(self) -> list[WatchedJob]:
        """Return the running pods of this node that name their workload and hold one known GPU."""
        from interfere.serving.adapters.kubernetes.objects.reading import cluster_state
        from interfere.serving.adapters.kubernetes.seats import ClusterView, held_gpus

        pods, _ = self._api.list("/api/v1/pods", fields=f"spec.nodeName={self._node}")
        nodes, _ = self._api.list("/api/v1/nodes", fields=f"metadata.name={self._node}")
        devices = "/apis/resource.k8s.io/v1"
        slices, _ = self._api.list(f"{devices}/resourceslices", fields=f"spec.nodeName={self._node}")
        claims = []
        for namespace in sorted({row["metadata"]["namespace"] for row in pods}):
            claims += self._api.list(f"{devices}/namespaces/{namespace}/resourceclaims")[0]
        state = cluster_state(self._settings, pods, nodes, slices, claims)
        self._pods = {pod.id: pod for pod in state.pods}
        tolerance = self._settings.limits().memory.grant_tolerance
        granule_bytes = self._settings.granule_gib * GIB
        watched = []
        for gpu, residents in held_gpus(ClusterView(state=state, settings=self._settings, now_s=self._api.time_s())):
            for job in (job for job in residents if job.workload):
                has_grant = self._settings.grants_memory and job.memory_peak_bytes > 0
                granted_bytes = granules_for(job.memory_peak_bytes, granule_bytes) * granule_bytes if has_grant else NAN
                cgroup = pod_cgroup(self._pods[job.id].uid)
                watched.append(
                    WatchedJob(
                        id=job.id,
                        run_id=self._pods[job.id].run_id,
                        workload=job.workload,
                        device_id=gpu.id,
                        device_type=gpu.type,
                        gpu_uuid=gpu.uuid,
                        limit_bytes=limit_of(granted_bytes, tolerance),
                        cgroup=cgroup,
                        pids=cgroup.process_ids() if cgroup else (),
                    )
                )
        return watched

    def warn(self, job_id: str, message: str) -> None:
        """Write an Event of the pod."""
        from interfere.serving.adapters.kubernetes.writes import event

        self._api.write(event(self._pods[job_id], "MemoryGrant", f"interfere warns this pod: {message}", time.time()))


def _slurm_cgroup(pids: Sequence[int], job_id: str) -> MemoryCgroup | None:
    """Return the control group that Slurm made for a job; None where it makes none (task/cgroup is not used)."""
    group = cgroup_of(pids[0]) if pids else None
    folders = (group.folder, *group.folder.parents) if group else ()
    return next((MemoryCgroup(folder) for folder in folders if folder.name == f"job_{job_id}"), None)


@app.command()
def agent(
    config: Config = DEFAULT,
    server: Annotated[str | None, typer.Option(help="Address of the policy server. Default: 127.0.0.1:50051.")] = None,
    interval: Annotated[float | None, typer.Option(help="Seconds between samples. Default: 2.")] = None,
    slurm: Annotated[Path | None, typer.Option(help="The advisor's file: also measure what Slurm's jobs hold.")] = None,
    kubernetes: Annotated[
        Path | None, typer.Option(help="The controller's file: also measure what pods of this node hold.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Name of this node. Default: the host's.")] = None,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Warn and end jobs. Without it: only say who would be.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="One sample and one decision, then stop.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure what this node's jobs hold until SIGTERM or Ctrl-C; with --enforce end who stays above a grant.

    Only jobs that `interfere run` started are warned and ended, by the processes that started them. Jobs of Slurm and
    pods are measured and warned; Slurm's advisor and Kubernetes' controller end them.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = NodeSettings.load(config, {"server": server, "interval_s": interval, "node": node})
    publish(settings.jobs, published_devices(settings, enforced=enforce))
    port, metrics = NodePort(settings, enforce=enforce), AdapterMetrics("node", {})
    sources = [
        MeasuredJobs(source, source_settings, settings.largest_gap_s, enforce=enforce)
        for source, source_settings in _sources(slurm, kubernetes, settings)
    ]
    with PolicyClient(settings.server, timeout_s=settings.timeout_s) as client:
        advisor = Advisor(port, client, port, settings, metrics)

        def report(done: Round[StartedJob, NodeChange]) -> None:
            warnings = {job_id: told for source in sources for job_id, told in source.report(client).items()}
            if as_json:
                typer.echo(json.dumps(json_value(document(done, warnings, enforced=enforce))))
            elif done.changes or warnings:
                typer.echo(text(done, warnings, enforced=enforce))

        if once:
            report(advisor.round())
            return
        mode = "enforcing" if enforce else "dry run: nobody is warned or ended"
        progress_note(f"watching jobs of {settings.node_name} every {settings.interval_s:g} s; {mode}")
        run_rounds(advisor, settings.interval_s, stop_on_signals(), report)


def _sources(
    slurm: Path | None, kubernetes: Path | None, node: NodeSettings
) -> Iterator[tuple[JobSource, SlurmSettings | KubernetesSettings]]:
    if slurm is not None:
        slurm_settings = SlurmSettings.load(slurm, {})
        uuid_of = {device.id: device.gpu_uuid for device in node.devices if device.gpu_uuid}
        yield SlurmJobs(slurm_settings, node.node_name, uuid_of), slurm_settings
    if kubernetes is not None:
        from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi

        settings = KubernetesSettings.load(kubernetes, {})
        api = ClusterApi(settings.timeout_s, settings.writes_per_s, settings.burst)
        yield PodJobs(settings, api, node.node_name), settings


def document(done: Round[StartedJob, NodeChange], warnings: Mapping[str, str], *, enforced: bool) -> dict[str, Any]:
    """Return the report of a round as a document for --json."""
    notices = [(each.job.id, each.notice.kind, each.notice.reason) for each in done.changes]
    notices += [(job_id, NoticeKind.WARNING, reason) for job_id, reason in warnings.items()]
    return {
        "at_s": done.at_s,
        "notices": [{"job": job_id, "kind": kind.value, "reason": reason} for job_id, kind, reason in notices],
        "enforced": enforced,
        "refused": [{"job": each.job_id, "message": each.message} for each in done.rejected],
        "observations": dict(done.observations),
    }


def text(done: Round[StartedJob, NodeChange], warnings: Mapping[str, str], *, enforced: bool) -> str:
    """Return the report of a round as text: a line for each notice."""
    verb = {NoticeKind.WARNING: "warned", NoticeKind.END: "ended"}
    would = "" if enforced else "would be "
    lines = [
        f"{each['job']}: {would}{verb[NoticeKind(each['kind'])]}: {each['reason']}"
        for each in document(done, warnings, enforced=enforced)["notices"]
    ]
    return "\n".join([*lines, *(f"{each.job_id}: {each.message}" for each in done.rejected)])
