"""Ask a server how much jobs slow each other down."""

from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import KnownDeviceType, Mode, Target, connect, note_mistyped_workloads
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Items, Part, Sentence, text_table
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.records import PairAnswer, PairQuery

app = typer.Typer(add_completion=False)


@app.command()
def predict(
    victim: Annotated[list[str] | None, typer.Option(help="Workload that is slowed down (repeatable).")] = None,
    neighbour: Annotated[list[str] | None, typer.Option(help="Workload beside it (repeatable).")] = None,
    together: Annotated[bool, typer.Option(help="Each victim beside all neighbours at once.")] = False,
    request: Annotated[
        str | None, typer.Option(metavar="FILE", help='JSON {"jobs": [...], "pairs": [[0, 1]]}; - is standard input.')
    ] = None,
    device_type: KnownDeviceType = "",
    mode: Mode = DEFAULT_MODE,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server how much jobs slow each other down: every victim beside every neighbour."""
    query = _query(victim or [], neighbour or [], request, device_type, mode, together=together)
    with connect(target) as client:
        answer = client.predict(
            query.jobs,
            pairs=query.pairs,
            device_type=query.device_type,
            mode=query.mode,
            device_memory_bytes=query.device_memory_bytes,
            allow_extrapolation=query.allow_extrapolation,
        )
        if any(answer.prediction.reason):
            note_mistyped_workloads(client, (job.workload for job in query.jobs))
    _print(query, answer, as_json=as_json)


def _print(query: "PairQuery", answer: "PairAnswer", *, as_json: bool) -> None:
    from interfere.wire.documents import pair_document

    document = pair_document(answer, [job.name for job in query.jobs])
    rows, reasons = [], []
    for row in document["predictions"]:
        interval = f"{row['lower']:.2f} – {row['upper']:.2f}"
        numbers = ("–", "–") if row["reason"] else (f"{row['slowdown']:.2f} ×", interval)
        neighbours = ", ".join((row["neighbour"], *row["further"]))
        rows.append((row["victim"], neighbours, *numbers, row["source"]))
        if row["reason"]:
            reasons.append(f"{row['victim']} beside {neighbours}: {row['reason']}")
    parts: list[Part] = [text_table("", ("victim", "beside", "slowdown", "interval", "source"), rows)]
    if reasons:
        parts += [Sentence("No prediction:"), Items(tuple(reasons))]
    emit(document, parts, as_json=as_json)


def _query(
    victims: list[str],
    neighbours: list[str],
    request: str | None,
    device_type: str,
    mode: SharingMode,
    *,
    together: bool,
) -> "PairQuery":
    """Return the query of --request, or else a query of every --victim beside every --neighbour.

    With `together`, each victim runs beside all neighbours at once.
    """
    from interfere.records import JobRef, PairQuery
    from interfere.records.documents import from_document
    from interfere.wire.documents import read_json

    if request is not None:
        if victims or neighbours:
            raise typer.BadParameter("give --request, or --victim and --neighbour", param_hint="--request")
        return from_document(PairQuery, read_json(request))
    if not victims or not neighbours:
        raise typer.BadParameter("give --victim and --neighbour, or --request", param_hint="--victim")
    places = range(len(victims), len(victims) + len(neighbours))
    groups = [tuple(places)] if together else [(place,) for place in places]
    return PairQuery(
        jobs=tuple(JobRef(workload=name) for name in (*victims, *neighbours)),
        pairs=tuple((i, *group) for i in range(len(victims)) for group in groups),
        device_type=device_type,
        mode=mode,
    )
