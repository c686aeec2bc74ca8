"""Scopes, decisions and explanations as parts of documents: for the dashboard's pages and for the terminal."""

import math
from urllib.parse import urlencode

from interfere.records import (
    Alternative,
    Contribution,
    DecisionList,
    DecisionSummary,
    Explanation,
    PairExplanation,
    ScopeState,
)
from interfere.reports.document import Items, Link, Part, Sentence, Table, text_table
from interfere.reports.numbers import TIMES, count_noun, format_digits

MAX_CONTRIBUTIONS = 5  # of one prediction on the screen; --json has all
_PRINTED_UNITS = {"bytes": (2**30, "GiB"), "FLOP": (1e9, "GFLOP"), "s": (1e-3, "ms"), "share": (1.0, "")}
"""Unit of a fact → how much of it one printed unit is, and the printed unit's name."""


def state_parts(state: ScopeState) -> list[Part]:
    """Return the tables of devices in use and of waiting jobs."""
    used = sum(bool(device.jobs) for device in state.devices)
    in_use = f"{used} of {len(state.devices)} devices in use"
    return [
        Sentence(f"decision {state.decision_id}: {in_use}, {len(state.waiting)} wait"),
        *([devices_table(state)] if used else []),
        *([waiting_table(state)] if state.waiting else []),
    ]


def devices_table(state: ScopeState) -> Table:
    """Return a table of the jobs on devices, with their predicted slowdowns."""
    rows = (
        (
            device.device_id,
            device.device_type,
            Link(job.job_id, page=decision_path(state.scope, state.decision_id, job.job_id))
            if job.planned
            else job.job_id,
            job.workload + " (planned)" * job.planned,
            "" if math.isnan(job.slowdown) else TIMES.text(job.slowdown),
        )
        for device in state.devices
        for job in device.jobs
    )
    return text_table("devices in use", ("device", "type", "job", "workload", "predicted slowdown"), rows)


def waiting_table(state: ScopeState) -> Table:
    """Return a table of the jobs that wait, when each is planned to start, and why it waits."""
    rows = (
        (
            Link(job.job_id, page=decision_path(state.scope, state.decision_id, job.job_id)),
            job.workload,
            "" if math.isnan(job.planned_start_s) else f"{job.planned_start_s - state.now_s:.0f} s",
            job.reason,
        )
        for job in state.waiting
    )
    return text_table("who waits", ("job", "workload", "starts in", "why"), rows)


def decision_path(scope: str, decision_id: str, job_id: str = "") -> str:
    """Return the path of a decision, or of what one job of it got, on a dashboard."""
    query = {"scope": scope, "id": decision_id} | ({"job": job_id} if job_id else {})
    return f"/decision?{urlencode(query)}"


def decisions_parts(listed: DecisionList) -> list[Part]:
    """Return one table of the decisions."""
    if not listed.decisions:
        return [Sentence(f"scope {listed.scope}: no decision is kept (interfere scopes list names all scopes)")]
    rows = (
        (
            Link(each.decision_id, page=decision_path(listed.scope, each.decision_id)),
            "" if math.isnan(each.now_s) else f"{each.now_s:.15g}",
            str(each.started_alone),
            str(each.started_shared),
            str(each.waiting),
            str(each.displaced),
            proof_text(each),
            each.waiting_rules[0].kind.value if each.waiting_rules else "",
        )
        for each in listed.decisions
    )
    columns = ("decision", "at, s", "alone", "shared", "wait", "moved", "proof", "why most wait")
    title = f"scope {listed.scope}: the newest decisions, in jobs"
    return [text_table(title, columns, rows), Sentence("Why a job got what it got: interfere explain DECISION JOB")]


def proof_text(decision: DecisionSummary) -> str:
    """Return what was proved of a decision, in a word or as its gap."""
    is_bounded = decision.status.value == "BOUNDED" and not math.isnan(decision.gap)
    return f"gap {decision.gap:.2g}" if is_bounded else decision.status.value.lower()


def explanation_parts(explanation: Explanation) -> list[Part]:
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
        choices = count_noun(explanation.refused_total, "choice")
        refused = f"Not allowed: {choices} of partner and kind of device, for example"
        with_whom = (f"beside {each.partner_id}" if each.partner_id else "alone" for each in explanation.refused)
        items = tuple(f"{who}: {each.reason}" for who, each in zip(with_whom, explanation.refused, strict=True))
        parts += [Sentence(refused), Items(items)]
    return parts


def _sentence(explanation: Explanation) -> str:
    action = explanation.action
    job = f"{action.job_id} ({explanation.workload})" if explanation.workload else action.job_id
    decision = action.kind.value.replace("_", " ")
    device = f" on {action.device_id}" if action.device_id else ""
    partner = f" beside {', '.join(action.partners)}" if action.partners else ""
    return f"{job}: {decision}{device}{partner}; {action.reason}."


def _contributions(pair: PairExplanation) -> Table:
    title = (
        f"{pair.victim_id} beside {pair.neighbour_id}: {pair.median:.2f} × "
        f"({pair.lower:.2f} – {pair.upper:.2f}), {pair.note or pair.source.value}"
    )
    rows = []
    for contribution in pair.contributions[:MAX_CONTRIBUTIONS]:
        amounts = (_amount(value, contribution) for value in (contribution.value, contribution.reference))
        rows.append((contribution.name, contribution.job_id, *amounts, f"{math.exp(contribution.log_change):.3f}"))
    return text_table(title, ("what moves it", "of", "value", "usual", "slowdown ×"), rows)


def _amount(value: float, contribution: Contribution) -> str:
    """Return a fact's value in the unit that people read; empty for NaN."""
    if math.isnan(value):
        return ""
    size, unit = _PRINTED_UNITS.get(contribution.unit, (1.0, contribution.unit))
    return f"{format_digits(value / size)} {unit}".rstrip()


def _alternatives(explanation: Explanation) -> Table:
    title = f"the best whole plan with each choice, model {explanation.model_version}"
    rows = []
    for alternative in explanation.alternatives:
        mark = "chosen" if alternative.chosen else ""
        cost = f"{alternative.cost:.3f}" if alternative.proven else f"≤ {alternative.cost:.3f}"
        rows.append((_choice(alternative), mark, _slowdowns(alternative), str(alternative.waiting), cost))
    return text_table(title, ("choice", "", "slowdowns", "waiting", "cost"), rows)


def _choice(alternative: Alternative) -> str:
    if not alternative.device_id:
        return "wait"
    partner = f"{alternative.partner_id} {alternative.partner_workload}"
    return f"{alternative.device_id} {f'beside {partner}' if alternative.partner_id else 'alone'}"


def _slowdowns(alternative: Alternative) -> str:
    slowdowns = (alternative.slowdown, alternative.partner_slowdown)[: 2 if alternative.partner_id else 1]
    return ", ".join(f"{slowdown:.2f} ×" for slowdown in slowdowns if not math.isnan(slowdown))
