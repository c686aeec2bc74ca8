"""Train again on base tables and what servers observed; publish what passes the gate."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from training.commands.options import Data, Seed, Tracking, Work

app = typer.Typer(add_completion=False)


@app.command()
def retrain(
    data: Data,
    work: Work = None,
    store: Annotated[
        Path | None, typer.Option(help="SQLite file of the server's store. Default: WORK/store.db.", show_default=False)
    ] = None,
    seed: Seed = 0,
    tracking: Tracking = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, report and say what is to be done.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train again on base tables and what servers observed; publish what passes the gate.

    Made for cron or a Kubernetes CronJob: nothing new, nothing done; one run a workspace at a time; killed anywhere, it
    can be started again. The server may go on meanwhile.

    Exit status: 0 published, or nothing to do; 3 trained, and refused by the gate; 4 another run is at work; 1 failed;
    2 wrong usage.
    """
    from interfere.config import load_settings
    from training.retrain import EXIT_BUSY, EXIT_STATUS, BusyError
    from training.retrain import retrain as run
    from training.table_folders import find_table_folders

    settings = load_settings(work=work, store=store)
    try:
        made = run(
            find_table_folders(data, settings.work),
            settings.work,
            store=settings.store_path,
            seed=seed,
            tracking=tracking,
            dry_run=dry_run,
            report=progress_note,
        )
    except BusyError as error:
        typer.echo(f"error: {error}", err=True)
        if as_json:
            emit({"outcome": "busy", "reason": error.what}, "", as_json=True)
        raise typer.Exit(EXIT_BUSY) from None
    document = {
        "outcome": made.outcome.value,
        "reason": made.reason,
        "inputs": made.inputs,
        "run_id": made.run_id,
        "registered_version": made.registered,
        "folder": made.folder and str(made.folder),
        "verdict": made.verdict and asdict(made.verdict),
        "drift": made.drift and made.drift.document(),
        "observed": {
            "pairs": made.observed.pairs,
            "windows": made.observed.windows,
            "without_facts": made.observed.without_facts,
        },
    }
    where = f"\n{made.folder}" if made.folder else ""
    emit(document, f"{made.outcome.value}: {made.reason}{where}", as_json=as_json)
    raise typer.Exit(EXIT_STATUS[made.outcome])
