"""Train again on base tables and what servers observed."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, StoreFile, Work
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.training.commands.options import Champion, Data, Groups, Models, Seed, Tracking

if TYPE_CHECKING:
    from interfere.training.retrain import RetrainResult

app = typer.Typer(add_completion=False)


@app.command()
@keeps_when_interrupted(
    "the published model stays; finished folds are kept in the workspace: the same command goes on from them"
)
def retrain(
    data: Data,
    work: Work = DEFAULT_WORK,
    store: StoreFile = None,
    seed: Seed = 0,
    groups: Groups = None,
    champion: Champion = "",
    models: Models = "",
    tracking: Tracking = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: check, and print what would be done, and why.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train again on base tables and what servers observed; publish what passes the gate.

    Meant for cron or a Kubernetes CronJob: it does nothing when nothing new was observed, one run at a time works in a
    workspace, and a run that was killed can be started again. The server may go on meanwhile.

    Exit status: 0 published, or nothing to do; 3 trained, and refused by the gate; 4 another run is at work; 1 failed;
    2 wrong usage.
    """
    from interfere.client.served_model import served_note
    from interfere.config import load_settings
    from interfere.predict.manifest import published_version
    from interfere.training.dataset import find_table_folders
    from interfere.training.models.catalogue import select_models
    from interfere.training.retrain import EXIT_BUSY, EXIT_STATUS, BusyError
    from interfere.training.retrain import retrain as retrain_models

    settings = load_settings(work=work, store=store)
    try:
        result = retrain_models(
            find_table_folders(data, settings.work),
            settings.work,
            store=settings.store_address,
            seed=seed,
            groups=find_table_folders(groups or (), settings.work),
            tracking=tracking,
            champion=champion,
            models={model.name: model for model in select_models(models)},
            dry_run=dry_run,
            report=progress_note,
        )
    except BusyError as error:
        typer.echo(f"error: {error}", err=True)
        if as_json:
            emit({"outcome": "busy", "reason": error.what}, "", as_json=True)
        raise typer.Exit(EXIT_BUSY) from None
    for side in result.trained.verdict.sides if result.trained else ():
        progress_note(side.text())
    folder = f"\n{result.folder}" if result.folder else ""
    document = _document(result)
    if result.folder:
        document["server"] = served_note(settings.target, published_version(result.folder), result.folder)
        progress_note(document["server"])
    verdict = f"{result.outcome.value}: {result.reason.removeprefix('refused: ')}"  # a refusal says so itself
    emit(document, verdict + folder, as_json=as_json)
    raise typer.Exit(EXIT_STATUS[result.outcome])


def _document(result: "RetrainResult") -> dict[str, Any]:
    trained = result.trained
    return {
        "outcome": result.outcome.value,
        "reason": result.reason,
        "inputs": result.inputs,
        "run_id": trained.run_id if trained else "",
        "registered_version": trained and trained.registered.number,
        "folder": result.folder and str(result.folder),
        "verdict": trained and asdict(trained.verdict),
        "drift": result.drift and asdict(result.drift),
        "groups": [each.to_json() for each in trained.compositions] if trained else [],
        "observed": {
            "pairs": result.observed.pairs,
            "group_rows": result.observed.group_rows,
            "windows": result.observed.windows,
            "without_facts": result.observed.without_facts,
        },
    }
