"""Rules on the wire."""

from typing import Any

from interfere.records import ActionKind, MemoryBasis, MemoryDemand, Rule, RuleKind
from interfere.v1 import policy_pb2 as pb
from interfere.wire.scalars import ACTION, MODE, Words, numbers, set_numbers

RULE = Words("RULE_KIND", pb.RuleKind, RuleKind)
BASIS = Words("MEMORY_BASIS", pb.MemoryBasis, MemoryBasis)
_NAMES = ("job_id", "partner_id", "workload", "partner_workload", "device_type", "pool", "decision_id", "detail")
_COUNTS = (
    "needed_granules",
    "partner_needed_granules",
    "capacity_granules",
    "priority",
    "partner_priority",
    "gpus",
    "residents",
    "max_shared_gpus",
    "max_devices",
    "kept_devices",
    "refused_pairs",
)
_NUMBERS = (
    "capacity_bytes",
    "device_memory_bytes",
    "memory_headroom",
    "oversubscription_ratio",
    "granule_bytes",
    "misfit_probability",
    "max_misfit_probability",
    "slowdown",
    "partner_slowdown",
    "slowdown_cap",
    "risk",
    "latency_target_s",
    "step_time_s",
    "runtime_s",
    "partner_runtime_s",
    "time_left_s",
    "closes_in_s",
    "opens_in_s",
    "checkpoint_s",
    "saved_s",
    "paid_s",
    "granted_bytes",
    "used_bytes",
    "device_used_bytes",
    "duration_s",
    "min_joint_throughput",
    "mean_completion_s",
    "other_mean_completion_s",
)
_SIZES = ("needed_bytes", "known_bytes", "working_set_bytes")


def rule_to_proto(rule: Rule | None) -> pb.Rule | None:
    """The rule behind a refusal or an action; None where there is none."""
    if rule is None:
        return None
    message = pb.Rule(kind=RULE[rule.kind], pools=rule.pools, **{name: getattr(rule, name) for name in _NAMES})
    for name in _COUNTS:
        if (count := getattr(rule, name)) is not None:
            setattr(message, name, count)
    set_numbers(message, rule, *_NUMBERS)
    if rule.sharing_mode:
        message.sharing_mode = MODE[rule.sharing_mode]
    if rule.action is not None:
        message.action = ACTION[rule.action]
    for name in ("demand", "partner_demand"):
        if (demand := getattr(rule, name)) is not None:
            getattr(message, name).CopyFrom(_demand_to_proto(demand))
    return message


def rule_from_proto(parent: pb.Action | pb.Refusal | pb.Ranking) -> Rule | None:
    """The rule of an action, refusal or ranking; None where it has none, or one of a kind that a newer server added."""
    message = parent.rule
    if not parent.HasField("rule") or message.kind not in RULE.numbers:
        return None
    optional: dict[str, Any] = {**numbers(message, *_NUMBERS)}
    optional |= {name: getattr(message, name) for name in _COUNTS if message.HasField(name)}
    if message.HasField("sharing_mode") and message.sharing_mode in MODE.numbers:
        optional["sharing_mode"] = MODE.word(message.sharing_mode, "rule.sharing_mode")
    if message.HasField("action") and message.action in ACTION.numbers:
        optional["action"] = ActionKind(ACTION.word(message.action, "rule.action"))
    for name in ("demand", "partner_demand"):
        if message.HasField(name):
            optional[name] = _demand_from_proto(getattr(message, name))
    return Rule(
        kind=RuleKind(RULE.word(message.kind, "rule.kind")),
        pools=tuple(message.pools),
        **{name: getattr(message, name) for name in _NAMES},
        **optional,
    )


def _demand_to_proto(demand: MemoryDemand) -> pb.MemoryDemand:
    message = pb.MemoryDemand(basis=BASIS[demand.basis], known_basis=BASIS[demand.known_basis])
    set_numbers(message, demand, *_SIZES)
    return message


def _demand_from_proto(message: pb.MemoryDemand) -> MemoryDemand:
    bases = {
        name: MemoryBasis(BASIS.word(number, name))
        for name, number in (("basis", message.basis), ("known_basis", message.known_basis))
        if number in BASIS.numbers
    }
    return MemoryDemand(**bases, **numbers(message, *_SIZES))  # type: ignore[arg-type]
