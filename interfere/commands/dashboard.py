"""Watch a server's jobs, predictions and models in a browser."""

from typing import Annotated

import typer

from interfere.commands.options import Target, connect
from interfere.commands.output import progress_note

app = typer.Typer(add_completion=False)


@app.command()
def dashboard(
    target: Target = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port on this host; 0: any free one.")] = 8050,
) -> None:
    """Look into a server with a browser: who shares now, who waits and why, predictions beside measurements, models.

    A process of its own that only reads: give it a reader's token (INTERFERE_TOKEN_FILE). It answers browsers on this
    host alone; from elsewhere: ssh -L 8050:127.0.0.1:8050 HOST.
    """
    from interfere.dashboard.site import serve

    with connect(target) as client:
        serve(client, port, lambda address: progress_note(f"dashboard of {client.target}: {address}"))
