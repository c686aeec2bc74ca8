"""Make a registered model the champion, and publish it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.reports.document import Part, Sentence, Tone, text_table
from interfere.training.commands.options import Tracking

app = typer.Typer(add_completion=False)


@app.command()
def promote(
    work: Work = DEFAULT_WORK,
    version: Annotated[int | None, typer.Option(help="Registered version; the newest when left out.")] = None,
    force: Annotated[
        str, typer.Option(metavar="REASON", help="Promote a version that the gate refused; the reason stays with it.")
    ] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="List the versions, their figures, and which is published and served.")
    ] = False,
    tracking: Tracking = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a registered model that passed the gate the champion of the workspace and publish it."""
    from interfere.client.served_model import served_note
    from interfere.config import load_settings
    from interfere.features.pair import FeatureEncoder
    from interfere.training.publishing.model_registry import promote as promote_version

    if list_:
        _list(work, tracking, as_json=as_json)
        return
    fingerprint = FeatureEncoder().fingerprint
    promoted = promote_version(work, fingerprint, number=version, force=force.strip(), tracking=tracking)
    champion = promoted.version
    document = {
        "registered_version": champion.number,
        "before": promoted.before,
        "model": champion.model,
        "version": champion.folder_version,
        "folder": str(promoted.folder),
        "verdict": champion.reason,
        "judged_against": champion.judged_against,
        "forced": champion.forced,
    }
    before = "none" if promoted.before is None else f"version {promoted.before}"
    progress_note(f"gate {champion.reason}")
    if champion.forced:
        progress_note(f"forced: {champion.forced}")
    elif promoted.before not in (None, champion.number, champion.judged_against):
        judged = "the baselines alone" if champion.judged_against is None else f"version {champion.judged_against}"
        progress_note(f"that verdict was against {judged}, not against the champion it replaces now")
    text = f"champion: version {champion.number} ({champion.model}), before: {before}\n{promoted.folder}"
    document["server"] = served_note(load_settings().target, champion.folder_version, promoted.folder)
    progress_note(str(document["server"]))
    emit(document, text, as_json=as_json)


def _list(work: Path, tracking: str | None, *, as_json: bool) -> None:
    """Print all registered versions, newest first."""
    from interfere.client.served_model import served_version
    from interfere.config import load_settings
    from interfere.strict_json import json_value
    from interfere.training.publishing.model_registry import list_versions

    served = served_version(load_settings().target)
    headings = ("pair", "job", "own", "others", "cov. own", "cov. others")
    rows: list[dict[str, Any]] = []
    cells = []
    for each in list_versions(work, tracking):
        row = json_value(asdict(each)) | {"registered_at": each.registered_at}
        row["served"] = each.folder_version == served != ""
        marks = ", ".join(name for name in ("champion", "challenger", "published", "served") if row[name])
        figures = ["-" if value is None else f"{value:.3f}" for value in row["figures"].values()]
        gate = each.gate + (f", forced: {each.forced}" if each.forced else "")
        cells.append((f"{each.number} {each.folder_version}", each.registered_at, each.model, gate, *figures, marks))
        rows.append(row)
    table = text_table("", ("version", "registered, UTC", "model", "gate", *headings, ""), cells)
    shown: list[Part] = [table, Sentence("errors of speed; coverage", tone=Tone.NOTE)]
    emit({"versions": rows}, shown if rows else "no version is registered: interfere train", as_json=as_json)
