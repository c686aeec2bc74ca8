"""The rules behind a decision: why a placement is forbidden, why a job waits, and why an action was chosen.

A rule is a kind with parameters. Only `interfere.policy.rules.text` turns a rule into a sentence, and no code reads the
sentence back. Every field besides the kind is a parameter; `RuleKind` lists the parameters of each kind.
"""

from enum import StrEnum

from interfere.records.checks import NAN
from interfere.records.limits import ActionKind
from interfere.records.record import record
from interfere.sharing_modes import OptionalSharingMode


class RuleKind(StrEnum):
    """The kinds of rules, and the parameters of each kind. `job_id` is always the job that the rule is about."""

    # --- the job may not start on a device, with or without co-located jobs -------------------------------------------
    POOL = "pool"  # the device is in none of the job's pools: pools, pool; without a device_type: no device is
    DEVICE_CLOSED = "device_closed"  # outside of its windows: opens_in_s, absent where it never opens again
    WINDOW = "window"  # the device closes before the job ends: closes_in_s, runtime_s or checkpoint_s
    DEADLINE = "deadline"  # the job could end too late: time_left_s, runtime_s
    MEMORY = "memory"  # demands exceed the capacity: demand, capacity_bytes
    GRANT = "grant"  # grants exceed the granules of the device: demand, needed_granules, capacity_granules
    WORKING_SET = "working_set"  # working sets exceed the capacity, they would be swapped: demand, capacity_bytes
    # --- the job may not share the device with partner_id -------------------------------------------------------------
    ACTION_NOT_ALLOWED = "action_not_allowed"  # by the limits of the request: action, max_shared_gpus
    UNPROFILED_WORKLOAD = "unprofiled_workload"  # it has to run alone first: workload, device_type
    UNKNOWN_DEVICE_TYPE = "unknown_device_type"  # or sharing mode, to the model: device_type, sharing_mode, detail
    NOVEL_PAIR = "novel_pair"  # the model abstains, the pair is unlike all it learned from: workload, partner_workload
    MISFIT_RISK = "misfit_risk"  # predicted: misfit_probability, max_misfit_probability, capacity_bytes
    JOB_SLOWDOWN_CAP = "job_slowdown_cap"  # the job's own max_slowdown: slowdown, slowdown_cap, risk
    REQUEST_SLOWDOWN_CAP = "request_slowdown_cap"  # the max_slowdown of the limits: slowdown, slowdown_cap, risk
    PROTECTED_SLOWDOWN = "protected_slowdown"  # against a partner of lower priority: priority, partner_priority
    # latency_target_s, step_time_s; slowdown, absent where it is missed even alone; detail: latency_p99 where judged by
    # that. Where the p99 misses the target alone, step_time_s is the p99 alone.
    LATENCY_TARGET = "latency_target"
    JOINT_THROUGHPUT = "joint_throughput"  # one after the other does as much: slowdown, partner_slowdown
    GUEST_ENDS_FIRST = "guest_ends_first"  # the job would outlast the resident: runtime_s, partner_runtime_s
    CUSTOM = "custom"  # a rule of another package, that the server's settings name: custom_rule, detail
    # --- no device is left for the job --------------------------------------------------------------------------------
    NO_FREE_SEAT = "no_free_seat"  # residents and gpus of the job that is in the way, where one device was asked about
    GANG = "gang"  # no set of gpus devices of one class is free
    MULTI_DEVICE_JOB = "multi_device_job"  # it takes gpus devices at once, single devices are not ranked for it
    MAX_DEVICES = "max_devices"  # the limits let the plan take no more empty devices: max_devices, kept_devices
    LOWER_COST_ELSEWHERE = "lower_cost_elsewhere"  # jobs of no more weight got the places it could take, at less cost
    PLACES_TAKEN = "places_taken"  # jobs of more weight, or submitted before, got them
    PLANNED_LATER = "planned_later"  # start_in_s, device_type, partner_id; saved_s against a start now on type pool
    DEVICES_PROMISED = "devices_promised"  # all of them, to other jobs; with action end: or a resident is to end
    DEVICES_RESERVED = "devices_reserved"  # the last of them are kept free for partner_id, which is overdue
    PROMISED_TO_OTHER_JOB = "promised_to_other_job"  # this device, to partner_id by decision_id
    ACCEPTED_DEADLINE = "accepted_deadline"  # partner_id would miss the deadline that was guaranteed to it
    INFEASIBLE_DEADLINE = "infeasible_deadline"  # nothing can meet it even alone: time_left_s, runtime_s
    NO_ALLOWED_ACTION = "no_allowed_action"  # nothing that the limits allow fits the job
    # --- grounds on which an action was chosen ------------------------------------------------------------------------
    DEVICE_FREE = "device_free"  # it starts alone
    LEAST_COST = "least_cost"  # the plan with it does: slowdown, partner_slowdown, partner_workload, paging_slowdown
    PROBE = "probe"  # the run beside partner_id teaches most: taught_share; slowdown, partner_slowdown extrapolated
    PROMISED = "promised"  # by decision_id; said again until the promise is kept, released or expired
    MIGRATION_GAIN = "migration_gain"  # residents move: saved_s, paid_s; partner_id starts where one leaves
    PREEMPTED = "preempted"  # a resident stops for partner_id, of higher priority: saved_s, paid_s
    RESIZED = "resized"  # an elastic resident stops, to start again on gpus devices
    DEVICE_VACATED = "device_vacated"  # partner_id leaves the device to it, by the action
    RESIDENT_STAYS = "resident_stays"
    GRANT_EXCEEDED = "grant_exceeded"  # used_bytes, granted_bytes, duration_s; of the whole device where that is full


class MemoryBasis(StrEnum):
    """The source of a job's memory demand."""

    PEAK = "peak"  # the measured peak of the job or of its profile
    GRANT = "grant"  # the grant that the job asks for
    WORKING_SET = "working_set"  # what one step touches; stands in for an unknown peak
    STATIC_TRACE = "static_trace"  # the peak that a static trace expects
    MEASURED_USE = "measured_use"  # the most that jobs of its workload were seen to hold


@record
class MemoryDemand:
    """The device memory that a job needs; unknown sizes are NaN."""

    needed_bytes: float = NAN
    basis: MemoryBasis = MemoryBasis.PEAK
    known_bytes: float = NAN  # the smaller size that measured use replaced; NaN where nothing else was known
    known_basis: MemoryBasis = MemoryBasis.PEAK
    working_set_bytes: float = NAN


@record
class Rule:
    """One rule with its parameters. Absent numbers are NaN or None, absent names are empty."""

    kind: RuleKind
    job_id: str = ""
    partner_id: str = ""  # the other job: a co-located one, or the one that the rule favours
    workload: str = ""
    partner_workload: str = ""
    device_type: str = ""
    sharing_mode: OptionalSharingMode = ""
    pool: str = ""  # that the device is in
    pools: tuple[str, ...] = ()  # that the job allows
    action: ActionKind | None = None
    decision_id: str = ""
    detail: str = ""  # what the predictor or the rule of another package says of it, in words
    custom_rule: str = ""  # name of the rule of another package
    demand: MemoryDemand | None = None
    partner_demand: MemoryDemand | None = None
    capacity_bytes: float = NAN  # that the demands may come to
    device_memory_bytes: float = NAN
    memory_headroom: float = NAN  # share of the device's memory that two jobs must leave free
    oversubscription_ratio: float = NAN
    granule_bytes: float = NAN
    needed_granules: int | None = None
    partner_needed_granules: int | None = None
    capacity_granules: int | None = None
    misfit_probability: float = NAN
    max_misfit_probability: float = NAN
    slowdown: float = NAN  # predicted, of the job: the median of a chosen pair, the quantile 1 - risk against a cap
    partner_slowdown: float = NAN
    slowdown_cap: float = NAN
    min_joint_throughput: float = NAN  # that 1/slowdown + 1/partner_slowdown has to exceed
    risk: float = NAN
    priority: int | None = None
    partner_priority: int | None = None
    latency_target_s: float = NAN
    step_time_s: float = NAN  # of one step or request alone on the device type
    runtime_s: float = NAN  # seconds from its start to its end on the device; alone unless a slowdown is given
    partner_runtime_s: float = NAN
    time_left_s: float = NAN  # until the deadline; negative once it has passed
    start_in_s: float = NAN  # until the planned start of the job
    closes_in_s: float = NAN
    opens_in_s: float = NAN
    checkpoint_s: float = NAN
    gpus: int | None = None
    residents: int | None = None
    max_shared_gpus: int | None = None
    max_devices: int | None = None
    kept_devices: int | None = None  # empty devices that are promised to others
    refused_pairs: int | None = None  # that the rule forbids, where it stands for all pairs of a waiting job
    paging_slowdown: float = NAN  # factor for paging in the cost of the group; absent where none counts
    taught_share: float = NAN  # of what is not known of the job's pairs, that a run beside the partner would teach
    saved_s: float = NAN  # weighted seconds that an action saves
    paid_s: float = NAN  # weighted seconds of checkpoints that it costs
    granted_bytes: float = NAN
    used_bytes: float = NAN
    device_used_bytes: float = NAN
    duration_s: float = NAN
