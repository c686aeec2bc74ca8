"""Let Slurm start jobs that share GPUs where the matching puts them."""

import json
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.strict_json import json_value

if TYPE_CHECKING:
    from serving.adapters.slurm.advisor import Round

app = typer.Typer(add_completion=False, no_args_is_help=True)

Config = Annotated[Path, typer.Option(help="TOML file: settings, and what the GPUs are.")]
DEFAULT = Path("/etc/interfere/slurm.toml")


@app.command()
def advise(
    config: Config = DEFAULT,
    server: Annotated[str | None, typer.Option(help="Address of the policy server. Default: 127.0.0.1:50051.")] = None,
    interval: Annotated[float | None, typer.Option(help="Seconds between rounds. Default: 2.")] = None,
    window: Annotated[float | None, typer.Option(help="Deferral of job_submit.lua in seconds. Default: 20.")] = None,
    spool: Annotated[Path | None, typer.Option(help="Folder of step marks. Default: /var/spool/interfere.")] = None,
    metrics: Annotated[Path | None, typer.Option(help="Prometheus text file to keep up to date.")] = None,
    once: Annotated[bool, typer.Option("--once", help="One round, then stop.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, report nothing: say what would be.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Advise Slurm until SIGTERM or Ctrl-C: place pending jobs that share GPUs, report how fast they run."""
    from interfere.client import PolicyClient
    from serving.adapters.slurm.advisor import Advisor
    from serving.adapters.slurm.commands import SlurmCommands
    from serving.adapters.slurm.loop import one_instance, run_forever
    from serving.adapters.slurm.metrics import AdvisorMetrics
    from serving.adapters.slurm.settings import load

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    given = {"server": server, "interval_s": interval, "window_s": window, "spool": spool, "metrics": metrics}
    settings = load(config, given)
    counted = AdvisorMetrics()
    alone = nullcontext() if dry_run else one_instance(settings.lock)
    with alone, PolicyClient(settings.server, timeout_s=settings.timeout_s) as client:
        slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)
        advisor = Advisor(settings, slurm, client, counted, dry_run=dry_run)
        if once:
            done = advisor.round()
            emit(document(done), text(done, dry_run=dry_run), as_json=as_json)
            if settings.metrics:
                counted.write(settings.metrics)
            return
        progress_note(f"advising {settings.cluster} every {settings.interval_s:g} s; server {settings.server}")
        run_forever(
            advisor,
            settings,
            counted,
            lambda done: (
                typer.echo(json.dumps(json_value(document(done)))) if as_json else _tell(done, dry_run=dry_run)
            ),
        )


@app.command()
def release(config: Config = DEFAULT, as_json: JsonFlag = False) -> None:
    """Give every job back to Slurm at once: no deferral, no chosen node. For rollback, after stopping the advisor."""
    from serving.adapters.slurm import edits
    from serving.adapters.slurm.commands import SlurmCommands
    from serving.adapters.slurm.loop import one_instance
    from serving.adapters.slurm.settings import load

    settings = load(config, {})
    with one_instance(settings.lock):
        slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)
        ours = [job for job in slurm.jobs() if job.state == "PENDING" and job.note]
        wanted = [edits.hand_back(job) for job in ours]
        refused = slurm.apply(wanted)
    document = {"released": len(ours) - len(refused), "refused": [one.job_id for one in refused]}
    emit(document, f"{document['released']} jobs released, {len(refused)} had moved on", as_json=as_json)


def document(done: "Round") -> dict[str, Any]:
    """All of a round."""
    return {
        "at_s": done.at_s,
        "decisions": [
            {
                "job": one.job_id,
                "workload": one.workload,
                "decision": one.kind,
                "device": one.device,
                "partner": one.partner_id,
                "slowdown": one.slowdown,
                "reason": one.reason,
                "decision_id": one.decision_id,
            }
            for one in done.decisions
        ],
        "edits": [{"kind": one.kind, "jobs": list(one.job_ids), "scontrol": list(one.lines)} for one in done.edits],
        "refused": [{"job": one.job_id, "message": one.message} for one in done.refusals],
        "left_to_slurm": dict(done.left_to_slurm),
        "observations": dict(done.observations),
    }


def text(done: "Round", *, dry_run: bool) -> str:
    """A line a decision, and the updates when nothing was done."""
    lines = [
        f"{one.job_id} {one.workload}: {one.kind.replace('_', ' ')} {one.device} {one.reason}" for one in done.decisions
    ]
    lines += [f"would run: scontrol {line}" for one in done.edits for line in one.lines] if dry_run else []
    lines += [f"{one.job_id}: {one.message}" for one in done.refusals]
    lines += [f"left to Slurm: {count} ({why})" for why, count in sorted(done.left_to_slurm.items())]
    return "\n".join(lines) or "nothing to do"


def _tell(done: "Round", *, dry_run: bool) -> None:
    if done.decisions or done.refusals:
        typer.echo(text(done, dry_run=dry_run))
