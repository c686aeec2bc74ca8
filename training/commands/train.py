"""Train all models on measured tables; publish and register the best."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from training.commands.options import Data, Seed, Tracking, Work, unordered_pair, workspace

app = typer.Typer(add_completion=False)


@app.command()
def train(
    data: Data,
    work: Work = None,
    seed: Seed = 0,
    publish: Annotated[Path | None, typer.Option(help="Folder of the published model.", show_default=False)] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            help="victim+neighbour: no model sees this pair, all are scored on it. Repeatable.", show_default=False
        ),
    ] = None,
    tracking: Tracking = None,
    as_json: JsonFlag = False,
) -> None:
    """Train all models on measured tables; publish and register the best."""
    from training.commands.documents import scores_document, scores_table
    from training.pipeline import train as run
    from training.table_folders import find_table_folders

    place = workspace(work)
    unseen = frozenset(unordered_pair(text) for text in held_out or ())
    made = run(
        find_table_folders(data, place),
        place,
        seed=seed,
        publish_to=publish,
        held_out=unseen,
        tracking=tracking,
        report=progress_note,
    )
    role = "champion" if made.registered.champion else "challenger"
    if made.verdict.passed and not made.registered.champion:
        role += "; make it champion with: interfere promote"
    document = {
        "champion": made.champion,
        "version": made.version,
        "folder": str(made.folder),
        "run_id": made.run_id,
        "registered_version": made.registered.number,
        "is_champion": made.registered.champion,
        "rows": made.rows,
        "worst_parity": made.worst_parity,
        "verdict": asdict(made.verdict),
        "scores": scores_document(made.scores),
    }
    progress_note(f"best model: {made.champion}; registered as version {made.registered.number}, {role}")
    progress_note(f"gate {made.verdict.reason}")
    progress_note(f"published {made.folder} (version {made.version}); runs in {tracking or place / 'mlflow.db'}")
    emit(document, scores_table(made.scores), as_json=as_json)
