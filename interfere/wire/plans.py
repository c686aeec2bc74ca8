"""Decisions on the wire: plans with their actions, pairs and refusals."""

from typing import Any

from interfere.records import Action, ActionKind, LevelKind, Pairing, Plan, PlanLevel, Refusal, SolveStatus
from interfere.v1 import policy_pb2 as pb
from interfere.wire.rules import rule_from_proto, rule_to_proto
from interfere.wire.scalars import ACTION, MODE, STATUS, Words, numbers, set_numbers

_ACTION_OPTIONAL = (
    "slowdown",
    "slowdown_lower",
    "slowdown_upper",
    "partner_slowdown",
    "cost",
    "promised_by_s",
    "grant_bytes",
)
_PLAN_OPTIONAL = ("resolve_at_s", "objective_value", "cpu_s", "wall_s")
LEVEL = Words("LEVEL_KIND", pb.LevelKind, LevelKind)


def action_to_proto(action: Action) -> pb.Action:
    """What to do with one job."""
    message = pb.Action(
        kind=ACTION[action.kind],
        job_id=action.job_id,
        device_id=action.device_id,
        partner_id=action.partner_id,
        reason=action.reason,
        device_ids=action.device_ids,
        accepted=action.accepted,
        rule=rule_to_proto(action.rule),
        partner_ids=action.partner_ids,
        partner_slowdowns=action.partner_slowdowns,
        mode=MODE[action.mode] if action.mode else None,
    )
    set_numbers(message, action, *_ACTION_OPTIONAL)
    return message


def action_from_proto(message: pb.Action) -> Action:
    """What to do with one job."""
    present: dict[str, Any] = {**numbers(message, *_ACTION_OPTIONAL)}
    return Action(
        kind=ActionKind(ACTION.word(message.kind, "kind")),
        job_id=message.job_id,
        device_id=message.device_id,
        partner_id=message.partner_id,
        reason=message.reason,
        device_ids=tuple(message.device_ids),
        accepted=message.accepted,
        rule=rule_from_proto(message),
        partner_ids=tuple(message.partner_ids),
        partner_slowdowns=tuple(message.partner_slowdowns),
        mode=MODE.word(message.mode, "mode") if message.mode else "",
        **present,
    )


def refusal_to_proto(refusal: Refusal) -> pb.Refusal:
    """A pair that is not allowed."""
    return pb.Refusal(
        job_id=refusal.job_id,
        partner_id=refusal.partner_id,
        reason=refusal.reason,
        rule=rule_to_proto(refusal.rule),
    )


def refusal_from_proto(message: pb.Refusal) -> Refusal:
    """A pair that is not allowed."""
    return Refusal(
        job_id=message.job_id,
        partner_id=message.partner_id,
        reason=message.reason,
        rule=rule_from_proto(message),
    )


def plan_to_proto(plan: Plan) -> pb.MatchResponse:
    """One decision."""
    message = pb.MatchResponse(
        decision_id=plan.decision_id,
        model_version=plan.model_version,
        actions=[action_to_proto(action) for action in plan.actions],
        pairs=[
            pb.Pairing(job_id=p.job_id, partner_id=p.partner_id, device_id=p.device_id, weight=p.weight)
            for p in plan.pairs
        ],
        refused=[refusal_to_proto(refusal) for refusal in plan.refused],
        refused_total=plan.refused_total,
        cost=plan.cost,
        greedy_cost=plan.greedy_cost,
        greedy_waiting=plan.greedy_waiting,
        lower_bound=plan.lower_bound,
        gap=plan.gap,
        status=STATUS[plan.status],
        levels=[_level_to_proto(level) for level in plan.levels],
    )
    set_numbers(message, plan, *_PLAN_OPTIONAL)
    return message


def _level_to_proto(level: PlanLevel) -> pb.PlanLevel:
    """One level of a decision."""
    return pb.PlanLevel(
        kind=LEVEL[level.kind], priority=level.priority, value=level.value, lower_bound=level.lower_bound
    )


def plan_from_proto(message: pb.MatchResponse) -> Plan:
    """One decision; raises InvalidInputError on an action or status of a newer server."""
    return Plan(
        decision_id=message.decision_id,
        model_version=message.model_version,
        actions=tuple(action_from_proto(action) for action in message.actions),
        pairs=tuple(
            Pairing(job_id=p.job_id, partner_id=p.partner_id, device_id=p.device_id, weight=p.weight)
            for p in message.pairs
        ),
        refused=tuple(refusal_from_proto(refusal) for refusal in message.refused),
        refused_total=message.refused_total,
        cost=message.cost,
        greedy_cost=message.greedy_cost,
        greedy_waiting=message.greedy_waiting,
        lower_bound=message.lower_bound,
        gap=message.gap,
        status=SolveStatus(STATUS.word(message.status, "status")),
        levels=tuple(
            PlanLevel(
                kind=LevelKind(LEVEL.word(level.kind, "kind")),
                priority=level.priority if level.HasField("priority") else None,
                value=level.value,
                lower_bound=level.lower_bound,
            )
            for level in message.levels
        ),
        **numbers(message, *_PLAN_OPTIONAL),
    )
