"""The cluster as a scheduler sends it: jobs, devices, limits, and the snapshot of one moment."""

import math
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from interfere.errors import InvalidInputError, Violation
from interfere.records.checks import (
    NAN,
    check,
    mode_violations,
    number_violations,
    text_violations,
)
from interfere.records.windows import Window

# Two jobs that take turns get the work of one done: at a joint throughput of 1 sharing gains nothing.
DEFAULT_MIN_JOINT_THROUGHPUT = 1.0
DEFAULT_RISK = 0.05  # the interval of every prediction ends at the 5 % and 95 % quantiles
MAX_HEADROOM = 0.99  # share of a device's memory; a share of 1 would forbid every pair
MIN_TIME_BUDGET_S = 0.001  # in less time not even the costs can be computed
HIGHEST_PRIORITY = 9  # ten levels: the digits; Kubernetes and Slurm clusters rarely name more
# Clients of one MPS server on a GPU since Volta (NVIDIA, Multi-Process Service, section 2.3.2).
MAX_SEATS = 48
DEFAULT_SEATS = 2
MIN_WEIGHT = 1e-6  # of a job, or of a term of an objective: smaller ones vanish in sums over a million jobs
MIN_RISK, MAX_RISK = 0.001, 0.5  # smaller risks cannot be calibrated on the rows there are; at 0.5 the median decides
# Two of Slurm's main scheduling cycles (sched_interval, 60 s by default; slurm.conf, SchedulerParameters): a scheduler
# that has not started a job by then has decided otherwise.
DEFAULT_PROMISE_TTL_S = 120.0
MIN_SLICE_S = 1e-3  # shorter than any decision takes
# After each of these periods a job that has waited for three of them counts once more: five minutes, ten rounds of
# Slurm's backfill (bf_interval, 30 s).
DEFAULT_AGEING_S = 300.0
# Two of Prometheus' default scrape intervals (scrape_interval, 1 m): a job above its grant for that long was measured
# so in at least two windows.
DEFAULT_GRANT_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A pending or running job. Only `id` and `workload` are required.

    >>> from interfere import Job
    >>> job = Job(id="j1", workload="resnet-train", remaining_s=3600.0, max_slowdown=1.5)
    >>> job.priority, job.gpus, job.preemptible
    (0, 1, False)
    """

    id: str
    workload: str
    profile_id: str = ""
    memory_peak_bytes: float = NAN
    weight: float = 1.0
    max_slowdown: float = NAN  # the job's own slowdown cap, on the quantile 1 - risk of the limits
    remaining_s: float = NAN  # expected, alone on its fastest device type; objectives of time require it
    attained_s: float = NAN  # service so far, in seconds alone on its fastest device type
    elapsed_s: float = NAN  # since submission; a pending job counts more the longer it has waited
    priority: int = 0  # 0 to 9; strict: nothing of a lower priority is weighed against a higher one
    memory_working_set_bytes: float = NAN  # used where no peak is known
    latency_target_s: float = NAN  # upper limit on the time of one request: time alone × slowdown, at that quantile
    gpus: int = 1  # devices that it takes at once; a running job is a resident of each of them
    pools: tuple[str, ...] = ()  # of devices that it may start on; empty: any
    preemptible: bool = False  # whether it may be moved or stopped while it runs
    checkpoint_s: float = NAN  # cost of moving or stopping it
    since_s: float = NAN  # when a resident started on its devices, on the caller's clock
    grant_bytes: float = NAN  # memory that it asks for on each of its devices; absent: its known demand
    deadline_s: float = NAN  # on the caller's clock; needs remaining_s
    remaining_p90_s: float = NAN  # 90 % quantile of the remaining time, of which remaining_s is then the median

    def __post_init__(self) -> None:
        bad = text_violations(self, "id", "workload") + number_violations(self, "memory_peak_bytes", "remaining_s")
        bad += number_violations(self, "attained_s", "elapsed_s") + number_violations(self, "max_slowdown", low=1.0)
        bad += number_violations(self, "checkpoint_s", "since_s")
        bad += number_violations(self, "memory_working_set_bytes", "latency_target_s")
        bad += number_violations(self, "weight", low=MIN_WEIGHT, nan=False)
        bad += number_violations(self, "gpus", low=1.0, nan=False) + number_violations(self, "grant_bytes", low=1.0)
        bad += number_violations(self, "deadline_s", "remaining_p90_s")
        if not math.isnan(self.remaining_p90_s) and not self.remaining_p90_s >= self.remaining_s:
            what, remedy = "must be ≥ remaining_s, which it needs", "send the median as remaining_s, or leave it out"
            value = f"{self.remaining_p90_s!r} beside {self.remaining_s!r}"
            bad.append(Violation(field="remaining_p90_s", what=what, value=value, remedy=remedy))
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            bad.append(
                Violation(
                    field="priority",
                    what=f"must be a whole number from 0 to {HIGHEST_PRIORITY}",
                    value=repr(self.priority),
                    remedy=f"map your priorities to 0..{HIGHEST_PRIORITY}",
                )
            )
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device and the jobs that run on it now.

    With a granule or a ratio above 1 it grants its memory: every job on it holds a grant of whole granules, in all
    at most ratio * memory. A ratio above 1 promises more than there is: it needs unified memory, where pages that do
    not fit are swapped to the host, and jobs whose working sets together still fit.

    >>> from interfere import Device, Job
    >>> device = Device(id="d0", type="v100", memory_bytes=16e9, residents=(Job(id="j0", workload="gemm"),))
    >>> device.type, [resident.id for resident in device.residents]
    ('v100', ['j0'])
    """

    id: str
    type: str
    node: str = ""
    memory_bytes: float = NAN
    mode: str = ""  # sharing mode; empty: not named, the one that the model knows for the type, else timeslice
    residents: tuple[Job, ...] = ()
    pool: str = ""  # named part of the scope that jobs may be restricted to
    oversubscription_ratio: float = 1.0  # memory that may be granted ÷ memory of the device
    granule_bytes: float = NAN  # unit of grants; absent: memory is not granted in granules
    windows: tuple[Window, ...] = ()  # times at which it may be used; empty: always
    price_per_hour: float = NAN  # while jobs occupy it; the objective cost needs it
    power_w: float = NAN  # while jobs occupy it; the objective energy needs it
    seats: int | None = None  # jobs that may share it; absent: its granules where it names their size, else two

    def __post_init__(self) -> None:
        bad = text_violations(self, "id", "type") + number_violations(self, "memory_bytes", low=1.0)
        bad += mode_violations(self.mode) if self.mode else []
        bad += number_violations(self, "oversubscription_ratio", low=1.0, nan=False)
        bad += number_violations(self, "granule_bytes", low=1.0)
        bad += number_violations(self, "price_per_hour", "power_w")
        if self.seats is not None and not 1 <= self.seats <= MAX_SEATS:
            what, remedy = f"must be a whole number from 1 to {MAX_SEATS}", "leave it out for two"
            bad.append(Violation(field="seats", what=what, value=repr(self.seats), remedy=remedy))
        if self.granule_bytes > self.memory_bytes:
            bad.append(
                Violation(
                    field="granule_bytes",
                    what=f"is more than memory_bytes, {self.memory_bytes!r}",
                    value=repr(self.granule_bytes),
                    remedy="choose a granule of at most the device's memory",
                )
            )
        check(bad)


class ObjectiveKind(StrEnum):
    """What a decision minimises once the most weight is started; `interfere.policy.costs.objectives` defines each."""

    WEIGHTED_EXCESS = "weighted_excess"
    TOTAL_SLOWDOWN = "total_slowdown"
    COMPLETION_TIME = "completion_time"
    MAKESPAN = "makespan"
    FINISH_TIME_FAIRNESS = "finish_time_fairness"
    PAIRS_PAST_CAP = "pairs_past_cap"
    DEADLINE_MISSES = "deadline_misses"
    COST = "cost"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveTerm:
    """One part of a weighted sum of objectives."""

    kind: ObjectiveKind
    weight: float = 1.0

    def __post_init__(self) -> None:
        check(number_violations(self, "weight", low=MIN_WEIGHT, nan=False))


class ActionKind(StrEnum):
    """What a plan may ask a scheduler to do.

    >>> from interfere import ActionKind
    >>> [kind.value for kind in ActionKind][:3]
    ['start_alone', 'start_shared', 'wait']
    """

    START_ALONE = "start_alone"
    START_SHARED = "start_shared"
    WAIT = "wait"
    KEEP = "keep"
    MOVE = "move"
    PREEMPT = "preempt"
    END = "end"
    DEMOTE = "demote"
    DECLINE = "decline"


DEFAULT_ALLOWED = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT})
# A move must be worth twice what it costs: remaining times are estimates, and a mover that ends after half of its own
# has then lost nothing.
DEFAULT_MOVE_FACTOR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownLimits:
    """How far jobs may be slowed down. A cap holds on the quantile 1 - risk of the predicted slowdown."""

    max_slowdown: float = NAN  # cap for every job; the tighter of this and the job's own holds
    protected_slowdown: float = NAN  # cap that a job holds against partners of lower priority
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT  # a pair shares only above 1/s + 1/s'; 0: any pair may
    soft_cap: float = NAN  # the slowdown that the objective pairs_past_cap keeps pairs below; it forbids nothing
    risk: float = DEFAULT_RISK  # probability with which a slowdown may pass its cap

    def __post_init__(self) -> None:
        bad = number_violations(self, "max_slowdown", "protected_slowdown", "soft_cap", low=1.0)
        bad += number_violations(self, "min_joint_throughput", nan=False)
        if not MIN_RISK <= self.risk <= MAX_RISK:
            bad.append(
                Violation(
                    field="risk",
                    what=f"must be in [{MIN_RISK}, {MAX_RISK}]",
                    value=repr(self.risk),
                    remedy=f"leave it out for {DEFAULT_RISK}",
                )
            )
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimits:
    """How full device memory may become, and when a job that exceeds its grant may be ended."""

    memory_headroom: float = 0.0  # share of a device's memory that two jobs must leave free
    misfit_risk: float = NAN  # largest predicted probability that two jobs do not fit; absent: sums alone decide
    grant_patience_s: float = DEFAULT_GRANT_PATIENCE_S  # a job above its grant for this long without a dip may be ended
    grant_tolerance: float = 0.05  # share of its grant that a job may use beyond it

    def __post_init__(self) -> None:
        bad = _share_violations(self, "memory_headroom", MAX_HEADROOM)
        bad += [] if math.isnan(self.misfit_risk) else _share_violations(self, "misfit_risk", 1.0)
        bad += number_violations(self, "grant_patience_s", "grant_tolerance", nan=False)
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How long a search may take, how long a promise lives, how often to decide, and how waiting counts."""

    time_budget_s: float = NAN  # for the search; past it the best plan so far is answered as BOUNDED
    promise_ttl_s: float = DEFAULT_PROMISE_TTL_S  # how long a planned start keeps its place, on the caller's clock
    slice_s: float = NAN  # decide anew at least this often
    ageing_s: float = DEFAULT_AGEING_S  # a job counts once more for each, from the third that it waits; 0: never

    def __post_init__(self) -> None:
        bad = number_violations(self, "time_budget_s", low=MIN_TIME_BUDGET_S)
        bad += number_violations(self, "promise_ttl_s", "ageing_s", nan=False)
        bad += number_violations(self, "slice_s", low=MIN_SLICE_S)
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may do and how far it may go. `Limits.of(max_slowdown=1.5)` takes every limit by its own name.

    >>> from interfere import ActionKind, Limits
    >>> allowed = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, ActionKind.MOVE})
    >>> limits = Limits.of(allowed=allowed, max_slowdown=1.5, time_budget_s=2.0)
    >>> limits.slowdown.max_slowdown, limits.timing.time_budget_s
    (1.5, 2.0)
    """

    allowed: frozenset[ActionKind] = DEFAULT_ALLOWED
    max_devices: int | None = None  # empty devices that may be taken
    most_shared_gpus: int | None = None  # jobs on more devices than this run without co-located jobs
    allow_extrapolation: bool = False
    choosable_modes: frozenset[str] = (
        frozenset()
    )  # sharing modes that a plan may set on empty devices; none: they keep theirs
    guest_ends_first: bool = False  # may a job join a resident only where it is expected to end no later?
    promise_deadlines: bool = True  # accept deadlines, and start no job that would break one
    rematch_running: bool = False  # with `move`: residents and pending jobs are re-paired as one assignment
    move_factor: float = DEFAULT_MOVE_FACTOR  # a move must save more than this times what it costs
    slowdown: SlowdownLimits = field(default_factory=SlowdownLimits)
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    timing: TimeLimits = field(default_factory=TimeLimits)

    def __post_init__(self) -> None:
        bad = number_violations(self, "move_factor", low=1.0, nan=False)
        for name, low in (("max_devices", 0), ("most_shared_gpus", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                what, remedy = f"must be ≥ {low}", "leave it out for no limit"
                bad.append(Violation(field=name, what=what, value=repr(value), remedy=remedy))
        for mode in sorted(self.choosable_modes):
            bad += [replace(violation, field="choosable_modes") for violation in mode_violations(mode)]
        if ActionKind.WAIT not in self.allowed:
            bad.append(
                Violation(
                    field="allowed",
                    what="wait cannot be forbidden",
                    value=", ".join(sorted(self.allowed)) or "nothing",
                    remedy="add wait: a job that fits nowhere has to",
                )
            )
        check(bad)

    @classmethod
    def of(cls, **values: Any) -> "Limits":
        """Limits from flat names, as on the wire and in JSON. Raises InvalidInputError with every broken rule.

        TypeError names a limit that does not exist.
        """
        violations: list[Violation] = []
        grouped: dict[str, Any] = {}
        for group, record in LIMIT_GROUPS.items():
            names = [limit.name for limit in fields(record) if limit.name in values]
            try:
                grouped[group] = record(**{name: values.pop(name) for name in names})
            except InvalidInputError as error:
                violations += error.violations
        try:
            limits = cls(**values)
        except InvalidInputError as error:
            violations += error.violations
        check(violations)
        return replace(limits, **grouped)

    def flat(self) -> dict[str, Any]:
        """Every limit by its own name; `Limits.of(**limits.flat())` gives the limits back."""
        values = {limit.name: getattr(self, limit.name) for limit in fields(self)}
        for group in LIMIT_GROUPS:
            record = values.pop(group)
            values |= {limit.name: getattr(record, limit.name) for limit in fields(record)}
        return values

    def within(self, *, time_budget_s: float) -> "Limits":
        """The same limits with another time budget for the search."""
        return replace(self, timing=replace(self.timing, time_budget_s=time_budget_s))


LIMIT_GROUPS: dict[str, type[SlowdownLimits] | type[MemoryLimits] | type[TimeLimits]] = {
    "slowdown": SlowdownLimits,
    "memory": MemoryLimits,
    "timing": TimeLimits,
}


def _share_violations(limits: MemoryLimits, name: str, high: float) -> list[Violation]:
    value = getattr(limits, name)
    if 0 <= value <= high:
        return []
    return [Violation(field=name, what=f"must be in [0, {high:g}]", value=repr(value), remedy="leave it out for none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the scheduler sees now: the truth for its scope.

    With `now_s`, the caller's clock, planned starts are remembered as promises; without it every snapshot stands alone.

    >>> from interfere import Device, Job, Snapshot
    >>> queue = (Job(id="j1", workload="gemm"), Job(id="j2", workload="stream"))
    >>> snapshot = Snapshot(pending=queue, devices=(Device(id="d0", type="cpu-core"),), now_s=0.0)
    >>> snapshot.scope, snapshot.objective.value
    ('default', 'weighted_excess')
    """

    pending: tuple[Job, ...]
    devices: tuple[Device, ...]
    scope: str = "default"
    snapshot_id: str = ""
    limits: Limits = field(default_factory=Limits)
    objective: ObjectiveKind = ObjectiveKind.WEIGHTED_EXCESS
    objective_terms: tuple[ObjectiveTerm, ...] = ()  # a weighted sum in place of `objective`
    now_s: float = NAN
    partial: bool = False  # jobs and devices that are left out may still be there

    def __post_init__(self) -> None:
        check(number_violations(self, "now_s"))
