"""Make a registered model that passed the gate the champion of the workspace and publish it."""

from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from training.commands.options import Tracking, Work, workspace

app = typer.Typer(add_completion=False)


@app.command()
def promote(
    work: Work = None,
    version: Annotated[int | None, typer.Option(help="Registered version; the newest when left out.")] = None,
    force: Annotated[
        str, typer.Option(metavar="REASON", help="Promote a version that the gate refused; the reason stays with it.")
    ] = "",
    tracking: Tracking = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a registered model that passed the gate the champion of the workspace and publish it."""
    from features.pair import FeatureEncoder
    from training.publishing.model_registry import promote as run

    made = run(workspace(work), FeatureEncoder().fingerprint, number=version, force=force.strip(), tracking=tracking)
    document = {
        "registered_version": made.number,
        "before": made.before,
        "model": made.model,
        "version": made.version,
        "folder": str(made.folder),
        "verdict": made.verdict,
        "judged_against": made.judged_against,
        "forced": made.forced,
    }
    before = "none" if made.before is None else f"version {made.before}"
    progress_note(f"gate {made.verdict}")
    if made.forced:
        progress_note(f"forced: {made.forced}")
    elif made.before not in (None, made.number, made.judged_against):
        judged = "the baselines alone" if made.judged_against is None else f"version {made.judged_against}"
        progress_note(f"that verdict was against {judged}, not against the champion it replaces now")
    emit(document, f"champion: version {made.number} ({made.model}), before: {before}\n{made.folder}", as_json=as_json)
