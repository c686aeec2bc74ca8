from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SharingMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARING_MODE_UNSPECIFIED: _ClassVar[SharingMode]
    SHARING_MODE_TIMESLICE: _ClassVar[SharingMode]
    SHARING_MODE_MPS: _ClassVar[SharingMode]
    SHARING_MODE_MIG: _ClassVar[SharingMode]
    SHARING_MODE_STREAM: _ClassVar[SharingMode]
    SHARING_MODE_PRIORITY: _ClassVar[SharingMode]
    SHARING_MODE_SPATIAL: _ClassVar[SharingMode]

class ObjectiveKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECTIVE_KIND_UNSPECIFIED: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_WEIGHTED_EXCESS: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_TOTAL_SLOWDOWN: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_COMPLETION_TIME: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_MAKESPAN: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_FINISH_TIME_FAIRNESS: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_PAIRS_PAST_CAP: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_DEADLINE_MISSES: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_COST: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_ENERGY: _ClassVar[ObjectiveKind]
    OBJECTIVE_KIND_AUTO: _ClassVar[ObjectiveKind]

class ActionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_KIND_UNSPECIFIED: _ClassVar[ActionKind]
    ACTION_KIND_START_ALONE: _ClassVar[ActionKind]
    ACTION_KIND_START_SHARED: _ClassVar[ActionKind]
    ACTION_KIND_WAIT: _ClassVar[ActionKind]
    ACTION_KIND_KEEP: _ClassVar[ActionKind]
    ACTION_KIND_MOVE: _ClassVar[ActionKind]
    ACTION_KIND_PREEMPT: _ClassVar[ActionKind]
    ACTION_KIND_DEMOTE: _ClassVar[ActionKind]
    ACTION_KIND_DECLINE: _ClassVar[ActionKind]
    ACTION_KIND_END: _ClassVar[ActionKind]

class PredictionSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PREDICTION_SOURCE_UNSPECIFIED: _ClassVar[PredictionSource]
    PREDICTION_SOURCE_MEASURED: _ClassVar[PredictionSource]
    PREDICTION_SOURCE_MODEL: _ClassVar[PredictionSource]
    PREDICTION_SOURCE_ABSTAINED: _ClassVar[PredictionSource]
    PREDICTION_SOURCE_COMPOSED: _ClassVar[PredictionSource]

class SolveStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOLVE_STATUS_UNSPECIFIED: _ClassVar[SolveStatus]
    SOLVE_STATUS_OPTIMAL: _ClassVar[SolveStatus]
    SOLVE_STATUS_BOUNDED: _ClassVar[SolveStatus]
    SOLVE_STATUS_HEURISTIC: _ClassVar[SolveStatus]
    SOLVE_STATUS_INFEASIBLE: _ClassVar[SolveStatus]

class RuleKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_KIND_UNSPECIFIED: _ClassVar[RuleKind]
    RULE_KIND_POOL: _ClassVar[RuleKind]
    RULE_KIND_DEVICE_CLOSED: _ClassVar[RuleKind]
    RULE_KIND_WINDOW: _ClassVar[RuleKind]
    RULE_KIND_DEADLINE: _ClassVar[RuleKind]
    RULE_KIND_MEMORY: _ClassVar[RuleKind]
    RULE_KIND_GRANT: _ClassVar[RuleKind]
    RULE_KIND_WORKING_SET: _ClassVar[RuleKind]
    RULE_KIND_ACTION_NOT_ALLOWED: _ClassVar[RuleKind]
    RULE_KIND_UNPROFILED_WORKLOAD: _ClassVar[RuleKind]
    RULE_KIND_UNKNOWN_DEVICE_TYPE: _ClassVar[RuleKind]
    RULE_KIND_NOVEL_PAIR: _ClassVar[RuleKind]
    RULE_KIND_MISFIT_RISK: _ClassVar[RuleKind]
    RULE_KIND_JOB_SLOWDOWN_CAP: _ClassVar[RuleKind]
    RULE_KIND_REQUEST_SLOWDOWN_CAP: _ClassVar[RuleKind]
    RULE_KIND_PROTECTED_SLOWDOWN: _ClassVar[RuleKind]
    RULE_KIND_LATENCY_TARGET: _ClassVar[RuleKind]
    RULE_KIND_GUEST_ENDS_FIRST: _ClassVar[RuleKind]
    RULE_KIND_NO_FREE_SEAT: _ClassVar[RuleKind]
    RULE_KIND_GANG: _ClassVar[RuleKind]
    RULE_KIND_MULTI_DEVICE_JOB: _ClassVar[RuleKind]
    RULE_KIND_MAX_DEVICES: _ClassVar[RuleKind]
    RULE_KIND_LOWER_COST_ELSEWHERE: _ClassVar[RuleKind]
    RULE_KIND_DEVICES_PROMISED: _ClassVar[RuleKind]
    RULE_KIND_PROMISED_TO_OTHER_JOB: _ClassVar[RuleKind]
    RULE_KIND_ACCEPTED_DEADLINE: _ClassVar[RuleKind]
    RULE_KIND_INFEASIBLE_DEADLINE: _ClassVar[RuleKind]
    RULE_KIND_NO_ALLOWED_ACTION: _ClassVar[RuleKind]
    RULE_KIND_DEVICE_FREE: _ClassVar[RuleKind]
    RULE_KIND_LEAST_COST: _ClassVar[RuleKind]
    RULE_KIND_PROMISED: _ClassVar[RuleKind]
    RULE_KIND_MIGRATION_GAIN: _ClassVar[RuleKind]
    RULE_KIND_PREEMPTED: _ClassVar[RuleKind]
    RULE_KIND_RESIZED: _ClassVar[RuleKind]
    RULE_KIND_DEVICE_VACATED: _ClassVar[RuleKind]
    RULE_KIND_RESIDENT_STAYS: _ClassVar[RuleKind]
    RULE_KIND_GRANT_EXCEEDED: _ClassVar[RuleKind]
    RULE_KIND_PLACES_TAKEN: _ClassVar[RuleKind]
    RULE_KIND_JOINT_THROUGHPUT: _ClassVar[RuleKind]
    RULE_KIND_CUSTOM: _ClassVar[RuleKind]
    RULE_KIND_DEVICES_RESERVED: _ClassVar[RuleKind]
    RULE_KIND_PLANNED_LATER: _ClassVar[RuleKind]
    RULE_KIND_PROBE: _ClassVar[RuleKind]

class MemoryBasis(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_BASIS_UNSPECIFIED: _ClassVar[MemoryBasis]
    MEMORY_BASIS_PEAK: _ClassVar[MemoryBasis]
    MEMORY_BASIS_GRANT: _ClassVar[MemoryBasis]
    MEMORY_BASIS_WORKING_SET: _ClassVar[MemoryBasis]
    MEMORY_BASIS_STATIC_TRACE: _ClassVar[MemoryBasis]
    MEMORY_BASIS_MEASURED_USE: _ClassVar[MemoryBasis]

class ObservationResult(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBSERVATION_RESULT_UNSPECIFIED: _ClassVar[ObservationResult]
    OBSERVATION_RESULT_APPLIED: _ClassVar[ObservationResult]
    OBSERVATION_RESULT_DUPLICATE: _ClassVar[ObservationResult]
    OBSERVATION_RESULT_PENDING_SOLO: _ClassVar[ObservationResult]
    OBSERVATION_RESULT_REJECTED: _ClassVar[ObservationResult]
    OBSERVATION_RESULT_QUARANTINED: _ClassVar[ObservationResult]

class LevelKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_KIND_UNSPECIFIED: _ClassVar[LevelKind]
    LEVEL_KIND_WAITING_WEIGHT: _ClassVar[LevelKind]
    LEVEL_KIND_COST: _ClassVar[LevelKind]
    LEVEL_KIND_MAX_COST: _ClassVar[LevelKind]

class ModeSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_SOURCE_UNSPECIFIED: _ClassVar[ModeSource]
    MODE_SOURCE_MEASURED: _ClassVar[ModeSource]
    MODE_SOURCE_PREDICTED: _ClassVar[ModeSource]
    MODE_SOURCE_DERIVED: _ClassVar[ModeSource]
    MODE_SOURCE_ABSTAINED: _ClassVar[ModeSource]

class ModeReasonKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_REASON_KIND_UNSPECIFIED: _ClassVar[ModeReasonKind]
    MODE_REASON_KIND_HIGHEST_THROUGHPUT: _ClassVar[ModeReasonKind]
    MODE_REASON_KIND_ONLY_KNOWN_MODE: _ClassVar[ModeReasonKind]
    MODE_REASON_KIND_SHARING_LOSES: _ClassVar[ModeReasonKind]
    MODE_REASON_KIND_TARGETS_EXCLUDE_MODES: _ClassVar[ModeReasonKind]
    MODE_REASON_KIND_DOES_NOT_FIT: _ClassVar[ModeReasonKind]
    MODE_REASON_KIND_NOTHING_KNOWN: _ClassVar[ModeReasonKind]

class ModeMeasurementKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_MEASUREMENT_KIND_UNSPECIFIED: _ClassVar[ModeMeasurementKind]
    MODE_MEASUREMENT_KIND_TOGETHER: _ClassVar[ModeMeasurementKind]
    MODE_MEASUREMENT_KIND_ALONE: _ClassVar[ModeMeasurementKind]

class OutcomeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_KIND_UNSPECIFIED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_APPLIED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_LOST_RACE: _ClassVar[OutcomeKind]
    OUTCOME_KIND_REFUSED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_ENDED: _ClassVar[OutcomeKind]
SHARING_MODE_UNSPECIFIED: SharingMode
SHARING_MODE_TIMESLICE: SharingMode
SHARING_MODE_MPS: SharingMode
SHARING_MODE_MIG: SharingMode
SHARING_MODE_STREAM: SharingMode
SHARING_MODE_PRIORITY: SharingMode
SHARING_MODE_SPATIAL: SharingMode
OBJECTIVE_KIND_UNSPECIFIED: ObjectiveKind
OBJECTIVE_KIND_WEIGHTED_EXCESS: ObjectiveKind
OBJECTIVE_KIND_TOTAL_SLOWDOWN: ObjectiveKind
OBJECTIVE_KIND_COMPLETION_TIME: ObjectiveKind
OBJECTIVE_KIND_MAKESPAN: ObjectiveKind
OBJECTIVE_KIND_FINISH_TIME_FAIRNESS: ObjectiveKind
OBJECTIVE_KIND_PAIRS_PAST_CAP: ObjectiveKind
OBJECTIVE_KIND_DEADLINE_MISSES: ObjectiveKind
OBJECTIVE_KIND_COST: ObjectiveKind
OBJECTIVE_KIND_ENERGY: ObjectiveKind
OBJECTIVE_KIND_AUTO: ObjectiveKind
ACTION_KIND_UNSPECIFIED: ActionKind
ACTION_KIND_START_ALONE: ActionKind
ACTION_KIND_START_SHARED: ActionKind
ACTION_KIND_WAIT: ActionKind
ACTION_KIND_KEEP: ActionKind
ACTION_KIND_MOVE: ActionKind
ACTION_KIND_PREEMPT: ActionKind
ACTION_KIND_DEMOTE: ActionKind
ACTION_KIND_DECLINE: ActionKind
ACTION_KIND_END: ActionKind
PREDICTION_SOURCE_UNSPECIFIED: PredictionSource
PREDICTION_SOURCE_MEASURED: PredictionSource
PREDICTION_SOURCE_MODEL: PredictionSource
PREDICTION_SOURCE_ABSTAINED: PredictionSource
PREDICTION_SOURCE_COMPOSED: PredictionSource
SOLVE_STATUS_UNSPECIFIED: SolveStatus
SOLVE_STATUS_OPTIMAL: SolveStatus
SOLVE_STATUS_BOUNDED: SolveStatus
SOLVE_STATUS_HEURISTIC: SolveStatus
SOLVE_STATUS_INFEASIBLE: SolveStatus
RULE_KIND_UNSPECIFIED: RuleKind
RULE_KIND_POOL: RuleKind
RULE_KIND_DEVICE_CLOSED: RuleKind
RULE_KIND_WINDOW: RuleKind
RULE_KIND_DEADLINE: RuleKind
RULE_KIND_MEMORY: RuleKind
RULE_KIND_GRANT: RuleKind
RULE_KIND_WORKING_SET: RuleKind
RULE_KIND_ACTION_NOT_ALLOWED: RuleKind
RULE_KIND_UNPROFILED_WORKLOAD: RuleKind
RULE_KIND_UNKNOWN_DEVICE_TYPE: RuleKind
RULE_KIND_NOVEL_PAIR: RuleKind
RULE_KIND_MISFIT_RISK: RuleKind
RULE_KIND_JOB_SLOWDOWN_CAP: RuleKind
RULE_KIND_REQUEST_SLOWDOWN_CAP: RuleKind
RULE_KIND_PROTECTED_SLOWDOWN: RuleKind
RULE_KIND_LATENCY_TARGET: RuleKind
RULE_KIND_GUEST_ENDS_FIRST: RuleKind
RULE_KIND_NO_FREE_SEAT: RuleKind
RULE_KIND_GANG: RuleKind
RULE_KIND_MULTI_DEVICE_JOB: RuleKind
RULE_KIND_MAX_DEVICES: RuleKind
RULE_KIND_LOWER_COST_ELSEWHERE: RuleKind
RULE_KIND_DEVICES_PROMISED: RuleKind
RULE_KIND_PROMISED_TO_OTHER_JOB: RuleKind
RULE_KIND_ACCEPTED_DEADLINE: RuleKind
RULE_KIND_INFEASIBLE_DEADLINE: RuleKind
RULE_KIND_NO_ALLOWED_ACTION: RuleKind
RULE_KIND_DEVICE_FREE: RuleKind
RULE_KIND_LEAST_COST: RuleKind
RULE_KIND_PROMISED: RuleKind
RULE_KIND_MIGRATION_GAIN: RuleKind
RULE_KIND_PREEMPTED: RuleKind
RULE_KIND_RESIZED: RuleKind
RULE_KIND_DEVICE_VACATED: RuleKind
RULE_KIND_RESIDENT_STAYS: RuleKind
RULE_KIND_GRANT_EXCEEDED: RuleKind
RULE_KIND_PLACES_TAKEN: RuleKind
RULE_KIND_JOINT_THROUGHPUT: RuleKind
RULE_KIND_CUSTOM: RuleKind
RULE_KIND_DEVICES_RESERVED: RuleKind
RULE_KIND_PLANNED_LATER: RuleKind
RULE_KIND_PROBE: RuleKind
MEMORY_BASIS_UNSPECIFIED: MemoryBasis
MEMORY_BASIS_PEAK: MemoryBasis
MEMORY_BASIS_GRANT: MemoryBasis
MEMORY_BASIS_WORKING_SET: MemoryBasis
MEMORY_BASIS_STATIC_TRACE: MemoryBasis
MEMORY_BASIS_MEASURED_USE: MemoryBasis
OBSERVATION_RESULT_UNSPECIFIED: ObservationResult
OBSERVATION_RESULT_APPLIED: ObservationResult
OBSERVATION_RESULT_DUPLICATE: ObservationResult
OBSERVATION_RESULT_PENDING_SOLO: ObservationResult
OBSERVATION_RESULT_REJECTED: ObservationResult
OBSERVATION_RESULT_QUARANTINED: ObservationResult
LEVEL_KIND_UNSPECIFIED: LevelKind
LEVEL_KIND_WAITING_WEIGHT: LevelKind
LEVEL_KIND_COST: LevelKind
LEVEL_KIND_MAX_COST: LevelKind
MODE_SOURCE_UNSPECIFIED: ModeSource
MODE_SOURCE_MEASURED: ModeSource
MODE_SOURCE_PREDICTED: ModeSource
MODE_SOURCE_DERIVED: ModeSource
MODE_SOURCE_ABSTAINED: ModeSource
MODE_REASON_KIND_UNSPECIFIED: ModeReasonKind
MODE_REASON_KIND_HIGHEST_THROUGHPUT: ModeReasonKind
MODE_REASON_KIND_ONLY_KNOWN_MODE: ModeReasonKind
MODE_REASON_KIND_SHARING_LOSES: ModeReasonKind
MODE_REASON_KIND_TARGETS_EXCLUDE_MODES: ModeReasonKind
MODE_REASON_KIND_DOES_NOT_FIT: ModeReasonKind
MODE_REASON_KIND_NOTHING_KNOWN: ModeReasonKind
MODE_MEASUREMENT_KIND_UNSPECIFIED: ModeMeasurementKind
MODE_MEASUREMENT_KIND_TOGETHER: ModeMeasurementKind
MODE_MEASUREMENT_KIND_ALONE: ModeMeasurementKind
OUTCOME_KIND_UNSPECIFIED: OutcomeKind
OUTCOME_KIND_APPLIED: OutcomeKind
OUTCOME_KIND_LOST_RACE: OutcomeKind
OUTCOME_KIND_REFUSED: OutcomeKind
OUTCOME_KIND_ENDED: OutcomeKind

class KernelStat(_message.Message):
    __slots__ = ("name", "mean_s", "gap_s", "count", "grid", "block", "sd_s", "flops", "bytes", "sm_used", "occupancy_frac", "compute_frac", "memory_frac", "compute_bound")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEAN_S_FIELD_NUMBER: _ClassVar[int]
    GAP_S_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    SD_S_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SM_USED_FIELD_NUMBER: _ClassVar[int]
    OCCUPANCY_FRAC_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FRAC_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FRAC_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_BOUND_FIELD_NUMBER: _ClassVar[int]
    name: str
    mean_s: float
    gap_s: float
    count: float
    grid: _containers.RepeatedScalarFieldContainer[int]
    block: _containers.RepeatedScalarFieldContainer[int]
    sd_s: float
    flops: float
    bytes: float
    sm_used: float
    occupancy_frac: float
    compute_frac: float
    memory_frac: float
    compute_bound: float
    def __init__(self, name: _Optional[str] = ..., mean_s: _Optional[float] = ..., gap_s: _Optional[float] = ..., count: _Optional[float] = ..., grid: _Optional[_Iterable[int]] = ..., block: _Optional[_Iterable[int]] = ..., sd_s: _Optional[float] = ..., flops: _Optional[float] = ..., bytes: _Optional[float] = ..., sm_used: _Optional[float] = ..., occupancy_frac: _Optional[float] = ..., compute_frac: _Optional[float] = ..., memory_frac: _Optional[float] = ..., compute_bound: _Optional[float] = ...) -> None: ...

class JobProfile(_message.Message):
    __slots__ = ("workload", "device_type", "step_time_s", "source", "step_time_sd_s", "busy_frac", "busy_s", "idle_s", "flops_per_step", "bytes_per_step", "memory_peak_bytes", "memory_working_set_bytes", "kernels", "memory_model_bytes", "memory_activation_bytes", "memory_gradient_bytes", "memory_optimizer_bytes", "static_step_time_s", "gpu_util_frac", "memory_util_frac", "sm_active_frac", "sm_occupancy_frac", "tensor_active_frac", "dram_active_frac", "power_w", "static_memory_peak_bytes", "family", "measured_at_s", "latency_p50_s", "latency_p99_s")
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_S_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_SD_S_FIELD_NUMBER: _ClassVar[int]
    BUSY_FRAC_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    FLOPS_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_WORKING_SET_BYTES_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ACTIVATION_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_GRADIENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_OPTIMIZER_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATIC_STEP_TIME_S_FIELD_NUMBER: _ClassVar[int]
    GPU_UTIL_FRAC_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UTIL_FRAC_FIELD_NUMBER: _ClassVar[int]
    SM_ACTIVE_FRAC_FIELD_NUMBER: _ClassVar[int]
    SM_OCCUPANCY_FRAC_FIELD_NUMBER: _ClassVar[int]
    TENSOR_ACTIVE_FRAC_FIELD_NUMBER: _ClassVar[int]
    DRAM_ACTIVE_FRAC_FIELD_NUMBER: _ClassVar[int]
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    STATIC_MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    MEASURED_AT_S_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P50_S_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P99_S_FIELD_NUMBER: _ClassVar[int]
    workload: str
    device_type: str
    step_time_s: float
    source: str
    step_time_sd_s: float
    busy_frac: float
    busy_s: _containers.RepeatedScalarFieldContainer[float]
    idle_s: _containers.RepeatedScalarFieldContainer[float]
    flops_per_step: float
    bytes_per_step: float
    memory_peak_bytes: float
    memory_working_set_bytes: float
    kernels: _containers.RepeatedCompositeFieldContainer[KernelStat]
    memory_model_bytes: float
    memory_activation_bytes: float
    memory_gradient_bytes: float
    memory_optimizer_bytes: float
    static_step_time_s: float
    gpu_util_frac: float
    memory_util_frac: float
    sm_active_frac: float
    sm_occupancy_frac: float
    tensor_active_frac: float
    dram_active_frac: float
    power_w: float
    static_memory_peak_bytes: float
    family: str
    measured_at_s: float
    latency_p50_s: float
    latency_p99_s: float
    def __init__(self, workload: _Optional[str] = ..., device_type: _Optional[str] = ..., step_time_s: _Optional[float] = ..., source: _Optional[str] = ..., step_time_sd_s: _Optional[float] = ..., busy_frac: _Optional[float] = ..., busy_s: _Optional[_Iterable[float]] = ..., idle_s: _Optional[_Iterable[float]] = ..., flops_per_step: _Optional[float] = ..., bytes_per_step: _Optional[float] = ..., memory_peak_bytes: _Optional[float] = ..., memory_working_set_bytes: _Optional[float] = ..., kernels: _Optional[_Iterable[_Union[KernelStat, _Mapping]]] = ..., memory_model_bytes: _Optional[float] = ..., memory_activation_bytes: _Optional[float] = ..., memory_gradient_bytes: _Optional[float] = ..., memory_optimizer_bytes: _Optional[float] = ..., static_step_time_s: _Optional[float] = ..., gpu_util_frac: _Optional[float] = ..., memory_util_frac: _Optional[float] = ..., sm_active_frac: _Optional[float] = ..., sm_occupancy_frac: _Optional[float] = ..., tensor_active_frac: _Optional[float] = ..., dram_active_frac: _Optional[float] = ..., power_w: _Optional[float] = ..., static_memory_peak_bytes: _Optional[float] = ..., family: _Optional[str] = ..., measured_at_s: _Optional[float] = ..., latency_p50_s: _Optional[float] = ..., latency_p99_s: _Optional[float] = ...) -> None: ...

class JobRef(_message.Message):
    __slots__ = ("workload", "profile_id", "profile")
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    workload: str
    profile_id: str
    profile: JobProfile
    def __init__(self, workload: _Optional[str] = ..., profile_id: _Optional[str] = ..., profile: _Optional[_Union[JobProfile, _Mapping]] = ...) -> None: ...

class OrderedPair(_message.Message):
    __slots__ = ("victim", "neighbour", "further")
    VICTIM_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_FIELD_NUMBER: _ClassVar[int]
    FURTHER_FIELD_NUMBER: _ClassVar[int]
    victim: int
    neighbour: int
    further: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, victim: _Optional[int] = ..., neighbour: _Optional[int] = ..., further: _Optional[_Iterable[int]] = ...) -> None: ...

class PredictSlowdownsRequest(_message.Message):
    __slots__ = ("jobs", "pairs", "device_type", "mode", "device_memory_bytes", "allow_extrapolation", "columnar", "metric")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EXTRAPOLATION_FIELD_NUMBER: _ClassVar[int]
    COLUMNAR_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobRef]
    pairs: _containers.RepeatedCompositeFieldContainer[OrderedPair]
    device_type: str
    mode: SharingMode
    device_memory_bytes: float
    allow_extrapolation: bool
    columnar: bool
    metric: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[OrderedPair, _Mapping]]] = ..., device_type: _Optional[str] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., device_memory_bytes: _Optional[float] = ..., allow_extrapolation: _Optional[bool] = ..., columnar: _Optional[bool] = ..., metric: _Optional[str] = ...) -> None: ...

class PairPrediction(_message.Message):
    __slots__ = ("victim", "neighbour", "median", "lower", "upper", "feasibility", "source", "reason", "further")
    VICTIM_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    FEASIBILITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FURTHER_FIELD_NUMBER: _ClassVar[int]
    victim: int
    neighbour: int
    median: float
    lower: float
    upper: float
    feasibility: float
    source: PredictionSource
    reason: str
    further: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, victim: _Optional[int] = ..., neighbour: _Optional[int] = ..., median: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., feasibility: _Optional[float] = ..., source: _Optional[_Union[PredictionSource, str]] = ..., reason: _Optional[str] = ..., further: _Optional[_Iterable[int]] = ...) -> None: ...

class PairColumns(_message.Message):
    __slots__ = ("victim", "neighbour", "median", "lower", "upper", "feasibility", "source", "reason")
    VICTIM_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    FEASIBILITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    victim: bytes
    neighbour: bytes
    median: bytes
    lower: bytes
    upper: bytes
    feasibility: bytes
    source: bytes
    reason: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, victim: _Optional[bytes] = ..., neighbour: _Optional[bytes] = ..., median: _Optional[bytes] = ..., lower: _Optional[bytes] = ..., upper: _Optional[bytes] = ..., feasibility: _Optional[bytes] = ..., source: _Optional[bytes] = ..., reason: _Optional[_Iterable[str]] = ...) -> None: ...

class PredictSlowdownsResponse(_message.Message):
    __slots__ = ("predictions", "columns", "model_version", "device_type")
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    predictions: _containers.RepeatedCompositeFieldContainer[PairPrediction]
    columns: PairColumns
    model_version: str
    device_type: str
    def __init__(self, predictions: _Optional[_Iterable[_Union[PairPrediction, _Mapping]]] = ..., columns: _Optional[_Union[PairColumns, _Mapping]] = ..., model_version: _Optional[str] = ..., device_type: _Optional[str] = ...) -> None: ...

class PredictMatrixRequest(_message.Message):
    __slots__ = ("victims", "neighbours", "device_type", "mode", "quantile", "device_memory_bytes", "allow_extrapolation")
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EXTRAPOLATION_FIELD_NUMBER: _ClassVar[int]
    victims: _containers.RepeatedCompositeFieldContainer[JobRef]
    neighbours: _containers.RepeatedCompositeFieldContainer[JobRef]
    device_type: str
    mode: SharingMode
    quantile: float
    device_memory_bytes: float
    allow_extrapolation: bool
    def __init__(self, victims: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., neighbours: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., device_type: _Optional[str] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., quantile: _Optional[float] = ..., device_memory_bytes: _Optional[float] = ..., allow_extrapolation: _Optional[bool] = ...) -> None: ...

class PredictMatrixResponse(_message.Message):
    __slots__ = ("victims", "neighbours", "victim_slowdown", "neighbour_slowdown", "feasible", "model_version", "device_type")
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    VICTIM_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    FEASIBLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    victims: int
    neighbours: int
    victim_slowdown: bytes
    neighbour_slowdown: bytes
    feasible: bytes
    model_version: str
    device_type: str
    def __init__(self, victims: _Optional[int] = ..., neighbours: _Optional[int] = ..., victim_slowdown: _Optional[bytes] = ..., neighbour_slowdown: _Optional[bytes] = ..., feasible: _Optional[bytes] = ..., model_version: _Optional[str] = ..., device_type: _Optional[str] = ...) -> None: ...

class JobSize(_message.Message):
    __slots__ = ("gpus", "speed", "memory_peak_bytes")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    gpus: int
    speed: float
    memory_peak_bytes: float
    def __init__(self, gpus: _Optional[int] = ..., speed: _Optional[float] = ..., memory_peak_bytes: _Optional[float] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "workload", "profile_id", "memory_peak_bytes", "weight", "max_slowdown", "remaining_s", "gpus", "pools", "preemptible", "checkpoint_s", "since_s", "attained_s", "priority", "memory_working_set_bytes", "elapsed_s", "latency_target_s", "grant_bytes", "deadline_s", "remaining_p90_s", "sizes")
    ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIBLE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_S_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    ATTAINED_S_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_WORKING_SET_BYTES_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_S_FIELD_NUMBER: _ClassVar[int]
    LATENCY_TARGET_S_FIELD_NUMBER: _ClassVar[int]
    GRANT_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    REMAINING_P90_S_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    id: str
    workload: str
    profile_id: str
    memory_peak_bytes: float
    weight: float
    max_slowdown: float
    remaining_s: float
    gpus: int
    pools: _containers.RepeatedScalarFieldContainer[str]
    preemptible: bool
    checkpoint_s: float
    since_s: float
    attained_s: float
    priority: int
    memory_working_set_bytes: float
    elapsed_s: float
    latency_target_s: float
    grant_bytes: float
    deadline_s: float
    remaining_p90_s: float
    sizes: _containers.RepeatedCompositeFieldContainer[JobSize]
    def __init__(self, id: _Optional[str] = ..., workload: _Optional[str] = ..., profile_id: _Optional[str] = ..., memory_peak_bytes: _Optional[float] = ..., weight: _Optional[float] = ..., max_slowdown: _Optional[float] = ..., remaining_s: _Optional[float] = ..., gpus: _Optional[int] = ..., pools: _Optional[_Iterable[str]] = ..., preemptible: _Optional[bool] = ..., checkpoint_s: _Optional[float] = ..., since_s: _Optional[float] = ..., attained_s: _Optional[float] = ..., priority: _Optional[int] = ..., memory_working_set_bytes: _Optional[float] = ..., elapsed_s: _Optional[float] = ..., latency_target_s: _Optional[float] = ..., grant_bytes: _Optional[float] = ..., deadline_s: _Optional[float] = ..., remaining_p90_s: _Optional[float] = ..., sizes: _Optional[_Iterable[_Union[JobSize, _Mapping]]] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("from_s", "until_s")
    FROM_S_FIELD_NUMBER: _ClassVar[int]
    UNTIL_S_FIELD_NUMBER: _ClassVar[int]
    from_s: float
    until_s: float
    def __init__(self, from_s: _Optional[float] = ..., until_s: _Optional[float] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("id", "type", "node", "memory_bytes", "mode", "residents", "pool", "oversubscription_ratio", "granule_bytes", "windows", "price_per_hour", "power_w", "seats", "host_reserve_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RESIDENTS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    OVERSUBSCRIPTION_RATIO_FIELD_NUMBER: _ClassVar[int]
    GRANULE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    PRICE_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    HOST_RESERVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    node: str
    memory_bytes: float
    mode: SharingMode
    residents: _containers.RepeatedCompositeFieldContainer[Job]
    pool: str
    oversubscription_ratio: float
    granule_bytes: float
    windows: _containers.RepeatedCompositeFieldContainer[Window]
    price_per_hour: float
    power_w: float
    seats: int
    host_reserve_bytes: float
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., node: _Optional[str] = ..., memory_bytes: _Optional[float] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., residents: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., pool: _Optional[str] = ..., oversubscription_ratio: _Optional[float] = ..., granule_bytes: _Optional[float] = ..., windows: _Optional[_Iterable[_Union[Window, _Mapping]]] = ..., price_per_hour: _Optional[float] = ..., power_w: _Optional[float] = ..., seats: _Optional[int] = ..., host_reserve_bytes: _Optional[float] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("allowed", "max_slowdown", "max_devices", "allow_extrapolation", "risk", "memory_headroom", "misfit_risk", "protected_slowdown", "time_budget_s", "soft_cap", "promise_ttl_s", "slice_s", "move_factor", "most_shared_gpus", "promise_deadlines", "grant_patience_s", "grant_tolerance", "guest_ends_first", "min_joint_throughput", "ageing_s", "choosable_modes", "rematch_running", "resident_cap", "probe_devices", "probe_cap", "probe_risk")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    MAX_DEVICES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EXTRAPOLATION_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_HEADROOM_FIELD_NUMBER: _ClassVar[int]
    MISFIT_RISK_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    TIME_BUDGET_S_FIELD_NUMBER: _ClassVar[int]
    SOFT_CAP_FIELD_NUMBER: _ClassVar[int]
    PROMISE_TTL_S_FIELD_NUMBER: _ClassVar[int]
    SLICE_S_FIELD_NUMBER: _ClassVar[int]
    MOVE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MOST_SHARED_GPUS_FIELD_NUMBER: _ClassVar[int]
    PROMISE_DEADLINES_FIELD_NUMBER: _ClassVar[int]
    GRANT_PATIENCE_S_FIELD_NUMBER: _ClassVar[int]
    GRANT_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    GUEST_ENDS_FIRST_FIELD_NUMBER: _ClassVar[int]
    MIN_JOINT_THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    AGEING_S_FIELD_NUMBER: _ClassVar[int]
    CHOOSABLE_MODES_FIELD_NUMBER: _ClassVar[int]
    REMATCH_RUNNING_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_CAP_FIELD_NUMBER: _ClassVar[int]
    PROBE_DEVICES_FIELD_NUMBER: _ClassVar[int]
    PROBE_CAP_FIELD_NUMBER: _ClassVar[int]
    PROBE_RISK_FIELD_NUMBER: _ClassVar[int]
    allowed: _containers.RepeatedScalarFieldContainer[ActionKind]
    max_slowdown: float
    max_devices: int
    allow_extrapolation: bool
    risk: float
    memory_headroom: float
    misfit_risk: float
    protected_slowdown: float
    time_budget_s: float
    soft_cap: float
    promise_ttl_s: float
    slice_s: float
    move_factor: float
    most_shared_gpus: int
    promise_deadlines: bool
    grant_patience_s: float
    grant_tolerance: float
    guest_ends_first: bool
    min_joint_throughput: float
    ageing_s: float
    choosable_modes: _containers.RepeatedScalarFieldContainer[SharingMode]
    rematch_running: bool
    resident_cap: float
    probe_devices: int
    probe_cap: float
    probe_risk: float
    def __init__(self, allowed: _Optional[_Iterable[_Union[ActionKind, str]]] = ..., max_slowdown: _Optional[float] = ..., max_devices: _Optional[int] = ..., allow_extrapolation: _Optional[bool] = ..., risk: _Optional[float] = ..., memory_headroom: _Optional[float] = ..., misfit_risk: _Optional[float] = ..., protected_slowdown: _Optional[float] = ..., time_budget_s: _Optional[float] = ..., soft_cap: _Optional[float] = ..., promise_ttl_s: _Optional[float] = ..., slice_s: _Optional[float] = ..., move_factor: _Optional[float] = ..., most_shared_gpus: _Optional[int] = ..., promise_deadlines: _Optional[bool] = ..., grant_patience_s: _Optional[float] = ..., grant_tolerance: _Optional[float] = ..., guest_ends_first: _Optional[bool] = ..., min_joint_throughput: _Optional[float] = ..., ageing_s: _Optional[float] = ..., choosable_modes: _Optional[_Iterable[_Union[SharingMode, str]]] = ..., rematch_running: _Optional[bool] = ..., resident_cap: _Optional[float] = ..., probe_devices: _Optional[int] = ..., probe_cap: _Optional[float] = ..., probe_risk: _Optional[float] = ...) -> None: ...

class ObjectiveTerm(_message.Message):
    __slots__ = ("kind", "weight")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    kind: ObjectiveKind
    weight: float
    def __init__(self, kind: _Optional[_Union[ObjectiveKind, str]] = ..., weight: _Optional[float] = ...) -> None: ...

class MatchRequest(_message.Message):
    __slots__ = ("scope", "snapshot_id", "pending", "devices", "limits", "validate_only", "objective", "now_s", "partial", "objective_terms", "objective_name", "times", "delta")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_TERMS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_NAME_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    scope: str
    snapshot_id: str
    pending: _containers.RepeatedCompositeFieldContainer[Job]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    limits: Limits
    validate_only: bool
    objective: ObjectiveKind
    now_s: float
    partial: bool
    objective_terms: _containers.RepeatedCompositeFieldContainer[ObjectiveTerm]
    objective_name: str
    times: JobTimes
    delta: MatchDelta
    def __init__(self, scope: _Optional[str] = ..., snapshot_id: _Optional[str] = ..., pending: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., validate_only: _Optional[bool] = ..., objective: _Optional[_Union[ObjectiveKind, str]] = ..., now_s: _Optional[float] = ..., partial: _Optional[bool] = ..., objective_terms: _Optional[_Iterable[_Union[ObjectiveTerm, _Mapping]]] = ..., objective_name: _Optional[str] = ..., times: _Optional[_Union[JobTimes, _Mapping]] = ..., delta: _Optional[_Union[MatchDelta, _Mapping]] = ...) -> None: ...

class JobTimes(_message.Message):
    __slots__ = ("remaining_s", "attained_s", "elapsed_s", "remaining_p90_s")
    REMAINING_S_FIELD_NUMBER: _ClassVar[int]
    ATTAINED_S_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_S_FIELD_NUMBER: _ClassVar[int]
    REMAINING_P90_S_FIELD_NUMBER: _ClassVar[int]
    remaining_s: bytes
    attained_s: bytes
    elapsed_s: bytes
    remaining_p90_s: bytes
    def __init__(self, remaining_s: _Optional[bytes] = ..., attained_s: _Optional[bytes] = ..., elapsed_s: _Optional[bytes] = ..., remaining_p90_s: _Optional[bytes] = ...) -> None: ...

class MatchDelta(_message.Message):
    __slots__ = ("base_id", "removed_pending", "removed_devices", "pending_order", "device_order")
    BASE_ID_FIELD_NUMBER: _ClassVar[int]
    REMOVED_PENDING_FIELD_NUMBER: _ClassVar[int]
    REMOVED_DEVICES_FIELD_NUMBER: _ClassVar[int]
    PENDING_ORDER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ORDER_FIELD_NUMBER: _ClassVar[int]
    base_id: str
    removed_pending: _containers.RepeatedScalarFieldContainer[str]
    removed_devices: _containers.RepeatedScalarFieldContainer[str]
    pending_order: _containers.RepeatedScalarFieldContainer[int]
    device_order: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base_id: _Optional[str] = ..., removed_pending: _Optional[_Iterable[str]] = ..., removed_devices: _Optional[_Iterable[str]] = ..., pending_order: _Optional[_Iterable[int]] = ..., device_order: _Optional[_Iterable[int]] = ...) -> None: ...

class MemoryDemand(_message.Message):
    __slots__ = ("needed_bytes", "basis", "known_bytes", "known_basis", "working_set_bytes")
    NEEDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_BYTES_FIELD_NUMBER: _ClassVar[int]
    KNOWN_BASIS_FIELD_NUMBER: _ClassVar[int]
    WORKING_SET_BYTES_FIELD_NUMBER: _ClassVar[int]
    needed_bytes: float
    basis: MemoryBasis
    known_bytes: float
    known_basis: MemoryBasis
    working_set_bytes: float
    def __init__(self, needed_bytes: _Optional[float] = ..., basis: _Optional[_Union[MemoryBasis, str]] = ..., known_bytes: _Optional[float] = ..., known_basis: _Optional[_Union[MemoryBasis, str]] = ..., working_set_bytes: _Optional[float] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("kind", "job_id", "partner_id", "workload", "partner_workload", "device_type", "sharing_mode", "pool", "pools", "action", "decision_id", "detail", "demand", "partner_demand", "capacity_bytes", "device_memory_bytes", "memory_headroom", "oversubscription_ratio", "granule_bytes", "needed_granules", "partner_needed_granules", "capacity_granules", "misfit_probability", "max_misfit_probability", "slowdown", "partner_slowdown", "slowdown_cap", "risk", "priority", "partner_priority", "latency_target_s", "step_time_s", "runtime_s", "partner_runtime_s", "time_left_s", "closes_in_s", "opens_in_s", "checkpoint_s", "gpus", "residents", "max_shared_gpus", "max_devices", "kept_devices", "refused_pairs", "saved_s", "paid_s", "granted_bytes", "used_bytes", "device_used_bytes", "duration_s", "min_joint_throughput", "start_in_s", "custom_rule", "taught_share", "paging_slowdown")
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PARTNER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    PARTNER_WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHARING_MODE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    PARTNER_DEMAND_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_HEADROOM_FIELD_NUMBER: _ClassVar[int]
    OVERSUBSCRIPTION_RATIO_FIELD_NUMBER: _ClassVar[int]
    GRANULE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NEEDED_GRANULES_FIELD_NUMBER: _ClassVar[int]
    PARTNER_NEEDED_GRANULES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_GRANULES_FIELD_NUMBER: _ClassVar[int]
    MISFIT_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    MAX_MISFIT_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    PARTNER_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_CAP_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PARTNER_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LATENCY_TARGET_S_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_S_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_S_FIELD_NUMBER: _ClassVar[int]
    PARTNER_RUNTIME_S_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    CLOSES_IN_S_FIELD_NUMBER: _ClassVar[int]
    OPENS_IN_S_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    RESIDENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_SHARED_GPUS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEVICES_FIELD_NUMBER: _ClassVar[int]
    KEPT_DEVICES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    SAVED_S_FIELD_NUMBER: _ClassVar[int]
    PAID_S_FIELD_NUMBER: _ClassVar[int]
    GRANTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    MIN_JOINT_THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    START_IN_S_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_RULE_FIELD_NUMBER: _ClassVar[int]
    TAUGHT_SHARE_FIELD_NUMBER: _ClassVar[int]
    PAGING_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    kind: RuleKind
    job_id: str
    partner_id: str
    workload: str
    partner_workload: str
    device_type: str
    sharing_mode: SharingMode
    pool: str
    pools: _containers.RepeatedScalarFieldContainer[str]
    action: ActionKind
    decision_id: str
    detail: str
    demand: MemoryDemand
    partner_demand: MemoryDemand
    capacity_bytes: float
    device_memory_bytes: float
    memory_headroom: float
    oversubscription_ratio: float
    granule_bytes: float
    needed_granules: int
    partner_needed_granules: int
    capacity_granules: int
    misfit_probability: float
    max_misfit_probability: float
    slowdown: float
    partner_slowdown: float
    slowdown_cap: float
    risk: float
    priority: int
    partner_priority: int
    latency_target_s: float
    step_time_s: float
    runtime_s: float
    partner_runtime_s: float
    time_left_s: float
    closes_in_s: float
    opens_in_s: float
    checkpoint_s: float
    gpus: int
    residents: int
    max_shared_gpus: int
    max_devices: int
    kept_devices: int
    refused_pairs: int
    saved_s: float
    paid_s: float
    granted_bytes: float
    used_bytes: float
    device_used_bytes: float
    duration_s: float
    min_joint_throughput: float
    start_in_s: float
    custom_rule: str
    taught_share: float
    paging_slowdown: float
    def __init__(self, kind: _Optional[_Union[RuleKind, str]] = ..., job_id: _Optional[str] = ..., partner_id: _Optional[str] = ..., workload: _Optional[str] = ..., partner_workload: _Optional[str] = ..., device_type: _Optional[str] = ..., sharing_mode: _Optional[_Union[SharingMode, str]] = ..., pool: _Optional[str] = ..., pools: _Optional[_Iterable[str]] = ..., action: _Optional[_Union[ActionKind, str]] = ..., decision_id: _Optional[str] = ..., detail: _Optional[str] = ..., demand: _Optional[_Union[MemoryDemand, _Mapping]] = ..., partner_demand: _Optional[_Union[MemoryDemand, _Mapping]] = ..., capacity_bytes: _Optional[float] = ..., device_memory_bytes: _Optional[float] = ..., memory_headroom: _Optional[float] = ..., oversubscription_ratio: _Optional[float] = ..., granule_bytes: _Optional[float] = ..., needed_granules: _Optional[int] = ..., partner_needed_granules: _Optional[int] = ..., capacity_granules: _Optional[int] = ..., misfit_probability: _Optional[float] = ..., max_misfit_probability: _Optional[float] = ..., slowdown: _Optional[float] = ..., partner_slowdown: _Optional[float] = ..., slowdown_cap: _Optional[float] = ..., risk: _Optional[float] = ..., priority: _Optional[int] = ..., partner_priority: _Optional[int] = ..., latency_target_s: _Optional[float] = ..., step_time_s: _Optional[float] = ..., runtime_s: _Optional[float] = ..., partner_runtime_s: _Optional[float] = ..., time_left_s: _Optional[float] = ..., closes_in_s: _Optional[float] = ..., opens_in_s: _Optional[float] = ..., checkpoint_s: _Optional[float] = ..., gpus: _Optional[int] = ..., residents: _Optional[int] = ..., max_shared_gpus: _Optional[int] = ..., max_devices: _Optional[int] = ..., kept_devices: _Optional[int] = ..., refused_pairs: _Optional[int] = ..., saved_s: _Optional[float] = ..., paid_s: _Optional[float] = ..., granted_bytes: _Optional[float] = ..., used_bytes: _Optional[float] = ..., device_used_bytes: _Optional[float] = ..., duration_s: _Optional[float] = ..., min_joint_throughput: _Optional[float] = ..., start_in_s: _Optional[float] = ..., custom_rule: _Optional[str] = ..., taught_share: _Optional[float] = ..., paging_slowdown: _Optional[float] = ...) -> None: ...

class SlotRange(_message.Message):
    __slots__ = ("device_id", "first", "last")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    first: int
    last: int
    def __init__(self, device_id: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("kind", "job_id", "device_id", "partner_id", "slowdown", "slowdown_lower", "slowdown_upper", "partner_slowdown", "cost", "reason", "promised_by_s", "device_ids", "grant_bytes", "accepted", "rule", "partner_ids", "partner_slowdowns", "mode", "planned_start_s", "planned_end_s", "promised_end_s", "slots")
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTNER_ID_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_LOWER_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_UPPER_FIELD_NUMBER: _ClassVar[int]
    PARTNER_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROMISED_BY_S_FIELD_NUMBER: _ClassVar[int]
    DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
    GRANT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    PARTNER_IDS_FIELD_NUMBER: _ClassVar[int]
    PARTNER_SLOWDOWNS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PLANNED_START_S_FIELD_NUMBER: _ClassVar[int]
    PLANNED_END_S_FIELD_NUMBER: _ClassVar[int]
    PROMISED_END_S_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    kind: ActionKind
    job_id: str
    device_id: str
    partner_id: str
    slowdown: float
    slowdown_lower: float
    slowdown_upper: float
    partner_slowdown: float
    cost: float
    reason: str
    promised_by_s: float
    device_ids: _containers.RepeatedScalarFieldContainer[str]
    grant_bytes: float
    accepted: bool
    rule: Rule
    partner_ids: _containers.RepeatedScalarFieldContainer[str]
    partner_slowdowns: _containers.RepeatedScalarFieldContainer[float]
    mode: SharingMode
    planned_start_s: float
    planned_end_s: float
    promised_end_s: float
    slots: _containers.RepeatedCompositeFieldContainer[SlotRange]
    def __init__(self, kind: _Optional[_Union[ActionKind, str]] = ..., job_id: _Optional[str] = ..., device_id: _Optional[str] = ..., partner_id: _Optional[str] = ..., slowdown: _Optional[float] = ..., slowdown_lower: _Optional[float] = ..., slowdown_upper: _Optional[float] = ..., partner_slowdown: _Optional[float] = ..., cost: _Optional[float] = ..., reason: _Optional[str] = ..., promised_by_s: _Optional[float] = ..., device_ids: _Optional[_Iterable[str]] = ..., grant_bytes: _Optional[float] = ..., accepted: _Optional[bool] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., partner_ids: _Optional[_Iterable[str]] = ..., partner_slowdowns: _Optional[_Iterable[float]] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., planned_start_s: _Optional[float] = ..., planned_end_s: _Optional[float] = ..., promised_end_s: _Optional[float] = ..., slots: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ...) -> None: ...

class Pairing(_message.Message):
    __slots__ = ("job_id", "partner_id", "device_id", "weight")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PARTNER_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    partner_id: str
    device_id: str
    weight: float
    def __init__(self, job_id: _Optional[str] = ..., partner_id: _Optional[str] = ..., device_id: _Optional[str] = ..., weight: _Optional[float] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("job_id", "partner_id", "reason", "rule")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PARTNER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    partner_id: str
    reason: str
    rule: Rule
    def __init__(self, job_id: _Optional[str] = ..., partner_id: _Optional[str] = ..., reason: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ...) -> None: ...

class MatchResponse(_message.Message):
    __slots__ = ("decision_id", "model_version", "actions", "pairs", "refused", "refused_total", "cost", "greedy_cost", "greedy_waiting", "lower_bound", "gap", "status", "resolve_at_s", "objective_value", "levels", "cpu_s", "wall_s", "planned_value", "heuristic_values", "chosen_because", "work_units", "stopped_by", "base_id")
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    GREEDY_COST_FIELD_NUMBER: _ClassVar[int]
    GREEDY_WAITING_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_AT_S_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_VALUE_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    PLANNED_VALUE_FIELD_NUMBER: _ClassVar[int]
    HEURISTIC_VALUES_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    WORK_UNITS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_BY_FIELD_NUMBER: _ClassVar[int]
    BASE_ID_FIELD_NUMBER: _ClassVar[int]
    decision_id: str
    model_version: str
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    pairs: _containers.RepeatedCompositeFieldContainer[Pairing]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    refused_total: int
    cost: float
    greedy_cost: float
    greedy_waiting: int
    lower_bound: float
    gap: float
    status: SolveStatus
    resolve_at_s: float
    objective_value: float
    levels: _containers.RepeatedCompositeFieldContainer[PlanLevel]
    cpu_s: float
    wall_s: float
    planned_value: float
    heuristic_values: _containers.RepeatedCompositeFieldContainer[HeuristicValue]
    chosen_because: str
    work_units: float
    stopped_by: str
    base_id: str
    def __init__(self, decision_id: _Optional[str] = ..., model_version: _Optional[str] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[Pairing, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., refused_total: _Optional[int] = ..., cost: _Optional[float] = ..., greedy_cost: _Optional[float] = ..., greedy_waiting: _Optional[int] = ..., lower_bound: _Optional[float] = ..., gap: _Optional[float] = ..., status: _Optional[_Union[SolveStatus, str]] = ..., resolve_at_s: _Optional[float] = ..., objective_value: _Optional[float] = ..., levels: _Optional[_Iterable[_Union[PlanLevel, _Mapping]]] = ..., cpu_s: _Optional[float] = ..., wall_s: _Optional[float] = ..., planned_value: _Optional[float] = ..., heuristic_values: _Optional[_Iterable[_Union[HeuristicValue, _Mapping]]] = ..., chosen_because: _Optional[str] = ..., work_units: _Optional[float] = ..., stopped_by: _Optional[str] = ..., base_id: _Optional[str] = ...) -> None: ...

class HeuristicValue(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class PlanLevel(_message.Message):
    __slots__ = ("kind", "priority", "value", "lower_bound")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_FIELD_NUMBER: _ClassVar[int]
    kind: LevelKind
    priority: int
    value: float
    lower_bound: float
    def __init__(self, kind: _Optional[_Union[LevelKind, str]] = ..., priority: _Optional[int] = ..., value: _Optional[float] = ..., lower_bound: _Optional[float] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("decision_id", "job_id", "scope")
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    decision_id: str
    job_id: str
    scope: str
    def __init__(self, decision_id: _Optional[str] = ..., job_id: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class Contribution(_message.Message):
    __slots__ = ("job_id", "name", "log_change", "value", "reference", "unit")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOG_CHANGE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    log_change: float
    value: float
    reference: float
    unit: str
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., log_change: _Optional[float] = ..., value: _Optional[float] = ..., reference: _Optional[float] = ..., unit: _Optional[str] = ...) -> None: ...

class PairExplanation(_message.Message):
    __slots__ = ("victim_id", "neighbour_id", "median", "lower", "upper", "source", "note", "contributions")
    VICTIM_ID_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_ID_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    victim_id: str
    neighbour_id: str
    median: float
    lower: float
    upper: float
    source: PredictionSource
    note: str
    contributions: _containers.RepeatedCompositeFieldContainer[Contribution]
    def __init__(self, victim_id: _Optional[str] = ..., neighbour_id: _Optional[str] = ..., median: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., source: _Optional[_Union[PredictionSource, str]] = ..., note: _Optional[str] = ..., contributions: _Optional[_Iterable[_Union[Contribution, _Mapping]]] = ...) -> None: ...

class Alternative(_message.Message):
    __slots__ = ("kind", "device_id", "partner_id", "partner_workload", "slowdown", "partner_slowdown", "group_cost", "cost", "waiting", "waiting_weight", "chosen", "proven")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTNER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTNER_WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    PARTNER_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    GROUP_COST_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITING_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    kind: ActionKind
    device_id: str
    partner_id: str
    partner_workload: str
    slowdown: float
    partner_slowdown: float
    group_cost: float
    cost: float
    waiting: int
    waiting_weight: float
    chosen: bool
    proven: bool
    def __init__(self, kind: _Optional[_Union[ActionKind, str]] = ..., device_id: _Optional[str] = ..., partner_id: _Optional[str] = ..., partner_workload: _Optional[str] = ..., slowdown: _Optional[float] = ..., partner_slowdown: _Optional[float] = ..., group_cost: _Optional[float] = ..., cost: _Optional[float] = ..., waiting: _Optional[int] = ..., waiting_weight: _Optional[float] = ..., chosen: _Optional[bool] = ..., proven: _Optional[bool] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("decision_id", "scope", "workload", "action", "pairs", "alternatives", "refused", "refused_total", "model_version", "changed", "left_out")
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    decision_id: str
    scope: str
    workload: str
    action: Action
    pairs: _containers.RepeatedCompositeFieldContainer[PairExplanation]
    alternatives: _containers.RepeatedCompositeFieldContainer[Alternative]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    refused_total: int
    model_version: str
    changed: _containers.RepeatedScalarFieldContainer[str]
    left_out: int
    def __init__(self, decision_id: _Optional[str] = ..., scope: _Optional[str] = ..., workload: _Optional[str] = ..., action: _Optional[_Union[Action, _Mapping]] = ..., pairs: _Optional[_Iterable[_Union[PairExplanation, _Mapping]]] = ..., alternatives: _Optional[_Iterable[_Union[Alternative, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., refused_total: _Optional[int] = ..., model_version: _Optional[str] = ..., changed: _Optional[_Iterable[str]] = ..., left_out: _Optional[int] = ...) -> None: ...

class ListDecisionsRequest(_message.Message):
    __slots__ = ("scope", "limit", "before_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_ID_FIELD_NUMBER: _ClassVar[int]
    scope: str
    limit: int
    before_id: str
    def __init__(self, scope: _Optional[str] = ..., limit: _Optional[int] = ..., before_id: _Optional[str] = ...) -> None: ...

class RuleCount(_message.Message):
    __slots__ = ("kind", "count")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    kind: RuleKind
    count: int
    def __init__(self, kind: _Optional[_Union[RuleKind, str]] = ..., count: _Optional[int] = ...) -> None: ...

class DecisionSummary(_message.Message):
    __slots__ = ("decision_id", "snapshot_id", "now_s", "model_version", "status", "gap", "pending", "devices", "started_alone", "started_shared", "waiting", "displaced", "waiting_rules", "planned_value", "cpu_s", "stopped_by")
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STARTED_ALONE_FIELD_NUMBER: _ClassVar[int]
    STARTED_SHARED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DISPLACED_FIELD_NUMBER: _ClassVar[int]
    WAITING_RULES_FIELD_NUMBER: _ClassVar[int]
    PLANNED_VALUE_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    STOPPED_BY_FIELD_NUMBER: _ClassVar[int]
    decision_id: str
    snapshot_id: str
    now_s: float
    model_version: str
    status: SolveStatus
    gap: float
    pending: int
    devices: int
    started_alone: int
    started_shared: int
    waiting: int
    displaced: int
    waiting_rules: _containers.RepeatedCompositeFieldContainer[RuleCount]
    planned_value: float
    cpu_s: float
    stopped_by: str
    def __init__(self, decision_id: _Optional[str] = ..., snapshot_id: _Optional[str] = ..., now_s: _Optional[float] = ..., model_version: _Optional[str] = ..., status: _Optional[_Union[SolveStatus, str]] = ..., gap: _Optional[float] = ..., pending: _Optional[int] = ..., devices: _Optional[int] = ..., started_alone: _Optional[int] = ..., started_shared: _Optional[int] = ..., waiting: _Optional[int] = ..., displaced: _Optional[int] = ..., waiting_rules: _Optional[_Iterable[_Union[RuleCount, _Mapping]]] = ..., planned_value: _Optional[float] = ..., cpu_s: _Optional[float] = ..., stopped_by: _Optional[str] = ...) -> None: ...

class ListDecisionsResponse(_message.Message):
    __slots__ = ("scope", "decisions")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    decisions: _containers.RepeatedCompositeFieldContainer[DecisionSummary]
    def __init__(self, scope: _Optional[str] = ..., decisions: _Optional[_Iterable[_Union[DecisionSummary, _Mapping]]] = ...) -> None: ...

class ListScopesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ScopeSummary(_message.Message):
    __slots__ = ("scope", "now_s", "promises", "accepted_deadlines", "grants", "end_promises")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    PROMISES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_DEADLINES_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    END_PROMISES_FIELD_NUMBER: _ClassVar[int]
    scope: str
    now_s: float
    promises: int
    accepted_deadlines: int
    grants: int
    end_promises: int
    def __init__(self, scope: _Optional[str] = ..., now_s: _Optional[float] = ..., promises: _Optional[int] = ..., accepted_deadlines: _Optional[int] = ..., grants: _Optional[int] = ..., end_promises: _Optional[int] = ...) -> None: ...

class ListScopesResponse(_message.Message):
    __slots__ = ("scopes",)
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    scopes: _containers.RepeatedCompositeFieldContainer[ScopeSummary]
    def __init__(self, scopes: _Optional[_Iterable[_Union[ScopeSummary, _Mapping]]] = ...) -> None: ...

class GetScopeRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    def __init__(self, scope: _Optional[str] = ...) -> None: ...

class PlacedJob(_message.Message):
    __slots__ = ("job_id", "workload", "slowdown", "planned")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    workload: str
    slowdown: float
    planned: bool
    def __init__(self, job_id: _Optional[str] = ..., workload: _Optional[str] = ..., slowdown: _Optional[float] = ..., planned: _Optional[bool] = ...) -> None: ...

class ScopeDevice(_message.Message):
    __slots__ = ("device_id", "device_type", "node", "jobs")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    device_type: str
    node: str
    jobs: _containers.RepeatedCompositeFieldContainer[PlacedJob]
    def __init__(self, device_id: _Optional[str] = ..., device_type: _Optional[str] = ..., node: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[PlacedJob, _Mapping]]] = ...) -> None: ...

class WaitingJob(_message.Message):
    __slots__ = ("job_id", "workload", "rule", "reason", "planned_start_s", "promised_end_s")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLANNED_START_S_FIELD_NUMBER: _ClassVar[int]
    PROMISED_END_S_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    workload: str
    rule: Rule
    reason: str
    planned_start_s: float
    promised_end_s: float
    def __init__(self, job_id: _Optional[str] = ..., workload: _Optional[str] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ..., reason: _Optional[str] = ..., planned_start_s: _Optional[float] = ..., promised_end_s: _Optional[float] = ...) -> None: ...

class GetScopeResponse(_message.Message):
    __slots__ = ("scope", "decision_id", "now_s", "model_version", "devices", "waiting")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    scope: str
    decision_id: str
    now_s: float
    model_version: str
    devices: _containers.RepeatedCompositeFieldContainer[ScopeDevice]
    waiting: _containers.RepeatedCompositeFieldContainer[WaitingJob]
    def __init__(self, scope: _Optional[str] = ..., decision_id: _Optional[str] = ..., now_s: _Optional[float] = ..., model_version: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[ScopeDevice, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[WaitingJob, _Mapping]]] = ...) -> None: ...

class ListGrantsRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    def __init__(self, scope: _Optional[str] = ...) -> None: ...

class DeviceGrants(_message.Message):
    __slots__ = ("device_id", "device_type", "granules", "granted", "free", "oversubscription_ratio", "granule_bytes", "node", "host_reserve_bytes")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    GRANULES_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    OVERSUBSCRIPTION_RATIO_FIELD_NUMBER: _ClassVar[int]
    GRANULE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    HOST_RESERVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    device_type: str
    granules: int
    granted: int
    free: int
    oversubscription_ratio: float
    granule_bytes: float
    node: str
    host_reserve_bytes: float
    def __init__(self, device_id: _Optional[str] = ..., device_type: _Optional[str] = ..., granules: _Optional[int] = ..., granted: _Optional[int] = ..., free: _Optional[int] = ..., oversubscription_ratio: _Optional[float] = ..., granule_bytes: _Optional[float] = ..., node: _Optional[str] = ..., host_reserve_bytes: _Optional[float] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("job_id", "device_id", "granules", "bytes", "since_s", "planned", "last_use_bytes", "times_exceeded", "slots")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    GRANULES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    LAST_USE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMES_EXCEEDED_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    device_id: str
    granules: int
    bytes: float
    since_s: float
    planned: bool
    last_use_bytes: float
    times_exceeded: int
    slots: _containers.RepeatedCompositeFieldContainer[SlotRange]
    def __init__(self, job_id: _Optional[str] = ..., device_id: _Optional[str] = ..., granules: _Optional[int] = ..., bytes: _Optional[float] = ..., since_s: _Optional[float] = ..., planned: _Optional[bool] = ..., last_use_bytes: _Optional[float] = ..., times_exceeded: _Optional[int] = ..., slots: _Optional[_Iterable[_Union[SlotRange, _Mapping]]] = ...) -> None: ...

class ListGrantsResponse(_message.Message):
    __slots__ = ("scope", "now_s", "devices", "grants")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    now_s: float
    devices: _containers.RepeatedCompositeFieldContainer[DeviceGrants]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    def __init__(self, scope: _Optional[str] = ..., now_s: _Optional[float] = ..., devices: _Optional[_Iterable[_Union[DeviceGrants, _Mapping]]] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ...) -> None: ...

class RankPlacementsRequest(_message.Message):
    __slots__ = ("job", "devices", "limits", "objective", "scope", "objective_name")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_NAME_FIELD_NUMBER: _ClassVar[int]
    job: Job
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    limits: Limits
    objective: ObjectiveKind
    scope: str
    objective_name: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., objective: _Optional[_Union[ObjectiveKind, str]] = ..., scope: _Optional[str] = ..., objective_name: _Optional[str] = ...) -> None: ...

class Ranking(_message.Message):
    __slots__ = ("device_id", "feasible", "slowdown", "worst_resident_slowdown", "cost", "reason", "planned", "rule")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    FEASIBLE_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    WORST_RESIDENT_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    feasible: bool
    slowdown: float
    worst_resident_slowdown: float
    cost: float
    reason: str
    planned: bool
    rule: Rule
    def __init__(self, device_id: _Optional[str] = ..., feasible: _Optional[bool] = ..., slowdown: _Optional[float] = ..., worst_resident_slowdown: _Optional[float] = ..., cost: _Optional[float] = ..., reason: _Optional[str] = ..., planned: _Optional[bool] = ..., rule: _Optional[_Union[Rule, _Mapping]] = ...) -> None: ...

class RankPlacementsResponse(_message.Message):
    __slots__ = ("rankings", "model_version")
    RANKINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    rankings: _containers.RepeatedCompositeFieldContainer[Ranking]
    model_version: str
    def __init__(self, rankings: _Optional[_Iterable[_Union[Ranking, _Mapping]]] = ..., model_version: _Optional[str] = ...) -> None: ...

class ModeJob(_message.Message):
    __slots__ = ("job", "latency_target_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LATENCY_TARGET_S_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    latency_target_s: float
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., latency_target_s: _Optional[float] = ...) -> None: ...

class AdviseModeRequest(_message.Message):
    __slots__ = ("jobs", "device_type", "device_memory_bytes", "allow_extrapolation", "risk")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EXTRAPOLATION_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[ModeJob]
    device_type: str
    device_memory_bytes: float
    allow_extrapolation: bool
    risk: float
    def __init__(self, jobs: _Optional[_Iterable[_Union[ModeJob, _Mapping]]] = ..., device_type: _Optional[str] = ..., device_memory_bytes: _Optional[float] = ..., allow_extrapolation: _Optional[bool] = ..., risk: _Optional[float] = ...) -> None: ...

class ModeMeasurement(_message.Message):
    __slots__ = ("kind", "workloads", "device_type", "mode", "expected_gain")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_GAIN_FIELD_NUMBER: _ClassVar[int]
    kind: ModeMeasurementKind
    workloads: _containers.RepeatedScalarFieldContainer[str]
    device_type: str
    mode: SharingMode
    expected_gain: float
    def __init__(self, kind: _Optional[_Union[ModeMeasurementKind, str]] = ..., workloads: _Optional[_Iterable[str]] = ..., device_type: _Optional[str] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., expected_gain: _Optional[float] = ...) -> None: ...

class JobUnderMode(_message.Message):
    __slots__ = ("workload", "slowdown", "lower", "upper", "source", "miss_probability", "slice_type", "reason")
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MISS_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    SLICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    workload: str
    slowdown: float
    lower: float
    upper: float
    source: ModeSource
    miss_probability: float
    slice_type: str
    reason: str
    def __init__(self, workload: _Optional[str] = ..., slowdown: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., source: _Optional[_Union[ModeSource, str]] = ..., miss_probability: _Optional[float] = ..., slice_type: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ModeOutlook(_message.Message):
    __slots__ = ("mode", "source", "jobs", "throughput", "lower", "upper", "throughput_within_targets", "feasibility", "probability_best", "reason", "measure")
    MODE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    THROUGHPUT_WITHIN_TARGETS_FIELD_NUMBER: _ClassVar[int]
    FEASIBILITY_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_BEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    mode: SharingMode
    source: ModeSource
    jobs: _containers.RepeatedCompositeFieldContainer[JobUnderMode]
    throughput: float
    lower: float
    upper: float
    throughput_within_targets: float
    feasibility: float
    probability_best: float
    reason: str
    measure: _containers.RepeatedCompositeFieldContainer[ModeMeasurement]
    def __init__(self, mode: _Optional[_Union[SharingMode, str]] = ..., source: _Optional[_Union[ModeSource, str]] = ..., jobs: _Optional[_Iterable[_Union[JobUnderMode, _Mapping]]] = ..., throughput: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., throughput_within_targets: _Optional[float] = ..., feasibility: _Optional[float] = ..., probability_best: _Optional[float] = ..., reason: _Optional[str] = ..., measure: _Optional[_Iterable[_Union[ModeMeasurement, _Mapping]]] = ...) -> None: ...

class ModeRecommendation(_message.Message):
    __slots__ = ("kind", "mode", "throughput", "other_mode", "other_throughput", "probability_best", "miss_probability", "risk", "reason")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    OTHER_MODE_FIELD_NUMBER: _ClassVar[int]
    OTHER_THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_BEST_FIELD_NUMBER: _ClassVar[int]
    MISS_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    kind: ModeReasonKind
    mode: SharingMode
    throughput: float
    other_mode: SharingMode
    other_throughput: float
    probability_best: float
    miss_probability: float
    risk: float
    reason: str
    def __init__(self, kind: _Optional[_Union[ModeReasonKind, str]] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., throughput: _Optional[float] = ..., other_mode: _Optional[_Union[SharingMode, str]] = ..., other_throughput: _Optional[float] = ..., probability_best: _Optional[float] = ..., miss_probability: _Optional[float] = ..., risk: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class AdviseModeResponse(_message.Message):
    __slots__ = ("modes", "recommendation", "measure", "model_version", "device_type")
    MODES_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    modes: _containers.RepeatedCompositeFieldContainer[ModeOutlook]
    recommendation: ModeRecommendation
    measure: _containers.RepeatedCompositeFieldContainer[ModeMeasurement]
    model_version: str
    device_type: str
    def __init__(self, modes: _Optional[_Iterable[_Union[ModeOutlook, _Mapping]]] = ..., recommendation: _Optional[_Union[ModeRecommendation, _Mapping]] = ..., measure: _Optional[_Iterable[_Union[ModeMeasurement, _Mapping]]] = ..., model_version: _Optional[str] = ..., device_type: _Optional[str] = ...) -> None: ...

class SuggestProbesRequest(_message.Message):
    __slots__ = ("job", "neighbours", "device_type", "mode", "count")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    job: JobRef
    neighbours: _containers.RepeatedCompositeFieldContainer[JobRef]
    device_type: str
    mode: SharingMode
    count: int
    def __init__(self, job: _Optional[_Union[JobRef, _Mapping]] = ..., neighbours: _Optional[_Iterable[_Union[JobRef, _Mapping]]] = ..., device_type: _Optional[str] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., count: _Optional[int] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("neighbour", "gain", "error_after")
    NEIGHBOUR_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    ERROR_AFTER_FIELD_NUMBER: _ClassVar[int]
    neighbour: str
    gain: float
    error_after: float
    def __init__(self, neighbour: _Optional[str] = ..., gain: _Optional[float] = ..., error_after: _Optional[float] = ...) -> None: ...

class SuggestProbesResponse(_message.Message):
    __slots__ = ("probes", "error_now", "model_version", "device_type")
    PROBES_FIELD_NUMBER: _ClassVar[int]
    ERROR_NOW_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    probes: _containers.RepeatedCompositeFieldContainer[Probe]
    error_now: float
    model_version: str
    device_type: str
    def __init__(self, probes: _Optional[_Iterable[_Union[Probe, _Mapping]]] = ..., error_now: _Optional[float] = ..., model_version: _Optional[str] = ..., device_type: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("job_id", "workload", "device_type", "start_s", "end_s", "company", "steps", "slowdown", "device_id", "mode", "reporter", "campaign")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    COMPANY_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    workload: str
    device_type: str
    start_s: float
    end_s: float
    company: _containers.RepeatedScalarFieldContainer[str]
    steps: float
    slowdown: float
    device_id: str
    mode: SharingMode
    reporter: str
    campaign: str
    def __init__(self, job_id: _Optional[str] = ..., workload: _Optional[str] = ..., device_type: _Optional[str] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ..., company: _Optional[_Iterable[str]] = ..., steps: _Optional[float] = ..., slowdown: _Optional[float] = ..., device_id: _Optional[str] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., reporter: _Optional[str] = ..., campaign: _Optional[str] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("observation_id", "progress", "memory_usage", "outcome", "rollback", "reporter_weight")
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    REPORTER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    progress: Progress
    memory_usage: MemoryUsage
    outcome: Outcome
    rollback: Rollback
    reporter_weight: ReporterWeight
    def __init__(self, observation_id: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., memory_usage: _Optional[_Union[MemoryUsage, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., rollback: _Optional[_Union[Rollback, _Mapping]] = ..., reporter_weight: _Optional[_Union[ReporterWeight, _Mapping]] = ...) -> None: ...

class MemoryUsage(_message.Message):
    __slots__ = ("job_id", "workload", "device_type", "bytes", "start_s", "end_s", "device_id", "min_bytes", "reporter")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    workload: str
    device_type: str
    bytes: float
    start_s: float
    end_s: float
    device_id: str
    min_bytes: float
    reporter: str
    def __init__(self, job_id: _Optional[str] = ..., workload: _Optional[str] = ..., device_type: _Optional[str] = ..., bytes: _Optional[float] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ..., device_id: _Optional[str] = ..., min_bytes: _Optional[float] = ..., reporter: _Optional[str] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("job_id", "kind", "at_s", "decision_id", "device_id", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    DECISION_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    kind: OutcomeKind
    at_s: float
    decision_id: str
    device_id: str
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., kind: _Optional[_Union[OutcomeKind, str]] = ..., at_s: _Optional[float] = ..., decision_id: _Optional[str] = ..., device_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Rollback(_message.Message):
    __slots__ = ("to_sequence", "reason", "reporter", "undoes")
    TO_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    UNDOES_FIELD_NUMBER: _ClassVar[int]
    to_sequence: int
    reason: str
    reporter: str
    undoes: int
    def __init__(self, to_sequence: _Optional[int] = ..., reason: _Optional[str] = ..., reporter: _Optional[str] = ..., undoes: _Optional[int] = ...) -> None: ...

class ReporterWeight(_message.Message):
    __slots__ = ("reporter", "weight", "reason")
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reporter: str
    weight: float
    reason: str
    def __init__(self, reporter: _Optional[str] = ..., weight: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class ReportObservationsRequest(_message.Message):
    __slots__ = ("observations",)
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedCompositeFieldContainer[Observation]
    def __init__(self, observations: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ...) -> None: ...

class ObservationAnswer(_message.Message):
    __slots__ = ("observation_id", "result", "reason", "weight")
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    result: ObservationResult
    reason: str
    weight: float
    def __init__(self, observation_id: _Optional[str] = ..., result: _Optional[_Union[ObservationResult, str]] = ..., reason: _Optional[str] = ..., weight: _Optional[float] = ...) -> None: ...

class ReportObservationsResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[ObservationAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[ObservationAnswer, _Mapping]]] = ...) -> None: ...

class GetObservationLogRequest(_message.Message):
    __slots__ = ("at_sequence", "limit")
    AT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    at_sequence: int
    limit: int
    def __init__(self, at_sequence: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ObservationLogEntry(_message.Message):
    __slots__ = ("sequence", "observation", "result", "reason", "received_s", "rolled_back")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_S_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    observation: Observation
    result: ObservationResult
    reason: str
    received_s: float
    rolled_back: bool
    def __init__(self, sequence: _Optional[int] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ..., result: _Optional[_Union[ObservationResult, str]] = ..., reason: _Optional[str] = ..., received_s: _Optional[float] = ..., rolled_back: _Optional[bool] = ...) -> None: ...

class Correction(_message.Message):
    __slots__ = ("victim", "neighbour", "device_type", "mode", "log_factor", "sd")
    VICTIM_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    LOG_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SD_FIELD_NUMBER: _ClassVar[int]
    victim: str
    neighbour: str
    device_type: str
    mode: SharingMode
    log_factor: float
    sd: float
    def __init__(self, victim: _Optional[str] = ..., neighbour: _Optional[str] = ..., device_type: _Optional[str] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., log_factor: _Optional[float] = ..., sd: _Optional[float] = ...) -> None: ...

class GetObservationLogResponse(_message.Message):
    __slots__ = ("entries", "online", "corrections")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ONLINE_FIELD_NUMBER: _ClassVar[int]
    CORRECTIONS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[ObservationLogEntry]
    online: OnlineState
    corrections: _containers.RepeatedCompositeFieldContainer[Correction]
    def __init__(self, entries: _Optional[_Iterable[_Union[ObservationLogEntry, _Mapping]]] = ..., online: _Optional[_Union[OnlineState, _Mapping]] = ..., corrections: _Optional[_Iterable[_Union[Correction, _Mapping]]] = ...) -> None: ...

class RegisterProfilesRequest(_message.Message):
    __slots__ = ("profiles",)
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[JobProfile]
    def __init__(self, profiles: _Optional[_Iterable[_Union[JobProfile, _Mapping]]] = ...) -> None: ...

class RegisterProfilesResponse(_message.Message):
    __slots__ = ("profile_ids",)
    PROFILE_IDS_FIELD_NUMBER: _ClassVar[int]
    profile_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, profile_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetProfileRequest(_message.Message):
    __slots__ = ("profile_id",)
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    def __init__(self, profile_id: _Optional[str] = ...) -> None: ...

class GetProfileResponse(_message.Message):
    __slots__ = ("profile",)
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    profile: JobProfile
    def __init__(self, profile: _Optional[_Union[JobProfile, _Mapping]] = ...) -> None: ...

class ListProfilesRequest(_message.Message):
    __slots__ = ("workload", "device_type")
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    workload: str
    device_type: str
    def __init__(self, workload: _Optional[str] = ..., device_type: _Optional[str] = ...) -> None: ...

class ProfileSummary(_message.Message):
    __slots__ = ("profile_id", "workload", "device_type", "source", "step_time_s", "newest", "registered", "problem")
    PROFILE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_S_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    profile_id: str
    workload: str
    device_type: str
    source: str
    step_time_s: float
    newest: bool
    registered: bool
    problem: str
    def __init__(self, profile_id: _Optional[str] = ..., workload: _Optional[str] = ..., device_type: _Optional[str] = ..., source: _Optional[str] = ..., step_time_s: _Optional[float] = ..., newest: _Optional[bool] = ..., registered: _Optional[bool] = ..., problem: _Optional[str] = ...) -> None: ...

class RemoveProfilesRequest(_message.Message):
    __slots__ = ("profile_ids",)
    PROFILE_IDS_FIELD_NUMBER: _ClassVar[int]
    profile_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, profile_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveProfilesResponse(_message.Message):
    __slots__ = ("removed_ids",)
    REMOVED_IDS_FIELD_NUMBER: _ClassVar[int]
    removed_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, removed_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListProfilesResponse(_message.Message):
    __slots__ = ("profiles",)
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[ProfileSummary]
    def __init__(self, profiles: _Optional[_Iterable[_Union[ProfileSummary, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModelSummary(_message.Message):
    __slots__ = ("version", "model", "created_at", "served", "taken_s")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_S_FIELD_NUMBER: _ClassVar[int]
    version: str
    model: str
    created_at: str
    served: bool
    taken_s: float
    def __init__(self, version: _Optional[str] = ..., model: _Optional[str] = ..., created_at: _Optional[str] = ..., served: _Optional[bool] = ..., taken_s: _Optional[float] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "pinned", "watched_folder", "refused", "trial")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FOLDER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelSummary]
    pinned: bool
    watched_folder: str
    refused: str
    trial: str
    def __init__(self, models: _Optional[_Iterable[_Union[ModelSummary, _Mapping]]] = ..., pinned: _Optional[bool] = ..., watched_folder: _Optional[str] = ..., refused: _Optional[str] = ..., trial: _Optional[str] = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("version", "no_shadow")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NO_SHADOW_FIELD_NUMBER: _ClassVar[int]
    version: str
    no_shadow: bool
    def __init__(self, version: _Optional[str] = ..., no_shadow: _Optional[bool] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ("version", "previous_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    previous_version: str
    def __init__(self, version: _Optional[str] = ..., previous_version: _Optional[str] = ...) -> None: ...

class RollbackModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RollbackModelResponse(_message.Message):
    __slots__ = ("version", "previous_version")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    previous_version: str
    def __init__(self, version: _Optional[str] = ..., previous_version: _Optional[str] = ...) -> None: ...

class PinModelRequest(_message.Message):
    __slots__ = ("release",)
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    release: bool
    def __init__(self, release: _Optional[bool] = ...) -> None: ...

class PinModelResponse(_message.Message):
    __slots__ = ("version", "pinned")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    version: str
    pinned: bool
    def __init__(self, version: _Optional[str] = ..., pinned: _Optional[bool] = ...) -> None: ...

class Domain(_message.Message):
    __slots__ = ("device_type", "mode", "metric")
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    device_type: str
    mode: SharingMode
    metric: str
    def __init__(self, device_type: _Optional[str] = ..., mode: _Optional[_Union[SharingMode, str]] = ..., metric: _Optional[str] = ...) -> None: ...

class TrainingTable(_message.Message):
    __slots__ = ("table", "rows", "sha256")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    table: str
    rows: int
    sha256: str
    def __init__(self, table: _Optional[str] = ..., rows: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("split", "model", "metric", "value")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    split: str
    model: str
    metric: str
    value: float
    def __init__(self, split: _Optional[str] = ..., model: _Optional[str] = ..., metric: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class OnlineState(_message.Message):
    __slots__ = ("observations", "pending_solo", "solo_rates", "corrected_jobs", "corrected_pairs", "quarantined", "alarms", "frozen", "outcomes", "memory_usages", "reporters", "changed_domains", "relearning", "odd_devices")
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    PENDING_SOLO_FIELD_NUMBER: _ClassVar[int]
    SOLO_RATES_FIELD_NUMBER: _ClassVar[int]
    CORRECTED_JOBS_FIELD_NUMBER: _ClassVar[int]
    CORRECTED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USAGES_FIELD_NUMBER: _ClassVar[int]
    REPORTERS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_DOMAINS_FIELD_NUMBER: _ClassVar[int]
    RELEARNING_FIELD_NUMBER: _ClassVar[int]
    ODD_DEVICES_FIELD_NUMBER: _ClassVar[int]
    observations: int
    pending_solo: int
    solo_rates: int
    corrected_jobs: int
    corrected_pairs: int
    quarantined: int
    alarms: int
    frozen: _containers.RepeatedScalarFieldContainer[str]
    outcomes: int
    memory_usages: int
    reporters: _containers.RepeatedCompositeFieldContainer[ReporterState]
    changed_domains: _containers.RepeatedScalarFieldContainer[str]
    relearning: bool
    odd_devices: _containers.RepeatedCompositeFieldContainer[OddDevice]
    def __init__(self, observations: _Optional[int] = ..., pending_solo: _Optional[int] = ..., solo_rates: _Optional[int] = ..., corrected_jobs: _Optional[int] = ..., corrected_pairs: _Optional[int] = ..., quarantined: _Optional[int] = ..., alarms: _Optional[int] = ..., frozen: _Optional[_Iterable[str]] = ..., outcomes: _Optional[int] = ..., memory_usages: _Optional[int] = ..., reporters: _Optional[_Iterable[_Union[ReporterState, _Mapping]]] = ..., changed_domains: _Optional[_Iterable[str]] = ..., relearning: _Optional[bool] = ..., odd_devices: _Optional[_Iterable[_Union[OddDevice, _Mapping]]] = ...) -> None: ...

class OddDevice(_message.Message):
    __slots__ = ("device", "device_type", "factor")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    device: str
    device_type: str
    factor: float
    def __init__(self, device: _Optional[str] = ..., device_type: _Optional[str] = ..., factor: _Optional[float] = ...) -> None: ...

class ReporterState(_message.Message):
    __slots__ = ("reporter", "windows", "trust", "weight", "factor")
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    reporter: str
    windows: int
    trust: float
    weight: float
    factor: float
    def __init__(self, reporter: _Optional[str] = ..., windows: _Optional[int] = ..., trust: _Optional[float] = ..., weight: _Optional[float] = ..., factor: _Optional[float] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("version", "model", "matrix_model", "fingerprint", "created_at", "workloads", "domains", "calibrated", "trained_on", "scores", "online", "server_version", "matrix_limit_pairs", "selected_by", "card")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MATRIX_MODEL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    CALIBRATED_FIELD_NUMBER: _ClassVar[int]
    TRAINED_ON_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ONLINE_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    MATRIX_LIMIT_PAIRS_FIELD_NUMBER: _ClassVar[int]
    SELECTED_BY_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    version: str
    model: str
    matrix_model: str
    fingerprint: str
    created_at: str
    workloads: _containers.RepeatedScalarFieldContainer[str]
    domains: _containers.RepeatedCompositeFieldContainer[Domain]
    calibrated: bool
    trained_on: _containers.RepeatedCompositeFieldContainer[TrainingTable]
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    online: OnlineState
    server_version: str
    matrix_limit_pairs: int
    selected_by: str
    card: str
    def __init__(self, version: _Optional[str] = ..., model: _Optional[str] = ..., matrix_model: _Optional[str] = ..., fingerprint: _Optional[str] = ..., created_at: _Optional[str] = ..., workloads: _Optional[_Iterable[str]] = ..., domains: _Optional[_Iterable[_Union[Domain, _Mapping]]] = ..., calibrated: _Optional[bool] = ..., trained_on: _Optional[_Iterable[_Union[TrainingTable, _Mapping]]] = ..., scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ..., online: _Optional[_Union[OnlineState, _Mapping]] = ..., server_version: _Optional[str] = ..., matrix_limit_pairs: _Optional[int] = ..., selected_by: _Optional[str] = ..., card: _Optional[str] = ...) -> None: ...

class Violation(_message.Message):
    __slots__ = ("field", "what", "value", "remedy")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    field: str
    what: str
    value: str
    remedy: str
    def __init__(self, field: _Optional[str] = ..., what: _Optional[str] = ..., value: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("kind", "what", "value", "remedy", "violations")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    what: str
    value: str
    remedy: str
    violations: _containers.RepeatedCompositeFieldContainer[Violation]
    def __init__(self, kind: _Optional[str] = ..., what: _Optional[str] = ..., value: _Optional[str] = ..., remedy: _Optional[str] = ..., violations: _Optional[_Iterable[_Union[Violation, _Mapping]]] = ...) -> None: ...
