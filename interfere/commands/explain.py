"""Ask a server why a decision gave a job its action."""

from typing import Annotated

import typer

from interfere.commands.options import Target, connect
from interfere.commands.output import JsonFlag, emit

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="Id of the decision, from the answer of match.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of a job of it.")],
    scope: Annotated[str, typer.Option(help="The decision must be of this scope. Default: any.")] = "",
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server why a job got what it got in a decision, and what else it could have got."""
    from interfere.dashboard.decision_parts import explanation_parts
    from interfere.wire.documents import decision_document

    with connect(target) as client:
        explanation = client.explain(decision, job, scope=scope)
    emit(decision_document(explanation), explanation_parts(explanation), as_json=as_json)
