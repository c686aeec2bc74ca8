"""Ask a server which pending job starts where, and beside whom."""

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape  # names are free text: [/x] is no markup
from rich.table import Table

from interfere.commands.output import JsonFlag, emit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interfere.records import Action, Plan, Snapshot
    from interfere.wire.messages import ModelInfo

app = typer.Typer(add_completion=False)


@app.command()
def match(
    snapshot: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help='JSON {"pending": [...], "devices": [...]}; - is standard input.'),
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Send a small snapshot of the model's own workloads.")
    ] = False,
    target: Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server which pending job starts where, and beside whom."""
    from interfere.client import PolicyClient
    from interfere.config import load_settings
    from interfere.wire.documents import plan_document, read_json, read_snapshot, snapshot_document

    if (snapshot is None) == (not example):
        raise typer.BadParameter("give one of FILE and --example", param_hint="FILE")
    settings = load_settings(target=target)
    read = read_snapshot(read_json(snapshot)) if snapshot else None
    with PolicyClient(settings.target, timeout_s=settings.timeout_s) as client:
        sent = read or example_snapshot(client.model())
        plan = client.match(sent)
    document = plan_document(plan) | ({"request": snapshot_document(sent)} if example else {})
    emit(document, _table(sent, plan), as_json=as_json)


def example_snapshot(model: "ModelInfo") -> "Snapshot":
    """Up to eight of the model's workloads on half as many devices of a type it knows."""
    from interfere.records import Device, Job, Snapshot

    domain = model.domains[0]
    names = [model.workloads[k % len(model.workloads)] for k in range(max(2, min(8, len(model.workloads))))]
    return Snapshot(
        pending=tuple(Job(id=f"job-{k + 1}", workload=name) for k, name in enumerate(names)),
        devices=tuple(
            Device(id=f"device-{k + 1}", type=domain.device_type, mode=domain.mode)
            for k in range((len(names) + 1) // 2)
        ),
    )


def _table(sent: "Snapshot", plan: "Plan") -> Table:
    """One line a job; what is the same for every shared device is left to --json."""
    workload = {job.id: job.workload for job in (*sent.pending, *(r for d in sent.devices for r in d.residents))}
    value = f"cost {plan.objective_value:.3f} (greedy {plan.greedy_cost:.3f})"
    title = f"decision {plan.decision_id}: {value}, {plan.status.lower()}, model {plan.model_version}"
    table = Table("job", "decision", "slowdown", "interval", title=title)
    for action in plan.actions:
        slowdown = "" if math.isnan(action.slowdown) else f"{action.slowdown:.2f} ×"
        known = action.partner_id and not math.isnan(action.slowdown_lower)
        interval = f"{action.slowdown_lower:.2f} – {action.slowdown_upper:.2f}" if known else ""
        who = f"{action.job_id} {workload[action.job_id]}"
        table.add_row(*map(escape, (who, _decision(action, workload), slowdown, interval)))
    return table


# Who gets no device, and what is said of that.
_WITHOUT = {"wait": "waits", "decline": "declined", "demote": "waits, and its deadline counts no more"}


def _decision(action: "Action", workload: "Mapping[str, str]") -> str:
    """What happens to one job, and why, where the partner does not say it."""
    if not action.device_id:
        said = f"{_WITHOUT[action.kind]}: {action.reason}"
    elif action.kind == "end":
        said = f"end: {action.device_id}: {action.reason}"
    else:
        beside = f"beside {action.partner_id} {workload[action.partner_id]}" if action.partner_id else "alone"
        verb = "" if action.kind.startswith("start") else f"{action.kind}: "
        why = "" if action.partner_id and action.kind != "keep" else f": {action.reason}"
        said = f"{verb}{action.device_id} {beside}{why}"
    return f"{said}; deadline accepted" if action.accepted else said
