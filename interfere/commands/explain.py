"""Ask a server why a job got what it got in a decision, and what else it could have got."""

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape  # names are free text: [/x] is no markup
from rich.table import Table

from interfere.commands.output import JsonFlag, emit

if TYPE_CHECKING:
    from interfere.records import Alternative, Contribution, Explanation, PairExplanation, Refusal

app = typer.Typer(add_completion=False)
SHOWN = 5  # contributions of one prediction on the screen; --json has all
_SCALES = {"bytes": (2**30, "GiB"), "FLOP": (1e9, "GFLOP"), "s": (1e-3, "ms")}


@app.command()
def explain(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="Id of the decision, from the answer of match.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of a job of it.")],
    scope: Annotated[str, typer.Option(help="The decision must be of this scope. Default: any.")] = "",
    target: Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server why a job got what it got in a decision, and what else it could have got."""
    from interfere.client import PolicyClient
    from interfere.config import load_settings
    from interfere.wire.documents import explanation_document

    settings = load_settings(target=target)
    with PolicyClient(settings.target, timeout_s=settings.timeout_s) as client:
        said = client.explain(decision, job, scope=scope)
    emit(explanation_document(said), _page(said), as_json=as_json)


def _page(said: "Explanation") -> Group:
    """The decision in a sentence, what moves its predictions, what else there was, what binds."""
    parts: list[Table | str] = [escape(_sentence(said))]
    if said.changed:
        parts.append(escape(f"Since it was decided: {'; '.join(said.changed)}. All below is as known now."))
    parts += [_contributions(pair) for pair in said.pairs]
    if said.alternatives:
        parts.append(_alternatives(said))
    if said.left_out:
        parts.append(f"{said.left_out} more choices were left out: there was no time to solve for them.")
    if said.refused:
        parts.append(f"Not allowed: {said.refused_total} choices of partner and kind of device, for example")
        parts += [escape(f"  {_who(one)}: {one.reason}") for one in said.refused]
    return Group(*parts)


def _who(one: "Refusal") -> str:
    return f"beside {one.partner_id}" if one.partner_id else "alone"


def _sentence(said: "Explanation") -> str:
    action = said.action
    who = f"{action.job_id} ({said.workload})" if said.workload else action.job_id
    what = action.kind.value.replace("_", " ")
    where = f" on {action.device_id}" if action.device_id else ""
    beside = f" beside {action.partner_id}" if action.partner_id else ""
    return f"{who}: {what}{where}{beside}; {action.reason}."


def _contributions(pair: "PairExplanation") -> Table:
    title = (
        f"{pair.victim_id} beside {pair.neighbour_id}: {pair.median:.2f} × "
        f"({pair.lower:.2f} – {pair.upper:.2f}), {pair.note or pair.source.value}"
    )
    table = Table("what moves it", "of", "value", "usual", "slowdown ×", title=escape(title), title_justify="left")
    for one in pair.contributions[:SHOWN]:
        row = (one.name, one.job_id, _amount(one.value, one), _amount(one.reference, one))
        table.add_row(*map(escape, row), f"{math.exp(one.log_change):.3f}")
    return table


def _amount(value: float, one: "Contribution") -> str:
    """In the unit that people read."""
    if math.isnan(value):
        return ""
    size, unit = _SCALES.get(one.unit, (1.0, "" if one.unit == "share" else one.unit))
    return f"{value / size:.3g} {unit}".rstrip()


def _alternatives(said: "Explanation") -> Table:
    title = f"the best whole plan with each choice, model {said.model_version}"
    table = Table("", "choice", "slowdowns", "waiting", "cost", title=escape(title), title_justify="left")
    for one in said.alternatives:
        mark = "chosen" if one.chosen else ""
        cost = f"{one.cost:.3f}" if one.proven else f"≤ {one.cost:.3f}"
        table.add_row(*map(escape, (mark, _choice(one), _slowdowns(one), str(one.waiting), cost)))
    return table


def _choice(one: "Alternative") -> str:
    if not one.device_id:
        return "wait"
    beside = f"beside {one.partner_id} {one.partner_workload}" if one.partner_id else "alone"
    return f"{one.device_id} {beside}"


def _slowdowns(one: "Alternative") -> str:
    both = (one.slowdown, one.partner_slowdown) if one.partner_id else (one.slowdown,)
    return ", ".join(f"{slowdown:.2f} ×" for slowdown in both if not math.isnan(slowdown))
