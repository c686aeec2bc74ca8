"""Questions other than Match, and their answers."""

from hypothesis import strategies as st

from interfere.records import (
    Action,
    ActionKind,
    Alternative,
    Contribution,
    ExplainQuery,
    Explanation,
    MatrixQuery,
    ModeJob,
    ModeQuery,
    ObjectiveKind,
    PairExplanation,
    PairQuery,
    Probe,
    ProbeAnswer,
    ProbeQuery,
    RankAnswer,
    Ranking,
    RankQuery,
    Refusal,
    Source,
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
from tests.wire.strategies.clusters import devices, jobs, limits, refs
from tests.wire.strategies.plans import optional_rules
from tests.wire.strategies.values import counts, modes, names, numbers, optional, tuples, words

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
