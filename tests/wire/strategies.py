"""Random valid records for the laws of conversion."""

from dataclasses import Field, fields, replace

from hypothesis import strategies as st

from interfere.data.parquet import OPTIONAL_JOB_COLUMNS, OPTIONAL_KERNEL_FIELDS
from interfere.records import (
    METRICS,
    NAN,
    Action,
    ActionKind,
    Alternative,
    Contribution,
    Correction,
    DecisionList,
    DecisionSummary,
    Device,
    DeviceGrants,
    DeviceSlots,
    ExplainQuery,
    Explanation,
    Grant,
    GrantLine,
    GrantTables,
    HeuristicValue,
    Job,
    JobProfile,
    JobRef,
    JobSize,
    KernelStat,
    Limits,
    LogEntry,
    MatrixQuery,
    MemoryBasis,
    MemoryDemand,
    MemoryUsage,
    ModeJob,
    ModelChange,
    ModelDomain,
    ModelInfo,
    ModelScore,
    ModeQuery,
    ObjectiveKind,
    ObjectiveTerm,
    Observation,
    ObservationAnswer,
    ObservationLog,
    ObservationResult,
    OddDevice,
    OnlineState,
    Outcome,
    OutcomeKind,
    PairExplanation,
    Pairing,
    PairQuery,
    PlacedJob,
    Plan,
    Probe,
    ProbeAnswer,
    ProbeQuery,
    ProfileSummary,
    Progress,
    Promise,
    RankAnswer,
    Ranking,
    RankQuery,
    Refusal,
    ReporterState,
    ReporterWeight,
    Rollback,
    Rule,
    RuleCount,
    RuleKind,
    ScopeDevice,
    ScopeList,
    ScopeQuery,
    ScopeState,
    ScopeSummary,
    ServedModels,
    ServedModelSummary,
    Snapshot,
    SolveStatus,
    Source,
    TrainingTableSummary,
    WaitingJob,
    Window,
)
from interfere.records.mode_advice import (
    JobUnderMode,
    ModeAdvice,
    ModeMeasurement,
    ModeMeasurementKind,
    ModeOutlook,
    ModeReasonKind,
    ModeRecommendation,
    ModeSource,
)
from interfere.sharing_modes import SharingMode

names = st.text("abcdefgh-µ🚀 0123", min_size=1, max_size=12).filter(str.strip)
words = st.text("abc-×≥", max_size=12)
counts = st.integers(0, 2**31)
modes = st.sampled_from(SharingMode)


def numbers(low: float = 0.0, high: float = 1e15) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


def optional(low: float = 0.0, high: float = 1e15) -> st.SearchStrategy[float]:
    return st.just(NAN) | numbers(low, high)


def tuples(of: st.SearchStrategy, size: int = 3) -> st.SearchStrategy:
    return st.lists(of, max_size=size).map(tuple)


kernels = st.builds(
    KernelStat,
    name=names,
    mean_s=numbers(),
    gap_s=optional(),
    count=numbers(),
    grid=tuples(counts),
    block=tuples(counts),
    **{name: optional() for name in OPTIONAL_KERNEL_FIELDS},
)


@st.composite
def profiles(draw: st.DrawFn) -> JobProfile:
    stretches = draw(st.lists(st.tuples(numbers(), numbers()), max_size=4))
    return JobProfile(
        workload=draw(names),
        device_type=draw(names),
        step_time_s=draw(optional(1e-9)),
        source=draw(names),
        step_time_sd_s=draw(optional()),
        busy_frac=draw(optional()),
        busy_s=tuple(b for b, _ in stretches),
        idle_s=tuple(i for _, i in stretches),
        flops_per_step=draw(optional()),
        bytes_per_step=draw(optional()),
        memory_peak_bytes=draw(optional()),
        memory_working_set_bytes=draw(optional()),
        kernels=draw(tuples(kernels, 2)),
        family=draw(st.just("") | names),
        **{name: draw(optional()) for name in OPTIONAL_JOB_COLUMNS},
    )


refs = st.builds(JobRef, workload=names) | st.builds(JobRef, profile_id=names) | st.builds(JobRef, profile=profiles())
summaries = st.builds(
    ProfileSummary,
    profile_id=names,
    workload=names,
    device_type=names,
    source=names,
    step_time_s=optional(1e-9),
    newest=st.booleans(),
    registered=st.booleans(),
)
plain_jobs = st.builds(
    Job,
    id=names,
    workload=names,
    profile_id=words,
    memory_peak_bytes=optional(),
    weight=numbers(1e-6),
    max_slowdown=optional(1.0),
    gpus=st.integers(1, 2**31),
    pools=tuples(words),
    preemptible=st.booleans(),
    checkpoint_s=optional(),
    since_s=optional(),
    grant_bytes=optional(1.0),
    remaining_s=optional(),
    attained_s=optional(),
    elapsed_s=optional(),
    priority=st.integers(0, 4),
    memory_working_set_bytes=optional(),
    latency_target_s=optional(),
    deadline_s=optional(),
)
jobs = plain_jobs.flatmap(
    lambda job: (
        st.just(job) | optional(job.remaining_s).map(lambda p90: replace(job, remaining_p90_s=p90))
        if job.remaining_s == job.remaining_s
        else st.just(job)
    )
)


def with_sizes(job: Job) -> st.SearchStrategy[Job]:
    """The job as an elastic one: its own number of devices first, then others."""
    others = st.lists(st.integers(1, 4_000).filter(lambda gpus: gpus != job.gpus), unique=True, max_size=3)

    def size(gpus: int) -> st.SearchStrategy[JobSize]:
        return st.builds(JobSize, gpus=st.just(gpus), speed=numbers(1e-6, 1e6), memory_peak_bytes=optional())

    further = others.flatmap(lambda counts: st.tuples(*map(size, counts)))
    return further.map(lambda sizes: replace(job, sizes=(JobSize(gpus=job.gpus), *sizes)))


jobs = jobs | jobs.flatmap(with_sizes)
windows = numbers(0.0, 1e9).flatmap(
    lambda from_s: st.builds(Window, from_s=st.just(from_s), until_s=optional(from_s + 1.0))
)
devices = st.builds(
    Device,
    id=names,
    type=names,
    node=words,
    memory_bytes=optional(1e3),
    mode=modes,
    residents=tuples(jobs, 2),
    pool=words,
    oversubscription_ratio=numbers(1.0, 100.0),
    granule_bytes=optional(1.0, 1e3),
    windows=tuples(windows),
    price_per_hour=optional(),
    power_w=optional(),
    seats=st.none() | st.integers(1, 48),
    host_reserve_bytes=optional(),
)
limits = st.builds(
    Limits.of,
    allowed=st.frozensets(st.sampled_from(ActionKind)).map(lambda kinds: kinds | {ActionKind.WAIT}),
    max_slowdown=optional(1.0),
    max_devices=st.none() | counts,
    most_shared_gpus=st.none() | counts.map(lambda count: count + 1),
    allow_extrapolation=st.booleans(),
    choosable_modes=st.frozensets(modes),
    promise_deadlines=st.booleans(),
    guest_ends_first=st.booleans(),
    rematch_running=st.booleans(),
    risk=st.floats(0.001, 0.5),
    memory_headroom=numbers(0.0, 0.99),
    misfit_risk=optional(0.0, 1.0),
    protected_slowdown=optional(1.0),
    min_joint_throughput=numbers(),
    time_budget_s=optional(0.001),
    soft_cap=optional(1.0),
    resident_cap=numbers(1.0),
    probe_devices=counts,
    probe_cap=numbers(1.0),
    probe_risk=st.floats(0.001, 0.5),
    promise_ttl_s=numbers(),
    slice_s=optional(1e-3),
    ageing_s=numbers(),
    move_factor=numbers(1.0),
    grant_patience_s=numbers(),
    grant_tolerance=numbers(),
)
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
snapshots = st.builds(
    Snapshot,
    pending=tuples(jobs),
    devices=tuples(devices),
    scope=names,
    snapshot_id=words,
    limits=limits,
    objective=st.sampled_from(ObjectiveKind),
    now_s=optional(),
    partial=st.booleans(),
    objective_terms=tuples(st.builds(ObjectiveTerm, kind=st.sampled_from(ObjectiveKind), weight=numbers(1e-6))),
)
rank_queries = st.builds(
    RankQuery, job=jobs, devices=tuples(devices), limits=limits, objective=st.sampled_from(ObjectiveKind), scope=words
)
rank_answers = st.builds(
    RankAnswer,
    rankings=tuples(
        st.builds(
            Ranking,
            device_id=names,
            feasible=st.booleans(),
            slowdown=optional(),
            worst_resident_slowdown=optional(),
            cost=numbers() | st.just(float("inf")),
            reason=words,
            planned=st.booleans(),
            rule=optional_rules,
        )
    ),
    model_version=words,
)
# Every partner and its slowdown, of which each action has as many.
companies = st.lists(st.tuples(names, numbers(1.0, 1e3)), max_size=3)


def _with_company(action: Action, company: list[tuple[str, float]]) -> Action:
    return replace(
        action,
        partner_ids=tuple(name for name, _ in company),
        partner_slowdowns=tuple(slowdown for _, slowdown in company),
    )


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
explain_queries = st.builds(ExplainQuery, decision_id=words, job_id=words, scope=words)
explanations = st.builds(
    Explanation,
    decision_id=words,
    scope=words,
    workload=words,
    model_version=words,
    changed=tuples(names, 2),
    left_out=counts,
    action=st.builds(Action, kind=st.sampled_from(ActionKind), job_id=names, slowdown=optional(), reason=words),
    pairs=tuples(
        st.builds(
            PairExplanation,
            victim_id=names,
            neighbour_id=names,
            median=optional(),
            lower=optional(),
            upper=optional(),
            source=st.sampled_from(Source),
            note=words,
            contributions=tuples(
                st.builds(
                    Contribution,
                    job_id=words,
                    name=names,
                    log_change=numbers(-3, 3),
                    value=optional(),
                    reference=optional(),
                    unit=words,
                ),
                2,
            ),
        ),
        2,
    ),
    alternatives=tuples(
        st.builds(
            Alternative,
            kind=st.sampled_from(ActionKind),
            device_id=words,
            partner_id=words,
            partner_workload=words,
            slowdown=optional(),
            partner_slowdown=optional(),
            group_cost=optional(),
            cost=numbers(),
            waiting=counts,
            waiting_weight=numbers(),
            chosen=st.booleans(),
            proven=st.booleans(),
        ),
        2,
    ),
    refused=tuples(st.builds(Refusal, job_id=names, partner_id=names, reason=words, rule=optional_rules), 2),
    refused_total=counts,
)


@st.composite
def pair_queries(draw: st.DrawFn) -> PairQuery:
    asked = draw(st.lists(refs, min_size=1, max_size=3))
    place = st.integers(0, len(asked) - 1)
    group = st.permutations(range(len(asked))).filter(lambda places: len(places) > 2).map(tuple)
    entry = st.one_of(st.tuples(place, place), group) if len(asked) > 2 else st.tuples(place, place)
    return PairQuery(
        jobs=tuple(asked),
        pairs=draw(tuples(entry)),
        device_type=draw(words),
        mode=draw(modes),
        device_memory_bytes=draw(optional(1.0)),
        allow_extrapolation=draw(st.booleans()),
    )


matrix_queries = st.builds(
    MatrixQuery,
    victims=st.lists(refs, min_size=1, max_size=2).map(tuple),
    neighbours=tuples(refs, 2),
    device_type=words,
    mode=modes,
    quantile=st.floats(0.01, 0.99),
    device_memory_bytes=optional(1.0),
    allow_extrapolation=st.booleans(),
)


@st.composite
def windows(draw: st.DrawFn) -> Progress:
    start_s = draw(numbers(0, 1e9))
    by_steps = draw(st.booleans())
    return Progress(
        observation_id=draw(names),
        job_id=draw(names),
        workload=draw(names),
        device_type=draw(names),
        start_s=start_s,
        end_s=start_s + draw(numbers(1, 1e6)),
        company=draw(tuples(names)),
        steps=draw(numbers()) if by_steps else NAN,
        slowdown=NAN if by_steps else draw(numbers(0.2, 100)),
        device_id=draw(words),
        mode=draw(modes),
        reporter=draw(words),
        campaign=draw(words),
    )


memory_usages = st.builds(
    lambda start_s, **given: MemoryUsage(start_s=start_s, end_s=start_s + 1.0, **given),
    start_s=numbers(0, 1e9),
    observation_id=names,
    job_id=names,
    workload=names,
    device_type=names,
    bytes=numbers(1e6, 1e12),
    min_bytes=optional(0, 1e6),
    device_id=words,
    reporter=words,
)
outcomes = st.builds(
    Outcome,
    observation_id=names,
    job_id=names,
    kind=st.sampled_from(OutcomeKind),
    at_s=numbers(0, 1e9),
    decision_id=words,
    device_id=words,
    reason=names,
)
rollbacks = st.builds(Rollback, observation_id=names, to_sequence=counts, reason=names, reporter=words, undoes=counts)
reporter_weights = st.builds(
    ReporterWeight, observation_id=names, reporter=names, weight=numbers(0.0, 1.0), reason=names
)


def observations() -> st.SearchStrategy[Observation]:
    """Of every kind."""
    return st.one_of(windows(), memory_usages, outcomes, rollbacks, reporter_weights)


log_entries = st.builds(
    LogEntry,
    sequence=counts,
    observation=observations(),
    result=st.sampled_from(ObservationResult),
    reason=words,
    received_s=numbers(0, 1e9),
    rolled_back=st.booleans(),
)
answers = st.builds(
    ObservationAnswer,
    observation_id=names,
    result=st.sampled_from(ObservationResult),
    reason=words,
    weight=optional(0, 1),
)
models = st.builds(
    ModelInfo,
    version=words,
    model=words,
    matrix_model=words,
    matrix_limit_pairs=counts,
    selected_by=words,
    card=words,
    fingerprint=words,
    created_at=words,
    workloads=tuples(names),
    domains=tuples(st.builds(ModelDomain, device_type=names, mode=modes, metric=st.sampled_from(METRICS))),
    calibrated=st.booleans(),
    trained_on=tuples(st.builds(TrainingTableSummary, table=names, rows=counts, sha256=words)),
    scores=tuples(st.builds(ModelScore, split=names, model=names, metric=names, value=numbers(-1e6))),
    online=st.builds(
        OnlineState,
        observations=counts,
        pending_solo=counts,
        solo_rates=counts,
        corrected_jobs=counts,
        corrected_pairs=counts,
        quarantined=counts,
        alarms=counts,
        frozen=tuples(names),
        outcomes=counts,
        memory_usages=counts,
        reporters=tuples(
            st.builds(
                ReporterState,
                reporter=names,
                windows=counts,
                trust=numbers(0.0, 1.0),
                weight=numbers(0.0, 1.0),
                factor=numbers(0.2, 5.0),
            )
        ),
        changed_domains=tuples(names),
        relearning=st.booleans(),
        odd_devices=tuples(st.builds(OddDevice, device=names, device_type=names, factor=numbers(0.2, 5.0))),
    ),
    server_version=words,
)
logs = st.builds(
    ObservationLog,
    entries=tuples(log_entries, 2),
    online=models.map(lambda model: model.online),
    corrections=tuples(
        st.builds(
            Correction,
            victim=names,
            neighbour=names,
            device_type=names,
            mode=modes,
            log_factor=numbers(-3, 3),
            sd=numbers(0, 3),
        ),
        2,
    ),
)


mode_queries = st.builds(
    ModeQuery,
    jobs=st.lists(st.builds(ModeJob, job=refs, latency_target_s=optional(1e-9)), min_size=2, max_size=4).map(tuple),
    device_type=words,
    device_memory_bytes=optional(1.0),
    allow_extrapolation=st.booleans(),
    risk=numbers(0.001, 0.5),
)
probe_queries = st.builds(
    ProbeQuery, job=refs, neighbours=tuples(refs), device_type=words, mode=modes, count=st.integers(1, 16)
)
probe_answers = st.builds(
    ProbeAnswer,
    probes=tuples(st.builds(Probe, neighbour=names, gain=numbers(), error_after=numbers())),
    error_now=numbers(),
    model_version=words,
    device_type=words,
)
_mode_measurements = st.builds(
    ModeMeasurement,
    kind=st.sampled_from(ModeMeasurementKind),
    workloads=tuples(names),
    device_type=words,
    mode=modes | st.just(""),
    expected_gain=optional(),
)
_jobs_under_mode = st.builds(
    JobUnderMode,
    workload=names,
    source=st.sampled_from(ModeSource),
    slice_type=words,
    reason=words,
    **{name: optional() for name in ("slowdown", "lower", "upper", "miss_probability")},
)
_mode_numbers = ("throughput", "lower", "upper", "throughput_within_targets", "feasibility", "probability_best")
_outlooks = st.builds(
    ModeOutlook,
    mode=modes,
    source=st.sampled_from(ModeSource),
    jobs=tuples(_jobs_under_mode),
    reason=words,
    measure=tuples(_mode_measurements),
    **{name: optional() for name in _mode_numbers},
)
_recommendation_numbers = ("throughput", "other_throughput", "probability_best", "miss_probability", "risk")
mode_advice = st.builds(
    ModeAdvice,
    device_type=words,
    modes=tuples(_outlooks),
    recommendation=st.builds(
        ModeRecommendation,
        kind=st.sampled_from(ModeReasonKind),
        mode=modes | st.just(""),
        other_mode=modes | st.just(""),
        reason=words,
        **{name: optional() for name in _recommendation_numbers},
    ),
    measure=tuples(_mode_measurements),
    model_version=words,
)
served_models = st.builds(
    ServedModels,
    models=tuples(
        st.builds(
            ServedModelSummary, version=words, model=words, created_at=words, served=st.booleans(), taken_s=numbers()
        )
    ),
    pinned=st.booleans(),
    watched_folder=words,
    refused=words,
)
model_changes = st.builds(ModelChange, version=words, previous_version=words)
