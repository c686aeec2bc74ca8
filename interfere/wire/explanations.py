"""Explanations on the wire: what moves the predictions for a job, and what else it could have got."""

from interfere.records import (
    ActionKind,
    Alternative,
    Contribution,
    Explanation,
    PairExplanation,
    Source,
)
from interfere.v1 import policy_pb2 as pb
from interfere.wire.messages import ExplainQuery
from interfere.wire.plans import action_from_proto, action_to_proto, refusal_from_proto, refusal_to_proto
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


def explanation_to_proto(explanation: Explanation) -> pb.ExplainResponse:
    """Why one job got what it got."""
    return pb.ExplainResponse(
        decision_id=explanation.decision_id,
        scope=explanation.scope,
        workload=explanation.workload,
        action=action_to_proto(explanation.action),
        pairs=[_pair_to_proto(pair) for pair in explanation.pairs],
        alternatives=[_alternative_to_proto(alternative) for alternative in explanation.alternatives],
        left_out=explanation.left_out,
        refused=[refusal_to_proto(refusal) for refusal in explanation.refused],
        refused_total=explanation.refused_total,
        model_version=explanation.model_version,
        changed=explanation.changed,
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
        refused=tuple(refusal_from_proto(refusal) for refusal in message.refused),
        refused_total=message.refused_total,
        model_version=message.model_version,
        changed=tuple(message.changed),
    )


def _pair_to_proto(pair: PairExplanation) -> pb.PairExplanation:
    message = pb.PairExplanation(
        victim_id=pair.victim_id, neighbour_id=pair.neighbour_id, source=SOURCE[pair.source], note=pair.note
    )
    set_numbers(message, pair, *_SLOWDOWN)
    for contribution in pair.contributions:
        fact = message.contributions.add(
            job_id=contribution.job_id,
            name=contribution.name,
            log_change=contribution.log_change,
            unit=contribution.unit,
        )
        set_numbers(fact, contribution, *_FACT)
    return message


def _pair_from_proto(message: pb.PairExplanation) -> PairExplanation:
    return PairExplanation(
        victim_id=message.victim_id,
        neighbour_id=message.neighbour_id,
        source=Source(SOURCE.word(message.source, "source")),
        note=message.note,
        contributions=tuple(map(_contribution_from_proto, message.contributions)),
        **{name: float("nan") for name in _SLOWDOWN} | numbers(message, *_SLOWDOWN),
    )


def _contribution_from_proto(message: pb.Contribution) -> Contribution:
    return Contribution(
        job_id=message.job_id,
        name=message.name,
        log_change=message.log_change,
        unit=message.unit,
        **numbers(message, *_FACT),
    )


def _alternative_to_proto(alternative: Alternative) -> pb.Alternative:
    message = pb.Alternative(
        kind=ACTION[alternative.kind],
        device_id=alternative.device_id,
        partner_id=alternative.partner_id,
        partner_workload=alternative.partner_workload,
        cost=alternative.cost,
        waiting=alternative.waiting,
        waiting_weight=alternative.waiting_weight,
        chosen=alternative.chosen,
        proven=alternative.proven,
    )
    set_numbers(message, alternative, *_GROUP)
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
