"""Let Slurm start jobs on shared GPUs where decisions put them."""

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.errors import UnfitError
from interfere.strict_json import json_value

if TYPE_CHECKING:
    from interfere.client import PolicyClient
    from interfere.serving.adapters.round import Round
    from interfere.serving.adapters.slurm.jobs import SlurmJob
    from interfere.serving.adapters.slurm.scontrol import Edit
    from interfere.serving.adapters.slurm.settings import SlurmSettings

    SlurmRound = Round[SlurmJob, Edit]

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
    from interfere.serving.adapters.slurm.settings import SlurmSettings

    given = {"server": server, "interval_s": interval, "window_s": window, "spool": spool, "metrics": metrics}
    settings = SlurmSettings.load(config, given)
    with PolicyClient(settings.server, timeout_s=settings.timeout_s) as client:
        advise_slurm(settings, client, once=once, dry_run=dry_run, as_json=as_json)


def advise_slurm(
    settings: "SlurmSettings", client: "PolicyClient", *, once: bool = False, dry_run: bool = False, as_json: bool
) -> None:
    """Advise Slurm by the decisions of a client, until SIGTERM or Ctrl-C. Every round is told on standard output.

    Raises UnfitError when another advisor of the cluster is running.
    """
    from interfere.serving.adapters.round import run_rounds, stop_on_signals
    from interfere.serving.adapters.slurm.port import slurm_advisor, slurm_metrics
    from interfere.serving.adapters.slurm.scontrol import SlurmCommands

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    written = slurm_metrics()
    with nullcontext() if dry_run else one_instance(settings.lock):
        slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)
        advisor = slurm_advisor(settings, slurm, client, written, dry_run=dry_run)
        if once:
            done = advisor.round()
            emit(document(done), text(done, dry_run=dry_run), as_json=as_json)
            if settings.metrics:
                written.write(settings.metrics)
            return

        def write_metrics() -> None:
            try:
                if settings.metrics:
                    written.write(settings.metrics)
            except UnfitError as error:  # advice goes on without
                logging.getLogger("interfere.slurm").warning("%s", error.one_line)

        def report(done: "SlurmRound") -> None:
            if as_json:
                typer.echo(json.dumps(json_value(document(done))))
            elif done.decisions or done.rejected:
                typer.echo(text(done, dry_run=dry_run))

        progress_note(f"advising {settings.cluster} every {settings.interval_s:g} s; server {settings.server}")
        run_rounds(advisor, settings.interval_s, stop_on_signals(), report, after=write_metrics)


@app.command()
def release(config: Config = DEFAULT, as_json: JsonFlag = False) -> None:
    """Give every job back to Slurm at once: no deferral, no chosen node. For rollback, after stopping the advisor."""
    from interfere.serving.adapters.slurm.scontrol import SlurmCommands, hand_back
    from interfere.serving.adapters.slurm.settings import SlurmSettings

    settings = SlurmSettings.load(config, {})
    with one_instance(settings.lock):
        slurm = SlurmCommands(settings.timeout_s, settings.only_user_id)
        advised = [job for job in slurm.jobs() if job.state == "PENDING" and job.note]
        rejected = slurm.apply([hand_back(job) for job in advised])
    document = {"released": len(advised) - len(rejected), "refused": [update.job_id for update in rejected]}
    emit(document, f"{document['released']} jobs released, {len(rejected)} had moved on", as_json=as_json)


@contextmanager
def one_instance(path: Path) -> Iterator[None]:
    """Hold the lock file of a cluster meanwhile. Raises UnfitError when another running advisor holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        what, remedy = f"the lock file cannot be opened ({error.strerror})", "set lock to a folder you may write"
        raise UnfitError(what, value=path, remedy=remedy) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            remedy = "one a cluster: stop it, or give this one another lock"
            raise UnfitError("another advisor is running", value=path, remedy=remedy) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


def document(done: "SlurmRound") -> dict[str, Any]:
    """Return the report of a round as a document for --json."""
    return {
        "at_s": done.at_s,
        "decisions": [
            {
                "job": each.job.id,
                "workload": each.job.workload,
                "decision": each.action.kind.value,
                "device": each.action.device_id,
                "partner": each.action.partner_id,
                "slowdown": each.action.slowdown,
                "grant_bytes": each.action.grant_bytes,
                "reason": each.action.reason,
                "decision_id": each.decision_id,
            }
            for each in done.decisions
        ],
        "edits": [
            {"kind": edit.kind, "jobs": list(edit.job_ids), "scontrol": list(edit.lines)} for edit in done.changes
        ],
        "refused": [{"job": update.job_id, "message": update.message} for update in done.rejected],
        "left_to_slurm": dict(done.left_out),
        "observations": dict(done.observations),
    }


def text(done: "SlurmRound", *, dry_run: bool) -> str:
    """Return the report of a round as text: a line for each decision, and in a dry run for each update."""
    lines = [
        f"{each.job.id} {each.job.workload}: {each.action.kind.value.replace('_', ' ')} {each.action.device_id} "
        f"{each.action.reason}"
        for each in done.decisions
    ]
    if dry_run:
        lines += [f"would run: scontrol {line}" for edit in done.changes for line in edit.lines]
        lines += [f"would run: scancel {','.join(edit.job_ids)}" for edit in done.changes if edit.cancels]
    lines += [f"{update.job_id}: {update.message}" for update in done.rejected]
    lines += [f"left to Slurm: {count} ({reason})" for reason, count in sorted(done.left_out.items())]
    return "\n".join(lines) or "nothing to do"
