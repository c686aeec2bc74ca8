"""Explanations on the wire."""

from interfere.records import (
    ActionKind,
    Alternative,
    Contribution,
    Explanation,
    PairExplanation,
    Refusal,
    Source,
)
from interfere.v1 import policy_pb2 as pb
from interfere.wire.messages import ExplainQuery
from interfere.wire.plans import action_from_proto, action_to_proto
from interfere.wire.scalars import ACTION, SOURCE, numbers, set_numbers

_FACT = ("value", "reference")
_SLOWDOWN = ("median", "lower", "upper")
_GROUP = ("slowdown", "partner_slowdown", "group_cost")


def explain_query_to_proto(query: ExplainQuery) -> pb.ExplainRequest:
    """Which job of which decision."""
    return pb.ExplainRequest(decision_id=query.decision_id, job_id=query.job_id, scope=query.scope)


def explain_query_from_proto(message: pb.ExplainRequest) -> ExplainQuery:
    """Which job of which decision."""
    return ExplainQuery(decision_id=message.decision_id, job_id=message.job_id, scope=message.scope)


def explanation_to_proto(said: Explanation) -> pb.ExplainResponse:
    """Why one job got what it got."""
    return pb.ExplainResponse(
        decision_id=said.decision_id,
        scope=said.scope,
        workload=said.workload,
        action=action_to_proto(said.action),
        pairs=[_pair_to_proto(pair) for pair in said.pairs],
        alternatives=[_alternative_to_proto(one) for one in said.alternatives],
        left_out=said.left_out,
        refused=[pb.Refusal(job_id=r.job_id, partner_id=r.partner_id, reason=r.reason) for r in said.refused],
        refused_total=said.refused_total,
        model_version=said.model_version,
        changed=said.changed,
    )


def explanation_from_proto(message: pb.ExplainResponse) -> Explanation:
    """Why one job got what it got; raises InvalidInputError on an action or source of a newer server."""
    return Explanation(
        decision_id=message.decision_id,
        scope=message.scope,
        workload=message.workload,
        action=action_from_proto(message.action),
        pairs=tuple(map(_pair_from_proto, message.pairs)),
        alternatives=tuple(map(_alternative_from_proto, message.alternatives)),
        left_out=message.left_out,
        refused=tuple(Refusal(job_id=r.job_id, partner_id=r.partner_id, reason=r.reason) for r in message.refused),
        refused_total=message.refused_total,
        model_version=message.model_version,
        changed=tuple(message.changed),
    )


def _pair_to_proto(pair: PairExplanation) -> pb.PairExplanation:
    message = pb.PairExplanation(
        victim_id=pair.victim_id, neighbour_id=pair.neighbour_id, source=SOURCE[pair.source], note=pair.note
    )
    set_numbers(message, pair, *_SLOWDOWN)
    for one in pair.contributions:
        fact = message.contributions.add(job_id=one.job_id, name=one.name, log_change=one.log_change, unit=one.unit)
        set_numbers(fact, one, *_FACT)
    return message


def _pair_from_proto(message: pb.PairExplanation) -> PairExplanation:
    return PairExplanation(
        victim_id=message.victim_id,
        neighbour_id=message.neighbour_id,
        source=Source(SOURCE.word(message.source, "source")),
        note=message.note,
        contributions=tuple(
            Contribution(
                job_id=one.job_id, name=one.name, log_change=one.log_change, unit=one.unit, **numbers(one, *_FACT)
            )
            for one in message.contributions
        ),
        **{name: float("nan") for name in _SLOWDOWN} | numbers(message, *_SLOWDOWN),
    )


def _alternative_to_proto(one: Alternative) -> pb.Alternative:
    message = pb.Alternative(
        kind=ACTION[one.kind],
        device_id=one.device_id,
        partner_id=one.partner_id,
        partner_workload=one.partner_workload,
        cost=one.cost,
        waiting=one.waiting,
        waiting_weight=one.waiting_weight,
        chosen=one.chosen,
        proven=one.proven,
    )
    set_numbers(message, one, *_GROUP)
    return message


def _alternative_from_proto(message: pb.Alternative) -> Alternative:
    return Alternative(
        kind=ActionKind(ACTION.word(message.kind, "kind")),
        device_id=message.device_id,
        partner_id=message.partner_id,
        partner_workload=message.partner_workload,
        cost=message.cost,
        waiting=message.waiting,
        waiting_weight=message.waiting_weight,
        chosen=message.chosen,
        proven=message.proven,
        **numbers(message, *_GROUP),
    )
