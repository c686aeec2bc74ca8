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
    from interfere.serving.adapters.slurm.advisor import Round

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
    from interfere.serving.adapters.slurm.advisor import Advisor
    from interfere.serving.adapters.slurm.commands import SlurmCommands
    from interfere.serving.adapters.slurm.loop import one_instance, run_forever
    from interfere.serving.adapters.slurm.metrics import AdvisorMetrics
    from interfere.serving.adapters.slurm.settings import load

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    given = {"server": server, "interval_s": interval, "window_s": window, "spool": spool, "metrics": metrics}
    settings = load(config, given)
    advisor_metrics = AdvisorMetrics()
    instance_lock = nullcontext() if dry_run else one_instance(settings.lock)
    with instance_lock, PolicyClient(settings.server, timeout_s=settings.timeout_s) as client:
        slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)
        advisor = Advisor(settings, slurm, client, advisor_metrics, dry_run=dry_run)
        if once:
            done = advisor.round()
            emit(document(done), text(done, dry_run=dry_run), as_json=as_json)
            if settings.metrics:
                advisor_metrics.write(settings.metrics)
            return
        progress_note(f"advising {settings.cluster} every {settings.interval_s:g} s; server {settings.server}")
        run_forever(
            advisor,
            settings,
            advisor_metrics,
            lambda done: (
                typer.echo(json.dumps(json_value(document(done)))) if as_json else _print_round(done, dry_run=dry_run)
            ),
        )


@app.command()
def release(config: Config = DEFAULT, as_json: JsonFlag = False) -> None:
    """Give every job back to Slurm at once: no deferral, no chosen node. For rollback, after stopping the advisor."""
    from interfere.serving.adapters.slurm import edits
    from interfere.serving.adapters.slurm.commands import SlurmCommands
    from interfere.serving.adapters.slurm.loop import one_instance
    from interfere.serving.adapters.slurm.settings import load

    settings = load(config, {})
    with one_instance(settings.lock):
        slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)
        advised = [job for job in slurm.jobs() if job.state == "PENDING" and job.note]
        rejected = slurm.apply([edits.hand_back(job) for job in advised])
    document = {"released": len(advised) - len(rejected), "refused": [update.job_id for update in rejected]}
    emit(document, f"{document['released']} jobs released, {len(rejected)} had moved on", as_json=as_json)


def document(done: "Round") -> dict[str, Any]:
    """A round as a document."""
    return {
        "at_s": done.at_s,
        "decisions": [
            {
                "job": decision.job_id,
                "workload": decision.workload,
                "decision": decision.kind,
                "device": decision.device,
                "partner": decision.partner_id,
                "slowdown": decision.slowdown,
                "grant_bytes": decision.grant_bytes,
                "reason": decision.reason,
                "decision_id": decision.decision_id,
            }
            for decision in done.decisions
        ],
        "edits": [{"kind": edit.kind, "jobs": list(edit.job_ids), "scontrol": list(edit.lines)} for edit in done.edits],
        "refused": [{"job": update.job_id, "message": update.message} for update in done.rejected],
        "left_to_slurm": dict(done.left_to_slurm),
        "observations": dict(done.observations),
    }


def text(done: "Round", *, dry_run: bool) -> str:
    """One line per decision; in a dry run the updates too."""
    lines = [
        f"{each.job_id} {each.workload}: {each.kind.replace('_', ' ')} {each.device} {each.reason}"
        for each in done.decisions
    ]
    lines += [f"would run: scontrol {line}" for edit in done.edits for line in edit.lines] if dry_run else []
    lines += [f"would run: scancel {','.join(edit.job_ids)}" for edit in done.edits if edit.cancels and dry_run]
    lines += [f"{update.job_id}: {update.message}" for update in done.rejected]
    lines += [f"left to Slurm: {count} ({reason})" for reason, count in sorted(done.left_to_slurm.items())]
    return "\n".join(lines) or "nothing to do"


def _print_round(done: "Round", *, dry_run: bool) -> None:
    if done.decisions or done.rejected:
        typer.echo(text(done, dry_run=dry_run))
