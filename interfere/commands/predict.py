"""Ask a server how much jobs slow each other down."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from interfere.commands.output import JsonFlag, emit

if TYPE_CHECKING:
    from interfere.wire.messages import PairQuery

app = typer.Typer(add_completion=False)
TargetOption = Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")]


@app.command()
def predict(
    victim: Annotated[list[str] | None, typer.Option(help="Workload that is slowed down (repeatable).")] = None,
    neighbour: Annotated[list[str] | None, typer.Option(help="Workload beside it (repeatable).")] = None,
    together: Annotated[bool, typer.Option(help="Each victim beside all neighbours at once.")] = False,
    request: Annotated[
        str | None, typer.Option(metavar="FILE", help='JSON {"jobs": [...], "pairs": [[0, 1]]}; - is standard input.')
    ] = None,
    device_type: Annotated[str, typer.Option(help="Default: the only one the model knows.")] = "",
    mode: Annotated[str, typer.Option(help="Sharing mode.")] = "timeslice",
    target: TargetOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server how much jobs slow each other down: every victim beside every neighbour."""
    from interfere.client import PolicyClient
    from interfere.config import load_settings
    from interfere.wire.documents import pair_document

    query = _query(victim or [], neighbour or [], request, device_type, mode, together=together)
    settings = load_settings(target=target)
    with PolicyClient(settings.target, timeout_s=settings.timeout_s) as client:
        answer = client.predict(
            query.jobs,
            pairs=query.pairs,
            device_type=query.device_type,
            mode=query.mode,
            device_memory_bytes=query.device_memory_bytes,
            allow_extrapolation=query.allow_extrapolation,
        )
    document = pair_document(answer, [ref.name for ref in query.jobs])
    table = Table("victim", "beside", "slowdown", "interval", "source", "why not")
    for row in document["predictions"]:
        numbers = (
            ("–", "–") if row["reason"] else (f"{row['slowdown']:.2f} ×", f"{row['lower']:.2f} – {row['upper']:.2f}")
        )
        beside = ", ".join((row["neighbour"], *row["further"]))
        table.add_row(*map(escape, (row["victim"], beside, *numbers, row["source"], row["reason"])))
    emit(document, table, as_json=as_json)


def _query(
    victims: list[str], neighbours: list[str], request: str | None, device_type: str, mode: str, *, together: bool
) -> "PairQuery":
    from interfere.wire.documents import read_json, read_pair_query
    from interfere.wire.messages import JobRef, PairQuery

    if request is not None:
        if victims or neighbours:
            raise typer.BadParameter("give --request, or --victim and --neighbour", param_hint="--request")
        return read_pair_query(read_json(request))
    if not victims or not neighbours:
        raise typer.BadParameter("give --victim and --neighbour, or --request", param_hint="--victim")
    beside = range(len(victims), len(victims) + len(neighbours))
    return PairQuery(
        jobs=tuple(JobRef(workload=name) for name in (*victims, *neighbours)),
        pairs=tuple((i, *group) for i in range(len(victims)) for group in ([beside] if together else zip(beside))),
        device_type=device_type,
        mode=mode,
    )
