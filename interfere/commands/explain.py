"""Ask a server why a job got what it got in a decision, and what else it could have got."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import Target, connect
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Items, Part, Sentence, Table, text_table

if TYPE_CHECKING:
    from interfere.records import Alternative, Contribution, Explanation, PairExplanation, Refusal

app = typer.Typer(add_completion=False)
MAX_CONTRIBUTIONS = 5  # of one prediction on the screen; --json has all
_PRINTED_UNITS = {"bytes": (2**30, "GiB"), "FLOP": (1e9, "GFLOP"), "s": (1e-3, "ms"), "share": (1.0, "")}
"""Unit of a fact → how much of it one printed unit is, and the printed unit's name."""


@app.command()
def explain(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="Id of the decision, from the answer of match.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of a job of it.")],
    scope: Annotated[str, typer.Option(help="The decision must be of this scope. Default: any.")] = "",
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server why a job got what it got in a decision, and what else it could have got."""
    from interfere.wire.documents import decision_document

    with connect(target) as client:
        explanation = client.explain(decision, job, scope=scope)
    emit(decision_document(explanation), explanation_parts(explanation), as_json=as_json)


def explanation_parts(explanation: "Explanation") -> list[Part]:
    """Return the decision in a sentence, the facts that move its predictions, the alternatives, and the refused
    choices."""
    parts: list[Part] = [Sentence(_sentence(explanation))]
    if explanation.changed:
        changes = "; ".join(explanation.changed)
        parts.append(Sentence(f"Since it was decided: {changes}. All below is as known now."))
    parts += [_contributions(pair) for pair in explanation.pairs]
    if explanation.alternatives:
        parts.append(_alternatives(explanation))
    if explanation.left_out:
        parts.append(
            Sentence(f"{explanation.left_out} more choices were left out: there was no time to solve for them.")
        )
    if explanation.refused:
        refused = f"Not allowed: {explanation.refused_total} choices of partner and kind of device, for example"
        items = tuple(f"{_refused_choice(refusal)}: {refusal.reason}" for refusal in explanation.refused)
        parts += [Sentence(refused), Items(items)]
    return parts


def _refused_choice(refusal: "Refusal") -> str:
    return f"beside {refusal.partner_id}" if refusal.partner_id else "alone"


def _sentence(explanation: "Explanation") -> str:
    action = explanation.action
    job = f"{action.job_id} ({explanation.workload})" if explanation.workload else action.job_id
    decision = action.kind.value.replace("_", " ")
    device = f" on {action.device_id}" if action.device_id else ""
    partner = f" beside {', '.join(action.partners)}" if action.partners else ""
    return f"{job}: {decision}{device}{partner}; {action.reason}."


def _contributions(pair: "PairExplanation") -> Table:
    title = (
        f"{pair.victim_id} beside {pair.neighbour_id}: {pair.median:.2f} × "
        f"({pair.lower:.2f} – {pair.upper:.2f}), {pair.note or pair.source.value}"
    )
    rows = []
    for contribution in pair.contributions[:MAX_CONTRIBUTIONS]:
        amounts = (_amount(value, contribution) for value in (contribution.value, contribution.reference))
        rows.append((contribution.name, contribution.job_id, *amounts, f"{math.exp(contribution.log_change):.3f}"))
    return text_table(title, ("what moves it", "of", "value", "usual", "slowdown ×"), rows)


def _amount(value: float, contribution: "Contribution") -> str:
    """Return a fact's value in the unit that people read; empty for NaN."""
    if math.isnan(value):
        return ""
    size, unit = _PRINTED_UNITS.get(contribution.unit, (1.0, contribution.unit))
    return f"{value / size:.3g} {unit}".rstrip()


def _alternatives(explanation: "Explanation") -> Table:
    title = f"the best whole plan with each choice, model {explanation.model_version}"
    rows = []
    for alternative in explanation.alternatives:
        mark = "chosen" if alternative.chosen else ""
        cost = f"{alternative.cost:.3f}" if alternative.proven else f"≤ {alternative.cost:.3f}"
        rows.append((mark, _choice(alternative), _slowdowns(alternative), str(alternative.waiting), cost))
    return text_table(title, ("", "choice", "slowdowns", "waiting", "cost"), rows)


def _choice(alternative: "Alternative") -> str:
    if not alternative.device_id:
        return "wait"
    partner = f"{alternative.partner_id} {alternative.partner_workload}"
    return f"{alternative.device_id} {f'beside {partner}' if alternative.partner_id else 'alone'}"


def _slowdowns(alternative: "Alternative") -> str:
    slowdowns = (alternative.slowdown, alternative.partner_slowdown)[: 2 if alternative.partner_id else 1]
    return ", ".join(f"{slowdown:.2f} ×" for slowdown in slowdowns if not math.isnan(slowdown))
