"""Rules, actions, plans, and what a server keeps of them: promises, grants, decisions and scopes."""

from dataclasses import Field, fields, replace

from hypothesis import strategies as st

from interfere.records import (
    Action,
    ActionKind,
    DecisionList,
    DecisionSummary,
    DeviceGrants,
    DeviceSlots,
    Grant,
    GrantLine,
    GrantTables,
    HeuristicValue,
    MemoryBasis,
    MemoryDemand,
    Pairing,
    PlacedJob,
    Plan,
    Promise,
    Refusal,
    Rule,
    RuleCount,
    RuleKind,
    ScopeDevice,
    ScopeList,
    ScopeQuery,
    ScopeState,
    ScopeSummary,
    SlotRange,
    SolveStatus,
    WaitingJob,
)
from tests.wire.strategies.values import counts, modes, names, numbers, optional, tuples, words

bases = st.sampled_from(MemoryBasis)

demands = st.builds(
    MemoryDemand,
    needed_bytes=optional(),
    basis=bases,
    known_bytes=optional(),
    known_basis=bases,
    working_set_bytes=optional(),
)


def _parameter(field: Field) -> st.SearchStrategy:
    """Values of one field of a rule by its type, so that a field that the wire leaves out is found."""
    name = field.type.__name__ if isinstance(field.type, type) else str(field.type).rpartition(".")[2]
    return {
        "str": words,
        "float": optional(),
        "int | None": st.none() | counts,
        "MemoryDemand | None": st.none() | demands,
        "ActionKind | None": st.none() | st.sampled_from(ActionKind),
        "]": tuples(names),
    }[name]


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """A kind with some of all parameters."""
    given = {"kind": draw(st.sampled_from(RuleKind)), "sharing_mode": draw(st.just("") | modes)}
    for field in fields(Rule):
        if field.name not in given and draw(st.integers(0, 3)) == 0:
            given[field.name] = draw(_parameter(field))
    return Rule(**given)


optional_rules = st.none() | rules()

# Every partner and its slowdown, of which each action has as many.
companies = st.lists(st.tuples(names, numbers(1.0, 1e3)), max_size=3)


def _with_company(action: Action, company: list[tuple[str, float]]) -> Action:
    return replace(
        action,
        partner_ids=tuple(name for name, _ in company),
        partner_slowdowns=tuple(slowdown for _, slowdown in company),
    )


slot_ranges = tuples(st.builds(SlotRange, device_id=names, first=counts, last=counts))
held_slots = slot_ranges.map(lambda slots: slots or None)

actions_of_pairs = st.builds(
    Action,
    kind=st.sampled_from(ActionKind),
    job_id=names,
    device_id=words,
    partner_id=words,
    slowdown=optional(),
    slowdown_lower=optional(),
    slowdown_upper=optional(),
    partner_slowdown=optional(),
    cost=optional(),
    reason=words,
    promised_by_s=optional(),
    planned_start_s=optional(),
    planned_end_s=optional(),
    promised_end_s=optional(),
    device_ids=tuples(names),
    grant_bytes=optional(1.0),
    rule=optional_rules,
    mode=modes | st.just(""),
    slots=held_slots,
)

actions = st.builds(_with_company, actions_of_pairs, companies)

promises = st.builds(Promise, action=actions, decision_ids=tuples(names), from_device_id=words, since_s=optional())

grants = st.builds(
    Grant,
    job_id=names,
    workload=names,
    device_ids=tuples(names),
    bytes=optional(),
    since_s=optional(),
    planned=st.booleans(),
    slots=held_slots,
)

slots = st.builds(
    DeviceSlots,
    device_id=names,
    device_type=names,
    granules=counts,
    granule_bytes=numbers(1.0),
    oversubscription_ratio=numbers(1.0, 100.0),
    node=st.none() | names,
    host_reserve_bytes=optional(),
)

grant_tables = st.builds(
    GrantTables,
    scope=words,
    now_s=numbers(),
    devices=tuples(
        st.builds(
            DeviceGrants,
            device_id=names,
            device_type=names,
            granules=counts,
            granted=counts,
            free=counts,
            oversubscription_ratio=numbers(1.0),
            granule_bytes=numbers(1.0),
            node=st.none() | names,
            host_reserve_bytes=optional(),
        )
    ),
    grants=tuples(
        st.builds(
            GrantLine,
            job_id=names,
            device_id=names,
            granules=counts,
            bytes=numbers(),
            since_s=optional(),
            planned=st.booleans(),
            last_use_bytes=optional(),
            times_exceeded=counts,
            slots=slot_ranges,
        )
    ),
)

plans = st.builds(
    Plan,
    decision_id=words,
    model_version=words,
    actions=tuples(actions),
    pairs=tuples(st.builds(Pairing, job_id=names, partner_id=names, device_id=names, weight=numbers())),
    refused=tuples(st.builds(Refusal, job_id=names, partner_id=names, reason=words, rule=optional_rules)),
    refused_total=counts,
    cost=numbers(),
    greedy_cost=numbers(),
    greedy_waiting=counts,
    lower_bound=numbers(-1e6),
    gap=numbers(),
    status=st.sampled_from(SolveStatus),
    objective_value=optional(-1e6),
    resolve_at_s=optional(),
    planned_value=optional(),
    heuristic_values=tuples(st.builds(HeuristicValue, name=names, value=numbers())),
    chosen_because=words,
    work_units=optional(),
    stopped_by=words,
)

decision_lists = st.builds(
    DecisionList,
    scope=words,
    decisions=tuples(
        st.builds(
            DecisionSummary,
            decision_id=names,
            snapshot_id=words,
            now_s=optional(),
            model_version=names,
            status=st.sampled_from(SolveStatus),
            gap=numbers(),
            pending=counts,
            devices=counts,
            started_alone=counts,
            started_shared=counts,
            waiting=counts,
            displaced=counts,
            waiting_rules=tuples(st.builds(RuleCount, kind=st.sampled_from(RuleKind), count=counts)),
            planned_value=optional(),
            cpu_s=optional(),
            stopped_by=words,
        ),
        2,
    ),
)

scope_lists = st.builds(
    ScopeList,
    scopes=tuples(
        st.builds(
            ScopeSummary,
            scope=names,
            now_s=numbers(),
            promises=counts,
            accepted_deadlines=counts,
            grants=counts,
            end_promises=counts,
        )
    ),
)

scope_queries = st.builds(ScopeQuery, scope=words)

scope_states = st.builds(
    ScopeState,
    scope=words,
    decision_id=names,
    now_s=optional(),
    model_version=names,
    devices=tuples(
        st.builds(
            ScopeDevice,
            device_id=names,
            device_type=names,
            node=words,
            jobs=tuples(
                st.builds(PlacedJob, job_id=names, workload=words, slowdown=optional(), planned=st.booleans()), 2
            ),
        ),
        2,
    ),
    waiting=tuples(
        st.builds(
            WaitingJob,
            job_id=names,
            workload=words,
            rule=optional_rules,
            reason=words,
            planned_start_s=optional(),
            promised_end_s=optional(),
        ),
        2,
    ),
)
