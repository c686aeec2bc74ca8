"""Report measured progress of running jobs to a server, which learns from it."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from interfere.commands.output import JsonFlag, emit

app = typer.Typer(add_completion=False)


@app.command()
def observe(
    windows: Annotated[str, typer.Argument(metavar="FILE", help='JSON {"observations": [...]}; - is standard input.')],
    target: Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Report measured progress of running jobs to a server, which learns from it.

    One observation: observation_id, job_id, workload, device_type, start_s, end_s, company (workloads; empty = alone),
    and steps or slowdown. Exit status 1 when any was rejected; the others are stored all the same.
    """
    from interfere.client import PolicyClient
    from interfere.client.documents import answers_document, read_json, read_windows
    from interfere.config import load_settings
    from interfere.records import ObservationResult

    settings = load_settings(target=target)
    read = read_windows(read_json(windows))
    with PolicyClient(settings.target, timeout_s=settings.timeout_s) as client:
        answers = client.observe(read)
    table = Table("observation", "result", "why")
    for answer in answers:
        table.add_row(*map(escape, (answer.observation_id, answer.result.value, answer.reason)))
    emit(answers_document(answers), table, as_json=as_json)
    if any(answer.result is ObservationResult.REJECTED for answer in answers):
        raise typer.Exit(1)
