"""Observations, what a model learned of them, and the models of a server."""

from hypothesis import strategies as st

from interfere.records import (
    METRICS,
    NAN,
    Correction,
    LogEntry,
    MemoryUsage,
    ModelChange,
    ModelDomain,
    ModelInfo,
    ModelScore,
    Observation,
    ObservationAnswer,
    ObservationLog,
    ObservationResult,
    OddDevice,
    OnlineState,
    Outcome,
    OutcomeKind,
    Progress,
    ReporterState,
    ReporterWeight,
    Rollback,
    ServedModels,
    ServedModelSummary,
    TrainingTableSummary,
)
from tests.wire.strategies.values import counts, modes, names, numbers, optional, tuples, words


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
