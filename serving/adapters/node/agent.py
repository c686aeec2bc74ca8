"""Measure what this node's jobs hold, warn those above their memory grant, and end those that stay above it."""

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from interfere.client import PolicyClient
from interfere.commands.output import JsonFlag, progress_note
from interfere.monitoring.job_memory import (
    ExcessWatch,
    MemoryCgroup,
    MemoryWindows,
    WatchedJob,
    cgroup_of,
    memory_usages,
    warning,
)
from interfere.profiling.programs.process_tree import ProcessTable
from interfere.profiling.programs.started_jobs import NoticeKind, StartedJob
from interfere.records import MemoryUsage
from interfere.serving.adapters.metrics import AdapterMetrics
from interfere.serving.adapters.node.port import MAX_GAP, NodeChange, NodePort, NodeSettings
from interfere.serving.adapters.observations import MAX_USAGES
from interfere.serving.adapters.round import Advisor, Round, run_rounds, stop_on_signals
from interfere.serving.adapters.slurm.port import runs
from interfere.serving.adapters.slurm.scontrol import SlurmCommands
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.strict_json import json_value

app = typer.Typer(add_completion=False)
DEFAULT = Path("/etc/interfere/agent.toml")

Config = Annotated[Path, typer.Option(help="TOML file: settings, and the devices of this node.")]


class SlurmJobs:
    """The jobs of this node that Slurm started: measured, reported and warned here, and ended by Slurm's advisor.

    Their memory counts in their own control group, where Slurm makes one, else in their process trees.
    """

    def __init__(self, settings: SlurmSettings, node: str, interval_s: float, *, enforce: bool) -> None:
        self._settings, self._node, self._enforce = settings, node, enforce
        self._slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)
        self._windows = MemoryWindows(settings.report_every_s, MAX_GAP * interval_s)
        self._excess = ExcessWatch()
        self._unsent: tuple[MemoryUsage, ...] = ()

    def report(self, client: PolicyClient) -> dict[str, str]:
        """Sample and report all jobs, and return the warnings by job id. Raises InterfereError; the next call goes
        on."""
        now_s, watched = time.time(), self._watched_jobs()
        prefix, table = f"node/{self._settings.cluster}", ProcessTable()
        usages = memory_usages(watched, self._windows, {}, now_s, prefix, table)
        self._unsent = (*self._unsent, *usages)[-MAX_USAGES:]
        if self._unsent:
            client.observe(self._unsent)
            self._unsent = ()
        warnings, job_of = dict[str, str](), {job.run_id: job for job in watched}
        for run_id, used_bytes in self._excess.see(watched, usages).items():
            job = job_of[run_id]
            warnings[job.id] = warning(used_bytes, job.limit_bytes, self._settings.grant_patience_s)
            if self._enforce:
                self._slurm.notify(job.id, f"interfere warns this job: {warnings[job.id]}")
        return warnings

    def _watched_jobs(self) -> list[WatchedJob]:
        """Return the running jobs of this node that name their workload and run on one known device."""
        watched, tolerance = list[WatchedJob](), self._settings.limits().memory.grant_tolerance
        for run in runs(self._slurm.jobs(), self._slurm.nodes(), self._settings):
            job, place = run.job, run.places[0] if len(run.places) == 1 else None
            if job.state != "RUNNING" or job.node != self._node or not job.workload or place is None:
                continue
            granted_bytes = job.note.grant_bytes if job.note else 0
            pids = self._slurm.process_ids(job.id, self._node)
            watched.append(
                WatchedJob(
                    id=job.id,
                    run_id=job.run_id,
                    workload=job.workload,
                    device_id=place.device_id,
                    device_type=place.device_type,
                    limit_bytes=granted_bytes * (1.0 + tolerance) if granted_bytes else math.inf,
                    cgroup=_slurm_cgroup(pids, job.id),
                    pids=pids,
                )
            )
        return watched


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
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Warn and end jobs. Without it: only say who would be.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="One sample and one decision, then stop.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure what this node's jobs hold until SIGTERM or Ctrl-C; with --enforce end who stays above a grant.

    Only jobs that `interfere run` started are warned and ended, by the processes that started them. Jobs of Slurm are
    measured and warned; Slurm's advisor ends them.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = NodeSettings.load(config, {"server": server, "interval_s": interval})
    port, metrics = NodePort(settings, enforce=enforce), AdapterMetrics("node", {})
    by_slurm = None
    if slurm is not None:
        by_slurm = SlurmJobs(SlurmSettings.load(slurm, {}), settings.node_name, settings.interval_s, enforce=enforce)
    with PolicyClient(settings.server, timeout_s=settings.timeout_s) as client:
        advisor = Advisor(port, client, port, settings, metrics)

        def report(done: Round[StartedJob, NodeChange]) -> None:
            warnings = by_slurm.report(client) if by_slurm else {}
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


def document(
    done: Round[StartedJob, NodeChange], slurm_warnings: Mapping[str, str], *, enforced: bool
) -> dict[str, Any]:
    """Return the report of a round as a document for --json."""
    notices = [(each.job.id, each.notice.kind, each.notice.reason) for each in done.changes]
    notices += [(job_id, NoticeKind.WARNING, reason) for job_id, reason in slurm_warnings.items()]
    return {
        "at_s": done.at_s,
        "notices": [{"job": job_id, "kind": kind.value, "reason": reason} for job_id, kind, reason in notices],
        "enforced": enforced,
        "refused": [{"job": each.job_id, "message": each.message} for each in done.rejected],
        "observations": dict(done.observations),
    }


def text(done: Round[StartedJob, NodeChange], slurm_warnings: Mapping[str, str], *, enforced: bool) -> str:
    """Return the report of a round as text: a line for each notice."""
    verb = {NoticeKind.WARNING: "warned", NoticeKind.END: "ended"}
    would = "" if enforced else "would be "
    lines = [
        f"{each['job']}: {would}{verb[NoticeKind(each['kind'])]}: {each['reason']}"
        for each in document(done, slurm_warnings, enforced=enforced)["notices"]
    ]
    return "\n".join([*lines, *(f"{each.job_id}: {each.message}" for each in done.rejected)])
