"""Rules in words: the one place where a rule becomes a sentence for people.

`render` gives one rule with all its numbers, and for a rule that stands for several pairs its headline and their count.
"""

import math
from collections.abc import Callable

from interfere.policy.rules.group_rules import RuleGroup
from interfere.records.rules import MemoryBasis, MemoryDemand, Rule, RuleKind
from interfere.reports.numbers import format_gib

HOUR_S, MINUTE_S, MS = 3600.0, 60.0, 1e-3  # seconds


def render(rule: Rule) -> str:
    """The rule in words, with the numbers that it carries."""
    if rule.refused_pairs is None:
        return _SENTENCES[rule.kind](rule)
    headline = _HEADLINES.get(rule.kind)
    pairs = f"{rule.refused_pairs} pair{'' if rule.refused_pairs == 1 else 's'}"
    return f"{_SENTENCES[rule.kind](rule) if headline is None else headline} ({pairs})"


def summary_rule(job_id: str, group: RuleGroup, refused_pairs: int) -> Rule:
    """One rule for all the pairs of a job that a group of refusals counts."""
    return Rule(
        kind=group.kind,
        job_id=job_id,
        workload=group.workload,
        partner_workload=group.partner_workload,
        device_type=group.device_type,
        refused_pairs=refused_pairs,
    )


def format_duration(seconds: float) -> str:
    """A time span as people read it, in seconds, minutes or hours."""
    if abs(seconds) >= HOUR_S:
        return f"{seconds / HOUR_S:.3g} h"
    return f"{seconds / MINUTE_S:.3g} min" if abs(seconds) >= MINUTE_S else f"{seconds:.3g} s"


def format_demand(demand: MemoryDemand) -> str:
    """The memory that a job needs, and where that is known from unless it is a measured peak."""
    if math.isnan(demand.needed_bytes):
        return "unknown"
    notes = _BASES[demand.basis]
    if not math.isnan(demand.known_bytes):
        known = _BASES[demand.known_basis]
        notes += f", more than the {format_gib(demand.known_bytes)}{f' ({known})' if known else ''} known"
    return format_gib(demand.needed_bytes) + (f" ({notes})" if notes else "")


_BASES = {
    MemoryBasis.PEAK: "",
    MemoryBasis.GRANT: "grant",
    MemoryBasis.WORKING_SET: "working set",
    MemoryBasis.STATIC_TRACE: "static trace",
    MemoryBasis.MEASURED_USE: "measured use",
}


def _device_name(rule: Rule) -> str:
    return rule.pool or rule.device_type


def _demands(rule: Rule) -> str:
    demands = (demand for demand in (rule.demand, rule.partner_demand) if demand is not None)
    return " + ".join(map(format_demand, demands))


# --- one sentence a kind ----------------------------------------------------------------------------------------------


def _pool(rule: Rule) -> str:
    if not rule.device_type:
        return f"pool: no device with a free seat is in [{', '.join(rule.pools)}]"
    return f"pool: {rule.job_id} allows [{', '.join(rule.pools)}], the device is in {rule.pool or 'none'}"


def _device_closed(rule: Rule) -> str:
    opens = "" if math.isnan(rule.opens_in_s) else f", and opens in {format_duration(rule.opens_in_s)}"
    return f"window: {_device_name(rule)} is closed{opens}"


def _window(rule: Rule) -> str:
    if rule.partner_id:
        return (
            f"window: {_slowed_down(rule)}, more than {rule.slowdown_cap:.2f} × would outlast the device, which closes "
            f"in {format_duration(rule.closes_in_s)}, at risk {rule.risk:g}"
        )
    closes = f"window: {_device_name(rule)} closes in {format_duration(rule.closes_in_s)}"
    if rule.closes_in_s <= rule.checkpoint_s:
        return f"{closes}, a checkpoint of {rule.job_id} takes {format_duration(rule.checkpoint_s)}"
    if math.isnan(rule.runtime_s):
        return f"{closes}, and nobody says how long {rule.job_id} runs (remaining_s)"
    return f"{closes}, {rule.job_id} needs {format_duration(rule.runtime_s)} there"


def _deadline(rule: Rule) -> str:
    left = format_duration(rule.time_left_s)
    if rule.partner_id:
        return f"deadline: {_slowed_down(rule)}, {left} leave {rule.slowdown_cap:.2f} × at risk {rule.risk:g}"
    needs = f"{rule.job_id} needs {format_duration(rule.runtime_s)} on {_device_name(rule)}"
    return f"deadline: {needs}, {left} are left"


def _slowed_down(rule: Rule) -> str:
    alone = f"{rule.job_id}, {format_duration(rule.runtime_s)} alone"
    return f"{alone}, could be slowed down {rule.slowdown:.2f} × by {rule.partner_id}"


def _memory(rule: Rule) -> str:
    capacity = format_gib(rule.capacity_bytes)
    if rule.memory_headroom > 0:
        memory = format_gib(rule.device_memory_bytes)
        capacity += f" ({memory} less {rule.memory_headroom:.3g} of it as headroom)"
    if rule.kind is RuleKind.MEMORY:
        return f"memory: {_demands(rule)} > {capacity}"
    demands = [demand for demand in (rule.demand, rule.partner_demand) if demand is not None]
    sets = " + ".join(format_gib(one.working_set_bytes) for one in demands if one.working_set_bytes > 0)
    plural = "s" if rule.partner_id else ""
    return f"working set{plural}: {sets} > {capacity}: {'they' if plural else 'it'} would be swapped"


def _grant(rule: Rule) -> str:
    counts = (count for count in (rule.needed_granules, rule.partner_needed_granules) if count is not None)
    granules = f"{' + '.join(map(str, counts))} granules of {format_gib(rule.granule_bytes)}"
    memory = f"{format_gib(rule.device_memory_bytes)} × {rule.oversubscription_ratio:g}"
    plural = "s" if rule.partner_id else ""
    return f"grant{plural}: {_demands(rule)} = {granules} > {rule.capacity_granules} ({memory})"


def _action_not_allowed(rule: Rule) -> str:
    size = rule.max_shared_gpus
    gang = "" if size is None else f", or the job takes more devices than most_shared_gpus = {size}"
    return f"{rule.action} is not an allowed action{gang}"


def _unprofiled_workload(rule: Rule) -> str:
    profile = f"no profile of workload {rule.workload!r} on {rule.device_type}"
    return profile if rule.refused_pairs is not None else f"{profile}: it runs alone first"


def _unknown_device_type(rule: Rule) -> str:
    return rule.detail or f"the model never saw {rule.device_type}/{rule.sharing_mode}"


def _novel_pair(rule: Rule) -> str:
    novel = f"{rule.workload} beside {rule.partner_workload} is unlike all that the model learned from"
    remedy = "measure this pair first, allow probes (probe_devices), or set allow_extrapolation"
    return novel if rule.refused_pairs is not None else f"{novel}: {remedy}"


def _probe(rule: Rule) -> str:
    sides = f"{rule.slowdown:.2f} × for {rule.job_id}, {rule.partner_slowdown:.2f} × for {rule.partner_id}"
    taught = f"teaches {rule.taught_share:.0%} of what is not known of {rule.workload}"
    return f"probe: a run beside {rule.partner_workload} {taught} ({sides}, extrapolated)"


def _misfit_risk(rule: Rule) -> str:
    probability = f"{rule.misfit_probability:.2g} > {rule.max_misfit_probability:g}"
    return f"misfit risk: {probability} that both do not fit {format_gib(rule.capacity_bytes)}"


def _slowdown_cap(rule: Rule) -> str:
    reach = f"{rule.job_id} could reach {rule.slowdown:.2f} > {rule.slowdown_cap:.2f} at risk {rule.risk:g}"
    return f"{_HEADLINES[rule.kind]}: {reach}"


def _protected_slowdown(rule: Rule) -> str:
    priorities = f"(priority {rule.priority} beside {rule.partner_priority})"
    return f"{_slowdown_cap(rule)} beside {rule.partner_id} {priorities}"


def _latency_target(rule: Rule) -> str:
    target_ms, alone_ms = rule.latency_target_s / MS, rule.step_time_s / MS
    if math.isnan(alone_ms):
        unknown = f"no request time of {rule.workload} alone is known"
        return f"latency target: {unknown}: {rule.job_id} runs alone"
    if math.isnan(rule.slowdown):
        alone = f"{alone_ms:.3g} ms alone{' (p99)' if rule.detail else ''}"
        return f"latency target: {target_ms:.3g} ms is less than {alone}: {rule.job_id} runs alone"
    could_ms = alone_ms * rule.slowdown
    if rule.detail:
        return (
            f"latency target: the p99 of {rule.job_id} could be {could_ms:.3g} ms > {target_ms:.3g} ms at risk "
            f"{rule.risk:g} ({alone_ms:.3g} ms a step alone)"
        )
    return (
        f"latency target: {rule.job_id} could take {could_ms:.3g} ms > {target_ms:.3g} ms "
        f"({alone_ms:.3g} ms alone × {rule.slowdown:.2f}) at risk {rule.risk:g}"
    )


def _guest_ends_first(rule: Rule) -> str:
    guest, host = format_duration(rule.runtime_s), format_duration(rule.partner_runtime_s)
    return f"guest_ends_first: {rule.job_id} would run {guest} here, {rule.partner_id} ends after {host}"


def _joint_throughput(rule: Rule) -> str:
    together = 1 / rule.slowdown + 1 / rule.partner_slowdown
    sides = f"{rule.slowdown:.2f} × for {rule.job_id}, {rule.partner_slowdown:.2f} × for {rule.partner_id}"
    limit = "one after the other does 1"
    if rule.min_joint_throughput != 1:
        limit += f", sharing has to do more than {rule.min_joint_throughput:.3g}"
    return f"joint throughput: together they do {together:.2f} ({sides}), {limit}"


def _no_free_seat(rule: Rule) -> str:
    if rule.gpus is not None:
        return "no free seat: a gang runs there"
    return "no device has a free seat" if rule.residents is None else f"no free seat: {rule.residents} residents"


def _gang(rule: Rule) -> str:
    return f"no {rule.gpus} free devices of one class"


def _devices_promised(rule: Rule) -> str:
    ending = ", or has a job that is to end" if rule.action == "end" else ""
    return f"every device is promised to others{ending}"


def _max_devices(rule: Rule) -> str:
    if rule.kept_devices is not None:
        return f"max_devices: {rule.kept_devices} of {rule.max_devices} are kept for others"
    return f"max_devices: {rule.max_devices} empty devices may be taken"


def _planned_later(rule: Rule) -> str:
    if math.isnan(rule.start_in_s):
        return "planned: no device has room for it"
    beside = f" beside {rule.partner_id}" if rule.partner_id else ""
    start = f"planned: it starts in {format_duration(rule.start_in_s)} on {rule.device_type}{beside}"
    if rule.saved_s > 0:
        return f"{start} and ends {format_duration(rule.saved_s)} sooner than from a start now on {rule.pool}"
    return f"{start}, so that other jobs end sooner"


def _infeasible_deadline(rule: Rule) -> str:
    if rule.time_left_s < 0:
        return f"deadline: {format_duration(-rule.time_left_s)} ago"
    left = f"{format_duration(rule.time_left_s)} are left"
    if math.isnan(rule.runtime_s):
        return f"deadline: no device can run it before, {left}"
    earliest = f"alone it ends in {format_duration(rule.runtime_s)} at the earliest"
    return f"deadline: {left}, {earliest}, on {_device_name(rule) or 'the fastest type'}"


def _least_cost(rule: Rule) -> str:
    partner = f"{rule.partner_slowdown:.2f} × for {rule.partner_id} ({rule.partner_workload})"
    paging = f"; counted as {rule.paging_slowdown:.3g} times as slow for paging" if rule.paging_slowdown > 1 else ""
    return f"least cost in all: {rule.slowdown:.2f} × here, {partner}{paging}"


def _migration_gain(rule: Rule) -> str:
    starts = f", and {rule.partner_id} starts" if rule.partner_id else ""
    return f"saves {rule.saved_s:.4g} weighted s for {rule.paid_s:.4g} of checkpoints{starts}"


def _preempted(rule: Rule) -> str:
    return f"{rule.partner_id}, of higher priority, saves {rule.saved_s:.4g} weighted s for {rule.paid_s:.4g}"


def _resized(rule: Rule) -> str:
    devices = "1 device" if rule.gpus == 1 else f"{rule.gpus} devices"
    return f"stopped to start again on {devices}: all jobs together gain more than its checkpoint costs"


def _device_vacated(rule: Rule) -> str:
    leaves = "stops for it" if rule.action == "preempt" else "moves and leaves its device"
    return f"{rule.partner_id} {leaves}"


def _grant_exceeded(rule: Rule) -> str:
    used, granted = format_gib(rule.used_bytes), format_gib(rule.granted_bytes)
    held = f"held {used} of {granted} granted for {rule.duration_s:.4g} s"
    if math.isnan(rule.device_used_bytes):
        return held
    device = f"{format_gib(rule.device_used_bytes)} of {format_gib(rule.device_memory_bytes)}"
    return f"{held}, and all on its device {device}"


# Names under which kinds stand for several pairs; the sentence of the other kinds says what the pairs have in common.
_HEADLINES = {
    RuleKind.POOL: "pool",
    RuleKind.DEVICE_CLOSED: "window",
    RuleKind.WINDOW: "window",
    RuleKind.DEADLINE: "deadline",
    RuleKind.MEMORY: "memory",
    RuleKind.GRANT: "grants",
    RuleKind.WORKING_SET: "working sets",
    RuleKind.UNKNOWN_DEVICE_TYPE: "device type or sharing mode that the model never saw",
    RuleKind.MISFIT_RISK: "misfit risk",
    RuleKind.JOB_SLOWDOWN_CAP: "slowdown cap of the job",
    RuleKind.REQUEST_SLOWDOWN_CAP: "slowdown cap of the request",
    RuleKind.PROTECTED_SLOWDOWN: "protected slowdown",
    RuleKind.LATENCY_TARGET: "latency target",
    RuleKind.JOINT_THROUGHPUT: "joint throughput",
    RuleKind.GUEST_ENDS_FIRST: "guest_ends_first",
    RuleKind.CUSTOM: "rule of the site",
}

_SENTENCES: dict[RuleKind, Callable[[Rule], str]] = {
    RuleKind.POOL: _pool,
    RuleKind.DEVICE_CLOSED: _device_closed,
    RuleKind.WINDOW: _window,
    RuleKind.DEADLINE: _deadline,
    RuleKind.MEMORY: _memory,
    RuleKind.GRANT: _grant,
    RuleKind.WORKING_SET: _memory,
    RuleKind.ACTION_NOT_ALLOWED: _action_not_allowed,
    RuleKind.UNPROFILED_WORKLOAD: _unprofiled_workload,
    RuleKind.UNKNOWN_DEVICE_TYPE: _unknown_device_type,
    RuleKind.NOVEL_PAIR: _novel_pair,
    RuleKind.MISFIT_RISK: _misfit_risk,
    RuleKind.JOB_SLOWDOWN_CAP: _slowdown_cap,
    RuleKind.REQUEST_SLOWDOWN_CAP: _slowdown_cap,
    RuleKind.PROTECTED_SLOWDOWN: _protected_slowdown,
    RuleKind.LATENCY_TARGET: _latency_target,
    RuleKind.JOINT_THROUGHPUT: _joint_throughput,
    RuleKind.GUEST_ENDS_FIRST: _guest_ends_first,
    RuleKind.CUSTOM: lambda rule: f"{rule.custom_rule}: {rule.detail}",
    RuleKind.NO_FREE_SEAT: _no_free_seat,
    RuleKind.GANG: _gang,
    RuleKind.MULTI_DEVICE_JOB: lambda rule: f"it takes {rule.gpus} devices at once: ask Match",
    RuleKind.MAX_DEVICES: _max_devices,
    RuleKind.LOWER_COST_ELSEWHERE: lambda _: "every place it could take went where it costs less",
    RuleKind.PLACES_TAKEN: lambda _: "every place it could take went to jobs of more weight or submitted before",
    RuleKind.PLANNED_LATER: _planned_later,
    RuleKind.DEVICES_PROMISED: _devices_promised,
    RuleKind.DEVICES_RESERVED: lambda rule: f"devices are kept free for {rule.partner_id}, which is overdue",
    RuleKind.PROMISED_TO_OTHER_JOB: lambda rule: f"promised to {rule.partner_id} by decision {rule.decision_id}",
    RuleKind.ACCEPTED_DEADLINE: lambda rule: f"accepted deadline: {rule.partner_id} would miss the one it was promised",
    RuleKind.INFEASIBLE_DEADLINE: _infeasible_deadline,
    RuleKind.NO_ALLOWED_ACTION: lambda _: "no allowed action fits it",
    RuleKind.DEVICE_FREE: lambda _: "a device is free",
    RuleKind.LEAST_COST: _least_cost,
    RuleKind.PROBE: _probe,
    RuleKind.PROMISED: lambda rule: f"promised by decision {rule.decision_id}",
    RuleKind.MIGRATION_GAIN: _migration_gain,
    RuleKind.PREEMPTED: _preempted,
    RuleKind.RESIZED: _resized,
    RuleKind.DEVICE_VACATED: _device_vacated,
    RuleKind.RESIDENT_STAYS: lambda _: "it stays where it is",
    RuleKind.GRANT_EXCEEDED: _grant_exceeded,
}
