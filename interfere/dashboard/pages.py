"""The pages of the dashboard as documents: what the server's answers are is read off, nothing is estimated here.

Law: every number of a page is one that an rpc answered, or a count, a sum or a ratio of those.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median
from typing import NamedTuple
from urllib.parse import urlencode

from interfere.dashboard.decision_parts import (
    decisions_parts,
    devices_table,
    explanation_parts,
    proof_text,
    waiting_table,
)
from interfere.records import (
    DecisionList,
    DecisionSummary,
    Explanation,
    ModelInfo,
    ObservationLog,
    ScopeList,
    ScopeState,
    ServedModels,
)
from interfere.reports import document as report
from interfere.reports.document import Column, Document, Part, Section, Sentence, Table, Tile, Tiles, Tone, text_table
from interfere.reports.numbers import JOB_HOURS, TIMES, count_noun, fixed
from interfere.store.observed_table import LoggedWindow, PairLoss, pair_losses

COUNT = fixed(0)
SHOWN_LOSSES = 10
FOLD, MAX_ROWS = 40, 500  # rows of a table that are open, and that a page holds: it is sent anew at each change
WEEK_S = 7 * 86_400.0


class Checked(NamedTuple):
    """A measured window of co-located jobs, and the server's present prediction for it (NaN where it abstains)."""

    logged: LoggedWindow
    predicted: float
    low: float
    high: float


def overview(
    scopes: ScopeList, scope: str, state: ScopeState | None, decisions: DecisionList, model: ModelInfo
) -> Document:
    """Return the jobs on each device of a scope, the waiting jobs, and the newest decisions.

    `state` None: nothing was decided.
    """
    parts: list[Part] = []
    if others := [each.scope for each in scopes.scopes if each.scope != scope]:
        rows = ((report.Link(name, page=scope_path(name)),) for name in others)
        parts.append(Section("Other scopes", (text_table("other scopes", ("scope",), rows),), anchor="scopes"))
    if state is None:
        told = Sentence("No decision is kept for this scope yet: this page fills with the first Match.", tone=Tone.LEAD)
        return Document(f"Scope {scope}", (_tiles_of_model(model), told, *parts))
    used = [device for device in state.devices if device.jobs]
    placed = sum(len(device.jobs) for device in used)
    sharing = sum(len(device.jobs) for device in used if len(device.jobs) > 1)
    tiles = (
        Tile(value=f"{len(used)} of {len(state.devices)}", label="devices in use"),
        Tile(value=float(placed), form=COUNT, label="jobs placed", detail=f"{sharing} of them share a device"),
        Tile(value=float(len(state.waiting)), form=COUNT, label="jobs wait"),
        *_tiles_of_model(model).tiles,
    )
    now, queue = _bounded(devices_table(state)), _bounded(waiting_table(state))
    at = f"As decision {state.decision_id} leaves it."
    return Document(
        f"Scope {scope}",
        (
            Section("Now", (Sentence(at, tone=Tone.NOTE), Tiles(tiles)), anchor="now"),
            Section("Devices and who shares", now if used else (Sentence("No device has a job."),), anchor="devices"),
            Section("Queue", queue if state.waiting else (Sentence("No job waits."),), anchor="queue"),
            Section("Newest decisions", tuple(decisions_parts(decisions)), anchor="decisions"),
            *parts,
        ),
    )


def _bounded(table: Table) -> tuple[Part, ...]:
    """Return the first rows of a table, and how many there are beside them."""
    parts: tuple[Part, ...] = (replace(table, rows=table.rows[:MAX_ROWS], fold=FOLD),)
    if (more := len(table.rows) - MAX_ROWS) > 0:
        parts += (Sentence(f"{count_noun(more, 'row')} more: interfere scopes show.", tone=Tone.NOTE),)
    return parts


def decision(scope: str, found: DecisionSummary | None, decision_id: str, explanation: Explanation | None) -> Document:
    """Return a decision in numbers, and why one job got what it got, with the alternatives."""
    parts: list[Part] = []
    if explanation is not None:
        title = f"Why {explanation.action.job_id} got this"
        parts.append(Section(title, tuple(explanation_parts(explanation)), anchor="job"))
    if found is None:
        parts.append(Sentence("This decision is not among the newest ones of its scope.", tone=Tone.NOTE))
        return Document(f"Decision {decision_id}", tuple(parts))
    tiles = (
        Tile(value=float(found.started_alone), form=COUNT, label="start alone"),
        Tile(value=float(found.started_shared), form=COUNT, label="start beside others"),
        Tile(value=float(found.waiting), form=COUNT, label="wait", detail=f"of {found.pending} in the request"),
        Tile(value=float(found.displaced), form=COUNT, label="running jobs moved"),
        Tile(value=proof_text(found), label="proof", detail=found.stopped_by),
        Tile(value=found.cpu_s, form=fixed(3, "s"), label="CPU time of the solver"),
    )
    rules = ((each.kind.value, str(each.count)) for each in found.waiting_rules)
    why = text_table("why jobs wait", ("rule", "jobs"), rows=rules)
    parts.insert(0, Section("In numbers", (Tiles(tiles), *([why] if found.waiting_rules else [])), anchor="numbers"))
    parts.append(Sentence(f"Scope {scope}, model {found.model_version}, snapshot {found.snapshot_id or 'without id'}."))
    return Document(f"Decision {decision_id}", tuple(parts))


def predictions(log: ObservationLog, checked: Sequence[Checked]) -> Document:
    """Return measured slowdowns beside the server's present predictions, the largest losses, and the drift."""
    online = log.online
    known = [each for each in checked if not math.isnan(each.predicted)]
    inside = sum(each.low <= each.logged.slowdown <= each.high for each in known)
    tiles = (
        Tile(value=float(online.observations), form=COUNT, label="windows observed"),
        Tile(
            value=float(len(checked)), form=COUNT, label="of them shown", detail="in company, newest entries of the log"
        ),
        Tile(
            value=f"{inside} of {len(known)}",
            label="inside their 90 % interval",
            detail="of what is predicted now, these windows known",
        ),
        Tile(value=float(online.alarms), form=COUNT, label="drift alarms"),
    )
    parts: list[Part] = [Section("Now", (Tiles(tiles),), anchor="now")]
    if known:
        parts.append(Section("Predicted and measured", (_plot(known), _pairs_table(known)), anchor="measured"))
    losses = pair_losses((each.logged for each in checked), within_s=WEEK_S)
    if losses:
        table = losses_table(losses[:SHOWN_LOSSES])
        note = Sentence("Over the windows shown here, of the newest seven days; all of them: interfere observe losses.")
        parts.append(Section("Worst victims of the week", (table, note), anchor="losses"))
    drift = [
        *(f"The software stack of {name} has changed." for name in online.changed_domains),
        *(f"Nothing more is learned of {name}: its windows contradict each other." for name in online.frozen),
    ]
    if online.quarantined:
        drift.append(f"{count_noun(online.quarantined, 'window')} contradicted what was known and wait for others.")
    if online.relearning:
        drift.append("The log is being learned again: these predictions are from before.")
    told = tuple(Sentence(text, tone=Tone.UNSURE) for text in drift) or (Sentence("Nothing drifts."),)
    parts.append(Section("Drift", told, anchor="drift"))
    if not checked:
        parts.insert(1, Sentence("No window in company was observed yet.", tone=Tone.LEAD))
    return Document("Predictions", tuple(parts))


def losses_table(losses: Sequence[PairLoss]) -> Table:
    """Return a table of pairs with the hours that jobs lost in them."""
    columns = (
        Column("workload", of="victim"),
        Column("beside", of=lambda loss: " + ".join(loss.company)),
        Column("on", of="device_type"),
        Column("slowdown", TIMES, of="slowdown"),
        Column("together", JOB_HOURS, of="hours"),
        Column("lost", JOB_HOURS, of="lost_hours"),
    )
    return report.table_of("largest losses", columns, losses)


def models(served: ServedModels, info: ModelInfo) -> Document:
    """Return the models that the server can serve, the trial of the newest, and the card of the served one."""
    domains = ", ".join(dict.fromkeys(f"{each.device_type}/{each.mode}" for each in info.domains))
    knows = Sentence(f"{count_noun(len(info.workloads), 'workload')} on {domains}.", lead="Knows")
    return Document(
        "Models",
        (
            Section("Served", (_tiles_of_model(info), knows), anchor="now"),
            Section("Models to serve", tuple(models_parts(served)), anchor="models"),
        ),
    )


def models_parts(served: ServedModels) -> list[Part]:
    """Return a table of the models that the server can serve, and what is on trial and what was refused."""
    rows = (
        (
            each.version,
            each.model,
            each.created_at[:19],
            datetime.fromtimestamp(each.taken_s, UTC).strftime("%F %T"),
            "served" + " (pinned)" * served.pinned if each.served else "",
        )
        for each in served.models
    )
    columns = ("version", "model", "published", "taken (UTC)", "")
    parts: list[Part] = [text_table(f"watched: {served.watched_folder}", columns, rows)]
    if served.trial:
        parts.append(Sentence(f"on trial: {served.trial}"))
    if served.refused:
        parts.append(Sentence(f"refused: {served.refused}"))
    return parts


def unreachable(error: str, *, is_away: bool) -> Document:
    """Return the page that stands where a server does not answer, or refuses."""
    title = "The server does not answer" if is_away else "The server refuses"
    return Document(title, (Sentence(error, tone=Tone.BAD),))


def scope_path(scope: str) -> str:
    """Return the path of the overview of a scope."""
    return f"/?{urlencode({'scope': scope})}"


def _tiles_of_model(model: ModelInfo) -> Tiles:
    created = datetime.fromisoformat(model.created_at) if model.created_at else None
    detail = f"{model.model}, {created:%Y-%m-%d}" if created else model.model
    return Tiles(
        (
            Tile(value=model.version, label="model", detail=detail),
            Tile(value=float(model.online.observations), form=COUNT, label="windows observed"),
        )
    )


def _plot(known: Sequence[Checked]) -> report.LinePlot:
    points = []
    for each in known:
        one = each.logged.window
        label = f"{one.workload} beside {' + '.join(one.company)} on {one.device_type}"
        text = f"{label}: {TIMES.text(each.logged.slowdown)}"
        points.append(report.Point(each.logged.slowdown, each.predicted, each.low, each.high, text))
    return report.LinePlot(
        title="Predicted slowdown with its 90 % interval, over the measured one; on the line both are equal",
        x=report.Axis(title="measured", form=TIMES, is_log=True),
        y=report.Axis(title="predicted now", form=TIMES, is_log=True),
        series=(report.Series(name="window"),),
        panels=(report.Panel(points=(tuple(points),)),),
        is_square=True,
    )


def _pairs_table(known: Sequence[Checked]) -> Table:
    """Return a table with a row for each kind of pair: number of windows, measured and predicted slowdown."""
    grouped: defaultdict[tuple[str, str, str], list[Checked]] = defaultdict(list)
    for each in known:
        one = each.logged.window
        grouped[one.workload, " + ".join(one.company), one.device_type].append(each)
    rows = [
        (
            *names,
            float(len(group)),
            median(each.logged.slowdown for each in group),
            report.Estimate(group[-1].predicted, group[-1].low, group[-1].high),
        )
        for names, group in grouped.items()
    ]
    rows.sort(key=lambda row: -abs(math.log(row[4] / row[5].value)))
    columns = (
        *map(Column, ("workload", "beside", "on")),
        Column("windows", COUNT),
        Column("measured, median", TIMES),
        Column("predicted", TIMES),
    )
    return Table(
        title="predicted and measured, the largest difference first", columns=columns, rows=tuple(rows), fold=20
    )
