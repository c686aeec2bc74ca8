"""Ask a server which pending job starts where, and beside whom."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import Target, connect, note_mistyped_workloads
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Table, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from interfere.records import Action, ModelInfo, Plan, Snapshot

app = typer.Typer(add_completion=False)
EXAMPLE_JOBS = 8  # at most, in the snapshot of --example


@app.command()
def match(
    snapshot: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help='JSON {"pending": [...], "devices": [...]}; - is standard input. With --example a shipped model.',
        ),
    ] = None,
    example: Annotated[
        bool,
        typer.Option("--example", help="Send a small snapshot of the served model's workloads, or of cpu's or gpu's."),
    ] = False,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server which pending job starts where, and beside whom."""
    from interfere.config import shipped_model
    from interfere.records import RuleKind, Snapshot
    from interfere.records.documents import from_document, to_document
    from interfere.wire.documents import decision_document, read_json

    if snapshot is None and not example:
        raise typer.BadParameter("give one of FILE and --example", param_hint="FILE")
    shipped = shipped_model(snapshot) if snapshot and example else None
    given = from_document(Snapshot, read_json(snapshot)) if snapshot and not example else None
    with connect(target) as client:
        request = given or example_snapshot(_of_example(client.model(), shipped))
        plan = client.match(request)
        if any(action.rule is not None and action.rule.kind is RuleKind.UNPROFILED_WORKLOAD for action in plan.actions):
            note_mistyped_workloads(client, _workloads(request).values())
    document = decision_document(plan) | ({"request": to_document(request)} if example else {})
    emit(document, [_table(request, plan)], as_json=as_json)


def _of_example(served: "ModelInfo", shipped: "Path | None") -> "ModelInfo":
    """Return the served model. Raises UnfitError where the server does not serve the shipped model that was named."""
    from interfere.errors import UnfitError
    from interfere.predict.manifest import published_version

    if shipped is not None and served.version != published_version(shipped):
        name = "gpu" if shipped.name == "gpu" else "cpu"
        raise UnfitError(
            f"the server serves another model than the shipped one named {name}",
            value=f"{served.model}, version {served.version}",
            remedy=f"interfere serve --model {name}",
        )
    return served


def example_snapshot(model: "ModelInfo") -> "Snapshot":
    """Return up to `EXAMPLE_JOBS` workloads of a model on half as many devices, of all device types of the model."""
    from interfere.records import Device, Job, Snapshot

    n, known = max(2, min(EXAMPLE_JOBS, len(model.workloads))), len(model.workloads)
    names = [model.workloads[k * known // n if known >= n else k % known] for k in range(n)]
    domains = [model.domains[k % len(model.domains)] for k in range((n + 1) // 2)]
    return Snapshot(
        pending=tuple(Job(id=f"job-{k + 1}", workload=name) for k, name in enumerate(names)),
        devices=tuple(
            Device(id=f"device-{k + 1}", type=domain.device_type, mode=domain.mode) for k, domain in enumerate(domains)
        ),
    )


def _workloads(snapshot: "Snapshot") -> dict[str, str]:
    """Return the workload of each pending job and resident, by its id."""
    residents = (resident for device in snapshot.devices for resident in device.residents)
    return {job.id: job.workload for job in (*snapshot.pending, *residents)}


def _table(snapshot: "Snapshot", plan: "Plan") -> Table:
    """Return a table with one line per job; what is the same for every shared device is left to --json."""
    workloads, deadlines_s = _workloads(snapshot), {job.id: job.deadline_s for job in snapshot.pending}
    waiting = f" and {plan.greedy_waiting} waiting" if plan.greedy_waiting else ""
    cost = f"cost {plan.objective_value:.3f} (greedy {plan.greedy_cost:.3f}{waiting})"
    title = f"decision {plan.decision_id}: {cost}, {plan.status.lower()}, model {plan.model_version}"
    rows = []
    for action in plan.actions:
        slowdown = "" if math.isnan(action.slowdown) else f"{action.slowdown:.2f} ×"
        has_interval = action.partner_id and not math.isnan(action.slowdown_lower)
        interval = f"{action.slowdown_lower:.2f} – {action.slowdown_upper:.2f}" if has_interval else ""
        job = f"{action.job_id} {workloads[action.job_id]}"
        late_s = action.planned_end_s - deadlines_s.get(action.job_id, math.nan)
        late = f"; planned to end {late_s:.0f} s past its deadline" if late_s >= 1.0 else ""
        rows.append((job, _decision(action, workloads) + late, slowdown, interval))
    return text_table(title, ("job", "decision", "slowdown", "interval"), rows)


# Actions that give a job no device, in words.
_WITHOUT_DEVICE = {"wait": "waits", "decline": "declined", "demote": "waits, and its deadline counts no more"}


def _decision(action: "Action", workloads: "Mapping[str, str]") -> str:
    """Return the decision on a job in words, with the reason where the partner is not the reason."""
    if not action.device_id:
        text = f"{_WITHOUT_DEVICE[action.kind]}: {action.reason}"
    elif action.kind == "end":
        text = f"end: {action.device_id}: {action.reason}"
    else:
        others = ", ".join(f"{name} {workloads[name]}" for name in action.partners)
        partner = f"beside {others}" if others else "alone"
        verb = "" if action.kind.startswith("start") else f"{action.kind}: "
        reason = "" if action.partner_id and action.kind != "keep" else f": {action.reason}"
        text = f"{verb}{action.device_id} {partner}{reason}"
    return f"{text}; deadline accepted" if action.accepted else text
