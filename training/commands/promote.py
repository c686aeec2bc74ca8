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
    from interfere.client.served_model import served_note
    from interfere.config import load_settings
    from training.publishing.model_registry import promote as promote_version

    fingerprint = FeatureEncoder().fingerprint
    champion = promote_version(workspace(work), fingerprint, number=version, force=force.strip(), tracking=tracking)
    document = {
        "registered_version": champion.number,
        "before": champion.before,
        "model": champion.model,
        "version": champion.version,
        "folder": str(champion.folder),
        "verdict": champion.verdict,
        "judged_against": champion.judged_against,
        "forced": champion.forced,
    }
    before = "none" if champion.before is None else f"version {champion.before}"
    progress_note(f"gate {champion.verdict}")
    if champion.forced:
        progress_note(f"forced: {champion.forced}")
    elif champion.before not in (None, champion.number, champion.judged_against):
        judged = "the baselines alone" if champion.judged_against is None else f"version {champion.judged_against}"
        progress_note(f"that verdict was against {judged}, not against the champion it replaces now")
    text = f"champion: version {champion.number} ({champion.model}), before: {before}\n{champion.folder}"
    document["server"] = served_note(load_settings().target, champion.version, champion.folder)
    progress_note(str(document["server"]))
    emit(document, text, as_json=as_json)
