"""List, load, roll back or pin the models of a server."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from interfere.commands.options import Target, connect
from interfere.commands.output import JsonFlag, emit
from interfere.config import Settings
from interfere.extensions import ExtensionKind, extensions, load_or_explain

app = typer.Typer(add_completion=False, no_args_is_help=True)
TIMEOUT_S = 600.0  # of a change: a new model learns everything that was observed before it serves


@app.command("list")
def list_(target: Target = None, as_json: JsonFlag = False) -> None:
    """List the models that a server can serve, the model on trial, and why the newest publication was refused."""
    from interfere.dashboard.pages import models_parts

    with connect(target) as client:
        models = client.list_models()
    emit(models, models_parts(models), as_json=as_json)


@app.command()
def show(target: Target = None, as_json: JsonFlag = False) -> None:
    """Show which model a server serves: its kind, who selected it, its matrix limit, and its card with notices."""
    with connect(target) as client:
        info = client.model()
    limit = info.matrix_limit_pairs
    rows = {
        "model": info.model,
        "version": info.version,
        "published": info.created_at,
        "selected by": info.selected_by,
        "device types": ", ".join(dict.fromkeys(f"{d.device_type}/{d.mode}" for d in info.domains)),
        "matrix limit": f"{limit:,} distinct ordered pairs" if limit else "none: it factorises over jobs",
    }
    text = "\n".join(f"{name}: {value}" for name, value in rows.items())
    emit(info, escape(f"{text}\n\n{info.card}"), as_json=as_json)


@app.command()
def digest(
    folder: Annotated[Path, typer.Argument(help="A published model folder, or a shipped model: cpu, gpu.")],
    as_json: JsonFlag = False,
) -> None:
    """Print the digest of a model folder: `interfere serve --model-digest` serves no other model."""
    from interfere.predict.manifest import model_digest

    found = model_digest(Settings(model=folder).model_folder or folder)
    emit({"digest": found}, found, as_json=as_json)


@app.command()
def load(
    version: Annotated[str, typer.Argument(help="A version of the list; the published model when left out.")] = "",
    no_shadow: Annotated[
        bool,
        typer.Option("--no-shadow", help="Take it without comparing it with the present model on recent calls."),
    ] = False,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve the published model, or an earlier one by its version, which is then pinned."""
    with connect(target, timeout_s=TIMEOUT_S) as client:
        change = client.load_model(version, shadow=not no_shadow)
    emit(change, f"{change.version} is served, {change.previous_version} before", as_json=as_json)


@app.command()
def rollback(target: Target = None, as_json: JsonFlag = False) -> None:
    """Serve the model that was served before the present one, and hold on to it."""
    with connect(target, timeout_s=TIMEOUT_S) as client:
        change = client.rollback_model()
    emit(change, f"{change.version} is served and pinned, {change.previous_version} before", as_json=as_json)


@app.command()
def pin(
    release: Annotated[bool, typer.Option("--release", help="Let published models replace it again.")] = False,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Hold on to the served model, whatever is published, or release it."""
    with connect(target) as client:
        version = client.pin_model(release=release)
    emit(
        {"version": version, "pinned": not release}, f"{version} {'released' if release else 'pinned'}", as_json=as_json
    )


@app.command()
def card(
    model: Annotated[str, typer.Argument(help="Model folder, or a shipped model: cpu, gpu.")],
    out: Annotated[Path | None, typer.Option(help="File to write, such as README.md.", show_default=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the card of a model folder with the metadata that Hugging Face reads; no server is asked."""
    from interfere.config import shipped_model
    from interfere.data.cards.hub import model_readme
    from interfere.file_writing import write_atomically

    text = model_readme(Path(model) if Path(model).is_dir() else shipped_model(model))
    if out is not None:
        write_atomically(out, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    emit({"card": text}, text if out is None else f"wrote {out}", as_json=as_json)


for _entry in extensions(ExtensionKind.MODELS_COMMAND).values():  # commands of packages that this one may not import
    app.command(_entry.name)(load_or_explain(_entry, ExtensionKind.MODELS_COMMAND))
