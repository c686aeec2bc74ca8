"""Make a registered model the champion of the workspace and publish it."""

from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit
from training.commands.options import Work, workspace

app = typer.Typer(add_completion=False)


@app.command()
def promote(
    work: Work = None,
    version: Annotated[int | None, typer.Option(help="Registered version; the newest when left out.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a registered model the champion of the workspace and publish it."""
    from features.pair import Encoder
    from training.registry import promote as run

    made = run(workspace(work), Encoder().fingerprint, number=version)
    document = {
        "registered_version": made.number, "before": made.before, "model": made.model, "version": made.version,
        "folder": str(made.folder),
    }  # fmt: skip
    before = "none" if made.before is None else f"version {made.before}"
    emit(document, f"champion: version {made.number} ({made.model}), before: {before}\n{made.folder}", as_json=as_json)
