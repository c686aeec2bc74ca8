"""The records that packages exchange: frozen, validated once when they are made.

Letters: `n` jobs, `p` ordered pairs, `f` features. SI seconds and bytes. Absent numbers are NaN, never 0.
`slowdown[i, j]` = metric of i beside j ÷ metric of i alone (1 = no interference); speed = 1/slowdown.
"""

from interfere.records.blocks import (
    BlockRequest,
    BlockSide,
    MeasuredBlock,
    SideSlice,
    SoloMeasurement,
    WorkloadGroup,
    WorkloadPair,
    group_key,
)
from interfere.records.checks import MAX_SLOWDOWN, METRICS, MIN_SLOWDOWN, NAN
from interfere.records.cluster import Device, Job, Snapshot
from interfere.records.explanations import Alternative, Contribution, Explanation, PairExplanation
from interfere.records.facts import COUNTERS, JobProfile, KernelStat
from interfere.records.limits import (
    ActionKind,
    Limits,
    MemoryLimits,
    ObjectiveKind,
    ObjectiveTerm,
    SlowdownLimits,
    TimeLimits,
)
from interfere.records.measurements import (
    IMPORTANT_NEIGHBOUR,
    IMPORTANT_VICTIM,
    GroupMeasurement,
    PairMeasurement,
    PairStatus,
)
from interfere.records.observations import (
    MemoryUsage,
    Observation,
    ObservationResult,
    Outcome,
    OutcomeKind,
    Progress,
    ReporterWeight,
    Rollback,
)
from interfere.records.plans import Action, LevelKind, Pairing, Plan, PlanLevel, Ranking, Refusal, SolveStatus
from interfere.records.predictions import MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source
from interfere.records.promises import AcceptedDeadline, DeviceSlots, Grant, Promise, ScopeLedger
from interfere.records.rules import MemoryBasis, MemoryDemand, Rule, RuleKind
from interfere.records.windows import Window

__all__ = [
    "COUNTERS",
    "IMPORTANT_NEIGHBOUR",
    "IMPORTANT_VICTIM",
    "MAX_SLOWDOWN",
    "METRICS",
    "MIN_SLOWDOWN",
    "NAN",
    "AcceptedDeadline",
    "Action",
    "ActionKind",
    "Alternative",
    "BlockRequest",
    "BlockSide",
    "Contribution",
    "Device",
    "DeviceSlots",
    "Explanation",
    "Grant",
    "GroupMeasurement",
    "Job",
    "JobProfile",
    "KernelStat",
    "LevelKind",
    "Limits",
    "MatrixBatch",
    "MatrixPrediction",
    "MeasuredBlock",
    "MemoryBasis",
    "MemoryDemand",
    "MemoryLimits",
    "MemoryUsage",
    "ObjectiveKind",
    "ObjectiveTerm",
    "Observation",
    "ObservationResult",
    "Outcome",
    "OutcomeKind",
    "PairBatch",
    "PairExplanation",
    "PairMeasurement",
    "PairStatus",
    "Pairing",
    "Plan",
    "PlanLevel",
    "Prediction",
    "Progress",
    "Promise",
    "Ranking",
    "Refusal",
    "ReporterWeight",
    "Rollback",
    "Rule",
    "RuleKind",
    "ScopeLedger",
    "SideSlice",
    "SlowdownLimits",
    "Snapshot",
    "SoloMeasurement",
    "SolveStatus",
    "Source",
    "TimeLimits",
    "Window",
    "WorkloadGroup",
    "WorkloadPair",
    "group_key",
]
