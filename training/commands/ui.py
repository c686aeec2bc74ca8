"""Show the workspace's runs and models in a browser (mlflow ui)."""

from typing import Annotated

import typer

from interfere.commands.output import progress_note
from interfere.training.commands.options import Tracking, Work, workspace

app = typer.Typer(add_completion=False)


@app.command()
def ui(
    work: Work = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 5000,
    tracking: Tracking = None,
) -> None:
    """Show the workspace's runs and models in a browser (mlflow ui)."""
    from interfere.training.publishing.mlflow_ui import serve_ui

    raise typer.Exit(serve_ui(workspace(work), port, tracking=tracking, report=progress_note))
